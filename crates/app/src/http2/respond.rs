//! Responses of a connection: at once, or frame by frame as the peer's windows allow.

use meshtax_http2::frame::{self, DEFAULT_FRAME_BYTES};
use meshtax_http2::hpack::encode_literal;

use super::request::ResponseKind;
use super::response::{
    INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE, UNIMPLEMENTED, grpc_block, grpc_failure_block,
    json_block,
};
use super::session::{Session, queue};
use super::stream::{BodySource, Phase, Sending, Stream};
use crate::context::Context;
use crate::link::Link;
use crate::route::Route;

/// Bodies are appended to the unsent output up to this size, in bytes.
const FILL_BYTES: usize = 64 * 1024;

impl Session {
    /// Responds to a complete request, which is not among the streams now.
    pub(super) fn respond(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        stream: Stream,
        fails: bool,
    ) {
        let responses = &context.responses.http2;
        match (stream.request.route, stream.request.kind) {
            (Route::Echo, _) => {
                let received = stream.request.received.as_deref();
                let body = received.map_or(Vec::new(), |received| received.to_json(link.peer()));
                self.json(link, stream, body);
            }
            (Route::Stats, _) => self.json(link, stream, context.stats()),
            (_, ResponseKind::Grpc) if fails => {
                let block = grpc_failure_block(UNAVAILABLE, "an injected error");
                self.begin(link, stream, &block, BodySource::Plain, 0);
            }
            (_, ResponseKind::Grpc) if context.responses.grpc_echo => {
                self.echo_message(link, stream);
            }
            (_, kind) => {
                let response = responses.of(kind, fails);
                let fits = response.bytes as i64 <= self.send_window.min(stream.send_window);
                let usual = stream.request.canary.is_empty() && kind != ResponseKind::HeadersOnly;
                if usual && fits && response.write(link.out(), stream.id) {
                    self.send_window -= response.bytes as i64;
                    return;
                }
                let source = match kind {
                    ResponseKind::Grpc => BodySource::Grpc,
                    _ => BodySource::Plain,
                };
                self.begin(link, stream, &response.block, source, response.bytes);
            }
        }
    }

    fn json(&mut self, link: &mut Link, stream: Stream, body: Vec<u8>) {
        let (block, bytes) = (json_block(body.len()), body.len() as u64);
        self.begin(link, stream, &block, BodySource::Own(body), bytes);
    }

    /// Sends the request's own message back.
    fn echo_message(&mut self, link: &mut Link, mut stream: Stream) {
        let message = std::mem::take(&mut stream.message);
        // The prefix: a byte for compression, four for the length.
        let wrong = match message.split_first_chunk::<5>() {
            _ if stream.overflowed => Some((RESOURCE_EXHAUSTED, "the message is too long to echo")),
            None => Some((INTERNAL, "the message is incomplete")),
            Some(([1..=255, ..], _)) => Some((UNIMPLEMENTED, "the message is compressed")),
            Some(([_, a, b, c, d], rest)) => {
                let length = u32::from_be_bytes([*a, *b, *c, *d]);
                let one = rest.len() == length as usize;
                (!one).then_some((INTERNAL, "a unary call has exactly one message"))
            }
        };
        if let Some((code, why)) = wrong {
            let block = grpc_failure_block(code, why);
            return self.begin(link, stream, &block, BodySource::Plain, 0);
        }
        let bytes = message.len() as u64;
        let source = BodySource::Own(message);
        self.begin(link, stream, &grpc_block(), source, bytes);
    }

    /// Writes a response's headers, and queues its body.
    fn begin(
        &mut self,
        link: &mut Link,
        mut stream: Stream,
        block: &[u8],
        source: BodySource,
        bytes: u64,
    ) {
        let kind = stream.request.kind;
        let left = match kind {
            ResponseKind::HeadersOnly => 0,
            ResponseKind::WithBody | ResponseKind::Grpc => bytes,
        };
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
            has_trailers: kind == ResponseKind::Grpc && stream.request.route == Route::Plain,
            queued: false,
        });
        queue(&mut self.ready, &mut stream);
        self.streams.insert(stream);
    }

    pub(super) fn can_fill(&self) -> bool {
        self.send_window > 0 && !self.ready.is_empty()
    }

    /// Appends frames of bodies, one of each stream in turn, up to [`FILL_BYTES`].
    pub(super) fn fill(&mut self, context: &Context<'_>, link: &mut Link) {
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
    /// Writes a frame of `count` bytes, and behind the last one what ends the stream.
    fn write(&mut self, context: &Context<'_>, out: &mut Vec<u8>, id: u32, count: u64) {
        let ends = count == self.left;
        frame::data_header(out, id, count as u32, ends && !self.has_trailers);
        let responses = &context.responses.http2;
        match &self.source {
            BodySource::Plain => context.responses.content.append(out, self.at, count),
            BodySource::Grpc => responses.message.append(out, self.at, count),
            BodySource::Own(body) => {
                let rest = &body[self.at as usize..];
                out.extend_from_slice(&rest[..count as usize]);
            }
        }
        self.at += count;
        self.left -= count;
        if ends && self.has_trailers {
            frame::headers(out, id, &responses.trailers, true);
        }
    }
}
