//! HTTP/1.1 on one connection: bytes in, answers out, in order.

use crate::answer;
use crate::connection::{Context, Waits};
use crate::link::Link;
use crate::request::{self, Body, Head, Refusal, Route};
use crate::stats::Echo;

/// Unsent answers beyond this stop the reading of further requests, in bytes.
pub(crate) const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// One connection's requests.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    /// Bytes of a request that is not complete: heads and chunk sizes, never bodies.
    pending: Vec<u8>,
    /// A request whose body is not complete.
    head: Option<Head>,
    /// Complete requests may be waiting in `pending` until what is before them is sent.
    stalled: bool,
    /// An answer that waits. Nothing is read meanwhile.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    head: Head,
    waits: Waits,
}

impl Http1 {
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// All that was before them is sent: goes on with the requests that are there already.
    pub(crate) fn resume(&mut self, context: &mut Context<'_>, link: &mut Link) -> bool {
        if !self.stalled {
            return false;
        }
        self.stalled = false;
        self.take(context, link, &[]);
        true
    }

    /// The answer that waits is due.
    pub(crate) fn fire(&mut self, context: &mut Context<'_>, link: &mut Link, failed: bool) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let fails = context.waited(&waiting.waits, failed);
        let last = self.pending.is_empty();
        let answers = &context.server.http1;
        answers.plain(link, &waiting.head, fails, last);
        link.closing = !waiting.head.keep_alive;
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

    /// Answers every complete request; returns how many bytes were used.
    fn process(&mut self, context: &mut Context<'_>, link: &mut Link, bytes: &[u8]) -> usize {
        let mut read_ns = context.work.read_ns();
        let mut at = 0;
        while !link.closing {
            if link.unsent() > MAX_UNSENT_BYTES || link.is_streaming() {
                // A failure shows again at the next flush.
                let _ = link.flush(&context.server.content);
                if link.has_unsent() {
                    self.stalled = true;
                    return at;
                }
            }
            let step = match self.head.take() {
                None => self.begin(link, &bytes[at..]),
                Some(head) => self.go_on(head, &bytes[at..]),
            };
            let (used, complete) = match step {
                Ok(step) => step,
                Err(refusal) => {
                    link.out().extend_from_slice(answer::refusal(refusal));
                    link.closing = true;
                    link.lingers = true;
                    return bytes.len();
                }
            };
            at += used;
            if let Some(head) = complete {
                self.respond(context, link, head, &mut read_ns, at == bytes.len());
                if self.is_waiting() {
                    self.stalled = true;
                    return at;
                }
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
    fn begin(&mut self, link: &mut Link, bytes: &[u8]) -> Result<(usize, Option<Head>), Refusal> {
        let Some((head, used)) = request::parse_head(bytes)? else {
            return Ok((0, None));
        };
        if head.body == Body::Length(0) {
            return Ok((used, Some(head)));
        }
        if head.expects_continue && used == bytes.len() {
            link.out().extend_from_slice(answer::CONTINUE);
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

    /// Answers a request. `last`: there is no other one behind it.
    fn respond(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        head: Head,
        read_ns: &mut u64,
        last: bool,
    ) {
        match head.route {
            Route::Plain => {
                let verdict = context.request(head.page, read_ns);
                match context.before_answer(verdict, head.page, *read_ns, 0, &head.canary) {
                    Ok(ready) => {
                        let answers = &context.server.http1;
                        answers.plain(link, &head, ready.fails, last);
                    }
                    Err(waits) => {
                        self.waiting = Some(Waiting { head, waits });
                        return;
                    }
                }
            }
            Route::Echo if asks_for_failure(&head) => {
                context.counters().failed_as_asked();
                let answers = &context.server.http1;
                answers.plain(link, &head, true, last);
            }
            Route::Echo => {
                let body = echo(link, &head);
                answer::write_json(link.out(), &head, &body);
            }
            Route::Stats => {
                let body = context.stats();
                answer::write_json(link.out(), &head, &body);
            }
        }
        link.closing = !head.keep_alive;
    }
}

fn asks_for_failure(head: &Head) -> bool {
    let is_it = |(name, _): &(String, String)| name.eq_ignore_ascii_case(crate::FAIL_HEADER);
    head.seen
        .as_deref()
        .is_some_and(|seen| seen.headers.iter().any(is_it))
}

fn echo(link: &Link, head: &Head) -> Vec<u8> {
    let Some(seen) = head.seen.as_deref() else {
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
