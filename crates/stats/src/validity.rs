//! Which trials count. Each rule looks at whether the trial did what was planned, never at
//! how fast it was: leaving out what came out badly is how published comparisons went wrong.
//!
//! A reason is a short fixed sentence, so that trials can be counted by it.

use meshtax_model::experiment::LoadPoint;
use meshtax_model::trial::{LoadResult, ResourceSample, TrialOutcome, TrialRecord};

use crate::account::{IN_PATH, busy_ns};
use crate::memory::Growth;

/// Open loop: with fewer answers in the window than this share of the requests, the load was
/// not the one that was planned.
pub const COMPLETED_SHARE_MIN: f64 = 0.98;

/// Open loop: what one pause of the machine at the window's very end keeps from being answered in
/// it, in nanoseconds of offered load. Such a pause is latency, and counted as such; in a window of
/// half a second it is more than 2 %.
pub const PAUSE_AT_THE_END_NS: u64 = 25_000_000;

/// Errors, bad statuses and requests without an answer, each as a share of the requests.
pub const FAULTY_SHARE_MAX: f64 = 0.001;

/// With a larger share of invalid trials, what is left may not stand for the variant.
pub const INVALID_SHARE_MAX: f64 = 0.10;

/// With a larger share of trials that the hypervisor disturbed, what is left is the machine's rare
/// good moments only. It strikes all variants alike, whatever they cost, so that leaving such trials out
/// chooses no outcome: they are not counted against [`INVALID_SHARE_MAX`]. Below this, what is left has to be
/// enough by itself: rounds and blocks are counted as ever.
pub const DISTURBED_SHARE_MAX: f64 = 0.75;

/// A generator that was late while the hypervisor took at least this share of one core's time...
pub const LATE_BY_STEAL_SHARE: f64 = 0.05;

/// ... and two ticks of its clock, was late because of it.
pub const LATE_BY_STEAL_NS: u64 = 20_000_000;

/// Time for which a limit on CPU kept processes waiting, as a share of the window.
pub const THROTTLED_SHARE_MAX: f64 = 0.01;

/// Time that the hypervisor gave to others, as a share of the machine's.
pub const STEAL_SHARE_MAX: f64 = 0.10;

/// What programs that have no part in the run used, from just before the trial to just after it, as a
/// share of the machine: a quarter of one core where there are two.
pub const OTHERS_SHARE_MAX: f64 = 0.125;

/// Growth of a component's own memory within the window, as a share of what it had...
pub const GROWTH_SHARE_MAX: f64 = 0.01;

/// ... and at least so many bytes, so that no buffer counts...
pub const GROWTH_BYTES_MIN: f64 = 1_048_576.0;

/// ... in at least this share of the window's steps: what is allocated once is no leak.
pub const GROWING_STEPS_MIN: f64 = 0.6;

/// The reasons, as they are counted and shown.
pub mod reason {
    /// There is no figure at all.
    pub const FAILED: &str = "the trial failed";
    /// Another record of the same variant and load point in the same block came first.
    pub const REPEATED: &str = "recorded twice";
    /// The variant was not what its name says when it was measured.
    pub const NOT_PROVEN: &str = "a probe failed in this round";
    /// A process died or was restarted.
    pub const COMPONENT: &str = "a component died or was restarted";
    /// No request was answered, or the window has no length.
    pub const NO_REQUESTS: &str = "no requests";
    /// More errors than [`super::FAULTY_SHARE_MAX`].
    pub const ERRORS: &str = "errors above 0.1 %";
    /// More answers outside 200-399 than [`super::FAULTY_SHARE_MAX`].
    pub const STATUS: &str = "bad status codes above 0.1 %";
    /// More requests without an answer than [`super::FAULTY_SHARE_MAX`].
    pub const UNANSWERED: &str = "unanswered above 0.1 %";
    /// Fewer answers than [`super::COMPLETED_SHARE_MIN`].
    pub const ACHIEVED: &str = "achieved below 98 % of offered";
    /// At its end the variant was not what the probes had seen.
    pub const EVIDENCE_LOST: &str = "no longer what was proven";
    /// More than [`super::THROTTLED_SHARE_MAX`].
    pub const THROTTLED: &str = "a limit on CPU held it back";
    /// More than [`super::STEAL_SHARE_MAX`].
    pub const STEAL: &str = "the hypervisor took above 10 % of the machine";
    /// The generator was late while the hypervisor gave its time to others.
    pub const LATE_BY_STEAL: &str = "the hypervisor took a core when requests were due";
    /// More than [`super::OTHERS_SHARE_MAX`].
    pub const OTHERS: &str = "another program used its cores";
    /// More than [`super::GROWTH_SHARE_MAX`], all through the window.
    pub const GROWING: &str = "memory grew through the trial";
    /// Open loop only. In a closed loop it makes throughput a lower bound, which is a caveat:
    /// were it a reason, a fast baseline on a small machine would have no trials left, and the
    /// slow variants would be all that remains.
    pub const GENERATOR_BOUND: &str = "the generator was the limit";
}

