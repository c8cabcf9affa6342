//! Events of a run, for progress output.

use serde::{Deserialize, Serialize};

use crate::failure::{ComponentFailure, RunFailure, TrialFailure, VariantFailure};
use crate::plan::PlannedTrial;

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A preparation before the first round.
    Preparing(Preparation),
    /// Processes are started and verified.
    RoundStarted {
        /// Counts from 1.
        round: u32,
        /// How many are expected.
        of: u32,
    },
    /// A variant cannot be measured in a round.
    VariantFailed(VariantFailure),
    /// A trial begins.
    TrialStarted {
        /// Which.
        trial: PlannedTrial,
        /// How many are done.
        done: u32,
        /// How many are expected in all.
        of: u32,
        /// Estimate of the time left, in nanoseconds.
        left_ns: u64,
    },
    /// A trial has no figures, or is already known to be invalid.
    TrialFailed {
        /// Which.
        trial: PlannedTrial,
        /// Why.
        failure: TrialFailure,
    },
    /// A process of the round ended before the round did.
    ComponentEnded(ComponentFailure),
    /// The measurement is over.
    Finished,
}

/// A preparation before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Namespaces, programs and pods.
    Environment,
    /// The pilot, which sizes an injected delay.
    InjectedDelay,
}

/// Why measuring ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Ending {
    /// The time allowed was used.
    TimeUsed,
    /// The requested precision was reached.
    PrecisionReached,
    /// A person or a signal stopped it.
    Interrupted,
    /// A failure.
    Failed {
        /// What kind of failure it was.
        failure: RunFailure,
        /// The error's text.
        detail: String,
    },
}
