//! What arrives, cut into frames.

use crate::frame::{FrameError, FrameHeader, HEADER_BYTES, flag, kind, strip_padding};

/// The longest block of headers that is joined, in bytes. Each frame of it counts nine more, so
/// that a block of endless empty frames ends, too.
pub const MAX_BLOCK_BYTES: usize = 64 * 1024;

/// What [`FrameReader::next`] finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A complete frame of any kind but DATA. HEADERS come with their CONTINUATION frames
    /// joined, without padding and priority; header and flags say so.
    Frame {
        /// The frame's header; for HEADERS, of the joined block.
        header: FrameHeader,
        /// The whole payload.
        payload: &'a [u8],
    },
    /// Some bytes of a DATA frame, perhaps none.
    Data {
        /// The frame's header. Flow control counts its `length`, padding included: once, when
        /// `first` is set.
        header: FrameHeader,
        /// The bytes, without padding.
        bytes: &'a [u8],
        /// These are the frame's first bytes.
        first: bool,
        /// These are the frame's last bytes; END_STREAM holds from here.
        last: bool,
    },
}

/// Cuts a stream of bytes, in whatever pieces it arrives, into frames. Bodies are handed out as
/// they come, without a copy; other payloads are copied only if they arrive in pieces.
///
/// Lengths and streams that a kind of frame cannot have are refused here, so that its users may
/// take a PING to have eight bytes. After an error it is of no further use.
#[derive(Debug)]
pub struct FrameReader {
    max_frame_bytes: u32,
    state: State,
    /// A header, or a payload, that is not complete.
    partial: Vec<u8>,
    /// `partial` was handed out, and goes with the next call.
    handed_out: bool,
    /// The header block that is being joined.
    block: Vec<u8>,
    joining: Option<Joining>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(FrameHeader),
    /// The length of DATA's padding is next.
    PadLength(FrameHeader),
    Data {
        header: FrameHeader,
        left: u32,
        padding: u32,
        first: bool,
    },
    Padding(u32),
}

#[derive(Clone, Copy, Debug)]
struct Joining {
    header: FrameHeader,
    frames: usize,
}

/// Where the bytes of a frame are.
enum Place<'i> {
    Input(&'i [u8]),
    Partial,
    Block,
}

/// A piece whose bytes are not borrowed yet.
enum Found<'i> {
    Frame(FrameHeader, Place<'i>),
    Data {
        header: FrameHeader,
        bytes: &'i [u8],
        first: bool,
        last: bool,
    },
}

impl FrameReader {
    /// For frames of at most `max_frame_size` bytes of payload: what this end's
    /// SETTINGS_MAX_FRAME_SIZE says, 16,384 when it says nothing.
    #[must_use]
    pub fn new(max_frame_size: u32) -> Self {
        Self {
            max_frame_bytes: max_frame_size,
            state: State::Header,
            partial: Vec::new(),
            handed_out: false,
            block: Vec::new(),
            joining: None,
        }
    }

