//! The course of a run, round by round.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reason::InvalidReason;
use crate::experiment::VariantId;

/// What was measured in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundLog {
    /// The round.
    pub round: u32,
    /// When its first trial began, relative to the start of the run, in nanoseconds and without pauses.
    pub at_ns: u64,
    /// Its trials, whatever came of them.
    pub trials: u32,
    /// How many of them are invalid, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub invalid: BTreeMap<InvalidReason, u32>,
    /// Variants that did not start in it, were not proven, or whose evidence did not hold to its end; each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<VariantId>,
}
