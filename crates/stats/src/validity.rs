//! Which trials are valid. Each rule checks whether the trial ran as planned, never how fast it was or how many
//! requests succeeded: excluding unfavourable results is a common flaw of published comparisons. Whether a valid trial
//! carried its load is a result ([`crate::shortfall`]).

use meshtax_model::analysis::{InvalidReason, Shortfall};
use meshtax_model::experiment::LoadPoint;
use meshtax_model::failure::{ComponentEnding, ComponentFailure, TrialFailure};
use meshtax_model::trial::{
    ComponentRole, LoadResult, MachineUsage, ResourceSample, TrialOutcome, TrialRecord,
};

use crate::growth::application_grows;
use crate::shortfall::{exceeds, shortfall};

/// With a larger share of invalid trials, the rest may not be representative of the variant.
pub const INVALID_SHARE_MAX: f64 = 0.10;

/// With a larger share of trials that the hypervisor disturbed, the rest are only the machine's rare
/// undisturbed moments. It affects all variants alike, whatever they cost, so that excluding such trials
/// introduces no bias: they do not count towards [`INVALID_SHARE_MAX`]. Below this, the remaining data must be
/// sufficient by itself: the usual numbers of rounds and blocks are required.
pub const DISTURBED_SHARE_MAX: f64 = 0.75;

/// A generator that was late while the hypervisor took at least this share of one core's time...
pub const LATE_BY_STEAL_SHARE: f64 = 0.05;

/// ... and two ticks of its clock, was late because of it.
pub const LATE_BY_STEAL_NS: u64 = 20_000_000;

/// Time for which a CPU limit throttled processes, as a share of the window.
pub const THROTTLED_SHARE_MAX: f64 = 0.01;

/// Steal time of the hypervisor, as a share of the time in which the run wanted a core (busy or stolen). Time is stolen
/// only from a core that is wanted: as a share of all time, a variant that keeps the cores busier would lose more trials.
pub const STEAL_SHARE_MAX: f64 = 0.10;

/// CPU of programs outside the run on the cores that it uses, from just before the trial to just after it, as a share
/// of one core: a role has few cores, however many the machine has.
pub const OTHERS_CORE_SHARE_MAX: f64 = 0.25;

/// Whether a trial is valid, by what the record and its sample show. If it is: what it lacked of its load, if anything.
///
/// Reasons that depend on other records ([`InvalidReason::Repeated`], [`InvalidReason::NotProven`]) are
/// checked in [`crate::analyse`], and so are those that hold for a block ([`disturbed`]).
///
/// # Errors
/// The first reason why it is invalid. A proxy that ends or takes no connections is no such reason: it did not carry the
/// load. An application's memory that grows throughout a trial invalidates only one that carried its load: behind an
/// overloaded proxy, requests wait in it.
pub fn judge(
    record: &TrialRecord,
    sample: Option<&ResourceSample>,
    point: &LoadPoint,
) -> Result<Option<Shortfall>, InvalidReason> {
    let by_others = sample.is_some_and(disturbed_by_others);
    if let Some(short) = shortfall_of_proxies(record) {
        return match by_others {
            true => Err(InvalidReason::OtherPrograms),
            false => Ok(Some(short)),
        };
    }
    let load = measured(record)?;
    let bound = || generator_bound(load).filter(|_| point.is_steady());
    let invalid = no_requests(load)
        .or_else(bound)
        .or_else(|| by_others.then_some(InvalidReason::OtherPrograms));
    if let Some(reason) = invalid {
        return Err(reason);
    }
    let short = shortfall(load, point);
    match short.is_none() && sample.is_some_and(application_grows) {
        true => Err(InvalidReason::MemoryGrowth),
        false => Ok(short),
    }
}

/// What ended or was restarted in a trial, or before it.
fn ended_components(record: &TrialRecord) -> &[ComponentFailure] {
    match &record.outcome {
        TrialOutcome::Failed {
            failure: TrialFailure::ComponentsEnded { components },
        } => components,
        TrialOutcome::Failed { .. } => &[],
        TrialOutcome::Measured {
            component_failures, ..
        } => component_failures,
    }
}

/// `Some`: the proxies took no connections, or all that ended are proxies of the variant. With the application or the
/// generator gone as well, the proxies may not be the cause.
fn shortfall_of_proxies(record: &TrialRecord) -> Option<Shortfall> {
    if let TrialOutcome::Failed {
        failure: TrialFailure::NotConnected { .. },
    } = record.outcome
    {
        return Some(Shortfall::NotConnected);
    }
    let ended = ended_components(record);
    let is_proxy =
        |component: &ComponentFailure| component.role.is_some_and(ComponentRole::is_proxy);
    if ended.is_empty() || !ended.iter().all(is_proxy) {
        return None;
    }
    Some(match is_out_of_memory(ended) {
        true => Shortfall::ProxyOutOfMemory,
        false => Shortfall::ProxyEnded,
    })
}

