//! Counts and histograms of the measured window; the warm-up is in none of them.

use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadResult;

use crate::connection::InFlight;

/// How a request ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The peer closed or reset.
    Reset,
    /// What came was not HTTP.
    Protocol,
}

/// Counts of the whole load, warm-up included, for a live display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
}

/// What is recorded.
#[derive(Debug)]
pub(crate) struct Recorder {
    start_ns: u64,
    end_ns: u64,
    pub(crate) result: LoadResult,
    /// Send lag with a connection free: the generator's own fault.
    pub(crate) generator_lag: LatencyHistogram,
    /// Requests of the window that found no connection free.
    pub(crate) queued: u64,
    pub(crate) totals: Totals,
    answered_of_window: u64,
}

impl Recorder {
    pub(crate) fn new(start_ns: u64, end_ns: u64) -> Self {
        Self {
            start_ns,
            end_ns,
            result: LoadResult::default(),
            generator_lag: LatencyHistogram::new(),
            queued: 0,
            totals: Totals::default(),
            answered_of_window: 0,
        }
    }

    /// The window ends earlier than planned.
    pub(crate) fn cut(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    pub(crate) fn in_window(&self, instant_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&instant_ns)
    }

    /// A request is sent now, over a connection that was available since then.
    pub(crate) fn sent(&mut self, request: &InFlight, available_since_ns: u64) {
        self.totals.sent += 1;
        if !request.in_window {
            return;
        }
        self.result.offered += 1;
        let possible_ns = request.intended_ns.max(available_since_ns);
        self.queued += u64::from(available_since_ns > request.intended_ns);
        self.generator_lag
            .record(request.sent_ns.saturating_sub(possible_ns));
    }

    /// Arrivals of the window that were never sent.
    pub(crate) fn never_sent(&mut self, count: u64) {
        self.result.offered += count;
        self.queued += count;
    }

    pub(crate) fn received(&mut self, bytes: u64, now_ns: u64) {
        if self.in_window(now_ns) {
            self.result.bytes_received += bytes;
        }
    }

    /// An answer is complete.
    pub(crate) fn answered(&mut self, request: &InFlight, status: u16, done_ns: u64) {
        self.totals.answered += 1;
        if self.in_window(done_ns) {
            self.result.completed += 1;
            self.result.succeeded += u64::from((200..400).contains(&status));
        }
        if !request.in_window {
            return;
        }
        self.answered_of_window += 1;
        *self.result.status.entry(status).or_insert(0) += 1;
        let result = &mut self.result;
        result.response.record(done_ns - request.intended_ns);
        result.service.record(done_ns - request.sent_ns);
        result
            .send_lag
            .record(request.sent_ns - request.intended_ns);
    }

    /// A request ended without an answer.
    pub(crate) fn failed(&mut self, request: &InFlight, failure: Failure) {
        self.totals.failed += 1;
        if request.in_window {
            match failure {
                Failure::Reset => self.result.errors.reset += 1,
                Failure::Protocol => self.result.errors.protocol += 1,
            }
        }
    }

    /// Attempts to open a connection failed.
    pub(crate) fn connect_failed(&mut self, count: u64, now_ns: u64) {
        self.totals.failed += count;
        if self.in_window(now_ns) {
            self.result.errors.connect += count;
        }
    }

    /// Closes the books.
    pub(crate) fn finish(&mut self) {
        let errors = &self.result.errors;
        let ended = self.answered_of_window + errors.reset + errors.protocol;
        self.result.unanswered = self.result.offered - ended;
        self.result.window_ns = self.end_ns.saturating_sub(self.start_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(intended_ns: u64, sent_ns: u64, in_window: bool) -> InFlight {
        InFlight {
            intended_ns,
            sent_ns,
            in_window,
        }
    }

    #[test]
    fn offered_and_completed_have_windows_of_their_own() {
        let mut recorder = Recorder::new(100, 200);
        let (early, inside, late) = (
            request(90, 95, false),
            request(150, 160, true),
            request(190, 191, true),
        );
        for r in [&early, &inside, &late] {
            recorder.sent(r, 0);
        }
        recorder.answered(&early, 200, 110);
        recorder.answered(&inside, 404, 180);
        recorder.answered(&late, 200, 230);
        recorder.never_sent(2);
        recorder.finish();
        let r = &recorder.result;
        assert_eq!(
            (r.offered, r.completed, r.succeeded, r.unanswered),
            (4, 2, 1, 2)
        );
        assert_eq!(r.response.count(), 2);
        assert_eq!(
            (r.response.max_ns(), r.service.max_ns()),
            (Some(40), Some(39))
        );
        assert_eq!(r.window_ns, 100);
    }

    #[test]
    fn waiting_for_a_connection_is_not_the_generators_lag() {
        let mut recorder = Recorder::new(0, 1000);
        recorder.sent(&request(100, 150, true), 140);
        recorder.sent(&request(200, 203, true), 50);
        assert_eq!(recorder.queued, 1);
        assert_eq!(recorder.generator_lag.max_ns(), Some(10));
    }
}
