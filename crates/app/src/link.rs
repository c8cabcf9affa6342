//! The output of a connection, in order, with what the socket has not accepted yet.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::net;

use crate::content::Content;
use crate::transport::Transport;

/// Unsent output beyond this stops the reading of further requests, in bytes.
pub(crate) const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// The size of the output buffer that an idle connection keeps, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// A connection's transport and its output buffer.
pub(crate) struct Link {
    transport: Transport,
    /// Output that the socket has not accepted, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// The rest of a long body that follows: its offset, and how much is left.
    body_at: u64,
    body_left: u64,
    /// Nothing further is processed; the connection ends once the output is sent.
    pub(crate) closing: bool,
    /// The peer may still be sending what was rejected: wait for its end.
    pub(crate) lingers: bool,
    /// The end of the output was sent.
    finished: bool,
}

impl Link {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            out: Vec::new(),
            out_at: 0,
            body_at: 0,
            body_left: 0,
            closing: false,
            lingers: false,
            finished: false,
        }
    }

    pub(crate) fn woken(&mut self) {
        self.transport.woken();
    }

    /// See [`Transport::read`].
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        to_the_end: bool,
    ) -> Result<(usize, bool), Errno> {
        self.transport.read(buffer, to_the_end)
    }

    /// The peer: `ip:port`.
    pub(crate) fn peer(&self) -> String {
        let peer = net::getpeername(self.transport.socket()).ok().flatten();
        let address = peer.and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or_else(String::new, |address| address.to_string())
    }

    /// Where output is appended. Not while a long body is being sent.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends the rest of a body from the content, from an offset on.
    pub(crate) fn stream(&mut self, at: u64, left: u64) {
        (self.body_at, self.body_left) = (at, left);
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.body_left > 0
    }

    /// Sends without a copy; buffers what the socket does not accept.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) {
        // Any error but a full buffer occurs again at the next flush, and is handled there.
        let sent = self.transport.send(bytes).unwrap_or(0);
        self.out.extend_from_slice(&bytes[sent..]);
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.out_at < self.out.len() || self.body_left > 0 || self.transport.has_unsent()
    }

    /// The peer sends no more, and all output was sent.
    pub(crate) fn farewell(&mut self) {
        if !self.finished {
            self.transport.finish(false);
        }
    }

    /// Buffered output in bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Sends what the socket accepts; an error means that the connection is gone.
    pub(crate) fn flush(&mut self, content: &Content) -> Result<(), Errno> {
        self.transport.push()?;
        while self.out_at < self.out.len() {
            match self.transport.send(&self.out[self.out_at..]) {
                Ok(sent) => self.out_at += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.out.clear();
        self.out_at = 0;
        if self.out.capacity() > KEPT_BYTES {
            self.out.shrink_to(0);
        }
        while self.body_left > 0 {
            let bytes = content.slice(self.body_at, self.body_left);
            match self.transport.send(bytes) {
                Ok(sent) => {
                    self.body_at += sent as u64;
                    self.body_left -= sent as u64;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if self.closing && !self.finished && !self.transport.has_unsent() {
            self.finished = true;
            self.transport.finish(self.lingers);
        }
        Ok(())
    }
}
