//! The runner with the fake engine: order, stopping, failing, interruption, the pilot.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_engine::fake::{FakeClock, FakeEngine, Fault};
use meshtax_engine::{
    Clock as _, EngineError, RunError, RunOptions, RunOutcome, Sink, SinkError, Watch, run,
};
use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Event};
use meshtax_model::evidence::{Evidence, VariantFailure};
use meshtax_model::experiment::{Experiment, Inject, PolicyLevel, VariantId};
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};
use meshtax_spec::{KnownDataPlane, add_injected, parse, preset};

const SECOND: u64 = 1_000_000_000;

fn experiment(name: &str) -> Experiment {
    let known = [
        KnownDataPlane::new("limit-mtls", [PolicyLevel::Mtls]),
        KnownDataPlane::new("envoy-sidecar", [PolicyLevel::Mtls, PolicyLevel::L7]),
    ];
    parse(name, preset(name).unwrap().yaml, &known).unwrap()
}

/// Keeps everything, and fails at a given trial as a full disk does.
#[derive(Default)]
struct Memory {
    calls: Vec<&'static str>,
    experiment: Option<Experiment>,
    evidence: Vec<Evidence>,
    failures: Vec<VariantFailure>,
    trials: Vec<TrialRecord>,
    samples: usize,
    full_after: Option<usize>,
    ended: Option<Ending>,
}

impl Sink for Memory {
    fn prepared(&mut self, _: &Environment, experiment: &Experiment) -> Result<(), SinkError> {
        self.calls.push("prepared");
        self.experiment = Some(experiment.clone());
        Ok(())
    }

    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError> {
        self.calls.push("evidence");
        self.evidence.push(evidence.clone());
        Ok(())
    }

    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError> {
        self.failures.push(failure.clone());
        Ok(())
    }

    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError> {
        if self.full_after == Some(self.trials.len()) {
            return Err(SinkError::new("no space left on device"));
        }
        self.calls.push("trial");
        self.samples += usize::from(sample.is_some());
        self.trials.push(record.clone());
        Ok(())
    }

    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError> {
        self.ended = Some(ending.clone());
        Ok(())
    }
}

struct Ran {
    outcome: RunOutcome,
    sink: Memory,
    events: Vec<Event>,
    calls: Vec<String>,
    took_ns: u64,
}

impl Ran {
    fn rounds(&self) -> BTreeSet<u32> {
        self.sink.trials.iter().map(|t| t.trial.round).collect()
    }

    fn blocks(&self) -> BTreeSet<(u32, u32)> {
        let block = |t: &TrialRecord| (t.trial.round, t.trial.block);
        self.sink.trials.iter().map(block).collect()
    }

    fn measured(&self, variant: &str, round: u32) -> usize {
        let hit = |t: &&TrialRecord| t.trial.variant.0 == variant && t.trial.round == round;
        self.sink.trials.iter().filter(hit).count()
    }
}

/// A run with the knobs that tests turn.
struct Setup {
    experiment: Experiment,
    engine: FakeEngine,
    sink: Memory,
    /// Interrupt when this many trials have started.
    interrupt_at: Option<usize>,
    /// The precision is reached after this many questions.
    enough_after: Option<u32>,
}

impl Setup {
    fn new(name: &str, faults: impl Into<Vec<Fault>>) -> Self {
        Self {
            experiment: experiment(name),
            engine: FakeEngine::with_faults(FakeClock::default(), faults),
            sink: Memory::default(),
            interrupt_at: None,
            enough_after: None,
        }
    }

    fn run(mut self) -> Ran {
        let clock = self.engine.clock.clone();
        let interrupted = AtomicBool::new(false);
        let mut events = Vec::new();
        let mut started = 0;
        let mut asked = 0;
        let outcome = run(
            &mut self.engine,
            &self.experiment,
            RunOptions { seed: 42 },
            &mut self.sink,
            Watch {
                clock: &clock,
                events: &mut |event| {
                    started += usize::from(matches!(event, Event::TrialStarted { .. }));
                    if Some(started) == self.interrupt_at {
                        interrupted.store(true, Ordering::Relaxed);
                    }
                    events.push(event);
                },
                interrupted: &interrupted,
                enough: &mut || {
                    asked += 1;
                    self.enough_after.is_some_and(|n| asked >= n)
                },
            },
        );
        Ran {
            outcome,
            sink: self.sink,
            events,
            calls: self.engine.calls,
            took_ns: clock.now_ns(),
        }
    }
}

fn id(name: &str) -> VariantId {
    VariantId(name.to_owned())
}

fn trial_id(name: &str) -> TrialId {
    TrialId(name.to_owned())
}

