//! One connection: opening it, requests out, responses in.

use std::io::{Read, Write};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt,
};
use rustls::{AlertDescription, ClientConnection};

use crate::dial::Dial;
use crate::error::ConnectProblem;
use crate::ring::Token;
use crate::wire::{Event, Failure, Wire};

/// Edge-triggered writability fires only after a write met a full buffer, so that asking for it
/// always costs nothing.
const INTEREST: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No socket.
    Down,
    /// TCP's handshake is under way.
    Connecting,
    /// TLS's handshake is under way.
    Securing,
    /// It carries requests.
    Open,
}

/// A request on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InFlight {
    /// When it was to be sent.
    pub(crate) intended_ns: u64,
    /// When it was handed to the kernel; while its connection is being opened, when that began.
    pub(crate) sent_ns: u64,
    /// When its response's first byte was read; 0 before.
    pub(crate) first_byte_ns: u64,
    /// Whether it belongs to the measured window.
    pub(crate) in_window: bool,
    /// Which of the load's requests it is.
    pub(crate) request: u32,
}

/// What io_uring does with a connection's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InRing {
    /// Written data is in the list to be submitted next.
    pub(crate) listed: bool,
    /// The socket is full, and io_uring tells when it is not any more.
    pub(crate) full: bool,
}

/// The result of reading the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Empty,
    /// The peer closed in good order.
    Closed,
    /// The peer reset.
    Reset,
}

/// Why a connection could not be opened.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{}", std::io::Error::from(*.0))]
    Tcp(Errno),
    #[error("the TLS handshake failed: {0}")]
    Tls(rustls::Error),
    #[error("the server closed the connection during the TLS handshake")]
    TlsClosed,
    #[error("the server ends or breaks its connections before it is sent anything")]
    Unusable,
    #[error("the server does not speak HTTP/2 over TLS (ALPN `h2` was not agreed on)")]
    NoHttp2,
}

impl OpenError {
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Tcp(_) => Failure::Connect,
            Self::Tls(_) | Self::TlsClosed | Self::NoHttp2 => Failure::Tls,
            Self::Unusable => Failure::Protocol,
        }
    }

    pub(crate) fn problem(&self) -> ConnectProblem {
        match self {
            Self::Tcp(errno) if is_local(*errno) => ConnectProblem::Local,
            Self::Tcp(_) => ConnectProblem::Tcp,
            Self::Tls(rustls::Error::InvalidCertificate(_)) => ConnectProblem::Certificate,
            Self::Tls(_) | Self::TlsClosed => ConnectProblem::Tls,
            Self::Unusable | Self::NoHttp2 => ConnectProblem::Protocol,
        }
    }

    /// Nobody listens there: that may be a server about to start, but not for long.
    pub(crate) fn is_refusal(&self) -> bool {
        *self == Self::Tcp(Errno::CONNREFUSED)
    }

    /// What whoever offers the load can do.
    pub(crate) fn fix(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "see that a server listens there",
            Self::TlsClosed => "see that the server speaks TLS on this port",
            Self::Unusable => "see that the server speaks this protocol on this port",
            Self::NoHttp2 => "use HTTP/1.1, or let the server offer `h2`",
            Self::Tls(rustls::Error::InvalidCertificate(_)) => {
                "trust its certificate's authority, or accept any certificate"
            }
            Self::Tls(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                "show a certificate that the server trusts"
            }
            Self::Tls(rustls::Error::InvalidMessage(_)) => {
                "see that the server speaks TLS on this port"
            }
            Self::Tls(_) => "see that both ends share a version, a cipher and an identity",
        }
    }

    /// Whether trying again can come to anything else.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::NoHttp2)
    }
}

/// Whether the cause is on this side: the peer was not even asked.
fn is_local(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
    )
}

/// A connection and its state. After a failure the same object is opened again.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Which of the destinations it is to, always.
    pub(crate) destination: usize,
    socket: Option<OwnedFd>,
    tls: Option<Box<ClientConnection>>,
    wire: Wire,
    /// What the socket has not taken yet, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// Requests under way, by slot, and the slots without one.
    slots: Vec<Option<InFlight>>,
    vacant: Vec<u32>,
    /// Bytes that sockets took since they were last counted.
    pub(crate) written: u64,
    /// Requests since it was opened.
    carried: u32,
    /// Distinguishes events: one that was queued for an earlier socket must not be taken
    /// for one of the present socket.
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    /// When its handshakes began, TCP's and then TLS's.
    pub(crate) handshake_ns: u64,
    /// When the response came that freed it, or when it was opened.
    pub(crate) free_since_ns: u64,
    /// The earliest instant at which the generator, had it looked, could have found it free.
    pub(crate) available_since_ns: u64,
    /// Whether this socket has carried a response: one that never did is reopened with care.
    pub(crate) proven: bool,
    /// Pause before the next attempt to open it, in nanoseconds.
    pub(crate) backoff_ns: u64,
    /// Whether it is in the list of free connections.
    pub(crate) listed: bool,
    /// Whether it pauses after a failed attempt.
    pub(crate) resting: bool,
    /// What io_uring does with it, if that has its socket.
    pub(crate) ring: Option<InRing>,
    /// What was wrong with TLS when it was over.
    pub(crate) tls_error: Option<rustls::Error>,
}

