//! The bench: thousands of whole experiments per setting through the real analysis.

use crate::pool;
use crate::replay::{CANDIDATES, Pool};
use crate::score::{
    BIAS_MAX, COVERS_MIN, FALSE_MAX, Figure, OVERLOADS_MIN, Score, WIDTH_MAX, WILSON_MIN,
};
use crate::setting::{Setting, score_part};
use crate::synthetic::{BOTH_POINTS, Cost, TRIAL_SD};

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
        lossy: 0.0,
    },
    Cost {
        name: "delay",
        latency: 1.0,
        delay_ns: 25_000.0,
        cpu: 1.1,
        lossy: 0.0,
    },
];

/// One that keeps the cores many times as busy as no mesh.
static BUSY: [Cost; 2] = [
    Cost::none("nothing"),
    Cost {
        name: "busy",
        latency: 2.0,
        delay_ns: 0.0,
        cpu: 8.0,
        lossy: 0.0,
    },
];

static LOSSY: [Cost; 3] = [
    Cost::none("nothing"),
    Cost {
        lossy: 0.05,
        ..Cost::none("seldom")
    },
    Cost {
        lossy: 0.8,
        ..Cost::none("overwhelmed")
    },
];

/// Twice the margin of the p50, of CPU and of throughput; the same and twice that of the p99; and none.
static TWICE_THE_MARGIN: [Cost; 3] = [
    Cost {
        name: "twice-p50",
        latency: 1.04,
        delay_ns: 0.0,
        cpu: 1.0 / 0.96,
        lossy: 0.0,
    },
    Cost {
        name: "twice-p99",
        latency: 1.2,
        delay_ns: 0.0,
        cpu: 1.0 / 0.96,
        lossy: 0.0,
    },
    Cost::none("nothing"),
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

fn word(passed: bool) -> &'static str {
    if passed { "PASS" } else { "FAIL" }
}

/// Prints a setting's lines; returns whether all requirements are met.
fn print(setting: &Setting, score: &Score) -> bool {
    let mut all = print_intervals(setting, score);
    all &= print_verdicts(setting, score);
    all &= print_overloads(setting, score);
    if setting.steal > 0.0 {
        for (figure, line) in &score.lines {
            println!(
                "{:<26} {:<15} | bias {:+.3} of the half width",
                setting.name,
                figure.name(),
                line.bias()
            );
        }
    }
    println!(
        "{:<26} {:.1} rounds on average; ended by precision: {:.2}",
        setting.name,
        score.rounds as f64 / f64::from(score.experiments),
        f64::from(score.stopped) / f64::from(score.experiments)
    );
    all
}

/// Whether the intervals of every figure that is judged are unbiased, narrow enough, and cover the truth.
fn print_intervals(setting: &Setting, score: &Score) -> bool {
    let mut all = true;
    for figure in Figure::ALL {
        let Some(line) = score.lines.get(&figure) else {
            continue;
        };
        let wilson = line.covers.wilson(score.experiments);
        let width = line.relative_width();
        let is_unbiased = setting.steal == 0.0 || line.bias().abs() <= BIAS_MAX;
        let passed = line.covers.value() >= COVERS_MIN
            && wilson.low > WILSON_MIN
            // With exclusions, Student's has more data.
            && (width <= WIDTH_MAX || setting.steal > 0.0)
            && is_unbiased;
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
    all
}

/// Whether no more than the permitted share of verdicts is false.
fn print_verdicts(setting: &Setting, score: &Score) -> bool {
    let mut all = true;
    for (name, found) in [
        ("declares falsely", score.false_declarations),
        ("falsely irrelevant", score.false_equivalence),
    ] {
        if found.of > 0 {
            let share = found.value();
            let passed = share <= FALSE_MAX;
            all &= passed;
            println!(
                "{:<26} {name:<18} | {share:.4}                           |           | {}",
                setting.name,
                word(passed)
            );
        }
    }
    if score.true_equivalence.of > 0 {
        println!(
            "{:<26} {:<18} | {:.4}",
            setting.name,
            "rightly irrelevant",
            score.true_equivalence.value()
        );
    }
    all
}

/// Whether overloads were declared, and nothing else was.
fn print_overloads(setting: &Setting, score: &Score) -> bool {
    let mut all = score.false_overloads.value() <= FALSE_MAX;
    if score.true_overloads.of > 0 {
        all &= score.true_overloads.value() >= OVERLOADS_MIN;
        println!(
            "{:<26} overloaded      | declared {:.4}, falsely {:.4} | {}",
            setting.name,
            score.true_overloads.value(),
            score.false_overloads.value(),
            word(all)
        );
    }
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
        trial_sd: TRIAL_SD,
        precision: None,
        steal: 0.0,
    };
    let until = |name, candidates: &'static [Cost], rounds, precision| Setting {
        precision: Some(precision),
        ..fixed(name, candidates, rounds, 1)
    };
    let noisy = |name, trial_sd| Setting {
        trial_sd,
        ..fixed(name, &TWICE_THE_MARGIN, 16, 1)
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
        Setting {
            steal: 0.15,
            ..fixed("15 % steal", &BUSY, 30, 1)
        },
        fixed("overload", &LOSSY, 16, 1),
        noisy("margins, 3 % noise", 0.03),
        noisy("margins, 10 % noise", 0.1),
        noisy("margins, 20 % noise", 0.2),
        // Here the verdict is within reach, as the share of rightly irrelevant ones shows.
        Setting {
            rounds: 60,
            points: &BOTH_POINTS[1..],
            ..noisy("margins, 0.5 % noise", 0.005)
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
        trial_sd: TRIAL_SD,
        precision: None,
        steal: 0.0,
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
