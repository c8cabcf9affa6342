//! Where the pods of one variant stand, and what their application speaks.

use std::net::Ipv4Addr;

use meshtax_model::experiment::Options;
use serde::{Deserialize, Serialize};

use crate::{ALLOWED_CALL, ALLOWED_PATH, ECHO_PATH, SERVICE_NAME, spiffe_id};

/// Where the two ends of one variant stand, and what they are given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// The client's pod.
    pub client: Pod,
    /// The server's pod; of several replicas the first.
    pub server: Pod,
    /// The service's other replicas, of the same identity.
    pub more_servers: Vec<Pod>,
    /// Where a mesh's proxy for the whole service stands, on the first of the servers' nodes, if it has one.
    pub waypoint: Pod,
    /// Where clients outside the mesh come in, on the clients' node; `None`: none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Gateway>,
    /// The address at which clients call the first service: its own, or the server's pod's.
    pub called: Ipv4Addr,
    /// The application's port in the server's pod, where it speaks HTTP/1.1.
    pub app_port: u16,
    /// Its further ports.
    pub more_ports: Vec<AppPort>,
    /// Worker threads of each proxy.
    pub workers: u32,
    /// All services but the first: those that it calls, those that they call, and others that clients call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<SiteService>,
    /// Those of them that the server itself calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// What the variant's proxies do or hold besides.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub options: Options,
}

/// Where clients outside the mesh come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Its pod.
    pub pod: Pod,
    /// Whether it is the only way in: then no client stands in a pod of the mesh.
    pub is_only_way: bool,
}

/// A service besides the first that clients call. Its application speaks HTTP/1.1 at [`Site::app_port`], and where clients
/// call it, has all the ports of the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteService {
    /// Its name, and its pods' service account.
    pub name: String,
    /// The address at which others call it: its own, or its only pod's.
    pub called: Ipv4Addr,
    /// Its pods, one at least.
    pub pods: Vec<Pod>,
    /// The services that it calls.
    pub calls: Vec<String>,
    /// Whether clients call it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clients: bool,
}

/// A service as clients call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called<'a> {
    /// The name by which they ask for it, without the port.
    pub host: &'a str,
    /// Where.
    pub address: Ipv4Addr,
}

impl SiteService {
    /// Its name in the cluster's DNS.
    #[must_use]
    pub fn dns_name(&self) -> String {
        format!("{}.default.svc.cluster.local", self.name)
    }
}

/// A pod as its proxy sees it: who may call it, and whom it calls.
#[derive(Clone, Debug)]
pub(crate) struct Meshed<'a> {
    pub(crate) pod: &'a Pod,
    /// Of its application; none where nobody calls it.
    pub(crate) ports: Vec<AppPort>,
    /// Service accounts of those who may call it; `None`: nobody calls it.
    pub(crate) callers: Option<Vec<&'a str>>,
    pub(crate) callees: Vec<Callee<'a>>,
}

/// A service that a pod calls.
#[derive(Clone, Debug)]
pub(crate) struct Callee<'a> {
    /// In the cluster's DNS.
    pub(crate) name: String,
    pub(crate) called: Ipv4Addr,
    pub(crate) pods: Vec<&'a Pod>,
    pub(crate) ports: Vec<AppPort>,
}

impl Callee<'_> {
    /// The identity of its pods, all of one service account.
    pub(crate) fn service_account(&self) -> &str {
        self.pods.first().map_or("", |pod| &pod.service_account)
    }

    /// Its first name in the cluster's DNS.
    pub(crate) fn short_name(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Its own, if it is not called by its only pod's.
    pub(crate) fn virtual_address(&self) -> Option<Ipv4Addr> {
        let is_pods = |pod: &&Pod| pod.address == self.called;
        Some(self.called).filter(|_| !self.pods.first().is_some_and(is_pods))
    }
}

/// A service of the variant, and who may call it.
#[derive(Clone, Debug)]
pub(crate) struct MeshService<'a> {
    pub(crate) service: Callee<'a>,
    /// Their service accounts.
    pub(crate) callers: Vec<&'a str>,
}

impl Meshed<'_> {
    /// Whether it is called and calls as well.
    pub(crate) fn is_between(&self) -> bool {
        self.callers.is_some() && !self.callees.is_empty()
    }
}

