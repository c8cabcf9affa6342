//! One proxied connection: a clear side and a wire side, and what is between them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;

use meshtax_dataplane::LimitSide;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConnection};

use super::{Context, Tls, dial, original_destination};
use crate::tls::spiffe_identity;

/// Bytes read at a time. Over TLS a record holds 16 KiB.
pub(super) const CHUNK: usize = 64 << 10;
/// Unsent bytes above which no more are read: back-pressure instead of memory.
const HIGH_WATER: usize = 256 << 10;

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    Ended,
}

/// Which of a link's two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Clear,
    Wire,
}

impl Side {
    pub(super) fn bit(self) -> u64 {
        u64::from(self == Self::Wire)
    }

    pub(super) fn from_bit(bit: u64) -> Self {
        if bit == 0 { Self::Clear } else { Self::Wire }
    }
}

/// A socket's end with what is still to be written to it.
struct End {
    stream: TcpStream,
    /// What is still to be written, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    readable: bool,
    eof: bool,
    /// Nothing comes behind what is unsent: its end is told then.
    ends: bool,
    end_told: bool,
}

pub(super) struct Link {
    /// Towards the application; on the server's side dialled once the peer is known.
    clear: Option<End>,
    /// Towards the other proxy.
    wire: End,
    tls: Option<Connection>,
    side: LimitSide,
    destination: SocketAddrV4,
    peer_known: bool,
}

impl Link {
    pub(super) fn new(accepted: TcpStream, context: &Context) -> io::Result<Self> {
        let destination = original_destination(&accepted)?;
        let side = context.config.side;
        let (clear, wire) = match side {
            LimitSide::Client => {
                let wire = dial(destination, &context.config)?;
                (Some(End::new(accepted)), End::new(wire))
            }
            LimitSide::Server => (None, End::new(accepted)),
        };
        let failed = |e: rustls::Error| io::Error::other(e.to_string());
        let tls = match &context.tls {
            Tls::Off => None,
            Tls::Client { usual, by_address } => {
                let config = by_address.get(destination.ip()).unwrap_or(usual);
                // Only a place holder: the verifier looks at the SPIFFE identity.
                let name = ServerName::IpAddress((*destination.ip()).into());
                let connection = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
                Some(Connection::Client(connection))
            }
            Tls::Server { config, .. } => {
                let connection = ServerConnection::new(Arc::clone(config)).map_err(failed)?;
                Some(Connection::Server(connection))
            }
        };
        Ok(Self {
            clear,
            wire,
            tls,
            side,
            destination,
            peer_known: false,
        })
    }

    /// The stream that [`Link::new`] made besides the accepted one.
    pub(super) fn dialled(&self) -> Option<&TcpStream> {
        (self.side == LimitSide::Client).then_some(&self.wire.stream)
    }

    /// Moves all that can be moved now, after an event on one side. `watch` is told of a new
    /// stream on the clear side.
    pub(super) fn pump(
        &mut self,
        side: Side,
        context: &Context,
        buffer: &mut [u8],
        watch: &mut dyn FnMut(&TcpStream) -> io::Result<()>,
    ) -> State {
        match (side, &mut self.clear) {
            (Side::Clear, Some(clear)) => clear.readable = true,
            _ => self.wire.readable = true,
        }
        match self.move_bytes(context, buffer, watch) {
            Ok(()) if self.finished() => State::Ended,
            Ok(()) => State::Open,
            Err(_) => {
                // An alert that says why may wait to be sent.
                let _ = self.flush_wire();
                State::Ended
            }
        }
    }

    fn move_bytes(
        &mut self,
        context: &Context,
        buffer: &mut [u8],
        watch: &mut dyn FnMut(&TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        // Room that a flush makes must be used at once: its event will not come again.
        loop {
            let mut moved = self.flush()?;
            moved |= self.take_from_wire(buffer)?;
            if !self.peer_known && !self.handshaking() {
                self.meet_peer(context, watch)?;
                moved = true;
            }
            self.deliver(buffer)?;
            moved |= self.take_from_clear(buffer)?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    fn finished(&self) -> bool {
        let clear_done = self.clear.as_ref().is_none_or(|c| c.eof);
        let sent = self.wire.is_flushed()
            && self.clear.as_ref().is_none_or(End::is_flushed)
            && !self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        self.wire.eof && clear_done && sent
    }

    /// On the server's side: who is it, and only then a connection to the application.
    fn meet_peer(
        &mut self,
        context: &Context,
        watch: &mut dyn FnMut(&TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        self.peer_known = true;
        if self.side == LimitSide::Client {
            return Ok(());
        }
        if let (Tls::Server { peer_prefix, .. }, Some(tls)) = (&context.tls, &self.tls) {
            let identity = tls
                .peer_certificates()
                .and_then(<[CertificateDer<'_>]>::first)
                .and_then(spiffe_identity)
                .unwrap_or_default();
            if !identity.starts_with(peer_prefix) {
                return Err(io::Error::other(format!(
                    "peer {identity:?} is not of this mesh"
                )));
            }
            if let Ok(SocketAddr::V4(from)) = self.wire.stream.peer_addr() {
                report_peer(&identity, *from.ip());
            }
        }
        let stream = dial(self.destination, &context.config)?;
        watch(&stream)?;
        self.clear = Some(End::new(stream));
        Ok(())
    }

    fn take_from_wire(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let room = self.clear.as_ref().is_none_or(End::has_room);
        if !self.wire.readable || self.wire.eof || !room {
            return Ok(false);
        }
        match &mut self.tls {
            None => match &mut self.clear {
                Some(clear) => copy(&mut self.wire, clear, buffer),
                None => Ok(false),
            },
            Some(tls) => decrypt(tls, &mut self.wire),
        }
    }

    /// Hands what is decrypted to the application, once there is a connection to it.
    fn deliver(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let (Some(tls), Some(clear)) = (&mut self.tls, &mut self.clear) else {
            return Ok(());
        };
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => break self.wire.eof = true,
                Ok(length) => clear.write(&buffer[..length])?,
                Err(e) if not_now(&e) => break,
                // Closed without a farewell: what came before is handed on all the same.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break self.wire.eof = true,
                Err(e) => return Err(e),
            }
        }
        clear.ends |= self.wire.eof;
        Ok(())
    }

    fn take_from_clear(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(clear) = &mut self.clear else {
            return Ok(false);
        };
        if !clear.readable || clear.eof || !self.wire.has_room() {
            return Ok(false);
        }
        match &mut self.tls {
            None => copy(clear, &mut self.wire, buffer),
            // The library holds little: what it holds must be on its way first.
            Some(tls) if tls.is_handshaking() || tls.wants_write() => Ok(false),
            Some(tls) => encrypt(clear, tls, &mut self.wire, buffer),
        }
    }

    /// `true`: something was sent that had not been before.
    fn flush(&mut self) -> io::Result<bool> {
        let mut sent = self.flush_wire()?;
        if let Some(clear) = &mut self.clear {
            sent |= clear.flush()?;
        }
        Ok(sent)
    }

    fn flush_wire(&mut self) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            return send_records(tls, &mut self.wire);
        }
        self.wire.flush()
    }
}

impl End {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unsent: Vec::new(),
            sent: 0,
            readable: true,
            eof: false,
            ends: false,
            end_told: false,
        }
    }

