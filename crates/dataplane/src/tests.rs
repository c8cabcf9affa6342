//! Golden blueprints of every data plane, and the laws that hold for all of them.

use meshtax_model::catalogue::{DATA_PLANES, DataPlane, ProxyPlacement};
use meshtax_model::experiment::{
    ExtraEndpoints, OptionKind, Options, PROXY_PORTS, PolicyLevel, Workers,
};

use super::*;

fn pod(name: &str, address: [u8; 4], node: PodNode) -> Pod {
    Pod {
        name: name.into(),
        address: address.into(),
        service_account: name.into(),
        directory: format!("/lab/{name}"),
        node,
    }
}

/// A service of one pod, called by that pod's address.
fn service(name: &str, address: [u8; 4], node: PodNode) -> SiteService {
    SiteService {
        name: name.into(),
        address: address.into(),
        pods: vec![pod(name, address, node)],
        ports: vec![AppPort::http1(APP_PORT)],
        calls: Vec::new(),
        entry_point: false,
    }
}

/// The same with further pods, and an address of its own.
fn replicated(
    mut of: SiteService,
    address: [u8; 4],
    more: impl Iterator<Item = Pod>,
) -> SiteService {
    let account = of.name.clone();
    of.pods.extend(more.map(|pod| Pod {
        service_account: account.clone(),
        ..pod
    }));
    of.address = address.into();
    of
}

fn calls(of: SiteService, callees: &[&str]) -> SiteService {
    SiteService {
        calls: callees.iter().copied().map(String::from).collect(),
        ..of
    }
}

pub(crate) fn site() -> Site {
    let server = PodNode::Server(0);
    Site {
        namespace: EMULATED_NAMESPACE.into(),
        clients: vec![pod("client", [10, 0, 1, 10], PodNode::Client)],
        services: vec![SiteService {
            entry_point: true,
            ..service("server", [10, 0, 2, 10], server)
        }],
        waypoint: pod("waypoint", [10, 0, 3, 10], server),
        gateway: None,
        intruder: None,
        workers: Workers::Equal(1),
        cores: 2,
        options: Options::default(),
        runtime: Default::default(),
    }
}

fn with_level(plane: &DataPlane, site: &Site, level: Option<PolicyLevel>) -> Blueprint {
    blueprint(plane, site, level, None)
}

/// At its highest level.
fn highest(plane: &DataPlane, site: &Site) -> Blueprint {
    with_level(plane, site, plane.levels.last().copied())
}

#[test]
fn golden_blueprints() {
    for plane in DATA_PLANES {
        if plane.levels.is_empty() {
            insta::assert_json_snapshot!(plane.name, with_level(plane, &site(), None));
        }
        for level in plane.levels {
            let blueprint = with_level(plane, &site(), Some(*level));
            insta::assert_json_snapshot!(format!("{}-{level}", plane.name), blueprint);
        }
    }
}

/// What is promised does not depend on the number of clients, and each has a pod like the first one's.
#[test]
fn every_client_is_proxied_like_the_first() {
    let mut several = site();
    several.clients.extend([2, 3].map(|number| Pod {
        service_account: "client".into(),
        ..pod(
            &format!("client-{number}"),
            [10, 0, 1, 10 + number],
            PodNode::Client,
        )
    }));
    for plane in DATA_PLANES.iter().filter(|plane| !plane.levels.is_empty()) {
        let (one, all) = (highest(plane, &site()), highest(plane, &several));
        assert_eq!(one.contract.probes, all.contract.probes, "{}", plane.name);
        let pod = |name| all.emulation.pod(name).cloned();
        let redirects = ["client", "client-2", "client-3"]
            .map(|name| pod(name).map(|pod| pod.redirect))
            .into_iter();
        let redirects: Option<Vec<_>> = redirects.collect();
        let redirects = redirects.unwrap_or_else(|| panic!("{}: a client is missing", plane.name));
        assert!(redirects.iter().all(|of| *of == redirects[0]));
        let processes = |name| pod(name).map(|pod| pod.processes.len());
        if plane.placement == Some(ProxyPlacement::Sidecar) {
            assert_eq!(processes("client-3"), processes("client"), "{}", plane.name);
        }
    }
}

