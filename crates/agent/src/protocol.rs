//! The agent's protocol: how an engine measures in an environment that it has built.

use meshtax_model::experiment::LoadPoint;
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{ResourceSample, TrialOutcome};
use serde::{Deserialize, Serialize};

/// The protocol's version.
pub const AGENT_PROTOCOL: u32 = 1;

/// From an engine to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRequest {
    /// [`AGENT_PROTOCOL`].
    pub version: u32,
    /// The trial to measure.
    pub trial: PlannedTrial,
    /// Its load.
    pub load_point: LoadPoint,
}

impl AgentRequest {
    /// A request in the present version.
    #[must_use]
    pub fn new(trial: PlannedTrial, load_point: LoadPoint) -> Self {
        Self {
            version: AGENT_PROTOCOL,
            trial,
            load_point,
        }
    }
}

/// From an agent to its engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentReply {
    /// The trial's figures.
    Measured {
        /// What came of the load.
        outcome: TrialOutcome,
        /// What it cost; `None`: the trial failed.
        sample: Option<Box<ResourceSample>>,
    },
    /// The agent speaks another version of the protocol.
    Version {
        /// The one that it speaks.
        spoken: u32,
    },
    /// No environment is up.
    NotReady,
}
