//! One connection of the application: bytes in, answers out, in order.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{self, SendFlags, Shutdown};
use rustix::thread::ClockId;
use rustix::time::clock_gettime;

use crate::answer::{self, Answers};
use crate::request::{self, Body, Head, Refusal, Route};
use crate::stats::{Counters, Echo};

/// Unsent answers beyond this stop the reading of further pipelined requests, in bytes.
const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// After a close, so much of what the peer still sends is read and dropped: closing with
/// unread bytes would reset the connection and could take the last answer with it.
const MAX_LINGER_BYTES: u64 = 1024 * 1024;

/// What all connections of a thread share.
pub(crate) struct Shared<'a> {
    pub(crate) answers: &'a Answers,
    pub(crate) counters: &'a [Counters],
    /// This thread's place in the counters.
    pub(crate) thread: usize,
    pub(crate) delay_ns: u64,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Close,
}

/// One connection.
pub(crate) struct Connection {
    socket: OwnedFd,
    /// Bytes of a request that is not complete: heads and chunk sizes, never bodies.
    pending: Vec<u8>,
    /// Answers that the socket has not taken, from `out_at` on.
    out: Vec<u8>,
    out_at: usize,
    /// A request whose body is not complete.
    head: Option<Head>,
    /// No further request is read; the connection ends once the answers are out.
    closing: bool,
    /// The peer may still be sending what was refused: wait for its end.
    lingers: bool,
    lingered_bytes: u64,
    /// Complete requests may be waiting in `pending` until the peer takes its answers.
    stalled: bool,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            pending: Vec::new(),
            out: Vec::new(),
            out_at: 0,
            head: None,
            closing: false,
            lingers: false,
            lingered_bytes: 0,
            stalled: false,
        }
    }

    /// Does all that can be done now: the socket is edge-triggered.
    pub(crate) fn advance(
        &mut self,
        shared: &Shared<'_>,
        buffer: &mut [u8],
        hang_up: bool,
    ) -> Next {
        loop {
            if self.flush().is_err() {
                return Next::Close;
            }
            if self.has_unsent() {
                // The peer does not read: it is not read from either, until it does.
                return Next::Stay;
            }
            if self.stalled {
                self.stalled = false;
                self.take(shared, &[]);
                continue;
            }
            let count = match io::read(&self.socket, &mut *buffer) {
                Ok(0) => return Next::Close,
                Ok(count) => count,
                Err(Errno::AGAIN) if self.closing && !self.lingers => return Next::Close,
                Err(Errno::AGAIN) => return Next::Stay,
                Err(Errno::INTR) => continue,
                Err(_) => return Next::Close,
            };
            if self.closing {
                self.lingered_bytes += count as u64;
                if self.lingered_bytes > MAX_LINGER_BYTES {
                    return Next::Close;
                }
                continue;
            }
            self.take(shared, &buffer[..count]);
            if self.flush().is_err() {
                return Next::Close;
            }
            let drained = count < buffer.len() && !hang_up;
            if drained && !self.closing && !self.has_unsent() && !self.stalled {
                // A short read emptied the socket; the next byte makes a new event.
                return Next::Stay;
            }
        }
    }

    /// Takes bytes that were read just now.
    fn take(&mut self, shared: &Shared<'_>, bytes: &[u8]) {
        if self.pending.is_empty() {
            let used = self.process(shared, bytes);
            self.pending.extend_from_slice(&bytes[used..]);
            return;
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let used = self.process(shared, &pending);
        pending.drain(..used);
        self.pending = pending;
    }

    /// Answers every complete request; returns how many bytes were used.
    fn process(&mut self, shared: &Shared<'_>, bytes: &[u8]) -> usize {
        let mut read_ns = if shared.delay_ns > 0 { now_ns() } else { 0 };
        let mut at = 0;
        while !self.closing {
            if self.out.len() - self.out_at > MAX_UNSENT_BYTES {
                // A failure shows again at the next flush.
                let _ = self.flush();
                if self.has_unsent() {
                    self.stalled = true;
                    return at;
                }
            }
            let step = match self.head.take() {
                None => self.begin(&bytes[at..]),
                Some(head) => self.go_on(head, &bytes[at..]),
            };
            let (used, complete) = match step {
                Ok(step) => step,
                Err(refusal) => {
                    self.out.extend_from_slice(answer::refusal(refusal));
                    self.closing = true;
                    self.lingers = true;
                    return bytes.len();
                }
            };
            at += used;
            if let Some(head) = complete {
                self.respond(shared, &head, &mut read_ns, at == bytes.len());
            } else if used == 0 || at == bytes.len() {
                return at;
            }
            if at == bytes.len() && self.head.is_none() {
                return at;
            }
        }
        bytes.len()
    }

    /// Between requests: the next head.
    fn begin(&mut self, bytes: &[u8]) -> Result<(usize, Option<Head>), Refusal> {
        let Some((head, used)) = request::parse_head(bytes)? else {
            return Ok((0, None));
        };
        if head.body == Body::Length(0) {
            return Ok((used, Some(head)));
        }
        if head.expects_continue && used == bytes.len() {
            self.out.extend_from_slice(answer::CONTINUE);
        }
        self.head = Some(head);
        Ok((used, None))
    }

    /// Within a request's body.
    fn go_on(&mut self, mut head: Head, bytes: &[u8]) -> Result<(usize, Option<Head>), Refusal> {
        let (used, left) = request::skip_body(head.body, bytes)?;
        let Some(left) = left else {
            return Ok((used, Some(head)));
        };
        head.body = left;
        self.head = Some(head);
        Ok((used, None))
    }

    /// Answers a request. `last`: there is no other one behind it, so that a prebuilt
    /// answer may go straight to the socket.
    fn respond(&mut self, shared: &Shared<'_>, head: &Head, read_ns: &mut u64, last: bool) {
        self.closing = !head.keep_alive;
        let counters = &shared.counters[shared.thread];
        match head.route {
            Route::Plain => {
                counters.request();
                if shared.delay_ns > 0 {
                    let until_ns = *read_ns + shared.delay_ns;
                    let end_ns = spin_until(until_ns);
                    counters.delay(end_ns - *read_ns);
                    *read_ns = end_ns;
                }
                match shared.answers.prebuilt(head) {
                    Some(bytes) if last && !self.has_unsent() => self.send_now(bytes),
                    Some(bytes) => self.out.extend_from_slice(bytes),
                    None => shared.answers.write_plain(&mut self.out, head),
                }
            }
            Route::Echo => {
                let body = self.echo(head);
                answer::write_json(&mut self.out, head, &body);
            }
            Route::Stats => {
                let stats = Counters::sum(shared.counters, shared.delay_ns);
                let body = serde_json::to_vec(&stats).unwrap_or_default();
                answer::write_json(&mut self.out, head, &body);
            }
        }
    }

    fn echo(&self, head: &Head) -> Vec<u8> {
        let Some(seen) = head.seen.as_deref() else {
            return Vec::new();
        };
        let peer = net::getpeername(&self.socket)
            .ok()
            .flatten()
            .and_then(|address| std::net::SocketAddr::try_from(address).ok());
        let echo = Echo {
            method: seen.method.clone(),
            path: seen.path.clone(),
            headers: seen.headers.clone(),
            peer: peer.map_or_else(String::new, |peer| peer.to_string()),
        };
        serde_json::to_vec(&echo).unwrap_or_default()
    }

    /// Sends without a copy; keeps what the socket does not take.
    fn send_now(&mut self, bytes: &[u8]) {
        // Anything but a full buffer shows again, and is acted on, at the next flush.
        let sent = net::send(&self.socket, bytes, SendFlags::NOSIGNAL).unwrap_or(0);
        self.out.extend_from_slice(&bytes[sent..]);
    }

    fn has_unsent(&self) -> bool {
        self.out_at < self.out.len()
    }

    /// Sends what the socket takes; an error means that the connection is gone.
    fn flush(&mut self) -> Result<(), Errno> {
        while self.has_unsent() {
            match net::send(&self.socket, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.out_at += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.out.clear();
        self.out_at = 0;
        if self.lingers && self.lingered_bytes == 0 {
            // Tells the peer that no more comes; the rest of its bytes is dropped.
            let _ = net::shutdown(self.socket.as_fd(), Shutdown::Write);
        }
        Ok(())
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Burns the core until then; returns when it was over.
fn spin_until(until_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= until_ns {
            return now;
        }
        std::hint::spin_loop();
    }
}
