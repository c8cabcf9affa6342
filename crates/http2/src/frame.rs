//! Frames: their nine bytes of header, and the payloads that both ends write and read.

/// What a client sends first (RFC 9113, section 3.4). Its SETTINGS frame follows.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame's header in bytes (RFC 9113, section 4.1).
pub const HEADER_BYTES: usize = 9;

/// The payload that any peer takes, in bytes: what SETTINGS_MAX_FRAME_SIZE is at first, and the
/// least that it can be.
pub const DEFAULT_FRAME_BYTES: u32 = 16_384;

/// The window of a connection, and of its streams, before anyone changes it, in bytes.
pub const DEFAULT_WINDOW_BYTES: u32 = 65_535;

/// The largest window that there can be, in bytes (RFC 9113, section 6.9.1).
pub const MAX_WINDOW_BYTES: u32 = 0x7fff_ffff;

/// The kinds of frames (RFC 9113, section 6).
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u8 = 0;
    /// A block of headers, or its beginning.
    pub const HEADERS: u8 = 1;
    /// Deprecated, and to be ignored.
    pub const PRIORITY: u8 = 2;
    /// Ends a stream at once.
    pub const RST_STREAM: u8 = 3;
    /// What the sender wants of its peer.
    pub const SETTINGS: u8 = 4;
    /// A response that was not asked for.
    pub const PUSH_PROMISE: u8 = 5;
    /// Asks for the same eight bytes.
    pub const PING: u8 = 6;
    /// The sender takes no further streams.
    pub const GOAWAY: u8 = 7;
    /// Lets the peer send more.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a block of headers.
    pub const CONTINUATION: u8 = 9;
}

/// The flags of frames (RFC 9113, section 6). The same bit has other meanings in other kinds.
pub mod flag {
    /// DATA, HEADERS: the sender's last frame on this stream.
    pub const END_STREAM: u8 = 1;
    /// SETTINGS, PING: the response to such a frame.
    pub const ACK: u8 = 1;
    /// HEADERS, CONTINUATION: the block of headers is complete.
    pub const END_HEADERS: u8 = 4;
    /// DATA, HEADERS: the payload begins with a length of padding, which is at its end.
    pub const PADDED: u8 = 8;
    /// HEADERS: five bytes of priority precede the block.
    pub const PRIORITY: u8 = 0x20;
}

/// The parameters of SETTINGS (RFC 9113, section 6.5.2).
pub mod setting {
    /// The sender's table for decoding headers, in bytes; 4,096 at first.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// 0: a server may not push.
    pub const ENABLE_PUSH: u16 = 2;
    /// Streams that the peer may have open at once.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// The window of each stream for what the peer sends, in bytes; 65,535 at first.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// The largest payload that the sender takes, in bytes; 16,384 at first.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// The largest list of headers that the sender takes, in bytes.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ends (RFC 9113, section 7).
pub mod code {
    /// In good order.
    pub const NO_ERROR: u32 = 0;
    /// Something that cannot be.
    pub const PROTOCOL_ERROR: u32 = 1;
    /// A fault of the sender's own.
    pub const INTERNAL_ERROR: u32 = 2;
    /// More was sent than the window allowed.
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: u32 = 4;
    /// A frame on a stream that had ended.
    pub const STREAM_CLOSED: u32 = 5;
    /// A frame of a length that cannot be.
    pub const FRAME_SIZE_ERROR: u32 = 6;
    /// The stream was refused before anything was done for it.
    pub const REFUSED_STREAM: u32 = 7;
    /// The stream is no longer wanted.
    pub const CANCEL: u32 = 8;
    /// The tables for headers no longer agree.
    pub const COMPRESSION_ERROR: u32 = 9;
    /// A CONNECT's own connection failed.
    pub const CONNECT_ERROR: u32 = 10;
    /// The peer asks for more than is reasonable.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
    /// The connection is not secure enough.
    pub const INADEQUATE_SECURITY: u32 = 12;
    /// HTTP/1.1 is to be used instead.
    pub const HTTP_1_1_REQUIRED: u32 = 13;
}

/// The nine bytes before each payload (RFC 9113, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, padding included.
    pub length: u32,
    /// One of [`kind`], or a kind that is not known and to be ignored.
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// The stream, 0 for the connection itself.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads a header. Any nine bytes are a header; the reserved bit is ignored.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([d, e, f, g]) & MAX_WINDOW_BYTES,
        }
    }

    /// Appends the header's nine bytes. A length above 2^24 - 1 does not fit, and is cut.
    pub fn write(&self, out: &mut Vec<u8>) {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags, d, e, f, g]);
    }

    /// Whether all bits of `flag` are set.
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }
}