#[test]
fn a_whole_run_uses_its_time_and_not_more() {
    let ran = Setup::new("quick", []).run();
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
fn every_step_comes_in_its_order() {
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
fn what_was_lost_by_a_rounds_end_is_on_record_and_the_run_goes_on() {
    let lost = Fault::ProofLost(VariantId("limit-mtls".into()), 2);
    let ran = Setup::new("quick", [lost]).run();
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
fn the_plan_is_the_seeds() {
    let ran = Setup::new("quick", []).run();
    let experiment = experiment("quick");
    let plan = meshtax_spec::block(&experiment, 42, 1, 1, &BTreeSet::new());
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
fn rounds_come_before_blocks_where_set_up_is_slow() {
    let mut setup = Setup::new("quick", []);
    setup.engine.setup_ns = 8 * SECOND;
    let ran = setup.run();
    assert!(ran.rounds().len() >= 6, "{:?}", ran.blocks());
    let mut setup = Setup::new("quick", []);
    setup.engine.setup_ns = 8 * SECOND;
    setup.experiment.design.time_limit_ns = 600 * SECOND;
    let ran = setup.run();
    assert!(ran.blocks().contains(&(1, 2)), "{:?}", ran.blocks());
}

#[test]
fn too_little_time_still_gives_one_block() {
    let mut setup = Setup::new("quick", []);
    setup.experiment.design.time_limit_ns = SECOND;
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.blocks(), BTreeSet::from([(1, 1)]));
    assert_eq!(ran.sink.trials.len(), 10);
}

#[test]
fn precision_stops_it_but_not_before_the_least_rounds() {
    let mut setup = Setup::new("quick", []);
    setup.enough_after = Some(1);
    setup.experiment.design.time_limit_ns = 3600 * SECOND;
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::PrecisionReached);
    assert_eq!(ran.rounds().len(), 6);
    assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
}

#[test]
fn a_variant_that_fails_at_first_is_left_out_for_good() {
    let ran = Setup::new("quick", [Fault::VariantFails(id("envoy-sidecar-l7"), 1)]).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.measured("envoy-sidecar-l7", 2), 0);
    assert!(ran.measured("envoy-sidecar-mtls", 2) > 0);
    assert_eq!(ran.sink.failures.len(), 1);
    assert_eq!(ran.outcome.left_out, ran.sink.failures);
    assert!(
        ran.calls
            .contains(&"start 2: none none-again limit-mtls envoy-sidecar-mtls".to_owned())
    );
    let told = |e: &Event| matches!(e, Event::VariantFailed { round: 1, .. });
    assert_eq!(ran.events.iter().filter(|e| told(e)).count(), 1);
}

#[test]
fn a_later_failure_is_for_its_round_only() {
    let ran = Setup::new("quick", [Fault::ProbeFails(id("limit-mtls"), 2)]).run();
    assert!(ran.measured("limit-mtls", 1) > 0);
    assert_eq!(ran.measured("limit-mtls", 2), 0);
    assert!(ran.measured("limit-mtls", 3) > 0);
    assert!(ran.outcome.left_out.is_empty());
    assert!(ran.sink.failures[0].reason.contains("canary"));
    // What the failing probe saw is kept.
    assert!(
        ran.sink
            .evidence
            .iter()
            .any(|e| e.round == 2 && !e.passed())
    );
}

#[test]
fn without_a_baseline_nothing_is_measured() {
    for name in ["none", "none-again"] {
        let ran = Setup::new("quick", [Fault::VariantFails(id(name), 1)]).run();
        assert!(matches!(
            ran.outcome.problem,
            Some(RunError::NothingToCompare { .. })
        ));
        assert!(
            matches!(ran.sink.ended, Some(Ending::Failed { ref reason }) if reason.contains(name))
        );
        assert!(ran.sink.trials.is_empty());
        assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    }
}

#[test]
fn without_any_candidate_nothing_is_measured() {
    let all = ["limit-mtls", "envoy-sidecar-mtls", "envoy-sidecar-l7"];
    let faults = all.map(|name| Fault::VariantFails(id(name), 1));
    let ran = Setup::new("quick", faults).run();
    assert!(matches!(
        ran.outcome.problem,
        Some(RunError::NothingToCompare { .. })
    ));
    assert!(ran.sink.trials.is_empty());
}

#[test]
fn a_round_without_a_baseline_is_skipped() {
    let ran = Setup::new("quick", [Fault::VariantFails(id("none"), 3)]).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert!(!ran.rounds().contains(&3));
    assert!(ran.rounds().contains(&4));
    let faults = [2, 3, 4].map(|round| Fault::VariantFails(id("none"), round));
    let ran = Setup::new("quick", faults).run();
    assert!(matches!(
        ran.outcome.problem,
        Some(RunError::NothingToCompare { .. })
    ));
    assert_eq!(ran.rounds(), BTreeSet::from([1]));
}

#[test]
fn a_failed_trial_is_kept_and_the_others_go_on() {
    let faults = [
        Fault::TrialFails(trial_id("r1b1t02")),
        Fault::ComponentDies(trial_id("r2b1t03")),
    ];
    let ran = Setup::new("quick", faults).run();
    assert_eq!(ran.outcome.ending, Ending::TimeUsed);
    assert_eq!(ran.outcome.measured.failed_trials, 2);
    assert!(matches!(
        ran.sink.trials[1].outcome,
        TrialOutcome::Failed { .. }
    ));
    let told: Vec<&Event> = ran
        .events
        .iter()
        .filter(|e| matches!(e, Event::TrialFailed { .. }))
        .collect();
    assert_eq!(told.len(), 2);
}

#[test]
fn an_interruption_ends_the_round_and_takes_down() {
    let mut setup = Setup::new("quick", [Fault::Leftover("a veth".to_owned())]);
    setup.interrupt_at = Some(13);
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::Interrupted);
    assert_eq!(ran.sink.trials.len(), 13);
    assert_eq!(ran.sink.ended, Some(Ending::Interrupted));
    assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    assert_eq!(ran.outcome.leftovers, ["a veth"]);
}

