//! The runner: decides what is measured next and when to stop.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Event, Preparation};
use meshtax_model::experiment::{Experiment, Role, Variant, VariantId};
use meshtax_model::failure::{VariantFailure, VariantFailureReason};
use meshtax_model::plan::{Block, PlannedTrial};
use meshtax_model::trial::TrialRecord;

use crate::clock::Clock;
use crate::earlier::{Earlier, Progress};
use crate::engine::{Engine, RoundEnd};
use crate::error::{NotComparable, NothingToCompare, RunError, Stop, not_proven, trial_failure};
use crate::interruption;
use crate::outcome::{Counts, RunOutcome};
use crate::pace::{Pace, Position};
use crate::pilot::{self, Pilot};
use crate::saturation;
use crate::sink::{Sink, SinkError};

/// Consecutive rounds without a baseline after which a run fails.
const MAX_ROUNDS_WITHOUT_BASELINE: u32 = 3;

/// Settings of a run in addition to its experiment.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Seed of the plan: the same seed gives the same order and the same arrivals.
    pub seed: u64,
}

/// The runner's connections to its caller.
pub struct Watch<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Receives every event as it happens.
    pub events: &'a mut dyn FnMut(Event),
    /// Set by the caller when a person or a signal requests the run to stop.
    pub interrupted: &'a AtomicBool,
    /// Whether the requested precision is reached. Called after the last block of each round that was not cut short by the
    /// time limit, once the minimum number of rounds has started.
    pub enough: &'a mut dyn FnMut() -> bool,
}

/// Runs an experiment: builds the environment, measures in rounds and blocks while the time
/// allows, passes each result to `sink` before the next trial, and removes the environment.
pub fn run<'a>(
    engine: &'a mut dyn Engine,
    experiment: &Experiment,
    options: RunOptions,
    sink: &'a mut dyn Sink,
    watch: Watch<'a>,
) -> RunOutcome {
    execute(Run::new(
        engine,
        experiment,
        options,
        Progress::none(),
        sink,
        watch,
    ))
}

/// Continues a run that was interrupted, with the round after its last one and in the time that it has left. `sink`
/// already has what is in `earlier`.
pub fn resume<'a>(
    engine: &'a mut dyn Engine,
    experiment: &Experiment,
    options: RunOptions,
    earlier: &'a Earlier<'a>,
    sink: &'a mut dyn Sink,
    watch: Watch<'a>,
) -> RunOutcome {
    let progress = Progress::of(experiment, options.seed, earlier);
    let mut run = Run::new(engine, experiment, options, progress, sink, watch);
    run.earlier = Some(earlier);
    execute(run)
}

fn execute(mut run: Run<'_>) -> RunOutcome {
    let stop = match run.measure() {
        Ok(never) => match never {},
        Err(stop) => stop,
    };
    run.finish(stop)
}

/// The state of a run.
struct Run<'a> {
    engine: &'a mut dyn Engine,
    sink: &'a mut dyn Sink,
    watch: Watch<'a>,
    options: RunOptions,
    started_ns: u64,
    pace: Pace,
    experiment: Experiment,
    excluded: Vec<VariantFailure>,
    counts: Counts,
    /// Processes of a round are running.
    round_open: bool,
    /// The sink has received the environment and the experiment.
    sink_open: bool,
    rounds_without_baseline: u32,
    /// What was measured before the run was interrupted; `None`: it is a new run.
    earlier: Option<&'a Earlier<'a>>,
    /// The time that was used before.
    used_ns: u64,
    first_round: u32,
    /// The number of the round by which the run may end.
    min_rounds: u32,
    /// Variants that were measured before.
    measured: BTreeSet<VariantId>,
}

