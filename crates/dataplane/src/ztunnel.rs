//! `ztunnel`: one real ztunnel for each node, with in-pod redirection, as Istio's ambient mode has it.
//!
//! Environment, local configuration and the rules of redirection are those of istio/ztunnel
//! (src/config.rs, src/xds.rs, ARCHITECTURE.md) and of Istio's CNI agent (cni/pkg/iptables). It takes
//! workloads and policies from a local file, its pod from the workload socket, and its certificates
//! from Istio's certificate service; meshtax plays all three.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::{OptionKind, PolicyLevel};
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::known::{KnownService, services};
use crate::{
    Blueprint, ClientIdentityFrom, Content, ControlService, DataPlane, DirectTls, HttpMetrics,
    Looks, Own, PORT_INBOUND, PORT_OUTBOUND, Place, Pod, PodBlueprint, PodFile, Process, Program,
    Redirect, SERVICE_NAME, Site, TRUST_DOMAIN, Workload, spiffe_id,
};

pub(crate) const DATA_PLANE: DataPlane = DataPlane {
    name: "ztunnel",
    levels: &[PolicyLevel::Mtls, PolicyLevel::L4],
    summary: "the real ztunnel, one per node, in-pod redirection, HBONE; stands for Istio ambient at L4",
    needs: &[Program::Ztunnel],
    note: Some(
        "connections between nodes share one HTTP/2 tunnel, encrypted with AES-256-GCM; it does not \
         parse HTTP, and balances connections, not requests",
    ),
    options: &[OptionKind::Knows],
    waypoint: false,
    graphs: false,
    gateway: false,
    build: |site, level| blueprint(site, level, Place::Node),
};

pub(crate) const DEDICATED: DataPlane = DataPlane {
    name: "ztunnel-dedicated",
    levels: &[PolicyLevel::Mtls, PolicyLevel::L4],
    summary: "the real ztunnel, one in each pod: as a sidecar, which Istio does not offer",
    needs: &[Program::Ztunnel],
    note: Some("what one ztunnel for each pod would take: compare it with one for each node"),
    options: &[OptionKind::Knows],
    waypoint: false,
    graphs: false,
    gateway: false,
    build: |site, level| blueprint(site, level, Place::Pod),
};

/// Where a meshed pod takes HBONE.
pub(crate) const PORT_HBONE: u16 = 15008;
const PORT_METRICS: u16 = 15020;
const PORT_CA: u16 = 15012;
const CA_NAME: &str = "istiod.istio-system.svc";
/// Istio's mark of ztunnel's own connections, and the bits that count.
const MARK: u32 = 0x539;
const OWN_MARK: Own = Own::Mark {
    value: MARK,
    mask: 0xfff,
};
const STRICT: &str = "istio_converted_static_strict";

fn blueprint(site: &Site, level: PolicyLevel, place: Place) -> Blueprint {
    let mesh = Mesh::of(level);
    let metrics = ClientIdentityFrom::Metrics {
        place,
        port: PORT_METRICS,
        series: "istio_tcp_connections_opened_total".into(),
        with: "reporter=\"destination\"".into(),
        label: "source_principal".into(),
    };
    let looks = Looks {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        gateway_proxy_port: None,
        wire_ports: vec![PORT_HBONE],
        identity: spiffe_id,
        client_identity: metrics,
        server_service_account: site.server.service_account.clone(),
    };
    let more = site.more_servers.iter().zip(1..);
    let (client, server, more_servers) = match place {
        // What serves the node stands with the first of its pods.
        Place::Node => (
            node(site, Node::Client, &mesh),
            node(site, Node::Server(0), &mesh),
            on_nodes(site, &mesh),
        ),
        Place::Pod => (
            dedicated(site, &site.client, Node::Client, &mesh),
            dedicated(site, &site.server, Node::Server(0), &mesh),
            more.map(|(pod, number)| {
                dedicated(site, pod, Node::Server(site.node_of(number)), &mesh)
            })
            .collect(),
        ),
    };
    Blueprint {
        client,
        server,
        more_servers,
        behind: Vec::new(),
        waypoint: None,
        gateway: None,
        entered_at: None,
        probes: looks.probes(site, level),
        direct_tls: DirectTls {
            alpn: vec!["h2".into()],
            port: Some(PORT_HBONE),
            server_name: None,
            hbone: true,
            at_waypoint: false,
        },
        http_metrics: Some(HttpMetrics {
            role: ComponentRole::ServerProxy,
            place,
            port: PORT_METRICS,
            path: "/metrics".into(),
            series: "istio_requests_total".into(),
        }),
        proxy_port: Some(PORT_HBONE),
    }
}

