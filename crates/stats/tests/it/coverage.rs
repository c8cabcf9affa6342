//! Intervals reach their nominal coverage, with fixed seeds. The full tables come from
//! `examples/coverage/`; these are smaller, to notice when something breaks.

use crate::common::{Cost, Noise, effect, run};
use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::{Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, PolicyLevel};
use meshtax_stats::interval::CONFIDENCE;
use meshtax_stats::pairing::{BlockKey, ByBlock, infer, pairs};
use meshtax_stats::tails::{Counts, compare, level};

/// Processes differ from round to round by as much as trials do: an interval over blocks
/// would cover far less.
#[test]
fn paired_effects_cover_the_truth_over_rounds() {
    const RUNS: u32 = 3000;
    let mut noise = Noise::new(1);
    let (mut difference, mut ratio) = (0_u32, 0_u32);
    for _ in 0..RUNS {
        let mut arms = [ByBlock::new(), ByBlock::new(), ByBlock::new()];
        for round in 1..=6 {
            let process: [f64; 3] = std::array::from_fn(|_| 0.03 * noise.normal());
            for block in 1..=3 {
                let machine = 0.1 * noise.normal();
                for (arm, process) in arms.iter_mut().zip(process) {
                    let log = machine + process + 0.03 * noise.normal();
                    arm.insert(BlockKey { round, block }, 100.0 * log.exp());
                }
            }
        }
        let [one, two, mut slow] = arms;
        slow.values_mut().for_each(|value| *value *= 1.2);
        let effect = infer(
            &pairs(&slow, &[&one, &two]),
            meshtax_stats::interval::Inference::of_units,
        )
        .unwrap();
        let interval = effect.log_ratio.interval(CONFIDENCE).unwrap();
        ratio += u32::from(interval.low < 1.2_f64.ln() && 1.2_f64.ln() < interval.high);
        // E[exp(N(0, s²))] = exp(s²/2).
        let mean = 20.0 * ((0.1_f64.powi(2) + 2.0 * 0.03_f64.powi(2)) / 2.0).exp();
        let interval = effect.difference.interval(CONFIDENCE).unwrap();
        difference += u32::from(interval.low < mean && mean < interval.high);
    }
    for covered in [difference, ratio] {
        let share = f64::from(covered) / f64::from(RUNS);
        // Three standard deviations of the simulation are 0.012.
        assert!((0.938..0.962).contains(&share), "{difference} {ratio}");
    }
}

/// One round of ten is five times as loud: wider, and never less covered.
#[test]
fn outlying_rounds_do_not_cost_coverage() {
    const RUNS: u32 = 3000;
    let mut noise = Noise::new(2);
    let mut covered = 0_u32;
    for _ in 0..RUNS {
        let (mut base, mut again) = (ByBlock::new(), ByBlock::new());
        for round in 1..=8 {
            let key = BlockKey { round, block: 1 };
            let scale = if noise.uniform() < 0.1 { 0.25 } else { 0.05 };
            base.insert(key, (scale * noise.normal()).exp());
            again.insert(key, (scale * noise.normal()).exp());
        }
        let effect = infer(
            &pairs(&again, &[&base]),
            meshtax_stats::interval::Inference::of_units,
        )
        .unwrap();
        covered += u32::from(
            !effect
                .log_ratio
                .interval(CONFIDENCE)
                .unwrap()
                .excludes_zero(),
        );
    }
    let share = f64::from(covered) / f64::from(RUNS);
    assert!(share > 0.94, "{share}");
}