/// Whether a reason is the hypervisor's doing, and nobody's under test.
#[must_use]
pub fn is_by_the_hypervisor(why: &str) -> bool {
    [reason::STEAL, reason::LATE_BY_STEAL].contains(&why)
}

/// `None`: valid as far as the record alone can say. Otherwise the first reason why not.
///
/// What only the other records can say ([`reason::REPEATED`], [`reason::NOT_PROVEN`]) is
/// looked at in [`crate::analyse`].
#[must_use]
pub fn check(record: &TrialRecord, point: &LoadPoint) -> Option<&'static str> {
    let TrialOutcome::Measured {
        load,
        component_failures,
        lost_evidence,
        ..
    } = &record.outcome
    else {
        return Some(reason::FAILED);
    };
    if !component_failures.is_empty() {
        return Some(reason::COMPONENT);
    }
    if !lost_evidence.is_empty() {
        return Some(reason::EVIDENCE_LOST);
    }
    let both = [no_requests, errors, status];
    let open_loop = [unanswered, achieved, generator_bound];
    let fired = |rule: &fn(&LoadResult) -> Option<&'static str>| rule(load);
    let both = both.map(|rule| rule as fn(&LoadResult) -> Option<&'static str>);
    let open_loop = open_loop.map(|rule| rule as fn(&LoadResult) -> Option<&'static str>);
    both.iter().find_map(fired).or_else(|| {
        point
            .is_steady()
            .then(|| open_loop.iter().find_map(fired))
            .flatten()
    })
}

/// What the machine did to a trial; `None`: nothing that is seen.
#[must_use]
pub fn disturbed(sample: &ResourceSample) -> Option<&'static str> {
    [
        (throttled(sample), reason::THROTTLED),
        (stolen(sample), reason::STEAL),
        (used_by_others(sample), reason::OTHERS),
        (growing(sample), reason::GROWING),
    ]
    .into_iter()
    .find_map(|(fired, reason)| fired.then_some(reason))
}

fn throttled(sample: &ResourceSample) -> bool {
    let machine = &sample.machine;
    let throttled_ns = machine.throttled_ns.unwrap_or(0);
    exceeds(throttled_ns, machine.wall_ns, THROTTLED_SHARE_MAX)
}

fn stolen(sample: &ResourceSample) -> bool {
    let machine = &sample.machine;
    let all = machine.wall_ns.saturating_mul(u64::from(machine.cores));
    let surely = machine.steal_ns.saturating_sub(machine.resolution_ns);
    exceeds(surely, all, STEAL_SHARE_MAX)
}

/// Where other programs cannot be seen, what no component accounts for tells of them; interrupts of busy
/// cores are part of that, and it has twice the room.
fn used_by_others(sample: &ResourceSample) -> bool {
    let machine = &sample.machine;
    let cores = u64::from(machine.cores.max(1));
    let Some(others) = &sample.others else {
        let used: u64 = sample
            .components
            .iter()
            .fold(0, |sum, component| sum.saturating_add(component.cpu_ns));
        let step = i128::from(machine.resolution_ns) * 2;
        let rest = i128::from(busy_ns(machine)) - i128::from(used) - step;
        let all = machine.wall_ns.saturating_mul(cores);
        return rest as f64 > 2.0 * OTHERS_SHARE_MAX * all as f64;
    };
    let used = others.iter().map(|other| other.cpu_ns);
    let used = used.fold(0, u64::saturating_add);
    let all = sample.looked_ns.max(machine.wall_ns).saturating_mul(cores);
    exceeds(used, all, OTHERS_SHARE_MAX)
}

