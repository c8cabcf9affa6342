//! HTTP/2 (RFC 9113) on one connection, the server's side, and gRPC within it.
//!
//! A request that is complete is answered at once and leaves no trace, if the peer's windows
//! hold its answer; otherwise its body goes out frame by frame, in turn with others.

mod answer;
mod request;
mod stream;

use std::collections::VecDeque;

use meshtax_http2::frame::{
    self, DEFAULT_FRAME_BYTES, DEFAULT_WINDOW_BYTES, FrameHeader, MAX_WINDOW_BYTES, code, flag,
    kind, setting,
};
use meshtax_http2::hpack::encode_literal;
use meshtax_http2::reader::{FrameReader, Piece};

pub(crate) use answer::Answers;
use answer::{
    INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, UNIMPLEMENTED, block, grpc_failure, json_block,
};
use request::{Heads, Kind, Request};
use stream::{Phase, Sending, Source, Stream, Streams};

use crate::connection::Context;
use crate::http1::MAX_UNSENT_BYTES;
use crate::link::Link;
use crate::request::Route;
use crate::stats::Echo;

/// Streams that a peer may have open at once.
const MAX_STREAMS: usize = 1000;

/// What may be on its way to this server, on a stream and in all, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Bodies are appended to what is not sent yet up to this, in bytes.
const FILL_BYTES: usize = 64 * 1024;

/// The longest message of gRPC that is echoed, as in gRPC's own libraries; and what all of a
/// connection may hold at once. In bytes, their prefixes included.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024 + 5;
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// What ends the connection: a code for GOAWAY.
type Fault = u32;

/// One connection's streams.
#[derive(Debug)]
pub(crate) struct Http2 {
    reader: FrameReader,
    session: Session,
    /// What was read and not looked at, while the peer does not take its answers.
    pending: Vec<u8>,
    stalled: bool,
}

#[derive(Debug)]
struct Session {
    heads: Heads,
    streams: Streams,
    /// Streams with a body to send, in turn. Some may be gone.
    ready: VecDeque<u32>,
    last_stream: u32,
    /// The peer's first SETTINGS came.
    settled: bool,
    /// What the peer lets be sent in all, and at first on a new stream, in bytes.
    send_window: i64,
    first_window: i64,
    /// What the peer may still send in all, in bytes.
    receive_window: u32,
    /// Bytes of messages that are to be echoed.
    held_bytes: usize,
}

impl Http2 {
    /// Behind the client's preface.
    pub(crate) fn new(link: &mut Link) -> Self {
        let out = link.out();
        let values = [
            (setting::MAX_CONCURRENT_STREAMS, MAX_STREAMS as u32),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
        ];
        frame::settings(out, &values);
        frame::window_update(out, 0, CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
        Self {
            reader: FrameReader::new(DEFAULT_FRAME_BYTES),
            session: Session {
                heads: Heads::new(),
                streams: Streams::default(),
                ready: VecDeque::new(),
                last_stream: 0,
                settled: false,
                send_window: i64::from(DEFAULT_WINDOW_BYTES),
                first_window: i64::from(DEFAULT_WINDOW_BYTES),
                receive_window: CONNECTION_WINDOW_BYTES,
                held_bytes: 0,
            },
            pending: Vec::new(),
            stalled: false,
        }
    }

    /// There is more to do as soon as what was written is sent.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled || self.session.can_fill()
    }

