//! A connection's bytes: as they are, or within TLS.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::sync::Arc;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, SendAncillaryBuffer, SendFlags, Shutdown};
use rustls::{ServerConfig, ServerConnection};

/// A connection's bytes.
pub(crate) enum Transport {
    Clear(OwnedFd),
    Tls(Box<Tls>),
}

/// TLS on a socket.
pub(crate) struct Tls {
    socket: OwnedFd,
    session: ServerConnection,
    /// The last read emptied the socket: the next byte makes a new event.
    drained: bool,
}

impl Transport {
    /// # Errors
    /// When the configuration allows no session.
    pub(crate) fn new(
        socket: OwnedFd,
        tls: Option<&Arc<ServerConfig>>,
    ) -> Result<Self, rustls::Error> {
        let Some(config) = tls else {
            return Ok(Self::Clear(socket));
        };
        Ok(Self::Tls(Box::new(Tls {
            socket,
            session: ServerConnection::new(Arc::clone(config))?,
            drained: false,
        })))
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Clear(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.socket.as_fd(),
        }
    }

    /// A new event: there may be something to read again.
    pub(crate) fn woken(&mut self) {
        if let Self::Tls(tls) = self {
            tls.drained = false;
        }
    }

    /// Reads what fits; the second value is true if the socket is known to be empty. With
    /// `to_the_end`, the socket is asked until it says so. 0: the peer sends no more.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        to_the_end: bool,
    ) -> Result<(usize, bool), Errno> {
        match self {
            Self::Clear(socket) => {
                let count = rustix::io::read(socket, &mut *buffer)?;
                Ok((count, count < buffer.len()))
            }
            Self::Tls(tls) => Ok((tls.read(buffer, to_the_end)?, false)),
        }
    }

    /// Sends what is taken, at least a byte.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Clear(socket) => net::send(socket, bytes, SendFlags::NOSIGNAL),
            Self::Tls(tls) => tls.send(bytes),
        }
    }

    /// Sends what is encrypted already, as far as the socket takes it.
    pub(crate) fn push(&mut self) -> Result<(), Errno> {
        match self {
            Self::Clear(_) => Ok(()),
            Self::Tls(tls) => tls.push(),
        }
    }

    /// Something is encrypted already, and not sent.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Clear(_) => false,
            Self::Tls(tls) => tls.session.wants_write(),
        }
    }

    /// Tells the peer that no more comes; with `lingers`, what it still sends will be read, so
    /// that it has to be told now.
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
                // The end without a farewell: who sent too little shows in what was sent.
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
            // Handshakes go on, and alerts leave, before anything else.
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
        // The session takes no more than its buffer holds.
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

/// A socket as the TLS library wants it.
struct Socket<'a> {
    socket: BorrowedFd<'a>,
    /// The last read was not full.
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
