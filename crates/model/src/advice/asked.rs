//! The request of `meshtax advise`.

use serde::{Deserialize, Serialize};

use crate::analysis::Metric;
use crate::experiment::PolicyLevel;

/// A need that a mesh can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Encryption with verified identities of both ends.
    Mtls,
    /// A policy on the peer's identity.
    IdentityPolicy,
    /// A policy on HTTP's method and path.
    HttpPolicy,
    /// HTTP responses counted by status.
    HttpMetrics,
    /// Requests of one connection spread over the replicas.
    RequestBalancing,
    /// Failed requests are retried.
    Retries,
    /// Validated cryptography; no run measures it.
    Fips,
}

impl Need {
    /// All, in display order.
    pub const ALL: [Self; 7] = [
        Self::Mtls,
        Self::IdentityPolicy,
        Self::HttpPolicy,
        Self::HttpMetrics,
        Self::RequestBalancing,
        Self::Retries,
        Self::Fips,
    ];

    /// As typed and printed.
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

    /// The lowest policy level that provides it; `None`: it does not depend on the level.
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

/// A priority: the primary requirements of the comparison that meshtax starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Latency and throughput.
    Performance,
    /// Effort of the installation.
    EaseOfInstallation,
    /// Effort of upgrades.
    EaseOfMaintenance,
    /// Encryption, validation, governance.
    Compliance,
    /// CPU and memory.
    Cost,
    /// Available support.
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

    /// As typed and printed.
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

    /// The ids of the published facts about it; empty: a run measures it.
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

/// An objective at some load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As typed.
    pub text: String,
    /// The metric: a percentile, or the throughput.
    pub metric: Metric,
    /// In the metric's unit (ns, or requests per second): upper bound for latency, lower bound for throughput.
    pub bound: f64,
    /// Offered requests per second, open loop; `None`: saturated.
    pub rate_per_s: Option<f64>,
}

/// The request of `meshtax advise`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The objectives.
    pub objectives: Vec<Objective>,
    /// Pods in the mesh.
    pub pods: Option<u32>,
    /// Nodes, for data planes with one proxy per node.
    pub nodes: Option<u32>,
    /// Requests of users per second, over the whole cluster.
    pub requests_per_s: Option<f64>,
    /// Mean number of hops between services in the mesh per user request.
    pub hops: f64,
    /// The call graph from which the hops were derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Price of a core-hour, in a currency of the user's choice.
    pub cpu_price: Option<f64>,
    /// Price of a GiB-hour.
    pub memory_price: Option<f64>,
    /// The priorities, most important first; empty: all are reported.
    pub priorities: Vec<Priority>,
    /// The needs.
    pub needs: Vec<Need>,
    /// The cluster's network plug-in.
    pub cni: Option<String>,
    /// The operator of the cluster.
    pub managed: Option<String>,
}

impl Default for Asked {
    /// A request without details.
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
    /// Whether there is a need that a run can measure.
    #[must_use]
    pub fn has_needs(&self) -> bool {
        self.needs.iter().any(|need| *need != Need::Fips)
    }
}

/// A preset and the steady rates that it measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PresetRates {
    /// Its name.
    pub name: String,
    /// Offered requests per second of its open loops.
    pub rates_per_s: Vec<f64>,
}
