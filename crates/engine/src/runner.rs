//! The runner: what is measured next, and when it is enough.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_model::event::{Ending, Event};
use meshtax_model::evidence::VariantFailure;
use meshtax_model::experiment::{Experiment, Role, Variant, VariantId};
use meshtax_model::plan::{Block, PlannedTrial};
use meshtax_model::trial::{TrialOutcome, TrialRecord};

use crate::pace::{Pace, Position};
use crate::{Clock, Engine, EngineError, RoundEnd, Sink, SinkError, VariantStart, pilot};

/// Rounds in a row without a baseline after which a run gives up.
const MOST_ROUNDS_WITHOUT_BASELINE: u32 = 3;

/// What a run is given besides its experiment.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Of the plan: the same seed gives the same order and the same arrivals.
    pub seed: u64,
}

/// What the runner looks at and reports to while it runs.
pub struct Watch<'a> {
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// Gets every event as it happens.
    pub events: &'a mut dyn FnMut(Event),
    /// Set from outside when a person or a signal wants the run to stop.
    pub interrupted: &'a AtomicBool,
    /// Whether the precision asked for is reached. Asked after each block, once the least
    /// number of rounds has begun.
    pub enough: &'a mut dyn FnMut() -> bool,
}

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment could not be built, or broke.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A result could not be kept.
    #[error("a result could not be stored: {0}")]
    Sink(#[from] SinkError),
    /// The size of an injected delay could not be found. Nothing was measured.
    #[error("the pilot that sizes the injected delay failed: {reason}\n  fix: {fix}")]
    Pilot {
        /// What happened.
        reason: String,
        /// What the user can do.
        fix: String,
    },
    /// A baseline or every candidate is missing. Exit code 12 if nothing was measured.
    #[error("nothing can be compared: {reason}")]
    NothingToCompare {
        /// Which variant failed and why.
        reason: String,
    },
}

/// How much was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds with at least one complete block.
    pub rounds: u32,
    /// Complete blocks.
    pub blocks: u32,
    /// Trials, failed ones included.
    pub trials: u32,
    /// Trials without a figure, or in which a component failed.
    pub failed_trials: u32,
}

/// How a run went.
#[derive(Debug)]
pub struct RunOutcome {
    /// Why measuring ended; [`Ending::Failed`] whenever `problem` is there.
    pub ending: Ending,
    /// What went wrong with the run as a whole. What was measured before stays.
    pub problem: Option<RunError>,
    /// How much was measured.
    pub measured: Counts,
    /// Variants that were left out of the whole run, with the reason.
    pub left_out: Vec<VariantFailure>,
    /// The experiment as it was run: an injected share has become nanoseconds.
    pub experiment: Experiment,
    /// What teardown could not remove; empty is good.
    pub leftovers: Vec<String>,
}

/// Why measuring stops, inside the runner.
pub(crate) enum Stop {
    /// As it should.
    Ended(Ending),
    /// Because something broke.
    Broken(RunError),
}

impl<E: Into<RunError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

/// Runs an experiment: brings the environment up, measures in rounds and blocks while the
/// time allows, hands each result to `sink` before the next trial, and takes everything down.
pub fn run<'a>(
    engine: &'a mut dyn Engine,
    experiment: &Experiment,
    options: RunOptions,
    sink: &'a mut dyn Sink,
    watch: Watch<'a>,
) -> RunOutcome {
    let started_ns = watch.clock.now_ns();
    let mut run = Run {
        engine,
        sink,
        watch,
        options,
        started_ns,
        pace: Pace::new(&experiment.design),
        experiment: experiment.clone(),
        left_out: Vec::new(),
        counts: Counts::default(),
        round_open: false,
        sink_open: false,
        rounds_without_baseline: 0,
    };
    let stop = match run.measure() {
        Ok(never) => match never {},
        Err(stop) => stop,
    };
    run.finish(stop)
}

