//! The pods and services of one variant: where they run, and the protocols of their applications.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{Options, Workers, is_runtime_key};
use serde::{Deserialize, Serialize};

use crate::names::{ALLOWED_CALL, ALLOWED_PATH, ECHO_PATH, dns_name, spiffe_id, spiffe_id_in};

/// The pods and services of one variant, and the settings of its proxies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// The namespace in the identities of its pods.
    pub namespace: String,
    /// The clients' pods, all with the same service account; at least one.
    pub clients: Vec<Pod>,
    /// At least one of them is an entry point.
    pub services: Vec<SiteService>,
    /// The pod for a waypoint, on the first server node. Not every data plane has one.
    pub waypoint: Pod,
    /// The ingress gateway, on the clients' node; `None`: no client is outside the mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// A pod of the mesh whose identity no policy allows; `None`: probers get certificates of any identity instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intruder: Option<Pod>,
    /// Worker threads of each proxy.
    pub workers: Workers,
    /// Cores of a node, which some programs' native number of workers depends on.
    pub cores: u32,
    /// What the variant's proxies do or hold in addition to what its level promises.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub options: Options,
    /// The variant's runtime switches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime: BTreeMap<String, String>,
}

/// The ingress gateway, for clients outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Its pod.
    pub pod: Pod,
    /// Whether it is the only ingress: then no client runs in a pod of the mesh.
    pub is_only_ingress: bool,
}

/// A service and its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteService {
    /// Its name, and its pods' service account.
    pub name: String,
    /// The address that its callers connect to: a virtual one, or its only pod's.
    pub address: Ipv4Addr,
    /// At least one.
    pub pods: Vec<Pod>,
    /// The ports of its application. The first is an HTTP/1.1 port, and the same for all services.
    pub ports: Vec<AppPort>,
    /// The services that it calls.
    pub calls: Vec<String>,
    /// Whether clients call it.
    pub entry_point: bool,
}

impl SiteService {
    /// Its name in the cluster's DNS.
    #[must_use]
    pub fn dns_name(&self) -> String {
        dns_name(&self.name)
    }

    /// Its address and the first port of its application.
    #[must_use]
    pub fn endpoint(&self) -> (Ipv4Addr, u16) {
        (self.address, self.port())
    }

    /// The first port of its application.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.first().map_or(0, |port| port.number)
    }

    /// The addresses of its pods.
    #[must_use]
    pub fn pod_addresses(&self) -> Vec<Ipv4Addr> {
        self.pods.iter().map(|pod| pod.address).collect()
    }

    /// The number of server nodes over which its pods are distributed.
    #[must_use]
    pub fn server_nodes(&self) -> usize {
        let nodes = self.pods.iter().map(|pod| pod.node.server_index());
        nodes.max().map_or(1, |last| last + 1)
    }

    /// Whether its callers connect to a virtual address, and not to its only pod's.
    #[must_use]
    pub fn has_virtual_address(&self) -> bool {
        let first = self.pods.first();
        first.is_none_or(|pod| pod.address != self.address)
    }
}

impl Site {
    /// The services that clients call.
    pub fn entry_points(&self) -> impl Iterator<Item = &SiteService> {
        self.services.iter().filter(|service| service.entry_point)
    }

    /// The first of them, which probes of a single connection use.
    ///
    /// # Panics
    /// If there are no services.
    #[must_use]
    pub fn entry_point(&self) -> &SiteService {
        self.entry_points().next().unwrap_or(&self.services[0])
    }

    /// The service of this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&SiteService> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The worker threads of a program's processes.
    pub(crate) fn workers_of(&self, program: Program) -> u32 {
        self.workers.of(program, self.cores)
    }

    /// The switches of Envoy's runtime.
    pub(crate) fn runtime_keys(&self) -> BTreeMap<&str, &str> {
        self.switches(true).collect()
    }

    /// The switches that are environment variables, for the programs that have no runtime.
    pub(crate) fn environment_switches(&self) -> impl Iterator<Item = (&str, &str)> {
        self.switches(false)
    }

    fn switches(&self, runtime: bool) -> impl Iterator<Item = (&str, &str)> {
        let all = self.runtime.iter();
        all.filter(move |(key, _)| is_runtime_key(key) == runtime)
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// All pods of all services.
    pub fn service_pods(&self) -> impl Iterator<Item = &Pod> {
        self.services.iter().flat_map(|service| &service.pods)
    }

    /// All pods: the clients', those of the services, the waypoint's, the gateway's, the intruder's.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        let gateway = self.gateway.as_ref().map(|gateway| &gateway.pod);
        self.clients
            .iter()
            .chain(self.service_pods())
            .chain([&self.waypoint])
            .chain(gateway)
            .chain(&self.intruder)
    }

