//! Rounds: order, time, precision, failures, interruption.

use std::collections::BTreeSet;

use meshtax_engine::fake::Fault;
use meshtax_engine::{EngineError, RunError};
use meshtax_model::cluster::{ClusterEvent, ClusterRecord, Severity};
use meshtax_model::event::{Ending, Event};
use meshtax_model::evidence::ProbeId;
use meshtax_model::experiment::VariantId;
use meshtax_model::failure::VariantFailureReason;
use meshtax_model::trial::TrialOutcome;

use crate::setup::{SECOND, Setup, TEN_TRIALS, experiment, id, trial_id};

#[test]
fn a_run_uses_its_time_limit_and_no_more() {
    let ran = Setup::new(TEN_TRIALS, []).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert!(ran.outcome.problem.is_none());
    assert!(ran.took_ns <= 120 * SECOND, "{}", ran.took_ns);
    assert!(ran.took_ns > 100 * SECOND, "{}", ran.took_ns);
    assert!(ran.rounds().len() >= 6);
    assert_eq!(ran.outcome.measured.rounds as usize, ran.rounds().len());
    assert_eq!(ran.outcome.measured.blocks as usize, ran.blocks().len());
    assert_eq!(ran.outcome.measured.trials as usize, ran.sink.trials.len());
    assert_eq!(ran.sink.samples, ran.sink.trials.len());
    assert_eq!(ran.sink.ended, Some(Ending::TimeUsed));
    assert_eq!(ran.calls.last().unwrap(), "teardown");
}

#[test]
fn steps_are_called_in_order() {
    let mut setup = Setup::new("noise", []);
    setup.experiment.design.blocks_per_round = 4;
    let ran = setup.run();
    let blocks = (1..=4)
        .flat_map(|block| (1..=2).map(move |position| format!("trial r1b{block}t0{position}")));
    let mut expected = vec!["prepare".to_owned(), "start 1: none none-again".to_owned()];
    expected.extend(blocks);
    expected.extend(["end".to_owned(), "start 2: none none-again".to_owned()]);
    assert_eq!(ran.calls[..expected.len()], expected);
    assert_eq!(
        ran.sink.calls[..4],
        ["prepared", "evidence", "evidence", "trial"]
    );
    assert_eq!(ran.events.last(), Some(&Event::Finished));
}

#[test]
fn evidence_lost_by_the_end_of_a_round_is_recorded_and_the_run_continues() {
    let lost = Fault::ProofLost(VariantId("limit-mtls".into()), 2);
    let ran = Setup::new(TEN_TRIALS, [lost]).run();
    let on_record: Vec<(u32, &str)> = ran
        .sink
        .failures
        .iter()
        .map(|failure| (failure.round, failure.variant.0.as_str()))
        .collect();
    assert_eq!(on_record, [(2, "limit-mtls")]);
    let later = ran.sink.trials.iter().filter(|t| t.trial.round == 3);
    assert!(later.into_iter().any(|t| t.trial.variant.0 == "limit-mtls"));
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
}

#[test]
fn the_seed_determines_the_plan() {
    let ran = Setup::new(TEN_TRIALS, []).run();
    let experiment = experiment(TEN_TRIALS);
    let plan = meshtax_plan::block(&experiment, 42, 1, 1, &BTreeSet::new());
    let first: Vec<_> = ran
        .sink
        .trials
        .iter()
        .take(10)
        .map(|t| t.trial.clone())
        .collect();
    assert_eq!(first, plan.trials);
}

#[test]
fn rounds_have_priority_over_blocks_when_setup_is_slow() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.engine.setup_ns = 8 * SECOND;
    let ran = setup.run();
    assert!(ran.rounds().len() >= 6, "{:?}", ran.blocks());
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.engine.setup_ns = 8 * SECOND;
    setup.experiment.design.time_limit_ns = 600 * SECOND;
    let ran = setup.run();
    assert!(ran.blocks().contains(&(1, 2)), "{:?}", ran.blocks());
}

#[test]
fn one_block_is_measured_even_when_time_is_too_short() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.experiment.design.time_limit_ns = SECOND;
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.blocks(), BTreeSet::from([(1, 1)]));
    assert_eq!(ran.sink.trials.len(), 10);
}

#[test]
fn precision_stops_the_run_after_the_minimum_number_of_rounds() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.enough_after = Some(1);
    setup.experiment.design.time_limit_ns = 3600 * SECOND;
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::PrecisionReached);
    assert_eq!(ran.rounds().len(), 6);
    assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
}

