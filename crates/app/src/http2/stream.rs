//! The streams of a connection whose responses are not complete.

use super::request::Request;
use crate::context::Deferred;

/// A request, from its headers to the end of its response.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) request: Request,
    pub(super) phase: Phase,
    /// Bytes that may be sent on it; negative after the peer has lowered its initial window size
    /// (RFC 9113, section 6.9.2).
    pub(super) send_window: i64,
    /// Bytes that may still be received on it.
    pub(super) receive_window: u32,
    /// Bytes of its body received so far, without padding.
    pub(super) received_bytes: u64,
    /// The body, if gRPC echoes it.
    pub(super) message: Vec<u8>,
    /// Its share of the connection's buffered bytes, given back when the stream ends.
    pub(super) held_bytes: usize,
    /// The body was longer than the limit for buffered messages.
    pub(super) overflowed: bool,
}

impl Stream {
    /// Whether the body so far can be, or is, as long as its `content-length` declares.
    pub(super) fn matches_content_length(&self, is_complete: bool) -> bool {
        match self.request.content_length {
            None => true,
            Some(declared) if is_complete => self.received_bytes == declared,
            Some(declared) => self.received_bytes <= declared,
        }
    }
}

/// The state of a request.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its body is being received.
    Receiving,
    /// Its response waits for a timer or for calls to other services.
    Waiting(Deferred),
    /// Its response's body is being sent.
    Sending(Sending),
}

/// The unsent rest of a response's body.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) source: BodySource,
    pub(super) at: u64,
    pub(super) left: u64,
    /// Trailers follow the body and end the stream.
    pub(super) has_trailers: bool,
    /// The stream is in the queue of those that may send.
    pub(super) queued: bool,
}

/// What a response's body is made of.
#[derive(Debug)]
pub(super) enum BodySource {
    /// The server's content.
    Plain,
    /// The server's gRPC message.
    Grpc,
    /// Bytes of this response alone.
    Own(Vec<u8>),
}

/// The open streams of a connection, in ascending order of their ids.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.position(id).ok()?;
        Some(&mut self.all[at])
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.position(id).ok()?;
        Some(self.all.remove(at))
    }

    pub(super) fn insert(&mut self, stream: Stream) {
        match self.position(stream.id) {
            Ok(at) => self.all[at] = stream,
            Err(at) => self.all.insert(at, stream),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    fn position(&self, id: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&id, |stream| stream.id)
    }
}

/// The streams that this end has reset last: the peer may have sent frames on them before it knew.
#[derive(Debug, Default)]
pub(super) struct RecentResets {
    ids: [u32; Self::KEPT],
    next: usize,
}

impl RecentResets {
    const KEPT: usize = 32;

    pub(super) fn add(&mut self, id: u32) {
        self.ids[self.next] = id;
        self.next = (self.next + 1) % Self::KEPT;
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }
}
