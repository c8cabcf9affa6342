//! `linkerd`: two real linkerd2-proxies as sidecars.
//!
//! Environment and ports are those of linkerd/linkerd2-proxy (linkerd/app/src/env.rs) and of Linkerd's
//! proxy injector. meshtax serves its identity, destination and policy APIs.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;

use crate::blueprint::{Blueprint, every_pod, ingress};
use crate::contract::{Contract, DirectTls, HttpMetrics};
use crate::control::{
    ControlService, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
};
use crate::emulation::{Content, PodBlueprint, PodFile, Process, Redirect, RedirectExemption};
use crate::mesh::ProxiedPod;
use crate::names::EMULATED_NAMESPACE;
use crate::probe::{ClientIdentityFrom, Counter};
use crate::probe_targets::ProbeTargets;
use crate::scope::ProcessScope;
use crate::site::{AppPort, AppProtocol, Pod, Site, SiteService};
use crate::traffic::{Proxied, TrafficCounter, proxied};
use meshtax_model::catalogue::Program;

const PORT_OUT: u16 = 4140;
const PORT_IN: u16 = 4143;
const PORT_ADMIN: u16 = 4191;
/// Metrics may be scraped without authorization.
const ADMIN: LinkerdPort = LinkerdPort {
    number: PORT_ADMIN,
    opaque: false,
};
/// Linkerd's tap port; nothing listens on it, but the proxy requires the setting.
const PORT_CONTROL: u16 = 4190;
/// The port at which meshtax serves the control plane.
const PORT_SERVICES: u16 = 8086;

/// A workload's identity in Linkerd's form, in the emulated namespace.
fn identity(service_account: &str) -> String {
    identity_in(EMULATED_NAMESPACE, service_account)
}

/// A workload's identity in Linkerd's form.
fn identity_in(namespace: &str, service_account: &str) -> String {
    format!("{service_account}.{namespace}.serviceaccount.identity.linkerd.cluster.local")
}

pub(crate) fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    let targets = ProbeTargets {
        client_port: PORT_OUT,
        server_port: PORT_IN,
        gateway_proxy_port: Some(PORT_OUT),
        wire_ports: vec![PORT_IN],
        identity: |site, account| identity_in(&site.namespace, account),
        client_identity: ClientIdentityFrom::Header("l5d-client-id".into()),
        server_service_account: site.entry_point().service_account().to_owned(),
    };
    Blueprint {
        contract: Contract {
            holders: targets.holders(site),
            probes: targets.probes(site, level),
            direct_tls: DirectTls {
                server_name: Some(identity_in(
                    &site.namespace,
                    site.entry_point().service_account(),
                )),
                ..DirectTls::default()
            },
            http_metrics: Some(HttpMetrics {
                role: ComponentRole::ServerProxy,
                scope: ProcessScope::Pod,
                port: PORT_ADMIN,
                path: "/metrics".into(),
                series: "response_total".into(),
            }),
            proxy_port: Some(PORT_IN),
            caller_port: Some(PORT_OUT),
            traffic: traffic(site),
            ingress: ingress(site),
            ..Contract::default()
        },
        emulation: every_pod(site, |proxied| sidecar(site, proxied, level)),
    }
}

/// What the proxies count.
fn traffic(site: &Site) -> Vec<TrafficCounter> {
    let of = |(role, workload, _): Proxied<'_>| {
        let direction = match role {
            ComponentRole::ServerProxy => "inbound",
            _ => "outbound",
        };
        let counter = |unit, series: &str, more: &[&str]| {
            let direction = format!("direction=\"{direction}\"");
            let more = more.iter().map(|label| (*label).to_owned());
            TrafficCounter {
                role,
                workload: workload.to_owned(),
                unit,
                scope: ProcessScope::Pod,
                counter: Counter {
                    port: PORT_ADMIN,
                    path: "/metrics".into(),
                    series: format!("{series}{{"),
                },
                with: std::iter::once(direction).chain(more).collect(),
            }
        };
        let success = "classification=\"success\"";
        [
            counter(TrafficUnit::Responses, "response_total", &[success]),
            // To the side that the connection came from.
            counter(
                TrafficUnit::Bytes,
                "tcp_write_bytes_total",
                &["peer=\"src\""],
            ),
        ]
    };
    proxied(site).into_iter().flat_map(of).collect()
}

/// A service in the configuration of one of its callers.
fn service(callee: &SiteService, level: PolicyLevel) -> LinkerdService {
    let endpoint = |pod: &Pod| LinkerdEndpoint {
        address: pod.address,
        ports: callee.ports.iter().map(linkerd_port).collect(),
        identity: (level >= PolicyLevel::Mtls).then(|| identity(&pod.service_account)),
        inbound_port: PORT_IN,
    };
    LinkerdService {
        name: callee.dns_name(),
        address: callee.virtual_address(),
        endpoints: callee.pods.iter().map(endpoint).collect(),
    }
}

/// The clients that may call the ports of a pod.
fn inbound(
    site: &Site,
    proxied: &ProxiedPod<'_>,
    level: PolicyLevel,
) -> Vec<(LinkerdPort, LinkerdInbound)> {
    let callers = proxied.callers.as_deref().unwrap_or_default();
    let ports = proxied.ports.iter();
    let ports = ports.map(|port| (linkerd_port(port), allowed(site, callers, port, level)));
    ports.chain([(ADMIN, LinkerdInbound::Anyone)]).collect()
}

