//! One connection: opening it, a request out, an answer in.

use std::net::SocketAddr;

use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::http1::{Answer, Progress, ResponseParser};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No socket.
    Down,
    /// The handshake is under way.
    Connecting,
    /// Open, with no request on it.
    Idle,
    /// A request is on it.
    Busy,
}

/// The request on a busy connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    /// When it was to be sent.
    pub(crate) intended_ns: u64,
    /// When it was handed to the kernel.
    pub(crate) sent_ns: u64,
    /// Whether it belongs to the measured window.
    pub(crate) in_window: bool,
}

/// What a look at the socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Nothing that ends anything.
    Nothing,
    /// The request's answer is complete.
    Answer(Answer),
    /// The peer closed or reset before the answer was complete; or, with no request on
    /// the connection, it simply closed.
    Closed,
    /// What came is no answer.
    Protocol,
}

/// A connection and its state. After a failure the same object is opened again.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Option<OwnedFd>,
    parser: ResponseParser,
    written: usize,
    /// Told apart in events: one that was queued for an earlier socket must not be taken
    /// for one of the present socket.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    pub(crate) request: InFlight,
    /// When the answer came that freed it, or when it was opened.
    pub(crate) free_since_ns: u64,
    /// The earliest instant at which the generator, had it looked, could have found it free.
    pub(crate) available_since_ns: u64,
    /// Whether this socket has carried an answer: one that never did is reopened with care.
    pub(crate) proven: bool,
    /// Pause before the next attempt to open it, in nanoseconds.
    pub(crate) backoff_ns: u64,
}

impl Connection {
    pub(crate) fn new(method: &str) -> Self {
        Self {
            socket: None,
            parser: ResponseParser::new(method),
            written: 0,
            generation: 0,
            phase: Phase::Down,
            request: InFlight::default(),
            free_since_ns: 0,
            available_since_ns: 0,
            proven: false,
            backoff_ns: 0,
        }
    }

    /// Begins a handshake. It ends with a writable event, or an error event.
    pub(crate) fn connect(
        &mut self,
        target: &SocketAddr,
        epoll: BorrowedFd<'_>,
        index: u32,
    ) -> Result<(), Errno> {
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        self.generation = self.generation.wrapping_add(1);
        let data = epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(index));
        // Edge-triggered writability fires only after a write met a full buffer, so that
        // asking for it always costs nothing. Added after `connect`: an unconnected
        // socket reports a hang-up.
        let interest = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(epoll, &socket, data, interest)?;
        self.socket = Some(socket);
        self.phase = Phase::Connecting;
        self.proven = false;
        self.parser.reset();
        Ok(())
    }

    /// Whether the handshake succeeded, after an event for it.
    pub(crate) fn finish_connect(&mut self, now_ns: u64) -> Result<(), Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        sockopt::socket_error(socket)??;
        self.phase = Phase::Idle;
        self.free_since_ns = now_ns;
        self.available_since_ns = now_ns;
        Ok(())
    }

    /// The congestion control of the socket.
    pub(crate) fn congestion_control(&self) -> Option<String> {
        sockopt::tcp_congestion(self.socket.as_ref()?).ok()
    }

    /// Closes the socket; the kernel takes it out of the epoll set.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.phase = Phase::Down;
    }

    /// Puts a request on an idle connection.
    pub(crate) fn start(&mut self, request: InFlight, bytes: &[u8]) -> Result<(), Errno> {
        self.request = request;
        self.written = 0;
        self.phase = Phase::Busy;
        self.write_on(bytes)
    }

    /// Writes what the socket has not taken yet.
    pub(crate) fn write_on(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        while self.written < bytes.len() {
            match net::send(socket, &bytes[self.written..], SendFlags::NOSIGNAL) {
                Ok(written) => self.written += written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reads until the answer is complete or the socket is empty. Returns the bytes read too.
    ///
    /// `hang_up`: the event said that the peer closed, so that reading must go to the end.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        request_bytes: usize,
        hang_up: bool,
    ) -> (u64, Received) {
        let mut total = 0;
        let Some(socket) = self.socket.as_ref() else {
            return (0, Received::Nothing);
        };
        loop {
            let count = match io::read(socket, &mut *buffer) {
                Ok(0) => return (total, self.at_end()),
                Ok(count) => count,
                Err(Errno::AGAIN) => return (total, Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return (total, Received::Closed),
            };
            total += count as u64;
            if self.phase != Phase::Busy {
                // Nobody asked: whatever it is, the connection is of no use any more.
                return (total, Received::Closed);
            }
            match self.parser.feed(&buffer[..count]) {
                Err(_) => return (total, Received::Protocol),
                Ok(Progress::More) if count < buffer.len() && !hang_up => {
                    // A short read emptied the socket; the next byte makes a new event.
                    return (total, Received::Nothing);
                }
                Ok(Progress::More) => {}
                Ok(Progress::Complete {
                    mut answer,
                    consumed,
                }) => {
                    // An answer to a request that was not all sent, or with bytes after
                    // it, leaves the connection in a state that nobody can tell.
                    answer.keep_alive &=
                        consumed == count && self.written == request_bytes && !hang_up;
                    return (total, Received::Answer(answer));
                }
            }
        }
    }

    fn at_end(&mut self) -> Received {
        match self.parser.end() {
            Some(answer) if self.phase == Phase::Busy => Received::Answer(answer),
            _ => Received::Closed,
        }
    }
}
