//! What is asked of the variants: rates, connections and protocols.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::names::LoadPointId;

/// When requests are intended to be sent in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Constant gaps.
    Constant,
    /// Exponential gaps: independent users.
    Poisson,
}

/// How load is offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "regime", rename_all = "lowercase")]
pub enum Regime {
    /// Open loop below the knee: arrivals do not wait for responses. Measures latency.
    Steady {
        /// Offered rate in requests per second.
        rate_per_s: f64,
        /// The distribution of the intended send times.
        arrivals: Arrivals,
    },
    /// Closed loop: every connection sends again as soon as it has its response. Measures
    /// throughput and CPU per request; its latency is connections / throughput by identity.
    Saturated,
}

/// One offered load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Unique in the experiment.
    pub id: LoadPointId,
    /// Open or closed loop, with its rate.
    pub load: Regime,
    /// After this many requests a connection is closed and replaced; `None`: connections are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<u32>,
    /// Connections of the generator; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Each connection is a user with an equal share of an open loop's rate and its own schedule, who requests the
    /// pages in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_users: bool,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// Size of the response body in bytes; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
    /// Clients are outside the mesh and enter through its gateway; `None`: they call from a pod in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,
    /// Each trial restarts the variant's processes and has no warm-up: the window begins with their first requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
}

/// The protocol between clients outside the mesh and its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingress {
    /// Plaintext HTTP.
    Plaintext,
    /// HTTPS, terminated at the gateway. Clients present no certificate.
    Tls,
}

/// The protocol between clients and the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, one request on a connection at a time.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge, one request on a connection at a time.
    Http2,
    /// gRPC, unary calls, one on a connection at a time.
    Grpc,
    /// TCP: bytes that are echoed.
    Tcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC",
            Self::Tcp => "TCP",
        })
    }
}

impl LoadPoint {
    /// Over persistent connections.
    #[must_use]
    pub fn new(id: &str, load: Regime) -> Self {
        Self {
            id: LoadPointId(id.to_owned()),
            load,
            requests_per_connection: None,
            connections: None,
            by_users: false,
            protocol: Protocol::Http1,
            response_bytes: None,
            ingress: None,
            cold: false,
        }
    }

    /// Whether this is an open-loop point, whose latency is meaningful.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        matches!(self.load, Regime::Steady { .. })
    }
}
