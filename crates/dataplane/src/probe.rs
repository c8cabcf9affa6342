//! The probes that verify a variant: the same for every data plane of a level.

use std::collections::BTreeMap;

use meshtax_model::evidence::ProbeId;
use serde::{Deserialize, Serialize};

use crate::scope::ProcessScope;
use crate::site::AppPort;

/// A check on a variant that must pass before it is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "probe", rename_all = "kebab-case")]
pub enum Probe {
    /// A permitted request gets status 200 through the whole path. Also used as the readiness check.
    Permitted,
    /// While a client's connection is open, the proxies hold connections at these ports of the pods.
    InThePath {
        /// In the client's pod, or in the gateway's if all load enters through it.
        client_port: u16,
        /// In the server's pod.
        server_port: u16,
    },
    /// The server's side saw this identity of the client.
    ClientIdentity {
        /// The SPIFFE identity.
        expected: String,
        /// Where the identity is visible.
        from: ClientIdentityFrom,
    },
    /// The server's side proves this identity in a TLS handshake made by the prober.
    ServerIdentity {
        /// The server's identity.
        expected: String,
        /// The prober's own identity, which is permitted.
        client: String,
    },
    /// A client with this identity, of the same authority, is refused.
    ForbiddenIdentity {
        /// The SPIFFE identity.
        identity: String,
    },
    /// A client with the permitted identity, certified by another authority, is refused.
    ForeignCa {
        /// The permitted identity.
        identity: String,
    },
    /// This method is refused through the whole path.
    ForbiddenMethod {
        /// The HTTP method.
        method: String,
    },
    /// This path is refused through the whole path.
    ForbiddenPath {
        /// The request's path.
        path: String,
    },
    /// A client without a mesh, speaking plain HTTP to the server's pod, is refused.
    PlaintextOutsider,
    /// The proxies have the extra endpoints in their configuration; no request goes to them.
    ExtraEndpoints {
        /// How many.
        services: u32,
        /// Total number of their endpoints.
        endpoints: u32,
    },
    /// The proxies in the client's pod and in the servers' pods log a line for each request.
    LogsRequests {
        /// The statistic in which each of them counts the lines.
        lines: Counter,
    },
    /// The proxies in the client's pod and in the servers' pods send spans to their collectors.
    SendsSpans,
    /// The proxies run with these runtime switches, as Envoy's admin interface and the processes' environments show them.
    RuntimeSwitches {
        /// Each switch and its value.
        switches: BTreeMap<String, String>,
        /// The port of Envoy's admin interface.
        admin_port: u16,
    },
    /// The proxies in the client's pod and in the servers' pods keep a statistic that the mesh's configuration leaves out.
    KeepsAllStats {
        /// The statistic.
        counter: Counter,
    },
    /// A further port of the application responds through the whole path.
    Carries {
        /// The port.
        port: AppPort,
    },
    /// Enough frames and bytes both ways between the two pods, on expected ports only.
    OnTheWire {
        /// The server's ports that may appear on the link.
        ports: Vec<u16>,
    },
    /// Every service behind the entry point is reached through its proxy, and where identities are
    /// required, a client outside the mesh is rejected there as well.
    CallsInThePath {
        /// The ports at which the proxies of their pods accept connections; `None`: there are none.
        port: Option<u16>,
        /// Whether plain HTTP from outside must be rejected.
        refuses_outsiders: bool,
    },
    /// Past the callers' proxies, each service that other services call accepts one of its callers, proves its own
    /// identity to it, and refuses wrong identities.
    CallIdentities {
        /// The services.
        services: Vec<CallIdentity>,
    },
    /// The canary in the calls between services: whether it is readable, and TLS 1.3 where it is not.
    CallsOnTheWire {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
    },
    /// A client outside the mesh gets its responses through the gateway, over plaintext and TLS. While its connection is
    /// open, the gateway and the mesh's proxies behind it hold connections.
    ByTheGateway {
        /// The port at which the mesh's proxy in the gateway's pod accepts the gateway's requests; `None`: there is
        /// none, or the gateway itself is the mesh's proxy.
        proxy_port: Option<u16>,
        /// The port at which the proxy in the server's pod accepts connections; `None`: there is none.
        server_port: Option<u16>,
    },
    /// Between a client outside the mesh and the gateway: the canary readable at its port for HTTP, and TLS 1.3 at
    /// the one for HTTPS.
    BeforeTheGateway,
    /// Between the gateway and the servers, if there is load from pods as well: the same checks that
    /// [`Probe::OnTheWire`], [`Probe::Canary`] and [`Probe::Handshake`] make at the client's pod.
    BehindTheGateway {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
        /// The server's ports that may appear on the link.
        ports: Vec<u16>,
    },
    /// Whether the canary is readable in what was captured.
    Canary {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
    },
    /// A TLS 1.3 ServerHello on the expected port.
    Handshake,
    /// A client with this identity that bypasses the waypoint and connects directly to the server is rejected,
    /// and receives the server's own certificate.
    AroundTheWaypoint {
        /// The client's SPIFFE identity.
        identity: String,
        /// The server's.
        server: String,
    },
    /// Requests reach replicas on all of the servers' nodes, and the traffic between each of these nodes and the
    /// callers satisfies [`Probe::OnTheWire`], [`Probe::Canary`] and [`Probe::Handshake`].
    EveryNode {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
        /// The server's ports that may appear on the link.
        ports: Vec<u16>,
    },
    /// Between the waypoint and the servers: TLS 1.3 at this port only, and the canary unreadable.
    BehindTheWaypoint {
        /// The servers' port as seen at the waypoint's pod.
        port: u16,
    },
}

