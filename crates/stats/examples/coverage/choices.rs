//! The simulations behind the choices of this crate. The figures are quoted in `lib.rs`,
//! `interval.rs`, `tails.rs` and `stopping.rs`; a change of method is made here first.

use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::Interval;
use meshtax_stats::family::holm;
use meshtax_stats::interval::{CONFIDENCE, Inference, Spread, critical_t};
use meshtax_stats::pairing::{BlockKey, ByBlock, Paired, infer, pairs};
use meshtax_stats::signed_rank::SignedRank;
use meshtax_stats::stopping::looks;
use meshtax_stats::tails::{Counts, compare};

use crate::noise::Noise;

pub(crate) fn all() {
    let mut noise = Noise::new(20_130_527);
    stopping(&mut noise);
    one_sample(&mut noise);
    known_delay(&mut noise);
    tails(&mut noise);
}

/// Rounds with unit noise around zero: coverage, width, and power against 1.5 of its standard
/// deviations, unadjusted and as one of four with Holm's first step.
fn one_sample(noise: &mut Noise) {
    const RUNS: usize = 40_000;
    println!("rounds noise        | t: covers  width power power/4 | Wilcoxon: covers width power");
    for n in [6, 8, 10, 12, 15] {
        for (name, contaminated) in [("normal", false), ("contaminated", true)] {
            let t95 = critical_t(f64::from(n) - 1.0, 0.95).expect("n > 1");
            let t_holm = critical_t(f64::from(n) - 1.0, 1.0 - 0.05 / 4.0).expect("n > 1");
            let mut sums = [0.0_f64; 7];
            for _ in 0..RUNS {
                let values: Vec<f64> = (0..n)
                    .map(|_| {
                        if contaminated {
                            noise.contaminated()
                        } else {
                            noise.normal()
                        }
                    })
                    .collect();
                let fit = Inference::of_mean(&values).expect("values");
                let Some(Spread::Student(student)) = fit.spread else {
                    panic!("six or more units");
                };
                let se = student.standard_error;
                let Interval { low, high } =
                    SignedRank::of(&values).expect("values").interval(0.95);
                let yes = |condition: bool| f64::from(u8::from(condition));
                sums[0] += yes(fit.estimate.abs() < t95 * se);
                sums[1] += 2.0 * t95 * se;
                sums[2] += yes(fit.estimate + 1.5 > t95 * se);
                sums[3] += yes(fit.estimate + 1.5 > t_holm * se);
                sums[4] += yes(low < 0.0 && high > 0.0);
                sums[5] += high - low;
                sums[6] += yes(low + 1.5 > 0.0);
            }
            let m = sums.map(|sum| sum / RUNS as f64);
            println!(
                "{n:>6} {name:<12} |   {:.3}    {:.2}  {:.2}  {:.2}    |   {:.3}    {:.2}  {:.2}",
                m[0], m[1], m[2], m[3], m[4], m[5], m[6]
            );
        }
    }
}

struct Design {
    rounds: u32,
    blocks: u32,
    /// Standard deviation of a trial's p50, relative.
    trial: f64,
    /// Of a process's from round to round.
    process: f64,
    contaminated: bool,
}

/// A/A and a delay of 15 %, as the input of the pairing.
fn simulate(noise: &mut Noise, design: &Design, delay: f64) -> (Paired, Paired) {
    let mut arms = [ByBlock::new(), ByBlock::new(), ByBlock::new()];
    for round in 1..=design.rounds {
        let loud = design.contaminated && noise.uniform() < 0.1;
        let trial_sd = if loud {
            5.0 * design.trial
        } else {
            design.trial
        };
        let process: [f64; 3] = std::array::from_fn(|_| design.process * noise.normal());
        for block in 1..=design.blocks {
            let machine = 0.05 * noise.normal();
            for (arm, process) in arms.iter_mut().zip(process) {
                let log = machine + process + trial_sd * noise.normal();
                arm.insert(BlockKey { round, block }, 100.0 * log.exp());
            }
        }
    }
    let [one, two, mut slow] = arms;
    for value in slow.values_mut() {
        *value += delay;
    }
    let aa = infer(&pairs(&two, &[&one]), Inference::of_units).expect("pairs");
    let effect = infer(&pairs(&slow, &[&one, &two]), Inference::of_units).expect("pairs");
    (aa, effect)
}

