//! What the generator says of itself: was it, or the system under test, the limit?

use meshtax_model::LatencyHistogram;
use meshtax_model::trial::{GeneratorAudit, GeneratorBound, GeneratorLimit, LoadResult};
use nix::sys::resource::{UsageWho, getrusage};

use crate::clock::thread_cpu_ns;

/// A wait that ends sooner than this did not sleep: what it waited for was there already.
/// Two context switches take longer, an empty look at the sockets takes less.
const NO_SLEEP_NS: u64 = 2_000;

/// Deaf for longer than this, the generator makes a queue of its own: arrivals that fell
/// into that time are late through its fault, however few connections they then share.
const STALL_NS: u64 = 200_000;

/// Open loop: the send lag that one request in twenty may exceed through the generator's own
/// fault. One in a hundred would be too strict: a single pause of a virtual machine, of the few
/// milliseconds that its host takes now and then, makes as many late in a trial of half a second.
/// Such a pause is in the response latency, strikes all variants alike, and is in the histogram of
/// the send lag; a generator that is too slow makes far more requests late.
const MAX_LAG_P95_NS: u64 = 1_000_000;

/// Open loop: the same for one request in two. A timer's wake-up in a virtual machine
/// takes half of it; more would be a good part of the median that is measured.
const MAX_LAG_P50_NS: u64 = 100_000;

/// Open loop: beyond this share of work, arrivals queue in the generator as in any server.
const MAX_BUSY_OPEN: f64 = 0.90;

/// Requests that must lie above a quantile of the lag before it is judged: with fewer, one pause of
/// the machine is the quantile.
const LEAST_ABOVE: f64 = 10.0;

/// The shortest window whose busy share is judged: any burst keeps a generator busy.
const LEAST_WINDOW_NS: u64 = 100_000_000;

/// Closed loop: beyond this the system under test waits for the generator, not the
/// reverse. A good closed loop is busy, so the limit is higher.
const MAX_BUSY_CLOSED: f64 = 0.95;

/// One turn of the loop, between two looks at the sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// When the previous look ended.
    pub(crate) looked_ns: u64,
    /// When this look began.
    pub(crate) wait_ns: u64,
    /// When it ended.
    pub(crate) woke_ns: u64,
    /// When it was to end at the latest; `None`: at once.
    pub(crate) deadline_ns: Option<u64>,
    /// Whether anything was done between the looks.
    pub(crate) worked: bool,
    /// Whether the look found anything.
    pub(crate) found: bool,
}

impl Turn {
    /// The earliest instant at which what was found could have been there unseen.
    pub(crate) fn unseen_since_ns(&self) -> u64 {
        let slept = self.woke_ns - self.wait_ns >= NO_SLEEP_NS;
        match self.deadline_ns {
            Some(deadline_ns) if slept => self.woke_ns.min(deadline_ns.max(self.wait_ns)),
            _ => self.looked_ns,
        }
    }

    /// Time for which nobody listened: work, and sleep beyond what was asked for.
    fn deaf_ns(&self) -> u64 {
        let due_ns = self.deadline_ns.unwrap_or(self.wait_ns).max(self.wait_ns);
        (self.wait_ns - self.looked_ns) + self.woke_ns.saturating_sub(due_ns)
    }

    /// The stretch of that time, if it was a stall: before the look, or overslept in it.
    pub(crate) fn stall(&self) -> Option<Stall> {
        let due_ns = self.deadline_ns.unwrap_or(self.wait_ns).max(self.wait_ns);
        let stretch = |begin_ns, end_ns| Stall { begin_ns, end_ns };
        [
            stretch(self.looked_ns, self.wait_ns),
            stretch(due_ns.min(self.woke_ns), self.woke_ns),
        ]
        .into_iter()
        .find(|stall| stall.end_ns - stall.begin_ns >= STALL_NS)
    }

    fn busy_ns(&self) -> u64 {
        let look_ns = self.woke_ns - self.wait_ns;
        let work_ns = if self.worked {
            self.wait_ns - self.looked_ns
        } else {
            0
        };
        let instant = self.found && look_ns < NO_SLEEP_NS;
        work_ns + if instant { look_ns } else { 0 }
    }
}

/// A stretch of time in which the generator did not listen, although it had a free connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

impl Stall {
    /// Whether a request that was due then is late through the generator's own fault.
    pub(crate) fn delayed(&self, intended_ns: u64) -> bool {
        self.begin_ns < intended_ns && intended_ns <= self.end_ns
    }

    /// This stall and then another one. While requests that this one delayed are still unsent (the first due at
    /// `next_due_ns`), both are one: a short pause in the middle of catching up does not make the server the cause.
    pub(crate) fn then(self, next: Self, next_due_ns: Option<u64>) -> Self {
        let begin_ns = match next_due_ns {
            Some(due_ns) if self.delayed(due_ns) => self.begin_ns,
            _ => next.begin_ns,
        };
        Self { begin_ns, ..next }
    }
}