impl<'a> Run<'a> {
    fn new(
        engine: &'a mut dyn Engine,
        experiment: &Experiment,
        options: RunOptions,
        progress: Progress,
        sink: &'a mut dyn Sink,
        watch: Watch<'a>,
    ) -> Self {
        let design = &experiment.design;
        let min_rounds = design.min_rounds.saturating_add(progress.lost_rounds);
        let mut pace = Pace::new(design, min_rounds);
        for took_ns in progress.trials_took_ns {
            pace.trial_took(took_ns);
        }
        Self {
            started_ns: watch.clock.now_ns(),
            engine,
            sink,
            watch,
            options,
            pace,
            experiment: experiment.clone(),
            excluded: progress.excluded,
            counts: progress.counts,
            round_open: false,
            sink_open: false,
            rounds_without_baseline: 0,
            earlier: None,
            used_ns: progress.used_ns,
            first_round: progress.first_round,
            min_rounds,
            measured: progress.measured,
        }
    }

    /// Measures until there is a reason to stop.
    fn measure(&mut self) -> Result<std::convert::Infallible, Stop> {
        pilot::validate(&self.experiment)?;
        saturation::validate(&self.experiment)?;
        self.check_time_left()?;
        self.emit(Event::Preparing(Preparation::Environment));
        let environment = self.engine.prepare(&self.experiment)?;
        self.check_interruption()?;
        self.check_comparable(&environment)?;
        self.scale_work()?;
        self.resolve_delays()?;
        self.sink.prepared(&environment, &self.experiment)?;
        self.sink_open = true;
        let mut round = self.first_round;
        loop {
            self.round(round)?;
            if !self.round_fits() {
                return Err(Stop::Ended(Ending::TimeUsed));
            }
            round += 1;
        }
    }

    fn round_fits(&self) -> bool {
        let trials = self.block_trials(&self.absent());
        self.pace.round_fits(self.elapsed_ns(), trials)
    }

    /// Ends a run that was interrupted so late that nothing is left to measure, before anything is started.
    fn check_time_left(&mut self) -> Result<(), Stop> {
        // Regardless of the time: a run without a single block has no result.
        if self.earlier.is_none() || self.counts.blocks == 0 || self.round_fits() {
            return Ok(());
        }
        self.sink_open = true;
        Err(Stop::Ended(Ending::TimeUsed))
    }

    /// Rejects an environment in which an interrupted run cannot be continued.
    fn check_comparable(&self, environment: &Environment) -> Result<(), NotComparable> {
        let changed = self.earlier.map(|earlier| (earlier.changed)(environment));
        match changed.unwrap_or_default() {
            changed if changed.is_empty() => Ok(()),
            changed => Err(NotComparable { changed }),
        }
    }

    /// Replaces injected delays that are shares of the baseline's median by nanoseconds.
    fn resolve_delays(&mut self) -> Result<(), Stop> {
        if !pilot::is_needed(&self.experiment) {
            return Ok(());
        }
        self.emit(Event::Preparing(Preparation::InjectedDelay));
        let (mut pilot, experiment) = self.pilot();
        pilot.resolve(experiment)
    }

    /// Scales the services' work so that the application saturates at the rate asked for. A run that is continued has
    /// the work that was found when it began.
    fn scale_work(&mut self) -> Result<(), Stop> {
        if !saturation::is_needed(&self.experiment) {
            return Ok(());
        }
        self.emit(Event::Preparing(Preparation::Saturation));
        let (mut pilot, experiment) = self.pilot();
        pilot.scale_work(experiment)
    }

    fn pilot(&mut self) -> (Pilot<'_>, &mut Experiment) {
        let pilot = Pilot {
            engine: &mut *self.engine,
            clock: self.watch.clock,
            seed: self.options.seed,
            interrupted: self.watch.interrupted,
        };
        (pilot, &mut self.experiment)
    }

