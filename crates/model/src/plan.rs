//! The order of a run: blocks of trials.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::{LoadPointId, VariantId};

/// The name of a trial in its run: `r3b1t07` is round 3, block 1, the seventh in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrialId(pub String);

impl TrialId {
    /// Rounds, blocks and positions count from 1.
    #[must_use]
    pub fn new(round: u32, block: u32, position: u32) -> Self {
        Self(format!("r{round}b{block}t{position:02}"))
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One measurement that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTrial {
    /// Unique in the run.
    pub id: TrialId,
    /// Counts from 1.
    pub round: u32,
    /// Counts from 1 within its round.
    pub block: u32,
    /// The variant.
    pub variant: VariantId,
    /// The load point.
    pub load_point: LoadPointId,
    /// Seed of the arrival schedule: the same for every variant of a block and load point.
    pub arrival_seed: u64,
}

/// Every variant × load point once, in random order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Counts from 1.
    pub round: u32,
    /// Counts from 1 within its round.
    pub block: u32,
    /// In the order in which they run.
    pub trials: Vec<PlannedTrial>,
}