impl Connection {
    /// The connection of this number in its thread.
    pub(crate) fn new(dial: &Dial, index: u32) -> Self {
        let destination = dial.destination_of(index);
        Self {
            destination,
            socket: None,
            tls: None,
            wire: dial.destinations[destination].encoded.wire(dial.streams),
            out: Vec::new(),
            out_at: 0,
            slots: vec![None; dial.streams as usize],
            vacant: (0..dial.streams).rev().collect(),
            written: 0,
            carried: 0,
            generation: 0,
            phase: Phase::Down,
            handshake_ns: 0,
            free_since_ns: 0,
            available_since_ns: 0,
            proven: false,
            backoff_ns: 0,
            listed: false,
            resting: false,
            ring: None,
            tls_error: None,
        }
    }

    /// Begins a handshake. It ends with a writable event, or an error event.
    pub(crate) fn connect(
        &mut self,
        dial: &Dial,
        epoll: BorrowedFd<'_>,
        index: u32,
        now_ns: u64,
    ) -> Result<(), Errno> {
        let target = dial.destinations[self.destination].target;
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match net::connect(&socket, &target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        self.generation = self.generation.wrapping_add(1);
        // Added after `connect`: an unconnected socket reports a hang-up.
        epoll::add(epoll, &socket, self.token(index), INTEREST)?;
        self.socket = Some(socket);
        self.phase = Phase::Connecting;
        self.handshake_ns = now_ns;
        self.proven = false;
        self.carried = 0;
        Ok(())
    }

    /// What its events carry.
    fn token(&self, index: u32) -> epoll::EventData {
        epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(index))
    }

    /// The same for io_uring.
    pub(crate) fn ring_token(&self, index: u32) -> Token {
        Token::new(index, self.generation)
    }

    /// Its socket is io_uring's from now on, and not epoll's any more.
    pub(crate) fn leave_epoll(&mut self, epoll: BorrowedFd<'_>) -> Result<(), Errno> {
        if let Some(socket) = &self.socket {
            epoll::delete(epoll, socket)?;
            self.ring = Some(InRing::default());
        }
        Ok(())
    }

    /// Its socket, and what is to be sent on it.
    pub(crate) fn outgoing(&self) -> Option<(BorrowedFd<'_>, &[u8])> {
        Some((self.socket.as_ref()?.as_fd(), &self.out[self.out_at..]))
    }

    /// All of that is on its way.
    pub(crate) fn handed_over(&mut self) {
        self.out.clear();
        self.out_at = 0;
    }

    /// This much of it the socket did not take.
    pub(crate) fn put_back(&mut self, unsent: &[u8]) {
        self.out
            .splice(self.out_at..self.out_at, unsent.iter().copied());
    }

    /// Makes epoll report its current readiness again.
    pub(crate) fn tell_again(&self, epoll: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
        match &self.socket {
            Some(socket) => epoll::modify(epoll, socket, self.token(index), INTEREST),
            None => Ok(()),
        }
    }

    /// Whether TCP's handshake succeeded, after an event for it. TLS's follows, if there is one.
    pub(crate) fn connected(&mut self, dial: &Dial, now_ns: u64) -> Result<(), OpenError> {
        let socket = self.socket.as_ref().ok_or(OpenError::Tcp(Errno::NOTCONN))?;
        sockopt::socket_error(socket)
            .and_then(|result| result)
            .map_err(OpenError::Tcp)?;
        let Some(secure) = &dial.secure else {
            return self.open(now_ns);
        };
        let tls = ClientConnection::new(secure.config.clone(), secure.name.clone())
            .map_err(OpenError::Tls)?;
        self.tls = Some(Box::new(tls));
        self.phase = Phase::Securing;
        self.handshake_ns = now_ns;
        self.flush().map_err(OpenError::Tcp)
    }

