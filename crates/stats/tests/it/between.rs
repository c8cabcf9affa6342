//! Runs against each other: what cancels, what is covered, what is told.

use meshtax_model::analysis::{Metric, Verdict};
use meshtax_model::comparison::{BetweenSource, Change, RunComparison};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, Regime};
use meshtax_stats::RunData;
use meshtax_stats::between::{Options, Runs, compare, default_between};

use crate::common::{Cost, Noise, Run, run};

/// A candidate whose overhead is this factor on all that the baseline takes.
pub(crate) fn candidate(factor: f64) -> Cost {
    Cost {
        name: "mesh",
        level: PolicyLevel::Mtls,
        delay_ns: 200_000.0 * (factor - 1.0),
        cpu_ns: 20_000.0 * (factor - 1.0),
    }
}

/// A run of its own id. Trials differ by 3 %.
pub(crate) fn one(seed: u128, rounds: u32, factor: f64) -> Run {
    run(seed, rounds, 1, 0.03, &[candidate(factor)])
}

/// All latencies, and all CPU, by this factor: a machine that is slower as a whole.
pub(crate) fn slow_down(run: &mut Run, factor: f64) {
    for variant in ["none", "none-again", "mesh"] {
        for point in ["steady", "saturated"] {
            for load in run.loads(variant, point) {
                let buckets: Vec<(u64, u64)> = load.response.buckets().collect();
                let mut slower = meshtax_model::LatencyHistogram::new();
                for (value, count) in buckets {
                    for _ in 0..count {
                        slower.record((value as f64 * factor) as u64);
                    }
                }
                load.response = slower;
                load.window_ns = (load.window_ns as f64 * factor) as u64;
            }
        }
    }
    for sample in &mut run.samples {
        for component in &mut sample.components {
            component.cpu_ns = (component.cpu_ns as f64 * factor) as u64;
        }
    }
}

/// Each with an id of its own.
pub(crate) fn data<'a>(runs: &'a [Run], side: &str) -> Vec<RunData<'a>> {
    let all = runs.iter().enumerate();
    all.map(|(i, run)| {
        let mut data = run.data();
        data.run.id = format!("{side}-{i}");
        data
    })
    .collect()
}

fn compared(base: &[Run], new: &[Run], between: Option<f64>) -> RunComparison {
    let (base, new) = (data(base, "base"), data(new, "new"));
    let options = Options {
        between,
        ..Options::default()
    };
    let runs = Runs {
        base: &base,
        new: &new,
    };
    compare(runs, &options).expect("they have all in common")
}

fn of(comparison: &RunComparison, point: &str, metric: Metric) -> Change {
    let point = LoadPointId(point.to_owned());
    let mut all = comparison.changes.iter();
    let found = all.find(|c| c.load_point == point && c.metric == metric);
    found.expect("such a change").clone()
}

#[test]
fn a_machine_that_is_slower_as_a_whole_changes_nothing() {
    for seed in 0..10 {
        let base = one(seed, 8, 1.15);
        let mut new = one(seed + 100, 8, 1.15);
        slow_down(&mut new, 1.2);
        let comparison = compared(&[base], &[new], None);
        for change in &comparison.changes {
            assert_ne!(change.verdict, Verdict::Different, "{seed}: {change:?}");
        }
        let p50 = of(&comparison, "steady", Metric::ResponseP50);
        assert!(p50.relative.unwrap().value.abs() < 0.08, "{p50:?}");
    }
}

#[test]
fn a_change_is_found_and_the_component_is_the_default() {
    let comparison = compared(&[one(1, 12, 1.1)], &[one(2, 12, 1.4)], None);
    for metric in [Metric::ResponseP50, Metric::CpuPerRequest] {
        let change = of(&comparison, "steady", metric);
        let interval = change.relative.unwrap().interval.unwrap();
        let truth = 1.4 / 1.1 - 1.0;
        assert!(interval.low < truth && truth < interval.high, "{change:?}");
        assert!(interval.low > 0.05, "{change:?}");
        let between = change.between.unwrap();
        assert_eq!(between.source, BetweenSource::Default);
        assert!((between.value - default_between(metric)).abs() < 1e-9);
    }
    let p50 = of(&comparison, "steady", Metric::ResponseP50);
    assert_eq!(p50.verdict, Verdict::Different);
    let (base, new) = (p50.base.unwrap().value, p50.new.unwrap().value);
    assert!(
        (base - 0.1).abs() < 0.05 && (new - 0.4).abs() < 0.06,
        "{base} {new}"
    );
}

