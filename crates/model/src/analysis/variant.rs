//! One variant over the whole run.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::memory::{ComponentMemory, NodeMemory};
use super::point::Point;
use super::reason::ExclusionReason;
use crate::evidence::Evidence;
use crate::experiment::{LoadPointId, VariantId};
use crate::plan::TrialId;
use crate::trial::ComponentRole;

/// The results of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantAnalysis {
    /// Which.
    pub variant: VariantId,
    /// `None`: measured. Otherwise why it was excluded.
    pub excluded: Option<ExclusionReason>,
    /// The evidence of its last round (the failing one, if one failed).
    pub evidence: Option<Evidence>,
    /// Rounds in which all probes passed.
    pub rounds_proven: u32,
    /// Rounds in which it was started.
    pub rounds_tried: u32,
    /// In the experiment's order.
    pub points: Vec<Point>,
    /// By component.
    pub memory: Vec<ComponentMemory>,
    /// By node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeMemory>,
    /// Its trials in the order of the run; of those longer than a second, each second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
    /// Start-up time and idle usage.
    #[serde(default, skip_serializing_if = "Upkeep::is_empty")]
    pub upkeep: Upkeep,
}

/// One measured trial as a moment of the run, or a second of a longer one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// The trial.
    pub trial: TrialId,
    /// When the trial, or this second of it, began, relative to the start of the run, in nanoseconds.
    pub at_ns: u64,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Whether it is valid.
    pub valid: bool,
    /// Median response latency in nanoseconds; `None` in a closed loop, or without requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_p50_ns: Option<f64>,
    /// By role: the application, the proxies in the path, and on a cluster the mesh's control plane.
    pub roles: Vec<RoleMoment>,
}

/// What the processes of one role used in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMoment {
    /// The role.
    pub role: ComponentRole,
    /// CPU as a share of one core.
    pub cores: f64,
    /// Resident anonymous memory at the window's end, in bytes; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
}

/// Start-up time and idle usage: means over the rounds in which its evidence passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upkeep {
    /// CPU of all its proxies together while another variant was measured, as a share of one core; `None`: it has no
    /// proxies, or no other variant was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cores: Option<Estimate>,
    /// From the start of its first process to the first successful response, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<Estimate>,
    /// The same, minus the mean of the baselines in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_start_ns: Option<Estimate>,
    /// From the first configuration that the control plane sent until all of its proxies had acknowledged everything,
    /// in nanoseconds; `None`: they do not receive services from a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_ns: Option<Estimate>,
}

impl Upkeep {
    /// Whether there is no figure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
