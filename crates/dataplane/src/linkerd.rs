//! `linkerd`: two real linkerd2-proxies as sidecars.
//!
//! Environment and ports are those of linkerd/linkerd2-proxy (linkerd/app/src/env.rs) and of Linkerd's
//! proxy injector. Its identity, destination and policy services are played by meshtax.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;

use crate::{
    AppPort, Blueprint, ClientIdentityFrom, Content, ControlService, DataPlane, DirectTls,
    HttpMetrics, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
    Looks, Own, Place, Pod, PodBlueprint, PodFile, Process, Program, Redirect, SERVICE_NAME, Site,
    Speaks,
};

pub(crate) const DATA_PLANE: DataPlane = DataPlane {
    name: "linkerd",
    levels: &[PolicyLevel::Mtls, PolicyLevel::L4, PolicyLevel::L7],
    summary: "two real linkerd2-proxies as sidecars, over their default transport; stands for Linkerd",
    needs: &[Program::LinkerdProxy],
    note: Some(
        "HTTP/1.1 is carried as HTTP/2 over one connection between the proxies; it parses HTTP at \
         every level, and balances requests; its key exchange is its own choice",
    ),
    options: &[],
    waypoint: false,
    graphs: false,
    gateway: false,
    build: blueprint,
};

const PORT_OUT: u16 = 4140;
const PORT_IN: u16 = 4143;
const PORT_ADMIN: u16 = 4191;
/// Whoever scrapes metrics may.
const ADMIN: LinkerdPort = LinkerdPort {
    number: PORT_ADMIN,
    opaque: false,
};
/// Linkerd's tap port; nothing listens, but the proxy wants it named.
const PORT_CONTROL: u16 = 4190;
/// Where meshtax plays the control plane.
const PORT_SERVICES: u16 = 8086;

/// A workload's identity, as Linkerd forms it.
fn identity(service_account: &str) -> String {
    format!("{service_account}.default.serviceaccount.identity.linkerd.cluster.local")
}

fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    let looks = Looks {
        client_port: PORT_OUT,
        server_port: PORT_IN,
        gateway_proxy_port: None,
        wire_ports: vec![PORT_IN],
        identity,
        client_identity: ClientIdentityFrom::Header("l5d-client-id".into()),
        server_service_account: site.server.service_account.clone(),
    };
    let meshed = level >= PolicyLevel::Mtls;
    let endpoint = |server: &Pod| LinkerdEndpoint {
        address: server.address,
        ports: site.ports().iter().map(linkerd_port).collect(),
        identity: meshed.then(|| identity(&server.service_account)),
        inbound_port: PORT_IN,
    };
    let client = LinkerdServices {
        endpoints: site.servers().map(endpoint).collect(),
        service: site.virtual_address().map(|address| LinkerdService {
            name: SERVICE_NAME.into(),
            address,
        }),
        inbound: Vec::new(),
    };
    let server = |pod: &Pod| {
        let answers = LinkerdServices {
            endpoints: Vec::new(),
            service: None,
            inbound: site
                .ports()
                .iter()
                .map(|port| (linkerd_port(port), inbound(site, port, level)))
                .chain([(ADMIN, LinkerdInbound::Anyone)])
                .collect(),
        };
        sidecar(site, pod, ComponentRole::ServerProxy, answers)
    };
    Blueprint {
        client: sidecar(site, &site.client, ComponentRole::ClientProxy, client),
        server: server(&site.server),
        more_servers: site.more_servers.iter().map(server).collect(),
        behind: Vec::new(),
        waypoint: None,
        gateway: None,
        entered_at: None,
        probes: looks.probes(site, level),
        direct_tls: DirectTls {
            server_name: Some(identity(&site.server.service_account)),
            ..DirectTls::default()
        },
        http_metrics: Some(HttpMetrics {
            role: ComponentRole::ServerProxy,
            place: Place::Pod,
            port: PORT_ADMIN,
            path: "/metrics".into(),
            series: "response_total".into(),
        }),
        proxy_port: Some(PORT_IN),
    }
}

