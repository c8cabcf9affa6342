//! `ztunnel`: one real ztunnel for each node, with in-pod redirection, as Istio's ambient mode has it.
//!
//! Environment, local configuration and the rules of redirection are those of istio/ztunnel
//! (src/config.rs, src/xds.rs, ARCHITECTURE.md) and of Istio's CNI agent (cni/pkg/iptables). It takes
//! workloads and policies from a local file, its pod from the workload socket, and its certificates
//! from Istio's certificate service; meshtax plays all three.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;

use crate::blueprint::{Blueprint, every_pod, ingress};
use crate::contract::{Contract, DirectTls, HttpMetrics};
use crate::control::{ControlService, Workload};
use crate::emulation::{Content, PodBlueprint, PodFile, Process, Redirect, RedirectExemption};
use crate::mesh::ProxiedPod;
use crate::names::{PORT_INBOUND, PORT_OUTBOUND};
use crate::probe::{ClientIdentityFrom, Counter};
use crate::probe_targets::ProbeTargets;
use crate::scope::ProcessScope;
use crate::site::{Pod, PodNode, Site};
use crate::traffic::{Proxied, TrafficCounter, proxied};
use crate::ztunnel_state::{Mesh, PORT_HBONE, node_name, state, uid};
use meshtax_model::catalogue::Program;

const PORT_METRICS: u16 = 15020;
const PORT_CA: u16 = 15012;
const CA_NAME: &str = "istiod.istio-system.svc";
/// Istio's mark of ztunnel's own connections, and the bits that count.
const MARK: u32 = 0x539;
const EXEMPTION: RedirectExemption = RedirectExemption::Mark {
    value: MARK,
    mask: 0xfff,
};

pub(crate) fn blueprint(site: &Site, level: PolicyLevel, scope: ProcessScope) -> Blueprint {
    let mesh = Mesh::of(level);
    let metrics = ClientIdentityFrom::Metrics {
        scope,
        port: PORT_METRICS,
        series: "istio_tcp_connections_opened_total".into(),
        // A node's ztunnel counts those to all of its services.
        with: vec![
            "reporter=\"destination\"".into(),
            format!(
                "destination_principal=\"{}\"",
                site.spiffe_id(site.entry_point().service_account())
            ),
        ],
        label: "source_principal".into(),
    };
    let targets = ProbeTargets {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        gateway_proxy_port: Some(PORT_OUTBOUND),
        wire_ports: vec![PORT_HBONE],
        identity: Site::spiffe_id,
        client_identity: metrics,
        server_service_account: site.entry_point().service_account().to_owned(),
    };
    Blueprint {
        contract: Contract {
            holders: targets.holders(site),
            probes: targets.probes(site, level),
            direct_tls: DirectTls {
                alpn: vec!["h2".into()],
                port: Some(PORT_HBONE),
                server_name: None,
                hbone: true,
                at_waypoint: false,
            },
            http_metrics: Some(HttpMetrics {
                role: ComponentRole::ServerProxy,
                scope,
                port: PORT_METRICS,
                path: "/metrics".into(),
                series: "istio_requests_total".into(),
            }),
            proxy_port: Some(PORT_HBONE),
            caller_port: Some(PORT_OUTBOUND),
            traffic: traffic(site, scope),
            ingress: ingress(site),
            ..Contract::default()
        },
        emulation: every_pod(site, |proxied| match scope {
            ProcessScope::Node => on_node(site, proxied, &mesh),
            ProcessScope::Pod => dedicated(site, proxied, &mesh),
        }),
    }
}

