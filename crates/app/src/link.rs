//! What leaves a connection, in order, and what the socket has not taken yet.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::net;

use crate::content::Content;
use crate::transport::Transport;

/// Memory for answers that a connection keeps when they are sent, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// A connection's way out.
pub(crate) struct Link {
    transport: Transport,
    /// Answers that the socket has not taken, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// The rest of a long body, behind them: where it goes on, and how much is left.
    body_at: u64,
    body_left: u64,
    /// Nothing further is read; the connection ends once the answers are out.
    pub(crate) closing: bool,
    /// The peer may still be sending what was refused: wait for its end.
    pub(crate) lingers: bool,
    /// The peer was told that no more comes.
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

    /// Who is at the other end: `ip:port`.
    pub(crate) fn peer(&self) -> String {
        let peer = net::getpeername(self.transport.socket()).ok().flatten();
        let address = peer.and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or_else(String::new, |address| address.to_string())
    }

    /// Where answers are appended. Not while a long body is on its way.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The rest of a body comes from the content, from a place on.
    pub(crate) fn stream(&mut self, at: u64, left: u64) {
        (self.body_at, self.body_left) = (at, left);
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.body_left > 0
    }

    /// Sends without a copy; keeps what the socket does not take.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) {
        // Anything but a full buffer shows again, and is acted on, at the next flush.
        let sent = self.transport.send(bytes).unwrap_or(0);
        self.out.extend_from_slice(&bytes[sent..]);
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.out_at < self.out.len() || self.body_left > 0 || self.transport.has_unsent()
    }

    /// The peer sends no more, and all was sent to it.
    pub(crate) fn farewell(&mut self) {
        if !self.finished {
            self.transport.finish(false);
        }
    }

    /// Answers that are kept here, in bytes.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Sends what the socket takes; an error means that the connection is gone.
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
