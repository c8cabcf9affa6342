//! Sentences for the ids of reasons: why something has no figure, does not count, or failed.

use meshtax_model::advice::{CostFigure, InconclusiveObjective, MissingReason, ProxyPlace, Topic};
use meshtax_model::analysis::{
    Arm, ExclusionReason, InvalidReason, NoLevel, NotEstimable, Unresolved, Withheld,
};
use meshtax_model::comparison::InconclusiveCheck;
use meshtax_model::evidence::{FailedProbe, ProbeId};
use meshtax_model::experiment::VariantId;
use meshtax_model::failure::VariantFailureReason;
use meshtax_model::scaling::NoLine;
use meshtax_model::trial::{GeneratorBound, GeneratorLimit};

use crate::format;

/// A probe's name: `permitted request`.
pub(crate) fn probe(probe: ProbeId) -> String {
    match probe {
        ProbeId::ForeignCa => "foreign CA".to_owned(),
        ProbeId::Handshake => "TLS handshake".to_owned(),
        other => other.id().replace('-', " "),
    }
}

/// `canary: readable in both directions`.
fn failed_probe(failed: &FailedProbe) -> String {
    format!("{}: {}", probe(failed.probe), failed.seen)
}

/// Why a variant could not be measured in a round.
pub(crate) fn variant_failure(reason: &VariantFailureReason) -> String {
    let listed = |probes: &[FailedProbe]| {
        let all: Vec<String> = probes.iter().map(failed_probe).collect();
        all.join("; ")
    };
    match reason {
        VariantFailureReason::NotProven {
            ended,
            missing_proxies,
            probes,
        } => {
            let before = VariantFailureReason::NotProven {
                ended: ended.clone(),
                missing_proxies: missing_proxies.clone(),
                probes: Vec::new(),
            };
            let parts = [before.to_string(), listed(probes)];
            let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            parts.join("; ")
        }
        VariantFailureReason::LostByRoundEnd { probes } => {
            format!("probes failed at the round's end: {}", listed(probes))
        }
        other => other.to_string(),
    }
}

/// Why a variant has no trials.
pub(crate) fn exclusion(reason: &ExclusionReason) -> String {
    match reason {
        ExclusionReason::Failed { failure, .. } => variant_failure(failure),
        ExclusionReason::NoTrials => "no trial of it is on record".to_owned(),
    }
}

/// Why a trial does not count.
pub(crate) fn invalid(reason: InvalidReason) -> &'static str {
    match reason {
        InvalidReason::Failed => "the trial failed",
        InvalidReason::Repeated => "recorded twice",
        InvalidReason::NotProven => "a probe failed in this round",
        InvalidReason::ComponentFailed => "a component ended or was restarted",
        InvalidReason::OutOfMemory => "a component exceeded its memory limit and was killed",
        InvalidReason::NoRequests => "no requests",
        InvalidReason::EvidenceLost => "the evidence no longer held at its end",
        InvalidReason::Throttled => "throttled by a CPU limit",
        InvalidReason::Steal => {
            "the hypervisor took more than 10 % of the CPU time that its block needed"
        }
        InvalidReason::LateBySteal => "the hypervisor took a core when requests were due",
        InvalidReason::OtherPrograms => "another program used its cores",
        InvalidReason::MemoryGrowth => "memory grew throughout the trial",
        InvalidReason::GeneratorBound => "the generator was the limit",
    }
}

/// `the baselines`, `envoy-sidecar-mtls`.
fn names(arm: &Arm) -> String {
    match arm {
        Arm::Variant => "it".to_owned(),
        Arm::Baselines => "the baselines".to_owned(),
        Arm::Variants { variants } => {
            let ids: Vec<&str> = variants.iter().map(|id| id.0.as_str()).collect();
            ids.join(" and ")
        }
    }
}

/// `its trials`, `the baselines' trials`.
fn trials_of(arm: &Arm) -> String {
    match arm {
        Arm::Variant => "its trials".to_owned(),
        other => format!("the trials of {}", names(other)),
    }
}

fn unresolved(unresolved: &Unresolved) -> String {
    let Unresolved {
        metric,
        trials,
        requests,
        needed,
    } = unresolved;
    let name = metric.name();
    if trials < needed {
        format!(
            "{name} not resolved: only {trials} {} requests above it, {needed} are needed",
            format::plural(*trials as usize, "trial has", "trials have")
        )
    } else {
        format!(
            "{name} not resolved: {requests} {} above it, {needed} are needed",
            format::plural(*requests as usize, "request", "requests")
        )
    }
}

