//! HTTP/2 on a connection (RFC 9113), and gRPC over it: several requests at a time.

use meshtax_http2::frame::{self, FrameHeader, code, flag, kind, setting};
use meshtax_http2::hpack::{Decoder, encode_literal};
use meshtax_http2::reader::{FrameReader, Piece};

use super::event::{Event, Failure, ResponseStatus, WireError};
use crate::spec::{LoadSpec, Protocol, Request};

/// What we let the peer send before it hears from us again, per stream and in all: a generator
/// must never be the one that holds a response back.
const WINDOW_BYTES: u32 = 1 << 30;

/// What a connection begins with, both ways (RFC 9113, section 6.9.2).
const FIRST_WINDOW_BYTES: i64 = 65_535;

/// Requests at a time until the peer has said how many it takes (RFC 9113, section 6.5.2, advises
/// no fewer).
const FIRST_STREAMS: u32 = 100;

/// The longest payload we take and send (the protocol's default).
const MAX_FRAME_BYTES: u32 = 16_384;

/// The table that we let the peer's header compression use (the protocol's default).
const HEADER_TABLE_BYTES: usize = 4096;

/// What we owe a peer at most that asks for responses (PING, SETTINGS) and does not read them.
const MAX_OWED_BYTES: usize = 256 * 1024;

/// The last number of a stream: then a connection is used up.
const LAST_STREAM: u32 = (1 << 31) - 1;

/// A request's header block and body, ready to be sent.
#[derive(Debug)]
pub(crate) struct Http2Request {
    block: Vec<u8>,
    body: Vec<u8>,
    is_grpc: bool,
}

impl Http2Request {
    pub(crate) fn new(request: &Request, spec: &LoadSpec) -> Self {
        let is_grpc = matches!(spec.protocol, Protocol::Grpc { .. });
        let scheme = if spec.tls.is_some() { "https" } else { "http" };
        let method = if is_grpc { "POST" } else { &request.method };
        let mut block = Vec::new();
        let mut add = |name: &str, value: &str| {
            encode_literal(&mut block, name.as_bytes(), value.as_bytes());
        };
        add(":method", method);
        add(":scheme", scheme);
        add(":authority", &request.host);
        add(":path", &request.path);
        if is_grpc {
            add("content-type", "application/grpc");
            add("te", "trailers");
        } else if !request.body.is_empty() {
            add("content-length", &request.body.len().to_string());
        }
        for (name, value) in &request.headers {
            let name = name.to_ascii_lowercase();
            // What speaks of the connection is not HTTP/2's (RFC 9113, section 8.2.2).
            let of_connection = ["connection", "keep-alive", "proxy-connection", "upgrade"];
            if !of_connection.contains(&name.as_str()) {
                add(&name, value);
            }
        }
        let body = if is_grpc {
            grpc_message(&request.body)
        } else {
            request.body.clone()
        };
        Self {
            block,
            body,
            is_grpc,
        }
    }
}

/// A length-prefixed message: not compressed, its length, itself (gRPC over HTTP/2).
fn grpc_message(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    // A spec's body is below 4 GiB.
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// A request under way, or none.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// 0: none.
    id: u32,
    request: u32,
    status: u16,
    grpc_status: Option<u16>,
    is_grpc: bool,
    begun: bool,
    /// Bytes of its body, and how many of them are sent.
    length: usize,
    sent: usize,
    /// What the peer lets us send on it.
    window: i64,
    /// What it sent us since we last gave it room.
    unacknowledged: u32,
}

/// A connection's state.
#[derive(Debug)]
pub(crate) struct Http2 {
    streams: Vec<Stream>,
    reader: FrameReader,
    decoder: Decoder,
    next_id: u32,
    peer_streams: u32,
    peer_first_window: i64,
    /// What the peer lets us send in all.
    window: i64,
    unacknowledged: u32,
    /// The peer takes no further requests.
    leaving: bool,
    /// Streams whose body waits for room.
    blocked: u32,
    /// Responses of the protocol itself since all that was written was taken by the socket.
    owed_bytes: usize,
}

impl Http2 {
    pub(crate) fn new(streams: u32) -> Self {
        Self {
            streams: vec![Stream::default(); streams as usize],
            reader: FrameReader::new(MAX_FRAME_BYTES),
            decoder: Decoder::new(HEADER_TABLE_BYTES),
            next_id: 1,
            peer_streams: FIRST_STREAMS,
            peer_first_window: FIRST_WINDOW_BYTES,
            window: FIRST_WINDOW_BYTES,
            unacknowledged: 0,
            leaving: false,
            blocked: 0,
            owed_bytes: 0,
        }
    }