    /// The next piece; `input` is moved past what was used. `None`: all was used, and more is
    /// needed.
    ///
    /// # Errors
    /// When the bytes are no HTTP/2: the connection is to be ended.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'s>>, FrameError> {
        if std::mem::take(&mut self.handed_out) {
            self.partial.clear();
        }
        Ok(match self.find(input)? {
            None => None,
            Some(Found::Data {
                header,
                bytes,
                first,
                last,
            }) => Some(Piece::Data {
                header,
                bytes,
                first,
                last,
            }),
            Some(Found::Frame(header, place)) => Some(Piece::Frame {
                header,
                payload: match place {
                    Place::Input(bytes) => bytes,
                    Place::Partial => {
                        self.handed_out = true;
                        &self.partial
                    }
                    Place::Block => &self.block,
                },
            }),
        })
    }

    fn find<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Found<'i>>, FrameError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = self.header(input) else {
                        return Ok(None);
                    };
                    self.check(&header)?;
                    self.state = begin(header);
                }
                State::Payload(header) => {
                    let Some(place) = self.payload(header, input) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    if let Some(found) = self.complete(header, place)? {
                        return Ok(Some(found));
                    }
                }
                State::PadLength(header) => {
                    let Some((padding, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    let padding = u32::from(*padding);
                    let left = (header.length - 1).checked_sub(padding);
                    self.state = State::Data {
                        header,
                        left: left.ok_or(FrameError::Padding { kind: header.kind })?,
                        padding,
                        first: true,
                    };
                }
                State::Data {
                    header,
                    left,
                    padding,
                    first,
                } => {
                    let found = self.data(header, (left, padding), first, input);
                    return Ok(found);
                }
                State::Padding(left) => {
                    let left = left - take(input, left as usize).len() as u32;
                    if left > 0 {
                        self.state = State::Padding(left);
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    /// What is there of DATA, of which `left` bytes and then the padding are to come.
    fn data<'i>(
        &mut self,
        header: FrameHeader,
        (left, padding): (u32, u32),
        first: bool,
        input: &mut &'i [u8],
    ) -> Option<Found<'i>> {
        if left > 0 && input.is_empty() {
            return None;
        }
        let bytes = take(input, left as usize);
        let left = left - bytes.len() as u32;
        let last = left == 0;
        self.state = match last {
            true => State::Padding(padding),
            false => State::Data {
                header,
                left,
                padding,
                first: false,
            },
        };
        Some(Found::Data {
            header,
            bytes,
            first,
            last,
        })
    }

    /// The next header, which may have arrived in pieces.
    fn header(&mut self, input: &mut &[u8]) -> Option<FrameHeader> {
        if self.partial.is_empty()
            && let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>()
        {
            *input = rest;
            return Some(FrameHeader::parse(header));
        }
        let missing = HEADER_BYTES - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        let header = FrameHeader::parse(self.partial.first_chunk()?);
        self.partial.clear();
        Some(header)
    }

    /// Where the whole payload is, once it is there.
    fn payload<'i>(&mut self, header: FrameHeader, input: &mut &'i [u8]) -> Option<Place<'i>> {
        let length = header.length as usize;
        if self.partial.is_empty() && input.len() >= length {
            return Some(Place::Input(take(input, length)));
        }
        let missing = length - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        (self.partial.len() == length).then_some(Place::Partial)
    }

    /// A complete frame; `None` if it is a part of a header block that goes on.
    fn complete<'i>(
        &mut self,
        header: FrameHeader,
        place: Place<'i>,
    ) -> Result<Option<Found<'i>>, FrameError> {
        if header.kind != kind::HEADERS && header.kind != kind::CONTINUATION {
            return Ok(Some(Found::Frame(header, place)));
        }
        let ends = header.has(flag::END_HEADERS);
        let Some(mut joining) = self.joining else {
            return self.begin_block(header, place, ends);
        };
        joining.frames += 1;
        match place {
            Place::Input(bytes) => self.block.extend_from_slice(bytes),
            Place::Partial | Place::Block => self.block.append(&mut self.partial),
        }
        if self.block.len() + joining.frames * HEADER_BYTES > MAX_BLOCK_BYTES {
            return Err(FrameError::HeadersTooLarge {
                max: MAX_BLOCK_BYTES,
            });
        }
        if !ends {
            self.joining = Some(joining);
            return Ok(None);
        }
        self.joining = None;
        let header = joined(joining.header, self.block.len());
        Ok(Some(Found::Frame(header, Place::Block)))
    }

    /// HEADERS: most often the whole block.
    fn begin_block<'i>(
        &mut self,
        header: FrameHeader,
        place: Place<'i>,
        ends: bool,
    ) -> Result<Option<Found<'i>>, FrameError> {
        if ends && let Place::Input(payload) = place {
            let block = strip_padding(&header, payload)?;
            let header = joined(header, block.len());
            return Ok(Some(Found::Frame(header, Place::Input(block))));
        }
        let payload = match place {
            Place::Input(payload) => payload,
            Place::Partial | Place::Block => &self.partial,
        };
        self.block.clear();
        self.block
            .extend_from_slice(strip_padding(&header, payload)?);
        self.partial.clear();
        if ends {
            let header = joined(header, self.block.len());
            return Ok(Some(Found::Frame(header, Place::Block)));
        }
        self.joining = Some(Joining { header, frames: 1 });
        Ok(None)
    }

    /// What can be said of a frame by its header (RFC 9113, sections 4.2 and 6).
    fn check(&self, header: &FrameHeader) -> Result<(), FrameError> {
        let FrameHeader {
            length,
            kind: of_kind,
            stream,
            ..
        } = *header;
        let continues = self.joining.map(|joining| joining.header.stream);
        let in_order = match of_kind {
            kind::CONTINUATION => continues == Some(stream),
            _ => continues.is_none(),
        };
        if !in_order {
            return Err(FrameError::Order { kind: of_kind });
        }
        if length > self.max_frame_bytes {
            return Err(FrameError::TooLarge {
                kind: of_kind,
                length,
                max: self.max_frame_bytes,
            });
        }
        let of_length = match of_kind {
            kind::DATA | kind::HEADERS if header.has(flag::PADDED) => length >= 1,
            kind::PRIORITY => length == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => length == 4,
            kind::SETTINGS if header.has(flag::ACK) => length == 0,
            kind::SETTINGS => length.is_multiple_of(6),
            kind::PING => length == 8,
            kind::GOAWAY => length >= 8,
            _ => true,
        };
        if !of_length {
            return Err(FrameError::Length {
                kind: of_kind,
                length,
            });
        }
        let of_stream = match of_kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::PUSH_PROMISE => {
                stream != 0
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY => stream == 0,
            _ => true,
        };
        if !of_stream {
            return Err(FrameError::Stream {
                kind: of_kind,
                stream,
            });
        }
        Ok(())
    }
}