/// How often, of many runs.
#[derive(Default)]
struct Detected {
    aa_different: usize,
    found: usize,
    covered: usize,
}

/// The ground truth test: how often the A/A pair is declared different, a delay of 15 % of the
/// p50 is found (beyond the noise floor, the least of a family of four under Holm), and its
/// true value is inside the interval.
fn known_delay(noise: &mut Noise) {
    const RUNS: usize = 4_000;
    println!(
        "\nrounds x blocks  trial process noise        | A/A different  found  covered  of 20: found >= 18"
    );
    let rounds_and_blocks = [6, 8, 10, 14].into_iter().flat_map(|r| [(r, 1), (r, 2)]);
    for (rounds, blocks) in rounds_and_blocks {
        for (trial, contaminated) in [
            (0.03, false),
            (0.05, false),
            (0.06, false),
            (0.08, false),
            (0.03, true),
            (0.05, true),
        ] {
            let design = Design {
                rounds,
                blocks,
                trial,
                process: 0.01,
                contaminated,
            };
            let detected = detections(noise, &design, RUNS);
            let share = |count: usize| count as f64 / RUNS as f64;
            println!(
                "{rounds:>6} x {blocks}         {trial:.2}  0.01    {:<12} |     {:.3}      {:.3}   {:.3}     {:.3}",
                if contaminated {
                    "contaminated"
                } else {
                    "normal"
                },
                share(detected.aa_different),
                share(detected.found),
                share(detected.covered),
                at_least_18_of_20(share(detected.found))
            );
        }
    }
}

/// What runs of a design with a delay of 15 show.
fn detections(noise: &mut Noise, design: &Design, runs: usize) -> Detected {
    let mut detected = Detected::default();
    for _ in 0..runs {
        let (aa, effect) = simulate(noise, design, 15.0);
        let floor = aa
            .log_ratio
            .estimate_relative()
            .interval
            .expect("six")
            .largest_absolute_end();
        detected.aa_different += usize::from(aa.log_ratio.p_value().expect("six") < 0.05);
        // The other three of the family have no effect at all: Holm's first step.
        let p = effect.log_ratio.p_value().expect("six");
        let adjusted = holm(&[p, 1.0, 1.0, 1.0])[0];
        let is_beyond = effect.log_ratio.estimate.exp_m1() > floor;
        detected.found += usize::from(adjusted < 0.05 && is_beyond);
        let interval = effect.difference.interval(CONFIDENCE).expect("six");
        detected.covered += usize::from(interval.low <= 15.0 && 15.0 <= interval.high);
    }
    detected
}

fn at_least_18_of_20(p: f64) -> f64 {
    let q = 1.0 - p;
    p.powi(20) + 20.0 * p.powi(19) * q + 190.0 * p.powi(18) * q * q
}

/// When a run is looked at, and what it takes to stop.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As soon as it is narrow.
    EveryRound,
    /// As soon as it is narrow at one of the looks.
    Looks,
    /// At the look after one at which it was narrow, however wide it is then.
    OneLookOn,
    /// At a check at which it is narrow, as it was at the previous one.
    TwoLooks,
}

/// Stopping when the interval is narrow, never before ten rounds (or six, of two blocks each):
/// coverage afterwards.
fn stopping(noise: &mut Noise) {
    const RUNS: u32 = 20_000;
    println!(
        "\nstopping on width: rule, noise, first, target / noise | covers | as made | mean rounds"
    );
    for rule in [
        Rule::EveryRound,
        Rule::Looks,
        Rule::OneLookOn,
        Rule::TwoLooks,
    ] {
        for contaminated in [false, true] {
            for (first, target) in [
                (10, 0.35),
                (10, 0.5),
                (10, 0.7),
                (6, 0.5),
                (6, 0.8),
                (6, 1.1),
            ] {
                let (mut covered, mut wider, mut rounds) = (0, 0, 0);
                for _ in 0..RUNS {
                    let (fit, n) = stopped(noise, rule, contaminated, first, target);
                    let holds = |fit: &Inference| {
                        let interval = fit.interval(CONFIDENCE).expect("six or more");
                        !interval.excludes_zero()
                    };
                    covered += u32::from(holds(&fit));
                    wider += u32::from(holds(&fit.after_stopping()));
                    rounds += n;
                }
                let share = |count: u32| f64::from(count) / f64::from(RUNS);
                println!(
                    "{:<10} {:<12} {first:>2} {target:.2} | {:.3} | {:.3} | {:.1}",
                    format!("{rule:?}"),
                    if contaminated {
                        "contaminated"
                    } else {
                        "normal"
                    },
                    share(covered),
                    share(wider),
                    share(rounds)
                );
            }
        }
    }
}

