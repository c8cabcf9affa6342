//! What a reader must know, in plain sentences.

use std::collections::BTreeSet;

use meshtax_model::analysis::{Analysis, CpuAccount, Effect, Metric, Verdict};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, Role, Variant};

use crate::account::{IN_PATH, account};
use crate::effects::{compare_cells, few_rounds};
use crate::family::{ALPHA, holm};
use crate::interval::UNITS_MIN;
use crate::noise;
use crate::points::sampled;
use crate::tails::TRIALS_ABOVE_MIN;
use crate::trials::Trials;

/// Time that the hypervisor took, as a share of the machine's.
const STEAL_SHARE_MAX: f64 = 0.02;

/// Busy time that no component accounts for, as a share of it.
const UNATTRIBUTED_SHARE_MAX: f64 = 0.10;

/// Below the knee: the share of their cores that the two ends and their proxies may use at a steady
/// point. Above it a good part of the latency is waiting for each other.
const STEADY_BUSY_SHARE_MAX: f64 = 0.40;

/// All of them, the most general first.
pub(crate) fn caveats(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let rules: [fn(&Trials<'_>, &Analysis) -> Vec<String>; 14] = [
        ending,
        amount,
        failures,
        evidence,
        invalid,
        records,
        aa_different,
        unexpected_orderings,
        levels_out_of_order,
        generator_bound,
        steady_too_busy,
        steal,
        noise,
        unattributed,
    ];
    rules
        .iter()
        .flat_map(|rule| rule(trials, analysis))
        .collect()
}

fn ending(_: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    match &analysis.run.ending {
        Some(Ending::TimeUsed | Ending::PrecisionReached) => Vec::new(),
        Some(Ending::Interrupted) => {
            vec!["The run was interrupted: this is what was measured until then.".to_owned()]
        }
        Some(Ending::Failed { reason }) => vec![format!(
            "The run failed: {reason}. This is what was measured until then."
        )],
        None => {
            vec!["The run's end is not on record: it was killed, or is still going on.".to_owned()]
        }
    }
}

fn amount(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let (rounds, blocks) = (analysis.rounds, analysis.blocks);
    let mut said = Vec::new();
    if (rounds as usize) < UNITS_MIN {
        said.push(format!(
            "These processes only: fewer than six rounds ({rounds}). Restarting a process moves \
             its results, which the intervals do not include."
        ));
    }
    if (blocks as usize) < UNITS_MIN {
        said.push(format!(
            "Fewer than six blocks ({blocks}): no intervals are given, and nothing is judged."
        ));
    } else if blocks < TRIALS_ABOVE_MIN && trials.points().iter().any(LoadPoint::is_steady) {
        said.push(format!(
            "Fewer than ten blocks ({blocks}): p99 is not given, since it takes ten trials of \
             each variant."
        ));
    }
    if rounds as usize >= UNITS_MIN {
        let mut few: Vec<&Effect> = analysis.effects.iter().filter(|e| few_rounds(e)).collect();
        few.dedup_by(|a, b| a.variant == b.variant && a.load_point == b.load_point);
        said.extend(few.iter().map(|effect| {
            format!(
                "{} at {}: valid pairs in {} of {rounds} rounds only; with fewer than six its \
                 intervals speak of these processes only.",
                effect.variant, effect.load_point, effect.rounds
            )
        }));
    }
    said
}

fn failures(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    analysis
        .variants
        .iter()
        .filter_map(|variant| {
            if let Some(reason) = &variant.left_out {
                return Some(format!("{} was left out: {reason}.", variant.variant));
            }
            let failed = trials.failures_of(&variant.variant);
            let last = failed.max_by_key(|failure| failure.round)?;
            let rounds: BTreeSet<u32> = trials
                .failures_of(&variant.variant)
                .map(|failure| failure.round)
                .collect();
            Some(format!(
                "{} could not be measured in {} of {} rounds; last: {}.",
                variant.variant,
                rounds.len(),
                variant.rounds_tried,
                last.reason
            ))
        })
        .collect()
}

fn evidence(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    analysis
        .variants
        .iter()
        .filter_map(|variant| {
            let seen: Vec<u32> = trials
                .evidence_of(&variant.variant)
                .map(|evidence| evidence.round)
                .collect();
            let mut unproven = trials.rounds_measured(&variant.variant);
            unproven.retain(|round| !seen.contains(round));
            (!unproven.is_empty()).then(|| {
                format!(
                    "{}: no evidence on record for {} of the rounds in which it was measured.",
                    variant.variant,
                    unproven.len()
                )
            })
        })
        .collect()
}

fn invalid(_: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    analysis
        .variants
        .iter()
        .filter_map(|variant| {
            let points = || variant.points.iter();
            let valid: u32 = points().map(|point| point.valid).sum();
            let invalid: u32 = points().flat_map(|point| point.invalid.values()).sum();
            let mut reasons: Vec<&str> = points()
                .flat_map(|point| point.invalid.keys().map(String::as_str))
                .collect();
            reasons.sort_unstable();
            reasons.dedup();
            (invalid > 0).then(|| {
                format!(
                    "{}: {invalid} of {} trials are invalid and left out ({}).",
                    variant.variant,
                    valid.saturating_add(invalid),
                    reasons.join("; ")
                )
            })
        })
        .collect()
}

fn records(trials: &Trials<'_>, _: &Analysis) -> Vec<String> {
    let mut said = Vec::new();
    if trials.unknown > 0 {
        said.push(format!(
            "{} trials on record belong to no variant or load point of the experiment and are \
             not used.",
            trials.unknown
        ));
    }
    let unsampled = trials.all_valid().filter(|t| t.sample.is_none()).count();
    if unsampled > 0 {
        said.push(format!(
            "{unsampled} valid trials have no resource sample: the CPU and memory figures do \
             without them."
        ));
    }
    said
}

fn aa_different(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let controls: Vec<_> = trials.by_role(Role::Control).map(|v| &v.id).collect();
    analysis
        .effects
        .iter()
        .filter(|e| controls.contains(&&e.variant) && e.verdict == Verdict::Different)
        // Memory hardly varies: a page more in one of the two is no noise that tells anything.
        .filter(|e| e.metric != Metric::AnonymousMemory)
        .map(|effect| {
            format!(
                "The baseline differs from itself in {} at {} ({}): differences of that size \
                 are noise here.",
                effect.metric.name(),
                effect.load_point,
                percent(effect)
            )
        })
        .collect()
}

fn unexpected_orderings(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let is_mesh = |effect: &Effect| {
        trials
            .by_role(Role::Candidate)
            .any(|v| v.id == effect.variant && v.data_plane != "none")
    };
    analysis
        .effects
        .iter()
        .filter(|e| e.verdict == Verdict::Different && better(e) && is_mesh(e))
        .map(|effect| {
            let how = match effect.metric {
                Metric::CpuPerRequest => "uses less CPU than",
                Metric::AnonymousMemory => "holds less memory than",
                _ => "is faster than",
            };
            format!(
                "{} {how} no mesh at {} ({} {}): look for noise, pooling or load balancing; \
                 nothing was left out because of it.",
                effect.variant,
                effect.load_point,
                effect.metric.name(),
                percent(effect)
            )
        })
        .collect()
}

fn better(effect: &Effect) -> bool {
    effect
        .relative
        .is_some_and(|r| (r.value < 0.0) == effect.metric.larger_is_worse() && r.value != 0.0)
}

/// A higher policy level that costs less than a lower one of the same data plane. Judged by
/// the interval of *their* paired difference, adjusted over all such pairs, with the noise
/// floor as margin: that two intervals overlap or not proves nothing.
fn levels_out_of_order(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let mut found = Vec::new();
    for (lower, higher) in level_pairs(trials) {
        for floor in &analysis.noise_floor {
            let Some(margin) = floor.relative else {
                continue;
            };
            let cell = trials.cell(&higher.id, &floor.load_point);
            let reference = trials.cell(&lower.id, &floor.load_point);
            let fit = compare_cells(floor.metric, cell, &[reference]).map(|p| p.log_ratio);
            let Some((fit, p_value)) = fit.and_then(|fit| fit.p_value().map(|p| (fit, p))) else {
                continue;
            };
            let change = fit.estimate.exp_m1();
            let cheaper = (change < 0.0) == floor.metric.larger_is_worse();
            found.push((
                p_value,
                cheaper && change.abs() > margin,
                format!(
                    "{} costs less than {} at {} ({} {:+.1} %), although it promises more: look \
                     for noise or an unequal path.",
                    higher.id,
                    lower.id,
                    floor.load_point,
                    floor.metric.name(),
                    change * 100.0
                ),
            ));
        }
    }
    let p_values: Vec<f64> = found.iter().map(|(p, ..)| *p).collect();
    found
        .into_iter()
        .zip(holm(&p_values))
        .filter(|((_, odd, _), adjusted)| *odd && *adjusted < ALPHA)
        .map(|((.., sentence), _)| sentence)
        .collect()
}

fn level_pairs<'a>(trials: &Trials<'a>) -> Vec<(&'a Variant, &'a Variant)> {
    let plain = || {
        trials
            .by_role(Role::Candidate)
            .filter(|variant| variant.is_plain())
    };
    let mut found = Vec::new();
    for lower in plain() {
        for higher in plain().filter(|v| v.data_plane == lower.data_plane) {
            let levels = lower.level.zip(higher.level);
            if levels.is_some_and(|(low, high)| low < high) {
                found.push((lower, higher));
            }
        }
    }
    found
}

