//! Splits the input into frames.

#[cfg(test)]
mod tests;

use crate::frame::{FrameError, FrameHeader, HEADER_BYTES, flag, kind, strip_padding};

/// The longest header block that is joined, in bytes. Each of its frames counts nine more, so that a
/// block of endless empty frames is limited, too.
pub const MAX_BLOCK_BYTES: usize = 64 * 1024;

/// The result of [`FrameReader::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A complete frame of any kind but DATA. HEADERS include their CONTINUATION frames, without
    /// padding and priority, as length and flags show.
    Frame {
        /// The frame's header; for HEADERS, that of the joined block.
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

/// Splits a stream of bytes, in any segmentation, into frames. Bodies are returned as they arrive,
/// without a copy; other payloads are copied only if they arrive in pieces.
///
/// Lengths and streams that are invalid for a kind of frame are rejected here, so that users can rely
/// on the eight bytes of a PING. After an error the reader is unusable.
#[derive(Debug)]
pub struct FrameReader {
    max_frame_bytes: u32,
    state: State,
    /// An incomplete header or payload.
    partial: Vec<u8>,
    /// `partial` was returned, and is cleared by the next call.
    handed_out: bool,
    /// The header block that is being joined.
    block: Vec<u8>,
    joining: Option<Joining>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(FrameHeader),
    /// The padding length of DATA is next.
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

/// Where the payload of a frame is.
enum PayloadLocation<'i> {
    Input(&'i [u8]),
    Partial,
    Block,
}

/// A piece whose payload is not borrowed yet.
enum PieceBounds<'i> {
    Frame(FrameHeader, PayloadLocation<'i>),
    Data {
        header: FrameHeader,
        bytes: &'i [u8],
        first: bool,
        last: bool,
    },
}

impl FrameReader {
    /// For payloads of at most `max_frame_size` bytes: this end's SETTINGS_MAX_FRAME_SIZE, by default
    /// 16,384.
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

    /// The next piece; `input` is advanced past the used bytes. `None`: all were used, and more are
    /// needed.
    ///
    /// # Errors
    /// When the bytes are not HTTP/2: the connection has to be ended.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'s>>, FrameError> {
        if std::mem::take(&mut self.handed_out) {
            self.partial.clear();
        }
        Ok(match self.find(input)? {
            None => None,
            Some(PieceBounds::Data {
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
            Some(PieceBounds::Frame(header, location)) => Some(Piece::Frame {
                header,
                payload: match location {
                    PayloadLocation::Input(bytes) => bytes,
                    PayloadLocation::Partial => {
                        self.handed_out = true;
                        &self.partial
                    }
                    PayloadLocation::Block => &self.block,
                },
            }),
        })
    }

    fn find<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<PieceBounds<'i>>, FrameError> {
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
                    let Some(location) = self.payload(header, input) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    if let Some(bounds) = self.complete(header, location)? {
                        return Ok(Some(bounds));
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
                    let bounds = self.data(header, (left, padding), first, input);
                    return Ok(bounds);
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

    /// The available bytes of DATA, of which `left` bytes and the padding are missing.
    fn data<'i>(
        &mut self,
        header: FrameHeader,
        (left, padding): (u32, u32),
        first: bool,
        input: &mut &'i [u8],
    ) -> Option<PieceBounds<'i>> {
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
        Some(PieceBounds::Data {
            header,
            bytes,
            first,
            last,
        })
    }

    /// The next header, which may arrive in pieces.
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

    /// Where the payload is, once it is complete.
    fn payload<'i>(
        &mut self,
        header: FrameHeader,
        input: &mut &'i [u8],
    ) -> Option<PayloadLocation<'i>> {
        let length = header.length as usize;
        if self.partial.is_empty() && input.len() >= length {
            return Some(PayloadLocation::Input(take(input, length)));
        }
        let missing = length - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        (self.partial.len() == length).then_some(PayloadLocation::Partial)
    }

    /// A complete frame; `None` if it is part of an incomplete header block.
    fn complete<'i>(
        &mut self,
        header: FrameHeader,
        location: PayloadLocation<'i>,
    ) -> Result<Option<PieceBounds<'i>>, FrameError> {
        if header.kind != kind::HEADERS && header.kind != kind::CONTINUATION {
            return Ok(Some(PieceBounds::Frame(header, location)));
        }
        let ends = header.has(flag::END_HEADERS);
        let Some(mut joining) = self.joining else {
            return self.begin_block(header, location, ends);
        };
        joining.frames += 1;
        match location {
            PayloadLocation::Input(bytes) => self.block.extend_from_slice(bytes),
            PayloadLocation::Partial | PayloadLocation::Block => {
                self.block.append(&mut self.partial);
            }
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
        Ok(Some(PieceBounds::Frame(header, PayloadLocation::Block)))
    }

    /// HEADERS, which usually are the whole block.
    fn begin_block<'i>(
        &mut self,
        header: FrameHeader,
        location: PayloadLocation<'i>,
        ends: bool,
    ) -> Result<Option<PieceBounds<'i>>, FrameError> {
        if ends && let PayloadLocation::Input(payload) = location {
            let block = strip_padding(&header, payload)?;
            let header = joined(header, block.len());
            return Ok(Some(PieceBounds::Frame(
                header,
                PayloadLocation::Input(block),
            )));
        }
        let payload = match location {
            PayloadLocation::Input(payload) => payload,
            PayloadLocation::Partial | PayloadLocation::Block => &self.partial,
        };
        self.block.clear();
        self.block
            .extend_from_slice(strip_padding(&header, payload)?);
        self.partial.clear();
        if ends {
            let header = joined(header, self.block.len());
            return Ok(Some(PieceBounds::Frame(header, PayloadLocation::Block)));
        }
        self.joining = Some(Joining { header, frames: 1 });
        Ok(None)
    }

    /// Checks a frame by its header (RFC 9113, sections 4.2 and 6).
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

/// The state behind a header.
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

/// The header of a joined block.
fn joined(header: FrameHeader, length: usize) -> FrameHeader {
    FrameHeader {
        length: length as u32,
        flags: (header.flags | flag::END_HEADERS) & !(flag::PADDED | flag::PRIORITY),
        ..header
    }
}

/// Takes up to `most` bytes from the front.
fn take<'i>(input: &mut &'i [u8], most: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(input.len().min(most));
    *input = rest;
    taken
}
