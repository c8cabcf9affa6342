//! Errors of HTTP/1.1.

/// The longest head of a response, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Why bytes are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Not HTTP at all.
    #[error("the head is not HTTP/1: {0}")]
    Head(httparse::Error),
    /// The head is too long.
    #[error("the head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    /// Lengths that are not numbers, or contradict each other.
    #[error("the content-length is not a single number")]
    ContentLength,
    /// A chunked body without a recognizable end.
    #[error("the chunks of the body are malformed")]
    Chunk,
    /// 101 (Switching Protocols), which was not requested.
    #[error("the response switches protocols")]
    Upgrade,
}
