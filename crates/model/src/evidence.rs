//! What the probes saw: whether a variant is what its name says.

use serde::{Deserialize, Serialize};

use crate::experiment::VariantId;

/// One probe's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// A short fixed name: see [`probe`].
    pub probe: String,
    /// Whether the variant did what its policy level promises.
    pub passed: bool,
    /// What was seen, in words for a person.
    pub seen: String,
}

/// The names of the probes.
pub mod probe {
    /// A permitted request is answered with 200 through the whole path.
    pub const PERMITTED: &str = "permitted request";
    /// While a client's connection is open, the proxies hold its ends.
    pub const IN_THE_PATH: &str = "in the path";
    /// The proxies hold the services that they are told of and nobody calls.
    pub const KNOWS: &str = "knows of others";
    /// The proxies write a line for each request.
    pub const LOGS_REQUESTS: &str = "logs requests";
    /// The proxies send spans of requests to a collector.
    pub const SENDS_SPANS: &str = "sends spans";
    /// A further port of the application answers through the whole path.
    pub const CARRIES: &str = "further port";
    /// Replicas on every one of the servers' nodes were reached, each over its own link as the policy level promises.
    pub const EVERY_NODE: &str = "every node";
    /// A client that goes past the waypoint is refused.
    pub const AROUND_THE_WAYPOINT: &str = "around the waypoint";
    /// Between the waypoint and the servers the traffic is encrypted as well.
    pub const BEHIND_THE_WAYPOINT: &str = "behind the waypoint";
    /// Services that other services call are reached through their proxies.
    pub const CALLS_IN_THE_PATH: &str = "calls in the path";
    /// Calls between services are readable on the wire, or are not, as the policy level promises.
    pub const CALLS_ON_THE_WIRE: &str = "calls on the wire";
    /// A client outside the mesh comes in through the gateway, and from there through the mesh's proxies.
    pub const BY_THE_GATEWAY: &str = "by the gateway";
    /// Between a client outside the mesh and the gateway: in clear where HTTP is asked for, TLS where HTTPS is.
    pub const BEFORE_THE_GATEWAY: &str = "before the gateway";
    /// Between the gateway and the servers: as the policy level promises.
    pub const BEHIND_THE_GATEWAY: &str = "behind the gateway";
    /// Frames and payload between the pods were seen on the link between the nodes.
    pub const ON_THE_WIRE: &str = "on the wire";
    /// The canary is readable on the wire, or is not, as the policy level promises.
    pub const CANARY: &str = "canary";
    /// A TLS ServerHello was seen on the expected port, with its parameters.
    pub const HANDSHAKE: &str = "handshake";
    /// The server's proxy proves the server's identity.
    pub const SERVER_IDENTITY: &str = "server identity";
    /// The server's side saw the client's identity.
    pub const CLIENT_IDENTITY: &str = "client identity";
    /// A client with an identity that the policy does not allow is refused.
    pub const FORBIDDEN_IDENTITY: &str = "forbidden identity";
    /// A client whose certificate another authority signed is refused.
    pub const FOREIGN_CA: &str = "foreign authority";
    /// A method that the policy does not allow is refused.
    pub const FORBIDDEN_METHOD: &str = "forbidden method";
    /// A path that the policy does not allow is refused.
    pub const FORBIDDEN_PATH: &str = "forbidden path";
    /// A client without a mesh is refused.
    pub const PLAINTEXT_OUTSIDER: &str = "plaintext outsider";
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
    /// Frames with payload the other way.
    pub frames_to_client: u64,
    /// TCP payload bytes from the client's pod to the server's.
    pub bytes_to_server: u64,
    /// TCP payload bytes the other way.
    pub bytes_to_client: u64,
    /// The server's ports that were seen.
    pub ports: Vec<u16>,
    /// Whether the request's canary was readable.
    pub canary_to_server: bool,
    /// Whether the answer's canary was readable.
    pub canary_to_client: bool,
    /// Whether a connection from the client's pod began with an HTTP request in clear.
    #[serde(default)]
    pub http_to_server: bool,
    /// Whether a connection from the server's pod began with an HTTP answer in clear.
    #[serde(default)]
    pub http_to_client: bool,
    /// The handshakes seen, without repeats.
    pub handshakes: Vec<Handshake>,
    /// Distinct TCP connections seen.
    pub connections: u32,
    /// Packets that the kernel dropped before they were read; above zero, absence proves nothing.
    pub dropped: u64,
}

/// What a data plane does to a request besides carrying it, as far as a probe can tell. Nothing of this
/// passes or fails: it is what is had for the cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// Names of the headers that the application received and that nobody had sent, in lower case.
    /// Without any, HTTP was carried as bytes, or at least left as it was.
    pub added_headers: Vec<String>,
    /// Whether the application sees its client's own address.
    pub keeps_client_address: bool,
    /// Whether the server's side counts HTTP's answers by status; `None`: it has no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts_requests: Option<bool>,
    /// Whether a request that the application answers with 503 is sent again by a proxy; `None`: that
    /// could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries_again: Option<bool>,
    /// What is spread over a service's replicas; `None`: there is one replica only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balances: Option<Balances>,
}

/// What a data plane spreads over the replicas of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balances {
    /// Each connection goes to one replica, with all its requests.
    Connections,
    /// Requests of one connection go to several replicas.
    Requests,
}

/// All that the probes saw of one variant in one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// Of which variant.
    pub variant: VariantId,
    /// In which round (counts from 1).
    pub round: u32,
    /// In the order in which they ran.
    pub probes: Vec<ProbeResult>,
    /// What the packets showed.
    pub wire: WireEvidence,
    /// What is had besides; `None`: not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Features>,
    /// How long its start took.
    #[serde(default, skip_serializing_if = "Start::is_empty")]
    pub start: Start,
}

/// How long a variant's start took, on cores that all of its processes share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// From the start of its first process (files, certificates and redirection are there by then) to the first request
    /// of a client that was answered with 200; `None`: it was not looked for, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ns: Option<u64>,
    /// From the first of its configuration that the control plane sent to the proxy until the proxy said that it holds
    /// all: the longest of its proxies; `None`: none of them is told of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_ns: Option<u64>,
}

impl Start {
    /// Whether nothing was looked at.
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

    /// Whether there are probes and all of them passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.probes.is_empty() && self.failure().is_none()
    }
}

/// A variant that could not be measured in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantFailure {
    /// Which.
    pub variant: VariantId,
    /// In which round (counts from 1).
    pub round: u32,
    /// Why, for a person.
    pub reason: String,
}
