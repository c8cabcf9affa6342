//! The bench: thousands of whole experiments per setting through the real analysis.

use meshtax_model::event::Ending;
use meshtax_stats::pairing::BlockKey;
use meshtax_stats::{analyse, precision_reached};

use crate::noise::Noise;
use crate::pool;
use crate::records::{Records, experiment};
use crate::replay::{CANDIDATES, Pool, Replay};
use crate::score::{COVERS_MIN, FALSE_MAX, Figure, Score, WIDTH_MAX, WILSON_MIN};
use crate::synthetic::{BOTH_POINTS, Cost, Simulation};

const EXPERIMENTS: u32 = 2_000;

/// In every so many experiments, widths are held against Student's.
const WIDTHS_EVERY: u32 = 4;

/// None at all, a share of everything, and a delay.
const MIXED: [Cost; 3] = [
    Cost::none("nothing"),
    Cost {
        name: "share",
        latency: 1.12,
        delay_ns: 0.0,
        cpu: 1.25,
    },
    Cost {
        name: "delay",
        latency: 1.0,
        delay_ns: 25_000.0,
        cpu: 1.1,
    },
];

const NOTHING: [Cost; 3] = [
    Cost::none("nothing"),
    Cost::none("nothing-2"),
    Cost::none("nothing-3"),
];

/// How an experiment is made, and when it ends.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) candidates: &'static [Cost],
    pub(crate) points: &'static [usize],
    pub(crate) requests: usize,
    /// The most rounds, or all of them.
    pub(crate) rounds: u32,
    pub(crate) blocks: u32,
    /// The half width at which it ends.
    pub(crate) precision: Option<f64>,
}

/// Measures one experiment, until its end or until it is precise enough.
fn measure(
    setting: &Setting,
    records: &mut Records,
    mut block: impl FnMut(BlockKey, &mut Records),
) {
    records.clear();
    for round in 1..=setting.rounds {
        for number in 1..=setting.blocks {
            let key = BlockKey {
                round,
                block: number,
            };
            block(key, records);
            let enough = |half_width| precision_reached(&records.data(), half_width);
            if setting.precision.is_some_and(enough) {
                records.ending = Ending::PrecisionReached;
                return;
            }
        }
    }
}

/// Experiments `from`, `from + step` and so on of a setting.
pub(crate) fn score_part(
    setting: &Setting,
    number: u64,
    pool: Option<&Pool>,
    indices: impl Iterator<Item = u32>,
) -> Score {
    let names: Vec<&str> = setting.candidates.iter().map(|cost| cost.name).collect();
    let mut asked = experiment(&names);
    asked.load_points = setting
        .points
        .iter()
        .map(|point| asked.load_points[*point].clone())
        .collect();
    let mut records = Records::new(asked);
    let mut score = Score::default();
    for index in indices {
        let noise = Noise::of_experiment(number, index);
        if let Some(pool) = pool {
            let mut replay = Replay::new(pool, noise, setting.rounds);
            measure(setting, &mut records, |key, into| replay.block(key, into));
        } else {
            let (candidates, points) = (setting.candidates, setting.points);
            let mut machine = Simulation::new(noise, candidates, points, setting.requests);
            measure(setting, &mut records, |key, into| machine.block(key, into));
        }
        let analysis = analyse(&records.data());
        score.stopped += u32::from(records.ending == Ending::PrecisionReached);
        let widths = index.is_multiple_of(WIDTHS_EVERY);
        score.take(&analysis, setting.candidates, &records, widths);
    }
    score
}

/// All experiments of a setting, on two threads.
fn score(setting: &Setting, number: u64, pool: Option<&Pool>) -> Score {
    const THREADS: usize = 2;
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..THREADS)
            .map(|thread| {
                let indices = (thread as u32..EXPERIMENTS).step_by(THREADS);
                scope.spawn(move || score_part(setting, number, pool, indices))
            })
            .collect();
        let mut sum = Score::default();
        for part in parts {
            sum.add(&part.join().expect("a simulation does not panic"));
        }
        sum
    })
}

