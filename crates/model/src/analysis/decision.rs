//! The decision table: from a primary requirement to the mesh that a run suggests.

use serde::{Deserialize, Serialize};

use super::effect::Withheld;
use super::estimate::{Estimate, Metric};
use super::reason::{ExclusionReason, NotEstimable};
use crate::experiment::{LoadPointId, PolicyLevel, VariantId};
use crate::requirement::{Need, Priority};

/// How much a requirement counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Weight {
    /// The requirement.
    pub requirement: Priority,
    /// Above zero, relative to the other weights.
    pub weight: f64,
}

/// The decision table of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The user's weights; empty: none were given, and no row is weighted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// Variants that do the same work, and what is suggested among them.
    pub groups: Vec<DecisionGroup>,
}

/// What is suggested among variants that do the same work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionGroup {
    /// The common policy level; `None`: there is none, or with needs each variant is its data plane's lowest level that
    /// meets all of them.
    pub level: Option<PolicyLevel>,
    /// One per requirement, and the weighted one last if there are weights.
    pub rows: Vec<DecisionRow>,
}

/// What is suggested for one requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// The requirement; `None`: all that have a weight, together.
    pub requirement: Option<Priority>,
    /// Its weight, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// One per variant, in the experiment's order.
    pub cells: Vec<DecisionCell>,
}

/// What a run suggests of one variant for one requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionCell {
    /// The variant.
    pub variant: VariantId,
    /// The suggestion.
    pub suggestion: Suggestion,
    /// Why.
    pub reason: DecisionReason,
}

/// What a cell of the decision table reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suggestion {
    /// Shown to be the only best one.
    Suggested,
    /// One of several best ones, which do not differ by more than the margin.
    AsGoodAs,
    /// It may be the best one: what was measured does not decide.
    Inconclusive,
    /// This run has no figure and no fact about it.
    NotMeasuredHere,
    /// Shown to be worse than another one.
    NotSuggested,
}

/// Why a cell of the decision table reads as it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum DecisionReason {
    /// Better than these, and none is better than it.
    Better {
        /// The others.
        than: Vec<Opponent>,
    },
    /// As good as these, and none is better than it.
    Equivalent {
        /// The others.
        to: Vec<Opponent>,
    },
    /// Worse than these.
    Worse {
        /// The others.
        than: Vec<Opponent>,
    },
    /// Which of it and these is better is open.
    NotSeparated {
        /// The others.
        from: Vec<Opponent>,
    },
    /// The variant was not measured.
    Excluded {
        /// Why.
        reason: ExclusionReason,
    },
    /// No run measures this requirement.
    NoMeasurement {
        /// Published facts about it, by their ids in `meshtax published`.
        features: Vec<String>,
    },
    /// This run compares no other variant with it by what the requirement is decided by.
    NoComparison,
    /// Nothing that the requirement is decided by was proven by probes of this run.
    NotProven,
    /// None of the requirements that have a weight was measured.
    NothingWeighted,
}

/// Another variant, and what the comparison with it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opponent {
    /// The other variant.
    pub variant: VariantId,
    /// What the comparison rests on.
    pub ground: Ground,
}

/// What a comparison of two variants rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Ground {
    /// Their paired difference.
    Difference {
        /// The metric.
        metric: Metric,
        /// The load point.
        load_point: LoadPointId,
        /// How much more this variant has than the other one (0.03: 3 %); `None`: no estimate.
        relative: Option<Estimate>,
        /// As [`Comparison::withheld`](super::Comparison::withheld).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld: Option<Withheld>,
        /// The requirement's other metrics, if none of them decides: not estimable or inconclusive.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        open: Vec<Metric>,
    },
    /// One of the two did not carry the load, the other one did.
    Overload {
        /// The load point.
        load_point: LoadPointId,
        /// Whether it is this variant that carried the load.
        carried: bool,
    },
    /// They have no estimated difference.
    NotEstimable {
        /// The metric.
        metric: Metric,
        /// The load point.
        load_point: LoadPointId,
        /// Why.
        reason: NotEstimable,
    },
    /// Shown to be better by one metric, and worse by another.
    Conflict {
        /// By which it is better.
        better: Metric,
        /// By which it is worse.
        worse: Metric,
    },
    /// What the probes of this run proved of this variant.
    Proof {
        /// The needs that it meets.
        needs: Vec<Need>,
    },
    /// The weights of the requirements.
    Weights {
        /// In which it is better.
        better: f64,
        /// In which it is worse.
        worse: f64,
        /// In which it is as good.
        equivalent: f64,
        /// Which are open or not measured.
        open: f64,
    },
}