    /// Answers wait, and need nothing of the peer.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |stream: &Stream| matches!(stream.phase, Phase::Waiting(_));
        self.session.streams.iter().any(waits)
    }

    /// All that was before is sent: goes on. False if there was nothing to do.
    pub(crate) fn resume(&mut self, context: &mut Context<'_>, link: &mut Link) -> bool {
        let had_more = self.is_stalled();
        if self.stalled {
            self.stalled = false;
            self.take(context, link, &[]);
        } else {
            self.session.fill(context, link);
        }
        had_more
    }

    /// A stream's answer is due.
    pub(crate) fn fire(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        id: u32,
        failed: bool,
    ) {
        let session = &mut self.session;
        // It may have been cancelled meanwhile.
        let phase = session.streams.get(id).map(|stream| &stream.phase);
        let Some(Phase::Waiting(waits)) = phase else {
            return;
        };
        let fails = context.waited(waits, failed);
        if let Some(stream) = session.streams.remove(id) {
            session.answer(context, link, stream, fails);
        }
        session.fill(context, link);
    }

    /// Takes bytes that were read just now.
    pub(crate) fn take(&mut self, context: &mut Context<'_>, link: &mut Link, bytes: &[u8]) {
        if self.pending.is_empty() {
            let used = self.process(context, link, bytes);
            self.pending.extend_from_slice(&bytes[used..]);
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let used = self.process(context, link, &pending);
        pending.drain(..used);
        self.pending = pending;
    }

    /// Acts on every frame; returns how many bytes were used.
    fn process(&mut self, context: &mut Context<'_>, link: &mut Link, bytes: &[u8]) -> usize {
        let mut input = bytes;
        let mut read_ns = context.work.read_ns();
        loop {
            if link.unsent() > MAX_UNSENT_BYTES {
                // A failure shows again at the next flush.
                let _ = link.flush(&context.server.content);
                if link.has_unsent() {
                    self.stalled = true;
                    return bytes.len() - input.len();
                }
            }
            let outcome = match self.reader.next(&mut input) {
                Ok(None) => break,
                Ok(Some(piece)) => self.session.piece(context, link, &piece, &mut read_ns),
                Err(error) => Err(error.code()),
            };
            if let Err(fault) = outcome {
                self.session.end(link, fault);
                return bytes.len();
            }
        }
        self.session.fill(context, link);
        bytes.len()
    }
}

impl Session {
    /// Ends the connection for a fault of the peer's.
    fn end(&mut self, link: &mut Link, fault: Fault) {
        frame::goaway(link.out(), self.last_stream, fault);
        link.closing = true;
        link.lingers = true;
        self.streams.clear();
        self.ready.clear();
    }

    /// Ends a stream for a fault of the peer's.
    fn reset(&mut self, link: &mut Link, id: u32, code: u32) {
        self.forget(id);
        frame::rst_stream(link.out(), id, code);
    }

    fn forget(&mut self, id: u32) {
        if let Some(stream) = self.streams.remove(id) {
            self.held_bytes -= stream.held_bytes;
        }
    }

