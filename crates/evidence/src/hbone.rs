//! An HBONE tunnel, as between ztunnels: HTTP/2 `CONNECT` inside mutual TLS. Through it a prober
//! reaches a meshed pod without the client's ztunnel.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;

use meshtax_http2::frame::{self, flag, kind};
use meshtax_http2::hpack::{Decoder, encode_literal};
use meshtax_http2::reader::{FrameReader, Piece};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const STREAM: u32 = 1;
const MAX_FRAME_BYTES: u32 = 16_384;
const TABLE_BYTES: usize = 4096;

/// An open tunnel. A probe sends far less than any flow-control window.
#[derive(Debug)]
pub(crate) struct Tunnel<S> {
    inner: S,
    frames: FrameReader,
    headers: Decoder,
    status: Option<u16>,
    received: Vec<u8>,
    ended: bool,
}

impl<S: Read + Write> Tunnel<S> {
    /// Requests a connection to this address.
    pub(crate) fn open(inner: S, to: (Ipv4Addr, u16)) -> Result<Self, Refused> {
        let mut tunnel = Self {
            inner,
            frames: FrameReader::new(MAX_FRAME_BYTES),
            headers: Decoder::new(TABLE_BYTES),
            status: None,
            received: Vec::new(),
            ended: false,
        };
        let mut out = PREFACE.to_vec();
        frame::settings(&mut out, &[]);
        let mut block = Vec::new();
        encode_literal(&mut block, b":method", b"CONNECT");
        encode_literal(
            &mut block,
            b":authority",
            format!("{}:{}", to.0, to.1).as_bytes(),
        );
        frame::headers(&mut out, STREAM, &block, false);
        tunnel.inner.write_all(&out)?;
        tunnel.inner.flush()?;
        loop {
            match tunnel.status {
                Some(200) => return Ok(tunnel),
                Some(status) => return Err(Refused::Status(status)),
                None if tunnel.ended => {
                    return Err(Refused::Broken(ErrorKind::ConnectionReset.into()));
                }
                None => tunnel.receive()?,
            }
        }
    }

    /// Reads once, and processes all frames received.
    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = vec![0; MAX_FRAME_BYTES as usize];
        let length = self.inner.read(&mut chunk)?;
        self.ended |= length == 0;
        let mut input = &chunk[..length];
        let mut out = Vec::new();
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        while let Some(piece) = self
            .frames
            .next(&mut input)
            .map_err(|e| invalid(e.to_string()))?
        {
            match piece {
                Piece::Data {
                    header,
                    bytes,
                    first,
                    last,
                } => {
                    self.received.extend_from_slice(bytes);
                    if first && header.length > 0 {
                        frame::window_update(&mut out, 0, header.length);
                        frame::window_update(&mut out, STREAM, header.length);
                    }
                    self.ended |= last && header.has(flag::END_STREAM);
                }
                Piece::Frame { header, payload } => match header.kind {
                    kind::HEADERS => {
                        let status = &mut self.status;
                        self.headers
                            .decode(payload, &mut |name, value| {
                                if name == b":status" {
                                    let text = std::str::from_utf8(value).unwrap_or_default();
                                    *status = text.parse().ok();
                                }
                            })
                            .map_err(|e| invalid(e.to_string()))?;
                        self.ended |= header.has(flag::END_STREAM);
                    }
                    kind::SETTINGS if !header.has(flag::ACK) => frame::settings_ack(&mut out),
                    kind::PING if !header.has(flag::ACK) => {
                        let mut echo = [0; 8];
                        echo.copy_from_slice(payload);
                        frame::ping_ack(&mut out, echo);
                    }
                    kind::RST_STREAM | kind::GOAWAY => self.ended = true,
                    _ => {}
                },
            }
        }
        if !out.is_empty() {
            self.inner.write_all(&out)?;
            self.inner.flush()?;
        }
        Ok(())
    }
}

/// Why there is no tunnel.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The peer responded with this status.
    Status(u16),
    /// The connection failed.
    Broken(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl<S: Read + Write> Read for Tunnel<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.received.is_empty() {
            if self.ended {
                return Ok(0);
            }
            self.receive()?;
        }
        let length = self.received.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.received[..length]);
        self.received.drain(..length);
        Ok(length)
    }
}

impl<S: Read + Write> Write for Tunnel<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(MAX_FRAME_BYTES as usize)];
        let mut out = Vec::new();
        frame::data(&mut out, STREAM, part, false);
        self.inner.write_all(&out)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A peer that sends a script, a piece at a time, and records what it receives.
    struct Scripted {
        script: VecDeque<Vec<u8>>,
        received: Vec<u8>,
    }

    impl Read for Scripted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let piece = self.script.pop_front().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.received.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn response(status: &[u8], end: bool) -> Vec<u8> {
        let mut out = Vec::new();
        frame::settings(&mut out, &[]);
        let mut block = Vec::new();
        encode_literal(&mut block, b":status", status);
        frame::headers(&mut out, STREAM, &block, end);
        out
    }

    fn open(script: impl IntoIterator<Item = Vec<u8>>) -> Result<Tunnel<Scripted>, Refused> {
        let peer = Scripted {
            script: script.into_iter().collect(),
            received: Vec::new(),
        };
        Tunnel::open(peer, (Ipv4Addr::new(10, 0, 0, 1), 8080))
    }

    #[test]
    fn open_tunnel_carries_bytes_in_both_directions() {
        let mut data = Vec::new();
        frame::data(&mut data, STREAM, b"hello", false);
        frame::data(&mut data, STREAM, b"!", true);
        let (first, second) = data.split_at(7);
        let pieces = [response(b"200", false), first.to_vec(), second.to_vec()];
        let mut tunnel = open(pieces).unwrap();
        tunnel.write_all(b"ping").unwrap();
        let mut read = String::new();
        tunnel.read_to_string(&mut read).unwrap();
        assert_eq!(read, "hello!");
        let received = tunnel.inner.received;
        assert!(received.starts_with(PREFACE));
        assert!(received.windows(4).any(|w| w == b"ping"));
    }

    #[test]
    fn refused_tunnel_reports_its_status() {
        let refused = open([response(b"401", true)]);
        assert!(matches!(refused, Err(Refused::Status(401))));
        assert!(matches!(open([]), Err(Refused::Broken(_))));
        let mut reset = Vec::new();
        frame::rst_stream(&mut reset, STREAM, 8);
        assert!(matches!(open([reset]), Err(Refused::Broken(_))));
        assert!(matches!(
            open([b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()]),
            Err(Refused::Broken(_))
        ));
    }
}
