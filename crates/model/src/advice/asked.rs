//! What is asked, and what is known besides the run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::Metric;
use crate::experiment::PolicyLevel;

/// Something that a mesh may be wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Encryption with verified identities of both ends.
    Mtls,
    /// A policy on the peer's identity.
    IdentityPolicy,
    /// A policy on HTTP's method and path.
    HttpPolicy,
    /// HTTP's answers counted by status.
    HttpMetrics,
    /// Requests of one connection spread over the replicas.
    RequestBalancing,
    /// Failed requests sent again.
    Retries,
    /// Validated cryptography: nothing that a run shows.
    Fips,
}

impl Need {
    /// All, in the order in which they are told.
    pub const ALL: [Self; 7] = [
        Self::Mtls,
        Self::IdentityPolicy,
        Self::HttpPolicy,
        Self::HttpMetrics,
        Self::RequestBalancing,
        Self::Retries,
        Self::Fips,
    ];

    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtls => "mtls",
            Self::IdentityPolicy => "identity-policy",
            Self::HttpPolicy => "http-policy",
            Self::HttpMetrics => "http-metrics",
            Self::RequestBalancing => "request-balancing",
            Self::Retries => "retries",
            Self::Fips => "fips",
        }
    }

    /// The lowest policy level that promises it; `None`: it is not a matter of levels.
    #[must_use]
    pub fn level(self) -> Option<PolicyLevel> {
        match self {
            Self::Mtls => Some(PolicyLevel::Mtls),
            Self::IdentityPolicy => Some(PolicyLevel::L4),
            Self::HttpPolicy => Some(PolicyLevel::L7),
            Self::HttpMetrics | Self::RequestBalancing | Self::Retries | Self::Fips => None,
        }
    }
}

/// What matters most: the primary requirements of the comparison that meshtax starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Latency and throughput.
    Performance,
    /// What an installation asks for.
    EaseOfInstallation,
    /// What upgrades ask for.
    EaseOfMaintenance,
    /// Encryption, validation, governance.
    Compliance,
    /// CPU and memory.
    Cost,
    /// Whom one can ask.
    Support,
}

impl Priority {
    /// All, in their order.
    pub const ALL: [Self; 6] = [
        Self::Performance,
        Self::EaseOfInstallation,
        Self::EaseOfMaintenance,
        Self::Compliance,
        Self::Cost,
        Self::Support,
    ];

    /// As it is typed and printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Performance => "performance",
            Self::EaseOfInstallation => "ease-of-installation",
            Self::EaseOfMaintenance => "ease-of-maintenance",
            Self::Compliance => "compliance",
            Self::Cost => "cost",
            Self::Support => "support",
        }
    }

    /// The ids of the facts of meshes that speak to it; none: a run itself does.
    #[must_use]
    pub fn features(self) -> &'static [&'static str] {
        match self {
            Self::Performance | Self::Cost => &[],
            Self::EaseOfInstallation => &[
                "helm-charts",
                "cni-needs",
                "kube-proxy-needs",
                "needs-storage",
            ],
            Self::EaseOfMaintenance => &["upgrade-cadence", "support-window", "stable-releases"],
            Self::Compliance => &["fips", "encryption", "governance"],
            Self::Support => &["support-contracts", "managed-offers", "support-window"],
        }
    }
}

/// Something that must hold at some load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As it was typed.
    pub text: String,
    /// Of what: a percentile, or the throughput.
    pub metric: Metric,
    /// In the metric's unit (ns, or requests per second): the most for latency, the least for throughput.
    pub bound: f64,
    /// Offered requests per second, open loop; `None`: saturated.
    pub rate_per_s: Option<f64>,
}

/// What `meshtax advise` is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// What must hold.
    pub objectives: Vec<Objective>,
    /// Pods in the mesh.
    pub pods: Option<u32>,
    /// Nodes, for proxies of which each node has one.
    pub nodes: Option<u32>,
    /// Requests of users per second, over the whole cluster.
    pub requests_per_s: Option<f64>,
    /// How often a user's request passes the mesh from one service to another, on average.
    pub hops: f64,
    /// The call graph that the hops are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Of a core for an hour, in a currency of the user's.
    pub cpu_price: Option<f64>,
    /// Of a GiB for an hour.
    pub memory_price: Option<f64>,
    /// What matters most, the first before the second; none: all are told.
    pub priorities: Vec<Priority>,
    /// What a mesh is wanted for.
    pub needs: Vec<Need>,
    /// The cluster's network plug-in.
    pub cni: Option<String>,
    /// Who runs the cluster.
    pub managed: Option<String>,
}

impl Default for Asked {
    /// Nothing in particular.
    fn default() -> Self {
        Self {
            objectives: Vec::new(),
            pods: None,
            nodes: None,
            requests_per_s: None,
            hops: 1.0,
            topology: None,
            cpu_price: None,
            memory_price: None,
            priorities: Vec::new(),
            needs: Vec::new(),
            cni: None,
            managed: None,
        }
    }
}

impl Asked {
    /// Whether anything is needed that a run can show.
    #[must_use]
    pub fn has_needs(&self) -> bool {
        self.needs.iter().any(|need| *need != Need::Fips)
    }
}

/// Something that is known of a mesh and that no run can show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// In a word (`yes`, `partly`).
    pub answer: String,
    /// In a sentence.
    pub words: String,
    /// Where it is from.
    pub source: String,
}

/// What is known of meshes: by the mesh's id (`istio-sidecar`), by the feature's id (`helm-charts`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub BTreeMap<String, BTreeMap<String, Fact>>);

/// A preset and the steady rates that it measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PresetRates {
    /// Its name.
    pub name: String,
    /// Offered requests per second of its open loops.
    pub rates_per_s: Vec<f64>,
}
