//! Why a run, or a part of it, cannot go on.

use meshtax_model::comparison::Differing;
use meshtax_model::event::Ending;
use meshtax_model::failure::{RunFailure, TrialFailure, VariantFailure, VariantFailureReason};
use meshtax_model::trial::TrialOutcome;

use crate::engine::{EngineError, VariantStart};
use crate::sink::SinkError;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment could not be built, or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A result could not be stored.
    #[error("a result could not be stored: {0}")]
    Sink(#[from] SinkError),
    /// The size of an injected delay, or the application's work, could not be determined. Nothing was measured.
    #[error("the pilot before the first round failed: {0}")]
    Pilot(#[from] PilotError),
    /// An interrupted run cannot be continued here. Nothing was measured in addition.
    #[error(transparent)]
    NotComparable(#[from] NotComparable),
    /// A baseline or every candidate is missing. Exit code 12 if nothing was measured.
    #[error("there is nothing to compare: {0}")]
    NothingToCompare(#[from] NothingToCompare),
}

impl RunError {
    /// What kind of failure it is, as the store keeps it.
    #[must_use]
    pub fn kind(&self) -> RunFailure {
        match self {
            Self::Engine(EngineError::Missing { .. }) | Self::NotComparable(_) => {
                RunFailure::EngineMissing
            }
            Self::Engine(EngineError::Lost { .. }) => RunFailure::EngineLost,
            Self::Sink(_) => RunFailure::NotStored,
            Self::Pilot(_) => RunFailure::Pilot,
            Self::NothingToCompare(_) => RunFailure::NothingToCompare,
        }
    }
}

/// An interrupted run is not continued in an environment in which its trials would not be comparable.
#[derive(Debug, thiserror::Error)]
#[error("{} of the run's conditions have changed since it was interrupted", .changed.len())]
pub struct NotComparable {
    /// What is different: as recorded (`base`), and now (`new`).
    pub changed: Vec<Differing>,
}

/// Why what a pilot determines is not known: the size of an injected delay, or the application's work.
#[derive(Debug, thiserror::Error)]
pub enum PilotError {
    /// The baseline's median is defined at a steady load point only.
    #[error(
        "a delay given as a share of the median needs a steady load point, and the experiment has none\n  \
         fix: add a steady load point, or give the delay as a duration, as in delay=12us"
    )]
    NoSteadyLoadPoint,
    /// An application saturates in a closed loop only.
    #[error(
        "an application that saturates at a given rate needs a closed loop, and the experiment has none\n  \
         fix: add a load point `saturated: {{}}`, or omit `saturates-at`"
    )]
    NoClosedLoop,
    /// The baseline did not start, or its probes failed.
    #[error("the baseline could not be started: {0}\n  {PILOT_FIX}")]
    NotProven(VariantFailureReason),
    /// A trial of the baseline gave no result.
    #[error("a trial of the baseline failed: {0}\n  {PILOT_FIX}")]
    TrialFailed(TrialFailure),
    /// No request of any trial received a response.
    #[error("the baseline received no response\n  {PILOT_FIX}")]
    NoResponse,
}

const PILOT_FIX: &str = "fix: repair the baseline, or ask for nothing that a pilot determines: give the delay as a \
                         duration, as in delay=12us, and use the fast application (--fast-application)";

/// Which variants are missing from a comparison.
#[derive(Debug, thiserror::Error)]
pub enum NothingToCompare {
    /// The baseline or its control could not be started in the first round.
    #[error("{} could not be started: {}", .0.variant, .0.reason)]
    Baseline(VariantFailure),
    /// No candidate could be started in the first round; the first failure.
    #[error("no candidate could be started; {}: {}", .0.variant, .0.reason)]
    Candidates(VariantFailure),
    /// A baseline failed in several rounds in a row.
    #[error("a baseline failed in {rounds} consecutive rounds")]
    BaselineRepeatedly {
        /// How many.
        rounds: u32,
    },
}

/// Why a variant may not be measured after this start; `None`: its evidence passed.
pub(crate) fn not_proven(start: Option<&VariantStart>) -> Option<VariantFailureReason> {
    let Some(start) = start else {
        return Some(VariantFailureReason::NotStarted);
    };
    let failure = start.failure.clone();
    failure.or_else(|| VariantFailureReason::of_evidence(start.evidence.as_ref()))
}

/// Why a trial has no result, or an invalid one.
pub(crate) fn trial_failure(outcome: &TrialOutcome) -> Option<TrialFailure> {
    match outcome {
        TrialOutcome::Failed { failure } => Some(failure.clone()),
        TrialOutcome::Measured {
            component_failures, ..
        } if !component_failures.is_empty() => Some(TrialFailure::ComponentsEnded {
            components: component_failures.clone(),
        }),
        TrialOutcome::Measured { .. } => None,
    }
}

/// Why the runner stops measuring.
pub(crate) enum Stop {
    /// The run is complete, or was interrupted.
    Ended(Ending),
    /// Something failed.
    Failed(RunError),
}

impl<E: Into<RunError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