/// Why a difference has no estimate. `of`: the variant that it is of, which need not be named.
pub(crate) fn not_estimable(reason: &NotEstimable, of: Option<&VariantId>) -> String {
    match reason {
        NotEstimable::Excluded { variant, reason } => {
            let why = exclusion(reason);
            match of == Some(variant) {
                true => format!("excluded: {why}"),
                false => format!("{variant} was excluded: {why}"),
            }
        }
        NotEstimable::TooManyInvalid {
            arm,
            invalid,
            trials,
        } => format!(
            "more than 10 % of {} are invalid ({invalid} of {trials})",
            trials_of(arm)
        ),
        NotEstimable::TooManyDisturbed {
            arm,
            disturbed,
            trials,
        } => format!(
            "the hypervisor disturbed more than three in four of {} ({disturbed} of {trials})",
            trials_of(arm)
        ),
        NotEstimable::BeyondMachine { trials, of } => beyond_machine(*trials, *of),
        NotEstimable::LoadNotCarried { trials, of } => load_not_carried(*trials, *of),
        NotEstimable::Overloaded { variant } if of == Some(variant) => "overloaded".to_owned(),
        NotEstimable::Overloaded { variant } => format!("{variant} is overloaded"),
        NotEstimable::NoTrials => "no trial of it at this load point".to_owned(),
        NotEstimable::NoValidTrials { arm } => format!("no valid trial of {}", names(arm)),
        NotEstimable::NothingServed { arm, trials } => format!(
            "no request was served in {trials} of {}, so there is no ratio",
            trials_of(arm)
        ),
        NotEstimable::Unresolved {
            arm: Arm::Variant,
            unresolved: missing,
        } => unresolved(missing),
        NotEstimable::Unresolved {
            arm,
            unresolved: missing,
        } => format!("of {}: {}", names(arm), unresolved(missing)),
        NotEstimable::NoCommonBlock => "no block with a valid trial of both".to_owned(),
        NotEstimable::NoCommonSample => "no block with resource samples of both".to_owned(),
        NotEstimable::FewBlocks { blocks } => {
            format!("fewer than six blocks with a valid pair ({blocks})")
        }
        NotEstimable::NoNoiseFloor => {
            "no noise floor: the A/A pair has no interval here".to_owned()
        }
        NotEstimable::NotInRun => "a run does not have it".to_owned(),
        NotEstimable::DifferentMachineSizes => {
            "throughput is not compared between machines with different numbers of cores".to_owned()
        }
        NotEstimable::NotFinite => "the figures are not finite".to_owned(),
        NotEstimable::InSide { side, reason } => {
            format!("in {side}: {}", not_estimable(reason, of))
        }
    }
}

fn beyond_machine(trials: u32, of: u32) -> String {
    format!(
        "the load is beyond this machine: {trials} of {of} trials of the baselines did not carry it"
    )
}

fn load_not_carried(trials: u32, of: u32) -> String {
    format!(
        "{trials} of {of} trials did not carry the load, too few to show that the variant is the cause"
    )
}

/// Why a metric has no level.
pub(crate) fn no_level(reason: NoLevel) -> String {
    match reason {
        NoLevel::NoValidTrials => "no valid trial".to_owned(),
        NoLevel::NoResourceSample => "no resource sample".to_owned(),
        NoLevel::NoRequests => "no requests".to_owned(),
        NoLevel::NoMemoryReading => "memory was not read".to_owned(),
        NoLevel::Unresolved(missing) => unresolved(&missing),
    }
}

/// Why a gate's check is inconclusive. `of`: the variant that it is on.
pub(crate) fn inconclusive_check(reason: &InconclusiveCheck, of: Option<&VariantId>) -> String {
    match reason {
        InconclusiveCheck::NotEstimable { reason } => not_estimable(reason, of),
        InconclusiveCheck::NoBaseLevel => {
            "BASE has no level to relate an absolute limit to".to_owned()
        }
        InconclusiveCheck::LimitOutOfRange => {
            "the limit requires a decrease of more than 100 %".to_owned()
        }
        InconclusiveCheck::NoInterval => "there is no interval".to_owned(),
        InconclusiveCheck::IntervalContainsLimit => "the interval contains the limit".to_owned(),
        InconclusiveCheck::NotAfterAdjustment => {
            "beyond the limit, but not after adjustment for the number of checks".to_owned()
        }
        InconclusiveCheck::LowerBound => {
            "within the limit, but requests are missing from the latencies: the change is a lower bound"
                .to_owned()
        }
        InconclusiveCheck::CpuElsewhere => {
            "with the CPU outside the path (unattributed, generator, control plane), this is not shown"
                .to_owned()
        }
        InconclusiveCheck::MissingRun { reason } => {
            format!("within the limit, but not in each run of NEW: {}", not_estimable(reason, of))
        }
        InconclusiveCheck::UpperBound => {
            "beyond the limit, but requests are missing from the latencies that it is compared with: the \
             change is an upper bound"
                .to_owned()
        }
    }
}

/// Why two variants are not told apart although their figures suggest it.
pub(crate) fn withheld(why: Withheld) -> &'static str {
    match why {
        Withheld::LowerBound => "requests are missing from latencies that look better or equal",
        Withheld::CpuElsewhere => "CPU outside the path does not support it",
    }
}

