//! The io_uring of a thread, and what is to be submitted to it.

use crate::ring::{Happening, Ring, Token};
use crate::spec::{LoadModel, LoadSpec};

/// Sends in a turn: as many as one handing-over takes.
pub(super) const SENDS_PER_TURN: u32 = 256;

/// The ring, and what is to be handed over to it.
pub(super) struct Batch {
    pub(super) ring: Ring,
    /// Connections whose receives are not armed.
    pub(super) unarmed: Vec<u32>,
    /// Connections on which something was written.
    pub(super) written: Vec<u32>,
    pub(super) happened: Vec<(Token, Happening)>,
    pub(super) watches_epoll: bool,
}

impl Batch {
    /// Where the load can use one, and the kernel gives one.
    pub(super) fn of(spec: &LoadSpec) -> Option<Box<Self>> {
        let suits = matches!(spec.model, LoadModel::Closed { think_ns: 0 })
            && spec.io_uring
            && spec.tls.is_none()
            && spec.requests_per_connection.is_none();
        // Forbidden in many containers, and missing before Linux 6.1: epoll does the same.
        let ring = suits.then(|| Ring::new(spec.connections).ok()).flatten()?;
        Some(Box::new(Self {
            ring,
            unarmed: Vec::new(),
            written: Vec::new(),
            happened: Vec::new(),
            watches_epoll: false,
        }))
    }

    /// The kernel has nothing of ours any more.
    pub(super) fn end(&mut self) {
        self.ring.quiesce();
    }
}
