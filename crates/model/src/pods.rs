//! CPU and memory of containers and proxies, and settings of the pods that a run creates on a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The Secret with the agents' token, in each namespace of a run.
pub const AGENT_SECRET: &str = "meshtax-agent";

/// What a container of a run does, for its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodRole {
    /// The load generator.
    Client,
    /// An application.
    Service,
    /// A proxy that meshtax starts. Those of an installed mesh are configured in that mesh.
    Proxy,
}

impl PodRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Client, Self::Service, Self::Proxy];

    /// The key in a spec.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Service => "service",
            Self::Proxy => "proxy",
        }
    }
}

/// A proxy's place in the path of requests, for the limits of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyRole {
    /// On the client's side.
    ClientProxy,
    /// On the server's side.
    ServerProxy,
    /// Between the two.
    Waypoint,
}

impl ProxyRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ClientProxy, Self::ServerProxy, Self::Waypoint];

    /// The key in a spec.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::ClientProxy => "client-proxy",
            Self::ServerProxy => "server-proxy",
            Self::Waypoint => "waypoint",
        }
    }
}

/// CPU and memory of a container or of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantities {
    /// In thousandths of a core; `None`: none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// In bytes; `None`: none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// The quality of service that the kubelet grants a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QualityOfService {
    /// Limits equal requests for each container of a pod, with whole CPUs for those that are measured: the kubelet's CPU
    /// manager can grant them cores of their own.
    Guaranteed,
}

/// A value that is passed on to Kubernetes. Numbers stay text: what it is to be, Kubernetes' own types decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Passed {
    /// Nothing.
    Null,
    /// A single value.
    Text(String),
    /// A list.
    List(Vec<Passed>),
    /// A mapping.
    Map(BTreeMap<String, Passed>),
}

/// A Secret with the credentials of a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PullSecret {
    /// Where it is.
    pub namespace: String,
    /// Its name, also of its copies in the namespaces of the run.
    pub name: String,
}

/// Settings of the pods of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSettings {
    /// What the scheduler sets aside for the containers of a role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<PodRole, Quantities>,
    /// The most that the containers of a role may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<PodRole, Quantities>,
    /// `None`: what follows from requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<QualityOfService>,
    /// Labels that the nodes of the run have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// A pod's `affinity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Passed>,
    /// A pod's `tolerations`: a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Passed>,
    /// A pod's `topologySpreadConstraints`: a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_spread: Option<Passed>,
    /// The name of a PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    /// Copied into the namespaces of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<PullSecret>,
}