/// What the ztunnels count of each workload's connections.
pub(crate) fn traffic(site: &Site, scope: ProcessScope) -> Vec<TrafficCounter> {
    let of = |(role, workload, account): Proxied<'_>| {
        let end = match role {
            ComponentRole::ServerProxy => "destination",
            _ => "source",
        };
        TrafficCounter {
            role,
            workload: workload.to_owned(),
            unit: TrafficUnit::Bytes,
            scope,
            counter: Counter {
                port: PORT_METRICS,
                path: "/metrics".into(),
                series: "istio_tcp_sent_bytes_total{".into(),
            },
            with: vec![
                format!("reporter=\"{end}\""),
                format!("{end}_principal=\"{}\"", site.spiffe_id(account)),
            ],
        }
    };
    let mut all = proxied(site);
    if scope == ProcessScope::Node {
        // One proxy serves all clients, and counts them by their identity.
        all.dedup_by_key(|(role, _, account)| (*role, *account));
    }
    all.into_iter().map(of).collect()
}

/// The pods of a node that its ztunnel serves.
fn pods_on<'a>(node: PodNode, site: &'a Site, mesh: &Mesh) -> Vec<&'a Pod> {
    let outside = site.proxied_clients().chain(site.proxied_gateway());
    let outside = outside.map(|proxied| proxied.pod);
    let waypoint = mesh.is_sandwiched().then_some(&site.waypoint);
    let all = outside.chain(site.service_pods()).chain(waypoint);
    all.filter(|pod| pod.node == node).collect()
}

/// A pod whose traffic is redirected to its node's ztunnel.
pub(crate) fn captured(pod: &Pod) -> PodBlueprint {
    PodBlueprint {
        pod: pod.name.clone(),
        redirect: Redirect {
            outbound_to: Some(PORT_OUTBOUND),
            inbound_to: Some(PORT_INBOUND),
            exemption: EXEMPTION,
            inbound_except: Some(PORT_HBONE),
            keeps_source: true,
        },
        ..PodBlueprint::default()
    }
}

/// A pod of the mesh. The node's shared processes are part of the first of its pods.
pub(crate) fn on_node(site: &Site, proxied: &ProxiedPod<'_>, mesh: &Mesh) -> PodBlueprint {
    let first = pods_on(proxied.pod.node, site, mesh).into_iter().next();
    let blueprint = match first == Some(proxied.pod) {
        true => node(site, proxied.pod, mesh),
        false => captured(proxied.pod),
    };
    left_open(site, proxied, blueprint)
}

/// Clients outside the mesh come to the gateway as they are: Istio has the annotation
/// `ambient.istio.io/bypass-inbound-capture` for pods whose clients are not of the mesh.
fn left_open(site: &Site, proxied: &ProxiedPod<'_>, mut blueprint: PodBlueprint) -> PodBlueprint {
    let gateway = site.gateway.as_ref();
    if gateway.is_some_and(|gateway| gateway.pod == *proxied.pod) {
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
    let mut blueprint = ztunnel(site, pod, role, mesh, ProcessScope::Node);
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

/// A pod with a dedicated ztunnel.
fn dedicated(site: &Site, proxied: &ProxiedPod<'_>, mesh: &Mesh) -> PodBlueprint {
    let pod = proxied.pod;
    let role = match proxied.callers {
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
    with_environment(ztunnel(site, pod, role, mesh, ProcessScope::Pod), mode)
}

/// What both forms have in common: a ztunnel, its files, its certificates' source.
fn ztunnel(
    site: &Site,
    pod: &Pod,
    role: ComponentRole,
    mesh: &Mesh,
    scope: ProcessScope,
) -> PodBlueprint {
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
            scope,
            port: PORT_CA,
            dns_name: CA_NAME.into(),
        }],
        processes: vec![Process {
            role,
            program: Program::Ztunnel,
            arguments: vec!["proxy".into(), "ztunnel".into()],
            environment: environment(site, pod),
            scope,
        }],
        ..captured(pod)
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
        // ztunnel logs every connection by default: access logs are disabled for all data planes.
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
        (
            "ZTUNNEL_WORKER_THREADS",
            site.workers_of(Program::Ztunnel).to_string(),
        ),
    ]
    .into_iter()
    .chain(
        site.environment_switches()
            .map(|(key, value)| (key, value.to_owned())),
    )
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
