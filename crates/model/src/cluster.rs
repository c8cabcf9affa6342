//! What a cluster granted to a run's pods, and what it reported while the run went on.

use serde::{Deserialize, Serialize};

use crate::experiment::VariantId;

/// Something that a cluster granted or reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ClusterRecord {
    /// What a pod was granted.
    Granted(PodGrant),
    /// An event.
    Event(ClusterEvent),
}

/// What a pod of a variant was granted, in all rounds in which it was granted the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodGrant {
    /// The variant.
    pub variant: VariantId,
    /// The pod's name.
    pub pod: String,
    /// Its node's name.
    pub node: String,
    /// Its class of quality of service, as Kubernetes calls it (`Guaranteed`, `Burstable`, `BestEffort`); empty: not
    /// reported.
    pub qos: String,
    /// Its containers, in the order of their names.
    pub containers: Vec<ContainerGrant>,
}

/// What a container was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerGrant {
    /// Its name.
    pub name: String,
    /// The CPUs that it may use, as its cgroup has them; `None`: they could not be read.
    pub cpus: Option<Vec<u32>>,
}

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Something that belongs to a pod's life.
    Normal,
    /// Something that went wrong.
    Warning,
}

/// An event in a namespace of a run, or the end of a container there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// When it was last seen, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// How it is meant.
    pub severity: Severity,
    /// The variant; `None`: it concerns the run's agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<VariantId>,
    /// Kind and name of the object that it concerns, and its container, if any (`Pod/server/proxy`).
    pub object: String,
    /// Kubernetes' reason (`Evicted`, `BackOff`, `Unhealthy`, `OOMKilled`).
    pub reason: String,
    /// What Kubernetes says about it.
    pub message: String,
    /// How often it was seen until then.
    pub count: u32,
}
