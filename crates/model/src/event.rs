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
        /// How many there are in all.
        of: RoundTotal,
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

/// How many rounds a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTotal {
    /// As many as fit into the time by what the earlier ones took.
    Expected(u32),
    /// The minimum: how long a round takes is not known yet.
    AtLeast(u32),
}

/// A preparation before the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Namespaces, programs and pods.
    Environment,
    /// The pilot, which sizes an injected delay.
    InjectedDelay,
    /// The pilot, which scales the application's work.
    Saturation,
}

/// That an interrupted run was continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumption {
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The last round that has trials from before; 0: there were none.
    pub after_round: u32,
    /// How long nothing was measured, in nanoseconds: from the end of the last trial to `at_unix_ms`.
    pub paused_ns: u64,
    /// Whether a machine was restarted in between.
    pub restarted: bool,
}

/// How long a run has been measuring at a moment, in nanoseconds: since its start, without the pauses before the moment.
#[must_use]
pub fn active_ns(started_unix_ms: u64, resumptions: &[Resumption], at_unix_ms: u64) -> u64 {
    let earlier = resumptions.iter().filter(|r| r.at_unix_ms <= at_unix_ms);
    let paused_ns = earlier.fold(0_u64, |sum, r| sum.saturating_add(r.paused_ns));
    at_unix_ms
        .saturating_sub(started_unix_ms)
        .saturating_mul(1_000_000)
        .saturating_sub(paused_ns)
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

impl Ending {
    /// Whether everything was measured that was to be measured.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::TimeUsed | Self::PrecisionReached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_before_a_moment_do_not_count() {
        let resumption = |at_unix_ms, paused_s: u64| Resumption {
            at_unix_ms,
            after_round: 1,
            paused_ns: paused_s * 1_000_000_000,
            restarted: false,
        };
        let resumptions = [resumption(20_000, 5), resumption(40_000, 10)];
        let at = |ms| active_ns(10_000, &resumptions, ms) / 1_000_000_000;
        assert_eq!(at(14_000), 4);
        assert_eq!(at(20_000), 5);
        assert_eq!(at(30_000), 15);
        assert_eq!(at(45_000), 20);
        assert_eq!(at(5_000), 0, "a clock that was set back");
    }
}
