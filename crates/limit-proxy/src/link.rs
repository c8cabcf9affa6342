//! One proxied connection: a plaintext side towards the application, and a wire side towards the other proxy.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use meshtax_dataplane::LimitSide;
use meshtax_tls::spiffe::spiffe_identity;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::context::{Context, Tls};
use crate::end::{End, copy};
use crate::record::{self, Content, HEADER, MAX_PLAIN, Records, TRAILER};
use crate::socket::dial;

/// Records that are read or written at a time.
const RECORDS: usize = 16;
const RECORD: usize = HEADER + MAX_PLAIN + TRAILER;

/// Scratch space of a worker; empty between two events.
pub(crate) struct Scratch {
    bytes: Box<[u8]>,
    plain: Vec<Range<usize>>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; RECORDS * RECORD].into(),
            plain: Vec::new(),
        }
    }
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// On the client's side: it can carry another of the application's connections.
    Idle,
    Ended,
}

/// Which of a link's two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Plain,
    Wire,
}

impl Side {
    pub(crate) fn bit(self) -> u64 {
        u64::from(self == Self::Wire)
    }

    pub(crate) fn from_bit(bit: u64) -> Self {
        if bit == 0 { Self::Plain } else { Self::Wire }
    }
}

/// What protects the wire.
enum Protection {
    None,
    Handshake(Box<Connection>),
    Records(Box<Records>),
}

/// A connection between the proxies that carries several of the application's, one after the other: a record of no
/// length begins one, and another one ends each of its directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pooled {
    /// The end of this direction has been sent, and received.
    sent_end: bool,
    received_end: bool,
}

pub(crate) struct Link {
    /// Towards the application; `None`: not connected yet, or idle.
    plain: Option<End>,
    /// Towards the other proxy.
    wire: End,
    protection: Protection,
    /// Of the wire: the beginning of a record.
    partial: Vec<u8>,
    /// `None`: it carries one of the application's connections only.
    pooled: Option<Pooled>,
    side: LimitSide,
    pub(crate) destination: SocketAddrV4,
    met_peer: bool,
}

/// What a link needs from its worker.
pub(crate) struct Surroundings<'a> {
    pub(crate) context: &'a Context,
    pub(crate) scratch: &'a mut Scratch,
    /// Called with a new stream on the plaintext side.
    pub(crate) watch: &'a mut dyn FnMut(&TcpStream) -> io::Result<()>,
}

impl Link {
    pub(crate) fn new(
        accepted: TcpStream,
        destination: SocketAddrV4,
        context: &Context,
    ) -> io::Result<Self> {
        let side = context.config.side;
        let (plain, wire) = match side {
            LimitSide::Client => {
                let wire = dial(destination, &context.config)?;
                (Some(End::new(accepted)), End::new(wire))
            }
            LimitSide::Server => (None, End::new(accepted)),
        };
        Ok(Self {
            plain,
            wire,
            protection: protection(&context.tls, destination)?,
            partial: Vec::new(),
            pooled: (side == LimitSide::Client && context.config.pools).then(Pooled::default),
            side,
            destination,
            met_peer: false,
        })
    }

    /// The upstream stream that [`Link::new`] opened, on the client's side.
    pub(crate) fn dialled(&self) -> Option<&TcpStream> {
        (self.side == LimitSide::Client).then_some(&self.wire.stream)
    }

    /// Carries another of the application's connections, after [`State::Idle`].
    pub(crate) fn carry(&mut self, accepted: TcpStream) -> io::Result<()> {
        self.plain = Some(End::new(accepted));
        self.pooled = Some(Pooled::default());
        let Protection::Records(records) = &mut self.protection else {
            return Err(io::Error::other("an idle connection is not protected"));
        };
        // In one packet with the first bytes, which are usually there when the connection is.
        self.wire.queue(&records.marker()?);
        Ok(())
    }

    /// Moves all bytes that can be moved now, after an event on one side.
    pub(crate) fn pump(&mut self, side: Side, around: &mut Surroundings<'_>) -> State {
        match (side, &mut self.plain) {
            (Side::Plain, Some(plain)) => plain.readable = true,
            (Side::Plain, None) => {}
            (Side::Wire, _) => self.wire.readable = true,
        }
        let was_carrying = self.plain.is_some();
        match self.move_bytes(around) {
            Ok(()) if self.finished() => State::Ended,
            Ok(()) if was_carrying && self.has_carried() => {
                self.plain = None;
                match self.side {
                    LimitSide::Client => State::Idle,
                    LimitSide::Server => State::Open,
                }
            }
            Ok(()) => State::Open,
            Err(_) => {
                // A TLS alert with the reason may be queued.
                let _ = self.wire.flush();
                State::Ended
            }
        }
    }

