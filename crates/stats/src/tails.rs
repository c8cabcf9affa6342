//! Percentiles of merged histograms, and the effects on them.
//!
//! A trial has too few requests for its own p99, and percentiles are never averaged. The
//! histograms of an arm are merged; the uncertainty of the percentile is estimated by leaving
//! out one round at a time (the jackknife of Davison and Hinkley 1997, §2.7, with rounds as
//! the groups, so that processes that differ from round to round are part of it).
//!
//! Leaving out single observations fails for quantiles; leaving out groups of thousands of
//! requests does not. Simulated with `examples/coverage/choices.rs` (1,500 runs per line): skewed
//! latencies, trials that differ by 4 % and processes that differ by 1 %, a slow spell in one
//! trial of five, 95 % intervals of the p99's difference between two baselines and a third arm:
//!
//! | rounds x blocks | requests per trial | covers: difference | log ratio | width / p99 |
//! |-----------------|--------------------|--------------------|-----------|-------------|
//! | 6 x 2           | 500                | 0.951              | 0.949     | 0.21        |
//! | 8 x 2           | 500                | 0.944              | 0.945     | 0.17        |
//! | 10 x 1          | 500                | 0.951              | 0.950     | 0.21        |
//! | 10 x 2          | 500                | 0.952              | 0.950     | 0.15        |
//! | 14 x 2          | 500                | 0.941              | 0.941     | 0.12        |
//! | 10 x 2          | 2000               | 0.949              | 0.946     | 0.12        |

use std::collections::BTreeMap;

use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::{Metric, Unresolved};

use crate::interval::{Inference, Spread};
use crate::pairing::{BlockKey, Paired, Unit, count_rounds};

/// The share of the nominal error available to a percentile's interval: with real latencies,
/// of which a few bad rounds form the tail, the jackknife-t alone covers less than its nominal level, by
/// one to three points: its 95 % intervals are computed as 97.5 % ones.
pub const ERROR_SHARE: f64 = 0.5;

/// A percentile is reported only if the requests above it come from at least this many trials.
pub const TRIALS_ABOVE_MIN: u32 = 10;

/// ... and are at least this many.
pub const REQUESTS_ABOVE_MIN: u64 = 10;

/// The non-empty buckets of a histogram, in order.
///
/// A [`LatencyHistogram`] has tens of thousands of counters, nearly all of them zero. Leaving
/// out rounds one at a time traverses them often, so the non-empty ones are stored separately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// (highest value of the bucket, count), ascending.
    buckets: Vec<(u64, u64)>,
    total: u64,
}

impl From<&LatencyHistogram> for Counts {
    fn from(histogram: &LatencyHistogram) -> Self {
        Self {
            buckets: histogram.buckets().collect(),
            total: histogram.count(),
        }
    }
}

impl Counts {
    /// The sum of several histograms.
    #[must_use]
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let parts = parts.into_iter().flat_map(|part| &part.buckets);
        let mut all: Vec<(u64, u64)> = parts.copied().collect();
        // Each part is in order: a stable sort merges such runs.
        all.sort_by_key(|(value, _)| *value);
        let mut buckets: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (value, count) in all {
            match buckets.last_mut() {
                Some((last, held)) if *last == value => *held = held.saturating_add(count),
                _ => buckets.push((value, count)),
            }
        }
        Self {
            total: buckets
                .iter()
                .fold(0, |total, (_, count)| total.saturating_add(*count)),
            buckets,
        }
    }

    /// The number of latencies.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The mean, each latency at the middle of its bucket; `None` if empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let sum = self.buckets.iter().map(|(value, count)| {
            let middle = f64::midpoint(lowest_equivalent(*value) as f64, *value as f64 + 1.0);
            middle * *count as f64
        });
        (self.total > 0).then(|| sum.sum::<f64>() / self.total as f64)
    }

    /// The quantile, its position inside the bucket interpolated; `None` if empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        self.quantile_without(quantile, &Self::default())
    }

    /// The quantile of the rest without `part`, which must be a part of `self`.
    #[must_use]
    pub fn quantile_without(&self, quantile: f64, part: &Self) -> Option<f64> {
        let (bucket, share) = self.locate(quantile, part)?;
        let low = lowest_equivalent(bucket) as f64;
        Some(low + (bucket as f64 + 1.0 - low) * share)
    }

    /// The number of counts in buckets above the one that contains this quantile of `merged`.
    #[must_use]
    pub fn count_above_quantile_of(&self, merged: &Self, quantile: f64) -> u64 {
        let Some((bucket, _)) = merged.locate(quantile, &Self::default()) else {
            return 0;
        };
        self.buckets
            .iter()
            .rev()
            .take_while(|(value, _)| *value > bucket)
            .fold(0, |total, (_, count)| total.saturating_add(*count))
    }

    /// The bucket of a quantile, and the quantile's position within its counts.
    fn locate(&self, quantile: f64, without: &Self) -> Option<(u64, f64)> {
        let total = self.total.saturating_sub(without.total);
        if total == 0 {
            return None;
        }
        let rank = quantile.clamp(0.0, 1.0) * total as f64;
        let mut left_out = without.buckets.iter().copied().peekable();
        let mut below = 0_u64;
        let mut last = None;
        for &(value, count) in &self.buckets {
            let mut here = count;
            while let Some((_, minus)) = left_out.next_if(|(other, _)| *other <= value) {
                here = here.saturating_sub(minus);
            }
            if here == 0 {
                continue;
            }
            if (below.saturating_add(here)) as f64 >= rank {
                let share = ((rank - below as f64) / here as f64).clamp(0.0, 1.0);
                return Some((value, share));
            }
            below = below.saturating_add(here);
            last = Some((value, 1.0));
        }
        last
    }
}