/// What follows a header.
fn begin(header: FrameHeader) -> State {
    match (header.kind, header.has(flag::PADDED)) {
        (kind::DATA, true) => State::PadLength(header),
        (kind::DATA, false) => State::Data {
            header,
            left: header.length,
            padding: 0,
            first: true,
        },
        _ => State::Payload(header),
    }
}

/// The header of a block that is complete and bare.
fn joined(header: FrameHeader, length: usize) -> FrameHeader {
    FrameHeader {
        length: length as u32,
        flags: (header.flags | flag::END_HEADERS) & !(flag::PADDED | flag::PRIORITY),
        ..header
    }
}

/// Up to `most` bytes from the front.
fn take<'i>(input: &mut &'i [u8], most: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(input.len().min(most));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{self, code};

    /// Pieces with bytes of their own; the pieces of a DATA frame are joined.
    #[derive(Debug, PartialEq, Eq)]
    enum Owned {
        Frame(FrameHeader, Vec<u8>),
        Data(FrameHeader, Vec<u8>, bool),
    }

    /// What comes of bytes that arrive in pieces of these lengths, in turn.
    fn read(bytes: &[u8], lengths: &[usize], max: u32) -> (Vec<Owned>, Option<FrameError>) {
        let mut reader = FrameReader::new(max);
        let mut all: Vec<Owned> = Vec::new();
        let (mut rest, mut turn) = (bytes, 0);
        while !rest.is_empty() {
            let length = lengths[turn % lengths.len()];
            turn += 1;
            let mut input = take(&mut rest, length);
            loop {
                match reader.next(&mut input) {
                    Ok(None) => break,
                    Ok(Some(piece)) => add(&mut all, &piece),
                    Err(error) => return (all, Some(error)),
                }
            }
            assert!(input.is_empty(), "all is used before more is asked for");
        }
        (all, None)
    }

    fn add(all: &mut Vec<Owned>, piece: &Piece<'_>) {
        match *piece {
            Piece::Frame { header, payload } => all.push(Owned::Frame(header, payload.to_vec())),
            Piece::Data {
                header,
                bytes,
                first: true,
                last,
            } => all.push(Owned::Data(header, bytes.to_vec(), last)),
            Piece::Data { bytes, last, .. } => match all.last_mut() {
                Some(Owned::Data(_, body, done)) if !*done => {
                    body.extend_from_slice(bytes);
                    *done = last;
                }
                other => panic!("a piece of DATA behind {other:?}"),
            },
        }
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let header = FrameHeader {
            length: payload.len() as u32,
            kind,
            flags,
            stream,
        };
        header.write(&mut out);
        out.extend_from_slice(payload);
        out
    }

    fn any_frames() -> impl Strategy<Value = Vec<u8>> {
        let payload = || proptest::collection::vec(any::<u8>(), 0..60);
        let one = prop_oneof![
            (any::<bool>(), payload()).prop_map(|(end, body)| {
                let mut out = Vec::new();
                frame::data(&mut out, 1, &body, end);
                out
            }),
            (payload(), 0_u8..20).prop_map(|(body, padding)| {
                let mut padded = vec![padding];
                padded.extend_from_slice(&body);
                padded.extend(vec![0; usize::from(padding)]);
                frame(kind::DATA, flag::PADDED, 3, &padded)
            }),
            (0_usize..70, any::<bool>()).prop_map(|(length, end)| {
                let block = vec![b'h'; length * 700];
                let mut out = Vec::new();
                frame::headers(&mut out, 5, &block, end);
                out
            }),
            (payload(), 0_u8..9, 0_usize..3).prop_map(|(block, padding, continued)| {
                let mut padded = vec![padding, 0, 0, 0, 0, 7];
                padded.extend_from_slice(&block);
                padded.extend(vec![0; usize::from(padding)]);
                let last = |more: usize| {
                    if more == continued {
                        flag::END_HEADERS
                    } else {
                        0
                    }
                };
                let flags = flag::PADDED | flag::PRIORITY | last(0);
                let mut out = frame(kind::HEADERS, flags, 9, &padded);
                for more in 1..=continued {
                    out.extend(frame(kind::CONTINUATION, last(more), 9, &block));
                }
                out
            }),
            any::<[u8; 8]>().prop_map(|payload| frame(kind::PING, 0, 0, &payload)),
            any::<bool>().prop_map(|_| frame(kind::SETTINGS, flag::ACK, 0, &[])),
            (1_u32..9).prop_map(|by| frame(kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes())),
            payload().prop_map(|payload| frame(0x77, 0xff, 2, &payload)),
        ];
        proptest::collection::vec(one, 0..12).prop_map(|frames| frames.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            bytes in any_frames(),
            lengths in proptest::collection::vec(1_usize..400, 1..6),
        ) {
            let (whole, error) = read(&bytes, &[usize::MAX], 16_384);
            prop_assert_eq!(error, None);
            prop_assert_eq!(&read(&bytes, &lengths, 16_384).0, &whole);
            prop_assert_eq!(&read(&bytes, &[1], 16_384).0, &whole);
            let unfinished = |piece: &Owned| matches!(piece, Owned::Data(_, _, false));
            prop_assert!(!whole.iter().any(unfinished));
        }

        #[test]
        fn garbage_never_panics(
            mut bytes in any_frames(),
            noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..9),
            tail in proptest::collection::vec(any::<u8>(), 0..90),
            lengths in proptest::collection::vec(1_usize..60, 1..4),
        ) {
            bytes.extend(tail);
            for (place, value) in noise {
                if !bytes.is_empty() {
                    let at = place.index(bytes.len());
                    bytes[at] = value;
                }
            }
            let whole = read(&bytes, &[usize::MAX], 16_384);
            let (pieces, error) = read(&bytes, &lengths, 16_384);
            prop_assert_eq!(error, whole.1);
            prop_assert_eq!(pieces, whole.0);
        }
    }

    #[test]
    fn blocks_are_joined_and_bare() {
        let mut bytes = frame(
            kind::HEADERS,
            flag::PADDED | flag::PRIORITY | flag::END_STREAM,
            5,
            &[1, 0, 0, 0, 0, 7, b'a', 0],
        );
        bytes.extend(frame(kind::CONTINUATION, 0, 5, b""));
        bytes.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 5, b"bc"));
        for length in 1..=bytes.len() {
            let (pieces, error) = read(&bytes, &[length], 16_384);
            assert_eq!(error, None);
            let [Owned::Frame(header, block)] = &pieces[..] else {
                panic!("{pieces:?}");
            };
            assert_eq!(block, b"abc");
            assert_eq!((header.length, header.stream), (3, 5));
            assert_eq!(header.flags, flag::END_STREAM | flag::END_HEADERS);
            assert_eq!(strip_padding(header, block), Ok(&b"abc"[..]));
        }
    }

    #[test]
    fn flow_control_is_told_once_with_the_padding() {
        let bytes = frame(kind::DATA, flag::PADDED, 1, &[2, b'x', b'y', 0, 0]);
        let mut reader = FrameReader::new(16_384);
        let mut counted = 0;
        for byte in &bytes {
            let mut input = std::slice::from_ref(byte);
            while let Some(piece) = reader.next(&mut input).unwrap() {
                if let Piece::Data { header, first, .. } = piece {
                    counted += if first { header.length } else { 0 };
                }
            }
        }
        assert_eq!(counted, 5);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong = [
            (frame(kind::PING, 0, 0, &[0; 7]), code::FRAME_SIZE_ERROR),
            (frame(kind::SETTINGS, 0, 0, &[0; 5]), code::FRAME_SIZE_ERROR),
            (frame(kind::SETTINGS, 1, 0, &[0; 6]), code::FRAME_SIZE_ERROR),
            (frame(kind::DATA, 0, 1, &[0; 101]), code::FRAME_SIZE_ERROR),
            (frame(kind::DATA, 8, 1, &[]), code::FRAME_SIZE_ERROR),
            (frame(kind::DATA, 8, 1, &[1]), code::PROTOCOL_ERROR),
            (frame(kind::DATA, 0, 0, &[1]), code::PROTOCOL_ERROR),
            (frame(kind::SETTINGS, 0, 1, &[]), code::PROTOCOL_ERROR),
            (frame(kind::CONTINUATION, 4, 1, &[]), code::PROTOCOL_ERROR),
        ];
        for (bytes, code) in wrong {
            let (pieces, error) = read(&bytes, &[3], 100);
            assert_eq!(error.map(|e| e.code()), Some(code), "{bytes:?}");
            assert!(pieces.is_empty());
        }
        let mut between = frame(kind::HEADERS, 0, 1, b"a");
        between.extend(frame(kind::PING, 0, 0, &[0; 8]));
        let error = read(&between, &[9], 100).1;
        assert_eq!(error, Some(FrameError::Order { kind: kind::PING }));
    }

    #[test]
    fn a_block_without_end_ends() {
        let mut bytes = frame(kind::HEADERS, 0, 1, b"a");
        for _ in 0..MAX_BLOCK_BYTES {
            bytes.extend(frame(kind::CONTINUATION, 0, 1, b""));
        }
        let error = read(&bytes, &[16_384], 16_384).1.unwrap();
        assert_eq!(error.code(), code::ENHANCE_YOUR_CALM);
    }
}
