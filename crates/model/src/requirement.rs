//! What a mesh is wanted for: needs that it meets or not, and requirements that decide between meshes.

use serde::{Deserialize, Serialize};

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
