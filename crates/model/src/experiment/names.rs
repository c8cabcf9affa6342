//! Names of variants and load points, policy levels and roles.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a variant, unique in its experiment (`envoy-sidecar-l7`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VariantId(pub String);

/// The name of a load point, unique in its experiment (`steady`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LoadPointId(pub String);

impl fmt::Display for VariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for LoadPointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a mesh configuration guarantees for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyLevel {
    /// A proxy is in the path and encrypts nothing.
    Plaintext,
    /// Mutual TLS with verified identities, no further policy.
    Mtls,
    /// Mutual TLS and a policy on the peer's identity.
    L4,
    /// Mutual TLS and a policy on the peer's identity, the HTTP method and the path.
    L7,
}

impl fmt::Display for PolicyLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plaintext => "plaintext",
            Self::Mtls => "mtls",
            Self::L4 => "l4",
            Self::L7 => "l7",
        })
    }
}

/// The role of a variant in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The variant without a mesh. There is exactly one.
    Baseline,
    /// The baseline again, in separate processes: the A/A control. Exactly one.
    Control,
    /// A variant that is compared with the baselines.
    Candidate,
}