    fn piece(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        piece: &Piece<'_>,
        read_ns: &mut u64,
    ) -> Result<(), Fault> {
        let (header, payload) = match *piece {
            Piece::Data { ref header, .. } if !self.settled => (header, &[][..]),
            Piece::Frame {
                ref header,
                payload,
            } => (header, payload),
            Piece::Data {
                header,
                bytes,
                first,
                last,
            } => {
                if first {
                    self.charge(link, header.length)?;
                }
                let part = Part {
                    header,
                    bytes,
                    first,
                    last,
                };
                return self.data(context, link, &part, read_ns);
            }
        };
        // The peer's preface goes on with SETTINGS (RFC 9113, section 3.4).
        if !self.settled && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(code::PROTOCOL_ERROR);
        }
        match header.kind {
            kind::HEADERS => self.headers(context, link, header, payload, read_ns),
            kind::SETTINGS => self.settings(link, header, payload),
            kind::WINDOW_UPDATE => self.window_update(link, header.stream, payload),
            kind::RST_STREAM if header.stream > self.last_stream => Err(code::PROTOCOL_ERROR),
            kind::RST_STREAM => {
                self.forget(header.stream);
                Ok(())
            }
            kind::PING if !header.has(flag::ACK) => {
                let mut same = [0; 8];
                same.copy_from_slice(payload);
                frame::ping_ack(link.out(), same);
                Ok(())
            }
            // Clients do not push.
            kind::PUSH_PROMISE => Err(code::PROTOCOL_ERROR),
            // After GOAWAY the peer still wants its answers, and closes itself.
            _ => Ok(()),
        }
    }

    fn settings(
        &mut self,
        link: &mut Link,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Result<(), Fault> {
        if header.has(flag::ACK) {
            return Ok(());
        }
        self.settled = true;
        for (parameter, value) in frame::settings_values(payload).map_err(|e| e.code())? {
            match parameter {
                setting::ENABLE_PUSH if value > 1 => return Err(code::PROTOCOL_ERROR),
                setting::MAX_FRAME_SIZE if !(DEFAULT_FRAME_BYTES..1 << 24).contains(&value) => {
                    return Err(code::PROTOCOL_ERROR);
                }
                setting::INITIAL_WINDOW_SIZE if value > MAX_WINDOW_BYTES => {
                    return Err(code::FLOW_CONTROL_ERROR);
                }
                setting::INITIAL_WINDOW_SIZE => self.first_window(i64::from(value))?,
                // Frames and blocks written here suit any peer, and need no table.
                _ => {}
            }
        }
        frame::settings_ack(link.out());
        Ok(())
    }

    /// A change holds for the streams there are, too (RFC 9113, section 6.9.2).
    fn first_window(&mut self, bytes: i64) -> Result<(), Fault> {
        let by = bytes - self.first_window;
        self.first_window = bytes;
        for stream in self.streams.iter_mut() {
            stream.send_window += by;
            if stream.send_window > i64::from(MAX_WINDOW_BYTES) {
                return Err(code::FLOW_CONTROL_ERROR);
            }
            queue(&mut self.ready, stream);
        }
        Ok(())
    }

    fn window_update(&mut self, link: &mut Link, id: u32, payload: &[u8]) -> Result<(), Fault> {
        let by = i64::from(frame::first_31_bits(payload));
        if id == 0 {
            self.send_window += by;
            return match self.send_window {
                _ if by == 0 => Err(code::PROTOCOL_ERROR),
                window if window > i64::from(MAX_WINDOW_BYTES) => Err(code::FLOW_CONTROL_ERROR),
                _ => Ok(()),
            };
        }
        if id > self.last_stream {
            return Err(code::PROTOCOL_ERROR);
        }
        let Some(stream) = self.streams.get(id) else {
            return Ok(());
        };
        stream.send_window += by;
        if by == 0 {
            self.reset(link, id, code::PROTOCOL_ERROR);
        } else if stream.send_window > i64::from(MAX_WINDOW_BYTES) {
            self.reset(link, id, code::FLOW_CONTROL_ERROR);
        } else {
            queue(&mut self.ready, stream);
        }
        Ok(())
    }

    fn headers(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        header: &FrameHeader,
        block: &[u8],
        read_ns: &mut u64,
    ) -> Result<(), Fault> {
        let (id, ends) = (header.stream, header.has(flag::END_STREAM));
        if id <= self.last_stream {
            return self.trailers(context, link, header, block, read_ns);
        }
        if id.is_multiple_of(2) {
            return Err(code::PROTOCOL_ERROR);
        }
        self.last_stream = id;
        let read = self.heads.read(block);
        let Some(request) = read.map_err(|_| code::COMPRESSION_ERROR)? else {
            self.reset(link, id, code::PROTOCOL_ERROR);
            return Ok(());
        };
        if self.streams.len() >= MAX_STREAMS {
            self.reset(link, id, code::REFUSED_STREAM);
            return Ok(());
        }
        let stream = Stream {
            id,
            request,
            phase: Phase::Receiving,
            send_window: self.first_window,
            receive_window: STREAM_WINDOW_BYTES,
            message: Vec::new(),
            held_bytes: 0,
            overflowed: false,
        };
        if ends {
            self.complete(context, link, stream, read_ns);
            return Ok(());
        }
        if stream.request.expects_continue {
            frame::headers(link.out(), id, &block_of_leave(), false);
        }
        self.streams.insert(stream);
        Ok(())
    }

    /// Headers on a stream that there was already: the end of a request's body.
    fn trailers(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        header: &FrameHeader,
        block: &[u8],
        read_ns: &mut u64,
    ) -> Result<(), Fault> {
        let id = header.stream;
        let skipped = self.heads.skip(block);
        skipped.map_err(|_| code::COMPRESSION_ERROR)?;
        let phase = self.streams.get(id).map(|stream| &stream.phase);
        if !matches!(phase, Some(Phase::Receiving)) {
            self.reset(link, id, code::STREAM_CLOSED);
        } else if !header.has(flag::END_STREAM) {
            self.reset(link, id, code::PROTOCOL_ERROR);
        } else if let Some(stream) = self.streams.remove(id) {
            self.complete(context, link, stream, read_ns);
        }
        Ok(())
    }

    /// Flow control of the connection. The window is made large again before it gets small:
    /// bodies are dropped, so that nothing piles up.
    fn charge(&mut self, link: &mut Link, bytes: u32) -> Result<(), Fault> {
        let left = self.receive_window.checked_sub(bytes);
        self.receive_window = left.ok_or(code::FLOW_CONTROL_ERROR)?;
        if self.receive_window < CONNECTION_WINDOW_BYTES / 2 {
            let by = CONNECTION_WINDOW_BYTES - self.receive_window;
            frame::window_update(link.out(), 0, by);
            self.receive_window = CONNECTION_WINDOW_BYTES;
        }
        Ok(())
    }

    /// Bytes of a request's body.
    fn data(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        part: &Part<'_>,
        read_ns: &mut u64,
    ) -> Result<(), Fault> {
        let (id, length) = (part.header.stream, part.header.length);
        if id > self.last_stream {
            return Err(code::PROTOCOL_ERROR);
        }
        let Some(stream) = self.streams.get(id) else {
            // It was reset, and this was on its way.
            return Ok(());
        };
        if !matches!(stream.phase, Phase::Receiving) {
            self.reset(link, id, code::STREAM_CLOSED);
            return Ok(());
        }
        let ends = part.header.has(flag::END_STREAM);
        if part.first {
            let Some(left) = stream.receive_window.checked_sub(length) else {
                self.reset(link, id, code::FLOW_CONTROL_ERROR);
                return Ok(());
            };
            stream.receive_window = left;
            if left < STREAM_WINDOW_BYTES / 2 && !ends {
                frame::window_update(link.out(), id, STREAM_WINDOW_BYTES - left);
                stream.receive_window = STREAM_WINDOW_BYTES;
            }
        }
        if context.server.grpc_echo && stream.request.kind == Kind::Grpc {
            let fits = stream.message.len() + part.bytes.len() <= MAX_MESSAGE_BYTES
                && self.held_bytes + part.bytes.len() <= MAX_HELD_BYTES;
            if fits && !stream.overflowed {
                stream.message.extend_from_slice(part.bytes);
                stream.held_bytes += part.bytes.len();
                self.held_bytes += part.bytes.len();
            } else {
                self.held_bytes -= std::mem::take(&mut stream.held_bytes);
                stream.message = Vec::new();
                stream.overflowed = true;
            }
        }
        if part.last
            && ends
            && let Some(stream) = self.streams.remove(id)
        {
            self.complete(context, link, stream, read_ns);
        }
        Ok(())
    }

    /// A whole request: it is answered, now or later.
    fn complete(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        mut stream: Stream,
        read_ns: &mut u64,
    ) {
        if stream.request.route != Route::Plain {
            return self.answer(context, link, stream, false);
        }
        let verdict = context.request(None, read_ns);
        let canary = &stream.request.canary;
        match context.before_answer(verdict, None, *read_ns, stream.id, canary) {
            Ok(ready) => self.answer(context, link, stream, ready.fails),
            Err(waits) => {
                stream.phase = Phase::Waiting(waits);
                self.streams.insert(stream);
            }
        }
    }

    fn answer(&mut self, context: &mut Context<'_>, link: &mut Link, stream: Stream, fails: bool) {
        let answers = &context.server.http2;
        match (stream.request.route, stream.request.kind) {
            (Route::Echo, _) => {
                let body = echo(link, &stream.request);
                self.json(link, stream, body);
            }
            (Route::Stats, _) => self.json(link, stream, context.stats()),
            (_, Kind::Grpc) if fails => {
                let block = grpc_failure(UNAVAILABLE, "an error that was asked for");
                self.begin(link, stream, &block, Source::Plain, 0);
            }
            (_, Kind::Grpc) if context.server.grpc_echo => self.echo_message(link, stream),
            (_, of_kind) => {
                let answer = answers.of(of_kind, fails);
                let fits = answer.bytes as i64 <= self.send_window.min(stream.send_window);
                let usual = stream.request.canary.is_empty() && of_kind != Kind::Bodiless;
                if usual && fits && answer.write(link.out(), stream.id) {
                    self.send_window -= answer.bytes as i64;
                    return;
                }
                let source = match of_kind {
                    Kind::Grpc => Source::Grpc,
                    _ => Source::Plain,
                };
                self.begin(link, stream, &answer.block, source, answer.bytes);
            }
        }
    }

    fn json(&mut self, link: &mut Link, stream: Stream, body: Vec<u8>) {
        let (block, bytes) = (json_block(body.len()), body.len() as u64);
        self.begin(link, stream, &block, Source::Own(body), bytes);
    }

    /// The request's own message comes back, as it is.
    fn echo_message(&mut self, link: &mut Link, mut stream: Stream) {
        let message = std::mem::take(&mut stream.message);
        // A byte for compression, four for the length.
        let wrong = match message.split_first_chunk::<5>() {
            _ if stream.overflowed => Some((RESOURCE_EXHAUSTED, "the message is too long to echo")),
            None => Some((INTERNAL, "there is no whole message")),
            Some(([1..=255, ..], _)) => Some((UNIMPLEMENTED, "the message is compressed")),
            Some(([_, a, b, c, d], rest)) => {
                let length = u32::from_be_bytes([*a, *b, *c, *d]);
                let one = rest.len() == length as usize;
                (!one).then_some((INTERNAL, "there is not exactly one message"))
            }
        };
        if let Some((code, why)) = wrong {
            return self.begin(link, stream, &grpc_failure(code, why), Source::Plain, 0);
        }
        let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
        let bytes = message.len() as u64;
        self.begin(link, stream, &head, Source::Own(message), bytes);
    }

    /// Writes an answer's headers, and puts its body in line.
    fn begin(
        &mut self,
        link: &mut Link,
        mut stream: Stream,
        block: &[u8],
        source: Source,
        bytes: u64,
    ) {
        let of_kind = stream.request.kind;
        let left = if of_kind == Kind::Bodiless { 0 } else { bytes };
        let ends = left == 0;
        match &stream.request.canary {
            canary if canary.is_empty() => frame::headers(link.out(), stream.id, block, ends),
            canary => {
                let mut block = block.to_vec();
                encode_literal(&mut block, crate::CANARY_HEADER.as_bytes(), canary);
                frame::headers(link.out(), stream.id, &block, ends);
            }
        }
        if ends {
            self.held_bytes -= stream.held_bytes;
            return;
        }
        stream.phase = Phase::Sending(Sending {
            source,
            at: 0,
            left,
            has_trailers: of_kind == Kind::Grpc && stream.request.route == Route::Plain,
            queued: false,
        });
        queue(&mut self.ready, &mut stream);
        self.streams.insert(stream);
    }

    fn can_fill(&self) -> bool {
        self.send_window > 0 && !self.ready.is_empty()
    }

    /// Appends frames of bodies, a frame of each in turn, up to what is worth a send.
    fn fill(&mut self, context: &Context<'_>, link: &mut Link) {
        while self.send_window > 0 && link.unsent() < FILL_BYTES {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            let Phase::Sending(sending) = &mut stream.phase else {
                continue;
            };
            sending.queued = false;
            let most = self.send_window.min(stream.send_window);
            let most = most.clamp(0, i64::from(DEFAULT_FRAME_BYTES)) as u64;
            let count = sending.left.min(most);
            if count == 0 {
                continue;
            }
            self.send_window -= count as i64;
            stream.send_window -= count as i64;
            sending.write(context, link.out(), id, count);
            if sending.left > 0 {
                queue(&mut self.ready, stream);
            } else {
                self.forget(id);
            }
        }
    }
}

