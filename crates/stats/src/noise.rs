//! What else happened on the machine, and what of it a reader must know.

use std::collections::BTreeMap;

use meshtax_model::analysis::{InstanceSpread, Metric, NoiseFacts, Speed};
use meshtax_model::experiment::{LoadPoint, Role};
use meshtax_model::trial::{MachineUsage, ResourceSample};

use crate::effects::{figure, is_primary};
use crate::pairing::{BlockKey, ByBlock, pairs};
use crate::points::median_of;
use crate::trials::Trials;

/// Other programs that are named at most.
const NAMED: usize = 5;

/// A machine that became slower or faster by this is another one at the end.
const DRIFT_MAX: f64 = 0.10;

/// Between its slow and its fast moments.
const SPEED_SPREAD_MAX: f64 = 0.25;

/// As a share of the windows.
const MEMORY_PRESSURE_MAX: f64 = 0.01;

/// Of one core.
const OTHERS_SHARE_TOLD: f64 = 0.05;

/// Clocks that are read in tens of nanoseconds, without leaving the processor.
const FAST_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "fake",
];

/// The facts, over all trials that were measured, valid or not: what disturbed a trial is why it is not.
pub(crate) fn facts(trials: &Trials<'_>) -> NoiseFacts {
    let samples: Vec<&ResourceSample> = trials.data.samples.iter().collect();
    let wall_ns: f64 = sum(&samples, |machine| Some(machine.wall_ns)).unwrap_or(0.0);
    let share = |figure: fn(&MachineUsage) -> Option<u64>| {
        let passed_ns = sum(&samples, figure)?;
        (wall_ns > 0.0).then(|| passed_ns / wall_ns)
    };
    let cores = samples.first().map_or(1, |s| s.machine.cores.max(1));
    NoiseFacts {
        steal_share: share(|machine| Some(machine.steal_ns)).map(|s| s / f64::from(cores)),
        throttled_share: share(|machine| machine.throttled_ns),
        memory_pressure_share: share(|machine| machine.memory_pressure_ns),
        others: others(&samples),
        speed: speed(&samples),
        frequency_khz: frequency(&samples),
        instances: instances(trials),
    }
}

fn sum(samples: &[&ResourceSample], figure: impl Fn(&MachineUsage) -> Option<u64>) -> Option<f64> {
    let figures = samples
        .iter()
        .map(|s| figure(&s.machine).map(|ns| ns as f64));
    figures.sum()
}

fn others(samples: &[&ResourceSample]) -> Option<Vec<(String, f64)>> {
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    let mut looked_ns = 0.0;
    for sample in samples {
        looked_ns += sample.looked_ns.max(sample.machine.wall_ns) as f64;
        for other in sample.others.as_ref()? {
            *by_name.entry(&other.name).or_default() += other.cpu_ns as f64;
        }
    }
    let shares = by_name.into_iter().filter(|(_, ns)| *ns > 0.0);
    let mut shares: Vec<(String, f64)> = shares
        .map(|(name, ns)| (name.to_owned(), ns / looked_ns.max(1.0)))
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares.truncate(NAMED);
    (!samples.is_empty()).then_some(shares)
}

fn speed(samples: &[&ResourceSample]) -> Option<Speed> {
    let probes: Vec<f64> = samples
        .iter()
        .filter_map(|s| s.speed_probe_ns)
        .flatten()
        .map(|ns| ns as f64)
        .filter(|ns| *ns > 0.0)
        .collect();
    let third = probes.len() / 3;
    if third == 0 {
        return None;
    }
    let first = median_of(probes[..third].to_vec())?;
    let last = median_of(probes[probes.len() - third..].to_vec())?;
    let median_ns = median_of(probes.clone())?;
    let mut sorted = probes;
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    Some(Speed {
        median_ns,
        spread: (at(0.95) - at(0.05)) / median_ns,
        drift: last / first - 1.0,
    })
}

fn frequency(samples: &[&ResourceSample]) -> Option<[u64; 2]> {
    let seen = || samples.iter().filter_map(|s| s.machine.frequency_khz);
    Some([seen().min()?, seen().max()?])
}

/// How much instances of the baseline differ: the analysis of variance of the A/A pair's log ratio, with
/// the round as the level above the block (Kalibera and Jones 2013). Of one instance: half the variance.
fn instances(trials: &Trials<'_>) -> Vec<InstanceSpread> {
    let mut found = Vec::new();
    for point in trials.points() {
        for metric in Metric::of(point) {
            // A trial has no p99 of its own.
            if is_primary(point, *metric)
                && let Some([between, within]) = variances(trials, point, *metric)
            {
                found.push(InstanceSpread {
                    load_point: point.id.clone(),
                    metric: *metric,
                    between: (between.unwrap_or(0.0) / 2.0).sqrt(),
                    within: within.map(|variance| (variance / 2.0).sqrt()),
                });
            }
        }
    }
    found
}

