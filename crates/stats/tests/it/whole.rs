//! Whole experiments through the real analysis: a small part of the bench in
//! `examples/coverage/`, to notice when something breaks. So few experiments cannot show that a
//! bound is kept; they fail if it is certainly broken.

use crate::pool::parse;
use crate::replay::{CANDIDATES, Pool};
use crate::score::{COVERS_MIN, FALSE_MAX, Figure, Score};
use crate::setting::{Setting, score_part};
use crate::synthetic::{BOTH_POINTS, Cost, TRIAL_SD};

const MIXED: [Cost; 2] = [
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

const NOTHING: [Cost; 2] = [Cost::none("nothing"), Cost::none("nothing-2")];

const FIXED: Setting = Setting {
    name: "fixed",
    candidates: &MIXED,
    points: &BOTH_POINTS,
    requests: 100,
    rounds: 12,
    blocks: 1,
    trial_sd: TRIAL_SD,
    precision: None,
    steal: 0.0,
};

/// The Wilson intervals of the observed shares are compatible with the bounds. Figures that most
/// experiments do not print are passed over: there are too few of them.
fn assert_possible(score: &Score) {
    for (figure, line) in &score.lines {
        let wilson = line.covers.wilson(score.experiments);
        assert!(
            line.missing > line.covers.of || wilson.high >= COVERS_MIN,
            "{figure:?} {line:?}"
        );
    }
    let declared = score.false_declarations;
    assert!(
        declared.of == 0 || declared.wilson(declared.of).low <= FALSE_MAX,
        "{declared:?}"
    );
}

#[test]
fn whole_experiments_cover_their_true_effects() {
    let score = score_part(&FIXED, 1, None, 0..60);
    for figure in [
        Figure::P50Difference,
        Figure::P50Relative,
        Figure::Throughput,
    ] {
        assert!(score.lines[&figure].covers.of >= 60, "{figure:?}");
    }
    assert_possible(&score);
}

#[test]
fn null_experiments_keep_coverage_after_stopping_on_width() {
    let setting = Setting {
        candidates: &NOTHING,
        points: &BOTH_POINTS[1..],
        rounds: 30,
        precision: Some(0.04),
        ..FIXED
    };
    let score = score_part(&setting, 2, None, 0..60);
    assert!(score.stopped >= 50, "{score:?}");
    assert_eq!(score.false_declarations.of, 60);
    assert_possible(&score);
}

/// However noisy the machine is: its noise is no licence to call a cost irrelevant.
#[test]
fn effects_of_twice_the_margin_are_not_declared_irrelevant() {
    const TWICE: [Cost; 1] = [Cost {
        name: "twice",
        latency: 1.2,
        delay_ns: 0.0,
        cpu: 1.0 / 0.96,
        lossy: 0.0,
    }];
    let noisy = |trial_sd| Setting {
        candidates: &TWICE,
        trial_sd,
        ..FIXED
    };
    // As in the test below, where the verdict is given to a cost of zero.
    let quiet = Setting {
        candidates: &TWICE,
        ..QUIET
    };
    let cases = [
        (4, noisy(0.03), 60),
        (5, noisy(0.1), 60),
        (6, noisy(0.2), 60),
        (8, quiet, 20),
    ];
    for (number, setting, experiments) in cases {
        let found = score_part(&setting, number, None, 0..experiments).false_equivalence;
        assert_eq!(found.of, experiments);
        assert!(
            found.value() <= FALSE_MAX,
            "{}: {found:?}",
            setting.trial_sd
        );
    }
}

/// A machine that resolves the margins.
const QUIET: Setting = Setting {
    candidates: &NOTHING,
    points: &[BOTH_POINTS[1]],
    rounds: 60,
    trial_sd: 0.005,
    ..FIXED
};

/// Without noise worth mentioning, the absence of a cost is shown: the verdict is not out of reach.
#[test]
fn absent_cost_is_declared_irrelevant_on_a_quiet_machine() {
    let found = score_part(&QUIET, 7, None, 0..20).true_equivalence;
    assert!(found.value() > 0.5, "{found:?}");
}

/// Real trials of four identical servers, reassigned at random in each round.
#[test]
fn identical_servers_do_not_differ() {
    let text = include_str!("../data/aa-pool.csv");
    let pool = Pool::new(parse(text).expect("the pool can be read"));
    assert!(pool.rounds() > 150);
    let setting = Setting {
        candidates: &CANDIDATES,
        ..FIXED
    };
    let score = score_part(&setting, 3, Some(&pool), 0..60);
    assert_eq!(score.false_declarations.of, 60);
    assert_possible(&score);
}
