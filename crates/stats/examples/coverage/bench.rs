//! The bench: thousands of whole experiments per setting through the real analysis.

use crate::pool;
use crate::replay::{CANDIDATES, Pool};
use crate::score::{COVERS_MIN, FALSE_MAX, Figure, Score, WIDTH_MAX, WILSON_MIN};
use crate::setting::{Setting, score_part};
use crate::synthetic::{BOTH_POINTS, Cost};

const EXPERIMENTS: u32 = 2_000;

/// A figure that fewer experiments than this print (a p99 of few rounds) is not judged.
const PRINTED_MIN: u32 = 200;

/// None at all, a share of everything, and a delay.
static MIXED: [Cost; 3] = [
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

static NOTHING: [Cost; 3] = [
    Cost::none("nothing"),
    Cost::none("nothing-2"),
    Cost::none("nothing-3"),
];

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

/// The settings whose names have this in them, with numbers that are theirs for good.
fn numbered<'s>(
    settings: &'s [Setting],
    first: u64,
    only: &str,
) -> impl Iterator<Item = (&'s Setting, u64)> {
    let numbered = settings.iter().zip(first..);
    numbered.filter(move |(setting, _)| setting.name.contains(only))
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
        let judged = line.covers.of >= PRINTED_MIN;
        all &= passed || !judged;
        println!(
            "{:<26} {:<15} | {:.4}  {:.3}..{:.3}  {:>6} | {width:>6.2}    | {}",
            setting.name,
            figure.name(),
            line.covers.value(),
            wilson.low,
            wilson.high,
            line.missing,
            if judged {
                word(passed)
            } else {
                "SKIPPED: too seldom printed"
            }
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
pub(crate) fn synthetic(only: &str) -> bool {
    let fixed = |name, candidates: &'static [Cost], rounds, blocks| Setting {
        name,
        candidates,
        points: &BOTH_POINTS,
        requests: 200,
        rounds,
        blocks,
        precision: None,
    };
    let until = |name, candidates: &'static [Cost], rounds, precision| Setting {
        precision: Some(precision),
        ..fixed(name, candidates, rounds, 1)
    };
    let settings = [
        fixed("8 rounds x 2", &MIXED, 8, 2),
        fixed("16 rounds x 1", &MIXED, 16, 1),
        fixed("12 rounds x 1, no effect", &NOTHING, 12, 1),
        until("until 30 %", &MIXED[..2], 27, 0.3),
        Setting {
            points: &BOTH_POINTS[1..],
            ..until("saturated until 2.5 %", &MIXED, 40, 0.025)
        },
        Setting {
            points: &BOTH_POINTS[1..],
            ..until("the same, no effect", &NOTHING, 40, 0.025)
        },
    ];
    print_head("synthetic");
    let mut all = true;
    for (setting, number) in numbered(&settings, 1, only) {
        all &= print(setting, &score(setting, number, None));
    }
    all
}

/// Experiments made from real trials of identical servers.
pub(crate) fn replay(only: &str) -> bool {
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
            ..until("saturated until 6 %", 0.06)
        },
    ];
    print_head("replay");
    println!("{} rounds of real trials", pool.rounds());
    let mut all = true;
    for (setting, number) in numbered(&settings, 101, only) {
        all &= print(setting, &score(setting, number, Some(&pool)));
    }
    all
}
