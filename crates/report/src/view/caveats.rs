//! A sentence for each caveat, and for each note of a comparison.

use meshtax_model::analysis::{Caveat, Metric, ProgramShare, VariantTrials};
use meshtax_model::comparison::ComparisonNote;
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::experiment::{LoadPointId, VariantId};

use super::outcome::{overload, shortfall};
use super::reasons::{exclusion, invalid, variant_failure};
use crate::format;

fn percent(share: f64) -> String {
    format!("{:.0} %", share.abs() * 100.0)
}

fn signed(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

fn all<T>(things: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<String> = things.iter().map(text).collect();
    texts.join(", ")
}

/// Caveats for the reader.
pub(crate) fn sentence(caveat: &Caveat) -> String {
    match caveat {
        Caveat::Incomplete { .. }
        | Caveat::Resumed { .. }
        | Caveat::FewRounds { .. }
        | Caveat::FewBlocks { .. }
        | Caveat::FewBlocksForP99 { .. }
        | Caveat::UnknownTrials { .. }
        | Caveat::ClusterWarnings { .. }
        | Caveat::PublishedFigures { .. } => of_the_run(caveat),
        Caveat::FewPairedRounds { .. }
        | Caveat::Excluded { .. }
        | Caveat::FailedInRounds { .. }
        | Caveat::NoEvidence { .. }
        | Caveat::InvalidTrials { .. }
        | Caveat::UnequalExclusion { .. }
        | Caveat::NoResourceSample { .. } => of_trials(caveat),
        Caveat::Overloaded { .. } | Caveat::BeyondMachine { .. } | Caveat::ShortTrials { .. } => {
            not_carried(caveat)
        }
        Caveat::NotWarm { .. }
        | Caveat::GrowingProxies { .. }
        | Caveat::GeneratorBoundBaselines { .. }
        | Caveat::GeneratorBoundCandidates { .. }
        | Caveat::BusyAtSteady { .. } => of_loads(caveat),
        Caveat::BaselinesDiffer { .. }
        | Caveat::CheaperThanNoMesh { .. }
        | Caveat::HigherLevelCheaper { .. }
        | Caveat::BelowFloor { .. } => of_figures(caveat),
        Caveat::Steal { .. }
        | Caveat::OtherPrograms { .. }
        | Caveat::Throttled { .. }
        | Caveat::MemoryPressure { .. }
        | Caveat::SpeedDrift { .. }
        | Caveat::SpeedSpread { .. }
        | Caveat::SlowClock { .. } => of_the_machine(caveat),
        Caveat::CpuAboveBusy { .. } | Caveat::Unattributed { .. } => of_accounting(caveat),
    }
}

/// About the run as a whole.
fn of_the_run(caveat: &Caveat) -> String {
    match caveat {
        Caveat::Incomplete { ending } => incomplete(ending.as_ref()),
        Caveat::Resumed { resumptions } => resumed(resumptions),
        Caveat::FewRounds { rounds } => format!(
            "Fewer than six rounds ({rounds}): the intervals hold for these processes only. Restarted processes differ by \
             more, which so few rounds cannot show."
        ),
        Caveat::FewBlocks { blocks } => {
            format!("Fewer than six blocks ({blocks}): there are no intervals and no verdicts.")
        }
        Caveat::FewBlocksForP99 { blocks } => format!(
            "Fewer than ten blocks ({blocks}): there is no p99, which needs ten trials of each variant."
        ),
        Caveat::UnknownTrials { trials } => format!(
            "{trials} trials on record belong to no variant or load point of the experiment and are not used."
        ),
        Caveat::ClusterWarnings { reasons, events } => format!(
            "The cluster reported {events} {} about the run's pods ({}): the page lists its events with their times.",
            format::plural(*events as usize, "warning", "warnings"),
            reasons.join(", ")
        ),
        Caveat::PublishedFigures { study } => format!(
            "Figures published as {study} are shown beside the measured ones, as requested: they are from other \
             machines, another load and another application. `meshtax published show {study}` has their source."
        ),
        _ => String::new(),
    }
}

/// About which variants and trials there are.
fn of_trials(caveat: &Caveat) -> String {
    match caveat {
        Caveat::FewPairedRounds {
            variant,
            load_point,
            rounds,
            of,
        } => format!(
            "{variant} at {load_point}: valid pairs in {rounds} of {of} rounds only; with fewer than six its intervals \
             describe these processes only."
        ),
        Caveat::Excluded { variant, reason } => {
            format!("{variant} was excluded: {}.", exclusion(reason))
        }
        Caveat::FailedInRounds {
            variant,
            rounds,
            of,
            last,
        } => format!(
            "{variant} could not be measured in {rounds} of {of} rounds; last: {}.",
            variant_failure(last)
        ),
        Caveat::NoEvidence { variant, rounds } => format!(
            "{variant}: no evidence on record for {rounds} of the rounds in which it was measured."
        ),
        Caveat::InvalidTrials {
            variant,
            invalid: count,
            of,
            reasons,
        } => {
            let reasons: Vec<&str> = reasons.iter().map(|reason| invalid(*reason)).collect();
            format!(
                "{variant}: {count} of {of} trials {} invalid and excluded ({}).",
                format::plural(*count as usize, "is", "are"),
                reasons.join("; ")
            )
        }
        Caveat::UnequalExclusion {
            variant,
            load_point,
            invalid,
            of,
            baselines_invalid,
            baselines_of,
        } => format!(
            "{variant} at {load_point}: {invalid} of {of} trials were excluded, and {baselines_invalid} of \
             {baselines_of} of the baselines. This is more than chance: what is left may not be comparable."
        ),
        Caveat::NoResourceSample { trials } => format!(
            "{trials} valid {} no resource sample: CPU and memory figures exclude such trials.",
            format::plural(*trials as usize, "trial has", "trials have")
        ),
        _ => String::new(),
    }
}

/// About loads that the generator limited, that were not warm, or too much for a steady state.
fn of_loads(caveat: &Caveat) -> String {
    match caveat {
        Caveat::NotWarm {
            variant,
            load_point,
            trials,
            of,
            most,
        } => format!(
            "{variant} at {load_point}: in {trials} of {of} trials its proxies opened connections to each other within \
             the window (up to {most}). Their handshakes are part of its figures."
        ),
        Caveat::GrowingProxies {
            variant,
            load_point,
            trials,
            of,
        } => format!(
            "{variant} at {load_point}: the memory of its proxies grew throughout {trials} of {of} trials. Its memory is \
             that of these moments: a longer run may need more."
        ),
        Caveat::GeneratorBoundBaselines { load_point, trials } => format!(
            "At {load_point} the generator was the limit in {trials} trials of the baselines: their throughput is a \
             lower bound, so a mesh's true throughput cost is at least what is shown."
        ),
        Caveat::GeneratorBoundCandidates {
            load_point,
            variants,
            baselines_too,
        } => {
            let so = match baselines_too {
                true => "for these the cost has no bound on either side",
                false => "their true throughput cost is at most what is shown",
            };
            let variants = all(variants, |of: &VariantTrials| {
                format!("{} ({} trials)", of.variant, of.trials)
            });
            format!("At {load_point} the generator was the limit with {variants}: {so}.")
        }
        Caveat::BusyAtSteady {
            variant,
            load_point,
            busy_share,
        } => format!(
            "{variant} kept its cores {} busy at {load_point}, so a large part of its latency is queueing; a lower \
             rate shows the cost of the path alone.",
            percent(*busy_share)
        ),
        _ => String::new(),
    }
}

/// Loads that were not carried.
fn not_carried(caveat: &Caveat) -> String {
    match caveat {
        Caveat::Overloaded {
            variant,
            load_point,
            overload: found,
        } => format!(
            "{variant} is overloaded at {load_point}: it {}. Its latencies are lower bounds.",
            overload(found)
        ),
        Caveat::BeyondMachine {
            load_point,
            trials,
            of,
        } => format!(
            "{load_point} is beyond this machine: {trials} of {of} trials of the baselines did not carry the load, so no \
             variant can be judged there."
        ),
        Caveat::ShortTrials {
            variant,
            load_point,
            trials,
            of,
            shortfalls,
        } => format!(
            "{variant} at {load_point}: {trials} of {of} trials did not carry the load ({}). They count.",
            all(shortfalls, |one| shortfall(*one).to_owned())
        ),
        _ => String::new(),
    }
}

/// About figures that contradict what is expected of them.
fn of_figures(caveat: &Caveat) -> String {
    match caveat {
        Caveat::BaselinesDiffer {
            metric,
            load_point,
            change,
        } => format!(
            "The baseline differs from itself in {} at {load_point} ({}): differences of that size are noise here.",
            metric.name(),
            signed(*change)
        ),
        Caveat::CheaperThanNoMesh {
            variant,
            metric,
            load_point,
            change,
        } => cheaper(variant, *metric, load_point, *change),
        Caveat::HigherLevelCheaper {
            higher,
            lower,
            metric,
            load_point,
            change,
        } => format!(
            "{higher} costs less than {lower} at {load_point} ({} {}), although its policy level is higher: check for \
             noise or an unequal path.",
            metric.name(),
            signed(*change)
        ),
        Caveat::BelowFloor {
            floor,
            variant,
            metric,
            load_point,
            change,
        } => format!(
            "At {load_point} {floor} is a reference, not a floor: {variant} costs less ({} {}).",
            metric.name(),
            signed(*change)
        ),
        _ => String::new(),
    }
}

/// The caveats that the machine is the cause of.
fn of_the_machine(caveat: &Caveat) -> String {
    match caveat {
        Caveat::Steal { share } => format!(
            "The hypervisor gave {:.1} % of the machine's time to others: expect wide intervals, and latencies that \
             are not the mesh's.",
            share * 100.0
        ),
        Caveat::OtherPrograms { programs } => {
            let programs = all(programs, |used: &ProgramShare| {
                format!("{} {}", used.program, percent(used.share))
            });
            format!(
                "Other programs used the cores of the run (share of one core: {programs}): stop them, or expect wide \
                 intervals."
            )
        }
        Caveat::Throttled { share } => format!(
            "A CPU limit throttled processes for {:.1} % of the time: raise the limit of this container or service.",
            share * 100.0
        ),
        Caveat::MemoryPressure { share } => format!(
            "Memory was short: something waited for it for {} of the time.",
            percent(*share)
        ),
        Caveat::SpeedDrift { drift } => {
            let how = if *drift > 0.0 { "slower" } else { "faster" };
            format!(
                "The machine became {} {how} over the run. Pairs are close in time, so differences hold; levels \
                 describe no particular moment.",
                percent(*drift)
            )
        }
        Caveat::SpeedSpread { spread } => format!(
            "The machine's speed varied by {} from moment to moment: expect wide intervals.",
            percent(*spread)
        ),
        Caveat::SlowClock { clock } => format!(
            "The kernel's clock source is {clock}, which is slow to read, and each request is timed several times."
        ),
        _ => String::new(),
    }
}

/// CPU time that the components do not account for, or account for twice.
fn of_accounting(caveat: &Caveat) -> String {
    match caveat {
        Caveat::CpuAboveBusy {
            variant,
            load_point,
            by_steal,
        } => {
            let why = match by_steal {
                true => {
                    "the kernel charges time that the hypervisor took to the components; their CPU figures are upper \
                     bounds"
                }
                false => {
                    "the components' CPU time exceeds the machine's busy time by more than the kernel's resolution \
                     explains; read its CPU figures with care"
                }
            };
            format!("{variant} at {load_point}: {why}.")
        }
        Caveat::Unattributed {
            variant,
            load_point,
            share,
        } => format!(
            "{variant} at {load_point}: {} of the machine's busy time belongs to no component (interrupts, kernel work \
             outside any process, other programs); CPU per request does not include it.",
            percent(*share)
        ),
        _ => String::new(),
    }
}

fn incomplete(ending: Option<&Ending>) -> String {
    match ending {
        Some(Ending::Interrupted) => {
            "The run was interrupted: this is what was measured until then.".to_owned()
        }
        Some(Ending::Failed { detail, .. }) => {
            format!("The run failed: {detail}. This is what was measured until then.")
        }
        _ => "The run's end is not on record: it was killed, or is still in progress.".to_owned(),
    }
}

fn resumed(resumptions: &[Resumption]) -> String {
    let each = all(resumptions, |resumption| {
        let restarted = match resumption.restarted {
            true => " and a restart of the machine",
            false => "",
        };
        format!(
            "{} after round {}, a pause of {}{restarted}",
            format::date_utc(resumption.at_unix_ms),
            resumption.after_round,
            format::duration(resumption.paused_ns)
        )
    });
    format!(
        "The run was interrupted and resumed ({each}). Pairs lie within a block, so differences hold; levels describe no \
         particular moment."
    )
}

fn cheaper(variant: &VariantId, metric: Metric, load_point: &LoadPointId, change: f64) -> String {
    let how = match metric {
        Metric::CpuPerRequest => "uses less CPU than",
        Metric::AnonymousMemory => "uses less memory than",
        _ => "is faster than",
    };
    format!(
        "{variant} {how} no mesh at {load_point} ({} {}): check for noise, pooling or load balancing; nothing was \
         excluded because of it.",
        metric.name(),
        signed(change)
    )
}

/// Caveats of a comparison.
pub(crate) fn note(note: &ComparisonNote) -> String {
    match note {
        ComparisonNote::SameRun { run } => {
            format!("{run} is on both sides, so nothing can differ.")
        }
        ComparisonNote::SameSeed { seed } => {
            format!("Same seed ({seed}): the same order and the same arrivals.")
        }
        ComparisonNote::UnpairedVariants { side, variants } => format!(
            "Only in {side}, and not compared: variant {}.",
            all(variants, ToString::to_string)
        ),
        ComparisonNote::UnpairedLoadPoints { side, load_points } => format!(
            "Only in {side}, and not compared: load {}.",
            all(load_points, ToString::to_string)
        ),
        ComparisonNote::IncompleteRun { side, run, ending } => match ending {
            Some(Ending::Interrupted) => format!("{side}'s run {run} was interrupted."),
            Some(Ending::Failed { detail, .. }) => format!("{side}'s run {run} failed: {detail}."),
            _ => format!("{side}'s run {run} has no end on record."),
        },
    }
}
