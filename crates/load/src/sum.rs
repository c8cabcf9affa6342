//! Adding up what the threads counted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use meshtax_model::HistogramSnapshot;
use meshtax_model::trial::{LoadInterval, LoadResult};

use crate::audit::verdict;
use crate::engine::ThreadResult;
use crate::spec::LoadSpec;
use crate::tally::{Counter, Tally, Totals};

/// How often what the threads counted is taken in.
const COLLECT: Duration = Duration::from_millis(250);

/// Adding up takes milliseconds. On a core that it shares with a thread that offers load it must
/// not be what makes that one late.
const POLITE: i32 = 19;

/// How far a load is.
#[derive(Debug)]
pub(crate) struct Tick {
    pub(crate) totals: Totals,
    /// The last interval that all threads have ended.
    pub(crate) last: Option<LoadInterval>,
}

/// How long to wait between two looks. Where nobody watches, a thread that may share its core is woken
/// no more often than it needs to have an empty tally back before its next interval ends.
fn pause(spec: &LoadSpec, is_watched: bool) -> Duration {
    match spec.interval_ns {
        Some(interval_ns) if !is_watched => Duration::from_nanos(interval_ns / 2).max(COLLECT),
        _ => COLLECT,
    }
}

/// Takes in, now and then, the tallies that are full, until `end` is dropped. For a thread of
/// its own, which it makes a polite one. `on_tick`: for whoever watches.
pub(crate) fn collect(
    counters: &[Counter],
    spec: &LoadSpec,
    end: &Receiver<()>,
    mut on_tick: Option<impl FnMut(Tick)>,
) -> Sum {
    // Of the calling thread only. Refused, it is as polite as the others.
    let _ = rustix::process::setpriority_process(None, POLITE);
    let mut sum = Sum::new(spec);
    let pause = pause(spec, on_tick.is_some());
    while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let totals = sum.take_in(counters);
        if let Some(on_tick) = &mut on_tick {
            on_tick(Tick {
                totals,
                last: sum.last_complete(counters.len() as u64).cloned(),
            });
        }
    }
    sum.take_in(counters);
    sum
}

/// What all threads counted until now.
#[derive(Default)]
pub(crate) struct Sum {
    result: LoadResult,
    interval_ns: Option<u64>,
    window_ns: u64,
    ended: u64,
    /// By number: from how many threads, and what.
    intervals: BTreeMap<u64, (u64, LoadInterval)>,
}

impl Sum {
    pub(crate) fn new(spec: &LoadSpec) -> Self {
        Self {
            interval_ns: spec.interval_ns,
            window_ns: spec.window_ns,
            ..Self::default()
        }
    }

    fn add(&mut self, tally: &Tally) {
        tally.add_to(&mut self.result);
        self.ended += tally.ended();
        let Some(interval_ns) = self.interval_ns else {
            return;
        };
        let start_ns = tally.interval * interval_ns;
        let length_ns =
            (tally.intervals * interval_ns).min(self.window_ns.saturating_sub(start_ns));
        let part = LoadInterval {
            start_ns,
            length_ns,
            sent: tally.offered,
            responses: tally.responses,
            errors: tally.errors.total(),
            response: HistogramSnapshot::from(&tally.response),
            send_lag: HistogramSnapshot::from(&tally.send_lag),
        };
        match self.intervals.entry(tally.interval) {
            Entry::Vacant(vacant) => {
                vacant.insert((1, part));
            }
            Entry::Occupied(mut occupied) => {
                let (threads, interval) = occupied.get_mut();
                *threads += 1;
                interval.merge(&part);
            }
        }
    }

    /// Takes in the tallies that are full.
    fn take_in(&mut self, counters: &[Counter]) -> Totals {
        let mut totals = Totals::default();
        for counter in counters {
            let full = {
                let mut shelf = counter.shelf();
                totals.add(shelf.totals);
                std::mem::take(&mut shelf.full)
            };
            for mut tally in full {
                self.add(&tally);
                tally.clear();
                counter.shelf().empty.push(tally);
            }
        }
        totals
    }

    fn last_complete(&self, threads: u64) -> Option<&LoadInterval> {
        self.intervals
            .values()
            .rev()
            .find(|(from, _)| *from >= threads)
            .map(|(_, interval)| interval)
    }

    pub(crate) fn finish(mut self, spec: &LoadSpec, parts: &[ThreadResult]) -> LoadResult {
        let ended_ns = parts.iter().map(|part| part.window_ns).max().unwrap_or(0);
        // Ended early, the window's last interval is shorter.
        self.window_ns = self.window_ns.min(ended_ns);
        for part in parts {
            self.add(&part.tally);
            self.result.merge(&LoadResult {
                window_ns: part.window_ns,
                connections_opened: part.connections_opened,
                congestion_control: part.congestion_control.clone(),
                socket_io: part.socket_io.to_owned(),
                audit: part.audit.clone(),
                ..LoadResult::default()
            });
        }
        let mut result = self.result;
        result.unanswered = result.offered.saturating_sub(self.ended);
        result.intervals = self.intervals.into_values().map(|(_, i)| i).collect();
        let lag = (!spec.model.is_closed()).then_some(&result.generator_lag);
        result.audit.generator_bound = verdict(result.audit.busy_share, result.window_ns, lag);
        result
    }
}