/// Two replicas behind an address of their own, with a port of each kind.
#[test]
fn golden_blueprints_of_a_service() {
    let port = |number, protocol, path: Option<&str>| AppPort {
        number,
        protocol,
        response_bytes: 0,
        path: path.map(String::from),
    };
    let mut site = site();
    let second = pod("server-2", [10, 0, 2, 11], PodNode::Server(0));
    site.services = vec![replicated(
        site.services.remove(0),
        [10, 0, 8, 1],
        std::iter::once(second),
    )];
    site.services[0].ports.extend([
        port(8081, AppProtocol::Http2, None),
        port(8082, AppProtocol::Tcp, None),
        port(9000, AppProtocol::Http1, Some("/own?a=b")),
    ]);
    for plane in DATA_PLANES {
        insta::assert_json_snapshot!(format!("service-{}", plane.name), highest(plane, &site));
    }
}

/// Four replicas behind an address of their own, on three nodes.
fn three_nodes_site() -> Site {
    let mut site = site();
    let more = (2..=4).map(|number| {
        let node = PodNode::Server(u32::from(number - 1) % 3);
        pod(&format!("server-{number}"), [10, 0, 2, 9 + number], node)
    });
    site.services = vec![replicated(site.services.remove(0), [10, 0, 8, 1], more)];
    site
}

/// Sidecars are the same on whichever node their pods run; a node's proxy is there on each node.
#[test]
fn golden_blueprints_of_three_nodes() {
    let spread = three_nodes_site();
    let mut together = spread.clone();
    for pod in &mut together.services[0].pods {
        pod.node = PodNode::Server(0);
    }
    let is_server = |pod: &&PodBlueprint| pod.pod.starts_with("server");
    for plane in DATA_PLANES {
        let mut blueprint = highest(plane, &spread);
        let is_every_node = |probe: &Probe| matches!(probe, Probe::EveryNode { .. });
        let probes = &mut blueprint.contract.probes;
        let count = probes.iter().filter(|p| is_every_node(p)).count();
        assert_eq!(count, 1, "{}", plane.name);
        let servers = blueprint.emulation.pods.iter().filter(is_server);
        let processes = servers.flat_map(|pod| &pod.processes);
        let on_nodes = processes.filter(|p| p.scope == ProcessScope::Node).count();
        if on_nodes > 0 {
            assert_eq!(on_nodes, 3, "{}", plane.name);
            insta::assert_json_snapshot!(format!("nodes-{}", plane.name), blueprint);
            continue;
        }
        probes.retain(|probe| !is_every_node(probe));
        let on_one = highest(plane, &together);
        // The node is part of a dedicated proxy's configuration.
        let texts = [&blueprint, &on_one].map(without_nodes);
        assert_eq!(texts[0], texts[1], "{}", plane.name);
    }
}

fn without_nodes(blueprint: &Blueprint) -> String {
    let text = serde_json::to_string(blueprint).expect("JSON");
    text.replace("node-of-server-2", "node-of-server")
        .replace("node-of-server-3", "node-of-server")
}

/// The server calls two services, one of which has two pods and calls the other.
pub(crate) fn graph_site() -> Site {
    let (client, server) = (PodNode::Client, PodNode::Server(0));
    let reviews = service("reviews", [10, 0, 1, 11], client);
    let second = pod("reviews-2", [10, 0, 1, 12], client);
    let reviews = replicated(reviews, [10, 0, 8, 1], std::iter::once(second));
    let ratings = service("ratings", [10, 0, 1, 13], server);
    let mut site = site();
    let front = calls(site.services.remove(0), &["reviews", "ratings"]);
    site.services = vec![front, calls(reviews, &["ratings"]), ratings];
    site
}