/// The lowest value that shares a bucket with `highest`: three significant digits are 2048
/// buckets for the first 2048 values, and 1024 for each doubling above.
fn lowest_equivalent(highest: u64) -> u64 {
    let shift = (u64::BITS - highest.leading_zeros()).saturating_sub(11);
    (highest >> shift) << shift
}

/// The histograms of an arm, by block.
pub type Arm<'a> = [(BlockKey, &'a Counts)];

/// Whether a percentile has enough requests above it, from enough trials.
///
/// # Errors
/// The missing data; also for a metric that is not a percentile.
pub fn resolved(metric: Metric, arm: &Arm<'_>) -> Result<(), Unresolved> {
    let merged = Counts::merged(arm.iter().map(|(_, counts)| *counts));
    let quantile = metric.quantile().unwrap_or(1.0);
    let above: Vec<u64> = arm
        .iter()
        .map(|(_, counts)| counts.count_above_quantile_of(&merged, quantile))
        .filter(|count| *count > 0)
        .collect();
    let trials = u32::try_from(above.len()).unwrap_or(u32::MAX);
    let requests = above.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
    if trials >= TRIALS_ABOVE_MIN && requests >= REQUESTS_ABOVE_MIN {
        return Ok(());
    }
    Err(Unresolved {
        metric,
        trials,
        requests,
        needed: TRIALS_ABOVE_MIN,
    })
}

/// Whether the percentile of all these trials has enough requests above it, from enough trials.
pub(crate) fn enough_above<'a>(
    quantile: f64,
    trials: impl Iterator<Item = &'a Counts>,
    merged: &Counts,
) -> bool {
    let above = trials.map(|trial| trial.count_above_quantile_of(merged, quantile));
    let (trials, requests) = above
        .filter(|count| *count > 0)
        .fold((0_u32, 0_u64), |(trials, requests), count| {
            (trials + 1, requests.saturating_add(count))
        });
    trials >= TRIALS_ABOVE_MIN && requests >= REQUESTS_ABOVE_MIN
}

