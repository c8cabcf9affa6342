//! One connection of the application: its protocol, and when it ends.

use meshtax_http2::frame::PREFACE;
use rustix::io::Errno;

use crate::config::Protocol;
use crate::context::Context;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::link::Link;
use crate::transport::Transport;

/// After a close, so many bytes that the peer still sends are read and discarded: closing with unread
/// bytes would reset the connection, and the last response could be lost.
const MAX_LINGER_BYTES: u64 = 1024 * 1024;

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Close,
}

/// One connection.
pub(crate) struct Connection {
    link: Link,
    handler: Handler,
    /// The peer sends no more.
    ended: bool,
    lingered_bytes: u64,
}

/// The handler of the connection's protocol.
enum Handler {
    /// HTTP of a version still unknown: the input so far, which begins like HTTP/2.
    Http(Vec<u8>),
    Http1(Http1),
    Http2(Box<Http2>),
    /// Sends every byte back.
    Echo,
}

impl Connection {
    pub(crate) fn new(transport: Transport, protocol: Protocol) -> Self {
        Self {
            link: Link::new(transport),
            handler: match protocol {
                Protocol::Http | Protocol::Https => Handler::Http(Vec::new()),
                Protocol::TcpEcho | Protocol::TlsEcho => Handler::Echo,
            },
            ended: false,
            lingered_bytes: 0,
        }
    }

    /// Does all that can be done now: the socket is edge-triggered.
    pub(crate) fn advance(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        hang_up: bool,
    ) -> Next {
        self.link.woken();
        loop {
            if self.link.flush(&context.responses.content).is_err() {
                return Next::Close;
            }
            if self.link.has_unsent() || self.waits_unread() {
                // The peer does not read: it is not read from either, until it does.
                return Next::Stay;
            }
            if self.resume(context) {
                continue;
            }
            if self.ended {
                if self.waits() {
                    return Next::Stay;
                }
                self.link.farewell();
                return Next::Close;
            }
            let (count, drained) = match self.link.read(buffer, hang_up) {
                Ok((0, _)) => {
                    self.ended = true;
                    continue;
                }
                Ok(read) => read,
                Err(Errno::AGAIN) if self.link.closing && !self.link.lingers => return Next::Close,
                Err(Errno::AGAIN) => return Next::Stay,
                Err(Errno::INTR) => continue,
                Err(_) => return Next::Close,
            };
            if self.link.closing {
                self.lingered_bytes += count as u64;
                if self.lingered_bytes > MAX_LINGER_BYTES {
                    return Next::Close;
                }
                continue;
            }
            self.take(context, &buffer[..count]);
            if self.link.flush(&context.responses.content).is_err() {
                return Next::Close;
            }
            let idle = !self.link.closing && !self.link.has_unsent() && !self.is_stalled();
            if drained && !hang_up && idle {
                // A short read emptied the socket; the next byte causes a new event.
                return Next::Stay;
            }
        }
    }

    /// A deferred response is due; `failed`: a call that it waited for failed. To be followed by
    /// [`Connection::advance`].
    pub(crate) fn fire(&mut self, context: &mut Context<'_>, stream: u32, failed: bool) {
        match &mut self.handler {
            Handler::Http1(http1) => http1.fire(context, &mut self.link, failed),
            Handler::Http2(http2) => http2.fire(context, &mut self.link, stream, failed),
            Handler::Http(_) | Handler::Echo => {}
        }
    }

    fn take(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        match &mut self.handler {
            Handler::Http1(http1) => http1.take(context, &mut self.link, bytes),
            Handler::Http2(http2) => http2.take(context, &mut self.link, bytes),
            Handler::Echo => self.link.send_now(bytes),
            Handler::Http(input) => {
                let input = std::mem::take(input);
                self.begin(context, input, bytes);
            }
        }
    }

    /// The first bytes distinguish the versions: only HTTP/2 begins with its preface (RFC 9113,
    /// section 3.4).
    fn begin(&mut self, context: &mut Context<'_>, mut input: Vec<u8>, bytes: &[u8]) {
        let first = if input.is_empty() {
            bytes
        } else {
            input.extend_from_slice(bytes);
            &input
        };
        if let Some(rest) = first.strip_prefix(PREFACE) {
            let mut http2 = Box::new(Http2::new(&mut self.link));
            http2.take(context, &mut self.link, rest);
            self.handler = Handler::Http2(http2);
        } else if PREFACE.starts_with(first) {
            self.handler = Handler::Http(first.to_vec());
        } else {
            let mut http1 = Http1::default();
            http1.take(context, &mut self.link, first);
            self.handler = Handler::Http1(http1);
        }
    }

    /// Continues after the output was flushed; false if there was nothing to do.
    fn resume(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.handler {
            Handler::Http1(http1) => http1.resume(context, &mut self.link),
            Handler::Http2(http2) => http2.resume(context, &mut self.link),
            Handler::Http(_) | Handler::Echo => false,
        }
    }

    fn is_stalled(&self) -> bool {
        match &self.handler {
            Handler::Http1(http1) => http1.is_stalled(),
            Handler::Http2(http2) => http2.is_stalled(),
            Handler::Http(_) | Handler::Echo => false,
        }
    }

    /// A response is deferred, and nothing is read before it is sent.
    fn waits_unread(&self) -> bool {
        matches!(&self.handler, Handler::Http1(http1) if http1.is_waiting())
    }

    /// Responses are deferred that the peer may still want.
    fn waits(&self) -> bool {
        matches!(&self.handler, Handler::Http2(http2) if http2.is_waiting())
    }
}