/// What the ztunnels are told besides who is there.
pub(crate) struct Mesh {
    pub(crate) level: PolicyLevel,
    /// All traffic to the servers goes through the waypoint.
    pub(crate) waypoint: Option<Waypoint>,
}

impl Mesh {
    pub(crate) fn of(level: PolicyLevel) -> Self {
        Self {
            level,
            waypoint: None,
        }
    }

    fn is_sandwiched(&self) -> bool {
        matches!(self.waypoint, Some(Waypoint::Sandwiched { .. }))
    }
}

/// How a waypoint is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waypoint {
    /// It speaks HBONE itself, with its own certificate.
    SpeaksHbone,
    /// Its node's ztunnel speaks HBONE for it, and hands connections on at this port, with whose
    /// they are in front (PROXY protocol).
    Sandwiched {
        /// Where the waypoint takes them.
        port: u16,
    },
}

/// A node with its pods.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Client,
    /// One of the servers', counted from 0.
    Server(usize),
}

impl Node {
    fn name(self) -> String {
        match self {
            Self::Client => "node-of-client".into(),
            Self::Server(0) => "node-of-server".into(),
            Self::Server(number) => format!("node-of-server-{}", number + 1),
        }
    }

    /// Those that its ztunnel serves.
    fn pods<'a>(self, site: &'a Site, mesh: &Mesh) -> Vec<&'a Pod> {
        match self {
            Self::Client => vec![&site.client],
            Self::Server(number) => {
                let is_here = number == 0 && mesh.is_sandwiched();
                let waypoint = is_here.then_some(&site.waypoint);
                site.servers_on(number).chain(waypoint).collect()
            }
        }
    }
}

/// A pod whose traffic goes to its node's ztunnel.
pub(crate) fn captured() -> PodBlueprint {
    PodBlueprint {
        redirect: Redirect {
            outbound_to: Some(PORT_OUTBOUND),
            inbound_to: Some(PORT_INBOUND),
            own: OWN_MARK,
            inbound_except: Some(PORT_HBONE),
            keeps_source: true,
        },
        ..PodBlueprint::default()
    }
}

/// All replicas but the first: with the first pod of each further node stands what serves that node.
pub(crate) fn on_nodes(site: &Site, mesh: &Mesh) -> Vec<PodBlueprint> {
    let replicas = 1..=site.more_servers.len();
    let blueprint = |replica: usize| match site.node_of(replica) == replica {
        true => node(site, Node::Server(replica), mesh),
        false => captured(),
    };
    replicas.map(blueprint).collect()
}

/// The first pod of a node, and what serves the node.
pub(crate) fn node(site: &Site, node: Node, mesh: &Mesh) -> PodBlueprint {
    let pod = match node {
        Node::Client => &site.client,
        Node::Server(number) => site.servers_on(number).next().unwrap_or(&site.server),
    };
    let socket = pod.path("ztunnel.sock");
    let mut blueprint = ztunnel(site, pod, node, mesh, Place::Node);
    blueprint.control.push(ControlService::WorkloadSocket {
        path: socket.clone(),
        workloads: node.pods(site, mesh).into_iter().map(workload).collect(),
    });
    let mode = [
        ("PROXY_MODE", "shared".to_owned()),
        ("INPOD_UDS", socket),
        ("POD_NAME", String::new()),
        ("POD_NAMESPACE", String::new()),
        ("SERVICE_ACCOUNT", String::new()),
    ];
    with_environment(blueprint, mode)
}

/// A pod with a ztunnel of its own.
fn dedicated(site: &Site, pod: &Pod, node: Node, mesh: &Mesh) -> PodBlueprint {
    let identity = format!("default/{}/{}", pod.name, pod.service_account);
    let mode = [
        ("PROXY_MODE", "dedicated".to_owned()),
        ("PROXY_WORKLOAD_INFO", identity),
        ("PACKET_MARK", MARK.to_string()),
        ("ENABLE_ORIG_SRC", "true".to_owned()),
    ];
    with_environment(ztunnel(site, pod, node, mesh, Place::Pod), mode)
}

