//! What happens in a run, for whoever shows progress.

use serde::{Deserialize, Serialize};

use crate::experiment::VariantId;
use crate::plan::PlannedTrial;

/// Something that a person who waits wants to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Something is prepared; `what` says what.
    Preparing {
        /// For a person.
        what: String,
    },
    /// Processes are started and proven.
    RoundStarted {
        /// Counts from 1.
        round: u32,
        /// How many are expected.
        of: u32,
    },
    /// A variant cannot be measured in this round.
    VariantFailed {
        /// Which.
        variant: VariantId,
        /// In which round.
        round: u32,
        /// Why.
        reason: String,
    },
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
    /// A trial ended without a figure, or is invalid already.
    TrialFailed {
        /// Which.
        trial: PlannedTrial,
        /// Why.
        reason: String,
    },
    /// A process of the round had died by the round's end.
    ComponentDied {
        /// Which, and how.
        what: String,
    },
    /// Measuring is over.
    Finished,
}

/// Why measuring ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// The time allowed was used.
    TimeUsed,
    /// The precision asked for was reached.
    PrecisionReached,
    /// A person or a signal stopped it.
    Interrupted,
    /// The environment broke.
    Failed {
        /// What happened.
        reason: String,
    },
}