impl Site {
    /// The client's pod as its proxy sees it; `None`: all clients stand outside the mesh.
    pub(crate) fn client_end(&self) -> Option<Meshed<'_>> {
        (!self.has_outside_clients_only()).then(|| self.calling(&self.client))
    }

    /// The gateway's pod as the mesh's proxy in it sees it.
    pub(crate) fn gateway_end(&self) -> Option<Meshed<'_>> {
        let gateway = self.gateway.as_ref()?;
        Some(self.calling(&gateway.pod))
    }

    /// A pod that calls all services that clients call.
    fn calling<'a>(&'a self, pod: &'a Pod) -> Meshed<'a> {
        let others = self.behind.iter().filter(|service| service.clients);
        let others = others.map(|service| self.callee(service));
        Meshed {
            pod,
            ports: Vec::new(),
            callers: None,
            callees: std::iter::once(self.front()).chain(others).collect(),
        }
    }

    /// All services, the one in front first, each as those see it who call it.
    pub(crate) fn services(&self) -> Vec<MeshService<'_>> {
        let front = MeshService {
            service: self.front(),
            callers: self.callers_of_first(),
        };
        let behind = self.behind.iter().map(|service| MeshService {
            service: self.callee(service),
            callers: self.callers(service),
        });
        std::iter::once(front).chain(behind).collect()
    }

    /// The first service that clients call, as they see it.
    fn front(&self) -> Callee<'_> {
        Callee {
            name: SERVICE_NAME.into(),
            called: self.called,
            pods: self.servers().collect(),
            ports: self.ports(),
        }
    }

    /// A pod of the first service that clients call.
    pub(crate) fn server_end<'a>(&'a self, pod: &'a Pod) -> Meshed<'a> {
        Meshed {
            pod,
            ports: self.ports(),
            callers: Some(self.callers_of_first()),
            callees: self.callees(&self.calls),
        }
    }

    /// The pods of all other services, by service.
    pub(crate) fn ends_behind(&self) -> Vec<Vec<Meshed<'_>>> {
        let mut all = Vec::new();
        for service in &self.behind {
            let end = |pod| Meshed {
                pod,
                ports: self.ports_of(service),
                callers: Some(self.callers(service)),
                callees: self.callees(&service.calls),
            };
            all.push(service.pods.iter().map(end).collect());
        }
        all
    }

    fn callees(&self, names: &[String]) -> Vec<Callee<'_>> {
        let called = self.behind.iter().filter(|s| names.contains(&s.name));
        called.map(|service| self.callee(service)).collect()
    }

    /// A service besides the first, as others see it.
    fn callee<'a>(&self, service: &'a SiteService) -> Callee<'a> {
        Callee {
            name: service.dns_name(),
            called: service.called,
            pods: service.pods.iter().collect(),
            ports: self.ports_of(service),
        }
    }

    /// Clients ask at all ports, other services at the first.
    fn ports_of(&self, service: &SiteService) -> Vec<AppPort> {
        match service.clients {
            true => self.ports(),
            false => vec![self.first_port()],
        }
    }

    /// Service accounts of those who call the service in front: the clients.
    pub(crate) fn callers_of_first(&self) -> Vec<&str> {
        let client = (!self.has_outside_clients_only()).then_some(&self.client);
        let gateway = self.gateway.as_ref().map(|gateway| &gateway.pod);
        let pods = client.into_iter().chain(gateway);
        pods.map(|pod| pod.service_account.as_str()).collect()
    }

    /// Service accounts of those who call a service besides the first.
    fn callers(&self, service: &SiteService) -> Vec<&str> {
        let calls = |calls: &[String]| calls.contains(&service.name);
        let clients = match service.clients {
            true => self.callers_of_first(),
            false => Vec::new(),
        };
        let server = calls(&self.calls).then_some(self.server.service_account.as_str());
        let others = self.behind.iter().filter(|other| calls(&other.calls));
        clients
            .into_iter()
            .chain(server)
            .chain(others.map(|other| other.name.as_str()))
            .collect()
    }
}

impl Site {
    /// Whether no client stands in a pod of the mesh.
    #[must_use]
    pub fn has_outside_clients_only(&self) -> bool {
        let gateway = self.gateway.as_ref();
        gateway.is_some_and(|gateway| gateway.is_only_way)
    }