    fn round(&mut self, round: u32) -> Result<(), Stop> {
        self.check_interruption()?;
        let before = self.elapsed_ns();
        let trials = self.block_trials(&self.absent());
        self.emit(Event::RoundStarted {
            round,
            of: self
                .pace
                .rounds(before, (round, self.counts.blocks), trials),
        });
        let absent = self.start_round(round)?;
        self.pace.setup_took(self.elapsed_ns() - before);
        if self.baselines_are_up(round, &absent)? {
            let measured = self.blocks(round, &absent);
            // The precision is reached: the round ends like any other.
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

    /// Starts the round's variants. Returns those that are not measured in it.
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
        self.record_observed()?;
        for start in &starts {
            if let Some(evidence) = &start.evidence {
                self.sink.evidence(evidence)?;
            }
        }
        for variant in variants {
            let start = starts.iter().find(|s| s.variant == variant.id);
            let Some(reason) = not_proven(start) else {
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
        self.emit(Event::VariantFailed(failure.clone()));
        self.sink.variant_failed(&failure)?;
        // A variant that never started is not tried again: each attempt may take its whole timeout.
        if failure.round == self.first_round && !self.measured.contains(&failure.variant) {
            self.excluded.push(failure);
        }
        Ok(())
    }

    /// Whether this round has the baselines that every pair needs.
    fn baselines_are_up(&mut self, round: u32, absent: &BTreeSet<VariantId>) -> Result<bool, Stop> {
        if round == self.first_round {
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
        if self.rounds_without_baseline >= MAX_ROUNDS_WITHOUT_BASELINE {
            let rounds = MAX_ROUNDS_WITHOUT_BASELINE;
            return Err(NothingToCompare::BaselineRepeatedly { rounds }.into());
        }
        Ok(false)
    }

    /// After the first round's start: whether both baselines are up, and a candidate if there is any.
    fn something_to_compare(&self) -> Result<(), Stop> {
        let mut candidates = 0;
        let mut first_failure = None;
        for variant in &self.experiment.variants {
            let failure = self.excluded.iter().find(|f| f.variant == variant.id);
            if variant.role == Role::Candidate {
                candidates += 1;
                first_failure = first_failure.or(failure);
            } else if let Some(failure) = failure {
                return Err(NothingToCompare::Baseline(failure.clone()).into());
            }
        }
        match first_failure {
            Some(failure) if candidates == self.excluded.len() => {
                Err(NothingToCompare::Candidates(failure.clone()).into())
            }
            _ => Ok(()),
        }
    }

    /// Measures as many blocks as the round is to have and the time allows.
    fn blocks(&mut self, round: u32, absent: &BTreeSet<VariantId>) -> Result<(), Stop> {
        let block_trials = self.block_trials(absent);
        let mut done = 0;
        loop {
            // Regardless of the time: a run without a single block has no result.
            let first_of_run = self.counts.blocks == 0;
            if !first_of_run && !self.pace.block_fits(self.elapsed_ns(), block_trials) {
                return Ok(());
            }
            let at = Position {
                round,
                blocks_before: self.counts.blocks.saturating_sub(done),
                blocks_done: done,
                block_trials,
                trials_done: 0,
            };
            self.block(at, absent)?;
            done += 1;
            self.counts.blocks += 1;
            self.counts.rounds += u32::from(done == 1);
            let at = Position {
                blocks_done: done,
                ..at
            };
            if done < self.pace.blocks(self.elapsed_ns(), at) {
                continue;
            }
            // Not after each block: every look is a chance to stop when the intervals happen to be narrow.
            return match round >= self.min_rounds && (self.watch.enough)() {
                true => Err(Stop::Ended(Ending::PrecisionReached)),
                false => Ok(()),
            };
        }
    }

    fn block(&mut self, mut at: Position, absent: &BTreeSet<VariantId>) -> Result<(), Stop> {
        let number = at.blocks_done + 1;
        let Block { trials, .. } = meshtax_plan::block(
            &self.experiment,
            self.options.seed,
            at.round,
            number,
            absent,
        );
        for trial in trials {
            self.check_interruption()?;
            self.announce(&trial, at);
            self.trial(trial)?;
            at.trials_done += 1;
            self.check_interruption()?;
        }
        Ok(())
    }

    fn announce(&mut self, trial: &PlannedTrial, at: Position) {
        let forecast = self.pace.forecast(self.elapsed_ns(), at);
        let done = self.counts.trials;
        self.emit(Event::TrialStarted {
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
        let failure = trial_failure(&measured.outcome);
        let record = TrialRecord {
            trial,
            started_unix_ms,
            outcome: measured.outcome,
        };
        self.sink.trial(&record, measured.sample.as_ref())?;
        self.counts.trials += 1;
        if let Some(failure) = failure {
            self.counts.failed_trials += 1;
            self.emit(Event::TrialFailed {
                trial: record.trial,
                failure,
            });
        }
        self.pace.trial_took(self.elapsed_ns() - before);
        Ok(())
    }

    fn end_round(&mut self, round: u32) -> Result<(), Stop> {
        let before = self.elapsed_ns();
        self.round_open = false;
        let RoundEnd { ended, lost } = self.engine.end_round(true)?;
        self.record_observed()?;
        for component in ended {
            self.emit(Event::ComponentEnded(component));
        }
        for (variant, probes) in lost {
            let failure = VariantFailure {
                variant,
                round,
                reason: VariantFailureReason::LostByRoundEnd { probes },
            };
            self.emit(Event::VariantFailed(failure.clone()));
            self.sink.variant_failed(&failure)?;
        }
        self.pace.end_took(self.elapsed_ns() - before);
        Ok(())
    }

    /// Removes everything, whatever happened.
    fn finish(mut self, stop: Stop) -> RunOutcome {
        let (ending, mut problem) = self.judge(stop);
        if self.round_open && !matches!(problem, Some(RunError::Engine(_))) {
            // Teardown follows and reports what is left.
            let _ = self.engine.end_round(false);
        }
        if self.can_store(problem.as_ref()) {
            let stored = self.record_observed();
            problem = problem.or(stored.err().map(RunError::Sink));
        }
        let leftovers = self.engine.teardown();
        if self.can_store(problem.as_ref()) {
            let stored = self.sink.ended(&ending);
            problem = problem.or(stored.err().map(RunError::Sink));
        }
        self.emit(Event::Finished);
        RunOutcome {
            ending,
            problem,
            measured: self.counts,
            excluded: self.excluded,
            experiment: self.experiment,
            leftovers,
        }
    }

    fn judge(&self, stop: Stop) -> (Ending, Option<RunError>) {
        match stop {
            Stop::Ended(ending) => (ending, None),
            // Ctrl-C also reaches the engine's processes, and may terminate them first.
            Stop::Failed(RunError::Engine(_))
                if interruption::is_requested(self.watch.interrupted) =>
            {
                (Ending::Interrupted, None)
            }
            Stop::Failed(error) => {
                let ending = Ending::Failed {
                    failure: error.kind(),
                    detail: error.to_string(),
                };
                (ending, Some(error))
            }
        }
    }

    fn can_store(&self, problem: Option<&RunError>) -> bool {
        self.sink_open && !matches!(problem, Some(RunError::Sink(_)))
    }

    fn record_observed(&mut self) -> Result<(), SinkError> {
        let observed = self.engine.observed();
        observed
            .iter()
            .try_for_each(|record| self.sink.observed(record))
    }

    fn emit(&mut self, event: Event) {
        (self.watch.events)(event);
    }

    fn check_interruption(&self) -> Result<(), Stop> {
        interruption::check(self.watch.interrupted)
    }

    fn elapsed_ns(&self) -> u64 {
        let now_ns = self.watch.clock.now_ns();
        let since_ns = now_ns.saturating_sub(self.started_ns);
        self.used_ns.saturating_add(since_ns)
    }

    /// Variants that are excluded from the whole run.
    fn absent(&self) -> BTreeSet<VariantId> {
        self.excluded.iter().map(|f| f.variant.clone()).collect()
    }

    fn block_trials(&self, absent: &BTreeSet<VariantId>) -> u64 {
        let variants = self.experiment.variants.len().saturating_sub(absent.len());
        (variants * self.experiment.load_points.len()) as u64
    }
}