    /// The SPIFFE identity of a service account, as Istio forms it.
    pub(crate) fn spiffe_id(&self, service_account: &str) -> String {
        spiffe_id_in(&self.namespace, service_account)
    }

    /// Whether no client runs in a pod of the mesh.
    #[must_use]
    pub fn has_outside_clients_only(&self) -> bool {
        let gateway = self.gateway.as_ref();
        gateway.is_some_and(|gateway| gateway.is_only_ingress)
    }

    /// The pods from which clients' requests enter the mesh, as the services see it: the clients', or the gateway's where
    /// that is the only ingress.
    #[must_use]
    pub fn entering_pods(&self) -> &[Pod] {
        match &self.gateway {
            Some(gateway) if gateway.is_only_ingress => std::slice::from_ref(&gateway.pod),
            _ => &self.clients,
        }
    }

    /// The first of them, for what all of them have in common: their service account is the same.
    ///
    /// # Panics
    /// If there are no clients.
    #[must_use]
    pub fn caller(&self) -> &Pod {
        &self.entering_pods()[0]
    }

    /// Whether this is the pod of a client.
    #[must_use]
    pub fn is_client(&self, pod: &str) -> bool {
        self.clients.iter().any(|client| client.name == pod)
    }

    /// The names of a service's callers among the services.
    pub fn calling_services(&self, callee: &str) -> impl Iterator<Item = &SiteService> {
        let calls = move |caller: &&SiteService| caller.calls.iter().any(|name| name == callee);
        self.services.iter().filter(calls)
    }

    /// All ports of the applications that clients call.
    #[must_use]
    pub fn ports(&self) -> &[AppPort] {
        &self.entry_point().ports
    }

    /// The first port of every application.
    #[must_use]
    pub fn app_port(&self) -> u16 {
        self.entry_point().port()
    }

    /// Their other ports.
    #[must_use]
    pub fn more_ports(&self) -> &[AppPort] {
        self.ports().get(1..).unwrap_or_default()
    }

    /// The requests that an `l7` policy allows.
    #[must_use]
    pub fn http_rules(&self) -> Vec<HttpRule> {
        let without_query = |path: &String| path.split('?').next().map(str::to_owned);
        let further = self.more_ports();
        let own = further.iter().filter_map(|port| port.path.as_ref());
        let mut rules = vec![HttpRule {
            method: "GET".into(),
            prefixes: [ALLOWED_PATH, ECHO_PATH].map(String::from).to_vec(),
            exact: own.filter_map(without_query).collect(),
        }];
        if further.iter().any(|p| p.protocol == AppProtocol::Http2) {
            rules.push(HttpRule {
                method: "POST".into(),
                prefixes: vec![ALLOWED_CALL.into()],
                exact: Vec::new(),
            });
        }
        rules
    }
}

/// The node on which a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodNode {
    /// The clients' node.
    Client,
    /// One of the server nodes, counted from 0.
    Server(u32),
}

impl PodNode {
    /// The index among the server nodes; 0 also for the clients' node.
    #[must_use]
    pub fn server_index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server(number) => number as usize,
        }
    }
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name, unique among the variant's pods.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its service account: the last part of its identity.
    pub service_account: String,
    /// The directory of its files.
    pub directory: String,
    /// The node on which it runs.
    pub node: PodNode,
}

impl Pod {
    /// The pod's SPIFFE identity.
    #[must_use]
    pub fn identity(&self) -> String {
        spiffe_id(&self.service_account)
    }

    /// The absolute path of one of the pod's files.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.directory)
    }
}

/// The protocol of an application's port, as it is declared to the mesh (`appProtocol` in Kubernetes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, gRPC included.
    Http2,
    /// Bytes that no proxy parses.
    Tcp,
}

/// A port of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppPort {
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub protocol: AppProtocol,
    /// Size of its response bodies in bytes, as far as it is known.
    pub response_bytes: u32,
    /// A path that is requested there and that policies allow in addition to the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl AppPort {
    /// A port of HTTP/1.1.
    #[must_use]
    pub fn http1(number: u16) -> Self {
        Self {
            number,
            protocol: AppProtocol::Http1,
            response_bytes: 0,
            path: None,
        }
    }
}

/// Requests that an `l7` policy allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRule {
    /// The HTTP method.
    pub method: String,
    /// Prefixes of the paths.
    pub prefixes: Vec<String>,
    /// Whole paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exact: Vec<String>,
}