/// The effect on a percentile: arm minus reference, and as a log ratio.
///
/// Only blocks that have both are used, so that a change of the machine over the run moves
/// both arms. `None` if there are none.
#[must_use]
pub fn compare(quantile: f64, arm: &Arm<'_>, reference: &Arm<'_>) -> Option<Paired> {
    let has = |side: &Arm<'_>, key: BlockKey| side.iter().any(|(other, _)| *other == key);
    let keep = |side: &Arm<'_>, other: &Arm<'_>| -> Vec<BlockKey> {
        let mut keys: Vec<BlockKey> = side.iter().map(|(key, _)| *key).collect();
        keys.retain(|key| has(other, *key));
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let blocks = keep(arm, reference);
    let unit = Unit::for_blocks(&blocks);
    let arm = Grouped::new(arm, &blocks, unit);
    let reference = Grouped::new(reference, &blocks, unit);
    let levels = |left_out: Option<usize>| {
        let of = |group: &Grouped| {
            group
                .quantile(quantile, left_out)
                .filter(|level| *level > 0.0)
        };
        Some((of(&arm)?, of(&reference)?))
    };
    Some(Paired {
        difference: jackknife(arm.units.len(), |left_out| {
            levels(left_out).map(|(a, b)| a - b)
        })?
        .within(ERROR_SHARE),
        log_ratio: jackknife(arm.units.len(), |left_out| {
            levels(left_out).map(|(a, b)| (a / b).ln())
        })?
        .within(ERROR_SHARE),
        rounds: count_rounds(&blocks),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
    })
}

/// A single percentile. `None` without requests.
#[must_use]
pub fn level(quantile: f64, arm: &Arm<'_>) -> Option<Inference> {
    let mut blocks: Vec<BlockKey> = arm.iter().map(|(key, _)| *key).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let group = Grouped::new(arm, &blocks, Unit::for_blocks(&blocks));
    let fit = jackknife(group.units.len(), |left_out| {
        group.quantile(quantile, left_out)
    })?;
    Some(fit.within(ERROR_SHARE))
}

/// The jackknife-t: the statistic of all units, with a standard error from the pseudo-values
/// `n θ − (n − 1) θ₋ᵢ` and Student's t with n − 1 degrees of freedom.
///
/// `statistic` is called for all units (`None`) and without the i-th. `None` if it has no value
/// for all of them.
#[must_use]
pub fn jackknife(
    units: usize,
    statistic: impl Fn(Option<usize>) -> Option<f64>,
) -> Option<Inference> {
    let estimate = statistic(None).filter(|value| value.is_finite())?;
    let n = units as f64;
    let pseudo_values: Option<Vec<f64>> = (0..units)
        .map(|unit| Some(n * estimate - (n - 1.0) * statistic(Some(unit))?))
        .collect();
    let spread = pseudo_values.and_then(|values| {
        let center = crate::interval::mean(&values)?;
        Spread::of(&values, center)
    });
    Some(Inference::new(estimate, spread))
}

/// An arm's histograms, merged by unit and over all of them.
struct Grouped {
    units: Vec<Counts>,
    all: Counts,
}

impl Grouped {
    fn new(arm: &Arm<'_>, blocks: &[BlockKey], unit: Unit) -> Self {
        let mut groups: BTreeMap<BlockKey, Vec<&Counts>> = BTreeMap::new();
        for (key, counts) in arm {
            if blocks.binary_search(key).is_ok() {
                groups.entry(unit.of(*key)).or_default().push(counts);
            }
        }
        let units: Vec<Counts> = groups.into_values().map(Counts::merged).collect();
        Self {
            all: Counts::merged(&units),
            units,
        }
    }

    fn quantile(&self, quantile: f64, left_out: Option<usize>) -> Option<f64> {
        match left_out.and_then(|index| self.units.get(index)) {
            Some(unit) => self.all.quantile_without(quantile, unit),
            None => self.all.quantile(quantile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for value in values {
            histogram.record(value);
        }
        histogram
    }

    fn key(round: u32) -> BlockKey {
        BlockKey { round, block: 1 }
    }

    #[test]
    fn quantiles_match_the_histogram() {
        let full = histogram((0..5000_u64).map(|i| 1 + i * i * 37));
        let counts = Counts::from(&full);
        for q in [0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let (ours, theirs) = (counts.quantile(q), full.quantile_interpolated_ns(q));
            assert!((ours.unwrap() - theirs.unwrap()).abs() < 1e-6, "{q}");
        }
        assert_eq!(Counts::default().quantile(0.5), None);
    }

    #[test]
    fn leave_one_out_equals_merging_the_others() {
        let parts: Vec<Counts> = (0..6_u64)
            .map(|p| {
                Counts::from(&histogram(
                    (0..400).map(|i| 1000 + (i * 7919 + p * 31) % 9973),
                ))
            })
            .collect();
        let all = Counts::merged(&parts);
        for left_out in 0..parts.len() {
            let others = parts.iter().enumerate().filter(|(i, _)| *i != left_out);
            let merged = Counts::merged(others.map(|(_, part)| part));
            for q in [0.01, 0.5, 0.99, 1.0] {
                assert_eq!(
                    all.quantile_without(q, &parts[left_out]),
                    merged.quantile(q)
                );
            }
        }
    }

    #[test]
    fn percentile_requires_requests_above_it_from_ten_trials() {
        // Twenty trials of 100 requests, of which nine have slow ones.
        let trials: Vec<Counts> = (0..20)
            .map(|i| {
                let slow = if i < 9 { 9_000_000 } else { 100_000 };
                Counts::from(&histogram(
                    (0..100).map(|j| if j < 3 { slow + j * 100_000 } else { 100_000 }),
                ))
            })
            .collect();
        let arm: Vec<(BlockKey, &Counts)> = (1..).zip(&trials).map(|(i, t)| (key(i), t)).collect();
        let missing = resolved(Metric::ResponseP99, &arm).unwrap_err();
        assert_eq!(missing.trials as usize, count_above_trials(&trials));
        assert!(missing.trials < missing.needed);
        assert!(resolved(Metric::ResponseP99, &[]).is_err());

        let even: Vec<Counts> = (0..20)
            .map(|i| Counts::from(&histogram((0..200).map(|j| 100_000 + j * 1000 + i))))
            .collect();
        let arm: Vec<(BlockKey, &Counts)> = (1..).zip(&even).map(|(i, t)| (key(i), t)).collect();
        assert_eq!(resolved(Metric::ResponseP99, &arm), Ok(()));
    }

    fn count_above_trials(trials: &[Counts]) -> usize {
        let merged = Counts::merged(trials);
        trials
            .iter()
            .filter(|t| t.count_above_quantile_of(&merged, 0.99) > 0)
            .count()
    }

    #[test]
    fn jackknife_of_a_mean_equals_the_t_interval() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0];
        let statistic = |left_out: Option<usize>| {
            let kept: Vec<f64> = values
                .iter()
                .enumerate()
                .filter(|(i, _)| Some(*i) != left_out)
                .map(|(_, v)| *v)
                .collect();
            crate::interval::mean(&kept)
        };
        let jack = jackknife(values.len(), statistic).unwrap();
        let mean = Inference::of_mean(&values).unwrap();
        assert!((jack.estimate - mean.estimate).abs() < 1e-12);
        let (a, b) = (jack.interval(0.95).unwrap(), mean.interval(0.95).unwrap());
        assert!((a.low - b.low).abs() < 1e-12 && (a.high - b.high).abs() < 1e-12);
    }

    #[test]
    fn level_interval_is_computed_over_rounds() {
        let rounds: Vec<Counts> = (0..8_u64)
            .map(|i| Counts::from(&histogram((0..500).map(|j| 100_000 + j * 200 + i * 1000))))
            .collect();
        let arm: Vec<_> = (1..).zip(&rounds).map(|(i, t)| (key(i), t)).collect();
        let median = level(0.5, &arm).unwrap();
        let interval = median.interval(0.95).unwrap();
        // The middle of 100 µs to 200 µs, and of the rounds' shifts.
        assert!((median.estimate - 153_400.0).abs() < 500.0, "{median:?}");
        assert!(interval.low < 153_400.0 && 153_400.0 < interval.high);
        assert!(interval.high - interval.low < 12_000.0, "{interval:?}");
        assert!(level(0.5, &arm[..5]).unwrap().interval(0.95).is_none());
        assert_eq!(level(0.5, &[]), None);
    }

    #[test]
    fn shift_is_detected_and_unpaired_blocks_are_excluded() {
        let trials: Vec<Counts> = (0..8_u64)
            .map(|i| Counts::from(&histogram((0..500).map(|j| 100_000 + j * 211 + i * 500))))
            .collect();
        let shifted: Vec<Counts> = (0..8_u64)
            .map(|i| Counts::from(&histogram((0..500).map(|j| 130_000 + j * 211 + i * 500))))
            .collect();
        let base: Vec<_> = (1..).zip(&trials).map(|(i, t)| (key(i), t)).collect();
        let arm: Vec<_> = (2..).zip(&shifted).map(|(i, t)| (key(i), t)).collect();
        let effect = compare(0.99, &arm, &base).unwrap();
        assert_eq!((effect.rounds, effect.blocks), (7, 7));
        assert!((effect.difference.estimate - 30_000.0).abs() < 1_500.0);
        assert!(effect.difference.p_value().unwrap() < 1e-3);
        assert_eq!(compare(0.99, &arm, &[]), None);
    }
}