/// Between rounds and within them, of the A/A pair's log ratio. `None`: fewer than two rounds with pairs.
/// The first is `None` where no round has two blocks: then the two cannot be told apart.
fn variances(trials: &Trials<'_>, point: &LoadPoint, metric: Metric) -> Option<[Option<f64>; 2]> {
    let by_block = |role: Role| -> ByBlock {
        let variants = trials.by_role(role);
        let valid = variants.flat_map(|v| &trials.cell(&v.id, &point.id).valid);
        let figures = valid.filter_map(|trial| Some((trial.key, figure(metric, trial)?)));
        figures.collect()
    };
    let (baseline, control) = (by_block(Role::Baseline), by_block(Role::Control));
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for pair in pairs(&control, &[&baseline]) {
        let BlockKey { round, .. } = pair.key;
        rounds.entry(round).or_default().push(pair.log_ratio);
    }
    components_of_variance(&rounds.into_values().collect::<Vec<_>>())
}

/// One-way random effects, groups of unequal size (Searle, Casella and McCulloch 1992, §3.6).
fn components_of_variance(groups: &[Vec<f64>]) -> Option<[Option<f64>; 2]> {
    let all: Vec<f64> = groups.iter().flatten().copied().collect();
    let (n, k) = (all.len() as f64, groups.len() as f64);
    if groups.len() < 2 {
        return None;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let grand = mean(&all);
    let squares = |center: f64, values: &[f64]| -> f64 {
        values.iter().map(|value| (value - center).powi(2)).sum()
    };
    let among: f64 = groups
        .iter()
        .map(|group| group.len() as f64 * (mean(group) - grand).powi(2))
        .sum::<f64>()
        / (k - 1.0);
    if all.len() == groups.len() {
        return Some([Some(among), None]);
    }
    let within = groups.iter().map(|g| squares(mean(g), g)).sum::<f64>() / (n - k);
    let sizes: f64 = groups.iter().map(|g| (g.len() as f64).powi(2)).sum();
    let typical = (n - sizes / n) / (k - 1.0);
    Some([Some(((among - within) / typical).max(0.0)), Some(within)])
}

/// What of it a reader must know.
pub(crate) fn caveats(facts: &NoiseFacts, clock_source: &str) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut said = Vec::new();
    let others = facts.others.iter().flatten();
    let busy: Vec<String> = others
        .filter(|(_, share)| *share > OTHERS_SHARE_TOLD)
        .map(|(name, share)| format!("{name} {}", percent(*share)))
        .collect();
    if !busy.is_empty() {
        said.push(format!(
            "Other programs used the cores that were measured on (of one core: {}): end them, or expect \
             wide intervals.",
            busy.join(", ")
        ));
    }
    if let Some(share) = facts.throttled_share.filter(|share| *share > 0.0) {
        said.push(format!(
            "A limit on CPU kept processes waiting for {:.1} % of the time: raise the limit of this \
             container or service.",
            share * 100.0
        ));
    }
    if let Some(share) = facts
        .memory_pressure_share
        .filter(|s| *s > MEMORY_PRESSURE_MAX)
    {
        said.push(format!(
            "Memory was short: something waited for it in {} of the time.",
            percent(share)
        ));
    }
    said.extend(facts.speed.and_then(|speed| speed_caveat(&speed)));
    if !FAST_CLOCKS.contains(&clock_source) && clock_source != "unknown" {
        said.push(format!(
            "The kernel's clock is {clock_source}: reading it takes long, and each request is timed \
             several times."
        ));
    }
    said
}

fn speed_caveat(speed: &Speed) -> Option<String> {
    let percent = |share: f64| format!("{:.0} %", share.abs() * 100.0);
    if speed.drift.abs() > DRIFT_MAX {
        let how = if speed.drift > 0.0 {
            "slower"
        } else {
            "faster"
        };
        return Some(format!(
            "The machine became {} {how} over the run. Pairs lie close in time, so that differences \
             stand; levels are those of no moment in particular.",
            percent(speed.drift)
        ));
    }
    (speed.spread > SPEED_SPREAD_MAX).then(|| {
        format!(
            "The machine's speed varied by {} from moment to moment: expect wide intervals.",
            percent(speed.spread)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_split_between_rounds_and_blocks() {
        // Rounds at -1, 0 and 1, blocks 0.1 around them.
        let groups: Vec<Vec<f64>> = [-1.0, 0.0, 1.0]
            .iter()
            .map(|round| vec![round - 0.1, round + 0.1])
            .collect();
        let [between, within] = components_of_variance(&groups).unwrap();
        assert!((within.unwrap() - 0.02).abs() < 1e-12);
        assert!((between.unwrap() - 0.99).abs() < 1e-12);
        let alike: Vec<Vec<f64>> = (0..4).map(|_| vec![-1.0, 1.0]).collect();
        assert_eq!(components_of_variance(&alike).unwrap()[0], Some(0.0));
        let single = components_of_variance(&[vec![1.0], vec![3.0]]).unwrap();
        assert_eq!(single, [Some(2.0), None]);
        assert_eq!(components_of_variance(&[vec![1.0, 2.0]]), None);
    }
}
