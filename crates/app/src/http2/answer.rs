//! Answers of HTTP/2 and of gRPC as bytes, prebuilt where they are always the same.

use meshtax_http2::frame::{self, DEFAULT_FRAME_BYTES};
use meshtax_http2::hpack::encode_literal;

use super::request::Kind;
use crate::content::Content;

/// UNAVAILABLE, the code of an error that was asked for.
pub(super) const UNAVAILABLE: u32 = 14;
/// The message is longer than is taken.
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
/// The message is compressed.
pub(super) const UNIMPLEMENTED: u32 = 12;
/// There is not exactly one message.
pub(super) const INTERNAL: u32 = 13;

/// The answers that are the same for every request.
#[derive(Debug)]
pub(crate) struct Answers {
    plain: Answer,
    failure: Answer,
    grpc: Answer,
    /// What gRPC bodies are made of; plain ones are the server's content.
    pub(super) message: Content,
    /// The block behind a body of gRPC.
    pub(super) trailers: Vec<u8>,
}

/// An answer: its block of headers and, if they are short, all its frames.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) block: Vec<u8>,
    pub(super) bytes: u64,
    short: Option<Frames>,
}

/// Frames of one stream, whose number is filled in.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where the number goes.
    numbers: Vec<usize>,
}

impl Answers {
    pub(crate) fn new(content: &Content, response_bytes: u32) -> Self {
        let message = Content::grpc(response_bytes);
        let nothing = Content::new(Vec::new(), 0);
        let trailers = block(&[("grpc-status", "0")]);
        let grpc = &[(":status", "200"), ("content-type", "application/grpc")];
        Self {
            plain: Answer::new(plain_block("200", content.bytes()), content, None),
            failure: Answer::new(plain_block("503", 0), &nothing, None),
            grpc: Answer::new(block(grpc), &message, Some(&trailers)),
            message,
            trailers,
        }
    }

    /// What a request of this kind gets. A gRPC call that fails has an answer of its own, see
    /// [`grpc_failure`].
    pub(super) fn of(&self, kind: Kind, fails: bool) -> &Answer {
        match kind {
            Kind::Grpc => &self.grpc,
            _ if fails => &self.failure,
            _ => &self.plain,
        }
    }
}

impl Answer {
    fn new(block: Vec<u8>, content: &Content, trailers: Option<&[u8]>) -> Self {
        let fits = content.bytes() <= u64::from(DEFAULT_FRAME_BYTES);
        let short = fits.then(|| Frames::new(&block, content, trailers));
        Self {
            block,
            bytes: content.bytes(),
            short,
        }
    }

    /// Appends all frames; false, if there is no short way.
    pub(super) fn write(&self, out: &mut Vec<u8>, stream: u32) -> bool {
        let Some(frames) = &self.short else {
            return false;
        };
        let begin = out.len();
        out.extend_from_slice(&frames.bytes);
        for at in &frames.numbers {
            out[begin + at..][..4].copy_from_slice(&stream.to_be_bytes());
        }
        true
    }
}

impl Frames {
    fn new(block: &[u8], content: &Content, trailers: Option<&[u8]>) -> Self {
        let mut frames = Self::default();
        let length = content.bytes() as u32;
        let has_body = length > 0;
        frames.add(|out| frame::headers(out, 0, block, !has_body && trailers.is_none()));
        if has_body {
            frames.add(|out| {
                frame::data_header(out, 0, length, trailers.is_none());
                content.append(out, 0, content.bytes());
            });
        }
        if let Some(trailers) = trailers {
            frames.add(|out| frame::headers(out, 0, trailers, true));
        }
        frames
    }

    /// A frame; its number is the last of its header (RFC 9113, section 4.1).
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.numbers.push(self.bytes.len() + 5);
        write(&mut self.bytes);
    }
}

/// A block of these headers.
pub(super) fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        encode_literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn plain_block(status: &str, bytes: u64) -> Vec<u8> {
    block(&[
        (":status", status),
        ("content-type", "text/plain"),
        ("content-length", &bytes.to_string()),
    ])
}

/// The block before an answer of JSON.
pub(super) fn json_block(bytes: usize) -> Vec<u8> {
    block(&[
        (":status", "200"),
        ("content-type", "application/json"),
        ("content-length", &bytes.to_string()),
    ])
}

/// The only block of a gRPC call that fails.
pub(super) fn grpc_failure(code: u32, message: &str) -> Vec<u8> {
    block(&[
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", &code.to_string()),
        ("grpc-message", message),
    ])
}