#[test]
fn a_run_is_equal_to_itself() {
    let comparison = compared(&[one(3, 8, 1.3)], &[one(3, 8, 1.3)], None);
    for change in &comparison.changes {
        if let Some(relative) = change.relative {
            assert_eq!(relative.value, 0.0, "{change:?}");
            assert_eq!(change.verdict, Verdict::NotDistinguishable);
        }
    }
    assert!(
        comparison.differing.is_empty(),
        "{:?}",
        comparison.differing
    );
    let text = comparison.notes.join("\n");
    assert!(text.contains("Same seed (1)"), "{text}");
}

#[test]
fn the_component_widens_and_runs_that_agree_narrow() {
    let width = |base: &[Run], new: &[Run], between| {
        let change = of(&compared(base, new, between), "steady", Metric::ResponseP50);
        let interval = change.relative.unwrap().interval.unwrap();
        (interval.high - interval.low, change.between.unwrap())
    };
    let (base, new) = ([one(4, 12, 1.2)], [one(5, 12, 1.2)]);
    let (none, given) = width(&base, &new, Some(0.0));
    assert_eq!((given.value, given.source), (0.0, BetweenSource::Given));
    let (default, _) = width(&base, &new, None);
    let (wide, _) = width(&base, &new, Some(0.1));
    assert!(none < default && default < wide, "{none} {default} {wide}");
    let many = |from: u128| -> Vec<Run> { (from..from + 5).map(|s| one(s, 12, 1.2)).collect() };
    let (several, seen) = width(&many(10), &many(20), None);
    assert_eq!(seen.source, BetweenSource::Runs);
    assert!(several < default / 1.8, "{several} {default}");
}

/// The share of pairs of sides whose interval holds the truth, when runs differ by `tau`.
fn coverage(experiments: u128, runs: u128, tau: f64, metric: Metric) -> f64 {
    let mut held = 0.0;
    for number in 0..experiments {
        let mut scatter = Noise::new(1_000_003 * number + 17 * runs + 5);
        let mut side = |from: u128| -> Vec<Run> {
            (from..from + runs)
                .map(|seed| one(seed, 7, 1.2 * (tau * scatter.normal()).exp()))
                .collect()
        };
        let first = number * 1000;
        let (base, new) = (side(first), side(first + 500));
        let change = of(&compared(&base, &new, None), "steady", metric);
        let interval = change.relative.unwrap().interval.unwrap();
        held += f64::from(u8::from(interval.low <= 0.0 && 0.0 <= interval.high));
    }
    held / experiments as f64
}

#[test]
fn intervals_between_runs_cover_when_runs_differ_as_by_default() {
    let metric = Metric::CpuPerRequest;
    let tau = default_between(metric);
    for (experiments, runs) in [(80, 1), (20, 3)] {
        let share = coverage(experiments, runs, tau, metric);
        // Where 95 % of them hold it, fewer than 0.85 of 80 do once in ten thousand times.
        assert!(share >= 0.85, "{runs} a side: {share}");
    }
}

#[test]
fn what_differs_is_told_and_what_is_not_there_is_named() {
    let base = one(6, 7, 1.2);
    let mut new = one(7, 7, 1.2);
    new.environment.host.kernel = "6.1".to_owned();
    new.experiment.workload.connections = 64;
    new.experiment.load_points[0].load = Regime::Saturated;
    new.ending = None;
    let comparison = compared(&[base], &[new], None);
    insta::assert_debug_snapshot!((&comparison.differing, &comparison.notes));
    assert!(
        comparison
            .changes
            .iter()
            .all(|c| c.load_point.0 == "saturated")
    );
}

#[test]
fn runs_without_anything_in_common_say_what_they_have() {
    let base = one(8, 6, 1.2);
    let mut new = one(9, 6, 1.2);
    for variant in &mut new.experiment.variants {
        if variant.id.0 == "mesh" {
            variant.id.0 = "other".to_owned();
        }
    }
    let (base, new) = ([base], [new]);
    let (base, new) = (data(&base, "base"), data(&new, "new"));
    let runs = Runs {
        base: &base,
        new: &new,
    };
    let apart = compare(runs, &Options::default()).unwrap_err();
    assert_eq!(apart.what, "variant");
    assert_eq!(
        (apart.base, apart.new),
        (vec!["mesh".to_owned()], vec!["other".to_owned()])
    );
    let options = Options {
        pairs: vec![("mesh".to_owned(), "other".to_owned())],
        ..Options::default()
    };
    // Named as one, it is compared; what NEW measured was called otherwise, so there is no trial of it.
    let comparison = compare(runs, &options).unwrap();
    for metric in [Metric::ResponseP50, Metric::CpuPerRequest] {
        let Verdict::NotEstimable { reason } = of(&comparison, "steady", metric).verdict else {
            panic!("{comparison:?}");
        };
        assert!(reason.starts_with("in NEW: left out"), "{reason}");
    }
    let nothing = Runs {
        base: &[],
        new: &new,
    };
    assert!(compare(nothing, &Options::default()).is_err());
}