    fn move_bytes(&mut self, around: &mut Surroundings<'_>) -> io::Result<()> {
        // Room that a flush makes must be used at once: its event will not come again.
        loop {
            let mut moved = self.take_from_plain(around.scratch)?;
            moved |= self.wire.flush()?;
            if let Some(plain) = &mut self.plain {
                moved |= plain.flush()?;
            }
            moved |= self.take_from_wire(around)?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn finished(&self) -> bool {
        let plain_done = self.plain.as_ref().is_none_or(|plain| plain.eof);
        let sent = self.wire.is_flushed() && self.plain.as_ref().is_none_or(End::is_flushed);
        self.wire.eof && plain_done && sent
    }

    /// Both directions of the application's connection have ended, and nothing of it is left.
    fn has_carried(&self) -> bool {
        let ended = self.pooled.is_some_and(|p| p.sent_end && p.received_end);
        ended && self.plain.as_ref().is_some_and(End::is_flushed)
    }

    fn take_from_wire(&mut self, around: &mut Surroundings<'_>) -> io::Result<bool> {
        match &self.protection {
            Protection::Handshake(_) => self.shake_hands(around),
            Protection::Records(_) => self.open_records(around),
            Protection::None => {
                let met = !self.met_peer;
                if met {
                    self.met_peer = true;
                    self.reach_application(around)?;
                }
                match &mut self.plain {
                    Some(plain) if self.wire.readable && !self.wire.eof && plain.has_room() => {
                        copy(&mut self.wire, plain, &mut around.scratch.bytes).map(|did| did || met)
                    }
                    _ => Ok(met),
                }
            }
        }
    }

    /// Goes on with the handshake. After it, the records are this proxy's own.
    fn shake_hands(&mut self, around: &mut Surroundings<'_>) -> io::Result<bool> {
        let Protection::Handshake(tls) = &mut self.protection else {
            return Ok(false);
        };
        let mut moved = false;
        if self.wire.readable && !self.wire.eof {
            // No more than fits behind the beginning of a record.
            let buffer = &mut around.scratch.bytes[..RECORD];
            match self.wire.read(buffer)? {
                None => {}
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(length) => {
                    self.partial.extend_from_slice(&buffer[..length]);
                    moved = true;
                }
            }
        }
        let fed = feed(tls, &mut self.partial);
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out)?;
            moved = true;
        }
        if fed.is_ok() && !tls.is_handshaking() {
            self.begin_records(&mut out, around)?;
            moved = true;
        }
        self.wire.write(&out)?;
        fed.map(|()| moved)
    }

    /// The peer is known, and connected to the application on the server's side.
    fn begin_records(
        &mut self,
        out: &mut Vec<u8>,
        around: &mut Surroundings<'_>,
    ) -> io::Result<()> {
        let Protection::Handshake(tls) = std::mem::replace(&mut self.protection, Protection::None)
        else {
            return Ok(());
        };
        if let Tls::Server { peer_prefix, .. } = &around.context.tls {
            check_peer(&tls, peer_prefix, &self.wire.stream)?;
        }
        let secrets = tls.dangerous_extract_secrets().map_err(io::Error::other)?;
        let mut records = Records::new(&secrets)?;
        if self.pooled.is_some() {
            out.extend(records.marker()?);
        }
        self.protection = Protection::Records(Box::new(records));
        self.reach_application(around)
    }

    /// On the server's side: a connection to the application.
    fn reach_application(&mut self, around: &mut Surroundings<'_>) -> io::Result<()> {
        if self.side == LimitSide::Server {
            let stream = dial(self.destination, &around.context.config)?;
            (around.watch)(&stream)?;
            self.plain = Some(End::new(stream));
        }
        Ok(())
    }