/// Time that the hypervisor gave to others since the machine began, of all cores. 0 where the
/// kernel does not say.
pub(crate) fn steal_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // proc_stat(5): cpu, user, nice, system, idle, iowait, irq, softirq, steal.
    let ticks = stat
        .split_whitespace()
        .nth(8)
        .and_then(|field| field.parse::<u64>().ok());
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    ticks
        .unwrap_or(0)
        .saturating_mul(1_000_000_000 / per_second)
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    cpu_ns: u64,
    involuntary_switches: u64,
}

impl Reading {
    fn now() -> Self {
        let switches = getrusage(UsageWho::RUSAGE_THREAD)
            .map_or(0, |usage| usage.involuntary_context_switches());
        Self {
            cpu_ns: thread_cpu_ns(),
            involuntary_switches: u64::try_from(switches).unwrap_or(0),
        }
    }
}

/// Gathers the audit while the load runs.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    start: Option<Reading>,
    end: Option<Reading>,
    busy_ns: u64,
    longest_ns: u64,
}

impl Audit {
    /// Called in every turn: the counters are read when the window begins and ends.
    pub(crate) fn at(&mut self, now_ns: u64, start_ns: u64, end_ns: u64) {
        if self.start.is_none() && now_ns >= start_ns {
            self.start = Some(Reading::now());
        }
        if self.end.is_none() && now_ns >= end_ns {
            self.end = Some(Reading::now());
        }
    }

    /// A turn ended.
    pub(crate) fn turn(&mut self, turn: &Turn) {
        if self.start.is_some() && self.end.is_none() {
            self.busy_ns += turn.busy_ns();
            self.longest_ns = self.longest_ns.max(turn.deaf_ns());
        }
    }

    /// What was gathered; the verdict is for [`verdict`].
    pub(crate) fn finish(&self, window_ns: u64) -> GeneratorAudit {
        let (start, end) = match (self.start, self.end) {
            (Some(start), Some(end)) => (start, end),
            _ => Default::default(),
        };
        let busy_share = if window_ns == 0 {
            0.0
        } else {
            (self.busy_ns as f64 / window_ns as f64).min(1.0)
        };
        GeneratorAudit {
            cpu_ns: end.cpu_ns - start.cpu_ns,
            busy_share,
            longest_loop_ns: self.longest_ns,
            involuntary_switches: end.involuntary_switches - start.involuntary_switches,
            steal_ns: 0,
            generator_bound: None,
        }
    }
}

/// The verdict on generators that shared cores, each with its part of one load: together they can use them up although each
/// alone is idle for a part of the window. `whole`: their merged result; `busy_shares`: of each.
pub fn judge_shared_cores(
    whole: &mut LoadResult,
    busy_shares: impl Iterator<Item = f64>,
    closed_loop: bool,
) {
    let audit = &mut whole.audit;
    audit.busy_share = busy_shares.sum::<f64>().min(1.0);
    if audit.generator_bound.is_none() {
        let lag = (!closed_loop).then_some(&whole.generator_lag);
        audit.generator_bound = verdict(audit.busy_share, whole.window_ns, lag);
    }
}

