//! HTTP/2 as bytes: frames (RFC 9113) and header compression (RFC 7541).
//!
//! Pure: no sockets, no clock, no threads. Both ends of a connection use it: the load generator reads
//! responses, the test application reads requests. Streams and flow control are up to them; this crate
//! encodes, decodes and rejects what is malformed.
//!
//! Encoders append to a vector. [`reader::FrameReader`] splits the input into frames without copying
//! bodies; [`hpack::Decoder`] decodes header blocks without allocating, except for entries of the
//! dynamic table.
#![forbid(unsafe_code)]

mod error;
pub mod frame;
pub mod hpack;
mod huffman;
pub mod reader;
