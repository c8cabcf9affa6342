//! What meshtax serves to a proxy in place of its mesh's control plane, as data.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::Place;

/// A service of a control plane, at 127.0.0.1 or on a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// ztunnel's workload socket, on which it is told of the pod.
    WorkloadSocket {
        /// The socket's path.
        path: String,
        /// The pod as the mesh knows it.
        workload: Workload,
    },
    /// Linkerd's identity, destination and policy services, in clear.
    Linkerd {
        /// Their port.
        port: u16,
        /// What they answer.
        answers: LinkerdServices,
    },
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
    /// Pods that it may call.
    pub endpoints: Vec<LinkerdEndpoint>,
    /// Who may call its application.
    pub inbound: LinkerdInbound,
}

/// A pod as Linkerd's destination controller knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkerdEndpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its application's port.
    pub port: u16,
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
    /// A server with an authorization for this identity.
    Client {
        /// The identity.
        identity: String,
    },
    /// HTTP routes with an authorization for this identity.
    Routes {
        /// The identity.
        identity: String,
        /// The HTTP method.
        method: String,
        /// How the paths begin.
        prefixes: Vec<String>,
    },
}