fn growing(sample: &ResourceSample) -> bool {
    let series = &sample.series;
    let in_path = series.components.iter();
    let in_path = in_path.filter(|component| IN_PATH.contains(&component.role));
    in_path
        .filter_map(|component| Growth::of(series, component))
        .any(|growth| {
            growth.bytes >= GROWTH_BYTES_MIN
                && growth.bytes > growth.from_bytes * GROWTH_SHARE_MAX
                && growth.growing_share >= GROWING_STEPS_MIN
        })
}

fn no_requests(load: &LoadResult) -> Option<&'static str> {
    let nothing = load.window_ns == 0 || load.offered == 0 || load.completed == 0;
    (nothing || load.response.count() == 0).then_some(reason::NO_REQUESTS)
}

fn errors(load: &LoadResult) -> Option<&'static str> {
    let kinds = load.errors.by_kind();
    let total = kinds
        .iter()
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    exceeds(total, load.offered, FAULTY_SHARE_MAX).then_some(reason::ERRORS)
}

fn status(load: &LoadResult) -> Option<&'static str> {
    let (mut bad, mut all) = (0_u64, 0_u64);
    for (code, count) in &load.status {
        all = all.saturating_add(*count);
        if !(200..400).contains(code) {
            bad = bad.saturating_add(*count);
        }
    }
    exceeds(bad, all, FAULTY_SHARE_MAX).then_some(reason::STATUS)
}

fn unanswered(load: &LoadResult) -> Option<&'static str> {
    exceeds(load.unanswered, load.offered, FAULTY_SHARE_MAX).then_some(reason::UNANSWERED)
}

/// Answers to requests from before the window make up, on average, for those that come after
/// it; a single one either way says nothing, however few there are, nor does a short pause.
fn achieved(load: &LoadResult) -> Option<&'static str> {
    let missing = load.offered.saturating_sub(load.completed);
    let pause = load.offered as f64 * PAUSE_AT_THE_END_NS as f64 / load.window_ns.max(1) as f64;
    (missing > 1
        && missing as f64 > pause
        && exceeds(missing, load.offered, 1.0 - COMPLETED_SHARE_MIN))
    .then_some(reason::ACHIEVED)
}

fn generator_bound(load: &LoadResult) -> Option<&'static str> {
    load.audit.generator_bound.as_ref()?;
    let stolen = load.audit.steal_ns;
    let late_by_steal =
        stolen >= LATE_BY_STEAL_NS && exceeds(stolen, load.window_ns, LATE_BY_STEAL_SHARE);
    Some(if late_by_steal {
        reason::LATE_BY_STEAL
    } else {
        reason::GENERATOR_BOUND
    })
}

fn exceeds(part: u64, whole: u64, share: f64) -> bool {
    // A hair of slack: 2 of 100 are not "above 2 %" because 1 − 0.98 is not quite 0.02.
    part as f64 > whole as f64 * (share + 1e-9)
}

#[cfg(test)]
mod tests {
    use meshtax_model::LatencyHistogram;
    use meshtax_model::experiment::{Arrivals, LoadPointId, Regime, VariantId};
    use meshtax_model::plan::{PlannedTrial, TrialId};
    use meshtax_model::trial::{ComponentRole, ComponentSeries, OtherProcess};

    use super::*;

    fn steady() -> LoadPoint {
        let load = Regime::Steady {
            rate_per_s: 1000.0,
            arrivals: Arrivals::Poisson,
        };
        LoadPoint::new("steady", load)
    }

    fn saturated() -> LoadPoint {
        LoadPoint::new("saturated", Regime::Saturated)
    }