fn measured(record: &TrialRecord) -> Result<&LoadResult, InvalidReason> {
    let ended = ended_components(record);
    match &record.outcome {
        _ if is_out_of_memory(ended) => Err(InvalidReason::OutOfMemory),
        TrialOutcome::Failed { .. } => Err(InvalidReason::Failed),
        TrialOutcome::Measured { .. } if !ended.is_empty() => Err(InvalidReason::ComponentFailed),
        TrialOutcome::Measured { lost_evidence, .. } if !lost_evidence.is_empty() => {
            Err(InvalidReason::EvidenceLost)
        }
        TrialOutcome::Measured { load, .. } => Ok(load),
    }
}

fn is_out_of_memory(ended: &[ComponentFailure]) -> bool {
    ended
        .iter()
        .any(|component| component.ending == ComponentEnding::OutOfMemory)
}

/// Whether other programs that are visible used the cores of a trial. Their own CPU time shows it, however busy the
/// variant keeps the cores.
fn disturbed_by_others(sample: &ResourceSample) -> bool {
    sample.machines.iter().any(|machine| {
        let used = machine.others.iter().flatten().map(|other| other.cpu_ns);
        let used = used.fold(0, u64::saturating_add);
        let looked_ns = machine.looked_ns.max(machine.wall_ns);
        exceeds(used, looked_ns, OTHERS_CORE_SHARE_MAX)
    })
}

/// How the machine disturbed a block at a load point, as a mean over all its trials: `samples`.
///
/// All of them are excluded together, or none, and each counts the same: whether a single reading exceeds a limit
/// depends on the kernel's step and on how busy its variant keeps the cores.
pub(crate) fn disturbed(samples: &[&ResourceSample]) -> Option<InvalidReason> {
    let mean_exceeds = |share: fn(&ResourceSample) -> Option<f64>, limit: f64| {
        let shares: Vec<f64> = samples.iter().copied().filter_map(share).collect();
        shares.iter().sum::<f64>() > limit * shares.len() as f64
    };
    let limit_of_hidden = 2.0 * OTHERS_CORE_SHARE_MAX;
    [
        (
            mean_exceeds(stolen_share, STEAL_SHARE_MAX),
            InvalidReason::Steal,
        ),
        (
            mean_exceeds(throttled_share, THROTTLED_SHARE_MAX),
            InvalidReason::Throttled,
        ),
        (
            mean_exceeds(hidden_share, limit_of_hidden),
            InvalidReason::OtherPrograms,
        ),
    ]
    .into_iter()
    .find_map(|(fired, reason)| fired.then_some(reason))
}

/// A stall that covers a whole window leaves no request in it.
fn no_requests(load: &LoadResult) -> Option<InvalidReason> {
    (load.window_ns == 0 || load.offered == 0).then_some(match is_late_by_steal(load) {
        true => InvalidReason::LateBySteal,
        false => InvalidReason::NoRequests,
    })
}

/// Steal as a share of the time that was wanted; `None`: none was.
fn stolen_share(sample: &ResourceSample) -> Option<f64> {
    let stolen_ns = sample.over_machines(|machine| machine.steal_ns) as f64;
    let wanted_ns = sample.busy_ns().max(0) as f64 + stolen_ns;
    (wanted_ns > 0.0).then(|| stolen_ns / wanted_ns)
}

/// Throttled time as a share of the window, on the machine that has the most of it; `None`: none was measured.
fn throttled_share(sample: &ResourceSample) -> Option<f64> {
    let of_machine = |machine: &MachineUsage| {
        let throttled_ns = machine.throttled_ns.unwrap_or(0) as f64;
        (machine.wall_ns > 0).then(|| throttled_ns / machine.wall_ns as f64)
    };
    let shares = sample.machines.iter().filter_map(of_machine);
    shares.max_by(f64::total_cmp)
}

/// Where other programs are not visible, unattributed time as a share of one core's, beyond the kernel's resolution; `None`:
/// they are visible. It includes interrupts of busy cores, and therefore has twice the limit.
fn hidden_share(sample: &ResourceSample) -> Option<f64> {
    let visible = |machine: &MachineUsage| machine.others.is_some();
    let wall_ns = sample.wall_ns() as f64;
    if sample.machines.iter().all(visible) || wall_ns <= 0.0 {
        return None;
    }
    let step = i128::from(sample.over_machines(|m| m.resolution_ns)) * 2;
    let rest = i128::from(sample.busy_ns()) - i128::from(sample.attributed_ns()) - step;
    Some(rest as f64 / wall_ns)
}