/// What both forms have in common: a ztunnel, its files, its certificates' source.
fn ztunnel(site: &Site, pod: &Pod, node: Node, mesh: &Mesh, place: Place) -> PodBlueprint {
    let role = match node {
        Node::Client => ComponentRole::ClientProxy,
        Node::Server(_) => ComponentRole::ServerProxy,
    };
    let file = |name: &str, content| PodFile {
        name: name.into(),
        content,
    };
    PodBlueprint {
        files: vec![
            file("ztunnel.yaml", Content::Text(state(site, mesh))),
            file("root.pem", Content::TrustAnchor),
            file("token", Content::Text("meshtax".into())),
        ],
        control: vec![ControlService::IstioCa {
            place,
            port: PORT_CA,
            dns_name: CA_NAME.into(),
        }],
        processes: vec![Process {
            role,
            program: Program::Ztunnel,
            arguments: vec!["proxy".into(), "ztunnel".into()],
            environment: environment(site, node, pod),
            place,
        }],
        ..captured()
    }
}

fn with_environment<const N: usize>(
    mut blueprint: PodBlueprint,
    more: [(&str, String); N],
) -> PodBlueprint {
    for process in &mut blueprint.processes {
        let more = more.iter().cloned();
        let texts = more.map(|(key, value)| (key.to_owned(), Content::Text(value)));
        process.environment.extend(texts);
    }
    blueprint
}

fn environment(site: &Site, node: Node, pod: &Pod) -> BTreeMap<String, Content> {
    [
        // ztunnel logs every connection by default: access logs are off for all alike.
        ("RUST_LOG", "warn".to_owned()),
        ("XDS_ADDRESS", String::new()),
        ("LOCAL_XDS_PATH", pod.path("ztunnel.yaml")),
        ("CLUSTER_ID", "Kubernetes".to_owned()),
        ("NODE_NAME", node.name()),
        ("CA_ADDRESS", format!("https://127.0.0.1:{PORT_CA}")),
        ("ALT_CA_HOSTNAME", CA_NAME.to_owned()),
        ("CA_ROOT_CA", pod.path("root.pem")),
        ("AUTH_TOKEN", pod.path("token")),
        ("IPV6_ENABLED", "false".to_owned()),
        ("ISTIO_META_DNS_CAPTURE", "false".to_owned()),
        ("ZTUNNEL_WORKER_THREADS", site.workers.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), Content::Text(value)))
    .collect()
}

fn workload(pod: &Pod) -> Workload {
    Workload {
        uid: uid(pod),
        name: pod.name.clone(),
        namespace: "default".into(),
        service_account: pod.service_account.clone(),
    }
}

fn uid(pod: &Pod) -> String {
    format!("Kubernetes//Pod/default/{}", pod.name)
}

/// A policy of ztunnel's, for the workloads that name it.
struct Policy {
    namespace: &'static str,
    name: &'static str,
    action: &'static str,
    /// One match, in YAML.
    rule: String,
}

/// What Istio's control plane would tell of the server's pod.
fn policies(site: &Site, mesh: &Mesh) -> Vec<Policy> {
    let level = mesh.level;
    let mut policies = Vec::new();
    if level >= PolicyLevel::Mtls {
        // PeerAuthentication STRICT reaches ztunnel as a denial of whoever has no principal.
        policies.push(Policy {
            namespace: "istio-system",
            name: STRICT,
            action: "Deny",
            rule: "notPrincipals: [!Presence []]".into(),
        });
    }
    if level >= PolicyLevel::L4 {
        // Behind a waypoint nobody else is let through: what it judges must not be gone around.
        let (name, allowed) = match mesh.waypoint {
            Some(_) => ("allow-waypoint", site.waypoint.identity()),
            None => ("allow-client", site.client.identity()),
        };
        let principal = allowed.trim_start_matches("spiffe://");
        policies.push(Policy {
            namespace: "default",
            name,
            action: "Allow",
            rule: format!("principals: [!Exact \"{principal}\"]"),
        });
    }
    policies
}