/// The state of a run.
pub(crate) struct Run<'a> {
    pub(crate) engine: &'a mut dyn Engine,
    sink: &'a mut dyn Sink,
    watch: Watch<'a>,
    options: RunOptions,
    started_ns: u64,
    pace: Pace,
    pub(crate) experiment: Experiment,
    left_out: Vec<VariantFailure>,
    counts: Counts,
    /// Processes of a round are up.
    pub(crate) round_open: bool,
    /// The sink was told what it keeps.
    sink_open: bool,
    rounds_without_baseline: u32,
}

impl Run<'_> {
    /// Everything between the first step and the reason to stop.
    fn measure(&mut self) -> Result<std::convert::Infallible, Stop> {
        pilot::check(&self.experiment)?;
        self.say(Event::Preparing {
            what: "the environment".to_owned(),
        });
        let environment = self.engine.prepare(&self.experiment)?;
        self.heed_interruption()?;
        pilot::resolve(self)?;
        self.sink.prepared(&environment, &self.experiment)?;
        self.sink_open = true;
        let mut round = 1;
        loop {
            self.round(round)?;
            if !self
                .pace
                .round_fits(self.elapsed_ns(), self.block_trials(&self.absent()))
            {
                return Err(Stop::Ended(Ending::TimeUsed));
            }
            round += 1;
        }
    }

    fn round(&mut self, round: u32) -> Result<(), Stop> {
        self.heed_interruption()?;
        let before = self.elapsed_ns();
        let trials = self.block_trials(&self.absent());
        self.say(Event::RoundStarted {
            round,
            of: self.pace.rounds(before, round, trials),
        });
        let absent = self.start_round(round)?;
        self.pace.setup_took(self.elapsed_ns() - before);
        if self.baselines_are_up(round, &absent)? {
            let measured = self.blocks(round, &absent);
            // Enough is known: the round ends as any other does.
            if !matches!(
                measured,
                Ok(()) | Err(Stop::Ended(Ending::PrecisionReached))
            ) {
                return measured;
            }
            self.end_round(round)?;
            return measured;
        }
        self.end_round(round)
    }

    /// Brings the round's variants up. Returns those that are not measured in it.
    fn start_round(&mut self, round: u32) -> Result<BTreeSet<VariantId>, Stop> {
        let mut absent = self.absent();
        let variants: Vec<Variant> = self
            .experiment
            .variants
            .iter()
            .filter(|v| !absent.contains(&v.id))
            .cloned()
            .collect();
        self.round_open = true;
        let starts = self.engine.start_round(round, &variants)?;
        for start in &starts {
            if let Some(evidence) = &start.evidence {
                self.sink.evidence(evidence)?;
            }
        }
        for variant in variants {
            let start = starts.iter().find(|s| s.variant == variant.id);
            let Some(reason) = why_not_proven(start) else {
                continue;
            };
            absent.insert(variant.id.clone());
            self.variant_failed(VariantFailure {
                variant: variant.id,
                round,
                reason,
            })?;
        }
        Ok(absent)
    }

    fn variant_failed(&mut self, failure: VariantFailure) -> Result<(), Stop> {
        self.say(Event::VariantFailed {
            variant: failure.variant.clone(),
            round: failure.round,
            reason: failure.reason.clone(),
        });
        self.sink.variant_failed(&failure)?;
        // What never came up is not tried again: each attempt may take its whole time-out.
        if failure.round == 1 {
            self.left_out.push(failure);
        }
        Ok(())
    }

    /// Whether there is something to pair with in this round.
    fn baselines_are_up(&mut self, round: u32, absent: &BTreeSet<VariantId>) -> Result<bool, Stop> {
        if round == 1 {
            self.something_to_compare()?;
        }
        let up = [Role::Baseline, Role::Control].iter().all(|role| {
            let variant = self.experiment.by_role(*role);
            variant.is_some_and(|v| !absent.contains(&v.id))
        });
        if up {
            self.rounds_without_baseline = 0;
            return Ok(true);
        }
        self.rounds_without_baseline += 1;
        if self.rounds_without_baseline >= MOST_ROUNDS_WITHOUT_BASELINE {
            return Err(Stop::Broken(RunError::NothingToCompare {
                reason: format!(
                    "a baseline failed in {MOST_ROUNDS_WITHOUT_BASELINE} rounds in a row"
                ),
            }));
        }
        Ok(false)
    }

    /// After the first round's start: are both baselines up, and a candidate if there is one?
    fn something_to_compare(&self) -> Result<(), Stop> {
        let failure = |id: &VariantId| self.left_out.iter().find(|f| f.variant == *id);
        let because =
            |f: &VariantFailure| format!("{} could not be started: {}", f.variant, f.reason);
        let mut candidates = 0;
        let mut first_reason = None;
        for variant in &self.experiment.variants {
            let failed = failure(&variant.id);
            if variant.role == Role::Candidate {
                candidates += 1;
                first_reason = first_reason.or_else(|| failed.map(because));
            } else if let Some(failed) = failed {
                let reason = because(failed);
                return Err(Stop::Broken(RunError::NothingToCompare { reason }));
            }
        }
        match first_reason {
            Some(reason) if candidates == self.left_out.len() => {
                Err(Stop::Broken(RunError::NothingToCompare {
                    reason: format!("no candidate came up; {reason}"),
                }))
            }
            _ => Ok(()),
        }
    }

    /// As many blocks as the round should have and the time allows.
    fn blocks(&mut self, round: u32, absent: &BTreeSet<VariantId>) -> Result<(), Stop> {
        let block_trials = self.block_trials(absent);
        let mut done = 0;
        loop {
            // Whatever the time: a run without a single block would say nothing.
            let first_of_run = self.counts.blocks == 0;
            if !first_of_run && !self.pace.block_fits(self.elapsed_ns(), block_trials) {
                return Ok(());
            }
            let at = Position {
                round,
                blocks_done: done,
                block_trials,
                trials_done: 0,
            };
            self.block(at, absent)?;
            done += 1;
            self.counts.blocks += 1;
            self.counts.rounds += u32::from(done == 1);
            if round >= self.experiment.design.min_rounds && (self.watch.enough)() {
                return Err(Stop::Ended(Ending::PrecisionReached));
            }
            let at = Position {
                blocks_done: done,
                ..at
            };
            if done >= self.pace.blocks(self.elapsed_ns(), at) {
                return Ok(());
            }
        }
    }

    fn block(&mut self, mut at: Position, absent: &BTreeSet<VariantId>) -> Result<(), Stop> {
        let number = at.blocks_done + 1;
        let Block { trials, .. } = meshtax_spec::block(
            &self.experiment,
            self.options.seed,
            at.round,
            number,
            absent,
        );
        for trial in trials {
            self.heed_interruption()?;
            self.announce(&trial, at);
            self.trial(trial)?;
            at.trials_done += 1;
            self.heed_interruption()?;
        }
        Ok(())
    }

    fn announce(&mut self, trial: &PlannedTrial, at: Position) {
        let forecast = self.pace.forecast(self.elapsed_ns(), at);
        let done = self.counts.trials;
        self.say(Event::TrialStarted {
            trial: trial.clone(),
            done,
            of: done.saturating_add(u32::try_from(forecast.trials).unwrap_or(u32::MAX)),
            left_ns: forecast.left_ns,
        });
    }

    fn trial(&mut self, trial: PlannedTrial) -> Result<(), Stop> {
        let before = self.elapsed_ns();
        let started_unix_ms = self.watch.clock.unix_ms();
        let Some(point) = self.experiment.load_point(&trial.load_point) else {
            unreachable!("the plan is made from the experiment's own load points");
        };
        let measured = self.engine.trial(&trial, point)?;
        let failure = why_failed(&measured.outcome);
        let record = TrialRecord {
            trial,
            started_unix_ms,
            outcome: measured.outcome,
        };
        self.sink.trial(&record, measured.sample.as_ref())?;
        self.counts.trials += 1;
        if let Some(reason) = failure {
            self.counts.failed_trials += 1;
            self.say(Event::TrialFailed {
                trial: record.trial,
                reason,
            });
        }
        self.pace.trial_took(self.elapsed_ns() - before);
        Ok(())
    }

    fn end_round(&mut self, round: u32) -> Result<(), Stop> {
        let before = self.elapsed_ns();
        self.round_open = false;
        let RoundEnd { died, lost } = self.engine.end_round(true)?;
        for what in died {
            self.say(Event::ComponentDied { what });
        }
        for (variant, what) in lost {
            let failure = VariantFailure {
                variant,
                round,
                reason: format!("at the round's end it was no longer what was proven: {what}"),
            };
            self.say(Event::VariantFailed {
                variant: failure.variant.clone(),
                round,
                reason: failure.reason.clone(),
            });
            self.sink.variant_failed(&failure)?;
        }
        self.pace.end_took(self.elapsed_ns() - before);
        Ok(())
    }

    /// Takes everything down, whatever happened.
    fn finish(mut self, stop: Stop) -> RunOutcome {
        let (ending, mut problem) = self.judge(stop);
        if self.round_open && !matches!(problem, Some(RunError::Engine(_))) {
            // Teardown comes next and reports what is left.
            let _ = self.engine.end_round(false);
        }
        let leftovers = self.engine.teardown();
        if self.sink_open && !matches!(problem, Some(RunError::Sink(_))) {
            let kept = self.sink.ended(&ending);
            problem = problem.or(kept.err().map(RunError::Sink));
        }
        self.say(Event::Finished);
        RunOutcome {
            ending,
            problem,
            measured: self.counts,
            left_out: self.left_out,
            experiment: self.experiment,
            leftovers,
        }
    }

    fn judge(&self, stop: Stop) -> (Ending, Option<RunError>) {
        match stop {
            Stop::Ended(ending) => (ending, None),
            // Ctrl-C reaches the engine's processes too, and may break them first.
            Stop::Broken(RunError::Engine(_)) if self.is_interrupted() => {
                (Ending::Interrupted, None)
            }
            Stop::Broken(error) => {
                let reason = error.to_string();
                (Ending::Failed { reason }, Some(error))
            }
        }
    }

    pub(crate) fn say(&mut self, event: Event) {
        (self.watch.events)(event);
    }

    pub(crate) fn heed_interruption(&self) -> Result<(), Stop> {
        if self.is_interrupted() {
            return Err(Stop::Ended(Ending::Interrupted));
        }
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.watch.interrupted.load(Ordering::Relaxed)
    }

    fn elapsed_ns(&self) -> u64 {
        self.watch.clock.now_ns().saturating_sub(self.started_ns)
    }

    /// Variants that are left out of the whole run.
    fn absent(&self) -> BTreeSet<VariantId> {
        self.left_out.iter().map(|f| f.variant.clone()).collect()
    }

    fn block_trials(&self, absent: &BTreeSet<VariantId>) -> u64 {
        let variants = self.experiment.variants.len().saturating_sub(absent.len());
        (variants * self.experiment.load_points.len()) as u64
    }

    pub(crate) fn seed(&self) -> u64 {
        self.options.seed
    }
}

/// Why a variant may not be measured: it failed, or nothing proves that it is what it says.
pub(crate) fn why_not_proven(start: Option<&VariantStart>) -> Option<String> {
    let Some(start) = start else {
        return Some("the engine did not start it".to_owned());
    };
    if let Some(failure) = &start.failure {
        return Some(failure.clone());
    }
    match &start.evidence {
        None => Some("nothing proves that it is what its name says".to_owned()),
        Some(evidence) if evidence.passed() => None,
        Some(evidence) => Some(match evidence.failure() {
            Some(probe) => format!("the probe `{}` failed: {}", probe.probe, probe.seen),
            None => "no probe ran".to_owned(),
        }),
    }
}

/// Why a trial has no figure, or will not be valid.
pub(crate) fn why_failed(outcome: &TrialOutcome) -> Option<String> {
    match outcome {
        TrialOutcome::Failed { reason } => Some(reason.clone()),
        TrialOutcome::Measured {
            component_failures, ..
        } if !component_failures.is_empty() => Some(component_failures.join("; ")),
        TrialOutcome::Measured { .. } => None,
    }
}
