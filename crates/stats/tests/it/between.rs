//! Comparison of runs: what cancels out, coverage, and what is reported.

use meshtax_model::analysis::{Metric, NotEstimable, RunSide, Verdict};
use meshtax_model::comparison::{BetweenSource, Change, ComparisonNote, RunComparison};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, Regime};
use meshtax_stats::RunData;
use meshtax_stats::between::{Common, Options, Runs, compare, default_between};

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

/// A run with the given id. Trials differ by 3 %.
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

/// Each with a different id.
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
fn uniformly_slower_machine_shows_no_change() {
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
fn change_is_detected_with_the_default_between_run_component() {
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
fn run_compared_with_itself_shows_no_change() {
    let comparison = compared(&[one(3, 8, 1.3)], &[one(3, 8, 1.3)], None);
    for change in &comparison.changes {
        if let Some(relative) = change.relative {
            assert_eq!(relative.value, 0.0, "{change:?}");
            assert_eq!(change.verdict, Verdict::Inconclusive);
        }
    }
    assert!(
        comparison.differing.is_empty(),
        "{:?}",
        comparison.differing
    );
    let same_seed = ComparisonNote::SameSeed { seed: 1 };
    assert!(
        comparison.notes.contains(&same_seed),
        "{:?}",
        comparison.notes
    );
}

#[test]
fn between_run_component_widens_and_agreeing_runs_narrow_the_interval() {
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
fn between_run_intervals_reach_coverage_with_the_default_component() {
    let metric = Metric::CpuPerRequest;
    let tau = default_between(metric);
    for (experiments, runs) in [(80, 1), (20, 3)] {
        let share = coverage(experiments, runs, tau, metric);
        // Where 95 % of them hold it, fewer than 0.85 of 80 do once in ten thousand times.
        assert!(share >= 0.85, "{runs} a side: {share}");
    }
}

#[test]
fn differing_settings_and_unpaired_load_points_are_listed() {
    let base = one(6, 7, 1.2);
    let mut new = one(7, 7, 1.2);
    new.environment.machines[0].kernel = "6.1".to_owned();
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
fn runs_without_a_common_variant_are_rejected_with_both_lists() {
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
    assert_eq!(apart.what, Common::Variant);
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
        let NotEstimable::InSide { side, reason } = reason else {
            panic!("{reason:?}");
        };
        assert_eq!(side, RunSide::New);
        assert!(matches!(*reason, NotEstimable::Excluded { .. }));
    }
    let nothing = Runs {
        base: &[],
        new: &new,
    };
    assert!(compare(nothing, &Options::default()).is_err());
}

/// On shared cores, throughput is a property of their number; CPU per request is not.
#[test]
fn throughput_is_not_compared_between_machines_of_different_size() {
    let base = [one(1, 8, 1.5)];
    let same = compared(&base, &[one(2, 8, 1.5)], None);
    let throughput = of(&same, "saturated", Metric::Throughput);
    assert_ne!(throughput.relative, None);
    let mut larger = one(2, 8, 1.5);
    larger.environment.machines[0].cores = 8;
    let compared = compared(&base, &[larger], None);
    let throughput = of(&compared, "saturated", Metric::Throughput);
    let reason = NotEstimable::DifferentMachineSizes;
    assert_eq!(throughput.verdict, Verdict::NotEstimable { reason });
    assert_eq!(throughput.relative, None);
    let cpu = of(&compared, "saturated", Metric::CpuPerRequest);
    assert_ne!(cpu.relative, None);
}
