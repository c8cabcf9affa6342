//! What meshtax serves to a proxy in place of its mesh's control plane, as data.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{HttpRule, Place};

/// A service of a control plane, at 127.0.0.1 or on a Unix socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "service", rename_all = "kebab-case")]
pub enum ControlService {
    /// Istio's certificate service, over TLS.
    IstioCa {
        /// Where it is served.
        place: Place,
        /// Its port.
        port: u16,
        /// The name that its certificate is for.
        dns_name: String,
    },
    /// ztunnel's workload socket, on which it is told of its node's pods.
    WorkloadSocket {
        /// The socket's path.
        path: String,
        /// The pods of this node as the mesh knows them, a waypoint only if it is captured.
        workloads: Vec<Workload>,
    },
    /// Linkerd's identity, destination and policy services, in clear.
    Linkerd {
        /// Their port.
        port: u16,
        /// What they answer.
        answers: LinkerdServices,
    },
    /// Envoy's aggregated discovery service, in clear, with what changes only (delta), as Istio serves it to sidecars.
    Discovery {
        /// Its port.
        port: u16,
        /// What it tells.
        tells: Discovery,
    },
    /// A collector of traces (OpenTelemetry's gRPC protocol), in clear.
    TraceCollector {
        /// Its port.
        port: u16,
    },
}

/// What Envoy's discovery service tells one proxy: resources of Envoy's v3 API in the JSON form of their messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// `envoy.config.cluster.v3.Cluster`.
    pub clusters: Vec<Value>,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
    pub endpoints: Vec<Value>,
    /// `envoy.config.route.v3.RouteConfiguration`.
    pub routes: Vec<Value>,
    /// While it is asked to, it replaces so many endpoints a second by others, one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<f64>,
}

/// A pod as Istio knows it.
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

/// What Linkerd's controllers say to one proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdServices {
    /// The services that it may call.
    pub callees: Vec<LinkerdService>,
    /// Who may call its application's ports.
    pub inbound: Vec<(LinkerdPort, LinkerdInbound)>,
}

/// A service as Linkerd's controllers know it.
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

/// A port of an application as Linkerd knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdPort {
    /// Its number.
    pub number: u16,
    /// Whether its bytes are carried without a look at them.
    pub opaque: bool,
}

/// A pod as Linkerd's destination controller knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdEndpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its application's ports.
    pub ports: Vec<LinkerdPort>,
    /// Its identity; `None`: it is not meshed.
    pub identity: Option<String>,
    /// Its proxy's inbound port.
    pub inbound_port: u16,
}

/// An inbound policy, as Linkerd's policy controller forms them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "allow", rename_all = "kebab-case")]
pub enum LinkerdInbound {
    /// `all-unauthenticated`.
    Anyone,
    /// `all-authenticated`: whoever proves an identity.
    AllAuthenticated,
    /// A server with an authorization for these identities.
    Clients {
        /// The identities; none: nobody.
        identities: Vec<String>,
    },
    /// HTTP routes with an authorization for these identities.
    Routes {
        /// The identities; none: nobody.
        identities: Vec<String>,
        /// What is allowed.
        rules: Vec<HttpRule>,
    },
}