#[test]
fn an_engine_that_dies_of_the_interruption_is_no_failure() {
    let mut setup = Setup::new("quick", [Fault::LostInTrial(trial_id("r1b1t04"))]);
    setup.interrupt_at = Some(4);
    let ran = setup.run();
    assert_eq!(ran.outcome.ending, Ending::Interrupted);
    assert!(ran.outcome.problem.is_none());
}

#[test]
fn a_lost_engine_keeps_what_was_measured() {
    let ran = Setup::new("quick", [Fault::LostInTrial(trial_id("r2b1t04"))]).run();
    let problem = ran.outcome.problem.as_ref();
    assert!(matches!(
        problem,
        Some(RunError::Engine(EngineError::Lost(_)))
    ));
    assert!(matches!(ran.sink.ended, Some(Ending::Failed { .. })));
    assert!(ran.measured("none", 1) > 0);
    assert_eq!(ran.calls.last().unwrap(), "teardown");
    let ran = Setup::new("quick", [Fault::LostAtStart(3)]).run();
    assert!(matches!(ran.outcome.ending, Ending::Failed { .. }));
    assert_eq!(ran.outcome.measured.rounds, 2);
}

#[test]
fn what_the_machine_lacks_is_told_before_anything_is_stored() {
    let ran = Setup::new("quick", [Fault::Missing]).run();
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
fn a_full_disk_stops_the_run_and_takes_down() {
    let mut setup = Setup::new("quick", []);
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
fn a_share_becomes_nanoseconds_before_anything_is_stored() {
    let mut setup = Setup::new("quick", []);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    let ran = setup.run();
    assert_eq!(ran.calls[..2], ["prepare", "start 0: none"]);
    assert!(
        ran.calls[2..11]
            .iter()
            .all(|call| call.starts_with("trial r0b1t0"))
    );
    assert_eq!(
        ran.calls[11..13],
        [
            "end",
            "start 1: none none-again limit-mtls envoy-sidecar-mtls envoy-sidecar-l7 none+delay"
        ]
    );
    let kept = ran.sink.experiment.as_ref().unwrap();
    let Some(Inject::DelayNs(ns)) = kept.variant(&id("none+delay")).unwrap().inject else {
        panic!("not resolved: {kept:?}");
    };
    assert!((14_000..17_000).contains(&ns), "{ns}");
    assert_eq!(*kept, ran.outcome.experiment);
    assert!(ran.sink.trials.iter().all(|t| t.trial.round > 0));
    assert!(ran.took_ns <= 120 * SECOND);
}

#[test]
fn a_pilot_that_cannot_be_made_is_an_error_of_its_own() {
    let mut setup = Setup::new("quick", []);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    setup.experiment.load_points.retain(|p| !p.is_steady());
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
    assert_eq!(ran.calls, ["teardown"]);
    for fault in [
        Fault::VariantFails(id("none"), 0),
        Fault::TrialFails(trial_id("r0b1t02")),
    ] {
        let mut setup = Setup::new("quick", [fault]);
        add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
        let ran = setup.run();
        assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
        assert!(ran.sink.calls.is_empty());
        assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    }
}

#[test]
fn progress_is_sensible_from_the_first_trial_to_the_last() {
    let ran = Setup::new("quick", []).run();
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
fn the_same_seed_measures_the_same() {
    let a = Setup::new("noise", []).run();
    let b = Setup::new("noise", []).run();
    assert_eq!(a.sink.trials, b.sink.trials);
    assert_eq!(a.events, b.events);
}