/// In a closed loop the generator being the limit hides cost: say in which direction.
fn generator_bound(trials: &Trials<'_>, _: &Analysis) -> Vec<String> {
    let mut said = Vec::new();
    for point in trials.points().iter().filter(|p| !p.is_steady()) {
        let bound = |variant: &Variant| {
            let cell = trials.cell(&variant.id, &point.id);
            let audits = cell.valid.iter().map(|t| &t.load.audit);
            audits.filter(|a| a.generator_bound.is_some()).count()
        };
        let count = |role| trials.by_role(role).map(bound).sum::<usize>();
        let baselines = count(Role::Baseline) + count(Role::Control);
        let candidates: Vec<String> = trials
            .by_role(Role::Candidate)
            .filter(|variant| bound(variant) > 0)
            .map(|variant| format!("{} ({} trials)", variant.id, bound(variant)))
            .collect();
        if baselines > 0 {
            said.push(format!(
                "At {} the generator was the limit in {baselines} trials of the baselines: \
                 their throughput is a lower bound, so a mesh's true throughput cost is at \
                 least what is shown.",
                point.id
            ));
        }
        if !candidates.is_empty() {
            let so = if baselines > 0 {
                "for these the cost is not bounded either way"
            } else {
                "their true throughput cost is at most what is shown"
            };
            said.push(format!(
                "At {} the generator was the limit with {}: {so}.",
                point.id,
                candidates.join(", ")
            ));
        }
    }
    said
}