    /// Goes on with TLS's handshake. Over, the connection is open.
    pub(crate) fn secure(
        &mut self,
        dial: &Dial,
        buffer: &mut [u8],
        now_ns: u64,
    ) -> Result<(), OpenError> {
        loop {
            let count = match self.read(buffer) {
                Arrival::Bytes(count) => count,
                Arrival::Empty => break,
                Arrival::Closed | Arrival::Reset => return Err(OpenError::TlsClosed),
            };
            let tls = self.tls.as_mut().ok_or(OpenError::TlsClosed)?;
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                tls.read_tls(&mut rest)
                    .map_err(|e| OpenError::Tls(rustls::Error::General(e.to_string())))?;
                if let Err(error) = tls.process_new_packets() {
                    // The alert says to the peer what was wrong.
                    let _ = self.flush();
                    return Err(OpenError::Tls(error));
                }
            }
        }
        self.flush().map_err(OpenError::Tcp)?;
        let tls = self.tls.as_ref().ok_or(OpenError::TlsClosed)?;
        if tls.is_handshaking() {
            return Ok(());
        }
        // A server without ALPN uses HTTP/1.1.
        let wants_http2 = dial.secure.as_ref().is_some_and(|s| s.wants_http2);
        if wants_http2 && tls.alpn_protocol() != Some(b"h2") {
            return Err(OpenError::NoHttp2);
        }
        self.open(now_ns)
    }

    fn open(&mut self, now_ns: u64) -> Result<(), OpenError> {
        self.phase = Phase::Open;
        self.free_since_ns = now_ns;
        self.available_since_ns = now_ns;
        self.wire.open(&mut self.out);
        self.flush().map_err(OpenError::Tcp)
    }

    /// The congestion control of the socket.
    pub(crate) fn congestion_control(&self) -> Option<String> {
        sockopt::tcp_congestion(self.socket.as_ref()?).ok()
    }

    /// Closes the socket; the kernel takes it out of the epoll set. Its requests are forgotten.
    pub(crate) fn close(&mut self) {
        if self.tls.is_some() && self.phase == Phase::Open {
            if let Some(tls) = &mut self.tls {
                tls.send_close_notify();
            }
            let _ = self.flush();
        }
        self.tls = None;
        if let (Some(socket), Some(_)) = (&self.socket, self.ring.take()) {
            // An armed receive would keep the socket open; its end ends that, too. A peer that
            // was first has ended it already.
            let _ = net::shutdown(socket, net::Shutdown::Both);
        }
        self.socket = None;
        self.phase = Phase::Down;
        self.out.clear();
        self.out_at = 0;
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].take().is_some() {
                self.vacant.push(slot);
            }
        }
    }

    /// Requests under way.
    pub(crate) fn active(&self) -> u32 {
        (self.slots.len() - self.vacant.len()) as u32
    }

    /// Whether it can carry one more request at once. A connection without a socket can, if
    /// opening it belongs to the request.
    pub(crate) fn has_room(&self, dial: &Dial) -> bool {
        match self.phase {
            Phase::Open => {
                self.wire.goes_on()
                    && self.active() < self.wire.capacity()
                    && dial.lifetime.is_none_or(|most| self.carried < most)
            }
            Phase::Down => dial.lifetime.is_some() && !self.resting && self.active() == 0,
            Phase::Connecting | Phase::Securing => false,
        }
    }

    /// Whether it is open, carries nothing, and can carry nothing more.
    pub(crate) fn is_spent(&self, dial: &Dial) -> bool {
        self.phase == Phase::Open
            && self.active() == 0
            && !self.has_room(dial)
            && (!self.wire.goes_on() || dial.lifetime.is_some_and(|most| self.carried >= most))
    }

    /// Takes a slot for a request, which must have room, and writes it if it is open. It is on
    /// its way after [`Self::flush`].
    pub(crate) fn start(&mut self, dial: &Dial, request: InFlight) {
        let Some(slot) = self.vacant.pop() else {
            return;
        };
        self.slots[slot as usize] = Some(request);
        if self.phase == Phase::Open {
            self.write_request(dial, slot, request.request);
        }
    }

    /// It is open now: writes the request that waited for that.
    pub(crate) fn start_waiting(&mut self, dial: &Dial, now_ns: u64) {
        for slot in 0..self.slots.len() as u32 {
            if let Some(request) = &mut self.slots[slot as usize] {
                request.sent_ns = now_ns;
                let number = request.request;
                self.write_request(dial, slot, number);
            }
        }
    }

    fn write_request(&mut self, dial: &Dial, slot: u32, request: u32) {
        self.carried += 1;
        let last = dial.lifetime.is_some_and(|most| self.carried >= most);
        let encoded = &dial.destinations[self.destination].encoded;
        self.wire.start(encoded, request, slot, last, &mut self.out);
    }

    /// The request in a slot, which is not under way any more.
    pub(crate) fn take(&mut self, slot: u32) -> Option<InFlight> {
        let request = self.slots[slot as usize].take();
        if request.is_some() {
            self.vacant.push(slot);
        }
        request
    }

    /// Any request under way, which is not any more.
    pub(crate) fn take_any(&mut self) -> Option<InFlight> {
        let slot = self.slots.iter().position(Option::is_some)?;
        self.take(slot as u32)
    }

    /// The response in this slot began.
    pub(crate) fn first_byte(&mut self, slot: u32, now_ns: u64) {
        if let Some(request) = &mut self.slots[slot as usize] {
            request.first_byte_ns = now_ns;
        }
    }

    /// A slot whose request was sent before that instant.
    pub(crate) fn overdue(&self, sent_before_ns: u64) -> Option<u32> {
        let is_late = |slot: &Option<InFlight>| slot.is_some_and(|r| r.sent_ns < sent_before_ns);
        self.slots.iter().position(is_late).map(|slot| slot as u32)
    }

    /// Gives up the request in a slot. `true`: the connection can go on without it.
    pub(crate) fn give_up(&mut self, slot: u32) -> bool {
        self.phase == Phase::Open && self.wire.give_up(slot, &mut self.out) && self.flush().is_ok()
    }

    /// Whether everything written was taken by the socket.
    pub(crate) fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }

    /// Hands to the socket what it takes.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        let Some(tls) = &mut self.tls else {
            while self.out_at < self.out.len() {
                match net::send(socket, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                    Ok(count) => {
                        self.out_at += count;
                        self.written += count as u64;
                    }
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            self.out.clear();
            self.out_at = 0;
            return Ok(());
        };
        loop {
            if self.out_at < self.out.len() {
                // Takes no more than its buffer holds, so that a large body does not lie here
                // twice.
                let taken = tls.writer().write(&self.out[self.out_at..]);
                self.out_at += taken.map_err(|_| Errno::PIPE)?;
            }
            while tls.wants_write() {
                match tls.write_tls(&mut Socket(socket)) {
                    Ok(count) => self.written += count as u64,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => return Err(Errno::PIPE),
                }
            }
            if self.out_at >= self.out.len() {
                self.out.clear();
                self.out_at = 0;
                return Ok(());
            }
        }
    }

    /// Reads once from the socket.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Arrival {
        let Some(socket) = self.socket.as_ref() else {
            return Arrival::Empty;
        };
        loop {
            return match net::recv(socket, &mut *buffer, RecvFlags::empty()).map(|(_, count)| count)
            {
                Ok(0) => Arrival::Closed,
                Ok(count) => Arrival::Bytes(count),
                Err(Errno::AGAIN) => Arrival::Empty,
                Err(Errno::INTR) => continue,
                Err(_) => Arrival::Reset,
            };
        }
    }

    /// Takes what was read; responses and other news go to `events`. What the protocol itself
    /// responses to the bytes is written at the next [`Self::flush`].
    pub(crate) fn feed(
        &mut self,
        dial: &Dial,
        bytes: &[u8],
        plain: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let encoded = &dial.destinations[self.destination].encoded;
        let Some(tls) = &mut self.tls else {
            self.wire
                .feed(encoded, bytes, events, &mut self.out)
                .map_err(|_| Failure::Protocol)?;
            if !self.is_flushed() {
                self.wire.response_was_early(events);
            }
            return Ok(());
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            tls.read_tls(&mut rest).map_err(|_| Failure::Tls)?;
            if let Err(error) = tls.process_new_packets() {
                self.tls_error = Some(error);
                return Err(Failure::Tls);
            }
            loop {
                match tls.reader().read(plain) {
                    // The peer closed in good order: the socket's end follows.
                    Ok(0) => break,
                    Ok(count) => self
                        .wire
                        .feed(encoded, &plain[..count], events, &mut self.out)
                        .map_err(|_| Failure::Protocol)?,
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => return Err(Failure::Reset),
                }
            }
        }
        if !self.out.is_empty() {
            self.wire.response_was_early(events);
        }
        Ok(())
    }

    /// The socket is at its end: a response that this completes.
    pub(crate) fn end(&mut self, events: &mut Vec<Event>) {
        // Over TLS only a peer that said so has ended its response: anyone can cut a socket.
        let said_so = match &mut self.tls {
            None => true,
            Some(tls) => matches!(tls.reader().read(&mut [0]), Ok(0)),
        };
        if said_so {
            self.wire.end(events);
        }
    }
}

/// A socket as rustls writes to it.
struct Socket<'a>(&'a OwnedFd);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
