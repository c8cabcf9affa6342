//! The results of the probes: whether a variant behaves as its name states.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::VariantId;

/// One probe's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// The probe.
    pub probe: ProbeId,
    /// Whether the variant behaved as its policy level requires.
    pub passed: bool,
    /// The observation, for people.
    pub seen: String,
}

/// A probe, by its stable id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeId {
    /// A permitted request gets status 200 through the whole path.
    PermittedRequest,
    /// While a client's connection is open, the proxies have connections for it.
    InThePath,
    /// The proxies hold the extra endpoints that they were sent and that receive no requests.
    ExtraEndpoints,
    /// The proxies write a line for each request.
    AccessLog,
    /// The proxies send spans of requests to a collector.
    Tracing,
    /// The proxies keep a statistic that their mesh's configuration leaves out.
    AllStats,
    /// The proxies run with the variant's runtime switches.
    RuntimeSwitches,
    /// An additional port of the application responds through the whole path.
    AdditionalPort,
    /// Replicas on every server node were reached, each over its own link as the policy level promises.
    EveryNode,
    /// A client that bypasses the waypoint is refused.
    WaypointBypass,
    /// Between the waypoint and the servers the traffic is encrypted as well.
    WaypointToServer,
    /// Services that other services call are reached through their proxies.
    CallsInThePath,
    /// Services that other services call refuse wrong identities, and prove their own.
    CallIdentities,
    /// Calls between services are readable on the wire, or are not, as the policy level promises.
    CallsOnTheWire,
    /// A client outside the mesh enters through the gateway, and continues through the mesh's proxies.
    ThroughGateway,
    /// Between a client outside the mesh and the gateway: plaintext for HTTP, TLS for HTTPS.
    ClientToGateway,
    /// Between the gateway and the servers: as the policy level promises.
    GatewayToServer,
    /// Frames and payload between the pods were captured on the link between the nodes.
    OnTheWire,
    /// The canary is readable on the wire, or is not, as the policy level promises.
    Canary,
    /// A TLS ServerHello was captured on the expected port, with its parameters.
    Handshake,
    /// The server's proxy proves the server's identity.
    ServerIdentity,
    /// The server's side received the client's identity.
    ClientIdentity,
    /// A client whose identity the policy does not allow is refused.
    ForbiddenIdentity,
    /// A client whose certificate another authority signed is refused.
    ForeignCa,
    /// A method that the policy does not allow is refused.
    ForbiddenMethod,
    /// A path that the policy does not allow is refused.
    ForbiddenPath,
    /// A client without a mesh is refused.
    PlaintextOutsider,
}

impl ProbeId {
    /// The id, as in JSON (`permitted-request`).
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::PermittedRequest => "permitted-request",
            Self::InThePath => "in-the-path",
            Self::ExtraEndpoints => "extra-endpoints",
            Self::AccessLog => "access-log",
            Self::Tracing => "tracing",
            Self::AllStats => "all-stats",
            Self::RuntimeSwitches => "runtime-switches",
            Self::AdditionalPort => "additional-port",
            Self::EveryNode => "every-node",
            Self::WaypointBypass => "waypoint-bypass",
            Self::WaypointToServer => "waypoint-to-server",
            Self::CallsInThePath => "calls-in-the-path",
            Self::CallIdentities => "call-identities",
            Self::CallsOnTheWire => "calls-on-the-wire",
            Self::ThroughGateway => "through-gateway",
            Self::ClientToGateway => "client-to-gateway",
            Self::GatewayToServer => "gateway-to-server",
            Self::OnTheWire => "on-the-wire",
            Self::Canary => "canary",
            Self::Handshake => "handshake",
            Self::ServerIdentity => "server-identity",
            Self::ClientIdentity => "client-identity",
            Self::ForbiddenIdentity => "forbidden-identity",
            Self::ForeignCa => "foreign-ca",
            Self::ForbiddenMethod => "forbidden-method",
            Self::ForbiddenPath => "forbidden-path",
            Self::PlaintextOutsider => "plaintext-outsider",
        }
    }
}