    fn good() -> LoadResult {
        let mut response = LatencyHistogram::new();
        response.record(100_000);
        LoadResult {
            window_ns: 1_000_000_000,
            offered: 1000,
            completed: 1000,
            succeeded: 1000,
            status: [(200, 1000)].into(),
            response,
            ..LoadResult::default()
        }
    }

    fn record(load: LoadResult) -> TrialRecord {
        TrialRecord {
            trial: PlannedTrial {
                id: TrialId::new(1, 1, 1),
                round: 1,
                block: 1,
                variant: VariantId("none".into()),
                load_point: LoadPointId("steady".into()),
                arrival_seed: 1,
            },
            started_unix_ms: 0,
            outcome: TrialOutcome::Measured {
                load: Box::new(load),
                proxy_connections: None,
                injected: None,
                replicas: Vec::new(),
                component_failures: Vec::new(),
                lost_evidence: Vec::new(),
            },
        }
    }

    /// The verdicts of a changed trial in the open and in the closed loop.
    fn both(change: impl Fn(&mut LoadResult)) -> [Option<&'static str>; 2] {
        let mut load = good();
        change(&mut load);
        let record = record(load);
        [check(&record, &steady()), check(&record, &saturated())]
    }

    #[test]
    fn a_good_trial_is_valid() {
        assert_eq!(both(|_| {}), [None, None]);
    }

    #[test]
    fn faults_in_both_loops() {
        assert_eq!(both(|l| l.window_ns = 0), [Some(reason::NO_REQUESTS); 2]);
        assert_eq!(both(|l| l.completed = 0), [Some(reason::NO_REQUESTS); 2]);
        assert_eq!(
            both(|l| l.response = LatencyHistogram::new()),
            [Some(reason::NO_REQUESTS); 2]
        );
        assert_eq!(both(|l| l.errors.reset = 1), [None; 2]);
        assert_eq!(both(|l| l.errors.reset = 2), [Some(reason::ERRORS); 2]);
        assert_eq!(
            both(|l| l.status = [(200, 990), (503, 10)].into()),
            [Some(reason::STATUS); 2]
        );
        assert_eq!(both(|l| l.status = [(302, 1000)].into()), [None; 2]);
        assert_eq!(
            both(|l| l.errors.timeout = u64::MAX)[0],
            Some(reason::ERRORS)
        );
    }

    #[test]
    fn faults_of_an_open_loop_only() {
        let in_ten_seconds = |completed| {
            both(move |l| {
                l.window_ns = 10_000_000_000;
                l.completed = completed;
            })
        };
        assert_eq!(in_ten_seconds(980), [None; 2]);
        assert_eq!(in_ten_seconds(979), [Some(reason::ACHIEVED), None]);
        // 25 ms of this one-second window: a pause at its end.
        assert_eq!(both(|l| l.completed = 975), [None; 2]);
        assert_eq!(both(|l| l.completed = 974), [Some(reason::ACHIEVED), None]);
        assert_eq!(both(|l| l.unanswered = 2), [Some(reason::UNANSWERED), None]);
        assert_eq!(
            both(|l| l.audit.generator_bound = Some("lag".into())),
            [Some(reason::GENERATOR_BOUND), None]
        );
    }

    #[test]
    fn a_generator_that_the_hypervisor_stopped_was_late_by_it() {
        let late = |steal_ns| {
            both(move |l| {
                l.audit.generator_bound = Some("lag".into());
                l.audit.steal_ns = steal_ns;
            })[0]
        };
        assert_eq!(late(50_000_000), Some(reason::GENERATOR_BOUND));
        assert_eq!(late(51_000_000), Some(reason::LATE_BY_STEAL));
        assert!(is_by_the_hypervisor(reason::LATE_BY_STEAL));
        assert!(!is_by_the_hypervisor(reason::GENERATOR_BOUND));
        assert_eq!(both(|l| l.audit.steal_ns = 51_000_000), [None; 2]);
    }

    #[test]
    fn one_answer_past_the_window_is_no_shortfall() {
        let few = |completed| {
            both(move |l| {
                l.offered = 20;
                l.completed = completed;
            })[0]
        };
        assert_eq!(few(19), None);
        assert_eq!(few(18), Some(reason::ACHIEVED));
    }

