//! A run with the fake engine, and what it left.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_engine::fake::{FakeClock, FakeEngine, Fault};
use meshtax_engine::{
    Clock as _, Earlier, RunOptions, RunOutcome, Sink, SinkError, Watch, resume, run,
};
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::comparison::Differing;
use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Event};
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_model::failure::VariantFailure;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{ResourceSample, TrialRecord};
use meshtax_spec::{parse, preset};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Ten trials in a block: both baselines and three candidates, at two load points.
pub(crate) const TEN_TRIALS: &str = "
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
pub(crate) fn experiment(named: &str) -> Experiment {
    let yaml = preset(named).map_or(named, |preset| preset.yaml);
    parse("spec.yaml", yaml).unwrap()
}

/// Stores everything in memory, and fails at a given trial like a full disk.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) calls: Vec<&'static str>,
    pub(crate) experiment: Option<Experiment>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) failures: Vec<VariantFailure>,
    pub(crate) observed: Vec<ClusterRecord>,
    pub(crate) trials: Vec<TrialRecord>,
    pub(crate) samples: usize,
    pub(crate) full_after: Option<usize>,
    pub(crate) ended: Option<Ending>,
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

    fn observed(&mut self, record: &ClusterRecord) -> Result<(), SinkError> {
        self.observed.push(record.clone());
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

pub(crate) struct Finished {
    pub(crate) outcome: RunOutcome,
    pub(crate) sink: Memory,
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<String>,
    pub(crate) took_ns: u64,
}

impl Finished {
    pub(crate) fn rounds(&self) -> BTreeSet<u32> {
        self.sink.trials.iter().map(|t| t.trial.round).collect()
    }

    pub(crate) fn blocks(&self) -> BTreeSet<(u32, u32)> {
        let block = |t: &TrialRecord| (t.trial.round, t.trial.block);
        self.sink.trials.iter().map(block).collect()
    }

    pub(crate) fn measured(&self, variant: &str, round: u32) -> usize {
        let hit = |t: &&TrialRecord| t.trial.variant.0 == variant && t.trial.round == round;
        self.sink.trials.iter().filter(hit).count()
    }
}

/// A run and the settings that tests change.
pub(crate) struct Setup {
    pub(crate) experiment: Experiment,
    pub(crate) engine: FakeEngine,
    pub(crate) sink: Memory,
    /// Interrupt when this many trials have started.
    pub(crate) interrupt_at: Option<usize>,
    /// The precision is reached after this many checks.
    pub(crate) enough_after: Option<u32>,
}

impl Setup {
    pub(crate) fn new(name: &str, faults: impl Into<Vec<Fault>>) -> Self {
        Self {
            experiment: experiment(name),
            engine: FakeEngine::with_faults(FakeClock::default(), faults),
            sink: Memory::default(),
            interrupt_at: None,
            enough_after: None,
        }
    }

    pub(crate) fn run(self) -> Finished {
        self.execute(None)
    }

    /// Continues an interrupted run in an environment in which all conditions hold.
    pub(crate) fn resume(self, earlier: &Finished) -> Finished {
        self.resume_where(earlier, &|_| Vec::new())
    }

    pub(crate) fn resume_where(
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

pub(crate) fn id(name: &str) -> VariantId {
    VariantId(name.to_owned())
}

pub(crate) fn trial_id(name: &str) -> TrialId {
    TrialId(name.to_owned())
}
