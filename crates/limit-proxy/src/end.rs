//! A socket with the bytes still to be written to it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Unsent bytes above which no more are read: back-pressure instead of memory.
const HIGH_WATER: usize = 512 << 10;

pub(crate) struct End {
    pub(crate) stream: TcpStream,
    /// What is still to be written, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    pub(crate) readable: bool,
    pub(crate) eof: bool,
    /// Nothing follows the unsent bytes: the write side is shut down after them.
    pub(crate) ends: bool,
    is_shut_down: bool,
}

impl End {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unsent: Vec::new(),
            sent: 0,
            readable: true,
            eof: false,
            ends: false,
            is_shut_down: false,
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.sent == self.unsent.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.unsent.len() - self.sent < HIGH_WATER
    }

    /// Reads once. `None`: nothing now.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    /// The same into several buffers.
    pub(crate) fn read_vectored(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<usize>> {
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        match self.stream.read_vectored(buffers) {
            Ok(0) => {
                self.eof = true;
                Ok(Some(0))
            }
            Ok(length) => {
                // A short read has emptied the socket; the next byte makes a new event.
                self.readable = length == room;
                Ok(Some(length))
            }
            Err(e) if not_now(&e) => {
                self.readable = false;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    pub(crate) fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let mut written = 0;
        if self.is_flushed() {
            written = match self.stream.write_vectored(parts) {
                Ok(length) => length,
                Err(e) if not_now(&e) => 0,
                Err(e) => return Err(e),
            };
        }
        for part in parts {
            let skipped = written.min(part.len());
            written -= skipped;
            self.unsent.extend_from_slice(&part[skipped..]);
        }
        Ok(())
    }

    /// To be written with what follows.
    pub(crate) fn queue(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// `true`: something was sent.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let before = self.sent;
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(e) if not_now(&e) => break,
                Err(e) => return Err(e),
            }
        }
        let progressed = self.sent > before;
        if self.is_flushed() {
            self.unsent.clear();
            self.sent = 0;
            if self.ends && !self.is_shut_down {
                self.is_shut_down = true;
                let _ = self.stream.shutdown(Shutdown::Write);
            }
        } else if self.sent >= HIGH_WATER {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        Ok(progressed)
    }
}

/// Also a socket that is not connected yet: its bytes wait for the event.
fn not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected | io::ErrorKind::Interrupted
    )
}

/// Reads what there is, and writes it to the other socket. `false`: there was nothing.
pub(crate) fn copy(from: &mut End, to: &mut End, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read(buffer)? {
        None => Ok(false),
        Some(0) => {
            to.ends = true;
            Ok(true)
        }
        Some(length) => to.write(&buffer[..length]).map(|()| true),
    }
}