/// The steady rate is to leave the slowest variant's cores mostly idle.
fn steady_too_busy(trials: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    let layout = &analysis.environment.layout;
    let cores: BTreeSet<u32> = layout
        .client_node
        .iter()
        .chain(&layout.server_node)
        .copied()
        .collect();
    let mut said = Vec::new();
    for variant in &analysis.variants {
        for point in &variant.points {
            let steady = trials
                .points()
                .iter()
                .any(|p| p.id == point.load_point && p.is_steady());
            let Some(cpu) = point.cpu.as_ref().filter(|_| steady && !cores.is_empty()) else {
                continue;
            };
            let per_request_ns: f64 = cpu
                .components
                .iter()
                .filter(|c| IN_PATH.contains(&c.role))
                .map(|c| c.cpu_per_request_ns)
                .sum();
            let share = per_request_ns * point.achieved_per_s / 1e9 / cores.len() as f64;
            if share > STEADY_BUSY_SHARE_MAX {
                said.push(format!(
                    "{} kept its cores {:.0} % busy at {}: a good part of its latency is queueing \
                     there; a lower rate shows the path alone.",
                    variant.variant,
                    share * 100.0,
                    point.load_point
                ));
            }
        }
    }
    said
}

fn steal(trials: &Trials<'_>, _: &Analysis) -> Vec<String> {
    let all: Vec<_> = trials
        .all_valid()
        .filter_map(|trial| Some((trial.sample?, trial.load.completed)))
        .collect();
    let Some(account) = account(&all) else {
        return Vec::new();
    };
    let share = account.shown.steal_ns as f64 / account.capacity_ns.max(1) as f64;
    if share <= STEAL_SHARE_MAX {
        return Vec::new();
    }
    vec![format!(
        "The hypervisor gave {:.1} % of the machine's time to others: expect wide intervals, \
         and latencies that are not the mesh's.",
        share * 100.0
    )]
}

fn noise(_: &Trials<'_>, analysis: &Analysis) -> Vec<String> {
    noise::caveats(&analysis.noise, &analysis.environment.host.clock_source)
}

/// Kernels without the hypervisor's clock charge what it takes away to whoever was running.
fn why_exceeded(account: &CpuAccount) -> &'static str {
    let beyond = i128::from(account.attributed_ns) - i128::from(account.busy_ns);
    if beyond <= i128::from(account.steal_ns) + i128::from(account.resolution_ns) {
        "the kernel counts time that the hypervisor took as the components' own; their CPU figures \
         are upper bounds"
    } else {
        "the components' CPU time exceeds the machine's busy time by more than the kernel's step \
         explains; read its CPU figures with care"
    }
}

fn unattributed(trials: &Trials<'_>, _: &Analysis) -> Vec<String> {
    let mut said = Vec::new();
    for variant in trials.variants() {
        for point in trials.points() {
            let cell = trials.cell(&variant.id, &point.id);
            let Some(account) = account(&sampled(cell)) else {
                continue;
            };
            if account.exceeded {
                said.push(format!(
                    "{} at {}: {}.",
                    variant.id,
                    point.id,
                    why_exceeded(&account.shown)
                ));
            }
            let rest = account.shown.unattributed_ns.unwrap_or(0) as f64;
            let share = rest / account.shown.busy_ns.max(1) as f64;
            if !point.is_steady() && share > UNATTRIBUTED_SHARE_MAX {
                said.push(format!(
                    "{} at {}: {:.0} % of the machine's busy time belongs to no component \
                     (interrupts, kernel work outside any process, other programs); CPU per \
                     request is without it.",
                    variant.id,
                    point.id,
                    share * 100.0
                ));
            }
        }
    }
    said
}

fn percent(effect: &Effect) -> String {
    let change = effect.relative.map_or(0.0, |relative| relative.value);
    format!("{:+.1} %", change * 100.0)
}