fn linkerd_port(port: &AppPort) -> LinkerdPort {
    LinkerdPort {
        number: port.number,
        opaque: port.protocol == AppProtocol::Tcp,
    }
}

fn allowed(site: &Site, callers: &[&str], port: &AppPort, level: PolicyLevel) -> LinkerdInbound {
    let identities = callers.iter().map(|caller| identity(caller)).collect();
    match level {
        PolicyLevel::Plaintext => LinkerdInbound::Anyone,
        PolicyLevel::Mtls => LinkerdInbound::AllAuthenticated,
        PolicyLevel::L7 if port.protocol != AppProtocol::Tcp => LinkerdInbound::Routes {
            identities,
            rules: site.http_rules(),
        },
        PolicyLevel::L4 | PolicyLevel::L7 => LinkerdInbound::Clients { identities },
    }
}

/// One proxy for the pod's inbound and outbound traffic.
fn sidecar(site: &Site, proxied: &ProxiedPod<'_>, level: PolicyLevel) -> PodBlueprint {
    let name = identity(&proxied.pod.service_account);
    let file = |file: &str, content| PodFile {
        name: file.into(),
        content,
    };
    let role = match proxied.callers {
        None => ComponentRole::ClientProxy,
        Some(_) => ComponentRole::ServerProxy,
    };
    PodBlueprint {
        pod: proxied.pod.name.clone(),
        files: vec![
            file("key.p8", Content::PrivateKeyDer(name.clone())),
            file("csr.der", Content::SigningRequest(name)),
            file("token", Content::Text("meshtax".into())),
        ],
        redirect: Redirect {
            outbound_to: (!proxied.callees.is_empty()).then_some(PORT_OUT),
            inbound_to: proxied.callers.is_some().then_some(PORT_IN),
            exemption: RedirectExemption::DestinationPort(PORT_IN),
            ..Redirect::default()
        },
        control: vec![ControlService::Linkerd {
            port: PORT_SERVICES,
            answers: LinkerdServices {
                callees: proxied.callees.iter().map(|c| service(c, level)).collect(),
                inbound: inbound(site, proxied, level),
            },
        }],
        processes: vec![Process {
            role,
            program: Program::LinkerdProxy,
            arguments: Vec::new(),
            environment: environment(site, proxied),
            scope: ProcessScope::Pod,
        }],
    }
}

fn environment(site: &Site, proxied: &ProxiedPod<'_>) -> BTreeMap<String, Content> {
    let pod = proxied.pod;
    let services = format!("127.0.0.1:{PORT_SERVICES}");
    let listen = |port: u16| format!("0.0.0.0:{port}");
    let ports = proxied.ports.iter().map(|p| p.number).chain([PORT_ADMIN]);
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
        ("CORES", site.workers_of(Program::LinkerdProxy).to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key, Content::Text(value)))
    // Inline, not as a file.
    .chain([("IDENTITY_TRUST_ANCHORS", Content::TrustAnchor)])
    .map(|(key, value)| (format!("LINKERD2_PROXY_{key}"), value))
    .chain(site.environment_switches().map(|(key, value)| {
        let value = Content::Text(value.to_owned());
        (key.to_owned(), value)
    }))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{gateway_site, graph_site};

    /// The configuration that the control plane sends to the proxy of a pod.
    fn services_of(pod: &PodBlueprint) -> &LinkerdServices {
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
    fn proxy_is_configured_with_its_callers_and_callees() {
        let mut site = graph_site();
        site.gateway = gateway_site(false).gateway;
        let blueprint = blueprint(&site, PolicyLevel::L4);
        let pod = |name: &str| blueprint.emulation.pod(name).expect("a pod");
        for (name, callees, callers) in [
            ("client", ["server"].as_slice(), None),
            ("ingress-gateway", &["server"], None),
            (
                "server",
                &["reviews", "ratings"],
                Some(["client", "ingress-gateway"].as_slice()),
            ),
            ("reviews-2", &["ratings"], Some(&["server"])),
            ("ratings", &[], Some(&["server", "reviews"])),
        ] {
            let pod = pod(name);
            let services = services_of(pod);
            assert_eq!(names(services), callees);
            let allowed = services.inbound.first().map(|(_, allowed)| allowed);
            // A pod without callers has its metrics only.
            let expected = callers.map_or(LinkerdInbound::Anyone, |callers| {
                let identities = callers.iter().map(|caller| identity(caller)).collect();
                LinkerdInbound::Clients { identities }
            });
            assert_eq!(allowed, Some(&expected));
            let redirect = &pod.redirect;
            assert_eq!(redirect.inbound_to.is_some(), callers.is_some());
            assert_eq!(redirect.outbound_to.is_some(), !callees.is_empty());
        }
        let of_server = services_of(pod("server"));
        let endpoints = of_server.callees.iter().map(|c| c.endpoints.len());
        assert_eq!(endpoints.collect::<Vec<_>>(), [2, 1]);
        let addresses = of_server.callees.iter().map(|c| c.address.is_some());
        assert_eq!(addresses.collect::<Vec<_>>(), [true, false]);
    }
}
