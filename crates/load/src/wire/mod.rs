//! The protocols of connections: requests to bytes, bytes to responses. No sockets here.

mod event;
mod http1;
mod http2;
mod tcp;

use crate::spec::{LoadSpec, Protocol};

pub(crate) use self::event::{Event, Failure, ResponseStatus, WireError};

use self::http1::{Http1, Http1Request};
use self::http2::{Http2, Http2Request};
use self::tcp::Tcp;

/// The encoded requests of a load.
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

    /// The initial state of a connection.
    pub(crate) fn wire(&self, streams: u32) -> Wire {
        match self {
            Self::Http1(_) => Wire::Http1(Http1::default()),
            Self::Http2(_) => Wire::Http2(Box::new(Http2::new(streams))),
            Self::Tcp(_) => Wire::Tcp(Tcp::default()),
        }
    }
}

/// The protocol state of one connection.
#[derive(Debug)]
pub(crate) enum Wire {
    Http1(Http1),
    Http2(Box<Http2>),
    Tcp(Tcp),
}

impl Wire {
    /// Resets the state for a new connection, and writes its preface.
    pub(crate) fn open(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Http1(http1) => *http1 = Http1::default(),
            Self::Http2(http2) => http2.open(out),
            Self::Tcp(tcp) => *tcp = Tcp::default(),
        }
    }

    /// Concurrent requests that the peer allows on the connection.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Http1(_) | Self::Tcp(_) => 1,
            Self::Http2(http2) => http2.capacity(),
        }
    }

    /// Whether the peer accepts further requests on the connection.
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

    /// Takes input; writes the replies of the protocol itself (such as acknowledgements).
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

    /// A response arrived while the request was still being sent: an HTTP/1.1 connection is in an
    /// unknown state then.
    pub(crate) fn response_was_early(&mut self, events: &[Event]) {
        if let (Self::Http1(http1), Some(Event::Response { .. })) = (self, events.last()) {
            http1.goes_on = false;
        }
    }

    /// The peer closed the connection, which may complete a response.
    pub(crate) fn end(&mut self, events: &mut Vec<Event>) {
        if let Self::Http1(http1) = self {
            http1.end(events);
        }
    }

    /// Abandons the request in this slot. `true`: the connection is still usable.
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
