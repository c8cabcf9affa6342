//! The streams of a connection that are not answered yet.

use super::request::Request;
use crate::connection::Waits;

/// A request, from its headers to the end of its answer.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) request: Request,
    pub(super) phase: Phase,
    /// What may be sent on it, in bytes; below zero after a change of the peer's settings
    /// (RFC 9113, section 6.9.2).
    pub(super) send_window: i64,
    /// What may still be received on it, in bytes.
    pub(super) receive_window: u32,
    /// The body, if gRPC echoes it.
    pub(super) message: Vec<u8>,
    /// What the connection counts for it, in bytes; given back when it ends.
    pub(super) held_bytes: usize,
    /// The body was longer than is kept.
    pub(super) overflowed: bool,
}

/// How far a request is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Its body is on its way.
    Receiving,
    /// Its answer waits.
    Waiting(Waits),
    /// Its answer's body is on its way.
    Sending(Sending),
}

/// The rest of a body.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) source: Source,
    pub(super) at: u64,
    pub(super) left: u64,
    /// A block of headers ends the stream, not the body.
    pub(super) has_trailers: bool,
    /// The stream has its place among those that may send.
    pub(super) queued: bool,
}

/// What a body is made of.
#[derive(Debug)]
pub(super) enum Source {
    /// The server's content.
    Plain,
    /// The content of gRPC.
    Grpc,
    /// Bytes of its own.
    Own(Vec<u8>),
}

/// All streams of a connection, by ascending numbers.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let at = self.place(id).ok()?;
        Some(&mut self.all[at])
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.place(id).ok()?;
        Some(self.all.remove(at))
    }

    pub(super) fn insert(&mut self, stream: Stream) {
        match self.place(stream.id) {
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

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&id, |stream| stream.id)
    }
}