/// Two namespaces of three services, of which clients call the first each: one is the server.
fn tiers_site() -> Site {
    let (client, server) = (PodNode::Client, PodNode::Server(0));
    let mut site = site();
    site.services = vec![
        calls(site.services.remove(0), &["app-1"]),
        calls(service("app-1", [10, 0, 1, 11], client), &["db-1"]),
        service("db-1", [10, 0, 2, 12], server),
        SiteService {
            entry_point: true,
            ..calls(service("web-2", [10, 0, 2, 13], server), &["app-2"])
        },
        calls(service("app-2", [10, 0, 1, 14], client), &["db-2"]),
        service("db-2", [10, 0, 2, 15], server),
    ];
    // Only clients request responses of another size.
    let entry_points = site.services.iter_mut().filter(|s| s.entry_point);
    for service in entry_points {
        service.ports.push(AppPort {
            response_bytes: 9,
            ..AppPort::http1(8081)
        });
    }
    site
}

#[test]
fn golden_blueprints_of_several_services_that_clients_call() {
    let site = tiers_site();
    let hosts: Vec<&str> = site.entry_points().map(|s| s.name.as_str()).collect();
    assert_eq!(hosts, ["server", "web-2"]);
    for plane in DATA_PLANES.iter().filter(|plane| plane.call_graphs) {
        let blueprint = highest(plane, &site);
        insta::assert_json_snapshot!(format!("tiers-2-{}", plane.name), blueprint);
    }
}

#[test]
fn golden_blueprints_of_a_call_graph() {
    let site = graph_site();
    for plane in DATA_PLANES.iter().filter(|plane| plane.call_graphs) {
        let blueprint = highest(plane, &site);
        insta::assert_json_snapshot!(format!("graph-{}", plane.name), blueprint);
    }
}

/// Two services that are known, of three endpoints together, a log of requests, and traces of a tenth.
fn site_with(options: &[OptionKind]) -> Site {
    let mut site = site();
    for option in options {
        match option {
            OptionKind::AccessLog => site.options.access_log = true,
            OptionKind::Tracing => site.options.tracing = Some(0.1),
            OptionKind::AllStats => site.options.all_stats = true,
            OptionKind::ExtraEndpoints => {
                site.options.extra_endpoints = Some(ExtraEndpoints {
                    endpoints: 3,
                    per_service: 2,
                    changes_per_s: None,
                });
            }
            OptionKind::Changes => {
                let extra_endpoints = site.options.extra_endpoints.as_mut();
                extra_endpoints
                    .expect("what changes is known")
                    .changes_per_s = Some(5.0);
            }
        }
    }
    site
}

/// Clients outside connect through a gateway, in addition to a client in a pod or as the only ones.
pub(crate) fn gateway_site(is_only_ingress: bool) -> Site {
    let mut site = site();
    site.gateway = Some(Gateway {
        pod: pod("ingress-gateway", [10, 0, 1, 20], PodNode::Client),
        is_only_ingress,
    });
    site
}

#[test]
fn golden_blueprints_with_all_options() {
    for plane in DATA_PLANES.iter().filter(|plane| !plane.options.is_empty()) {
        let level = plane
            .levels
            .iter()
            .copied()
            .find(|l| *l == PolicyLevel::Mtls);
        let blueprint = with_level(plane, &site_with(plane.options), level);
        assert_ne!(
            blueprint,
            with_level(plane, &site(), level),
            "{}",
            plane.name
        );
        insta::assert_json_snapshot!(format!("options-{}", plane.name), blueprint);
    }
}

#[test]
fn golden_blueprints_of_a_gateway() {
    for plane in DATA_PLANES.iter().filter(|plane| plane.gateway) {
        let both = highest(plane, &gateway_site(false));
        insta::assert_json_snapshot!(format!("gateway-{}", plane.name), both);
        let only = highest(plane, &gateway_site(true));
        let pod = |blueprint: &Blueprint, name| blueprint.emulation.pod(name).cloned();
        assert_eq!(pod(&only, "client"), None, "{}", plane.name);
        let gateways = [&only, &both].map(|blueprint| pod(blueprint, "ingress-gateway"));
        if gateways[0] != gateways[1] {
            // A node's proxy is listed with the first of its pods, and that is the gateway's here.
            assert_eq!(plane.name, "ztunnel");
            insta::assert_json_snapshot!("gateway-only-ztunnel-gateway", gateways[0]);
        }
        let server = pod(&only, "server");
        insta::assert_json_snapshot!(
            format!("gateway-only-{}", plane.name),
            (server, &only.contract.probes)
        );
    }
}

