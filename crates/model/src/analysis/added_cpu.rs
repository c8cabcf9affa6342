//! Added CPU per request: what else changes with it, and what it means.

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use crate::experiment::{LoadPointId, VariantId};

/// CPU outside the path of a request, to which a variant can move work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Elsewhere {
    /// Busy time of the machine that belongs to no component.
    Unattributed,
    /// The load generator.
    Generator,
    /// The mesh's control plane, and its other containers outside the path; on a cluster.
    ControlPlane,
}

/// The added CPU of a variant at a load point. All figures are paired differences from the baselines, in nanoseconds
/// per completed request; [`Metric::CpuPerRequest`](super::Metric) counts the components in the path only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddedCpu {
    /// Of which variant.
    pub variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Busy time of the machine that belongs to no component; `None` without common samples.
    pub unattributed: Option<Estimate>,
    /// CPU of the load generator; `None` without common samples.
    pub generator: Option<Estimate>,
    /// CPU of the mesh's control plane, which the baselines do not have; `None`: it has none here, or no common samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<Estimate>,
    /// The other end of the range, where work may have moved; `None`: the components are the whole effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_elsewhere: Option<WithElsewhere>,
    /// What an application loses on cores that it shares with its proxies; at saturated load points of candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<ThroughputLoss>,
}

/// The added CPU of the components plus what changed elsewhere by more than a tenth of it, or may exceed the margin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithElsewhere {
    /// What is included; at least one.
    pub parts: Vec<Elsewhere>,
    /// In nanoseconds per request.
    pub added: Estimate,
}

/// The throughput that an application loses on cores that it shares with its proxies and that are saturated: added
/// CPU / (its own CPU + added CPU).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputLoss {
    /// CPU of the application without a mesh, in nanoseconds per request.
    pub app_cpu_ns: f64,
    /// Whether it is the application of this run.
    pub is_measured: bool,
    /// The lost share: 0.08 is 8 %.
    pub share: Estimate,
}
