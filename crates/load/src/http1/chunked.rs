//! The chunked transfer coding (RFC 9112, section 7.1).

use super::error::ProtocolError;

/// The longest chunk extension or trailer section, in bytes.
const MAX_CHUNK_EXTRA_BYTES: u32 = 64 * 1024;

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
}

/// Skips a chunked body in any split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkedBody {
    state: ChunkState,
    size: u64,
    digits: u32,
    extra_bytes: u32,
}

impl Default for ChunkedBody {
    fn default() -> Self {
        Self {
            state: ChunkState::Size,
            size: 0,
            digits: 0,
            extra_bytes: 0,
        }
    }
}

impl ChunkedBody {
    /// `Some(n)`: the body ends after n bytes.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            if self.state == ChunkState::Data {
                let used = self.size.min((input.len() - at) as u64);
                self.size -= used;
                at += used as usize;
                if self.size == 0 {
                    self.state = ChunkState::DataReturn;
                }
                continue;
            }
            let byte = input[at];
            at += 1;
            if self.state == ChunkState::LastLineFeed && byte == b'\n' {
                return Ok(Some(at));
            }
            self.state = self.after(byte)?;
        }
        Ok(None)
    }

    fn after(&mut self, byte: u8) -> Result<ChunkState, ProtocolError> {
        use ChunkState as S;
        Ok(match (self.state, byte) {
            (S::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte)?,
            (S::Size, b'\r') if self.digits > 0 => S::SizeLineFeed,
            (S::Size, b';' | b' ' | b'\t') if self.digits > 0 => S::Extension,
            (S::Extension, b'\r') => S::SizeLineFeed,
            (S::Extension, _) if byte != b'\n' => self.extra(S::Extension)?,
            (S::SizeLineFeed, b'\n') => {
                self.digits = 0;
                self.extra_bytes = 0;
                if self.size == 0 {
                    S::TrailerStart
                } else {
                    S::Data
                }
            }
            (S::DataReturn, b'\r') => S::DataLineFeed,
            (S::DataLineFeed, b'\n') => S::Size,
            (S::TrailerStart, b'\r') => S::LastLineFeed,
            (S::Trailer, b'\r') => S::TrailerLineFeed,
            (S::TrailerStart | S::Trailer, _) if byte != b'\n' => self.extra(S::Trailer)?,
            (S::TrailerLineFeed, b'\n') => S::TrailerStart,
            _ => return Err(ProtocolError::Chunk),
        })
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, ProtocolError> {
        // Fifteen hexadecimal digits: no sum of sizes can overflow.
        if self.digits == 15 {
            return Err(ProtocolError::Chunk);
        }
        let value = (byte as char).to_digit(16).ok_or(ProtocolError::Chunk)?;
        self.digits += 1;
        self.size = self.size * 16 + u64::from(value);
        Ok(ChunkState::Size)
    }

    fn extra(&mut self, state: ChunkState) -> Result<ChunkState, ProtocolError> {
        self.extra_bytes += 1;
        if self.extra_bytes > MAX_CHUNK_EXTRA_BYTES {
            return Err(ProtocolError::Chunk);
        }
        Ok(state)
    }
}