/// Bytes that are no HTTP/2. Each of them ends the connection; [`FrameError::code`] is what to
/// tell the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The payload is longer than was agreed.
    #[error("a frame of kind {kind} has {length} bytes; at most {max} were agreed")]
    TooLarge {
        /// The frame's kind.
        kind: u8,
        /// Its length in bytes.
        length: u32,
        /// The longest that there may be, in bytes.
        max: u32,
    },
    /// A length that this kind of frame cannot have.
    #[error("a frame of kind {kind} has {length} bytes, which its kind cannot have")]
    Length {
        /// The frame's kind.
        kind: u8,
        /// Its length in bytes.
        length: u32,
    },
    /// A stream for what is of the connection, or the other way round.
    #[error("a frame of kind {kind} is on stream {stream}, where its kind cannot be")]
    Stream {
        /// The frame's kind.
        kind: u8,
        /// Its stream.
        stream: u32,
    },
    /// The padding is longer than the payload.
    #[error("a frame of kind {kind} is padded with more than its payload")]
    Padding {
        /// The frame's kind.
        kind: u8,
    },
    /// A priority that makes a stream depend on itself (RFC 7540, section 5.3.1).
    #[error("stream {stream} depends on itself")]
    SelfDependency {
        /// The stream.
        stream: u32,
    },
    /// CONTINUATION without headers before it, or something else within a block of headers.
    #[error("a frame of kind {kind} where a block of headers does not allow it")]
    Order {
        /// The frame's kind.
        kind: u8,
    },
    /// A block of headers beyond what any honest peer sends.
    #[error("a block of headers is longer than {max} bytes")]
    HeadersTooLarge {
        /// The longest block that is taken, in bytes.
        max: usize,
    },
}

impl FrameError {
    /// The code for GOAWAY: one of [`code`].
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::TooLarge { .. } | Self::Length { .. } => code::FRAME_SIZE_ERROR,
            Self::HeadersTooLarge { .. } => code::ENHANCE_YOUR_CALM,
            Self::Stream { .. }
            | Self::Padding { .. }
            | Self::SelfDependency { .. }
            | Self::Order { .. } => code::PROTOCOL_ERROR,
        }
    }
}

fn begin(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let header = FrameHeader {
        length: length as u32,
        kind,
        flags,
        stream,
    };
    header.write(out);
}

