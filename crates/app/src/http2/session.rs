//! The frames of a connection: settings, flow control, and requests as they arrive.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use meshtax_http2::frame::{
    self, DEFAULT_FRAME_BYTES, DEFAULT_WINDOW_BYTES, FrameHeader, MAX_WINDOW_BYTES, code, flag,
    kind, setting,
};
use meshtax_http2::reader::Piece;

use super::request::{RequestDecoder, ResponseKind};
use super::response::continue_block;
use super::stream::{Phase, RecentResets, Stream, Streams};
use crate::context::Context;
use crate::link::Link;
use crate::route::Route;

/// SETTINGS_MAX_CONCURRENT_STREAMS.
const MAX_STREAMS: usize = 1000;

/// Receive windows of a stream and of the connection, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// The longest gRPC message that is echoed, as in gRPC's own libraries, and the limit for all
/// messages that a connection buffers. In bytes, with their prefixes.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024 + 5;
const MAX_HELD_BYTES: usize = 64 * 1024 * 1024;

/// A connection error: one of [`code`], for GOAWAY.
pub(super) type ErrorCode = u32;

/// The state of an HTTP/2 connection above its frames.
#[derive(Debug)]
pub(super) struct Session {
    decoder: RequestDecoder,
    pub(super) streams: Streams,
    /// Streams with a body to send, in turn. Some may be closed by now.
    pub(super) ready: VecDeque<u32>,
    last_stream: u32,
    /// The stream ids that the peer has skipped last: they can no longer be used
    /// (RFC 9113, section 5.1.1).
    skipped: RangeInclusive<u32>,
    resets: RecentResets,
    /// The peer's first SETTINGS have arrived.
    settled: bool,
    /// Bytes that may be sent on the connection, and at first on a new stream.
    pub(super) send_window: i64,
    initial_send_window: i64,
    /// Bytes that the peer may still send on the connection.
    receive_window: u32,
    /// Bytes of buffered gRPC messages.
    pub(super) held_bytes: usize,
}

/// Some bytes of a DATA frame.
struct DataPiece<'a> {
    header: FrameHeader,
    bytes: &'a [u8],
    first: bool,
    last: bool,
}

