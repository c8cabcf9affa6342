//! What meshtax serves to a proxy in place of its mesh's control plane, as data.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::scope::ProcessScope;
use crate::site::HttpRule;

/// A control-plane service, at 127.0.0.1 or on a Unix socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "service", rename_all = "kebab-case")]
pub enum ControlService {
    /// Istio's certificate service, over TLS.
    IstioCa {
        /// Where it is served.
        scope: ProcessScope,
        /// Its port.
        port: u16,
        /// The DNS name in its certificate.
        dns_name: String,
    },
    /// ztunnel's workload socket, on which it receives its node's pods.
    WorkloadSocket {
        /// The socket's path.
        path: String,
        /// The pods of this node in the mesh's configuration, a waypoint only if it is captured.
        workloads: Vec<Workload>,
    },
    /// Linkerd's identity, destination and policy services, in plaintext.
    Linkerd {
        /// Their port.
        port: u16,
        /// The configuration that they return.
        answers: LinkerdServices,
    },
    /// Envoy's aggregated discovery service, in plaintext, with changes only (delta), as Istio serves it to sidecars.
    Discovery {
        /// Its port.
        port: u16,
        /// The resources that it serves.
        tells: Discovery,
    },
    /// A collector of traces (OpenTelemetry's gRPC protocol), in plaintext.
    TraceCollector {
        /// Its port.
        port: u16,
    },
}

/// The resources that Envoy's discovery service sends to one proxy, in the JSON form of Envoy's v3 API messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// `envoy.config.cluster.v3.Cluster`.
    pub clusters: Vec<Value>,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
    pub endpoints: Vec<Value>,
    /// `envoy.config.route.v3.RouteConfiguration`.
    pub routes: Vec<Value>,
    /// While endpoint churn is enabled, this many endpoints per second are replaced, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<f64>,
}

/// A pod in Istio's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Unique in the mesh.
    pub uid: String,
    /// The pod's name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its service account.
    pub service_account: String,
}

/// What Linkerd's controllers send to one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdServices {
    /// The services that its pod calls.
    pub callees: Vec<LinkerdService>,
    /// Who may call its application's ports.
    pub inbound: Vec<(LinkerdPort, LinkerdInbound)>,
}

/// A service in Linkerd's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdService {
    /// Its name in the cluster's DNS.
    pub name: String,
    /// Its virtual address, with the ports of its pods; `None`: it is called by its pod's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Its pods.
    pub endpoints: Vec<LinkerdEndpoint>,
}

/// A port of an application in Linkerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdPort {
    /// Its number.
    pub number: u16,
    /// Whether its traffic is opaque (no protocol detection).
    pub opaque: bool,
}

/// A pod in the configuration of Linkerd's destination controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdEndpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its application's ports.
    pub ports: Vec<LinkerdPort>,
    /// Its identity; `None`: it is not in the mesh.
    pub identity: Option<String>,
    /// Its proxy's inbound port.
    pub inbound_port: u16,
}

/// An inbound policy, in the form that Linkerd's policy controller sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "allow", rename_all = "kebab-case")]
pub enum LinkerdInbound {
    /// `all-unauthenticated`.
    Anyone,
    /// `all-authenticated`: any client with a proven identity.
    AllAuthenticated,
    /// A server with an authorization for these identities.
    Clients {
        /// The identities; empty: all clients are denied.
        identities: Vec<String>,
    },
    /// HTTP routes with an authorization for these identities.
    Routes {
        /// The identities; empty: all clients are denied.
        identities: Vec<String>,
        /// The permitted requests.
        rules: Vec<HttpRule>,
    },
}