    #[test]
    fn failures_of_the_trial_itself() {
        let mut failed = record(good());
        failed.outcome = TrialOutcome::Failed {
            reason: "no route".into(),
        };
        assert_eq!(check(&failed, &steady()), Some(reason::FAILED));
        let mut restarted = record(good());
        if let TrialOutcome::Measured {
            component_failures, ..
        } = &mut restarted.outcome
        {
            component_failures.push("server-proxy: killed".into());
        }
        assert_eq!(check(&restarted, &saturated()), Some(reason::COMPONENT));
    }

    /// Half a second on two cores, of which nothing is known but this.
    fn sample(change: impl FnOnce(&mut ResourceSample)) -> ResourceSample {
        let mut sample = ResourceSample {
            others: Some(Vec::new()),
            looked_ns: 600_000_000,
            ..ResourceSample::new(TrialId::new(1, 1, 1))
        };
        sample.machine.wall_ns = 500_000_000;
        sample.machine.cores = 2;
        sample.machine.idle_ns = 1_000_000_000;
        change(&mut sample);
        sample
    }

    #[test]
    fn what_the_machine_did_to_a_trial() {
        assert_eq!(disturbed(&sample(|_| {})), None);
        let throttled = |ns| disturbed(&sample(|s| s.machine.throttled_ns = Some(ns)));
        assert_eq!(throttled(5_000_000), None);
        assert_eq!(throttled(6_000_000), Some(reason::THROTTLED));
        let stolen = |ns| disturbed(&sample(|s| s.machine.steal_ns = ns));
        assert_eq!(stolen(100_000_000), None);
        assert_eq!(stolen(110_000_000), Some(reason::STEAL));
    }

    #[test]
    fn another_program_is_seen_by_its_own_time_or_by_what_is_left_over() {
        let other = |cpu_ns| {
            disturbed(&sample(|s| {
                let name = "hog".to_owned();
                s.others = Some(vec![OtherProcess { name, cpu_ns }]);
            }))
        };
        assert_eq!(other(150_000_000), None);
        assert_eq!(other(151_000_000), Some(reason::OTHERS));
        let hidden = |idle_ns| {
            disturbed(&sample(|s| {
                s.others = None;
                s.machine.idle_ns = idle_ns;
            }))
        };
        assert_eq!(hidden(760_000_000), None);
        assert_eq!(hidden(740_000_000), Some(reason::OTHERS));
    }

    #[test]
    fn memory_that_grows_all_through_the_window_is_a_leak_and_a_buffer_is_none() {
        const MIB: u64 = 1 << 20;
        let held = |role, mib: &[u64]| {
            disturbed(&sample(|s| {
                let ends = 1..=mib.len() as u64;
                s.series.ends_ns = ends.map(|step| step * 60_000_000).collect();
                s.series.components.push(ComponentSeries {
                    role,
                    cpu_ns: Vec::new(),
                    anonymous_bytes: mib.iter().map(|n| n * MIB).collect(),
                });
            }))
        };
        use ComponentRole::{App, Generator};
        assert_eq!(held(App, &[10, 11, 12, 13, 14]), Some(reason::GROWING));
        assert_eq!(held(App, &[10, 14, 14, 14, 14]), None, "a buffer");
        assert_eq!(
            held(App, &[1000, 1001, 1002, 1003, 1004]),
            None,
            "below 1 %"
        );
        assert_eq!(held(Generator, &[10, 11, 12, 13, 14]), None);
    }

    #[test]
    fn a_trial_that_lost_its_proof_does_not_count() {
        let mut lost = record(good());
        if let TrialOutcome::Measured { lost_evidence, .. } = &mut lost.outcome {
            lost_evidence.push("there is no connection between the proxies".into());
        }
        assert_eq!(check(&lost, &steady()), Some(reason::EVIDENCE_LOST));
    }

    #[test]
    fn how_slow_it_was_does_not_matter() {
        let slow = |l: &mut LoadResult| l.response.record(60_000_000_000);
        assert_eq!(both(slow), [None; 2]);
    }
}
