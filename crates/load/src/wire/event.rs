//! What happens on a connection, in the terms of all protocols.

use meshtax_http2::frame::FrameError;
use meshtax_http2::hpack::HpackError;

use crate::http1::ProtocolError;

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Its connection could not be opened.
    Connect,
    /// The peer closed or reset the connection.
    Reset,
    /// No response arrived in time.
    Timeout,
    /// The TLS handshake or a later record failed.
    Tls,
    /// What arrived was not a response.
    Protocol,
}

/// The status of a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseStatus {
    /// The HTTP status; 200 for a TCP echo.
    pub(crate) http: u16,
    /// The gRPC status.
    pub(crate) grpc: Option<u16>,
}

/// An event of the request in a slot of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its response has begun.
    FirstByte { slot: u32 },
    /// Its response is complete.
    Response { slot: u32, status: ResponseStatus },
    /// It failed; the connection may still be usable.
    Failed { slot: u32, failure: Failure },
}

/// The input violates the protocol; the connection is unusable.
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
    #[error("data arrived without a request")]
    Unsolicited,
}
