//! What connections are opened with: where they go, in turn, what is sent there, and how they are secured.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use crate::spec::LoadSpec;
use crate::wire::Encoded;

/// How connections are secured.
#[derive(Clone, Debug)]
pub(crate) struct Secure {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) name: ServerName<'static>,
    /// Whether HTTP/2 must have been agreed on.
    pub(crate) wants_http2: bool,
}

/// Where connections go, and what is sent there.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) target: SocketAddr,
    pub(crate) encoded: Encoded,
}

/// What all connections of a thread are opened with.
#[derive(Debug)]
pub(crate) struct Dial {
    /// One at least. Connections are to them in turn.
    pub(crate) destinations: Arc<[Destination]>,
    /// Which of them the thread's first connection is to.
    pub(crate) first: usize,
    pub(crate) secure: Option<Secure>,
    pub(crate) streams: u32,
    /// Requests before it is closed.
    pub(crate) lifetime: Option<u32>,
}

impl Destination {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        Self {
            target: spec.target,
            encoded: Encoded::new(spec),
        }
    }
}

impl Dial {
    /// Which of the destinations the connection of this number is to.
    pub(crate) fn destination_of(&self, index: u32) -> usize {
        (self.first + index as usize) % self.destinations.len()
    }
}