    pub(crate) fn open(&mut self, out: &mut Vec<u8>) {
        *self = Self::new(self.streams.len() as u32);
        out.extend_from_slice(frame::PREFACE);
        frame::settings(
            out,
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            ],
        );
        frame::window_update(out, 0, WINDOW_BYTES - FIRST_WINDOW_BYTES as u32);
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.peer_streams.min(self.streams.len() as u32)
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.leaving && self.next_id < LAST_STREAM
    }

    pub(crate) fn start(
        &mut self,
        request: &Http2Request,
        number: u32,
        slot: u32,
        out: &mut Vec<u8>,
    ) {
        let id = self.next_id;
        self.next_id += 2;
        self.streams[slot as usize] = Stream {
            id,
            request: number,
            is_grpc: request.is_grpc,
            length: request.body.len(),
            window: self.peer_first_window,
            ..Stream::default()
        };
        frame::headers(out, id, &request.block, request.body.is_empty());
        if !request.body.is_empty() {
            self.send_body(request, slot, out);
            self.blocked += u32::from(self.streams[slot as usize].sent < request.body.len());
        }
    }

    /// Sends as much of a body as there is room for.
    fn send_body(&mut self, request: &Http2Request, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot as usize];
        while stream.sent < request.body.len() {
            let room = stream
                .window
                .min(self.window)
                .min(i64::from(MAX_FRAME_BYTES));
            if room <= 0 {
                return;
            }
            let rest = &request.body[stream.sent..];
            let piece = &rest[..rest.len().min(room as usize)];
            stream.sent += piece.len();
            stream.window -= piece.len() as i64;
            self.window -= piece.len() as i64;
            frame::data(out, stream.id, piece, stream.sent == request.body.len());
        }
    }

    /// The peer gave room: what waited for it goes on.
    fn unblock(&mut self, all: &[Http2Request], out: &mut Vec<u8>) {
        if self.blocked == 0 {
            return;
        }
        let mut blocked = 0;
        for slot in 0..self.streams.len() as u32 {
            let stream = self.streams[slot as usize];
            if stream.id == 0 {
                continue;
            }
            let request = &all[stream.request as usize];
            if stream.sent < request.body.len() {
                self.send_body(request, slot, out);
                let sent = self.streams[slot as usize].sent;
                blocked += u32::from(sent < request.body.len());
            }
        }
        self.blocked = blocked;
    }

    pub(crate) fn give_up(&mut self, slot: u32, out: &mut Vec<u8>) {
        let stream = &mut self.streams[slot as usize];
        frame::rst_stream(out, stream.id, code::CANCEL);
        *stream = Stream::default();
    }

    pub(crate) fn feed(
        &mut self,
        all: &[Http2Request],
        input: &[u8],
        events: &mut Vec<Event>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        if out.is_empty() {
            self.owed_bytes = 0;
        }
        let mut rest = input;
        // Taken out, so that a frame may lie in its buffer while the rest of the state changes.
        let mut reader = std::mem::replace(&mut self.reader, FrameReader::new(MAX_FRAME_BYTES));
        let result = loop {
            match reader.next(&mut rest) {
                Ok(None) => break Ok(()),
                Ok(Some(piece)) => {
                    if let Err(error) = self.piece(all, &piece, events, out) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error.into()),
            }
        };
        self.reader = reader;
        result
    }

    fn piece(
        &mut self,
        all: &[Http2Request],
        piece: &Piece<'_>,
        events: &mut Vec<Event>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        match *piece {
            Piece::Data {
                header,
                bytes: _,
                first,
                last,
            } => {
                if first {
                    self.count_received(&header, out);
                }
                if last && header.has(flag::END_STREAM) {
                    self.ended(header.stream, events, out);
                }
                Ok(())
            }
            Piece::Frame { header, payload } => match header.kind {
                kind::HEADERS => self.headers(&header, payload, events, out),
                kind::SETTINGS => self.settings(all, &header, payload, out),
                kind::PING if !header.has(flag::ACK) => {
                    let opaque = payload
                        .try_into()
                        .map_err(|_| WireError::Http2("a PING is not of eight bytes"))?;
                    frame::ping_ack(out, opaque);
                    self.owe(frame::HEADER_BYTES + opaque.len())
                }
                kind::WINDOW_UPDATE => self.room(all, header.stream, payload, out),
                kind::RST_STREAM => {
                    self.reset(header.stream, events);
                    Ok(())
                }
                kind::GOAWAY => self.going_away(payload, events),
                kind::PUSH_PROMISE => Err(WireError::Http2("the peer pushes, which was refused")),
                _ => Ok(()),
            },
        }
    }

    fn slot_of(&self, id: u32) -> Option<usize> {
        (id != 0)
            .then(|| self.streams.iter().position(|s| s.id == id))
            .flatten()
    }

    /// A DATA frame takes from the windows, whatever becomes of its stream.
    fn count_received(&mut self, header: &FrameHeader, out: &mut Vec<u8>) {
        self.unacknowledged += header.length;
        if self.unacknowledged >= WINDOW_BYTES / 2 {
            frame::window_update(out, 0, self.unacknowledged);
            self.unacknowledged = 0;
        }
        if let Some(slot) = self.slot_of(header.stream) {
            let stream = &mut self.streams[slot];
            stream.unacknowledged += header.length;
            if stream.unacknowledged >= WINDOW_BYTES / 2 {
                frame::window_update(out, stream.id, stream.unacknowledged);
                stream.unacknowledged = 0;
            }
        }
    }

    fn headers(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let block = frame::strip_padding(header, payload)?;
        let slot = self.slot_of(header.stream);
        let (mut status, mut grpc_status) = (None, None);
        // Decoded also for a stream that is gone: the table belongs to the connection.
        self.decoder.decode(block, &mut |name, value| match name {
            b":status" => status = number(value),
            b"grpc-status" => grpc_status = number(value),
            _ => {}
        })?;
        let Some(slot) = slot else {
            return Ok(());
        };
        let stream = &mut self.streams[slot];
        if !stream.begun {
            stream.begun = true;
            events.push(Event::FirstByte { slot: slot as u32 });
        }
        stream.status = status.unwrap_or(stream.status);
        stream.grpc_status = grpc_status.or(stream.grpc_status);
        if header.has(flag::END_STREAM) {
            self.ended(header.stream, events, out);
        }
        Ok(())
    }

    /// A response is complete; it may come before our body is sent.
    fn ended(&mut self, id: u32, events: &mut Vec<Event>, out: &mut Vec<u8>) {
        let Some(slot) = self.slot_of(id) else {
            return;
        };
        let stream = std::mem::take(&mut self.streams[slot]);
        if stream.sent < stream.length {
            // Whatever of the body waits is not wanted any more (RFC 9113, section 8.1).
            frame::rst_stream(out, id, code::NO_ERROR);
        }
        let slot = slot as u32;
        let lacks_grpc_status = stream.is_grpc && stream.grpc_status.is_none();
        // Without a response's head, or as an interim response alone, that was no response.
        if stream.status < 200 || (lacks_grpc_status && stream.status == 200) {
            events.push(Event::Failed {
                slot,
                failure: Failure::Protocol,
            });
            return;
        }
        events.push(Event::Response {
            slot,
            status: ResponseStatus {
                http: stream.status,
                // Over plain HTTP/2 it is a trailer like any other.
                grpc: stream.grpc_status.filter(|_| stream.is_grpc),
            },
        });
    }

    fn reset(&mut self, id: u32, events: &mut Vec<Event>) {
        if let Some(slot) = self.slot_of(id) {
            self.streams[slot] = Stream::default();
            events.push(Event::Failed {
                slot: slot as u32,
                failure: Failure::Reset,
            });
        }
    }

    fn settings(
        &mut self,
        all: &[Http2Request],
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        if header.has(flag::ACK) {
            return Ok(());
        }
        for (name, value) in frame::settings_values(payload)? {
            match name {
                setting::MAX_CONCURRENT_STREAMS => self.peer_streams = value,
                setting::INITIAL_WINDOW_SIZE => {
                    // It changes what open streams may send, too (RFC 9113, section 6.9.2).
                    let change = i64::from(value) - self.peer_first_window;
                    self.peer_first_window = i64::from(value);
                    for stream in self.streams.iter_mut().filter(|s| s.id != 0) {
                        stream.window += change;
                    }
                }
                _ => {}
            }
        }
        frame::settings_ack(out);
        self.unblock(all, out);
        self.owe(frame::HEADER_BYTES)
    }

    /// One more response that the peer asked for.
    fn owe(&mut self, bytes: usize) -> Result<(), WireError> {
        self.owed_bytes += bytes;
        if self.owed_bytes > MAX_OWED_BYTES {
            return Err(WireError::Http2(
                "the peer asks and does not read the answers",
            ));
        }
        Ok(())
    }

    fn room(
        &mut self,
        all: &[Http2Request],
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let bytes: [u8; 4] = payload
            .try_into()
            .map_err(|_| WireError::Http2("a WINDOW_UPDATE is not of four bytes"))?;
        let more = i64::from(u32::from_be_bytes(bytes) & LAST_STREAM);
        if id == 0 {
            self.window += more;
        } else if let Some(slot) = self.slot_of(id) {
            self.streams[slot].window += more;
        }
        self.unblock(all, out);
        Ok(())
    }

    /// The peer goes: what it has not looked at has failed, the rest is still answered.
    fn going_away(&mut self, payload: &[u8], events: &mut Vec<Event>) -> Result<(), WireError> {
        let last: [u8; 4] = payload
            .get(..4)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(WireError::Http2("a GOAWAY is shorter than its stream"))?;
        let last = u32::from_be_bytes(last) & LAST_STREAM;
        self.leaving = true;
        let lost: Vec<u32> = self
            .streams
            .iter()
            .map(|s| s.id)
            .filter(|id| *id > last)
            .collect();
        for id in lost {
            self.reset(id, events);
        }
        Ok(())
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
