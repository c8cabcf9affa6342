//! Why a figure is missing, or a trial is invalid: ids and data. The report formats them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::estimate::Metric;
use crate::experiment::VariantId;
use crate::failure::VariantFailureReason;

/// Why a trial is invalid. No reason depends on how fast the trial was, or on how many requests succeeded: that is a
/// [`Shortfall`](super::Shortfall).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidReason {
    /// It has no figures.
    Failed,
    /// An earlier record has the same variant, load point and block.
    Repeated,
    /// A probe failed in its round.
    NotProven,
    /// A process ended or was restarted.
    ComponentFailed,
    /// A process exceeded its memory limit, and the kernel killed it.
    OutOfMemory,
    /// No request was offered, or the window has no length.
    NoRequests,
    /// The evidence no longer held at its end.
    EvidenceLost,
    /// A CPU limit (cgroup) around the whole run throttled its processes. That of a variant's own proxies is a factor.
    Throttled,
    /// The hypervisor took too much of the machine's time.
    Steal,
    /// The generator was late while the hypervisor took its core.
    LateBySteal,
    /// Other programs used its cores.
    OtherPrograms,
    /// A component's memory grew throughout the window.
    MemoryGrowth,
    /// Open loop: the generator was the limit. In a closed loop this is a caveat instead: as a reason it would leave a
    /// fast baseline on a small machine without trials.
    GeneratorBound,
}

impl InvalidReason {
    /// The id, as in JSON (`late-by-steal`).
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Repeated => "repeated",
            Self::NotProven => "not-proven",
            Self::ComponentFailed => "component-failed",
            Self::OutOfMemory => "out-of-memory",
            Self::NoRequests => "no-requests",
            Self::EvidenceLost => "evidence-lost",
            Self::Throttled => "throttled",
            Self::Steal => "steal",
            Self::LateBySteal => "late-by-steal",
            Self::OtherPrograms => "other-programs",
            Self::MemoryGrowth => "memory-growth",
            Self::GeneratorBound => "generator-bound",
        }
    }

    /// Whether the hypervisor is the cause, which affects all variants alike.
    #[must_use]
    pub fn is_by_hypervisor(self) -> bool {
        matches!(self, Self::Steal | Self::LateBySteal)
    }
}

impl fmt::Display for InvalidReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// Why a variant has no trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ExclusionReason {
    /// It failed; this is its last failure.
    Failed {
        /// The round.
        round: u32,
        /// The failure.
        failure: VariantFailureReason,
    },
    /// There is no record of a trial.
    NoTrials,
}

/// One side of a paired difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Arm {
    /// The variant itself.
    Variant,
    /// The baselines that it is compared with.
    Baselines,
    /// Other variants that it is compared with.
    Variants {
        /// Which.
        variants: Vec<VariantId>,
    },
}

/// A percentile with too little data above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unresolved {
    /// Which percentile.
    pub metric: Metric,
    /// Trials with requests above it.
    pub trials: u32,
    /// Requests above it.
    pub requests: u64,
    /// The minimum of each.
    pub needed: u32,
}

/// Why a difference has no estimate or no interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum NotEstimable {
    /// A variant of the pair was excluded.
    Excluded {
        /// The side.
        variant: VariantId,
        /// Why.
        reason: ExclusionReason,
    },
    /// Too large a share of the trials is invalid.
    TooManyInvalid {
        /// The side.
        arm: Arm,
        /// Invalid trials, with those that were not made because it could not be started in their round.
        invalid: u32,
        /// All trials, except those that the hypervisor disturbed.
        trials: u32,
    },
    /// The hypervisor disturbed too large a share of the trials.
    TooManyDisturbed {
        /// The side.
        arm: Arm,
        /// Disturbed trials.
        disturbed: u32,
        /// All trials.
        trials: u32,
    },
    /// The baselines did not carry the load either: it is beyond this machine.
    BeyondMachine {
        /// Their trials that did not.
        trials: u32,
        /// All their valid trials.
        of: u32,
    },
    /// Too many trials did not carry the load, and too few to show that the variant is the cause.
    LoadNotCarried {
        /// Trials that did not.
        trials: u32,
        /// All its valid trials.
        of: u32,
    },
    /// A variant of the comparison is overloaded.
    Overloaded {
        /// Which.
        variant: VariantId,
    },
    /// The variant has no trial at this load point.
    NoTrials,
    /// The other side of the comparison has no valid trial.
    NoValidTrials {
        /// The other side.
        arm: Arm,
    },
    /// Valid trials served nothing, so that they have no ratio to others, and leaving them out would favour their side.
    NothingServed {
        /// The side.
        arm: Arm,
        /// How many.
        trials: u32,
    },
    /// The percentile is not resolved.
    Unresolved {
        /// The side.
        arm: Arm,
        /// The missing data.
        unresolved: Unresolved,
    },
    /// No block has a valid trial of both.
    NoCommonBlock,
    /// No block has a resource sample of both.
    NoCommonSample,
    /// Too few blocks for an interval.
    FewBlocks {
        /// Blocks with a valid pair.
        blocks: u32,
    },
    /// The A/A pair has no interval here, so there is no noise floor.
    NoNoiseFloor,
    /// One of the compared runs does not have the variant or the load point.
    NotInRun,
    /// Throughput on machines with different numbers of cores.
    DifferentMachineSizes,
    /// The figures are not finite.
    NotFinite,
    /// One of the compared sides has no estimate.
    InSide {
        /// Which side.
        side: RunSide,
        /// Why.
        reason: Box<NotEstimable>,
    },
}

/// A side of a comparison of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunSide {
    /// BASE.
    Base,
    /// NEW.
    New,
}

impl fmt::Display for RunSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Base => "BASE",
            Self::New => "NEW",
        })
    }
}

/// Why a metric has no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum NoLevel {
    /// No trial is valid.
    NoValidTrials,
    /// No valid trial has a resource sample.
    NoResourceSample,
    /// There were no requests.
    NoRequests,
    /// Memory was not read.
    NoMemoryReading,
    /// The percentile is not resolved.
    Unresolved(Unresolved),
}
