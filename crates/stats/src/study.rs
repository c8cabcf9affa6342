//! The figures of a variant at a load point that published studies contain, in addition to those of every run.

use meshtax_model::analysis::{CurvePoint, Extent, Point, Usage, UsageGroup};
use meshtax_model::trial::{ComponentRole, ResourceSample, UsageSeries};

use crate::account::IN_PATH;
use crate::interval::above_zero;
use crate::memory::resident;
use crate::pairing::BlockKey;
use crate::tails::{self, Counts, enough_above};
use crate::trials::{Cell, Trial};

/// The percentiles of latency that studies publish.
const STUDIED: [f64; 6] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

/// From this one on, a percentile is reported only with enough requests above it.
const TAIL: f64 = 0.9;

/// The minimum length of a window's steps, in nanoseconds, to be comparable to a study's own samples of CPU.
const STEP_MIN_NS: u64 = 1_000_000_000;

const GROUPS: [(UsageGroup, &[ComponentRole]); 3] = [
    (
        UsageGroup::Application,
        &[
            ComponentRole::App,
            ComponentRole::ServerProxy,
            ComponentRole::Waypoint,
        ],
    ),
    (UsageGroup::ClientProxy, &[ComponentRole::ClientProxy]),
    (UsageGroup::Path, &IN_PATH),
];

/// Latencies of a trial, or of a part of a long one, and their block.
type BlockLatencies = (BlockKey, Counts);

/// Adds the figures of a study to the point, in a closed loop as well: the comparison uses the study's figures.
/// `stopped`: because the run's intervals were narrow.
pub(crate) fn studied(point: Point, cell: &Cell<'_>, stopped: bool) -> Point {
    let longest = cell.valid.iter().filter_map(|t| t.load.response.max_ns());
    let responses: Vec<BlockLatencies> = cell.valid.iter().flat_map(responses).collect();
    let first_bytes = cell.valid.iter();
    let first_bytes: Vec<BlockLatencies> = first_bytes
        .map(|trial| (trial.key, Counts::from(&trial.load.first_byte)))
        .collect();
    let samples: Vec<&ResourceSample> = cell.valid.iter().filter_map(|t| t.sample).collect();
    let usage = GROUPS.iter();
    Point {
        percentiles: percentiles(&responses, stopped),
        first_byte: percentiles(&first_bytes, stopped),
        longest_ns: longest.max(),
        usage: usage
            .filter_map(|(group, roles)| usage_of(*group, roles, &samples))
            .collect(),
        ..point
    }
}

/// A trial's latencies: for a long one, those of its parts, so that a single stall does not become a tail.
fn responses(trial: &Trial<'_>) -> Vec<BlockLatencies> {
    let parts = trial.load.intervals.iter();
    let parts: Vec<BlockLatencies> = parts
        .map(|part| (trial.key, Counts::from(&part.response.expand())))
        .collect();
    let whole: u64 = parts.iter().map(|(_, counts)| counts.total()).sum();
    match whole == trial.load.response.count() && whole > 0 {
        true => parts,
        false => vec![(trial.key, trial.response.clone())],
    }
}

fn percentiles(parts: &[BlockLatencies], stopped: bool) -> Vec<CurvePoint> {
    let counts = || parts.iter().map(|(_, counts)| counts);
    let merged = Counts::merged(counts());
    let resolved = |quantile: &f64| *quantile < TAIL || enough_above(*quantile, counts(), &merged);
    let arm: Vec<(BlockKey, &Counts)> = parts.iter().map(|(key, part)| (*key, part)).collect();
    let at = |quantile| {
        Some(CurvePoint {
            quantile,
            value_ns: merged.quantile(quantile)?,
            interval: tails::level(quantile, &arm).and_then(|fit| above_zero(fit, stopped)),
        })
    };
    STUDIED
        .into_iter()
        .filter(resolved)
        .filter_map(at)
        .collect()
}

/// `None`: the group has no process.
fn usage_of(
    group: UsageGroup,
    roles: &[ComponentRole],
    samples: &[&ResourceSample],
) -> Option<Usage> {
    let cores = samples.iter().flat_map(|sample| cores(sample, roles));
    let held = samples.iter().map(|sample| {
        let (anonymous, files) = resident(sample, roles, None)?;
        Some(anonymous.saturating_add(files) as f64)
    });
    Some(Usage {
        group,
        cores: extent(&cores.collect::<Vec<f64>>())?,
        memory_bytes: held
            .collect::<Option<Vec<f64>>>()
            .and_then(|held| extent(&held)),
    })
}

/// CPU cores used: one figure for each step, if they are long enough, or one for the window.
fn cores(sample: &ResourceSample, roles: &[ComponentRole]) -> Vec<f64> {
    let steps = steps(&sample.series);
    if !steps.is_empty() && steps.iter().all(|step_ns| *step_ns >= STEP_MIN_NS) {
        let of_roles = || {
            let all = sample.series.components.iter();
            all.filter(|component| roles.contains(&component.role))
        };
        let used_in = |step: usize| {
            let used = of_roles().filter_map(|component| component.cpu_ns.get(step));
            used.sum::<u64>()
        };
        return match of_roles().next() {
            Some(_) => (0..steps.len())
                .map(|step| used_in(step) as f64 / steps[step] as f64)
                .collect(),
            None => Vec::new(),
        };
    }
    let components = sample.components.iter();
    let of_roles: Vec<u64> = components
        .filter(|component| roles.contains(&component.role))
        .map(|component| component.cpu_ns)
        .collect();
    let wall_ns = sample.wall_ns();
    match of_roles.is_empty() || wall_ns == 0 {
        true => Vec::new(),
        false => vec![of_roles.iter().sum::<u64>() as f64 / wall_ns as f64],
    }
}