/// Why an objective is inconclusive. `metric`: the metric of the objective.
pub(crate) fn inconclusive_objective(reason: &InconclusiveObjective, metric: &str) -> String {
    match reason {
        InconclusiveObjective::NotMeasured { reason } => {
            format!("not measured: {}", exclusion(reason))
        }
        InconclusiveObjective::NoTrials => "no trial of it at this load".to_owned(),
        InconclusiveObjective::NotOnRecord => format!("{metric} is not on record"),
        InconclusiveObjective::NoLevel { reason, invalid } => {
            let why = no_level(*reason);
            let kinds: Vec<&str> = invalid
                .iter()
                .map(|reason| self::invalid(*reason))
                .collect();
            match kinds.as_slice() {
                [] => why,
                kinds => format!("{why} ({})", kinds.join("; ")),
            }
        }
        InconclusiveObjective::NoInterval => "no interval: fewer than six valid blocks".to_owned(),
        InconclusiveObjective::IntervalContainsBound => {
            "the interval contains the bound".to_owned()
        }
        InconclusiveObjective::LowerBound => {
            "within the bound, but requests are missing from it: it is a lower bound".to_owned()
        }
        InconclusiveObjective::LoadNotCarried { trials, of } => load_not_carried(*trials, *of),
        InconclusiveObjective::BeyondMachine => {
            "the load is beyond this machine: the baselines did not carry it either".to_owned()
        }
    }
}

/// A figure of a cost, by name.
pub(crate) fn cost_figure(figure: CostFigure) -> &'static str {
    match figure {
        CostFigure::Cpu => "CPU",
        CostFigure::Memory => "memory",
        CostFigure::IdleCpu => "idle CPU",
        CostFigure::ProgramPages => "program pages",
        CostFigure::ControlPlane => "control plane",
    }
}

/// Why a figure of a cost is missing. `of`: the variant whose cost it is.
pub(crate) fn missing(reason: &MissingReason, of: &VariantId) -> String {
    match reason {
        MissingReason::NoCount { per } => {
            let (per, flag) = match per {
                ProxyPlace::Pod => ("pod", "--pods"),
                ProxyPlace::Node => ("node", "--nodes"),
            };
            format!("it has one proxy per {per}: give their number with {flag}")
        }
        MissingReason::NoRequestRate => {
            "the requests per second are not given: --requests".to_owned()
        }
        MissingReason::GatewayOnly => {
            "all clients of this run came through a gateway: the cost between services was not measured".to_owned()
        }
        MissingReason::NotMeasured => "nothing of it was measured".to_owned(),
        MissingReason::NotOnRecord { metric } => format!("no {} on record", metric.name()),
        MissingReason::NotEstimable { reason } => not_estimable(reason, Some(of)),
        MissingReason::OutOfRange => "the figure is out of range".to_owned(),
        MissingReason::InRunReport => {
            "the run's own report shows what proxies use without requests; CPU under load includes it".to_owned()
        }
        MissingReason::NotRead => {
            "this run has no reading of what its proxies use without requests".to_owned()
        }
        MissingReason::SharedByNode => {
            "file pages, of which a node has one copy of each program, are not part of the memory".to_owned()
        }
        MissingReason::ClusterOnly => "exists in a cluster only: not measured here".to_owned(),
    }
}

/// Why there is no line through the runs.
pub(crate) fn no_line(reason: Option<NoLine>) -> String {
    match reason {
        Some(NoLine::FewRuns { runs, of, needed }) => {
            format!("{runs} of {of} runs have a figure; a line needs {needed}")
        }
        Some(NoLine::OneNumber) => "all runs have the same number".to_owned(),
        None => "no fit".to_owned(),
    }
}

/// As it was typed: `--cni cilium`.
pub(crate) fn topic(topic: &Topic) -> String {
    match topic {
        Topic::Cni { name } => format!("--cni {name}"),
        Topic::Managed { name } => format!("--managed {name}"),
        Topic::Fips => "--need fips".to_owned(),
    }
}

/// Why the load generator was the limit.
pub(crate) fn generator_bound(bound: &GeneratorBound) -> String {
    let whose = match &bound.worker {
        Some(worker) => format!("worker {worker}: "),
        None => String::new(),
    };
    let why = match bound.limit {
        GeneratorLimit::Busy {
            busy_share,
            closed_loop: true,
            ..
        } => format!(
            "the generator was busy for {:.0} % of the window: it, not the system under test, may limit the throughput",
            busy_share * 100.0
        ),
        GeneratorLimit::Busy {
            busy_share,
            max_share,
            closed_loop: false,
        } => format!(
            "the generator was busy for {:.0} % of the window (limit {:.0} %): requests queued in it",
            busy_share * 100.0,
            max_share * 100.0
        ),
        GeneratorLimit::LateSends {
            quantile,
            lag_ns,
            max_lag_ns,
        } => format!(
            "the generator sent 1 request in {:.0} more than {:.2} ms late with a connection free (limit {:.2} ms)",
            1.0 / (1.0 - quantile),
            lag_ns as f64 / 1e6,
            max_lag_ns as f64 / 1e6
        ),
    };
    whose + &why
}