fn generator_bound(load: &LoadResult) -> Option<InvalidReason> {
    load.audit.generator_bound.as_ref()?;
    Some(match is_late_by_steal(load) {
        true => InvalidReason::LateBySteal,
        false => InvalidReason::GeneratorBound,
    })
}

/// Whether the hypervisor took the generator's core for long enough to explain that requests are late or missing.
fn is_late_by_steal(load: &LoadResult) -> bool {
    let stolen = load.audit.steal_ns;
    stolen >= LATE_BY_STEAL_NS && exceeds(stolen, load.window_ns, LATE_BY_STEAL_SHARE)
}

#[cfg(test)]
mod tests {
    use meshtax_model::LatencyHistogram;
    use meshtax_model::experiment::{Arrivals, LoadPointId, Regime, VariantId};
    use meshtax_model::failure::LostEvidence;
    use meshtax_model::plan::{PlannedTrial, TrialId};
    use meshtax_model::trial::{ComponentSeries, GeneratorBound, GeneratorLimit, OtherProcess};

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

    fn bound_generator() -> GeneratorBound {
        GeneratorBound {
            worker: None,
            limit: GeneratorLimit::LateSends {
                quantile: 0.95,
                lag_ns: 3_000_000,
                max_lag_ns: 1_000_000,
            },
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

    /// A regular trial in which these components ended.
    fn record_with_ended(ended: Vec<ComponentFailure>) -> TrialRecord {
        let mut record = record(good());
        if let TrialOutcome::Measured {
            component_failures, ..
        } = &mut record.outcome
        {
            component_failures.extend(ended);
        }
        record
    }

    fn valid(record: &TrialRecord, point: &LoadPoint) -> Result<Option<Shortfall>, InvalidReason> {
        judge(record, None, point)
    }

    /// The judgements of a changed trial in the open and in the closed loop.
    fn both(change: impl Fn(&mut LoadResult)) -> [Result<Option<Shortfall>, InvalidReason>; 2] {
        let mut load = good();
        change(&mut load);
        let record = record(load);
        [valid(&record, &steady()), valid(&record, &saturated())]
    }

    const CARRIED: Result<Option<Shortfall>, InvalidReason> = Ok(None);

    #[test]
    fn regular_trial_is_valid_and_carried_its_load() {
        assert_eq!(both(|_| {}), [CARRIED; 2]);
    }

    #[test]
    fn trial_without_requests_is_invalid() {
        let nothing = [Err(InvalidReason::NoRequests); 2];
        assert_eq!(both(|l| l.window_ns = 0), nothing);
        assert_eq!(both(|l| l.offered = 0), nothing);
    }

    #[test]
    fn lost_requests_are_an_outcome_of_both_loops() {
        let silent = [Ok(Some(Shortfall::NoResponses)); 2];
        assert_eq!(both(|l| l.completed = 0), silent);
        assert_eq!(both(|l| l.response = LatencyHistogram::new()), silent);
        assert_eq!(both(|l| l.errors.reset = 1), [CARRIED; 2]);
        let failed = [Ok(Some(Shortfall::Errors)); 2];
        assert_eq!(both(|l| l.errors.reset = 2), failed);
        assert_eq!(both(|l| l.errors.timeout = u64::MAX), failed);
        assert_eq!(
            both(|l| l.status = [(200, 990), (503, 10)].into()),
            [Ok(Some(Shortfall::BadStatus)); 2]
        );
        assert_eq!(both(|l| l.status = [(302, 1000)].into()), [CARRIED; 2]);
    }

    #[test]
    fn missed_rate_is_an_outcome_of_the_open_loop_only() {
        let in_ten_seconds = |completed| {
            both(move |l| {
                l.window_ns = 10_000_000_000;
                l.completed = completed;
            })
        };
        let below = [Ok(Some(Shortfall::AchievedBelowOffered)), CARRIED];
        assert_eq!(in_ten_seconds(980), [CARRIED; 2]);
        assert_eq!(in_ten_seconds(979), below);
        // 25 ms of this one-second window: a pause at its end.
        assert_eq!(both(|l| l.completed = 975), [CARRIED; 2]);
        assert_eq!(both(|l| l.completed = 974), below);
        assert_eq!(
            both(|l| l.unanswered = 2),
            [Ok(Some(Shortfall::Unanswered)), CARRIED]
        );
    }

    #[test]
    fn disturbance_comes_before_the_outcome() {
        let late = both(|l| {
            l.completed = 1;
            l.audit.generator_bound = Some(bound_generator());
        });
        assert_eq!(late[0], Err(InvalidReason::GeneratorBound));
        let overloaded = record(LoadResult {
            unanswered: 500,
            ..good()
        });
        assert_eq!(
            judge(&overloaded, Some(&hog(151_000_000)), &steady()),
            Err(InvalidReason::OtherPrograms)
        );
        assert_eq!(
            judge(&overloaded, Some(&leaking()), &steady()),
            Ok(Some(Shortfall::Unanswered)),
            "a queue that grows is the overload itself"
        );
        assert_eq!(
            judge(&record(good()), Some(&leaking()), &steady()),
            Err(InvalidReason::MemoryGrowth)
        );
    }

    #[test]
    fn generator_lag_during_steal_is_attributed_to_the_hypervisor() {
        let late = |steal_ns| {
            both(move |l| {
                l.audit.generator_bound = Some(bound_generator());
                l.audit.steal_ns = steal_ns;
            })[0]
        };
        assert_eq!(late(50_000_000), Err(InvalidReason::GeneratorBound));
        assert_eq!(late(51_000_000), Err(InvalidReason::LateBySteal));
        assert!(InvalidReason::LateBySteal.is_by_hypervisor());
        assert!(!InvalidReason::GeneratorBound.is_by_hypervisor());
        assert_eq!(both(|l| l.audit.steal_ns = 51_000_000), [CARRIED; 2]);
        let closed = both(|l| l.audit.generator_bound = Some(bound_generator()))[1];
        assert_eq!(closed, CARRIED, "a caveat in a closed loop");
    }

    #[test]
    fn one_response_after_the_window_is_not_a_shortfall() {
        let few = |completed| {
            both(move |l| {
                l.offered = 20;
                l.completed = completed;
            })[0]
        };
        assert_eq!(few(19), CARRIED);
        assert_eq!(few(18), Ok(Some(Shortfall::AchievedBelowOffered)));
    }

    #[test]
    fn failed_trials_are_invalid() {
        let mut failed = record(good());
        failed.outcome = TrialOutcome::Failed {
            failure: TrialFailure::VariantNotRunning,
        };
        assert_eq!(valid(&failed, &steady()), Err(InvalidReason::Failed));
        let restarted = record_with_ended(vec![ComponentFailure {
            component: "app".to_owned(),
            role: Some(ComponentRole::App),
            ending: ComponentEnding::Killed { signal: 9 },
            last_output: Vec::new(),
        }]);
        assert_eq!(
            valid(&restarted, &saturated()),
            Err(InvalidReason::ComponentFailed)
        );
    }

    #[test]
    fn trial_of_a_component_out_of_memory_says_so() {
        let killed = || ComponentFailure {
            component: "app".to_owned(),
            role: Some(ComponentRole::App),
            ending: ComponentEnding::OutOfMemory,
            last_output: Vec::new(),
        };
        let during = record_with_ended(vec![killed()]);
        let mut before = record(good());
        before.outcome = TrialOutcome::Failed {
            failure: TrialFailure::ComponentsEnded {
                components: vec![killed()],
            },
        };
        for trial in [during, before] {
            assert_eq!(valid(&trial, &steady()), Err(InvalidReason::OutOfMemory));
        }
    }

    /// Half a second on two cores, without further readings.
    fn sample(change: impl FnOnce(&mut ResourceSample)) -> ResourceSample {
        let mut sample = ResourceSample::new(TrialId::new(1, 1, 1));
        sample.machines.push(MachineUsage {
            wall_ns: 500_000_000,
            cores: 2,
            idle_ns: 1_000_000_000,
            others: Some(Vec::new()),
            looked_ns: 600_000_000,
            ..MachineUsage::default()
        });
        change(&mut sample);
        sample
    }

    #[test]
    fn throttling_and_steal_above_their_limits_invalidate_a_block() {
        assert_eq!(disturbed(&[&sample(|_| {})]), None);
        let throttled = |ns| {
            // Of two trials, one is throttled.
            let one = sample(|s| s.machines[0].throttled_ns = Some(ns));
            disturbed(&[&one, &sample(|_| {})])
        };
        assert_eq!(throttled(10_000_000), None);
        assert_eq!(throttled(12_000_000), Some(InvalidReason::Throttled));
        assert_eq!(disturbed(&[]), None);
    }

    #[test]
    fn steal_is_a_mean_over_the_trials_of_a_block_however_busy_they_are() {
        let trial = |wanted_ns: u64, share: f64| {
            sample(|s| {
                s.machines[0].idle_ns = 1_000_000_000 - wanted_ns;
                s.machines[0].steal_ns = (wanted_ns as f64 * share) as u64;
            })
        };
        let block = |busy: f64, idle: f64| {
            disturbed(&[&trial(1_000_000_000, busy), &trial(100_000_000, idle)])
        };
        let stolen = Some(InvalidReason::Steal);
        assert_eq!([block(0.19, 0.0), block(0.0, 0.19)], [None; 2]);
        assert_eq!([block(0.21, 0.0), block(0.0, 0.21)], [stolen; 2]);
    }

    /// A trial beside another program.
    fn hog(cpu_ns: u64) -> ResourceSample {
        sample(|s| {
            let name = "hog".to_owned();
            s.machines[0].others = Some(vec![OtherProcess { name, cpu_ns }]);
        })
    }

    #[test]
    fn other_programs_are_detected_by_their_cpu_time_or_by_unattributed_time() {
        assert!(!disturbed_by_others(&hog(150_000_000)));
        assert!(disturbed_by_others(&hog(151_000_000)));
        let hidden = |idle_ns| {
            let trial = sample(|s| {
                s.machines[0].others = None;
                s.machines[0].idle_ns = idle_ns;
            });
            disturbed(&[&trial])
        };
        assert_eq!(hidden(760_000_000), None);
        assert_eq!(hidden(740_000_000), Some(InvalidReason::OtherPrograms));
    }

    /// What a component held at the steps of the window, in MiB.
    fn held(role: ComponentRole, mib: &[u64]) -> ResourceSample {
        const MIB: u64 = 1 << 20;
        sample(|s| {
            let ends = 1..=mib.len() as u64;
            s.series.ends_ns = ends.map(|step| step * 60_000_000).collect();
            s.series.components.push(ComponentSeries {
                role,
                cpu_ns: Vec::new(),
                anonymous_bytes: mib.iter().map(|n| n * MIB).collect(),
            });
        })
    }

    fn leaking() -> ResourceSample {
        held(ComponentRole::App, &[10, 11, 12, 13, 14])
    }

    #[test]
    fn trial_in_which_a_proxy_ended_did_not_carry_its_load() {
        let ended = |role, ending| ComponentFailure {
            component: "one".to_owned(),
            role: Some(role),
            ending,
            last_output: Vec::new(),
        };
        let of = |components: Vec<ComponentFailure>| {
            let during = record_with_ended(components.clone());
            let mut before = record(good());
            before.outcome = TrialOutcome::Failed {
                failure: TrialFailure::ComponentsEnded { components },
            };
            [during, before].map(|trial| valid(&trial, &steady()))
        };
        use ComponentRole::{App, ServerProxy, Waypoint};
        let exited = || ended(ServerProxy, ComponentEnding::Exited { code: 139 });
        let killed = || ended(Waypoint, ComponentEnding::OutOfMemory);
        assert_eq!(of(vec![exited()]), [Ok(Some(Shortfall::ProxyEnded)); 2]);
        let out_of_memory = [Ok(Some(Shortfall::ProxyOutOfMemory)); 2];
        assert_eq!(of(vec![exited(), killed()]), out_of_memory);
        // The application went as well: the proxy may not be the cause.
        let both = of(vec![exited(), ended(App, ComponentEnding::Ended)]);
        let [during, before] = both;
        assert_eq!(during, Err(InvalidReason::ComponentFailed));
        assert_eq!(before, Err(InvalidReason::Failed));
        // On a disturbed machine, neither counts.
        let during = record_with_ended(vec![exited()]);
        assert_eq!(
            judge(&during, Some(&hog(151_000_000)), &steady()),
            Err(InvalidReason::OtherPrograms)
        );
    }

    #[test]
    fn trial_with_contradicted_evidence_is_invalid() {
        let mut lost = record(good());
        if let TrialOutcome::Measured { lost_evidence, .. } = &mut lost.outcome {
            lost_evidence.push(LostEvidence::NoProxyConnection);
        }
        assert_eq!(valid(&lost, &steady()), Err(InvalidReason::EvidenceLost));
    }

    #[test]
    fn slow_trials_stay_valid() {
        let slow = |l: &mut LoadResult| l.response.record(60_000_000_000);
        assert_eq!(both(slow), [CARRIED; 2]);
    }
}