impl fmt::Display for ProbeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// A probe that failed, with what it observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedProbe {
    /// Which.
    pub probe: ProbeId,
    /// What was observed.
    pub seen: String,
}

impl fmt::Display for FailedProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.probe, self.seen)
    }
}

/// Parameters of a TLS handshake, read from packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handshake {
    /// `TLS 1.3`.
    pub version: String,
    /// `TLS_AES_128_GCM_SHA256`.
    pub cipher: String,
    /// `X25519`.
    pub key_exchange_group: String,
}

/// What was captured on the link between the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireEvidence {
    /// Frames with payload from the client's pod to the server's.
    pub frames_to_server: u64,
    /// Frames with payload in the opposite direction.
    pub frames_to_client: u64,
    /// TCP payload bytes from the client's pod to the server's.
    pub bytes_to_server: u64,
    /// TCP payload bytes in the opposite direction.
    pub bytes_to_client: u64,
    /// The server's ports that were observed.
    pub ports: Vec<u16>,
    /// Whether the request's canary was readable.
    pub canary_to_server: bool,
    /// Whether the response's canary was readable.
    pub canary_to_client: bool,
    /// Whether a connection from the client's pod began with a plaintext HTTP request.
    #[serde(default)]
    pub http_to_server: bool,
    /// Whether a connection from the server's pod began with a plaintext HTTP response.
    #[serde(default)]
    pub http_to_client: bool,
    /// The observed handshakes, without duplicates.
    pub handshakes: Vec<Handshake>,
    /// Distinct observed TCP connections.
    pub connections: u32,
    /// Packets that the kernel dropped before they were read; above zero, absence proves nothing.
    pub dropped: u64,
}

/// Features of a data plane beyond forwarding, as far as a probe can detect them. None of them passes or
/// fails: they are reported together with the cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Names of the headers that the application received and that the client did not send, in lower case.
    /// Empty: HTTP was forwarded as bytes, or at least unmodified.
    pub added_headers: Vec<String>,
    /// Whether the application sees its client's own address.
    pub keeps_client_address: bool,
    /// Whether the server's side counts HTTP responses by status; `None`: it has no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_requests: Option<bool>,
    /// Whether a proxy retries a request that the application answers with 503; `None`:
    /// not determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries_again: Option<bool>,
    /// The unit of load balancing over a service's replicas; `None`: there is one replica only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balances: Option<Balances>,
}

/// The unit of load balancing over the replicas of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balances {
    /// Connections: all requests of a connection go to one replica.
    Connections,
    /// Requests: those of one connection go to several replicas.
    Requests,
}

/// The results of all probes for one variant in one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Of which variant.
    pub variant: VariantId,
    /// In which round (counts from 1).
    pub round: u32,
    /// In the order in which they ran.
    pub probes: Vec<ProbeResult>,
    /// The captured traffic.
    pub wire: WireEvidence,
    /// Detected features; `None`: not probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// Its start-up times.
    #[serde(default, skip_serializing_if = "Start::is_empty")]
    pub start: Start,
}

/// The start-up times of a variant, on cores that all of its processes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// From the start of its first process (files, certificates and redirection exist by then) to the first client
    /// request with status 200; `None`: it was not probed, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ns: Option<u64>,
    /// From the first configuration that the control plane sent to the proxy until the proxy acknowledged
    /// everything: the slowest of its proxies; `None`: none of them receives services from a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_ns: Option<u64>,
}

impl Start {
    /// Whether there is no observation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Evidence {
    /// The first probe that failed.
    #[must_use]
    pub fn failure(&self) -> Option<&ProbeResult> {
        self.probes.iter().find(|p| !p.passed)
    }

    /// All probes that failed, with what they observed.
    #[must_use]
    pub fn failed_probes(&self) -> Vec<FailedProbe> {
        let failed = self.probes.iter().filter(|p| !p.passed);
        failed
            .map(|p| FailedProbe {
                probe: p.probe,
                seen: p.seen.clone(),
            })
            .collect()
    }

    /// Whether there are probes and all of them passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.probes.is_empty() && self.failure().is_none()
    }
}