#[test]
fn tails_cover_no_difference_over_rounds() {
    const RUNS: u32 = 150;
    let mut noise = Noise::new(3);
    let (mut difference, mut ratio) = (0_u32, 0_u32);
    for _ in 0..RUNS {
        let mut arms: [Vec<(BlockKey, Counts)>; 2] = Default::default();
        for round in 1..=8 {
            for arm in &mut arms {
                let level = 0.05 * noise.normal();
                let mut histogram = LatencyHistogram::new();
                for _ in 0..400 {
                    let log = level + 0.4 * noise.normal();
                    histogram.record((200_000.0 * log.exp()) as u64);
                }
                arm.push((BlockKey { round, block: 1 }, Counts::from(&histogram)));
            }
        }
        let [own, base] = arms.each_ref().map(|arm| {
            let trials = arm.iter();
            trials
                .map(|(key, counts)| (*key, counts))
                .collect::<Vec<_>>()
        });
        let effect = compare(0.99, &own, &base).unwrap();
        let covers = |fit: meshtax_stats::interval::Inference| {
            u32::from(!fit.interval(CONFIDENCE).unwrap().excludes_zero())
        };
        difference += covers(effect.difference);
        ratio += covers(effect.log_ratio);
    }
    for covered in [difference, ratio] {
        let share = f64::from(covered) / f64::from(RUNS);
        // Three standard deviations of the simulation are 0.053.
        assert!(share > 0.897, "{difference} {ratio}");
    }
}

/// What an objective is held against: processes differ from round to round, and the level is that of all of them.
#[test]
fn level_intervals_cover_the_truth_over_rounds() {
    const RUNS: u32 = 300;
    let mut noise = Noise::new(4);
    // Normal logarithms of both kinds are one normal one.
    let spread = 0.4_f64.hypot(0.05);
    let truths = [(0.5, 200_000.0), (0.99, 200_000.0 * (2.326 * spread).exp())];
    let mut covered = [0_u32; 2];
    for _ in 0..RUNS {
        let arm: Vec<(BlockKey, Counts)> = (1..=8)
            .map(|round| {
                let process = 0.05 * noise.normal();
                let mut histogram = LatencyHistogram::new();
                for _ in 0..400 {
                    let log = process + 0.4 * noise.normal();
                    histogram.record((200_000.0 * log.exp()) as u64);
                }
                (BlockKey { round, block: 1 }, Counts::from(&histogram))
            })
            .collect();
        let arm: Vec<_> = arm.iter().map(|(key, counts)| (*key, counts)).collect();
        for ((quantile, truth), covered) in truths.into_iter().zip(&mut covered) {
            let interval = level(quantile, &arm).unwrap().interval(CONFIDENCE).unwrap();
            *covered += u32::from(interval.low <= truth && truth <= interval.high);
        }
    }
    for count in covered {
        let share = f64::from(count) / f64::from(RUNS);
        // Three standard deviations of the simulation are 0.038.
        assert!(share > 0.912, "{covered:?}");
    }
}

/// The promise of `meshtax calibrate`, on made-up machines with 4 % noise between trials:
/// of twenty short runs, the baseline differs from itself in two at most, a delay of 15 % of
/// the p50 is found in eighteen, and its interval holds the truth in seventeen.
#[test]
fn fifteen_percent_delay_is_detected_repeatedly() {
    let slow = Cost {
        name: "delay",
        level: PolicyLevel::Plaintext,
        delay_ns: 30_000.0,
        cpu_ns: 30_000.0,
    };
    let (mut aa, mut found, mut covered) = (0, 0, 0);
    for seed in 0..20 {
        let mut run = run(1000 + seed, 8, 1, 0.04, &[slow]);
        run.experiment.load_points.retain(LoadPoint::is_steady);
        let analysis = run.analyse();
        let control = effect(&analysis, "none-again", "steady", Metric::ResponseP50);
        aa += u32::from(control.verdict == Verdict::Different);
        let delay = effect(&analysis, "delay", "steady", Metric::ResponseP50);
        found += u32::from(delay.verdict == Verdict::Different);
        let interval = delay.difference.unwrap().interval.unwrap();
        covered += u32::from(interval.low <= 30_000.0 && 30_000.0 <= interval.high);
    }
    assert!(
        aa <= 2 && found >= 18 && covered >= 17,
        "{aa} {found} {covered}"
    );
}
