//! The smallest detectable effect, from a run's own noise.
//!
//! Runs are simulated by drawing rounds, with replacement, from those of a real run (a bootstrap of
//! rounds). In a drawn round three variants that are known to be equal are put in random order into the
//! positions of the baseline, the control and a candidate, and the candidate is slowed down by a known
//! effect. Detection is judged by the same code as in a report: the interval over rounds, the
//! adjustment, and the noise floor of the drawn A/A pair. No formula approximates the rule.

use std::collections::BTreeMap;

use meshtax_model::analysis::{Metric, Resolvable};
use meshtax_model::catalogue;
use meshtax_model::experiment::{Inject, LoadPoint, Variant};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use crate::effects::{figure, is_primary};
use crate::interval::{self, CONFIDENCE, Inference, Method, UNITS_MIN, relative};
use crate::run_data::RunData;
use crate::trials::Trials;
use crate::verdict::is_different;

/// The required probability of detection.
pub const POWER: f64 = 0.9;

/// Simulated runs for each size of effect.
const RUNS: usize = 600;

/// Maximum number of rounds of a simulated run. Beyond, the effect shrinks with the root of the number of rounds.
const ROUNDS_SIMULATED: u32 = 32;

/// The rounds of a run of a given length, and the number of primary effects that it adjusts for.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// In nanoseconds.
    pub time_ns: u64,
    /// Rounds that fit.
    pub rounds: u32,
    /// Effects of the primary family, including the one to be detected.
    pub family: u32,
}

impl Length {
    /// A run of one candidate at one load point, one block per round, with the duration of these records. `None`
    /// if there are too few of them.
    #[must_use]
    pub fn of_one_candidate(data: &RunData<'_>, time_ns: u64) -> Option<Self> {
        /// The baseline, its control and the candidate.
        const VARIANTS: f64 = 3.0;
        /// p50, p99 and CPU.
        const FAMILY: u32 = 3;
        let (mut in_round, mut between) = (Vec::new(), Vec::new());
        for pair in data.trials.windows(2) {
            let took_ms = pair[1]
                .started_unix_ms
                .saturating_sub(pair[0].started_unix_ms) as f64;
            if pair[0].trial.round == pair[1].trial.round {
                in_round.push(took_ms);
            } else {
                between.push(took_ms);
            }
        }
        let trial_ms = interval::median(in_round)?;
        let set_up_ms = (interval::median(between)? - trial_ms).max(0.0);
        let share = VARIANTS / data.experiment.variants.len().max(1) as f64;
        let round_ms = set_up_ms * share + trial_ms * VARIANTS;
        (round_ms > 0.0).then(|| Self {
            time_ns,
            rounds: (time_ns as f64 / 1e6 / round_ms) as u32,
            family: FAMILY,
        })
    }
}

/// The smallest relative effects that runs of these lengths detect with [`POWER`], for every primary
/// metric with a value per trial. Empty where fewer than six rounds have three equal variants.
///
/// Deterministic: the same records give the same result.
#[must_use]
pub fn resolvable(data: &RunData<'_>, lengths: &[Length]) -> Vec<Resolvable> {
    let trials = Trials::new(data);
    let mut found = Vec::new();
    for point in trials.points() {
        for metric in Metric::of(point) {
            // Percentiles of merged histograms have no value per round to which an effect could be added.
            if !is_primary(point, *metric) {
                continue;
            }
            let rounds = equal_rounds(&trials, point, *metric);
            if rounds.len() < UNITS_MIN {
                continue;
            }
            let mut known = BTreeMap::new();
            for length in lengths {
                found.extend(
                    smallest(&rounds, Inference::method(*metric), *length, &mut known).map(
                        |effect| Resolvable {
                            load_point: point.id.clone(),
                            metric: *metric,
                            time_ns: length.time_ns,
                            rounds: length.rounds,
                            effect,
                        },
                    ),
                );
            }
        }
    }
    found
}

/// The logarithms of three or more equal variants' figures, round by round; blocks are averaged.
fn equal_rounds(trials: &Trials<'_>, point: &LoadPoint, metric: Metric) -> Vec<Vec<f64>> {
    let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let equal = trials
        .variants()
        .iter()
        .filter(|variant| is_equal(variant, metric));
    for variant in equal {
        let mut own: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for trial in &trials.cell(&variant.id, &point.id).valid {
            if let Some(value) = figure(metric, trial).filter(|value| *value > 0.0) {
                own.entry(trial.key.round).or_default().push(value.ln());
            }
        }
        for (round, logs) in own {
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            rounds.entry(round).or_default().push(mean);
        }
    }
    let rounds = rounds.into_values();
    rounds.filter(|logs| logs.len() >= 3).collect()
}

/// Additional memory changes neither latency nor CPU, so that it counts as one more baseline.
fn is_equal(variant: &Variant, metric: Metric) -> bool {
    let same = catalogue::is_baseline(&variant.data_plane);
    let cost_shows = match variant.inject {
        None => false,
        Some(Inject::HoldBytes(_)) => metric == Metric::AnonymousMemory,
        Some(_) => true,
    };
    same && !cost_shows
}