/// One run until the rule ends it, with its number of rounds.
fn stopped(
    noise: &mut Noise,
    rule: Rule,
    contaminated: bool,
    first: u32,
    target: f64,
) -> (Inference, u32) {
    let mut values: Vec<f64> = Vec::new();
    let mut narrow_before = false;
    loop {
        values.push(if contaminated {
            noise.contaminated()
        } else {
            noise.normal()
        });
        let round = values.len() as u32;
        let looks = matches!(rule, Rule::EveryRound) || looks(round);
        if round < first || !looks {
            continue;
        }
        let fit = Inference::of_units(&values).expect("values");
        let interval = fit.interval(CONFIDENCE).expect("six or more");
        let narrow = interval.high - interval.low < 2.0 * target;
        let stop = match rule {
            Rule::EveryRound | Rule::Looks => narrow,
            Rule::OneLookOn => narrow_before,
            Rule::TwoLooks => narrow && narrow_before,
        };
        if stop || round >= 200 {
            return (fit, round);
        }
        narrow_before = narrow;
    }
}

/// Coverage of the jackknife-t for p99: latencies are log-normal (the p99 is 2.5 times the
/// p50), trials and processes differ, and every fifth trial has a slow spell.
fn tails(noise: &mut Noise) {
    const RUNS: usize = 1_500;
    println!("\np99: rounds x blocks requests | covers: difference, log ratio | width / p99");
    for (rounds, blocks, requests) in [
        (6_u32, 2_u32, 500),
        (8, 2, 500),
        (10, 1, 500),
        (10, 2, 500),
        (14, 2, 500),
        (10, 2, 2000),
    ] {
        let truth = {
            let mut pool = Vec::new();
            for _ in 0..4000 {
                let process = 0.01 * noise.normal();
                sample(noise, process, 500, &mut pool);
            }
            counts(&pool).quantile(0.99).expect("values")
        };
        let (mut difference, mut ratio, mut width) = (0, 0, 0.0);
        for _ in 0..RUNS {
            let mut trials: [Vec<(BlockKey, Counts)>; 3] = Default::default();
            for round in 1..=rounds {
                for arm in &mut trials {
                    let process = 0.01 * noise.normal();
                    for block in 1..=blocks {
                        let mut values = Vec::new();
                        sample(noise, process, requests, &mut values);
                        arm.push((BlockKey { round, block }, counts(&values)));
                    }
                }
            }
            let refer = |arm: usize| trials[arm].iter().map(|(key, counts)| (*key, counts));
            let own: Vec<_> = refer(2).collect();
            let base: Vec<_> = refer(0).chain(refer(1)).collect();
            let effect = compare(0.99, &own, &base).expect("trials");
            let d = effect.difference.interval(CONFIDENCE).expect("six");
            let r = effect.log_ratio.interval(CONFIDENCE).expect("six");
            difference += usize::from(!d.excludes_zero());
            ratio += usize::from(!r.excludes_zero());
            width += (d.high - d.low) / truth;
        }
        let share = |count: usize| count as f64 / RUNS as f64;
        println!(
            "{rounds:>12} x {blocks}       {requests:>5}    | {:.3}  {:.3}                | {:.2}",
            share(difference),
            share(ratio),
            width / RUNS as f64
        );
    }
}

fn counts(values: &[u64]) -> Counts {
    let mut histogram = LatencyHistogram::new();
    for value in values {
        histogram.record(*value);
    }
    Counts::from(&histogram)
}

/// One trial's latencies in nanoseconds.
fn sample(noise: &mut Noise, process: f64, requests: usize, into: &mut Vec<u64>) {
    let trial = 0.04 * noise.normal();
    let spell = if noise.uniform() < 0.2 { 0.02 } else { 0.002 };
    for _ in 0..requests {
        let slow = if noise.uniform() < spell { 1.0 } else { 0.0 };
        let log = process + trial + 0.35 * noise.normal() + slow;
        into.push((200_000.0 * log.exp()) as u64);
    }
}
