//! HTTP/2 and gRPC responses as bytes, prebuilt where they are always the same.

use meshtax_http2::frame::{self, DEFAULT_FRAME_BYTES};
use meshtax_http2::hpack::encode_literal;

use super::request::ResponseKind;
use crate::content::Content;

/// UNAVAILABLE: an injected error.
pub(super) const UNAVAILABLE: u32 = 14;
/// The message is longer than the limit.
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
/// The message is compressed.
pub(super) const UNIMPLEMENTED: u32 = 12;
/// The call does not have exactly one message.
pub(super) const INTERNAL: u32 = 13;

const GRPC_HEADERS: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

/// The responses that are the same for every request.
#[derive(Debug)]
pub(crate) struct Http2Responses {
    plain: Response,
    failure: Response,
    grpc: Response,
    /// The gRPC message with its prefix; other bodies are the server's content.
    pub(super) message: Content,
    /// The header block of gRPC's trailers.
    pub(super) trailers: Vec<u8>,
}

/// A response: its header block and, if it is short, all its frames.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) block: Vec<u8>,
    pub(super) bytes: u64,
    short: Option<Frames>,
}

/// The frames of a response, with room for the stream id.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// Where the stream id goes.
    id_offsets: Vec<usize>,
}

impl Http2Responses {
    pub(crate) fn new(content: &Content, response_bytes: u32) -> Self {
        let message = Content::grpc(response_bytes);
        let nothing = Content::new(Vec::new(), 0);
        let trailers = block(&[("grpc-status", "0")]);
        Self {
            plain: Response::new(plain_block("200", content.bytes()), content, None),
            failure: Response::new(plain_block("503", 0), &nothing, None),
            grpc: Response::new(grpc_block(), &message, Some(&trailers)),
            message,
            trailers,
        }
    }

    /// The response of this kind. For a gRPC call that fails see [`grpc_failure_block`].
    pub(super) fn of(&self, kind: ResponseKind, fails: bool) -> &Response {
        match kind {
            ResponseKind::Grpc => &self.grpc,
            _ if fails => &self.failure,
            _ => &self.plain,
        }
    }
}

impl Response {
    fn new(block: Vec<u8>, content: &Content, trailers: Option<&[u8]>) -> Self {
        let fits = content.bytes() <= u64::from(DEFAULT_FRAME_BYTES);
        let short = fits.then(|| Frames::new(&block, content, trailers));
        Self {
            block,
            bytes: content.bytes(),
            short,
        }
    }

    /// Appends all frames; false if the response is too long for that.
    pub(super) fn write(&self, out: &mut Vec<u8>, stream: u32) -> bool {
        let Some(frames) = &self.short else {
            return false;
        };
        let begin = out.len();
        out.extend_from_slice(&frames.bytes);
        for at in &frames.id_offsets {
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

    /// Adds a frame. The stream id is the last field of its header (RFC 9113, section 4.1).
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.id_offsets.push(self.bytes.len() + 5);
        write(&mut self.bytes);
    }
}

/// A block with these headers.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
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

/// The header block of a JSON response.
pub(super) fn json_block(bytes: usize) -> Vec<u8> {
    block(&[
        (":status", "200"),
        ("content-type", "application/json"),
        ("content-length", &bytes.to_string()),
    ])
}

/// The header block of a gRPC response.
pub(super) fn grpc_block() -> Vec<u8> {
    block(&GRPC_HEADERS)
}

/// The header block of a 100 (Continue) response.
pub(super) fn continue_block() -> Vec<u8> {
    block(&[(":status", "100")])
}

/// The only header block of a gRPC call that fails.
pub(super) fn grpc_failure_block(code: u32, message: &str) -> Vec<u8> {
    block(&[
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", &code.to_string()),
        ("grpc-message", message),
    ])
}