    fn is_flushed(&self) -> bool {
        self.sent == self.unsent.len()
    }

    fn has_room(&self) -> bool {
        self.unsent.len() - self.sent < HIGH_WATER
    }

    /// Reads once. `None`: nothing now.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.eof = true;
                Ok(Some(0))
            }
            Ok(length) => {
                // A short read has emptied the socket; the next byte makes a new event.
                self.readable = length == buffer.len();
                Ok(Some(length))
            }
            Err(e) if not_now(&e) => {
                self.readable = false;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_flushed() {
            match self.stream.write(bytes) {
                Ok(length) => self.unsent.extend_from_slice(&bytes[length..]),
                Err(e) if not_now(&e) => self.unsent.extend_from_slice(bytes),
                Err(e) => return Err(e),
            }
        } else {
            self.unsent.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// `true`: something was sent.
    fn flush(&mut self) -> io::Result<bool> {
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
            if self.ends && !self.end_told {
                self.end_told = true;
                let _ = self.stream.shutdown(Shutdown::Write);
            }
        } else if self.sent >= HIGH_WATER {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        Ok(progressed)
    }
}

/// Also not connected yet: what is written then waits for the event that says so.
fn not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected | io::ErrorKind::Interrupted
    )
}

fn copy(from: &mut End, to: &mut End, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read(buffer)? {
        None => Ok(false),
        Some(0) => {
            to.ends = true;
            Ok(true)
        }
        Some(length) => to.write(&buffer[..length]).map(|()| true),
    }
}

fn encrypt(
    clear: &mut End,
    tls: &mut Connection,
    wire: &mut End,
    buffer: &mut [u8],
) -> io::Result<bool> {
    // The connection holds nothing else, and has room for two of these.
    match clear.read(&mut buffer[..CHUNK / 2])? {
        None => return Ok(false),
        Some(0) => tls.send_close_notify(),
        Some(length) => tls.writer().write_all(&buffer[..length])?,
    }
    send_records(tls, wire)?;
    Ok(true)
}

fn decrypt(tls: &mut Connection, wire: &mut End) -> io::Result<bool> {
    let mut source = Tracked {
        stream: &mut wire.stream,
        filled: true,
    };
    let result = tls.read_tls(&mut source);
    let filled = source.filled;
    match result {
        Ok(0) => wire.eof = true,
        Ok(_) => wire.readable = filled,
        Err(e) if not_now(&e) => {
            wire.readable = false;
            return Ok(false);
        }
        Err(e) => return Err(e),
    }
    tls.process_new_packets()
        .map_err(|e| io::Error::other(e.to_string()))?;
    Ok(true)
}

/// Tells whether a read got all that it asked for; how much the library asks for varies.
struct Tracked<'a> {
    stream: &'a mut TcpStream,
    filled: bool,
}

impl Read for Tracked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        // A short read has emptied the socket; the next byte makes a new event.
        self.filled = length == buffer.len();
        Ok(length)
    }
}

fn send_records(tls: &mut Connection, wire: &mut End) -> io::Result<bool> {
    let mut sent = false;
    while tls.wants_write() {
        match tls.write_tls(&mut wire.stream) {
            Ok(_) => sent = true,
            Err(e) if not_now(&e) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(sent)
}

/// The evidence reads this line; one for each connection would be noise.
#[expect(
    clippy::print_stderr,
    reason = "the log of a process of the lab, read by the evidence"
)]
fn report_peer(identity: &str, from: std::net::Ipv4Addr) {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};
    static SEEN: Mutex<BTreeSet<(String, std::net::Ipv4Addr)>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < 16 && seen.insert((identity.to_owned(), from)) {
        eprintln!("peer {identity} from {from}");
    }
}
