//! A connection's bytes: plaintext, or over TLS.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, SendAncillaryBuffer, SendFlags, Shutdown};
use rustls::{ServerConfig, ServerConnection};

/// A connection's socket, with TLS or without.
pub(crate) enum Transport {
    Plaintext(OwnedFd),
    Tls(Box<Tls>),
}

/// A TLS session on a socket.
pub(crate) struct Tls {
    socket: OwnedFd,
    session: ServerConnection,
    /// The last read emptied the socket: the next byte causes a new event.
    drained: bool,
}

impl Transport {
    /// # Errors
    /// When the TLS configuration is unusable.
    pub(crate) fn new(
        socket: OwnedFd,
        tls: Option<&Arc<ServerConfig>>,
    ) -> Result<Self, rustls::Error> {
        let Some(config) = tls else {
            return Ok(Self::Plaintext(socket));
        };
        Ok(Self::Tls(Box::new(Tls {
            socket,
            session: ServerConnection::new(Arc::clone(config))?,
            drained: false,
        })))
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plaintext(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.socket.as_fd(),
        }
    }

    /// A new event: the socket may be readable again.
    pub(crate) fn woken(&mut self) {
        if let Self::Tls(tls) = self {
            tls.drained = false;
        }
    }

    /// Reads what fits; the second value is true if the socket is known to be empty. With
    /// `to_the_end`, the socket is read until it would block. 0: the peer sends no more.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        to_the_end: bool,
    ) -> Result<(usize, bool), Errno> {
        match self {
            Self::Plaintext(socket) => {
                let count = rustix::io::read(socket, &mut *buffer)?;
                Ok((count, count < buffer.len()))
            }
            Self::Tls(tls) => Ok((tls.read(buffer, to_the_end)?, false)),
        }
    }

    /// Sends at least one byte; returns how many were accepted.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Plaintext(socket) => net::send(socket, bytes, SendFlags::NOSIGNAL),
            Self::Tls(tls) => tls.send(bytes),
        }
    }

    /// Sends what is encrypted already, as far as the socket accepts it.
    pub(crate) fn push(&mut self) -> Result<(), Errno> {
        match self {
            Self::Plaintext(_) => Ok(()),
            Self::Tls(tls) => tls.push(),
        }
    }

    /// Encrypted output is not sent yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plaintext(_) => false,
            Self::Tls(tls) => tls.session.wants_write(),
        }
    }

    /// Announces the end of the output. With `lingers`, input is still read, so that the socket is shut
    /// down for writing now.
    pub(crate) fn finish(&mut self, lingers: bool) {
        if let Self::Tls(tls) = self {
            tls.session.send_close_notify();
            let _ = tls.push();
        }
        if lingers {
            let _ = net::shutdown(self.socket(), Shutdown::Write);
        }
    }
}

impl Tls {
    fn read(&mut self, buffer: &mut [u8], to_the_end: bool) -> Result<usize, Errno> {
        loop {
            match self.session.reader().read(buffer) {
                Ok(count) => return Ok(count),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The end without a close_notify: a truncated message shows in its own length.
                Err(_) => return Ok(0),
            }
            if self.drained && !to_the_end {
                return Err(Errno::AGAIN);
            }
            let mut socket = Socket {
                socket: self.socket.as_fd(),
                short: false,
            };
            let count = self.session.read_tls(&mut socket).map_err(errno)?;
            self.drained = socket.short;
            let outcome = self.session.process_new_packets();
            // Handshake messages and alerts are sent before anything else.
            self.push()?;
            outcome.map_err(|_| Errno::PROTO)?;
            if count == 0 {
                return Ok(0);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.push()?;
        if self.session.wants_write() {
            return Err(Errno::AGAIN);
        }
        // The session accepts no more than its buffer holds.
        let count = self.session.writer().write(bytes).map_err(errno)?;
        self.push()?;
        if count == 0 {
            return Err(Errno::AGAIN);
        }
        Ok(count)
    }

    fn push(&mut self) -> Result<(), Errno> {
        while self.session.wants_write() {
            let mut socket = Socket {
                socket: self.socket.as_fd(),
                short: false,
            };
            match self.session.write_tls(&mut socket).map_err(errno) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A socket with the interface of the TLS library.
struct Socket<'a> {
    socket: BorrowedFd<'a>,
    /// The last read was shorter than its buffer.
    short: bool,
}

impl io::Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = rustix::io::read(self.socket, &mut *buffer)?;
        self.short = count < buffer.len();
        Ok(count)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.socket, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        let flags = SendFlags::NOSIGNAL;
        Ok(net::sendmsg(self.socket, parts, &mut nothing, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