/// A number that a proxy reports on an HTTP page in its own pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// The port of the page, at 127.0.0.1.
    pub port: u16,
    /// The path of the page.
    pub path: String,
    /// The prefix of the line that ends with the number.
    pub series: String,
}

/// Where the server's side reports the identity that the client's proxy presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientIdentityFrom {
    /// The header `x-forwarded-client-cert` that the application received.
    ForwardedClientCert,
    /// A header received by the application that contains only the identity.
    Header(String),
    /// A line `peer <identity>` in the server proxy's log.
    ProxyLog,
    /// A label of the server proxy's metrics, at a port where it runs.
    Metrics {
        /// The pod in which it runs.
        scope: ProcessScope,
        /// The port of its metrics, at 127.0.0.1.
        port: u16,
        /// The name of the series.
        series: String,
        /// Text that the matching line must contain, all of it.
        with: Vec<String>,
        /// The label that holds the identity.
        label: String,
    },
}

/// The identities that a service behind the first is tested with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallIdentity {
    /// The service's name.
    pub service: String,
    /// Its own identity.
    pub expected: String,
    /// One that may call it.
    pub caller: String,
    /// Those that may not, certified by the same authority; empty at levels without such a policy.
    pub forbidden: Vec<String>,
}

impl Probe {
    /// The id of its results.
    #[must_use]
    pub fn id(&self) -> ProbeId {
        match self {
            Self::Permitted => ProbeId::PermittedRequest,
            Self::InThePath { .. } => ProbeId::InThePath,
            Self::ClientIdentity { .. } => ProbeId::ClientIdentity,
            Self::ServerIdentity { .. } => ProbeId::ServerIdentity,
            Self::ForbiddenIdentity { .. } => ProbeId::ForbiddenIdentity,
            Self::ForeignCa { .. } => ProbeId::ForeignCa,
            Self::ForbiddenMethod { .. } => ProbeId::ForbiddenMethod,
            Self::ForbiddenPath { .. } => ProbeId::ForbiddenPath,
            Self::PlaintextOutsider => ProbeId::PlaintextOutsider,
            Self::ExtraEndpoints { .. } => ProbeId::ExtraEndpoints,
            Self::LogsRequests { .. } => ProbeId::AccessLog,
            Self::SendsSpans => ProbeId::Tracing,
            Self::KeepsAllStats { .. } => ProbeId::AllStats,
            Self::RuntimeSwitches { .. } => ProbeId::RuntimeSwitches,
            Self::Carries { .. } => ProbeId::AdditionalPort,
            Self::OnTheWire { .. } => ProbeId::OnTheWire,
            Self::CallsInThePath { .. } => ProbeId::CallsInThePath,
            Self::CallIdentities { .. } => ProbeId::CallIdentities,
            Self::CallsOnTheWire { .. } => ProbeId::CallsOnTheWire,
            Self::ByTheGateway { .. } => ProbeId::ThroughGateway,
            Self::BeforeTheGateway => ProbeId::ClientToGateway,
            Self::BehindTheGateway { .. } => ProbeId::GatewayToServer,
            Self::Canary { .. } => ProbeId::Canary,
            Self::Handshake => ProbeId::Handshake,
            Self::AroundTheWaypoint { .. } => ProbeId::WaypointBypass,
            Self::EveryNode { .. } => ProbeId::EveryNode,
            Self::BehindTheWaypoint { .. } => ProbeId::WaypointToServer,
        }
    }
}
