//! Start-up time and idle usage of a variant: by rounds, since each round starts new processes.

use std::collections::BTreeMap;

use meshtax_model::analysis::{Estimate, Upkeep};
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{Role, Variant, VariantId};

use crate::interval::{CONFIDENCE, Student, mean};
use crate::trials::Trials;

/// The figures of one variant.
pub(crate) fn upkeep(trials: &Trials<'_>, of: &Variant) -> Upkeep {
    let variant = &of.id;
    let served = |seen: &Evidence| seen.start.served_ns.map(|ns| ns as f64);
    let started = by_round(trials, variant, served);
    let baselines: Vec<BTreeMap<u32, f64>> = [Role::Baseline, Role::Control]
        .into_iter()
        .flat_map(|role| trials.by_role(role))
        .map(|baseline| by_round(trials, &baseline.id, served))
        .collect();
    let candidate = started.iter().filter(|_| of.role == Role::Candidate);
    let added = candidate.filter_map(|(round, ns)| {
        let without: Option<Vec<f64>> = baselines.iter().map(|b| b.get(round).copied()).collect();
        Some(ns - mean(&without?)?)
    });
    let pushed = |seen: &Evidence| seen.start.pushed_ns.map(|ns| ns as f64);
    Upkeep {
        idle_cores: estimate(&idle(trials, variant)),
        start_ns: estimate(&started.values().copied().collect::<Vec<_>>()),
        added_start_ns: estimate(&added.collect::<Vec<_>>()),
        push_ns: estimate(
            &by_round(trials, variant, pushed)
                .into_values()
                .collect::<Vec<_>>(),
        ),
    }
}

/// The mean over the rounds.
fn estimate(rounds: &[f64]) -> Option<Estimate> {
    let value = mean(rounds)?;
    let student = Student::of(rounds, value);
    Some(Estimate {
        value,
        interval: student.and_then(|student| student.interval(value, CONFIDENCE)),
    })
}

/// Over the rounds in which its evidence passed.
fn by_round(
    trials: &Trials<'_>,
    variant: &VariantId,
    figure: impl Fn(&Evidence) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    let proven = trials.evidence_of(variant).filter(|seen| seen.passed());
    proven
        .filter_map(|seen| Some((seen.round, figure(seen)?)))
        .collect()
}

/// CPU of its proxies while others were measured, for each round as a share of one core. A trial that is invalid for
/// the measured variant is still used for the idle ones: a CPU clock is per process.
fn idle(trials: &Trials<'_>, variant: &VariantId) -> Vec<f64> {
    let mut rounds: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in trials.data.trials {
        let Some(sample) = trials.sample(&record.trial.id) else {
            continue;
        };
        let of_variant = sample.idle_proxies.iter().find(|i| i.variant == *variant);
        if let Some(idle) = of_variant {
            let (cpu_ns, wall_ns) = rounds.entry(record.trial.round).or_default();
            *cpu_ns = cpu_ns.saturating_add(idle.cpu_ns);
            *wall_ns = wall_ns.saturating_add(sample.wall_ns());
        }
    }
    let shares = rounds.into_values().filter(|(_, wall_ns)| *wall_ns > 0);
    shares
        .map(|(cpu_ns, wall_ns)| cpu_ns as f64 / wall_ns as f64)
        .collect()
}
