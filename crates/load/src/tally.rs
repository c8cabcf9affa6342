//! What is counted, and how it gets from the thread that counts to the one that waits.
//!
//! A thread counts into a tally of its own. At the end of every interval it exchanges the full
//! one for an empty one, under a lock that is held for nothing else: no request waits for
//! whoever adds up.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use meshtax_model::LatencyHistogram;
use meshtax_model::trial::{ErrorCounts, LoadResult};

use crate::connection::InFlight;
use crate::wire::{Failure, ResponseStatus};

/// Statuses beyond these are counted as the last.
const STATUSES: usize = 1000;

/// Counts of the whole load, warm-up included, for a live display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sent: u64,
    pub(crate) responses: u64,
    pub(crate) failed: u64,
    pub(crate) connections: u32,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.responses += other.responses;
        self.failed += other.failed;
        self.connections += other.connections;
    }
}

/// Counts and histograms of a part of the window.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Which interval it begins with, and how many it holds: more than one only if the thread
    /// was away when one ended.
    pub(crate) interval: u64,
    pub(crate) intervals: u64,
    pub(crate) offered: u64,
    pub(crate) completed: u64,
    pub(crate) succeeded: u64,
    pub(crate) responses: u64,
    pub(crate) errors: ErrorCounts,
    /// Attempts to connect that belong to no request; the rest of `errors` are requests.
    pub(crate) failed_attempts: u64,
    status: Vec<u64>,
    grpc_status: Vec<u64>,
    pub(crate) queued: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) send_lag: LatencyHistogram,
    pub(crate) generator_lag: LatencyHistogram,
    pub(crate) first_byte: LatencyHistogram,
    pub(crate) connect: LatencyHistogram,
    pub(crate) tls_handshake: LatencyHistogram,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            interval: 0,
            intervals: 1,
            offered: 0,
            completed: 0,
            succeeded: 0,
            responses: 0,
            errors: ErrorCounts::default(),
            failed_attempts: 0,
            status: vec![0; STATUSES],
            grpc_status: vec![0; STATUSES],
            queued: 0,
            bytes_received: 0,
            bytes_sent: 0,
            response: LatencyHistogram::new(),
            service: LatencyHistogram::new(),
            send_lag: LatencyHistogram::new(),
            generator_lag: LatencyHistogram::new(),
            first_byte: LatencyHistogram::new(),
            connect: LatencyHistogram::new(),
            tls_handshake: LatencyHistogram::new(),
        }
    }

    /// An empty one, whose memory is there: a thread that offers load is not to wait for the
    /// kernel when it first counts a latency of some length.
    pub(crate) fn ready() -> Self {
        let mut tally = Self::new();
        tally.histograms_mut().for_each(LatencyHistogram::clear);
        tally
    }

    /// Makes it empty again, for the thread to use once more.
    pub(crate) fn clear(&mut self) {
        self.interval = 0;
        self.intervals = 1;
        for count in [
            &mut self.offered,
            &mut self.completed,
            &mut self.succeeded,
            &mut self.responses,
            &mut self.failed_attempts,
            &mut self.queued,
            &mut self.bytes_received,
            &mut self.bytes_sent,
        ] {
            *count = 0;
        }
        self.errors = ErrorCounts::default();
        self.status.fill(0);
        self.grpc_status.fill(0);
        self.histograms_mut().for_each(LatencyHistogram::clear);
    }

    fn histograms_mut(&mut self) -> impl Iterator<Item = &mut LatencyHistogram> {
        [
            &mut self.response,
            &mut self.service,
            &mut self.send_lag,
            &mut self.generator_lag,
            &mut self.first_byte,
            &mut self.connect,
            &mut self.tls_handshake,
        ]
        .into_iter()
    }

    /// A response to a request of the window.
    fn responded(&mut self, request: &InFlight, status: ResponseStatus, done_ns: u64) {
        self.responses += 1;
        self.status[usize::from(status.http).min(STATUSES - 1)] += 1;
        if let Some(grpc) = status.grpc {
            self.grpc_status[usize::from(grpc).min(STATUSES - 1)] += 1;
        }
        self.response.record(done_ns - request.intended_ns);
        self.service.record(done_ns - request.sent_ns);
        self.send_lag.record(request.sent_ns - request.intended_ns);
        self.first_byte
            .record(request.first_byte_ns - request.sent_ns);
    }

    fn failed(&mut self, failure: Failure) {
        let errors = &mut self.errors;
        *match failure {
            Failure::Connect => &mut errors.connect,
            Failure::Reset => &mut errors.reset,
            Failure::Timeout => &mut errors.timeout,
            Failure::Tls => &mut errors.tls,
            Failure::Protocol => &mut errors.protocol,
        } += 1;
    }

    /// Adds this to the figures of the whole window.
    pub(crate) fn add_to(&self, result: &mut LoadResult) {
        // `unresponses` is what is left of the sum: a response's tally need not be its request's.
        result.offered += self.offered;
        result.completed += self.completed;
        result.succeeded += self.succeeded;
        result.errors.add(&self.errors);
        result.failed_attempts += self.failed_attempts;
        add_counts(&mut result.status, &self.status);
        add_counts(&mut result.grpc_status, &self.grpc_status);
        result.queued += self.queued;
        result.bytes_received += self.bytes_received;
        result.bytes_sent += self.bytes_sent;
        for (whole, part) in [
            (&mut result.response, &self.response),
            (&mut result.service, &self.service),
            (&mut result.send_lag, &self.send_lag),
            (&mut result.generator_lag, &self.generator_lag),
            (&mut result.first_byte, &self.first_byte),
            (&mut result.connect, &self.connect),
            (&mut result.tls_handshake, &self.tls_handshake),
        ] {
            whole.merge(part);
        }
    }

    /// Requests of the window that ended, with a response or without.
    pub(crate) fn ended(&self) -> u64 {
        self.responses + self.errors.total() - self.failed_attempts
    }
}