fn print_head(what: &str) {
    println!("\n{what}: {EXPERIMENTS} experiments per setting");
    println!(
        "setting                    figure          | covers  Wilson        missing | width / t | verdict"
    );
}

/// Prints a setting's lines; whether all requirements are met.
fn print(setting: &Setting, score: &Score) -> bool {
    let word = |passed: bool| if passed { "PASS" } else { "FAIL" };
    let mut all = true;
    for figure in Figure::ALL {
        let Some(line) = score.lines.get(&figure) else {
            continue;
        };
        let wilson = line.covers.wilson(score.experiments);
        let width = line.relative_width();
        let passed =
            line.covers.value() >= COVERS_MIN && wilson.low > WILSON_MIN && width <= WIDTH_MAX;
        all &= passed;
        println!(
            "{:<26} {:<15} | {:.4}  {:.3}..{:.3}  {:>6} | {width:>6.2}    | {}",
            setting.name,
            figure.name(),
            line.covers.value(),
            wilson.low,
            wilson.high,
            line.missing,
            word(passed)
        );
    }
    if score.false_declarations.of > 0 {
        let share = score.false_declarations.value();
        let passed = share <= FALSE_MAX;
        all &= passed;
        println!(
            "{:<26} {:<15} | {share:.4}                              |           | {}",
            setting.name,
            "declares falsely",
            word(passed)
        );
    }
    println!(
        "{:<26} {:.1} rounds on average; ended by precision: {:.2}",
        setting.name,
        score.rounds as f64 / f64::from(score.experiments),
        f64::from(score.stopped) / f64::from(score.experiments)
    );
    all
}

/// Whole experiments on the made-up machine.
pub(crate) fn synthetic() -> bool {
    let fixed = |name, candidates, rounds, blocks| Setting {
        name,
        candidates,
        points: &BOTH_POINTS,
        requests: 200,
        rounds,
        blocks,
        precision: None,
    };
    let until = |name, candidates, blocks, precision| Setting {
        precision: Some(precision),
        ..fixed(name, candidates, 40, blocks)
    };
    let settings = [
        fixed("8 rounds x 2", &MIXED, 8, 2),
        fixed("16 rounds x 1", &MIXED, 16, 1),
        fixed("12 rounds x 1, no effect", &NOTHING, 12, 1),
        until("until 12 %", &MIXED, 1, 0.12),
        until("until 12 %, no effect", &NOTHING, 1, 0.12),
        Setting {
            points: &BOTH_POINTS[1..],
            ..until("saturated until 3 %", &NOTHING, 1, 0.03)
        },
    ];
    print_head("synthetic");
    let mut all = true;
    for (setting, number) in settings.iter().zip(1..) {
        all &= print(setting, &score(setting, number, None));
    }
    all
}

/// Experiments made from real trials of identical servers.
pub(crate) fn replay() -> bool {
    const TEXT: &str = include_str!("../../tests/data/aa-pool.csv");
    let Some(trials) = pool::parse(TEXT) else {
        println!("the pool cannot be read");
        return false;
    };
    let pool = Pool::new(trials);
    let fixed = |name, rounds| Setting {
        name,
        candidates: &CANDIDATES,
        points: &BOTH_POINTS,
        requests: 0,
        rounds,
        blocks: 1,
        precision: None,
    };
    let until = |name, precision| Setting {
        precision: Some(precision),
        ..fixed(name, 60)
    };
    let settings = [
        fixed("10 rounds", 10),
        fixed("20 rounds", 20),
        fixed("30 rounds", 30),
        Setting {
            points: &BOTH_POINTS[1..],
            ..until("saturated until 4 %", 0.04)
        },
    ];
    print_head("replay");
    println!("{} rounds of real trials", pool.rounds());
    let mut all = true;
    for (setting, number) in settings.iter().zip(101..) {
        all &= print(setting, &score(setting, number, Some(&pool)));
    }
    all
}
