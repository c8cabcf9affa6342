//! The pilot: measures the baseline alone before the first round; here its median, of which an injected delay is a share.

use std::sync::atomic::AtomicBool;

use meshtax_model::experiment::{Experiment, Inject, LoadPoint, Role, Variant};
use meshtax_model::failure::{TrialFailure, VariantFailureReason};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::trial::{LoadResult, ResourceSample, TrialOutcome};

use crate::clock::Clock;
use crate::engine::{Engine, Measured};
use crate::error::{PilotError, RunError, Stop, not_proven, trial_failure};
use crate::interruption::check;

/// Trials, whose median of medians is used: a disturbance of the machine may last longer than three
/// trials, and a delay derived from it can exceed what the server has time for.
const TRIALS: u32 = 9;

/// How often a trial is measured at most whose load could not be offered: a stall of the machine ends a trial, and is not to
/// end the run.
const TRIES: u32 = 3;

/// The round of the pilot: before the first.
const ROUND: u32 = 0;

/// What the pilot requires of a run.
pub(crate) struct Pilot<'a> {
    pub(crate) engine: &'a mut dyn Engine,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) seed: u64,
    pub(crate) interrupted: &'a AtomicBool,
}

/// Whether an injected delay of this experiment is a share of the baseline's median.
pub(crate) fn is_needed(experiment: &Experiment) -> bool {
    let is_share = |v: &Variant| matches!(v.inject, Some(Inject::DelayShareOfP50(_)));
    experiment.variants.iter().any(is_share)
}

fn steady_point(experiment: &Experiment) -> Result<&LoadPoint, PilotError> {
    let mut points = experiment.load_points.iter();
    points
        .find(|point| point.is_steady())
        .ok_or(PilotError::NoSteadyLoadPoint)
}

/// Rejects, before anything is started, an experiment whose pilot cannot run.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), PilotError> {
    if is_needed(experiment) {
        steady_point(experiment)?;
    }
    Ok(())
}

impl Pilot<'_> {
    /// Measures the baseline and replaces every share by nanoseconds.
    pub(crate) fn resolve(&mut self, experiment: &mut Experiment) -> Result<(), Stop> {
        let point = steady_point(experiment)?.clone();
        let Some(baseline) = experiment.by_role(Role::Baseline).cloned() else {
            return Err(PilotError::NotProven(VariantFailureReason::NotStarted).into());
        };
        let measured = self.baseline_p50_ns(&baseline, &point);
        let p50_ns = self.ended(measured)?;
        for variant in &mut experiment.variants {
            if let Some(Inject::DelayShareOfP50(share)) = variant.inject {
                let ns = (p50_ns * share).round().max(1.0) as u64;
                variant.inject = Some(Inject::DelayNs(ns));
            }
        }
        Ok(())
    }

    fn baseline_p50_ns(&mut self, baseline: &Variant, point: &LoadPoint) -> Result<f64, Stop> {
        self.start(baseline)?;
        let mut medians = Vec::new();
        for number in 1..=TRIALS {
            check(self.interrupted)?;
            let (load, _) = self.trial(number, baseline, point)?;
            medians.extend(load.response.quantile_interpolated_ns(0.5));
        }
        check(self.interrupted)?;
        medians.sort_by(f64::total_cmp);
        let middle = medians.get(medians.len() / 2).copied();
        middle.ok_or_else(|| PilotError::NoResponse.into())
    }

    /// Starts the baseline alone, and verifies it.
    pub(crate) fn start(&mut self, baseline: &Variant) -> Result<(), Stop> {
        let starts = self
            .engine
            .start_round(ROUND, std::slice::from_ref(baseline))?;
        let start = starts.iter().find(|s| s.variant == baseline.id);
        match not_proven(start) {
            Some(reason) => Err(PilotError::NotProven(reason).into()),
            None => Ok(()),
        }
    }

    /// Ends the pilot's round after what was measured in it.
    pub(crate) fn ended<T>(&mut self, measured: Result<T, Stop>) -> Result<T, Stop> {
        // After a failure of the engine there is no round to end.
        if !matches!(measured, Err(Stop::Failed(RunError::Engine(_)))) {
            self.engine.end_round(false)?;
        }
        measured
    }

    /// Measures one trial of the baseline, again if its load could not be offered.
    pub(crate) fn trial(
        &mut self,
        number: u32,
        baseline: &Variant,
        point: &LoadPoint,
    ) -> Result<(LoadResult, Option<ResourceSample>), Stop> {
        for _ in 1..TRIES {
            match self.try_trial(number, baseline, point) {
                Err(Stop::Failed(RunError::Pilot(PilotError::TrialFailed(failure))))
                    if is_without_load(&failure) =>
                {
                    check(self.interrupted)?;
                }
                ended => return ended,
            }
        }
        self.try_trial(number, baseline, point)
    }

    fn try_trial(
        &mut self,
        number: u32,
        baseline: &Variant,
        point: &LoadPoint,
    ) -> Result<(LoadResult, Option<ResourceSample>), Stop> {
        let planned = PlannedTrial {
            id: TrialId::new(ROUND, 1, number),
            round: ROUND,
            block: 1,
            variant: baseline.id.clone(),
            load_point: point.id.clone(),
            arrival_seed: meshtax_plan::arrival_seed(self.seed, ROUND, number, &point.id.0),
        };
        let Measured { outcome, sample } = self.engine.trial(&planned, point)?;
        match (trial_failure(&outcome), outcome) {
            (Some(failure), _) | (None, TrialOutcome::Failed { failure }) => {
                Err(PilotError::TrialFailed(failure).into())
            }
            (None, TrialOutcome::Measured { load, .. }) => Ok((*load, sample)),
        }
    }
}

/// Whether the load could not be offered; all else that fails is the variant's.
fn is_without_load(failure: &TrialFailure) -> bool {
    matches!(
        failure,
        TrialFailure::NotConnected { .. }
            | TrialFailure::LoadFailed { .. }
            | TrialFailure::NotTogether { .. }
    )
}