impl Session {
    /// Writes this end's preface.
    pub(super) fn new(out: &mut Vec<u8>) -> Self {
        let values = [
            (setting::MAX_CONCURRENT_STREAMS, MAX_STREAMS as u32),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
        ];
        frame::settings(out, &values);
        frame::window_update(out, 0, CONNECTION_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
        Self {
            decoder: RequestDecoder::new(),
            streams: Streams::default(),
            ready: VecDeque::new(),
            last_stream: 0,
            skipped: 0..=0,
            resets: RecentResets::default(),
            settled: false,
            send_window: i64::from(DEFAULT_WINDOW_BYTES),
            initial_send_window: i64::from(DEFAULT_WINDOW_BYTES),
            receive_window: CONNECTION_WINDOW_BYTES,
            held_bytes: 0,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        let waits = |stream: &Stream| matches!(stream.phase, Phase::Waiting(_));
        self.streams.iter().any(waits)
    }

    /// Ends the connection because of a connection error.
    pub(super) fn end(&mut self, link: &mut Link, code: ErrorCode) {
        frame::goaway(link.out(), self.last_stream, code);
        link.closing = true;
        link.lingers = true;
        self.streams.clear();
        self.ready.clear();
    }

    /// Ends a stream because of a stream error.
    fn reset(&mut self, link: &mut Link, id: u32, code: u32) {
        self.forget(id);
        self.resets.add(id);
        frame::rst_stream(link.out(), id, code);
    }

    pub(super) fn forget(&mut self, id: u32) {
        if let Some(stream) = self.streams.remove(id) {
            self.held_bytes -= stream.held_bytes;
        }
    }

    /// Processes a frame, or a part of a DATA frame.
    pub(super) fn piece(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        piece: &Piece<'_>,
        read_ns: &mut u64,
    ) -> Result<(), ErrorCode> {
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
                let piece = DataPiece {
                    header,
                    bytes,
                    first,
                    last,
                };
                return self.data(context, link, &piece, read_ns);
            }
        };
        // The client's preface ends with SETTINGS (RFC 9113, section 3.4).
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
            // A stream cannot depend on itself (RFC 7540, section 5.3.1). The stream may be idle,
            // so that it cannot be reset.
            kind::PRIORITY if frame::first_31_bits(payload) == header.stream => {
                Err(code::PROTOCOL_ERROR)
            }
            // Clients do not push.
            kind::PUSH_PROMISE => Err(code::PROTOCOL_ERROR),
            // After GOAWAY the peer still expects its responses, and closes the connection itself.
            _ => Ok(()),
        }
    }

    fn settings(
        &mut self,
        link: &mut Link,
        header: &FrameHeader,
        payload: &[u8],
    ) -> Result<(), ErrorCode> {
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
                setting::INITIAL_WINDOW_SIZE => self.initial_window_size(i64::from(value))?,
                // The frames and header blocks of this server suit any peer, and use no table.
                _ => {}
            }
        }
        frame::settings_ack(link.out());
        Ok(())
    }

    /// A change also applies to open streams (RFC 9113, section 6.9.2).
    fn initial_window_size(&mut self, bytes: i64) -> Result<(), ErrorCode> {
        let by = bytes - self.initial_send_window;
        self.initial_send_window = bytes;
        for stream in self.streams.iter_mut() {
            stream.send_window += by;
            if stream.send_window > i64::from(MAX_WINDOW_BYTES) {
                return Err(code::FLOW_CONTROL_ERROR);
            }
            queue(&mut self.ready, stream);
        }
        Ok(())
    }

    fn window_update(&mut self, link: &mut Link, id: u32, payload: &[u8]) -> Result<(), ErrorCode> {
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
    ) -> Result<(), ErrorCode> {
        let (id, ends) = (header.stream, header.has(flag::END_STREAM));
        if id.is_multiple_of(2) {
            return Err(code::PROTOCOL_ERROR);
        }
        if id <= self.last_stream {
            return self.trailers(context, link, header, block, read_ns);
        }
        if id > self.last_stream + 2 {
            self.skipped = self.last_stream + 1..=id - 1;
        }
        self.last_stream = id;
        let decoded = self.decoder.request(block);
        let decoded = decoded.map_err(|_| code::COMPRESSION_ERROR)?;
        let Some(request) = decoded else {
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
            send_window: self.initial_send_window,
            receive_window: STREAM_WINDOW_BYTES,
            received_bytes: 0,
            message: Vec::new(),
            held_bytes: 0,
            overflowed: false,
        };
        if ends {
            self.request_ended(context, link, stream, read_ns);
            return Ok(());
        }
        if stream.request.expects_continue {
            frame::headers(link.out(), id, &continue_block(), false);
        }
        self.streams.insert(stream);
        Ok(())
    }

    /// HEADERS on a stream that was opened before: the end of a request's body.
    fn trailers(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        header: &FrameHeader,
        block: &[u8],
        read_ns: &mut u64,
    ) -> Result<(), ErrorCode> {
        let id = header.stream;
        let decoded = self.decoder.trailers(block);
        let well_formed = decoded.map_err(|_| code::COMPRESSION_ERROR)?;
        match self.streams.get(id).map(|stream| &stream.phase) {
            // They were sent before the peer could know that the stream is closed.
            None if self.resets.contains(id) => {}
            None if self.skipped.contains(&id) => return Err(code::PROTOCOL_ERROR),
            None => return Err(code::STREAM_CLOSED),
            Some(Phase::Waiting(_) | Phase::Sending(_)) => {
                self.reset(link, id, code::STREAM_CLOSED);
            }
            Some(Phase::Receiving) if !well_formed || !header.has(flag::END_STREAM) => {
                self.reset(link, id, code::PROTOCOL_ERROR);
            }
            Some(Phase::Receiving) => {
                if let Some(stream) = self.streams.remove(id) {
                    self.request_ended(context, link, stream, read_ns);
                }
            }
        }
        Ok(())
    }

    /// Flow control of the connection. The window is enlarged well before it is used up: bodies are
    /// discarded, so that nothing accumulates.
    fn charge(&mut self, link: &mut Link, bytes: u32) -> Result<(), ErrorCode> {
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
        piece: &DataPiece<'_>,
        read_ns: &mut u64,
    ) -> Result<(), ErrorCode> {
        let (id, length) = (piece.header.stream, piece.header.length);
        if id > self.last_stream {
            return Err(code::PROTOCOL_ERROR);
        }
        let Some(stream) = self.streams.get(id) else {
            // On a stream that this end has reset, it was sent before the peer could know.
            if !self.resets.contains(id) {
                self.reset(link, id, code::STREAM_CLOSED);
            }
            return Ok(());
        };
        if !matches!(stream.phase, Phase::Receiving) {
            self.reset(link, id, code::STREAM_CLOSED);
            return Ok(());
        }
        let ends = piece.header.has(flag::END_STREAM);
        if piece.first {
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
        stream.received_bytes += piece.bytes.len() as u64;
        if !stream.matches_content_length(false) {
            self.reset(link, id, code::PROTOCOL_ERROR);
            return Ok(());
        }
        if context.responses.grpc_echo && stream.request.kind == ResponseKind::Grpc {
            let fits = stream.message.len() + piece.bytes.len() <= MAX_MESSAGE_BYTES
                && self.held_bytes + piece.bytes.len() <= MAX_HELD_BYTES;
            if fits && !stream.overflowed {
                stream.message.extend_from_slice(piece.bytes);
                stream.held_bytes += piece.bytes.len();
                self.held_bytes += piece.bytes.len();
            } else {
                self.held_bytes -= std::mem::take(&mut stream.held_bytes);
                stream.message = Vec::new();
                stream.overflowed = true;
            }
        }
        if piece.last
            && ends
            && let Some(stream) = self.streams.remove(id)
        {
            self.request_ended(context, link, stream, read_ns);
        }
        Ok(())
    }

    /// The peer has ended a request, which is not among the streams now: it is responded to, at once
    /// or later.
    fn request_ended(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        mut stream: Stream,
        read_ns: &mut u64,
    ) {
        if !stream.matches_content_length(true) {
            self.held_bytes -= stream.held_bytes;
            return self.reset(link, stream.id, code::PROTOCOL_ERROR);
        }
        if stream.request.route != Route::Plain {
            return self.respond(context, link, stream, false);
        }
        let decision = context.request(None, read_ns);
        let canary = &stream.request.canary;
        match context.before_response(decision, None, *read_ns, stream.id, canary) {
            Ok(ready) => self.respond(context, link, stream, ready.fails),
            Err(deferred) => {
                stream.phase = Phase::Waiting(deferred);
                self.streams.insert(stream);
            }
        }
    }

    /// A deferred response is due.
    pub(super) fn fire(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        id: u32,
        failed: bool,
    ) {
        // It may have been cancelled meanwhile.
        let phase = self.streams.get(id).map(|stream| &stream.phase);
        let Some(Phase::Waiting(deferred)) = phase else {
            return;
        };
        let fails = context.waited(deferred, failed);
        if let Some(stream) = self.streams.remove(id) {
            self.respond(context, link, stream, fails);
        }
        self.fill(context, link);
    }
}

/// Queues a stream to send, if it may and is not queued yet.
pub(super) fn queue(ready: &mut VecDeque<u32>, stream: &mut Stream) {
    if let Phase::Sending(sending) = &mut stream.phase
        && !sending.queued
        && stream.send_window > 0
    {
        sending.queued = true;
        ready.push_back(stream.id);
    }
}
