//! One connection of the application: which protocol it speaks, and when it ends.

use meshtax_http2::frame::PREFACE;
use rustix::io::Errno;

use crate::calls::{Calls, Owner, Progress};
use crate::config::Protocol;
use crate::content::Content;
use crate::http1::Http1;
use crate::http2::Http2;
use crate::link::Link;
use crate::stats::Counters;
use crate::timers::{Timer, Timers};
use crate::transport::Transport;
use crate::work::{Verdict, Work, now_ns};
use crate::{answer, http2};

/// After a close, so much of what the peer still sends is read and dropped: closing with
/// unread bytes would reset the connection and could take the last answer with it.
const MAX_LINGER_BYTES: u64 = 1024 * 1024;

/// What all threads answer.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) content: Content,
    pub(crate) http1: answer::Answers,
    pub(crate) http2: http2::Answers,
    pub(crate) grpc_echo: bool,
}

/// What all connections of a thread share.
pub(crate) struct Context<'a> {
    pub(crate) server: &'a Server,
    pub(crate) all_counters: &'a [Counters],
    /// This thread's place in the counters.
    pub(crate) thread: usize,
    pub(crate) work: Work,
    pub(crate) timers: Timers,
    /// `None`: no other service is called.
    pub(crate) calls: Option<Calls>,
    /// Whose turn it is.
    pub(crate) connection: u64,
}

impl Context<'_> {
    pub(crate) fn counters(&self) -> &Counters {
        &self.all_counters[self.thread]
    }

    /// See [`Work::request`].
    pub(crate) fn request(&mut self, page: Option<usize>, read_ns: &mut u64) -> Verdict {
        let counters = &self.all_counters[self.thread];
        self.work.request(counters, page, read_ns)
    }

    /// Does what can be done now of all that comes before an answer. `Err`: it waits for the rest.
    pub(crate) fn before_answer(
        &mut self,
        verdict: Verdict,
        page: Option<usize>,
        read_ns: u64,
        stream: u32,
        canary: &[u8],
    ) -> Result<Ready, Waits> {
        let owner = Owner {
            connection: self.connection,
            stream,
        };
        let fails = verdict.fails;
        let wait = verdict.not_before_ns.map(|at_ns| (read_ns, at_ns));
        match (&mut self.calls, wait) {
            (Some(calls), wait) if !fails => {
                let counters = &self.all_counters[self.thread];
                match calls.begin(&mut self.timers, counters, (owner, page), wait, canary) {
                    Progress::Done(fails) => Ok(Ready { fails }),
                    Progress::Waits => Err(Waits {
                        fails,
                        since_ns: None,
                    }),
                }
            }
            (_, None) => Ok(Ready { fails }),
            (_, Some((since_ns, at_ns))) => {
                self.timers.add(Timer {
                    at_ns,
                    connection: owner.connection,
                    stream,
                });
                Err(Waits {
                    fails,
                    since_ns: Some(since_ns),
                })
            }
        }
    }

    /// An answer has waited for all that it waits for; says whether it is an error.
    pub(crate) fn waited(&self, waits: &Waits, failed: bool) -> bool {
        if let Some(since_ns) = waits.since_ns {
            self.counters().delay(now_ns() - since_ns);
        }
        waits.fails || failed
    }

    /// What was done so far, JSON.
    pub(crate) fn stats(&self) -> Vec<u8> {
        let stats = Counters::sum(self.all_counters, self.work.delay_ns());
        serde_json::to_vec(&stats).unwrap_or_default()
    }
}

/// An answer that may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// It is an error.
    pub(crate) fails: bool,
}

/// An answer that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// It will be an error in any case.
    fails: bool,
    /// Its wait is one that is counted, and began then.
    since_ns: Option<u64>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Close,
}

/// One connection.
pub(crate) struct Connection {
    link: Link,
    speaks: Speaks,
    /// The peer sends no more, and answers still wait.
    ended: bool,
    lingered_bytes: u64,
}

