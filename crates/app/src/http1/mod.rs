//! The server side of an HTTP/1.1 connection: bytes in, responses out, in order.

pub(crate) mod request;
pub(crate) mod response;

use crate::context::{Context, Deferred};
use crate::link::{Link, MAX_UNSENT_BYTES};
use crate::route::Route;
use request::{Body, Refusal, RequestHead};

/// The HTTP/1.1 side of one connection.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    /// Bytes of an incomplete head or chunk size; never of a body.
    pending: Vec<u8>,
    /// A request whose body is incomplete.
    head: Option<RequestHead>,
    /// Complete requests may be in `pending` until the output is flushed.
    stalled: bool,
    /// A deferred response. Nothing is read meanwhile.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    head: RequestHead,
    deferred: Deferred,
}

impl Http1 {
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Continues after the output was flushed. False if there was nothing to do.
    pub(crate) fn resume(&mut self, context: &mut Context<'_>, link: &mut Link) -> bool {
        if !self.stalled {
            return false;
        }
        self.stalled = false;
        self.take(context, link, &[]);
        true
    }

    /// The deferred response is due.
    pub(crate) fn fire(&mut self, context: &mut Context<'_>, link: &mut Link, failed: bool) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let fails = context.waited(&waiting.deferred, failed);
        let last = self.pending.is_empty();
        let responses = &context.responses.http1;
        responses.plain(link, &waiting.head, fails, last);
        link.closing = !waiting.head.keep_alive;
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

    /// Responds to every complete request; returns how many bytes were used.
    fn process(&mut self, context: &mut Context<'_>, link: &mut Link, bytes: &[u8]) -> usize {
        let mut read_ns = context.work.read_ns();
        let mut at = 0;
        while !link.closing {
            if link.unsent() > MAX_UNSENT_BYTES || link.is_streaming() {
                // An error occurs again at the next flush, and is handled there.
                let _ = link.flush(&context.responses.content);
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
                    link.out().extend_from_slice(response::refusal(refusal));
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
    fn begin(
        &mut self,
        link: &mut Link,
        bytes: &[u8],
    ) -> Result<(usize, Option<RequestHead>), Refusal> {
        let Some((head, used)) = request::parse_head(bytes)? else {
            return Ok((0, None));
        };
        if head.body == Body::Length(0) {
            return Ok((used, Some(head)));
        }
        if head.expects_continue && used == bytes.len() {
            link.out().extend_from_slice(response::CONTINUE);
        }
        self.head = Some(head);
        Ok((used, None))
    }

    /// Within a request's body.
    fn go_on(
        &mut self,
        mut head: RequestHead,
        bytes: &[u8],
    ) -> Result<(usize, Option<RequestHead>), Refusal> {
        let (used, left) = request::skip_body(head.body, bytes)?;
        let Some(left) = left else {
            return Ok((used, Some(head)));
        };
        head.body = left;
        self.head = Some(head);
        Ok((used, None))
    }

    /// Responds to a request. `last`: no other request follows in the input.
    fn respond(
        &mut self,
        context: &mut Context<'_>,
        link: &mut Link,
        head: RequestHead,
        read_ns: &mut u64,
        last: bool,
    ) {
        match head.route {
            Route::Plain => {
                let decision = context.request(head.page, read_ns);
                match context.before_response(decision, head.page, *read_ns, 0, &head.canary) {
                    Ok(ready) => {
                        let responses = &context.responses.http1;
                        responses.plain(link, &head, ready.fails, last);
                    }
                    Err(deferred) => {
                        self.waiting = Some(Waiting { head, deferred });
                        return;
                    }
                }
            }
            Route::Echo if requests_failure(&head) => {
                context.counters().failed_on_request();
                let responses = &context.responses.http1;
                responses.plain(link, &head, true, last);
            }
            Route::Echo => {
                let received = head.received.as_deref();
                let body = received.map_or(Vec::new(), |received| received.to_json(link.peer()));
                response::write_json(link.out(), &head, &body);
            }
            Route::Stats => {
                let body = context.stats();
                response::write_json(link.out(), &head, &body);
            }
        }
        link.closing = !head.keep_alive;
    }
}

fn requests_failure(head: &RequestHead) -> bool {
    let is_it = |(name, _): &(String, String)| name.eq_ignore_ascii_case(crate::FAIL_HEADER);
    head.received
        .as_deref()
        .is_some_and(|received| received.headers.iter().any(is_it))
}