/// `None`: no run of this length detects any effect. `known`: simulations for other targets, by rounds and family.
fn smallest(
    rounds: &[Vec<f64>],
    method: Method,
    length: Length,
    known: &mut BTreeMap<(u32, u32), Option<f64>>,
) -> Option<f64> {
    let simulated = length.rounds.min(ROUNDS_SIMULATED);
    let effect = *known
        .entry((simulated, length.family))
        .or_insert_with(|| smallest_of(rounds, method, simulated, length.family));
    Some(effect? * (f64::from(simulated) / f64::from(length.rounds)).sqrt())
}

fn smallest_of(rounds: &[Vec<f64>], method: Method, simulated: u32, family: u32) -> Option<f64> {
    if (simulated as usize) < UNITS_MIN {
        return None;
    }
    let runs: Vec<MadeUp> = (0..RUNS)
        .map(|number| MadeUp::draw(rounds, method, simulated, number as u64))
        .collect();
    let power = |effect: f64| {
        let found = runs.iter().filter(|run| run.finds(effect, family));
        found.count() as f64 / RUNS as f64
    };
    let (mut low, mut high) = (0.0, 0.005);
    while power(high) < POWER {
        low = high;
        high *= 2.0;
        if high > 10.0 {
            return None;
        }
    }
    // To 1/50 of the effect, which is more precise than such a forecast.
    while high - low > high / 50.0 {
        let middle = f64::midpoint(low, high);
        if power(middle) < POWER {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

/// One simulated run, without any effect.
struct MadeUp {
    /// Of the A/A pair.
    floor: f64,
    /// The candidate's, per round.
    log_ratios: Vec<f64>,
    method: Method,
}

impl MadeUp {
    fn draw(rounds: &[Vec<f64>], method: Method, count: u32, seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut below = |limit: usize| (random.next_u64() % limit as u64) as usize;
        let (mut pairs, mut log_ratios) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut logs = rounds[below(rounds.len())].clone();
            for place in 0..3 {
                let other = place + below(logs.len() - place);
                logs.swap(place, other);
            }
            pairs.push(logs[1] - logs[0]);
            log_ratios.push(logs[2] - f64::midpoint(logs[0], logs[1]));
        }
        let interval = method(&pairs).and_then(|fit| fit.interval(CONFIDENCE));
        Self {
            floor: interval.map_or(f64::INFINITY, |i| relative(i).largest_absolute_end()),
            log_ratios,
            method,
        }
    }

    /// The others of the family have no effect, so that Holm's first step applies.
    fn finds(&self, effect: f64, family: u32) -> bool {
        let shift = effect.ln_1p();
        let units: Vec<f64> = self.log_ratios.iter().map(|log| log + shift).collect();
        let Some(fit) = (self.method)(&units) else {
            return false;
        };
        let p_value = fit.p_value().unwrap_or(1.0) * f64::from(family.max(1));
        is_different(&fit, p_value, self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds whose three variants differ by about one part in a hundred.
    fn rounds(spread: f64) -> Vec<Vec<f64>> {
        let mut random = Pcg64::seed_from_u64(3);
        let mut noise = || {
            (0..12)
                .map(|_| random.next_u64() as f64 / u64::MAX as f64)
                .sum::<f64>()
                - 6.0
        };
        (0..40)
            .map(|_| (0..3).map(|_| spread * noise()).collect())
            .collect()
    }

    fn smallest_at(rounds: &[Vec<f64>], count: u32) -> Option<f64> {
        let length = Length {
            time_ns: 0,
            rounds: count,
            family: 1,
        };
        smallest(rounds, Inference::of_units, length, &mut BTreeMap::new())
    }

    #[test]
    fn smallest_effect_grows_with_noise_and_shrinks_with_duration() {
        let at = |spread, count| smallest_at(&rounds(spread), count).unwrap();
        let quiet = at(0.01, 20);
        // Of a mean of 20 the standard error is 0.01 x sqrt(1.5 / 20); t at 95 % and 90 % power add up to
        // 3.4 of them, and the noise floor requires more.
        assert!((0.008..0.02).contains(&quiet), "{quiet}");
        assert!((at(0.02, 20) / quiet - 2.0).abs() < 0.2);
        assert!(at(0.01, 40) < quiet);
        let long = at(0.01, 4 * ROUNDS_SIMULATED) / at(0.01, ROUNDS_SIMULATED);
        assert!((long - 0.5).abs() < 1e-9, "{long}");
        assert_eq!(smallest_at(&rounds(0.01), 5), None);
    }

    #[test]
    fn resolvable_effect_is_detected_with_the_stated_power() {
        let rounds = rounds(0.01);
        let effect = smallest_at(&rounds, 15).unwrap();
        let fresh =
            (10_000..10_500).map(|seed| MadeUp::draw(&rounds, Inference::of_units, 15, seed));
        let found = fresh.filter(|run| run.finds(effect, 1)).count();
        assert!((420..485).contains(&found), "{found} of 500");
    }
}
