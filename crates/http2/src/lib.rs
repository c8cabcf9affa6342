//! HTTP/2 as bytes: frames (RFC 9113) and header compression (RFC 7541).
//!
//! Pure: no sockets, no clock, no threads. Both ends of a connection are written with it: the
//! load generator reads answers, the test application reads requests. What a frame *means* for
//! streams and windows is theirs; here is what the bytes say, and which of them cannot be.
//!
//! Encoders append to a vector. [`reader::FrameReader`] cuts what arrives into frames without
//! copying bodies; [`hpack::Decoder`] reads header blocks without allocating, as long as the
//! peer does not ask it to remember something.
#![forbid(unsafe_code)]

pub mod frame;
pub mod hpack;
mod huffman;
pub mod reader;
