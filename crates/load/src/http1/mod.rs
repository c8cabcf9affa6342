//! HTTP/1.1 as bytes: requests out, responses in. Pure and incremental.

mod chunked;
mod error;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use error::{MAX_HEAD_BYTES, ProtocolError};
pub use request::encode_request;
pub use response::{Progress, Response, ResponseParser};