fn add_counts(sums: &mut BTreeMap<u16, u64>, by_number: &[u64]) {
    for (number, count) in (0..).zip(by_number).filter(|(_, count)| **count > 0) {
        *sums.entry(number).or_insert(0) += count;
    }
}

/// Where a thread leaves what it counted.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    shelf: Mutex<Shelf>,
}

/// What lies between a thread and whoever adds up.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) totals: Totals,
    pub(crate) full: Vec<Tally>,
    pub(crate) empty: Vec<Tally>,
}

impl Counter {
    /// For a load with intervals, if so: then a second tally lies ready for the first exchange.
    pub(crate) fn new(has_intervals: bool) -> Self {
        let counter = Self::default();
        if has_intervals {
            counter.shelf().empty.push(Tally::ready());
        }
        counter
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nothing that is done under this lock can leave it half done.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts for one thread.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    start_ns: u64,
    end_ns: u64,
    interval_ns: u64,
    /// When the present interval ends.
    next_ns: u64,
    pub(crate) tally: Tally,
    pub(crate) totals: Totals,
    counter: &'a Counter,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(
        start_ns: u64,
        end_ns: u64,
        interval_ns: Option<u64>,
        counter: &'a Counter,
    ) -> Self {
        let interval_ns = interval_ns.unwrap_or(u64::MAX);
        Self {
            start_ns,
            end_ns,
            interval_ns,
            next_ns: start_ns.saturating_add(interval_ns),
            tally: Tally::ready(),
            totals: Totals::default(),
            counter,
        }
    }

    /// The load begins: until now there was only the opening of connections.
    pub(crate) fn begin(&mut self, start_ns: u64, end_ns: u64, interval_ns: Option<u64>) {
        self.start_ns = start_ns;
        self.end_ns = end_ns;
        self.interval_ns = interval_ns.unwrap_or(u64::MAX);
        self.next_ns = start_ns.saturating_add(self.interval_ns);
    }

