//! Disturbances on the machine, and the caveats that they cause.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_model::analysis::{Caveat, InstanceSpread, Metric, NoiseFacts, ProgramShare, Speed};
use meshtax_model::environment::Host;
use meshtax_model::experiment::{LoadPoint, Role};
use meshtax_model::trial::{MachineUsage, ResourceSample};

use crate::effects::{figure, is_primary};
use crate::interval;
use crate::pairing::{BlockKey, ByBlock, pairs};
use crate::trials::Trials;

/// Maximum number of other programs that are listed.
const NAMED: usize = 5;

/// A machine whose speed changed by this over the run is noted.
const DRIFT_MAX: f64 = 0.10;

/// The range between its slow and its fast moments.
const SPEED_SPREAD_MAX: f64 = 0.25;

/// As a share of the windows.
const MEMORY_PRESSURE_MAX: f64 = 0.01;

/// Of one core.
const OTHERS_SHARE_MIN: f64 = 0.05;

/// Clock sources with reads of tens of nanoseconds, without leaving the processor.
const FAST_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "fake",
];

/// The facts, over all measured trials, valid or not: a disturbance can be the reason why one is invalid.
pub(crate) fn facts(trials: &Trials<'_>) -> NoiseFacts {
    let samples: Vec<&ResourceSample> = trials.data.samples.iter().collect();
    let share_of = |of: fn(&MachineUsage) -> u64, figure: fn(&MachineUsage) -> Option<u64>| {
        let passed_ns = sum(&samples, figure)?;
        let all_ns = sum(&samples, |machine| Some(of(machine)))?;
        (all_ns > 0.0).then(|| passed_ns / all_ns)
    };
    let share = |figure| share_of(|machine| machine.wall_ns, figure);
    NoiseFacts {
        steal_share: share_of(MachineUsage::capacity_ns, |machine| Some(machine.steal_ns)),
        throttled_share: share(|machine| machine.throttled_ns),
        memory_pressure_share: share(|machine| machine.memory_pressure_ns),
        others: others(&samples),
        speed: speed(&samples),
        frequency_khz: frequency(&samples),
        instances: instances(trials),
    }
}

fn sum(samples: &[&ResourceSample], figure: impl Fn(&MachineUsage) -> Option<u64>) -> Option<f64> {
    let machines = samples.iter().flat_map(|sample| &sample.machines);
    machines.map(|m| figure(m).map(|ns| ns as f64)).sum()
}

fn others(samples: &[&ResourceSample]) -> Option<Vec<(String, f64)>> {
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    let mut looked_ns = 0.0;
    for machine in samples.iter().flat_map(|sample| &sample.machines) {
        looked_ns += machine.looked_ns.max(machine.wall_ns) as f64;
        for other in machine.others.as_ref()? {
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
        .flat_map(|s| &s.machines)
        .filter_map(|machine| machine.speed_probe_ns)
        .flatten()
        .map(|ns| ns as f64)
        .filter(|ns| *ns > 0.0)
        .collect();
    let third = probes.len() / 3;
    if third == 0 {
        return None;
    }
    let first = interval::median(probes[..third].to_vec())?;
    let last = interval::median(probes[probes.len() - third..].to_vec())?;
    let median_ns = interval::median(probes.clone())?;
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
    let machines = || samples.iter().flat_map(|sample| &sample.machines);
    let seen = || machines().filter_map(|machine| machine.frequency_khz);
    Some([seen().min()?, seen().max()?])
}

/// The variation between instances of the baseline: the analysis of variance of the A/A pair's log ratio, with
/// the round as the level above the block (Kalibera and Jones 2013). For one instance: half the variance.
fn instances(trials: &Trials<'_>) -> Vec<InstanceSpread> {
    let mut found = Vec::new();
    for point in trials.points() {
        for metric in Metric::of(point) {
            // A single trial has no p99.
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
/// The first is `None` where no round has two blocks: then the two cannot be separated.
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

/// The caveats for the reader.
pub(crate) fn caveats(facts: &NoiseFacts, machines: &[Host]) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let programs: Vec<ProgramShare> = facts
        .others
        .iter()
        .flatten()
        .filter(|(_, share)| *share > OTHERS_SHARE_MIN)
        .map(|(program, share)| ProgramShare {
            program: program.clone(),
            share: *share,
        })
        .collect();
    if !programs.is_empty() {
        caveats.push(Caveat::OtherPrograms { programs });
    }
    if let Some(share) = facts.throttled_share.filter(|share| *share > 0.0) {
        caveats.push(Caveat::Throttled { share });
    }
    let pressure = facts.memory_pressure_share;
    if let Some(share) = pressure.filter(|share| *share > MEMORY_PRESSURE_MAX) {
        caveats.push(Caveat::MemoryPressure { share });
    }
    caveats.extend(facts.speed.and_then(|speed| speed_caveat(&speed)));
    let clocks = machines.iter().map(|host| host.clock_source.as_str());
    let known: BTreeSet<&str> = clocks.filter(|clock| *clock != "unknown").collect();
    for clock in known {
        if FAST_CLOCKS.contains(&clock) {
            continue;
        }
        let clock = clock.to_owned();
        caveats.push(Caveat::SlowClock { clock });
    }
    caveats
}

fn speed_caveat(speed: &Speed) -> Option<Caveat> {
    let (drift, spread) = (speed.drift, speed.spread);
    if drift.abs() > DRIFT_MAX {
        return Some(Caveat::SpeedDrift { drift });
    }
    (spread > SPEED_SPREAD_MAX).then_some(Caveat::SpeedSpread { spread })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variance_is_split_into_round_and_block_components() {
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