/// The protocol, as far as it is known.
enum Speaks {
    /// HTTP of some version; what was read so far begins like HTTP/2.
    Http(Vec<u8>),
    Http1(Http1),
    Http2(Box<Http2>),
    /// Every byte comes back.
    Echo,
}

impl Connection {
    pub(crate) fn new(transport: Transport, protocol: Protocol) -> Self {
        Self {
            link: Link::new(transport),
            speaks: match protocol {
                Protocol::Http | Protocol::Https => Speaks::Http(Vec::new()),
                Protocol::TcpEcho | Protocol::TlsEcho => Speaks::Echo,
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
            if self.link.flush(&context.server.content).is_err() {
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
            if self.link.flush(&context.server.content).is_err() {
                return Next::Close;
            }
            let idle = !self.link.closing && !self.link.has_unsent() && !self.is_stalled();
            if drained && !hang_up && idle {
                // A short read emptied the socket; the next byte makes a new event.
                return Next::Stay;
            }
        }
    }

    /// An answer that waited is due; `failed`: what it waited for failed. To be followed by [`Connection::advance`].
    pub(crate) fn fire(&mut self, context: &mut Context<'_>, stream: u32, failed: bool) {
        match &mut self.speaks {
            Speaks::Http1(http1) => http1.fire(context, &mut self.link, failed),
            Speaks::Http2(http2) => http2.fire(context, &mut self.link, stream, failed),
            Speaks::Http(_) | Speaks::Echo => {}
        }
    }

    fn take(&mut self, context: &mut Context<'_>, bytes: &[u8]) {
        match &mut self.speaks {
            Speaks::Http1(http1) => http1.take(context, &mut self.link, bytes),
            Speaks::Http2(http2) => http2.take(context, &mut self.link, bytes),
            Speaks::Echo => self.link.send_now(bytes),
            Speaks::Http(seen) => {
                let seen = std::mem::take(seen);
                self.begin(context, seen, bytes);
            }
        }
    }

    /// The first bytes tell the versions apart: HTTP/2 begins with its preface, and nothing
    /// else does (RFC 9113, section 3.4).
    fn begin(&mut self, context: &mut Context<'_>, mut seen: Vec<u8>, bytes: &[u8]) {
        let first = if seen.is_empty() {
            bytes
        } else {
            seen.extend_from_slice(bytes);
            &seen
        };
        if let Some(rest) = first.strip_prefix(PREFACE) {
            let mut http2 = Box::new(Http2::new(&mut self.link));
            http2.take(context, &mut self.link, rest);
            self.speaks = Speaks::Http2(http2);
        } else if PREFACE.starts_with(first) {
            self.speaks = Speaks::Http(first.to_vec());
        } else {
            let mut http1 = Http1::default();
            http1.take(context, &mut self.link, first);
            self.speaks = Speaks::Http1(http1);
        }
    }

    /// Does what was put off until all before it was sent; false if there is no such thing.
    fn resume(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.speaks {
            Speaks::Http1(http1) => http1.resume(context, &mut self.link),
            Speaks::Http2(http2) => http2.resume(context, &mut self.link),
            Speaks::Http(_) | Speaks::Echo => false,
        }
    }

    fn is_stalled(&self) -> bool {
        match &self.speaks {
            Speaks::Http1(http1) => http1.is_stalled(),
            Speaks::Http2(http2) => http2.is_stalled(),
            Speaks::Http(_) | Speaks::Echo => false,
        }
    }

    /// An answer waits, and nothing is read before it is out.
    fn waits_unread(&self) -> bool {
        matches!(&self.speaks, Speaks::Http1(http1) if http1.is_waiting())
    }

    /// Answers wait that the peer may still want.
    fn waits(&self) -> bool {
        matches!(&self.speaks, Speaks::Http2(http2) if http2.is_waiting())
    }
}