/// Its local configuration: all pods, the service if it has an address of its own, and the policies of the server's. YAML, of which JSON is a part:
/// a principal's kind of match is a YAML tag, which JSON has not.
fn state(site: &Site, mesh: &Mesh) -> String {
    let level = mesh.level;
    let policies = policies(site, mesh);
    let names: Vec<String> = policies
        .iter()
        .map(|policy| format!("{}/{}", policy.namespace, policy.name))
        .collect();
    let protocol = if level >= PolicyLevel::Mtls {
        "HBONE"
    } else {
        "TCP"
    };
    // JSON has no numbers for keys, and ztunnel takes no text for ports.
    let ports: Vec<String> = site
        .ports()
        .iter()
        .map(|p| format!("{0}: {0}", p.number))
        .collect();
    let ports = format!("{{{}}}", ports.join(", "));
    let gateway = json!({
        "destination": format!("/{}", site.waypoint.address),
        "hboneMtlsPort": PORT_HBONE,
    });
    let workload = |pod: &Pod, node: Node| {
        let is_server = node != Node::Client;
        let services = match site.virtual_address() {
            Some(_) if is_server => format!("{{\"default/{SERVICE_NAME}\": {ports}}}"),
            _ => "{}".to_owned(),
        };
        let mut fields = entry(pod, &node.name(), protocol);
        fields["authorizationPolicies"] = json!(if is_server { names.as_slice() } else { &[] });
        // A service that is called by an address of its own has the waypoint; otherwise its pods.
        if is_server && site.virtual_address().is_none() && mesh.waypoint.is_some() {
            fields["waypoint"] = gateway.clone();
        }
        let fields = fields.to_string();
        let fields = fields.trim_end_matches('}');
        format!("- {fields}, \"services\": {services}}}\n")
    };
    let mut yaml = format!("workloads:\n{}", workload(&site.client, Node::Client));
    for (number, server) in site.servers().enumerate() {
        yaml.push_str(&workload(server, Node::Server(site.node_of(number))));
    }
    if let Some(waypoint) = mesh.waypoint {
        yaml.push_str(&waypoint_workload(site, waypoint));
    }
    let known = services(site.options.knows);
    for service in &known {
        yaml.push_str(&known_workloads(service, protocol, &ports));
    }
    yaml.push_str(if policies.is_empty() {
        "policies: []\n"
    } else {
        "policies:\n"
    });
    for policy in &policies {
        yaml.push_str(&format!(
            "- {{name: {}, namespace: {}, scope: WorkloadSelector, action: {}, dryRun: false, \
             rules: [[[{{{}}}]]]}}\n",
            policy.name, policy.namespace, policy.action, policy.rule
        ));
    }
    let own = site.virtual_address().map(|address| {
        let waypoint = match mesh.waypoint {
            Some(_) => format!(", waypoint: {gateway}"),
            None => String::new(),
        };
        service_entry(
            "server",
            SERVICE_NAME,
            address,
            &format!("{ports}{waypoint}"),
        )
    });
    let known = known.iter();
    let known = known.map(|s| service_entry(&s.name, &s.dns_name(), s.address, &ports));
    let services: Vec<String> = own.into_iter().chain(known).collect();
    yaml.push_str(if services.is_empty() {
        "services: []\n"
    } else {
        "services:\n"
    });
    yaml.extend(services);
    yaml
}

/// `ports`: and whatever stands behind them.
fn service_entry(name: &str, hostname: &str, address: Ipv4Addr, ports: &str) -> String {
    format!(
        "- {{name: {name}, namespace: default, hostname: {hostname}, vips: [\"/{address}\"], \
         ports: {ports}}}\n"
    )
}

/// The endpoints of a service that is known, on a node that is no other's.
fn known_workloads(service: &KnownService, protocol: &str, ports: &str) -> String {
    let mut yaml = String::new();
    for (number, address) in service.endpoints.iter().enumerate() {
        let name = format!("{}-{}", service.name, number + 1);
        let pod = Pod {
            address: *address,
            service_account: service.name.clone(),
            directory: String::new(),
            name,
        };
        let mut fields = entry(&pod, "another-node", protocol).to_string();
        fields.truncate(fields.trim_end_matches('}').len());
        let host = service.dns_name();
        yaml.push_str(&format!(
            "- {fields}, \"services\": {{\"default/{host}\": {ports}}}}}\n"
        ));
    }
    yaml
}

fn waypoint_workload(site: &Site, waypoint: Waypoint) -> String {
    let mut fields = entry(&site.waypoint, &Node::Server(0).name(), "HBONE");
    fields["services"] = json!({});
    if let Waypoint::Sandwiched { port } = waypoint {
        fields["applicationTunnel"] = json!({"protocol": "PROXY", "port": port});
    }
    format!("- {fields}\n")
}

/// What every pod has in the local configuration.
fn entry(pod: &Pod, node: &str, protocol: &str) -> Value {
    json!({
        "uid": uid(pod),
        "name": pod.name,
        "namespace": "default",
        "trustDomain": TRUST_DOMAIN,
        "serviceAccount": pod.service_account,
        "workloadIps": [pod.address],
        "protocol": protocol,
        "node": node,
        "network": "",
        "clusterId": "Kubernetes",
    })
}
