//! What is spoken on a connection: requests into bytes, bytes into answers. No sockets here.

mod http1;
mod http2;
mod tcp;

use meshtax_http2::frame::FrameError;
use meshtax_http2::hpack::HpackError;

use crate::http1::ProtocolError;
use crate::spec::{LoadSpec, Protocol};

use self::http1::{Http1, Http1Request};
use self::http2::{Http2, Http2Request};
use self::tcp::Tcp;

/// How a request ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection for it could be made.
    Connect,
    /// The peer closed or reset.
    Reset,
    /// No answer came in time.
    Timeout,
    /// The TLS handshake, or a record after it, was bad.
    Tls,
    /// What came was no answer.
    Protocol,
}

/// An answer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP's status; 200 for a TCP echo.
    pub(crate) status: u16,
    /// gRPC's.
    pub(crate) grpc_status: Option<u16>,
}

/// What happened to the request in a slot of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its answer began.
    FirstByte { slot: u32 },
    /// Its answer is complete.
    Answer { slot: u32, answer: Answer },
    /// It failed; the connection may go on.
    Failed { slot: u32, failure: Failure },
}

/// What came is no answer in the protocol spoken; the connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("{0}")]
    Http1(#[from] ProtocolError),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Hpack(#[from] HpackError),
    #[error("{0}")]
    Http2(&'static str),
    #[error("bytes came that nobody had asked for")]
    Unasked,
}

/// The requests of a load, made ready to be sent.
#[derive(Debug)]
pub(crate) enum Encoded {
    Http1(Vec<Http1Request>),
    Http2(Vec<Http2Request>),
    Tcp(Vec<Vec<u8>>),
}

impl Encoded {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        match spec.protocol {
            Protocol::Http1 => Self::Http1(spec.requests.iter().map(Http1Request::new).collect()),
            Protocol::Http2 { .. } | Protocol::Grpc { .. } => Self::Http2(
                spec.requests
                    .iter()
                    .map(|request| Http2Request::new(request, spec))
                    .collect(),
            ),
            Protocol::Tcp => Self::Tcp(spec.requests.iter().map(|r| r.body.clone()).collect()),
        }
    }

    /// The state of a connection that is about to be opened.
    pub(crate) fn wire(&self, streams: u32) -> Wire {
        match self {
            Self::Http1(_) => Wire::Http1(Http1::default()),
            Self::Http2(_) => Wire::Http2(Box::new(Http2::new(streams))),
            Self::Tcp(_) => Wire::Tcp(Tcp::default()),
        }
    }
}

/// One connection's state.
#[derive(Debug)]
pub(crate) enum Wire {
    Http1(Http1),
    Http2(Box<Http2>),
    Tcp(Tcp),
}

impl Wire {
    /// A new connection: forgets the old one, and writes what begins it.
    pub(crate) fn open(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http1(http1) => *http1 = Http1::default(),
            Self::Http2(http2) => http2.open(out),
            Self::Tcp(tcp) => *tcp = Tcp::default(),
        }
    }

    /// Requests that the peer lets the connection carry at the same time.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Http1(_) | Self::Tcp(_) => 1,
            Self::Http2(http2) => http2.capacity(),
        }
    }

    /// Whether the peer lets it carry further requests at all.
    pub(crate) fn goes_on(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.goes_on,
            Self::Http2(http2) => http2.goes_on(),
            Self::Tcp(_) => true,
        }
    }

    /// Writes a request. `last`: the connection will be closed after it.
    pub(crate) fn start(
        &mut self,
        encoded: &Encoded,
        request: u32,
        slot: u32,
        last: bool,
        out: &mut Vec<u8>,
    ) {
        match (self, encoded) {
            (Self::Http1(http1), Encoded::Http1(all)) => {
                http1.start(&all[request as usize], last, out);
            }
            (Self::Http2(http2), Encoded::Http2(all)) => {
                http2.start(&all[request as usize], request, slot, out);
            }
            (Self::Tcp(tcp), Encoded::Tcp(all)) => tcp.start(&all[request as usize], out),
            _ => unreachable!("a wire is made from the same encoding"),
        }
    }

    /// Takes bytes of the peer; writes what the protocol itself answers to them.
    pub(crate) fn feed(
        &mut self,
        encoded: &Encoded,
        input: &[u8],
        events: &mut Vec<Event>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        match (self, encoded) {
            (Self::Http1(http1), _) => http1.feed(input, events),
            (Self::Http2(http2), Encoded::Http2(all)) => http2.feed(all, input, events, out),
            (Self::Tcp(tcp), _) => tcp.feed(input, events),
            _ => unreachable!("a wire is made from the same encoding"),
        }
    }

    /// The peer answered while the request was still being sent: over HTTP/1.1 nobody can tell
    /// what state that leaves the connection in.
    pub(crate) fn answered_early(&mut self, events: &[Event]) {
        if let (Self::Http1(http1), Some(Event::Answer { .. })) = (self, events.last()) {
            http1.goes_on = false;
        }
    }

    /// The peer closed: an answer that this completes.
    pub(crate) fn end(&mut self, events: &mut Vec<Event>) {
        if let Self::Http1(http1) = self {
            http1.end(events);
        }
    }

    /// The request in this slot is given up. `true`: the connection can go on without it.
    pub(crate) fn give_up(&mut self, slot: u32, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Http1(_) | Self::Tcp(_) => false,
            Self::Http2(http2) => {
                http2.give_up(slot, out);
                true
            }
        }
    }
}
