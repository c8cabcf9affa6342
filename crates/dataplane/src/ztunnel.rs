//! `ztunnel`: one real ztunnel for each node, with in-pod redirection, as Istio's ambient mode has it.
//!
//! Environment, local configuration and the rules of redirection are those of istio/ztunnel
//! (src/config.rs, src/xds.rs, ARCHITECTURE.md) and of Istio's CNI agent (cni/pkg/iptables). It takes
//! workloads and policies from a local file, its pod from the workload socket, and its certificates
//! from Istio's certificate service; meshtax plays all three.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::{
    Blueprint, ClientIdentityFrom, Content, ControlService, DataPlane, DirectTls, Looks, Own,
    PORT_INBOUND, PORT_OUTBOUND, Place, Pod, PodBlueprint, PodFile, Process, Program, Redirect,
    Site, TRUST_DOMAIN, Workload, spiffe_id,
};

pub(crate) const DATA_PLANE: DataPlane = DataPlane {
    name: "ztunnel",
    levels: &[PolicyLevel::Mtls, PolicyLevel::L4],
    summary: "the real ztunnel, one per node, in-pod redirection, HBONE; stands for Istio ambient at L4",
    needs: Some(Program::Ztunnel),
    note: Some(
        "connections between nodes share one HTTP/2 tunnel, encrypted with AES-256-GCM; it does not \
         parse HTTP, and balances connections, not requests",
    ),
    build: blueprint,
};

/// Where a meshed pod takes HBONE.
const PORT_HBONE: u16 = 15008;
const PORT_METRICS: u16 = 15020;
const PORT_CA: u16 = 15012;
const CA_NAME: &str = "istiod.istio-system.svc";
/// Istio's mark of ztunnel's own connections, and the bits that count.
const OWN_MARK: Own = Own::Mark {
    value: 0x539,
    mask: 0xfff,
};
const STRICT: &str = "istio_converted_static_strict";

fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    let metrics = ClientIdentityFrom::Metrics {
        port: PORT_METRICS,
        series: "istio_tcp_connections_opened_total".into(),
        with: "reporter=\"destination\"".into(),
        label: "source_principal".into(),
    };
    let looks = Looks {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        wire_port: PORT_HBONE,
        identity: spiffe_id,
        client_identity: metrics,
    };
    Blueprint {
        client: node(site, &site.client, ComponentRole::ClientProxy, level),
        server: node(site, &site.server, ComponentRole::ServerProxy, level),
        probes: looks.probes(site, level),
        direct_tls: DirectTls {
            alpn: vec!["h2".into()],
            port: Some(PORT_HBONE),
            server_name: None,
            hbone: true,
        },
        proxy_port: Some(PORT_HBONE),
    }
}

fn node(site: &Site, pod: &Pod, role: ComponentRole, level: PolicyLevel) -> PodBlueprint {
    let socket = pod.path("ztunnel.sock");
    let file = |name: &str, content| PodFile {
        name: name.into(),
        content,
    };
    PodBlueprint {
        files: vec![
            file("ztunnel.yaml", Content::Text(state(site, level))),
            file("root.pem", Content::TrustAnchor),
            file("token", Content::Text("meshtax".into())),
        ],
        redirect: Redirect {
            outbound_to: Some(PORT_OUTBOUND),
            inbound_to: Some(PORT_INBOUND),
            own: OWN_MARK,
            inbound_except: Some(PORT_HBONE),
            keeps_source: true,
        },
        control: vec![
            ControlService::IstioCa {
                place: Place::Node,
                port: PORT_CA,
                dns_name: CA_NAME.into(),
            },
            ControlService::WorkloadSocket {
                path: socket.clone(),
                workload: workload(pod),
            },
        ],
        processes: vec![Process {
            role,
            program: Program::Ztunnel,
            arguments: vec!["proxy".into(), "ztunnel".into()],
            environment: environment(site, pod, &socket),
            place: Place::Node,
        }],
    }
}

fn environment(site: &Site, pod: &Pod, socket: &str) -> BTreeMap<String, Content> {
    [
        // ztunnel logs every connection by default: access logs are off for all alike.
        ("RUST_LOG", "warn".to_owned()),
        ("XDS_ADDRESS", String::new()),
        ("LOCAL_XDS_PATH", pod.path("ztunnel.yaml")),
        ("CLUSTER_ID", "Kubernetes".to_owned()),
        ("NODE_NAME", node_name(pod)),
        ("PROXY_MODE", "shared".to_owned()),
        ("INPOD_UDS", socket.to_owned()),
        ("CA_ADDRESS", format!("https://127.0.0.1:{PORT_CA}")),
        ("ALT_CA_HOSTNAME", CA_NAME.to_owned()),
        ("CA_ROOT_CA", pod.path("root.pem")),
        ("AUTH_TOKEN", pod.path("token")),
        ("IPV6_ENABLED", "false".to_owned()),
        ("ISTIO_META_DNS_CAPTURE", "false".to_owned()),
        ("ZTUNNEL_WORKER_THREADS", site.workers.to_string()),
        ("POD_NAME", String::new()),
        ("POD_NAMESPACE", String::new()),
        ("SERVICE_ACCOUNT", String::new()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), Content::Text(value)))
    .collect()
}

fn node_name(pod: &Pod) -> String {
    format!("node-of-{}", pod.service_account)
}

fn workload(pod: &Pod) -> Workload {
    Workload {
        uid: uid(pod),
        name: pod.service_account.clone(),
        namespace: "default".into(),
        service_account: pod.service_account.clone(),
    }
}

fn uid(pod: &Pod) -> String {
    format!("Kubernetes//Pod/default/{}", pod.service_account)
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
fn policies(site: &Site, level: PolicyLevel) -> Vec<Policy> {
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
        let client = site.client.identity();
        let principal = client.trim_start_matches("spiffe://");
        policies.push(Policy {
            namespace: "default",
            name: "allow-client",
            action: "Allow",
            rule: format!("principals: [!Exact \"{principal}\"]"),
        });
    }
    policies
}

/// Its local configuration: both pods, and the policies of the server's. YAML, of which JSON is a part:
/// a principal's kind of match is a YAML tag, which JSON has not.
fn state(site: &Site, level: PolicyLevel) -> String {
    let policies = policies(site, level);
    let names: Vec<String> = policies
        .iter()
        .map(|policy| format!("{}/{}", policy.namespace, policy.name))
        .collect();
    let protocol = if level >= PolicyLevel::Mtls {
        "HBONE"
    } else {
        "TCP"
    };
    let pod = |pod: &Pod, policies: &[String]| -> Value {
        json!({
            "uid": uid(pod),
            "name": pod.service_account,
            "namespace": "default",
            "trustDomain": TRUST_DOMAIN,
            "serviceAccount": pod.service_account,
            "workloadIps": [pod.address],
            "protocol": protocol,
            "node": node_name(pod),
            "network": "",
            "clusterId": "Kubernetes",
            "authorizationPolicies": policies,
            "services": {},
        })
    };
    let mut yaml = format!(
        "workloads:\n- {}\n- {}\n",
        pod(&site.client, &[]),
        pod(&site.server, &names)
    );
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
    yaml.push_str("services: []\n");
    yaml
}
