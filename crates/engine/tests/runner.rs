//! The runner with the fake engine: order, stopping, failures, interruption, continuing, the pilot.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_engine::fake::{FakeClock, FakeEngine, Fault};
use meshtax_engine::{
    Clock as _, Earlier, EngineError, RunError, RunOptions, RunOutcome, Sink, SinkError, Watch,
    resume, run,
};
use meshtax_model::comparison::{Differing, Setting, SettingValue};
use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Event};
use meshtax_model::evidence::{Evidence, ProbeId};
use meshtax_model::experiment::{Experiment, Inject, VariantId};
use meshtax_model::failure::{VariantFailure, VariantFailureReason};
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};
use meshtax_spec::{add_injected, parse, preset};

const SECOND: u64 = 1_000_000_000;

/// Ten trials in a block: both baselines and three candidates, at two load points.
const TEN_TRIALS: &str = "
name: ten-trials
workload: {response: 1 KiB, connections: 32}
variants:
  - {data-plane: limit-mtls, level: mtls}
  - {data-plane: envoy-sidecar, level: mtls}
  - {data-plane: envoy-sidecar, level: l7}
load:
  - steady: {rate: 1000, arrivals: poisson}
  - saturated: {}
design: {rounds: 6, blocks: 2, trial: 500ms, warmup: 100ms, time: 2m}
";

/// That of a preset, or of a spec.
fn experiment(named: &str) -> Experiment {
    let yaml = preset(named).map_or(named, |preset| preset.yaml);
    parse("spec.yaml", yaml).unwrap()
}

/// Stores everything in memory, and fails at a given trial like a full disk.
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

struct Finished {
    outcome: RunOutcome,
    sink: Memory,
    events: Vec<Event>,
    calls: Vec<String>,
    took_ns: u64,
}

impl Finished {
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

/// A run and the settings that tests change.
struct Setup {
    experiment: Experiment,
    engine: FakeEngine,
    sink: Memory,
    /// Interrupt when this many trials have started.
    interrupt_at: Option<usize>,
    /// The precision is reached after this many checks.
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

    fn run(self) -> Finished {
        self.execute(None)
    }

    /// Continues an interrupted run in an environment in which all conditions hold.
    fn resume(self, earlier: &Finished) -> Finished {
        self.resume_where(earlier, &|_| Vec::new())
    }

    fn resume_where(
        self,
        earlier: &Finished,
        changed: &dyn Fn(&Environment) -> Vec<Differing>,
    ) -> Finished {
        self.execute(Some(&Earlier {
            trials: &earlier.sink.trials,
            failures: &earlier.sink.failures,
            last_round: earlier.rounds().last().copied().unwrap_or(0),
            used_ns: earlier.took_ns,
            changed,
        }))
    }

    fn execute(mut self, earlier: Option<&Earlier<'_>>) -> Finished {
        let clock = self.engine.clock.clone();
        let interrupted = AtomicBool::new(false);
        let mut events = Vec::new();
        let mut started = 0;
        let mut checks = 0;
        let watch = Watch {
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
                checks += 1;
                self.enough_after.is_some_and(|n| checks >= n)
            },
        };
        let (engine, experiment, sink) = (&mut self.engine, &self.experiment, &mut self.sink);
        let options = RunOptions { seed: 42 };
        let outcome = match earlier {
            None => run(engine, experiment, options, sink, watch),
            Some(earlier) => resume(engine, experiment, options, earlier, sink, watch),
        };
        Finished {
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
fn injected_shares_are_resolved_to_nanoseconds_before_anything_is_stored() {
    let mut setup = Setup::new(TEN_TRIALS, []);
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
    let stored = ran.sink.experiment.as_ref().unwrap();
    let Some(Inject::DelayNs(ns)) = stored.variant(&id("none+delay")).unwrap().inject else {
        panic!("not resolved: {stored:?}");
    };
    assert!((14_000..17_000).contains(&ns), "{ns}");
    assert_eq!(*stored, ran.outcome.experiment);
    assert!(ran.sink.trials.iter().all(|t| t.trial.round > 0));
    assert!(ran.took_ns <= 120 * SECOND);
}

#[test]
fn a_failed_pilot_is_a_pilot_error() {
    let mut setup = Setup::new(TEN_TRIALS, []);
    add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
    setup.experiment.load_points.retain(|p| !p.is_steady());
    let ran = setup.run();
    assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
    assert_eq!(ran.calls, ["teardown"]);
    for fault in [
        Fault::VariantFails(id("none"), 0),
        Fault::TrialFails(trial_id("r0b1t02")),
    ] {
        let mut setup = Setup::new(TEN_TRIALS, [fault]);
        add_injected(&mut setup.experiment, Inject::DelayShareOfP50(0.15)).unwrap();
        let ran = setup.run();
        assert!(matches!(ran.outcome.problem, Some(RunError::Pilot { .. })));
        assert!(ran.sink.calls.is_empty());
        assert_eq!(ran.calls[ran.calls.len() - 2..], ["end", "teardown"]);
    }
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