#[test]
fn precision_is_checked_once_per_round_after_its_last_block() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    // So slow that rounds have several blocks.
    setup.engine.setup_ns = 8 * SECOND;
    setup.enough_after = Some(3);
    setup.experiment.design.time_limit_ns = 3600 * SECOND;
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::PrecisionReached);
    assert_eq!(ran.rounds().len(), 8, "after rounds 6, 7 and 8");
    let blocks = |round| ran.blocks().iter().filter(|(of, _)| *of == round).count();
    assert!(blocks(7) > 1, "{:?}", ran.blocks());
    assert_eq!(blocks(8), blocks(7), "the last round is whole");
}

#[test]
fn a_variant_that_fails_in_the_first_round_is_excluded_from_the_run() {
    let ran = Setup::new(TEN_TRIALS, [Fault::VariantFails(id("envoy-sidecar-l7"), 1)]).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.measured("envoy-sidecar-l7", 2), 0);
    assert!(ran.measured("envoy-sidecar-mtls", 2) > 0);
    assert_eq!(ran.sink.failures.len(), 1);
    assert_eq!(ran.outcome.excluded, ran.sink.failures);
    assert!(
        ran.calls
            .contains(&"start 2: none none-again limit-mtls envoy-sidecar-mtls".to_owned())
    );
    let reported = |e: &Event| matches!(e, Event::VariantFailed(failure) if failure.round == 1);
    assert_eq!(ran.events.iter().filter(|e| reported(e)).count(), 1);
}

#[test]
fn a_later_failure_excludes_the_variant_from_that_round_only() {
    let ran = Setup::new(TEN_TRIALS, [Fault::ProbeFails(id("limit-mtls"), 2)]).run();
    assert!(ran.measured("limit-mtls", 1) > 0);
    assert_eq!(ran.measured("limit-mtls", 2), 0);
    assert!(ran.measured("limit-mtls", 3) > 0);
    assert!(ran.outcome.excluded.is_empty());
    let VariantFailureReason::NotProven { probes, .. } = &ran.sink.failures[0].reason else {
        panic!("{:?}", ran.sink.failures);
    };
    assert_eq!(probes[0].probe, ProbeId::Canary);
    // The failing evidence is stored.
    assert!(
        ran.sink
            .evidence
            .iter()
            .any(|e| e.round == 2 && !e.passed())
    );
}

#[test]
fn nothing_is_measured_without_a_baseline() {
    for name in ["none", "none-again"] {
        let ran = Setup::new(TEN_TRIALS, [Fault::VariantFails(id(name), 1)]).run();
        assert!(matches!(
            ran.outcome.problem,
            Some(RunError::NothingToCompare { .. })
        ));
        assert!(
            matches!(ran.sink.ended, Some(Ending::Failed { ref detail, .. }) if detail.contains(name))
        );
        assert!(ran.sink.trials.is_empty());
        assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    }
}

#[test]
fn nothing_is_measured_without_a_candidate() {
    let all = ["limit-mtls", "envoy-sidecar-mtls", "envoy-sidecar-l7"];
    let faults = all.map(|name| Fault::VariantFails(id(name), 1));
    let ran = Setup::new(TEN_TRIALS, faults).run();
    assert!(matches!(
        ran.outcome.problem,
        Some(RunError::NothingToCompare { .. })
    ));
    assert!(ran.sink.trials.is_empty());
}

#[test]
fn a_round_without_a_baseline_is_skipped() {
    let ran = Setup::new(TEN_TRIALS, [Fault::VariantFails(id("none"), 3)]).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert!(!ran.rounds().contains(&3));
    assert!(ran.rounds().contains(&4));
    let faults = [2, 3, 4].map(|round| Fault::VariantFails(id("none"), round));
    let ran = Setup::new(TEN_TRIALS, faults).run();
    assert!(matches!(
        ran.outcome.problem,
        Some(RunError::NothingToCompare { .. })
    ));
    assert_eq!(ran.rounds(), BTreeSet::from([1]));
}

#[test]
fn a_failed_trial_is_stored_and_the_run_continues() {
    let faults = [
        Fault::TrialFails(trial_id("r1b1t02")),
        Fault::ComponentDies(trial_id("r2b1t03")),
    ];
    let ran = Setup::new(TEN_TRIALS, faults).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.outcome.measured.failed_trials, 2);
    assert!(matches!(
        ran.sink.trials[1].outcome,
        TrialOutcome::Failed { .. }
    ));
    let reported: Vec<&Event> = ran
        .events
        .iter()
        .filter(|e| matches!(e, Event::TrialFailed { .. }))
        .collect();
    assert_eq!(reported.len(), 2);
}