/// What is compared is the mesh, so all else of a gateway is one configuration.
#[test]
fn all_gateways_have_the_same_listeners() {
    let listeners = |plane: &DataPlane| {
        let blueprint = highest(plane, &gateway_site(true));
        let gateway = blueprint.emulation.pod("ingress-gateway");
        let gateway = gateway.expect("a gateway");
        let file = gateway.files.iter().find(|file| file.name == "envoy.json");
        let Some(Content::Text(config)) = file.map(|file| &file.content) else {
            panic!("{}: no configuration", plane.name);
        };
        let config: serde_json::Value = serde_json::from_str(config).expect("JSON");
        let listeners = config["static_resources"]["listeners"].to_string();
        let cluster = &config["static_resources"]["clusters"][0]["name"];
        listeners.replace(&cluster.to_string(), "\"cluster\"")
    };
    let with = DATA_PLANES.iter().filter(|plane| plane.gateway);
    let all: std::collections::BTreeSet<String> = with.map(listeners).collect();
    assert_eq!(all.len(), 1, "{all:#?}");
}

/// Otherwise an application's port could meet them.
#[test]
fn all_proxy_ports_are_reserved() {
    for plane in DATA_PLANES {
        let site = site_with(plane.options);
        let blueprint = highest(plane, &site);
        for pod in &blueprint.emulation.pods {
            let redirect = &pod.redirect;
            let control = pod.control.iter().filter_map(|service| match service {
                ControlService::IstioCa { port, .. }
                | ControlService::Linkerd { port, .. }
                | ControlService::Discovery { port, .. }
                | ControlService::TraceCollector { port } => Some(*port),
                ControlService::WorkloadSocket { .. } => None,
            });
            let metrics = blueprint
                .contract
                .http_metrics
                .iter()
                .map(|metrics| metrics.port);
            let ports = [
                redirect.outbound_to,
                redirect.inbound_to,
                redirect.inbound_except,
            ];
            for port in ports.into_iter().flatten().chain(control).chain(metrics) {
                assert!(PROXY_PORTS.contains(&port), "{}: {port}", plane.name);
            }
        }
    }
}

#[test]
fn levels_above_plaintext_are_probed_for_encryption_and_outsiders() {
    for plane in DATA_PLANES {
        for level in plane.levels.iter().filter(|l| **l >= PolicyLevel::Mtls) {
            let blueprint = with_level(plane, &site(), Some(*level));
            for needed in [
                Probe::PlaintextOutsider,
                Probe::Canary { readable: false },
                Probe::Handshake,
            ] {
                assert!(
                    blueprint.contract.probes.contains(&needed),
                    "{} {level}: {needed:?}",
                    plane.name
                );
            }
        }
    }
}

#[test]
fn sabotage_keeps_the_probes_and_changes_the_configuration() {
    for plane in DATA_PLANES {
        for level in plane.levels {
            for sabotage in Sabotage::ALL {
                if !sabotage.breaks(plane, *level) {
                    continue;
                }
                let site = match sabotage {
                    Sabotage::NoRedirectBehind | Sabotage::NoPolicyBehind => graph_site(),
                    Sabotage::AroundTheGateway => gateway_site(false),
                    Sabotage::NoOptions => site_with(plane.options),
                    _ => site(),
                };
                let whole = blueprint(plane, &site, Some(*level), None);
                let broken = blueprint(plane, &site, Some(*level), Some(*sabotage));
                let probes = |blueprint: &Blueprint| blueprint.contract.probes.clone();
                assert_eq!(probes(&whole), probes(&broken), "{sabotage:?}");
                assert_ne!(whole, broken, "{} {level} {sabotage:?}", plane.name);
            }
        }
    }
}