/// Whether the generator was the limit, and why. `lag`: what the generator itself added,
/// without the time in which no connection was free; `None` in a closed loop.
pub(crate) fn verdict(
    busy_share: f64,
    window_ns: u64,
    lag: Option<&LatencyHistogram>,
) -> Option<GeneratorBound> {
    let alone = |limit| GeneratorBound {
        worker: None,
        limit,
    };
    let busy_share = if window_ns < LEAST_WINDOW_NS {
        0.0
    } else {
        busy_share
    };
    let Some(lag) = lag else {
        return (busy_share > MAX_BUSY_CLOSED).then(|| {
            alone(GeneratorLimit::Busy {
                busy_share,
                max_share: MAX_BUSY_CLOSED,
                closed_loop: true,
            })
        });
    };
    for (quantile, max_lag_ns) in [(0.95, MAX_LAG_P95_NS), (0.5, MAX_LAG_P50_NS)] {
        let lag_ns = lag.quantile_ns(quantile).unwrap_or(0);
        let above = lag.count() as f64 * (1.0 - quantile);
        if lag_ns > max_lag_ns && above >= LEAST_ABOVE {
            return Some(alone(GeneratorLimit::LateSends {
                quantile,
                lag_ns,
                max_lag_ns,
            }));
        }
    }
    (busy_share > MAX_BUSY_OPEN).then(|| {
        alone(GeneratorLimit::Busy {
            busy_share,
            max_share: MAX_BUSY_OPEN,
            closed_loop: false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> Turn {
        Turn {
            looked_ns: 1_000_000,
            wait_ns: 1_010_000,
            woke_ns: 1_300_000,
            deadline_ns: Some(1_200_000),
            worked: true,
            found: true,
        }
    }

    fn stall(begin_ns: u64, end_ns: u64) -> Stall {
        Stall { begin_ns, end_ns }
    }

    #[test]
    fn second_stall_joins_the_first_while_its_requests_wait() {
        let (first, second) = (stall(100, 400), stall(410, 430));
        assert_eq!(first.then(second, Some(120)), stall(100, 430));
        assert_eq!(first.then(second, Some(401)), second);
        assert_eq!(first.then(second, None), second);
        assert!(first.delayed(400) && !first.delayed(100));
    }

    #[test]
    fn oversleeping_counts_as_the_generators_own_time() {
        let late = turn();
        assert_eq!(late.unseen_since_ns(), 1_200_000);
        assert_eq!(late.deaf_ns(), 110_000);
        assert_eq!(late.busy_ns(), 10_000);
    }

    #[test]
    fn a_stall_has_a_start_and_an_end() {
        assert_eq!(turn().stall(), None);
        let overslept = Turn {
            woke_ns: 1_500_000,
            ..turn()
        };
        assert_eq!(overslept.stall(), Some(stall(1_200_000, 1_500_000)));
        let worked = Turn {
            looked_ns: 500_000,
            ..turn()
        };
        assert_eq!(worked.stall(), Some(stall(500_000, 1_010_000)));
    }

    #[test]
    fn a_response_that_wakes_the_generator_is_seen_at_once() {
        let woken = Turn {
            woke_ns: 1_100_000,
            ..turn()
        };
        assert_eq!(woken.unseen_since_ns(), 1_100_000);
        assert_eq!(woken.deaf_ns(), 10_000);
    }

    #[test]
    fn a_response_found_without_waiting_arrived_during_work() {
        let instant = Turn {
            woke_ns: 1_010_500,
            ..turn()
        };
        assert_eq!(instant.unseen_since_ns(), 1_000_000);
        assert_eq!(instant.busy_ns(), 10_500);
        let spun = Turn {
            deadline_ns: None,
            worked: false,
            found: false,
            ..instant
        };
        assert_eq!(spun.busy_ns(), 0);
    }

    #[test]
    fn generators_that_share_cores_are_judged_together() {
        let whole = |busy_shares: [f64; 3]| {
            let mut whole = LoadResult {
                window_ns: 1_000_000_000,
                ..LoadResult::default()
            };
            judge_shared_cores(&mut whole, busy_shares.into_iter(), true);
            (whole.audit.busy_share, whole.audit.generator_bound)
        };
        let (share, bound) = whole([0.25, 0.25, 0.25]);
        assert_eq!((share, bound), (0.75, None));
        let (share, bound) = whole([0.4, 0.4, 0.4]);
        assert_eq!(share, 1.0);
        assert!(bound.is_some_and(|bound| bound.worker.is_none()));
    }

    #[test]
    fn verdicts() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut lag = LatencyHistogram::new();
        for _ in 0..392 {
            lag.record(5_000);
        }
        let open = |busy_share, lag: &LatencyHistogram| verdict(busy_share, SECOND_NS, Some(lag));
        assert_eq!(open(0.5, &lag), None);
        let busy = |bound: Option<GeneratorBound>| match bound.unwrap().limit {
            GeneratorLimit::Busy {
                busy_share,
                closed_loop,
                ..
            } => (busy_share, closed_loop),
            other => panic!("{other:?}"),
        };
        assert_eq!(busy(open(0.91, &lag)), (0.91, false));
        assert_eq!(verdict(0.94, SECOND_NS, None), None);
        assert_eq!(busy(verdict(0.96, SECOND_NS, None)), (0.96, true));
        assert_eq!(verdict(0.96, SECOND_NS / 20, None), None, "a burst");
        for _ in 0..4 {
            lag.record(9_000_000);
        }
        assert_eq!(open(0.5, &lag), None, "one pause is no slow generator");
        for _ in 0..32 {
            lag.record(3_000_000);
        }
        let limit = open(0.5, &lag).unwrap().limit;
        let GeneratorLimit::LateSends {
            quantile, lag_ns, ..
        } = limit
        else {
            panic!("{limit:?}");
        };
        assert_eq!(quantile, 0.95);
        assert!(lag_ns.abs_diff(3_000_000) < 3_000, "{lag_ns}");
        let mut few = LatencyHistogram::new();
        for _ in 0..4 {
            few.record(3_000_000);
        }
        assert_eq!(open(0.5, &few), None, "four requests are too few to judge");
    }
}
