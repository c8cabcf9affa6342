//! Continuing an interrupted run.

use std::collections::BTreeSet;

use meshtax_engine::RunError;
use meshtax_engine::fake::Fault;
use meshtax_model::comparison::{Differing, Setting, SettingValue};
use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::TrialRecord;

use crate::setup::{Finished, SECOND, Setup, TEN_TRIALS, id};

/// A run that was interrupted in the trial of this number.
fn interrupted_at(trial: usize, faults: impl Into<Vec<Fault>>) -> Finished {
    let mut setup = Setup::new(TEN_TRIALS, faults);
    setup.interrupt_at = Some(trial);
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::Interrupted);
    ran
}

#[test]
fn resumed_run_measures_the_rounds_after_the_interrupted_one_as_planned() {
    let whole = Setup::new(TEN_TRIALS, []).run();
    let earlier = interrupted_at(25, []);
    let rounds = earlier.rounds();
    let last = *rounds.last().unwrap();
    let resumed = Setup::new(TEN_TRIALS, []).resume(&earlier);
    assert_eq!(resumed.outcome.ending, Ending::TimeUsed);
    assert_eq!(resumed.rounds().first(), Some(&(last + 1)));
    let planned = whole.sink.trials.iter().filter(|t| t.trial.round > last);
    let planned = planned.zip(&resumed.sink.trials);
    assert!(planned.clone().count() > 30);
    for (planned, measured) in planned {
        assert_eq!(planned.trial, measured.trial);
    }
    let both = [&earlier, &resumed].map(|ran| ran.sink.trials.iter());
    let ids: Vec<&TrialId> = both.into_iter().flatten().map(|t| &t.trial.id).collect();
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
    assert_eq!(resumed.outcome.measured.trials as usize, ids.len());
}

#[test]
fn resumed_run_has_the_time_that_is_left_and_the_minimum_of_whole_rounds() {
    let earlier = interrupted_at(5, []);
    assert_eq!(earlier.blocks(), BTreeSet::from([(1, 1)]));
    let resumed = Setup::new(TEN_TRIALS, []).resume(&earlier);
    let both_ns = earlier.took_ns + resumed.took_ns;
    assert!(
        both_ns <= 120 * SECOND && both_ns > 100 * SECOND,
        "{both_ns}"
    );
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.enough_after = Some(1);
    setup.experiment.design.time_limit_ns = 3600 * SECOND;
    let precise = setup.resume(&earlier);
    assert_eq!(precise.outcome.ending, Ending::PrecisionReached);
    assert_eq!(
        precise.rounds(),
        (2..=7).collect(),
        "the first is not whole"
    );
    assert_eq!(precise.outcome.measured.rounds, 6);
}

#[test]
fn run_without_time_left_ends_without_an_environment() {
    let mut earlier = interrupted_at(100, []);
    earlier.took_ns = 119 * SECOND;
    let resumed = Setup::new(TEN_TRIALS, []).resume(&earlier);
    assert_eq!(resumed.sink.ended, Some(Ending::TimeUsed));
    assert_eq!(resumed.calls, ["teardown"]);
    assert!(resumed.outcome.problem.is_none());
    assert_eq!(
        resumed.outcome.measured.trials as usize,
        earlier.sink.trials.len()
    );
}

#[test]
fn run_without_a_complete_block_measures_one_however_late() {
    let mut earlier = interrupted_at(5, []);
    earlier.took_ns = 119 * SECOND;
    let resumed = Setup::new(TEN_TRIALS, []).resume(&earlier);
    assert_eq!(resumed.blocks(), BTreeSet::from([(2, 1)]));
}

#[test]
fn changed_conditions_reject_a_resumption_and_leave_the_store_as_it_is() {
    let earlier = interrupted_at(25, []);
    let kernel = |text: &str| vec![SettingValue::Text(text.to_owned())];
    let changed = |environment: &Environment| {
        assert_eq!(environment.engine, "fake");
        vec![Differing {
            setting: Setting::Kernel,
            base: kernel("6.1"),
            new: kernel("6.8"),
        }]
    };
    let resumed = Setup::new(TEN_TRIALS, []).resume_where(&earlier, &changed);
    let Some(RunError::NotComparable(error)) = &resumed.outcome.problem else {
        panic!("{:?}", resumed.outcome);
    };
    assert_eq!(error.changed[0].setting, Setting::Kernel);
    assert_eq!(resumed.calls, ["prepare", "teardown"]);
    assert!(resumed.sink.calls.is_empty() && resumed.sink.ended.is_none());
}

#[test]
fn variant_that_never_started_is_not_tried_again_after_a_resumption() {
    let failing = Fault::VariantFails(id("envoy-sidecar-l7"), 1);
    let earlier = interrupted_at(25, [failing]);
    let resumed = Setup::new(TEN_TRIALS, []).resume(&earlier);
    assert!(resumed.rounds().len() > 2);
    let measured = |variant: &&TrialRecord| variant.trial.variant.0 == "envoy-sidecar-l7";
    assert_eq!(resumed.sink.trials.iter().filter(measured).count(), 0);
    assert_eq!(resumed.outcome.excluded, earlier.sink.failures);
}

#[test]
fn measured_variant_that_fails_in_the_first_resumed_round_is_tried_again() {
    let earlier = interrupted_at(25, []);
    let next = earlier.rounds().last().unwrap() + 1;
    let failing = Fault::VariantFails(id("envoy-sidecar-l7"), next);
    let resumed = Setup::new(TEN_TRIALS, [failing]).resume(&earlier);
    assert_eq!(resumed.measured("envoy-sidecar-l7", next), 0);
    assert!(resumed.measured("envoy-sidecar-l7", next + 1) > 0);
    assert!(resumed.outcome.excluded.is_empty());
}