    /// The window ends earlier than planned.
    pub(crate) fn cut(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns);
    }

    pub(crate) fn window_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    pub(crate) fn in_window(&self, instant_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&instant_ns)
    }

    /// When [`Self::turn_over`] has something to do; none after the window.
    pub(crate) fn next_interval_ns(&self) -> u64 {
        if self.next_ns < self.end_ns {
            self.next_ns
        } else {
            u64::MAX
        }
    }

    /// Hands over the tally of an interval that has ended.
    pub(crate) fn turn_over(&mut self, now_ns: u64) {
        if now_ns < self.next_interval_ns() {
            return;
        }
        let interval = (self.next_ns - self.start_ns) / self.interval_ns;
        let ended = 1 + (now_ns.min(self.end_ns - 1) - self.next_ns) / self.interval_ns;
        self.tally.intervals += ended - 1;
        let mut shelf = self.counter.shelf();
        let mut fresh = shelf.empty.pop().unwrap_or_else(Tally::ready);
        fresh.interval = interval + ended - 1;
        let full = std::mem::replace(&mut self.tally, fresh);
        shelf.full.push(full);
        drop(shelf);
        self.next_ns = self.next_ns.saturating_add(ended * self.interval_ns);
    }

    /// Shows the totals to whoever displays them.
    pub(crate) fn show(&self, connections: u32) {
        self.counter.shelf().totals = Totals {
            connections,
            ..self.totals
        };
    }

    /// A request is taken up now, over a connection that was available since then.
    pub(crate) fn taken(&mut self, request: &InFlight, now_ns: u64, available_since_ns: u64) {
        self.totals.sent += 1;
        if !request.in_window {
            return;
        }
        let tally = &mut self.tally;
        tally.offered += 1;
        let possible_ns = request.intended_ns.max(available_since_ns);
        tally.queued += u64::from(available_since_ns > request.intended_ns);
        tally
            .generator_lag
            .record(now_ns.saturating_sub(possible_ns));
    }

    /// Arrivals of the window that were never taken up.
    pub(crate) fn never_sent(&mut self, count: u64) {
        self.tally.offered += count;
        self.tally.queued += count;
    }

    pub(crate) fn received(&mut self, bytes: u64, now_ns: u64) {
        if self.in_window(now_ns) {
            self.tally.bytes_received += bytes;
        }
    }

    pub(crate) fn sent(&mut self, bytes: u64, now_ns: u64) {
        if self.in_window(now_ns) {
            self.tally.bytes_sent += bytes;
        }
    }

    /// A response is complete.
    pub(crate) fn responded(&mut self, request: &InFlight, status: ResponseStatus, done_ns: u64) {
        self.totals.responses += 1;
        if self.in_window(done_ns) {
            let good = (200..400).contains(&status.http) && status.grpc.unwrap_or(0) == 0;
            self.tally.completed += 1;
            self.tally.succeeded += u64::from(good);
        }
        if request.in_window {
            self.tally.responded(request, status, done_ns);
        }
    }

    /// A request ended without a response.
    pub(crate) fn failed(&mut self, request: &InFlight, failure: Failure) {
        self.totals.failed += 1;
        if request.in_window {
            self.tally.failed(failure);
        }
    }

    /// An attempt to open a connection failed that belongs to no request.
    pub(crate) fn attempt_failed(&mut self, failure: Failure, now_ns: u64) {
        self.totals.failed += 1;
        if self.in_window(now_ns) {
            self.tally.failed(failure);
            self.tally.failed_attempts += 1;
        }
    }

    /// TCP's handshake was over after so long.
    pub(crate) fn connected(&mut self, took_ns: u64, now_ns: u64) {
        // Before the load everything is in the window: those count, for a load that keeps its
        // connections makes no others.
        if self.in_window(now_ns) {
            self.tally.connect.record(took_ns);
        }
    }

    /// TLS's handshake was over after so long.
    pub(crate) fn secured(&mut self, took_ns: u64, now_ns: u64) {
        if self.in_window(now_ns) {
            self.tally.tls_handshake.record(took_ns);
        }
    }

    /// Closes the books.
    pub(crate) fn finish(self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ResponseStatus = ResponseStatus {
        http: 200,
        grpc: None,
    };

    fn request(intended_ns: u64, sent_ns: u64, in_window: bool) -> InFlight {
        InFlight {
            intended_ns,
            sent_ns,
            first_byte_ns: sent_ns,
            in_window,
            request: 0,
        }
    }

    #[test]
    fn offered_and_completed_requests_have_separate_windows() {
        let counter = Counter::default();
        let mut recorder = Recorder::new(100, 200, None, &counter);
        let (early, inside, late) = (
            request(90, 95, false),
            request(150, 160, true),
            request(190, 191, true),
        );
        for r in [&early, &inside, &late] {
            recorder.taken(r, r.sent_ns, 0);
        }
        let not_found = ResponseStatus { http: 404, ..OK };
        recorder.responded(&early, OK, 110);
        recorder.responded(&inside, not_found, 180);
        recorder.responded(&late, OK, 230);
        recorder.never_sent(2);
        let t = recorder.finish();
        assert_eq!(
            (t.offered, t.completed, t.succeeded, t.ended()),
            (4, 2, 1, 2)
        );
        assert_eq!(t.response.count(), 2);
        assert_eq!(
            (t.response.max_ns(), t.service.max_ns()),
            (Some(40), Some(39))
        );
    }

    #[test]
    fn waiting_for_a_connection_is_not_the_generators_lag() {
        let counter = Counter::default();
        let mut recorder = Recorder::new(0, 1000, None, &counter);
        recorder.taken(&request(100, 150, true), 150, 140);
        recorder.taken(&request(200, 203, true), 203, 50);
        assert_eq!(recorder.tally.queued, 1);
        assert_eq!(recorder.tally.generator_lag.max_ns(), Some(10));
    }

    #[test]
    fn a_recycled_tally_is_empty() {
        let counter = Counter::default();
        let mut recorder = Recorder::new(0, 1000, None, &counter);
        let r = request(100, 150, true);
        recorder.taken(&r, 150, 140);
        recorder.responded(&r, OK, 180);
        recorder.failed(&r, Failure::Reset);
        recorder.attempt_failed(Failure::Connect, 200);
        recorder.connected(5, 10);
        recorder.secured(5, 10);
        recorder.received(1, 10);
        recorder.sent(1, 10);
        let mut tally = recorder.finish();
        tally.interval = 7;
        tally.intervals = 3;
        let text = |tally: &Tally| format!("{tally:?}");
        assert_ne!(text(&tally), text(&Tally::new()));
        tally.clear();
        assert_eq!(text(&tally), text(&Tally::new()));
    }

    #[test]
    fn intervals_are_handed_over_and_missed_ones_reported() {
        let counter = Counter::default();
        let mut recorder = Recorder::new(1000, 1500, Some(100), &counter);
        recorder.turn_over(1050);
        assert!(counter.shelf().full.is_empty());
        recorder.turn_over(1100);
        // Away for two whole intervals.
        recorder.turn_over(1390);
        recorder.turn_over(1400);
        // The last interval ends with the window, and is handed over with the books.
        recorder.turn_over(1500);
        let of = |t: &Tally| (t.interval, t.intervals);
        let shelf = counter.shelf();
        let full: Vec<_> = shelf.full.iter().map(of).collect();
        drop(shelf);
        assert_eq!(full, [(0, 1), (1, 2), (3, 1)]);
        assert_eq!(of(&recorder.finish()), (4, 1));
    }
}