fn linkerd_port(port: &AppPort) -> LinkerdPort {
    LinkerdPort {
        number: port.number,
        opaque: port.speaks == Speaks::Tcp,
    }
}

fn inbound(site: &Site, port: &AppPort, level: PolicyLevel) -> LinkerdInbound {
    let client = identity(&site.client.service_account);
    match level {
        PolicyLevel::Plaintext => LinkerdInbound::Anyone,
        PolicyLevel::Mtls => LinkerdInbound::AllAuthenticated,
        PolicyLevel::L7 if port.speaks != Speaks::Tcp => LinkerdInbound::Routes {
            identity: client,
            rules: site.http_rules(),
        },
        PolicyLevel::L4 | PolicyLevel::L7 => LinkerdInbound::Client { identity: client },
    }
}

fn sidecar(site: &Site, pod: &Pod, role: ComponentRole, answers: LinkerdServices) -> PodBlueprint {
    let name = identity(&pod.service_account);
    let file = |file: &str, content| PodFile {
        name: file.into(),
        content,
    };
    let is_client = role == ComponentRole::ClientProxy;
    PodBlueprint {
        files: vec![
            file("key.p8", Content::PrivateKeyDer(name.clone())),
            file("csr.der", Content::SigningRequest(name)),
            file("token", Content::Text("meshtax".into())),
        ],
        redirect: Redirect {
            outbound_to: is_client.then_some(PORT_OUT),
            inbound_to: (!is_client).then_some(PORT_IN),
            own: Own::ToPort(PORT_IN),
            ..Redirect::default()
        },
        control: vec![ControlService::Linkerd {
            port: PORT_SERVICES,
            answers,
        }],
        processes: vec![Process {
            role,
            program: Program::LinkerdProxy,
            arguments: Vec::new(),
            environment: environment(site, pod),
            place: Place::Pod,
        }],
    }
}

fn environment(site: &Site, pod: &Pod) -> BTreeMap<String, Content> {
    let services = format!("127.0.0.1:{PORT_SERVICES}");
    let listen = |port: u16| format!("0.0.0.0:{port}");
    let ports = site.ports();
    let ports = ports.iter().map(|p| p.number).chain([PORT_ADMIN]);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    [
        ("LOG", "warn,linkerd=warn".to_owned()),
        ("DESTINATION_SVC_ADDR", services.clone()),
        ("POLICY_SVC_ADDR", services.clone()),
        ("IDENTITY_SVC_ADDR", services),
        (
            "POLICY_WORKLOAD",
            format!("{{\"ns\":\"default\",\"pod\":\"{}\"}}", pod.name),
        ),
        ("DESTINATION_CONTEXT", "{\"ns\":\"default\"}".to_owned()),
        ("DESTINATION_PROFILE_NETWORKS", "10.0.0.0/8".to_owned()),
        ("DESTINATION_PROFILE_SUFFIXES", ".".to_owned()),
        ("POLICY_CLUSTER_NETWORKS", "10.0.0.0/8".to_owned()),
        ("IDENTITY_DIR", pod.directory.clone()),
        ("IDENTITY_TOKEN_FILE", pod.path("token")),
        ("IDENTITY_LOCAL_NAME", identity(&pod.service_account)),
        ("INBOUND_PORTS", ports.join(",")),
        ("INBOUND_IPS", pod.address.to_string()),
        ("INBOUND_DEFAULT_POLICY", "deny".to_owned()),
        ("OUTBOUND_LISTEN_ADDR", format!("127.0.0.1:{PORT_OUT}")),
        ("INBOUND_LISTEN_ADDR", listen(PORT_IN)),
        ("ADMIN_LISTEN_ADDR", listen(PORT_ADMIN)),
        ("CONTROL_LISTEN_ADDR", listen(PORT_CONTROL)),
        ("CORES", site.workers.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key, Content::Text(value)))
    // As text, not as a file.
    .chain([("IDENTITY_TRUST_ANCHORS", Content::TrustAnchor)])
    .map(|(key, value)| (format!("LINKERD2_PROXY_{key}"), value))
    .collect()
}
