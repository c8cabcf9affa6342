//! `linkerd`: two real linkerd2-proxies as sidecars.
//!
//! Environment and ports are those of linkerd/linkerd2-proxy (linkerd/app/src/env.rs) and of Linkerd's
//! proxy injector. Its identity, destination and policy services are played by meshtax.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;

use crate::{
    AppPort, Blueprint, Callee, ClientIdentityFrom, Content, ControlService, DataPlane, DirectTls,
    HttpMetrics, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
    Looks, Meshed, Own, Place, Pod, PodBlueprint, PodFile, Process, Program, Redirect, Site,
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
    graphs: true,
    gateway: true,
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
        gateway_proxy_port: Some(PORT_OUT),
        wire_ports: vec![PORT_IN],
        identity,
        client_identity: ClientIdentityFrom::Header("l5d-client-id".into()),
        server_service_account: site.server.service_account.clone(),
    };
    Blueprint {
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
        ..Blueprint::meshed(site, |end| sidecar(site, end, level))
    }
}

/// A service as one of its callers is told of it.
fn service(callee: &Callee<'_>, level: PolicyLevel) -> LinkerdService {
    let endpoint = |pod: &&Pod| LinkerdEndpoint {
        address: pod.address,
        ports: callee.ports.iter().map(linkerd_port).collect(),
        identity: (level >= PolicyLevel::Mtls).then(|| identity(&pod.service_account)),
        inbound_port: PORT_IN,
    };
    LinkerdService {
        name: callee.name.clone(),
        address: callee.virtual_address(),
        endpoints: callee.pods.iter().map(endpoint).collect(),
    }
}

/// Who may call the ports of a pod.
fn inbound(
    site: &Site,
    end: &Meshed<'_>,
    level: PolicyLevel,
) -> Vec<(LinkerdPort, LinkerdInbound)> {
    let Some(callers) = &end.callers else {
        return Vec::new();
    };
    let ports = end.ports.iter();
    let ports = ports.map(|port| (linkerd_port(port), allowed(site, callers, port, level)));
    ports.chain([(ADMIN, LinkerdInbound::Anyone)]).collect()
}

fn linkerd_port(port: &AppPort) -> LinkerdPort {
    LinkerdPort {
        number: port.number,
        opaque: port.speaks == Speaks::Tcp,
    }
}

fn allowed(site: &Site, callers: &[&str], port: &AppPort, level: PolicyLevel) -> LinkerdInbound {
    let identities = callers.iter().map(|caller| identity(caller)).collect();
    match level {
        PolicyLevel::Plaintext => LinkerdInbound::Anyone,
        PolicyLevel::Mtls => LinkerdInbound::AllAuthenticated,
        PolicyLevel::L7 if port.speaks != Speaks::Tcp => LinkerdInbound::Routes {
            identities,
            rules: site.http_rules(),
        },
        PolicyLevel::L4 | PolicyLevel::L7 => LinkerdInbound::Clients { identities },
    }
}

/// One proxy for who calls the pod, and for what it calls.
fn sidecar(site: &Site, end: &Meshed<'_>, level: PolicyLevel) -> PodBlueprint {
    let name = identity(&end.pod.service_account);
    let file = |file: &str, content| PodFile {
        name: file.into(),
        content,
    };
    let role = match end.callers {
        None => ComponentRole::ClientProxy,
        Some(_) => ComponentRole::ServerProxy,
    };
    PodBlueprint {
        files: vec![
            file("key.p8", Content::PrivateKeyDer(name.clone())),
            file("csr.der", Content::SigningRequest(name)),
            file("token", Content::Text("meshtax".into())),
        ],
        redirect: Redirect {
            outbound_to: (!end.callees.is_empty()).then_some(PORT_OUT),
            inbound_to: end.callers.is_some().then_some(PORT_IN),
            own: Own::ToPort(PORT_IN),
            ..Redirect::default()
        },
        control: vec![ControlService::Linkerd {
            port: PORT_SERVICES,
            answers: LinkerdServices {
                callees: end.callees.iter().map(|c| service(c, level)).collect(),
                inbound: inbound(site, end, level),
            },
        }],
        processes: vec![Process {
            role,
            program: Program::LinkerdProxy,
            arguments: Vec::new(),
            environment: environment(site, end),
            place: Place::Pod,
        }],
    }
}

fn environment(site: &Site, end: &Meshed<'_>) -> BTreeMap<String, Content> {
    let pod = end.pod;
    let services = format!("127.0.0.1:{PORT_SERVICES}");
    let listen = |port: u16| format!("0.0.0.0:{port}");
    let ports = end.ports.iter().map(|p| p.number).chain([PORT_ADMIN]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{gateway_site, graph_site};

    /// What the control plane says to the proxy of a pod.
    fn told(pod: &PodBlueprint) -> &LinkerdServices {
        let linkerd = pod.control.iter().find_map(|service| match service {
            ControlService::Linkerd { answers, .. } => Some(answers),
            _ => None,
        });
        linkerd.expect("a control plane")
    }

    fn names(services: &LinkerdServices) -> Vec<&str> {
        let callees = services.callees.iter();
        callees
            .map(|c| c.name.split('.').next().unwrap_or_default())
            .collect()
    }

    #[test]
    fn a_proxy_is_told_whom_its_pod_calls_and_who_calls_it() {
        let mut site = graph_site();
        site.gateway = gateway_site(false).gateway;
        let blueprint = blueprint(&site, PolicyLevel::L4);
        let gateway = blueprint.gateway.as_ref().expect("a gateway");
        let [reviews, ratings] = [&blueprint.behind[0][1], &blueprint.behind[1][0]];
        for (pod, callees, callers) in [
            (&blueprint.client, ["server"].as_slice(), None),
            (gateway, &["server"], None),
            (
                &blueprint.server,
                &["reviews", "ratings"],
                Some(["client", "ingress-gateway"].as_slice()),
            ),
            (reviews, &["ratings"], Some(&["server"])),
            (ratings, &[], Some(&["server", "reviews"])),
        ] {
            let told = told(pod);
            assert_eq!(names(told), callees);
            let allowed = told.inbound.first().map(|(_, allowed)| allowed);
            let expected = callers.map(|callers| LinkerdInbound::Clients {
                identities: callers.iter().map(|caller| identity(caller)).collect(),
            });
            assert_eq!(allowed, expected.as_ref());
            let redirect = &pod.redirect;
            assert_eq!(redirect.inbound_to.is_some(), callers.is_some());
            assert_eq!(redirect.outbound_to.is_some(), !callees.is_empty());
        }
        let of_server = told(&blueprint.server);
        let endpoints = of_server.callees.iter().map(|c| c.endpoints.len());
        assert_eq!(endpoints.collect::<Vec<_>>(), [2, 1]);
        let addresses = of_server.callees.iter().map(|c| c.address.is_some());
        assert_eq!(addresses.collect::<Vec<_>>(), [true, false]);
    }
}
