//! The server side of an HTTP/2 connection (RFC 9113), with gRPC on top.
//!
//! A complete request is responded to at once and leaves no state behind if the peer's windows have
//! room for the response. Otherwise the body is sent frame by frame, round-robin with other streams.

mod request;
mod respond;
pub(crate) mod response;
mod session;
mod stream;

use meshtax_http2::frame::DEFAULT_FRAME_BYTES;
use meshtax_http2::reader::FrameReader;

use crate::context::Context;
use crate::link::{Link, MAX_UNSENT_BYTES};
use session::Session;

/// The HTTP/2 side of one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    reader: FrameReader,
    session: Session,
    /// Bytes that were read but not processed, while the peer does not read its responses.
    pending: Vec<u8>,
    stalled: bool,
}

impl Http2 {
    /// For a connection whose client preface has been read.
    pub(crate) fn new(link: &mut Link) -> Self {
        Self {
            reader: FrameReader::new(DEFAULT_FRAME_BYTES),
            session: Session::new(link.out()),
            pending: Vec::new(),
            stalled: false,
        }
    }

    /// There is more to do as soon as the output is flushed.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled || self.session.can_fill()
    }

    /// Responses are waiting that need nothing from the peer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.session.is_waiting()
    }

    /// Continues after the output was flushed. False if there was nothing to do.
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

    /// The response of a stream is due.
    pub(crate) fn fire(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        id: u32,
        failed: bool,
    ) {
        self.session.fire(context, link, id, failed);
    }

    /// Takes bytes that were just read.
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

    /// Processes every frame; returns how many bytes were used.
    fn process(&mut self, context: &mut Context<'_>, link: &mut Link, bytes: &[u8]) -> usize {
        let mut input = bytes;
        let mut read_ns = context.work.read_ns();
        loop {
            if link.unsent() > MAX_UNSENT_BYTES {
                // An error occurs again at the next flush, and is handled there.
                let _ = link.flush(&context.responses.content);
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
            if let Err(code) = outcome {
                self.session.end(link, code);
                return bytes.len();
            }
        }
        self.session.fill(context, link);
        bytes.len()
    }
}
