//! An HTTP/2 and gRPC server that sends the bytes that a test gives it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use meshtax_http2::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, flag, kind};
use meshtax_http2::hpack::encode_literal;
use meshtax_load::Protocol;

use crate::harness::*;

pub(super) const BOTH: [Protocol; 2] = [
    Protocol::Http2 { streams: 3 },
    Protocol::Grpc { streams: 3 },
];

/// What gets a response on a stream.
pub(super) type Reply = fn(u32) -> Vec<u8>;

/// The server's end of a connection: frames in, whatever bytes out.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    /// Requests until now.
    pub(super) requests: u32,
    /// Whether the client has taken note of our settings.
    pub(super) acknowledged: bool,
}

/// What [`Peer::next`] came upon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A request is complete.
    Request(u32),
    /// Nothing for a while; only with a read timeout.
    Nothing,
    Gone,
}

impl Peer {
    /// Reads the preface and sends these settings.
    pub(super) fn accept(stream: TcpStream, settings: &[(u16, u32)]) -> Option<Self> {
        let mut peer = Self {
            stream,
            requests: 0,
            acknowledged: false,
        };
        let mut preface = [0; PREFACE.len()];
        peer.stream.read_exact(&mut preface).ok()?;
        assert_eq!(preface, PREFACE);
        let mut out = Vec::new();
        frame::settings(&mut out, settings);
        peer.send(&out).then_some(peer)
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(super) fn frame(&mut self) -> std::io::Result<(FrameHeader, Vec<u8>)> {
        let mut bytes = [0; HEADER_BYTES];
        // Peeked at first, so that a read timeout between two frames loses nothing.
        if self.stream.peek(&mut [0])? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.stream.read_exact(&mut bytes)?;
        let header = FrameHeader::parse(&bytes);
        let mut payload = vec![0; header.length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((header, payload))
    }

    pub(super) fn next(&mut self) -> Next {
        loop {
            let (header, payload) = match self.frame() {
                Ok(frame) => frame,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Next::Nothing,
                Err(_) => return Next::Gone,
            };
            if header.kind == kind::DATA && !payload.is_empty() {
                self.send(&window_update(0, payload.len() as u32));
                self.send(&window_update(header.stream, payload.len() as u32));
            }
            match header.kind {
                kind::SETTINGS if header.has(flag::ACK) => self.acknowledged = true,
                kind::SETTINGS => {
                    let mut out = Vec::new();
                    frame::settings_ack(&mut out);
                    self.send(&out);
                }
                kind::HEADERS | kind::DATA if header.has(flag::END_STREAM) => {
                    self.requests += 1;
                    return Next::Request(header.stream);
                }
                kind::GOAWAY => return Next::Gone,
                _ => {}
            }
        }
    }
}

pub(super) fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = payload.len() as u32;
    FrameHeader {
        length,
        kind,
        flags,
        stream,
    }
    .write(&mut out);
    out.extend_from_slice(payload);
    out
}

pub(super) fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        encode_literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

pub(super) const STATUS: (&str, &str) = (":status", "200");

pub(super) const GRPC_STATUS: (&str, &str) = ("grpc-status", "0");

pub(super) fn head(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &block(&[STATUS]), false);
    out
}

pub(super) fn body(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::data(&mut out, stream, b"\0\0\0\0\x02ok", false);
    out
}

pub(super) fn trailers(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &block(&[GRPC_STATUS]), true);
    out
}

/// Right for HTTP/2 and for gRPC.
pub(super) fn answer(stream: u32) -> Vec<u8> {
    [head(stream), body(stream), trailers(stream)].concat()
}

pub(super) fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::rst_stream(&mut out, stream, code);
    out
}

pub(super) fn goaway(last: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::goaway(&mut out, last, code);
    out
}

pub(super) fn window_update(stream: u32, more: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::window_update(&mut out, stream, more);
    out
}

/// Sends what `reply` makes of each request; `false`: closes after it.
pub(super) fn replying(
    reply: impl Fn(&mut Peer, u32) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    replying_after(&[], reply)
}

pub(super) fn replying_after(
    settings: &'static [(u16, u32)],
    reply: impl Fn(&mut Peer, u32) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    server(move |_, stream| {
        let Some(mut peer) = Peer::accept(stream, settings) else {
            return;
        };
        while let Next::Request(stream) = peer.next() {
            if !reply(&mut peer, stream) {
                return;
            }
        }
    })
}

/// Responses with what `bytes` makes of the stream's number.
pub(super) fn with(bytes: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    replying(move |peer, stream| peer.send(&bytes(stream)))
}

pub(super) fn all_answered(what: &str, target: SocketAddr) {
    for protocol in BOTH {
        for (name, spec, result) in offer_all(&loads(target, protocol)) {
            let result = result.unwrap();
            let name = format!("{what}: {name}");
            assert!(answered(&result) > 2, "{name}: {result:?}");
            assert_eq!(failed(&result), 0, "{name}: {result:?}");
            assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            let is_grpc = matches!(spec.protocol, Protocol::Grpc { .. });
            assert_eq!(result.grpc_status.is_empty(), !is_grpc, "{name}");
        }
    }
}

pub(super) fn all_fail(what: &str, target: SocketAddr, kinds: &[&str]) {
    for protocol in BOTH {
        for (name, spec, result) in offer_all(&few(loads_for(target, protocol, kinds))) {
            let result = result.unwrap();
            let name = format!("{what}: {name}");
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
            assert!(failed(&result) > 0, "{name}: {result:?}");
            only(&result, &name, kinds);
            if spec.model.is_closed() {
                assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            }
        }
    }
}