    /// From where requests come into the mesh, as its servers see it: the client's pod, or the gateway's where
    /// there is no other way in.
    #[must_use]
    pub fn caller(&self) -> &Pod {
        match &self.gateway {
            Some(gateway) if gateway.is_only_way => &gateway.pod,
            _ => &self.client,
        }
    }

    /// All replicas of the service.
    pub fn servers(&self) -> impl Iterator<Item = &Pod> {
        std::iter::once(&self.server).chain(&self.more_servers)
    }

    /// How many nodes of the servers' its replicas stand on.
    #[must_use]
    pub fn server_nodes(&self) -> usize {
        let nodes = self.servers().map(|pod| pod.node.of_servers());
        nodes.max().map_or(1, |last| last + 1)
    }

    /// On which of the servers' nodes a replica stands, both counted from 0.
    #[must_use]
    pub fn node_of(&self, replica: usize) -> usize {
        let pod = self.servers().nth(replica);
        pod.map_or(0, |pod| pod.node.of_servers())
    }

    /// The replicas on one of the servers' nodes, which count from 0.
    pub fn servers_on(&self, node: usize) -> impl Iterator<Item = &Pod> {
        self.servers()
            .filter(move |pod| pod.node.of_servers() == node)
    }

    /// All services that clients call.
    pub fn called_by_clients(&self) -> impl Iterator<Item = Called<'_>> {
        std::iter::once(self.first_called()).chain(self.further_called())
    }

    /// The first service that clients call.
    #[must_use]
    pub fn first_called(&self) -> Called<'_> {
        Called {
            host: &self.server.service_account,
            address: self.called,
        }
    }

    /// The others that they call.
    pub fn further_called(&self) -> impl Iterator<Item = Called<'_>> {
        let others = self.behind.iter().filter(|service| service.clients);
        others.map(|service| Called {
            host: &service.name,
            address: service.called,
        })
    }

    /// All ports of the application.
    #[must_use]
    pub fn ports(&self) -> Vec<AppPort> {
        std::iter::once(self.first_port())
            .chain(self.more_ports.iter().cloned())
            .collect()
    }

    fn first_port(&self) -> AppPort {
        AppPort {
            number: self.app_port,
            speaks: Speaks::Http1,
            response_bytes: 0,
            path: None,
        }
    }

    /// What an `l7` policy allows the client.
    #[must_use]
    pub fn http_rules(&self) -> Vec<HttpRule> {
        let without_query = |path: &String| path.split('?').next().map(str::to_owned);
        let own = self.more_ports.iter().filter_map(|port| port.path.as_ref());
        let mut rules = vec![HttpRule {
            method: "GET".into(),
            prefixes: [ALLOWED_PATH, ECHO_PATH].map(String::from).to_vec(),
            exact: own.filter_map(without_query).collect(),
        }];
        if self.more_ports.iter().any(|p| p.speaks == Speaks::Http2) {
            rules.push(HttpRule {
                method: "POST".into(),
                prefixes: vec![ALLOWED_CALL.into()],
                exact: Vec::new(),
            });
        }
        rules
    }
}

/// The node on which a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodNode {
    /// The clients'.
    Client,
    /// One of the servers', counted from 0.
    Server(u32),
}

impl PodNode {
    /// Which of the servers' nodes it is; 0 as well if it is none of them.
    #[must_use]
    pub fn of_servers(self) -> usize {
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
    /// Where its files are put: a directory of the lab's own.
    pub directory: String,
    /// The node on which it stands.
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

/// What is spoken on a port of the application, as it is declared to the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, gRPC included.
    Http2,
    /// Bytes that no proxy is to look at.
    Tcp,
}

/// A port of the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppPort {
    /// Its number.
    pub number: u16,
    /// What is spoken there.
    pub speaks: Speaks,
    /// Size of its answers in bytes, as far as that is known.
    pub response_bytes: u32,
    /// A path that is asked for there and that policies allow besides the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Requests that an `l7` policy allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRule {
    /// The HTTP method.
    pub method: String,
    /// How the paths begin.
    pub prefixes: Vec<String>,
    /// Whole paths, which are allowed besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exact: Vec<String>,
}
