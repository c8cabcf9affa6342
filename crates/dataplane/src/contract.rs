//! The contract of a variant: what it promises and how that is proven, on any engine. It refers to pods and services by
//! name, since a cluster assigns addresses only when it deploys them.

use std::collections::BTreeMap;

use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::probe::Probe;
use crate::scope::ProcessScope;
use crate::traffic::TrafficCounter;

/// What a variant promises, and how that is proven.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contract {
    /// Run in this order; all must pass.
    pub probes: Vec<Probe>,
    /// For the probes that make TLS handshakes themselves.
    pub direct_tls: DirectTls,
    /// The pods that have these identities, by identity: on a real mesh, which certifies no probers, they send the
    /// requests of the probes through their own proxies. Empty: probers get certificates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holders: BTreeMap<String, String>,
    /// The metrics that count HTTP requests; `None`: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_metrics: Option<HttpMetrics>,
    /// The port of a service's pods at which the connections between the proxies end; `None`: no proxies.
    pub proxy_port: Option<u16>,
    /// The port of the clients' pod at which its proxy accepts their connections; `None`: no proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_port: Option<u16>,
    /// What the proxies themselves count of the traffic; empty: they count nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficCounter>,
    /// Whether a waypoint is in the path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waypoint: bool,
    /// What clients outside the mesh connect to; `None`: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressTarget>,
}

/// What clients outside the mesh connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IngressTarget {
    /// The gateway.
    Gateway,
    /// The first entry point itself, past the gateway: a sabotage.
    EntryPoint,
}

/// The metrics of the proxy that judges a service's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpMetrics {
    /// Which proxy: the service's, or the waypoint.
    pub role: ComponentRole,
    /// Whether it serves its pod or its node.
    pub scope: ProcessScope,
    /// The port of its metrics, at 127.0.0.1.
    pub port: u16,
    /// The path of its metrics.
    pub path: String,
    /// The prefix of the series that count HTTP responses.
    pub series: String,
}

/// How a prober connects by TLS to the server side, past the client's proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectTls {
    /// Application protocols to offer.
    pub alpn: Vec<String>,
    /// The server's port; `None`: the application's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The server name (SNI); `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether requests go through an HBONE tunnel: HTTP/2 `CONNECT` to the application.
    #[serde(default)]
    pub hbone: bool,
    /// Whether that is the waypoint, and not the server's pod.
    #[serde(default)]
    pub at_waypoint: bool,
}
