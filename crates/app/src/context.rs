//! The state that the connections of a thread share, and what precedes each response.

use crate::calls::{Calls, Progress, RequestId};
use crate::content::Content;
use crate::http1::response::Http1Responses;
use crate::http2::response::Http2Responses;
use crate::stats::Counters;
use crate::timers::{Timer, Timers};
use crate::work::{Decision, Work, now_ns};

/// The prebuilt responses, shared by all threads.
#[derive(Debug)]
pub(crate) struct Responses {
    pub(crate) content: Content,
    pub(crate) http1: Http1Responses,
    pub(crate) http2: Http2Responses,
    /// gRPC calls get their own message back.
    pub(crate) grpc_echo: bool,
}

/// The state that all connections of a thread share.
pub(crate) struct Context<'a> {
    pub(crate) responses: &'a Responses,
    pub(crate) all_counters: &'a [Counters],
    /// The index of this thread's counters.
    pub(crate) thread: usize,
    pub(crate) work: Work,
    pub(crate) timers: Timers,
    /// Calls to other services; `None`: there are none.
    pub(crate) calls: Option<Calls>,
    /// The connection that is being processed.
    pub(crate) connection: u64,
}

impl Context<'_> {
    pub(crate) fn counters(&self) -> &Counters {
        &self.all_counters[self.thread]
    }

    /// See [`Work::request`].
    pub(crate) fn request(&mut self, page: Option<usize>, read_ns: &mut u64) -> Decision {
        let counters = &self.all_counters[self.thread];
        self.work.request(counters, page, read_ns)
    }

    /// Does what precedes a response as far as that is possible now. `Err`: the response is deferred
    /// until the rest is done.
    pub(crate) fn before_response(
        &mut self,
        decision: Decision,
        page: Option<usize>,
        read_ns: u64,
        stream: u32,
        canary: &[u8],
    ) -> Result<Ready, Deferred> {
        let request = RequestId {
            connection: self.connection,
            stream,
        };
        let fails = decision.fails;
        let wait = decision.not_before_ns.map(|at_ns| (read_ns, at_ns));
        match (&mut self.calls, wait) {
            (Some(calls), wait) if !fails => {
                let counters = &self.all_counters[self.thread];
                match calls.begin(&mut self.timers, counters, (request, page), wait, canary) {
                    Progress::Done { failed } => Ok(Ready { fails: failed }),
                    Progress::Waiting => Err(Deferred {
                        fails,
                        since_ns: None,
                    }),
                }
            }
            (_, None) => Ok(Ready { fails }),
            (_, Some((since_ns, at_ns))) => {
                self.timers.add(Timer {
                    at_ns,
                    connection: request.connection,
                    stream,
                });
                Err(Deferred {
                    fails,
                    since_ns: Some(since_ns),
                })
            }
        }
    }

    /// A deferred response is due; returns whether it is an error.
    pub(crate) fn waited(&self, deferred: &Deferred, failed: bool) -> bool {
        if let Some(since_ns) = deferred.since_ns {
            self.counters().delay(now_ns() - since_ns);
        }
        deferred.fails || failed
    }

    /// The counters as JSON.
    pub(crate) fn stats(&self) -> Vec<u8> {
        let stats = Counters::sum(self.all_counters, self.work.delay_ns());
        serde_json::to_vec(&stats).unwrap_or_default()
    }
}

/// A response that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// It is an injected error, or a call failed.
    pub(crate) fails: bool,
}

/// A response that has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deferred {
    /// It will be an error in any case.
    fails: bool,
    /// When its delay began, if that is one that is counted.
    since_ns: Option<u64>,
}