#[test]
fn what_the_environment_reports_is_stored_also_when_the_run_fails() {
    let reported = || ClusterEvent {
        at_unix_ms: 1,
        severity: Severity::Warning,
        variant: None,
        object: "Pod/server".to_owned(),
        reason: "Evicted".to_owned(),
        message: String::new(),
        count: 1,
    };
    for faults in [Vec::new(), vec![Fault::LostAtStart(1)]] {
        let mut setup = Setup::new("quick", faults);
        setup.engine.reports = vec![ClusterRecord::Event(reported())];
        let finished = setup.run();
        assert_eq!(finished.sink.observed, [ClusterRecord::Event(reported())]);
    }
}

#[test]
fn an_interruption_ends_the_round_and_tears_down() {
    let mut setup = Setup::new(TEN_TRIALS, [Fault::Leftover("a veth".to_owned())]);
    setup.interrupt_at = Some(13);
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::Interrupted);
    assert_eq!(ran.sink.trials.len(), 13);
    assert_eq!(ran.sink.ended, Some(Ending::Interrupted));
    assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    assert_eq!(ran.outcome.leftovers, ["a veth"]);
}

#[test]
fn an_engine_lost_during_an_interruption_is_not_a_failure() {
    let mut setup = Setup::new(TEN_TRIALS, [Fault::LostInTrial(trial_id("r1b1t04"))]);
    setup.interrupt_at = Some(4);
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::Interrupted);
    assert!(ran.outcome.problem.is_none());
}

#[test]
fn results_measured_before_the_engine_is_lost_are_kept() {
    let ran = Setup::new(TEN_TRIALS, [Fault::LostInTrial(trial_id("r2b1t04"))]).run();
    let problem = ran.outcome.problem.as_ref();
    assert!(matches!(
        problem,
        Some(RunError::Engine(EngineError::Lost { .. }))
    ));
    assert!(matches!(ran.sink.ended, Some(Ending::Failed { .. })));
    assert!(ran.measured("none", 1) > 0);
    assert_eq!(ran.calls.last().unwrap(), "teardown");
    let ran = Setup::new(TEN_TRIALS, [Fault::LostAtStart(3)]).run();
    assert!(matches!(ran.outcome.ending, Ending::Failed { .. }));
    assert_eq!(ran.outcome.measured.rounds, 2);
}

#[test]
fn missing_requirements_are_reported_before_anything_is_stored() {
    let ran = Setup::new(TEN_TRIALS, [Fault::Missing]).run();
    let problem = ran.outcome.problem.as_ref();
    assert!(matches!(
        problem,
        Some(RunError::Engine(EngineError::Missing { .. }))
    ));
    assert!(ran.sink.calls.is_empty());
    assert!(ran.sink.ended.is_none());
    assert_eq!(ran.calls, ["prepare", "teardown"]);
}

#[test]
fn a_full_disk_stops_the_run_and_tears_down() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    setup.sink.full_after = Some(7);
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Sink(_))));
    assert!(
        ran.outcome
            .problem
            .unwrap()
            .to_string()
            .contains("no space left")
    );
    assert_eq!(ran.sink.trials.len(), 7);
    assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
}

#[test]
fn progress_estimates_are_accurate_from_the_first_trial_to_the_last() {
    let ran = Setup::new(TEN_TRIALS, []).run();
    let total = ran.sink.trials.len() as f64;
    let mut last_done = 0;
    for event in &ran.events {
        if let Event::TrialStarted {
            done, of, left_ns, ..
        } = event
        {
            assert!(done < of);
            assert!(*done >= last_done);
            last_done = *done;
            assert!(
                (f64::from(*of) / total - 1.0).abs() < 0.15,
                "{of} of {total}"
            );
            assert!(*left_ns <= 120 * SECOND);
        }
    }
    let Some(Event::TrialStarted {
        left_ns, done, of, ..
    }) = ran
        .events
        .iter()
        .rfind(|e| matches!(e, Event::TrialStarted { .. }))
    else {
        panic!("no trial");
    };
    assert_eq!(done + 1, *of);
    assert!(*left_ns < SECOND, "{left_ns}");
}

#[test]
fn the_same_seed_gives_the_same_results() {
    let a = Setup::new("noise", []).run();
    let b = Setup::new("noise", []).run();
    assert_eq!(a.sink.trials, b.sink.trials);
    assert_eq!(a.events, b.events);
}