    fn open_records(&mut self, around: &mut Surroundings<'_>) -> io::Result<bool> {
        if !self.plain.as_ref().is_none_or(End::has_room) {
            return Ok(false);
        }
        let kept = self.partial.len();
        let (mut total, mut ended) = (kept, false);
        if self.wire.readable && !self.wire.eof {
            match self.wire.read(&mut around.scratch.bytes[kept..])? {
                Some(0) => {
                    self.end_plain();
                    ended = true;
                }
                read => total += read.unwrap_or(0),
            }
        }
        if total == kept && record::complete(&self.partial)?.is_none() {
            return Ok(ended);
        }
        around.scratch.bytes[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        let mut at = 0;
        while let Some(length) = record::complete(&around.scratch.bytes[at..total])? {
            self.open_record(at..at + length, around)?;
            at += length;
        }
        self.deliver(around.scratch)?;
        self.partial
            .extend_from_slice(&around.scratch.bytes[at..total]);
        Ok(true)
    }

    fn open_record(&mut self, at: Range<usize>, around: &mut Surroundings<'_>) -> io::Result<()> {
        let Protection::Records(records) = &mut self.protection else {
            return Ok(());
        };
        let begin = at.start;
        match records.open(&mut around.scratch.bytes[at])? {
            Content::Data(plain) => {
                let plain = begin + plain.start..begin + plain.end;
                around.scratch.plain.push(plain);
            }
            Content::Marker => {
                self.deliver(around.scratch)?;
                self.marked(around)?;
            }
            Content::Close => {
                self.wire.eof = true;
                self.deliver(around.scratch)?;
                self.end_plain();
            }
            Content::Ignored => {}
        }
        Ok(())
    }

    /// A record of no length: one of the application's connections begins or ends.
    fn marked(&mut self, around: &mut Surroundings<'_>) -> io::Result<()> {
        match &mut self.pooled {
            // The first one begins what the handshake has begun already.
            None => self.pooled = Some(Pooled::default()),
            Some(pooled) if !pooled.received_end => {
                pooled.received_end = true;
                self.end_plain();
            }
            Some(pooled) => {
                *pooled = Pooled::default();
                self.reach_application(around)?;
            }
        }
        Ok(())
    }

    fn end_plain(&mut self) {
        if let Some(plain) = &mut self.plain {
            plain.ends = true;
        }
    }

    /// Passes on what was opened.
    fn deliver(&mut self, scratch: &mut Scratch) -> io::Result<()> {
        /// As many as a system call takes.
        const PARTS: usize = 1024;
        if let Some(plain) = &mut self.plain {
            for ranges in scratch.plain.chunks(PARTS) {
                let parts = ranges
                    .iter()
                    .map(|r| IoSlice::new(&scratch.bytes[r.clone()]));
                plain.write_vectored(&parts.collect::<Vec<_>>())?;
            }
        }
        scratch.plain.clear();
        Ok(())
    }

    fn take_from_plain(&mut self, scratch: &mut Scratch) -> io::Result<bool> {
        let Some(plain) = &mut self.plain else {
            return Ok(false);
        };
        if !plain.readable || plain.eof || !self.wire.has_room() {
            return Ok(false);
        }
        match &mut self.protection {
            Protection::None => copy(plain, &mut self.wire, &mut scratch.bytes),
            Protection::Handshake(_) => Ok(false),
            Protection::Records(records) => {
                let Some(length) = read_plain(plain, scratch)? else {
                    return Ok(false);
                };
                match (length, &mut self.pooled) {
                    (0, Some(pooled)) => {
                        pooled.sent_end = true;
                        self.wire.write(&records.marker()?)?;
                    }
                    (0, None) => self.wire.write(&records.close()?)?,
                    (length, _) => {
                        let sealed = seal_all(records, &mut scratch.bytes, length)?;
                        self.wire.write(&scratch.bytes[..sealed])?;
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Reads into the places of several records' plaintext.
fn read_plain(plain: &mut End, scratch: &mut Scratch) -> io::Result<Option<usize>> {
    let records = scratch.bytes.chunks_exact_mut(RECORD);
    let places = records.map(|record| IoSliceMut::new(&mut record[HEADER..HEADER + MAX_PLAIN]));
    plain.read_vectored(&mut places.collect::<Vec<_>>())
}

/// Makes records of `length` bytes that were read so; they follow each other. Returns their length.
fn seal_all(records: &mut Records, bytes: &mut [u8], length: usize) -> io::Result<usize> {
    let mut sealed = 0;
    let mut left = length;
    while left > 0 {
        let part = left.min(MAX_PLAIN);
        sealed += records.seal(&mut bytes[sealed..], part)?;
        left -= part;
    }
    Ok(sealed)
}

fn protection(tls: &Tls, destination: SocketAddrV4) -> io::Result<Protection> {
    let connection = match tls {
        Tls::Off => return Ok(Protection::None),
        Tls::Client { usual, by_address } => {
            let config = by_address.get(destination.ip()).unwrap_or(usual);
            // A placeholder: the verifier checks the SPIFFE identity.
            let name = ServerName::IpAddress((*destination.ip()).into());
            ClientConnection::new(Arc::clone(config), name).map(Connection::Client)
        }
        Tls::Server { config, .. } => {
            ServerConnection::new(Arc::clone(config)).map(Connection::Server)
        }
    };
    let connection = connection.map_err(io::Error::other)?;
    Ok(Protection::Handshake(Box::new(connection)))
}

/// Gives the library whole records, and none behind the handshake's last.
fn feed(tls: &mut Connection, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut at = 0;
    while tls.is_handshaking()
        && let Some(length) = record::complete(&bytes[at..])?
    {
        let mut record = &bytes[at..at + length];
        while !record.is_empty() {
            tls.read_tls(&mut record)?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
        at += length;
    }
    bytes.drain(..at);
    Ok(())
}

/// Refuses a peer that is not of the mesh.
fn check_peer(tls: &Connection, prefix: &str, wire: &TcpStream) -> io::Result<()> {
    let identity = tls
        .peer_certificates()
        .and_then(<[CertificateDer<'_>]>::first)
        .and_then(spiffe_identity)
        .unwrap_or_default();
    if !identity.starts_with(prefix) {
        return Err(io::Error::other(format!(
            "peer {identity:?} is not in this mesh"
        )));
    }
    if let Ok(SocketAddr::V4(from)) = wire.peer_addr() {
        report_peer(&identity, *from.ip());
    }
    Ok(())
}

/// A line that the evidence reads. Each peer is logged once.
#[expect(clippy::print_stderr, reason = "the proxy's log, read by the evidence")]
fn report_peer(identity: &str, from: Ipv4Addr) {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};
    static SEEN: Mutex<BTreeSet<(String, Ipv4Addr)>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < 16 && seen.insert((identity.to_owned(), from)) {
        eprintln!("peer {identity} from {from}");
    }
}