impl Sending {
    /// A frame of so many bytes; behind the last, what ends the stream.
    fn write(&mut self, context: &Context<'_>, out: &mut Vec<u8>, id: u32, count: u64) {
        let ends = count == self.left;
        frame::data_header(out, id, count as u32, ends && !self.has_trailers);
        let answers = &context.server.http2;
        match &self.source {
            Source::Plain => context.server.content.append(out, self.at, count),
            Source::Grpc => answers.message.append(out, self.at, count),
            Source::Own(body) => {
                let rest = &body[self.at as usize..];
                out.extend_from_slice(&rest[..count as usize]);
            }
        }
        self.at += count;
        self.left -= count;
        if ends && self.has_trailers {
            frame::headers(out, id, &answers.trailers, true);
        }
    }
}

/// Bytes of a DATA frame.
struct Part<'a> {
    header: FrameHeader,
    bytes: &'a [u8],
    first: bool,
    last: bool,
}

/// Gives a stream its place among those that may send, if it may.
fn queue(ready: &mut VecDeque<u32>, stream: &mut Stream) {
    if let Phase::Sending(sending) = &mut stream.phase
        && !sending.queued
        && stream.send_window > 0
    {
        sending.queued = true;
        ready.push_back(stream.id);
    }
}

/// Leave to send a body.
fn block_of_leave() -> Vec<u8> {
    block(&[(":status", "100")])
}

fn echo(link: &Link, request: &Request) -> Vec<u8> {
    let Some(seen) = request.seen.as_deref() else {
        return Vec::new();
    };
    let echo = Echo {
        method: seen.method.clone(),
        path: seen.path.clone(),
        headers: seen.headers.clone(),
        peer: link.peer(),
    };
    serde_json::to_vec(&echo).unwrap_or_default()
}
