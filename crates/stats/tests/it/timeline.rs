//! The course of the run, second by second.

use meshtax_model::analysis::Moment;
use meshtax_model::experiment::LoadPointId;
use meshtax_model::trial::UsageSeries;

use crate::analysis::MESH;
use crate::common::{Run, run};

const S: u64 = 1_000_000_000;

/// A round in which each trial takes this many seconds, and is read each second.
fn of_seconds(count: u64) -> Run {
    let mut run = run(11, 1, 1, 0.01, &[MESH]);
    for sample in &mut run.samples {
        sample.series = UsageSeries {
            ends_ns: (1..=count).map(|second| second * S).collect(),
            components: Vec::new(),
        };
    }
    run
}

/// The moments of a variant at a load point.
fn timeline(run: &Run, variant: &str, point: &LoadPointId) -> Vec<Moment> {
    let variants = run.analyse().variants.into_iter();
    let mut found = variants.filter(|found| found.variant.0 == variant);
    let moments = found.next().expect("the variant").timeline.into_iter();
    moments.filter(|m| m.load_point == *point).collect()
}

#[test]
fn each_second_of_a_long_trial_is_a_moment_with_the_trial_s_id() {
    let run = of_seconds(2_500);
    let point = run.experiment.load_points[0].id.clone();
    let moments = timeline(&run, MESH.name, &point);
    assert_eq!(moments.len(), 2_500);
    let mut trials = run.trials.iter().map(|record| &record.trial);
    let trial = trials.find(|t| t.variant.0 == MESH.name && t.load_point == point);
    let id = &trial.expect("a trial").id;
    assert!(moments.iter().all(|moment| moment.trial == *id));
}

#[test]
fn seconds_of_a_trial_begin_after_its_warm_up_and_those_of_a_cold_start_at_once() {
    let mut run = of_seconds(3);
    run.experiment.design.warmup_ns = 2 * S;
    let (warm, cold) = (
        run.experiment.load_points[0].id.clone(),
        run.experiment.load_points[1].id.clone(),
    );
    run.experiment.load_points[1].cold = true;
    for (point, warmup_ns) in [(warm, 2 * S), (cold, 0)] {
        let moments = timeline(&run, MESH.name, &point);
        let trials = run.trials.iter();
        let mut of_point = trials.filter(|t| t.trial.load_point == point);
        let record = of_point.find(|t| t.trial.variant.0 == MESH.name);
        let begin_ns = record.expect("a trial").started_unix_ms * 1_000_000;
        let at: Vec<u64> = moments.iter().map(|m| m.at_ns - begin_ns).collect();
        assert_eq!(at, [0, S, 2 * S].map(|second| second + warmup_ns));
    }
}
