//! The bytes of a layer, whatever it is compressed with.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The source with its first bytes, which were looked at, put back.
type Source<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// A decompressing reader. The compression is detected from the first bytes, not from the media type: builders have
/// written one and named the other, and container runtimes look at the bytes too.
pub(super) enum Decompressor<R: Read> {
    Plain(Source<R>),
    /// Several members are one stream: parallel compressors and seekable layers write many.
    Gzip(MultiGzDecoder<Source<R>>),
    Zstd(Box<Frames<Source<R>>>),
}

impl<R: Read> Decompressor<R> {
    pub(super) fn new(mut reader: R) -> io::Result<Self> {
        let mut head = Vec::with_capacity(4);
        reader.by_ref().take(4).read_to_end(&mut head)?;
        let is_gzip = head.starts_with(&[0x1f, 0x8b]);
        let is_zstd = head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable(&head);
        let source = BufReader::with_capacity(1 << 16, Cursor::new(head).chain(reader));
        Ok(if is_gzip {
            Self::Gzip(MultiGzDecoder::new(source))
        } else if is_zstd {
            Self::Zstd(Box::new(Frames::new(source)))
        } else {
            Self::Plain(source)
        })
    }
}

/// Whether this is the magic number of a skippable frame (RFC 8878, section 3.1.2): seekable layers begin or end
/// with one.
fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read(buffer),
            Self::Gzip(reader) => reader.read(buffer),
            Self::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// The content of all zstd frames of a source, one after the other (RFC 8878, section 3.1).
pub(super) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Self {
        Self {
            source,
            decoder: FrameDecoder::new(),
            is_in_frame: false,
        }
    }

    /// Starts the next frame that has content. `false`: there is none.
    fn start_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => self.skip(length.into())?,
                Err(e) => return Err(invalid(e)),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.source.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame {
                if buffer.is_empty() || !self.start_frame()? {
                    return Ok(0);
                }
                self.is_in_frame = true;
            }
            let wanted = buffer.len().max(1);
            while self.decoder.can_collect() < wanted && !self.decoder.is_finished() {
                let strategy = BlockDecodingStrategy::UptoBytes(wanted);
                let decoded = self.decoder.decode_blocks(&mut self.source, strategy);
                decoded.map_err(invalid)?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            self.is_in_frame = false;
        }
    }
}

/// Ends a stream with an error once it is longer than a limit. `is_exceeded` reports that it was: the readers on
/// top of it wrap errors, each in its own way.
pub(super) struct Metered<R> {
    pub(super) inner: R,
    pub(super) left_bytes: u64,
    pub(super) is_exceeded: Rc<Cell<bool>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        match self.left_bytes.checked_sub(length as u64) {
            Some(left) => self.left_bytes = left,
            None => {
                self.is_exceeded.set(true);
                return Err(io::Error::other("the layer is too large"));
            }
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn decompressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Decompressor::new(bytes)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_and_frames_are_one_stream() {
        let (first, second) = (vec![1_u8; 300_000], b"second".to_vec());
        let both = [first.clone(), second.clone()].concat();
        let members = [gzip(&first), gzip(&second)].concat();
        assert_eq!(decompressed(&members).unwrap(), both);
        let skippable = [0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9].to_vec();
        let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
        let frames = [
            skippable.clone(),
            frame(&first),
            skippable.clone(),
            frame(&second),
            skippable,
        ];
        assert_eq!(decompressed(&frames.concat()).unwrap(), both);
        assert_eq!(decompressed(&both).unwrap(), both);
        assert_eq!(decompressed(b"").unwrap(), b"");
    }

    #[test]
    fn truncated_streams_are_errors() {
        let content: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for whole in [gzip(&content), zstd::encode_all(&content[..], 3).unwrap()] {
            for length in [5, whole.len() / 2, whole.len() - 1] {
                assert!(decompressed(&whole[..length]).is_err(), "{length}");
            }
        }
        assert!(decompressed(&[0x50, 0x2a, 0x4d, 0x18, 9, 0, 0, 0, 1]).is_err());
    }
}
