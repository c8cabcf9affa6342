//! `ztunnel`: one real ztunnel for each node, with in-pod redirection, as Istio's ambient mode has it.
//!
//! Environment, local configuration and the rules of redirection are those of istio/ztunnel
//! (src/config.rs, src/xds.rs, ARCHITECTURE.md) and of Istio's CNI agent (cni/pkg/iptables). It takes
//! workloads and policies from a local file, its pod from the workload socket, and its certificates
//! from Istio's certificate service; meshtax plays all three.

use std::collections::BTreeMap;

use meshtax_model::experiment::{OptionKind, PolicyLevel};
use meshtax_model::trial::ComponentRole;

use crate::ztunnel_state::state;
use crate::{
    Blueprint, ClientIdentityFrom, Content, ControlService, DataPlane, DirectTls, HttpMetrics,
    Looks, Meshed, Own, PORT_INBOUND, PORT_OUTBOUND, Place, Pod, PodBlueprint, PodFile, PodNode,
    Process, Program, Redirect, Site, Workload, spiffe_id,
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
    graphs: true,
    gateway: true,
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
    graphs: true,
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

fn blueprint(site: &Site, level: PolicyLevel, place: Place) -> Blueprint {
    let mesh = Mesh::of(level);
    let metrics = ClientIdentityFrom::Metrics {
        place,
        port: PORT_METRICS,
        series: "istio_tcp_connections_opened_total".into(),
        // A node's ztunnel counts those to all of its services.
        with: vec![
            "reporter=\"destination\"".into(),
            format!("destination_principal=\"{}\"", site.server.identity()),
        ],
        label: "source_principal".into(),
    };
    let looks = Looks {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        gateway_proxy_port: Some(PORT_OUTBOUND),
        wire_ports: vec![PORT_HBONE],
        identity: spiffe_id,
        client_identity: metrics,
        server_service_account: site.server.service_account.clone(),
    };
    Blueprint {
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
        ..Blueprint::meshed(site, |end| match place {
            Place::Node => on_node(site, end, &mesh),
            Place::Pod => dedicated(site, end, &mesh),
        })
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

    /// How pods of the mesh are reached.
    pub(crate) fn protocol(&self) -> &'static str {
        match self.level >= PolicyLevel::Mtls {
            true => "HBONE",
            false => "TCP",
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

/// Its name in the mesh.
pub(crate) fn node_name(node: PodNode) -> String {
    match node {
        PodNode::Client => "node-of-client".to_owned(),
        PodNode::Server(0) => "node-of-server".to_owned(),
        PodNode::Server(number) => format!("node-of-server-{}", number + 1),
    }
}

/// The pods of a node that its ztunnel serves.
fn pods_on<'a>(node: PodNode, site: &'a Site, mesh: &Mesh) -> Vec<&'a Pod> {
    let outside = [site.client_end(), site.gateway_end()]
        .into_iter()
        .flatten();
    let services = site.services().into_iter();
    let waypoint = mesh.is_sandwiched().then_some(&site.waypoint);
    let all = outside.map(|end| end.pod);
    let all = all.chain(services.flat_map(|called| called.service.pods));
    all.chain(waypoint).filter(|pod| pod.node == node).collect()
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

/// A pod of the mesh. What serves a node stands with the first of its pods.
pub(crate) fn on_node(site: &Site, end: &Meshed<'_>, mesh: &Mesh) -> PodBlueprint {
    let first = pods_on(end.pod.node, site, mesh).into_iter().next();
    let blueprint = match first == Some(end.pod) {
        true => node(site, end.pod, mesh),
        false => captured(),
    };
    left_open(site, end, blueprint)
}

/// Clients outside the mesh come to the gateway as they are: Istio has the annotation
/// `ambient.istio.io/bypass-inbound-capture` for pods whose clients are not of the mesh.
fn left_open(site: &Site, end: &Meshed<'_>, mut blueprint: PodBlueprint) -> PodBlueprint {
    let gateway = site.gateway.as_ref();
    if gateway.is_some_and(|gateway| gateway.pod == *end.pod) {
        blueprint.redirect.inbound_to = None;
        blueprint.redirect.inbound_except = None;
    }
    blueprint
}

/// The first pod of a node, and what serves the node.
fn node(site: &Site, pod: &Pod, mesh: &Mesh) -> PodBlueprint {
    let socket = pod.path("ztunnel.sock");
    let role = match pod.node {
        PodNode::Client => ComponentRole::ClientProxy,
        PodNode::Server(_) => ComponentRole::ServerProxy,
    };
    let mut blueprint = ztunnel(site, pod, role, mesh, Place::Node);
    let pods = pods_on(pod.node, site, mesh);
    blueprint.control.push(ControlService::WorkloadSocket {
        path: socket.clone(),
        workloads: pods.into_iter().map(workload).collect(),
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
fn dedicated(site: &Site, end: &Meshed<'_>, mesh: &Mesh) -> PodBlueprint {
    let pod = end.pod;
    let role = match end.callers {
        None => ComponentRole::ClientProxy,
        Some(_) => ComponentRole::ServerProxy,
    };
    let identity = format!("default/{}/{}", pod.name, pod.service_account);
    let mode = [
        ("PROXY_MODE", "dedicated".to_owned()),
        ("PROXY_WORKLOAD_INFO", identity),
        ("PACKET_MARK", MARK.to_string()),
        ("ENABLE_ORIG_SRC", "true".to_owned()),
    ];
    with_environment(ztunnel(site, pod, role, mesh, Place::Pod), mode)
}

/// What both forms have in common: a ztunnel, its files, its certificates' source.
fn ztunnel(site: &Site, pod: &Pod, role: ComponentRole, mesh: &Mesh, place: Place) -> PodBlueprint {
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
            environment: environment(site, pod),
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

fn environment(site: &Site, pod: &Pod) -> BTreeMap<String, Content> {
    [
        // ztunnel logs every connection by default: access logs are off for all alike.
        ("RUST_LOG", "warn".to_owned()),
        ("XDS_ADDRESS", String::new()),
        ("LOCAL_XDS_PATH", pod.path("ztunnel.yaml")),
        ("CLUSTER_ID", "Kubernetes".to_owned()),
        ("NODE_NAME", node_name(pod.node)),
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
        uid: uid(&pod.name),
        name: pod.name.clone(),
        namespace: "default".into(),
        service_account: pod.service_account.clone(),
    }
}

/// Of the pod of this name.
pub(crate) fn uid(name: &str) -> String {
    format!("Kubernetes//Pod/default/{name}")
}