/// The length of each step, in nanoseconds.
fn steps(series: &UsageSeries) -> Vec<u64> {
    let ends = series.ends_ns.iter();
    let begins = std::iter::once(&0).chain(&series.ends_ns);
    ends.zip(begins)
        .map(|(end, begin)| end.saturating_sub(*begin))
        .collect()
}

fn extent(figures: &[f64]) -> Option<Extent> {
    let count = figures.len() as f64;
    (!figures.is_empty()).then(|| Extent {
        min: figures.iter().copied().fold(f64::INFINITY, f64::min),
        mean: figures.iter().sum::<f64>() / count,
        max: figures.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use meshtax_model::LatencyHistogram;
    use meshtax_model::plan::TrialId;
    use meshtax_model::trial::{ComponentSeries, ComponentUsage, MachineUsage, Memory};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn counts(values: &[u64]) -> Counts {
        let mut histogram = LatencyHistogram::new();
        for value in values {
            histogram.record(*value);
        }
        Counts::from(&histogram)
    }

    /// Uses `cpu_ns` in the app and as much in the server's proxy; the client's usage is unknown.
    fn sample(cpu_ns: u64, held: Option<u64>) -> ResourceSample {
        let component = |role| ComponentUsage {
            cpu_ns,
            memory: held.map(|anonymous_bytes| Memory {
                anonymous_bytes,
                file_bytes: 10,
                ..Memory::default()
            }),
            ..ComponentUsage::new("", role)
        };
        let mut sample = ResourceSample::new(TrialId::new(1, 1, 1));
        sample.machines.push(MachineUsage {
            wall_ns: SECOND,
            ..MachineUsage::default()
        });
        sample.components = vec![
            component(ComponentRole::App),
            component(ComponentRole::ServerProxy),
        ];
        sample
    }

    #[test]
    fn group_sums_its_processes_in_each_trial() {
        let (little, much) = (sample(SECOND / 100, Some(5)), sample(SECOND / 10, Some(50)));
        let of = |group: usize| {
            let (group, roles) = GROUPS[group];
            usage_of(group, roles, &[&little, &much])
        };
        let application = of(0).expect("it is there");
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-12;
        assert!(near(application.cores.min, 0.02) && near(application.cores.max, 0.2));
        assert!(near(application.cores.mean, 0.11));
        let memory = application.memory_bytes.expect("it was read");
        // Two processes, and a copy of each one's program.
        assert!(near(memory.min, 30.0) && near(memory.max, 120.0));
        assert_eq!(of(1), None, "there is no client's proxy");
        assert_eq!(of(2).map(|path| path.cores), Some(application.cores));
    }

    #[test]
    fn memory_is_unknown_if_one_reading_is_missing() {
        let (read, unread) = (sample(1, Some(5)), sample(1, None));
        let usage = usage_of(GROUPS[0].0, GROUPS[0].1, &[&read, &unread]);
        assert_eq!(usage.expect("its CPU is known").memory_bytes, None);
    }

    #[test]
    fn long_steps_are_separate_samples_and_short_steps_are_not() {
        let mut sample = sample(3 * SECOND, None);
        sample.machines[0].wall_ns = 3 * SECOND;
        let app = |cpu_ns: &[u64]| ComponentSeries {
            role: ComponentRole::App,
            cpu_ns: cpu_ns.to_vec(),
            anonymous_bytes: Vec::new(),
        };
        sample.series = UsageSeries {
            ends_ns: vec![SECOND, 2 * SECOND, 4 * SECOND],
            components: vec![app(&[SECOND / 2, SECOND, SECOND])],
        };
        assert_eq!(cores(&sample, &[ComponentRole::App]), [0.5, 1.0, 0.5]);
        sample.series.ends_ns[0] = SECOND / 2;
        assert_eq!(cores(&sample, &[ComponentRole::App]), [1.0]);
    }

    #[test]
    fn tail_from_a_single_stall_is_omitted() {
        let usual: Vec<u64> = (1..=1000).collect();
        let bad: Vec<u64> = (0..200).map(|n| 1_000_000 + n).collect();
        let in_round = |round, values: &[u64]| (BlockKey { round, block: 1 }, counts(values));
        let mut parts: Vec<BlockLatencies> =
            (1..=20).map(|round| in_round(round, &usual)).collect();
        parts[0] = in_round(1, &bad);
        let has = |parts: &[BlockLatencies], quantile| {
            let found = percentiles(parts, false);
            found.iter().any(|p: &CurvePoint| p.quantile == quantile)
        };
        assert!(has(&parts, 0.75) && !has(&parts, 0.99));
        let alike: Vec<BlockLatencies> = (1..=20).map(|round| in_round(round, &usual)).collect();
        assert!(has(&alike, 0.99));
        assert!(!has(&alike[..9], 0.99), "nine parts are too few");
        assert!(percentiles(&[], false).is_empty());
    }

    #[test]
    fn percentiles_have_an_interval_over_rounds_and_none_over_few() {
        let of_round = |round: u32| {
            let values: Vec<u64> = (1..=1000).map(|n| n * (100 + u64::from(round))).collect();
            (BlockKey { round, block: 1 }, counts(&values))
        };
        let parts: Vec<BlockLatencies> = (1..=8).map(of_round).collect();
        let median = |parts: &[BlockLatencies], stopped| percentiles(parts, stopped)[0];
        let plain = median(&parts, false);
        let interval = plain.interval.expect("eight rounds are enough");
        assert!(interval.low < plain.value_ns && plain.value_ns < interval.high);
        let stopped = median(&parts, true).interval.expect("likewise");
        assert!(stopped.low < interval.low && interval.high < stopped.high);
        assert_eq!(median(&parts[..5], false).interval, None);
    }
}