/// Appends SETTINGS with these parameters of [`setting`] and their values.
pub fn settings(out: &mut Vec<u8>, values: &[(u16, u32)]) {
    begin(out, values.len() * 6, kind::SETTINGS, 0, 0);
    for (parameter, value) in values {
        out.extend_from_slice(&parameter.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of the peer's SETTINGS.
pub fn settings_ack(out: &mut Vec<u8>) {
    begin(out, 0, kind::SETTINGS, flag::ACK, 0);
}

/// Appends WINDOW_UPDATE: the peer may send so many bytes more (1 to 2^31 - 1), on a stream or,
/// with stream 0, in all.
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    begin(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a PING.
pub fn ping(out: &mut Vec<u8>, payload: [u8; 8]) {
    begin(out, 8, kind::PING, 0, 0);
    out.extend_from_slice(&payload);
}

/// Appends the response to a PING, which has the same payload.
pub fn ping_ack(out: &mut Vec<u8>, payload: [u8; 8]) {
    begin(out, 8, kind::PING, flag::ACK, 0);
    out.extend_from_slice(&payload);
}

/// Appends a block of headers: one HEADERS frame, and CONTINUATION beyond
/// [`DEFAULT_FRAME_BYTES`].
pub fn headers(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool) {
    let (mut piece, mut rest) = cut(block);
    let mut of_kind = kind::HEADERS;
    let mut flags = if end_stream { flag::END_STREAM } else { 0 };
    loop {
        let end = if rest.is_empty() {
            flag::END_HEADERS
        } else {
            0
        };
        begin(out, piece.len(), of_kind, flags | end, stream);
        out.extend_from_slice(piece);
        if rest.is_empty() {
            return;
        }
        (piece, rest) = cut(rest);
        of_kind = kind::CONTINUATION;
        flags = 0;
    }
}

fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(DEFAULT_FRAME_BYTES as usize))
}

/// Appends the header of a DATA frame; the caller appends its `length` bytes, no more than the
/// peer's SETTINGS_MAX_FRAME_SIZE.
pub fn data_header(out: &mut Vec<u8>, stream: u32, length: u32, end_stream: bool) {
    let flags = if end_stream { flag::END_STREAM } else { 0 };
    begin(out, length as usize, kind::DATA, flags, stream);
}

/// Appends DATA, as several frames beyond [`DEFAULT_FRAME_BYTES`].
pub fn data(out: &mut Vec<u8>, stream: u32, payload: &[u8], end_stream: bool) {
    let mut rest = payload;
    loop {
        let piece;
        (piece, rest) = cut(rest);
        let last = rest.is_empty();
        data_header(out, stream, piece.len() as u32, end_stream && last);
        out.extend_from_slice(piece);
        if last {
            return;
        }
    }
}

/// Appends RST_STREAM with one of [`code`].
pub fn rst_stream(out: &mut Vec<u8>, stream: u32, code: u32) {
    begin(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.to_be_bytes());
}

/// Appends GOAWAY: streams above `last_stream` were not looked at; `code` is one of [`code`].
pub fn goaway(out: &mut Vec<u8>, last_stream: u32, code: u32) {
    begin(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
}

/// The parameters in the payload of SETTINGS, in their order; later ones prevail.
///
/// # Errors
/// When the payload is not made of whole parameters.
pub fn settings_values(payload: &[u8]) -> Result<impl Iterator<Item = (u16, u32)>, FrameError> {
    let (values, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() {
        return Err(FrameError::Length {
            kind: kind::SETTINGS,
            length: payload.len() as u32,
        });
    }
    let value = |[a, b, c, d, e, f]: &[u8; 6]| {
        (
            u16::from_be_bytes([*a, *b]),
            u32::from_be_bytes([*c, *d, *e, *f]),
        )
    };
    Ok(values.iter().map(value))
}

/// The 32 bits at the start of a payload without their first: the increment of WINDOW_UPDATE,
/// the last stream of GOAWAY. Zero when there are not so many.
#[must_use]
pub fn first_31_bits(payload: &[u8]) -> u32 {
    first_32_bits(payload) & MAX_WINDOW_BYTES
}

/// The 32 bits at the start of a payload: the code of RST_STREAM. Zero when there are not so
/// many.
#[must_use]
pub fn first_32_bits(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |b| u32::from_be_bytes(*b))
}

/// The code in the payload of GOAWAY. Zero when it is too short.
#[must_use]
pub fn goaway_code(payload: &[u8]) -> u32 {
    first_32_bits(payload.get(4..).unwrap_or_default())
}

/// A payload of DATA or HEADERS without its padding and, of HEADERS, without the priority
/// (RFC 9113, sections 6.1 and 6.2). What [`crate::reader::FrameReader`] hands out is rid of
/// both already, and passes unchanged.
///
/// # Errors
/// When there is more padding than payload, or the stream depends on itself.
pub fn strip_padding<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], FrameError> {
    let wrong = FrameError::Padding { kind: header.kind };
    let mut rest = payload;
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let (first, others) = rest.split_first().ok_or(wrong)?;
        (padding, rest) = (usize::from(*first), others);
    }
    if header.kind == kind::HEADERS && header.has(flag::PRIORITY) {
        let (priority, others) = rest.split_first_chunk::<5>().ok_or(wrong)?;
        if first_31_bits(priority) == header.stream {
            return Err(FrameError::SelfDependency {
                stream: header.stream,
            });
        }
        rest = others;
    }
    let end = rest.len().checked_sub(padding).ok_or(wrong)?;
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_nine_bytes() {
        let mut out = Vec::new();
        data_header(&mut out, 0x0102_0304, 0x05_0607, true);
        assert_eq!(out, [5, 6, 7, 0, 1, 1, 2, 3, 4]);
        let mut bytes = [0xff; 9];
        bytes.copy_from_slice(&out);
        let header = FrameHeader::parse(&bytes);
        assert_eq!((header.length, header.kind), (0x05_0607, kind::DATA));
        assert_eq!(header.stream, 0x0102_0304);
        assert!(header.has(flag::END_STREAM) && !header.has(flag::PADDED));
        // The reserved bit is nobody's.
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&bytes), header);
    }

    #[test]
    fn long_blocks_and_bodies_are_split() {
        let block = vec![7; 40_000];
        let mut out = Vec::new();
        headers(&mut out, 3, &block, true);
        assert_eq!(out.len(), 40_000 + 3 * HEADER_BYTES);
        assert_eq!(out[3..5], [kind::HEADERS, flag::END_STREAM]);
        let second = HEADER_BYTES + 16_384;
        assert_eq!(out[second + 3..second + 5], [kind::CONTINUATION, 0]);
        let third = 2 * second;
        assert_eq!(out[third + 3..third + 5], [kind::CONTINUATION, 4]);

        out.clear();
        data(&mut out, 3, &block, true);
        assert_eq!(out.len(), 40_000 + 3 * HEADER_BYTES);
        assert_eq!((out[4], out[third + 4]), (0, flag::END_STREAM));
        out.clear();
        data(&mut out, 3, &[], true);
        assert_eq!(out.len(), HEADER_BYTES);
    }

    #[test]
    fn settings_come_back() {
        let values = [
            (setting::INITIAL_WINDOW_SIZE, 1 << 30),
            (setting::ENABLE_PUSH, 0),
        ];
        let mut out = Vec::new();
        settings(&mut out, &values);
        let payload = &out[HEADER_BYTES..];
        let back: Vec<_> = settings_values(payload).unwrap().collect();
        assert_eq!(back, values);
        assert!(settings_values(&payload[1..]).is_err());
    }

    #[test]
    fn padding_and_priority_are_left_out() {
        let header = |kind, flags| FrameHeader {
            length: 0,
            kind,
            flags,
            stream: 1,
        };
        let both = header(kind::HEADERS, flag::PADDED | flag::PRIORITY);
        let payload = [2, 0, 0, 0, 0, 9, b'a', b'b', 0, 0];
        assert_eq!(strip_padding(&both, &payload).unwrap(), b"ab");
        assert!(strip_padding(&both, &payload[..7]).is_err());
        assert!(strip_padding(&both, &payload[..4]).is_err());
        assert!(strip_padding(&both, &[]).is_err());
        let data = header(kind::DATA, flag::PADDED | flag::PRIORITY);
        assert_eq!(strip_padding(&data, &[1, b'a', 0]).unwrap(), b"a");
        assert_eq!(strip_padding(&data, &[1, 0]).unwrap(), b"");
        assert!(strip_padding(&data, &[1]).is_err());
    }

    #[test]
    fn ends_say_why() {
        let mut out = Vec::new();
        goaway(&mut out, 7, code::ENHANCE_YOUR_CALM);
        assert_eq!(first_31_bits(&out[HEADER_BYTES..]), 7);
        assert_eq!(goaway_code(&out[HEADER_BYTES..]), code::ENHANCE_YOUR_CALM);
        assert_eq!(goaway_code(&[]), 0);
        let order = FrameError::Order { kind: 9 };
        assert_eq!(order.code(), code::PROTOCOL_ERROR);
        assert!(order.to_string().contains("kind 9"));
    }
}
