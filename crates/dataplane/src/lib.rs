//! Data planes as data: from where the pods stand and the policy level to a [`Blueprint`] of
//! processes, files, redirect rules and the probes that prove it.
//!
//! Pure: nothing is started here and no engine is known, so that a new mesh is one module with
//! golden blueprints. Everything that differs between variants is in the Blueprint; engines treat
//! all of them alike.

#![forbid(unsafe_code)]

mod blueprint;
mod control;
mod envoy;
mod envoy_sidecar;
mod gateway;
mod known;
mod limit;
mod linkerd;
mod probe;
mod sabotage;
mod site;
mod waypoint;
mod ztunnel;
mod ztunnel_state;

use meshtax_model::experiment::{OptionKind, PolicyLevel};

pub use blueprint::{
    Blueprint, Content, DirectTls, HttpMetrics, Own, Place, PodBlueprint, PodFile, Process,
    Program, Redirect,
};
pub use control::{
    ControlService, Discovery, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService,
    LinkerdServices, Workload,
};
pub use gateway::{GATEWAY_PORT, GATEWAY_PROGRAM, GATEWAY_TLS_PORT};
pub use limit::{LimitProxyConfig, LimitSide, LimitTls};
pub use probe::{ClientIdentityFrom, Counter, Probe};
pub use sabotage::Sabotage;
pub use site::{AppPort, Called, Gateway, HttpRule, Pod, PodNode, Site, SiteService, Speaks};

pub(crate) use blueprint::{InPod, certificate_files};
pub(crate) use probe::Looks;
pub(crate) use site::{Callee, MeshService, Meshed};

/// Where a pod's outgoing TCP is redirected to, as in Istio.
pub const PORT_OUTBOUND: u16 = 15001;
/// Where a pod's incoming TCP is redirected to, as in Istio.
pub const PORT_INBOUND: u16 = 15006;
/// The mark on a proxy's own connections, which redirection leaves alone (Istio's uid, as a mark).
pub const PROXY_MARK: u32 = 1337;
/// Istio's default trust domain.
pub const TRUST_DOMAIN: &str = "cluster.local";
/// The path that every policy allows and that the load uses.
pub const ALLOWED_PATH: &str = "/allowed";
/// The gRPC method that every policy allows. It begins otherwise than [`ALLOWED_PATH`]: a POST there
/// is forbidden.
pub const ALLOWED_CALL: &str = "/meshtax.Load/Call";
/// The path at which the test application says what it received. Policies allow it.
pub const ECHO_PATH: &str = "/_meshtax/echo";
/// A path that no `l7` policy allows.
pub const FORBIDDEN_PATH: &str = "/forbidden";

/// The service's name in the cluster's DNS.
pub const SERVICE_NAME: &str = "server.default.svc.cluster.local";

/// A workload's SPIFFE identity, as Istio forms it.
#[must_use]
pub fn spiffe_id(service_account: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}/ns/default/sa/{service_account}")
}

/// A data plane that meshtax knows.
#[derive(Clone, Copy, Debug)]
pub struct DataPlane {
    /// As in specs and in `meshtax dataplanes`.
    pub name: &'static str,
    /// The levels at which it can be measured; empty for `none`.
    pub levels: &'static [PolicyLevel],
    /// What really runs, and what it stands for.
    pub summary: &'static str,
    /// The programs that its proxies run; none: there are no proxies.
    pub needs: &'static [Program],
    /// What a reader of its figures must know.
    pub note: Option<&'static str>,
    /// What its proxies can be told to do or to hold besides.
    pub options: &'static [OptionKind],
    waypoint: bool,
    graphs: bool,
    gateway: bool,
    build: fn(&Site, PolicyLevel) -> Blueprint,
}

/// All data planes, the baseline first.
pub const DATA_PLANES: &[DataPlane] = &[
    DataPlane {
        name: "none",
        levels: &[],
        summary: "nothing in the path: the baseline",
        needs: &[],
        note: None,
        options: &[],
        waypoint: false,
        graphs: true,
        gateway: true,
        build: |site, _| Blueprint::direct(site),
    },
    limit::LIMIT_L4,
    limit::LIMIT_MTLS,
    ztunnel::DATA_PLANE,
    ztunnel::DEDICATED,
    waypoint::DATA_PLANE,
    waypoint::SANDWICH,
    linkerd::DATA_PLANE,
    envoy_sidecar::HTTP,
    envoy_sidecar::TCP,
];

/// The data plane of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static DataPlane> {
    DATA_PLANES.iter().find(|d| d.name == name)
}

impl DataPlane {
    /// The programs that it needs and that are not meshtax itself.
    pub fn foreign_programs(&self) -> impl Iterator<Item = Program> {
        let needed = self.needs.iter().copied();
        needed.filter(|program| Program::FOREIGN.contains(program))
    }

    /// Those, and what its gateway runs, if there is to be one.
    pub fn programs_with(&self, gateway: bool) -> impl Iterator<Item = Program> {
        let of_gateway = gateway.then_some(GATEWAY_PROGRAM);
        let of_gateway = of_gateway.filter(|program| !self.needs.contains(program));
        self.foreign_programs().chain(of_gateway)
    }

    /// Whether a proxy of the whole service's stands between client and server.
    #[must_use]
    pub fn has_waypoint(&self) -> bool {
        self.waypoint
    }

    /// Whether services that call each other can stand on it; otherwise only one that clients call.
    #[must_use]
    pub fn carries_graphs(&self) -> bool {
        self.graphs
    }

    /// Whether clients outside the mesh can come in through a gateway of its own.
    #[must_use]
    pub fn has_gateway(&self) -> bool {
        self.gateway
    }

    /// What is to be started and proven for one pair of pods, and for the services behind it.
    ///
    /// `level` is `None` for the data plane `none`. `sabotage` breaks the result on purpose
    /// while its probes still expect what the level promises.
    #[must_use]
    pub fn blueprint(
        &self,
        site: &Site,
        level: Option<PolicyLevel>,
        sabotage: Option<Sabotage>,
    ) -> Blueprint {
        let Some(level) = level else {
            return Blueprint::direct(site);
        };
        match sabotage {
            None => (self.build)(site, level),
            Some(sabotage) => sabotage.apply(site, level, self.build),
        }
    }
}

/// The application's port in every server pod, and so what is seen on the link.
pub const APP_PORT: u16 = 8080;

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use meshtax_model::experiment::{Knows, Options, PROXY_PORTS};

    use super::*;

    pub(crate) fn site() -> Site {
        let pod = |last, service_account: &str| Pod {
            name: service_account.into(),
            address: Ipv4Addr::new(10, 0, last, 10),
            service_account: service_account.into(),
            directory: format!("/lab/{service_account}"),
            node: match service_account {
                "client" => PodNode::Client,
                _ => PodNode::Server(0),
            },
        };
        Site {
            client: pod(1, "client"),
            server: pod(2, "server"),
            more_servers: Vec::new(),
            waypoint: pod(3, "waypoint"),
            gateway: None,
            called: Ipv4Addr::new(10, 0, 2, 10),
            app_port: APP_PORT,
            more_ports: Vec::new(),
            workers: 1,
            behind: Vec::new(),
            calls: Vec::new(),
            options: Options::default(),
        }
    }

    #[test]
    fn golden_blueprints() {
        for plane in DATA_PLANES {
            if plane.levels.is_empty() {
                insta::assert_json_snapshot!(plane.name, plane.blueprint(&site(), None, None));
            }
            for level in plane.levels {
                let blueprint = plane.blueprint(&site(), Some(*level), None);
                insta::assert_json_snapshot!(format!("{}-{level}", plane.name), blueprint);
            }
        }
    }

    /// Two replicas behind an address of their own, with a port of each kind.
    #[test]
    fn golden_blueprints_of_a_service() {
        let port = |number, speaks, path: Option<&str>| AppPort {
            number,
            speaks,
            response_bytes: 0,
            path: path.map(String::from),
        };
        let mut site = site();
        site.more_servers.push(Pod {
            name: "server-2".into(),
            address: Ipv4Addr::new(10, 0, 2, 11),
            service_account: "server".into(),
            directory: "/lab/server-2".into(),
            node: PodNode::Server(0),
        });
        site.called = Ipv4Addr::new(10, 0, 8, 1);
        site.more_ports = vec![
            port(8081, Speaks::Http2, None),
            port(8082, Speaks::Tcp, None),
            port(9000, Speaks::Http1, Some("/own?a=b")),
        ];
        for plane in DATA_PLANES {
            let blueprint = plane.blueprint(&site, plane.levels.last().copied(), None);
            assert_eq!(blueprint.servers(&site).len(), 2, "{}", plane.name);
            insta::assert_json_snapshot!(format!("service-{}", plane.name), blueprint);
        }
    }

    /// Four replicas behind an address of their own, on three nodes.
    fn three_nodes_site() -> Site {
        let mut site = site();
        site.more_servers = (2..=4)
            .map(|number| Pod {
                name: format!("server-{number}"),
                address: Ipv4Addr::new(10, 0, 2, 9 + number),
                service_account: "server".into(),
                directory: format!("/lab/server-{number}"),
                node: PodNode::Server(u32::from(number - 1) % 3),
            })
            .collect();
        site.called = Ipv4Addr::new(10, 0, 8, 1);
        site
    }

    /// What stands in pods is the same wherever they stand; what serves a node is there on each.
    #[test]
    fn golden_blueprints_of_three_nodes() {
        let spread = three_nodes_site();
        let mut together = spread.clone();
        for pod in &mut together.more_servers {
            pod.node = PodNode::Server(0);
        }
        for plane in DATA_PLANES {
            let level = plane.levels.last().copied();
            let mut blueprint = plane.blueprint(&spread, level, None);
            let is_every_node = |probe: &Probe| matches!(probe, Probe::EveryNode { .. });
            let looks = blueprint.probes.iter().filter(|p| is_every_node(p)).count();
            assert_eq!(looks, 1, "{}", plane.name);
            let on_nodes = blueprint.servers(&spread).into_iter();
            let placed = on_nodes.flat_map(|(_, pod)| &pod.processes);
            let of_nodes = placed.filter(|p| p.place == Place::Node).count();
            if of_nodes > 0 {
                assert_eq!(of_nodes, 3, "{}", plane.name);
                insta::assert_json_snapshot!(format!("nodes-{}", plane.name), blueprint);
                continue;
            }
            blueprint.probes.retain(|probe| !is_every_node(probe));
            let mut on_one = plane.blueprint(&together, level, None);
            // Where a dedicated proxy stands is in its configuration.
            let texts = [&mut blueprint, &mut on_one].map(|b| without_nodes(b));
            assert_eq!(texts[0], texts[1], "{}", plane.name);
        }
    }

    fn without_nodes(blueprint: &Blueprint) -> String {
        let text = serde_json::to_string(blueprint).expect("JSON");
        text.replace("node-of-server-2", "node-of-server")
            .replace("node-of-server-3", "node-of-server")
    }

    /// The server calls two services, of which one has two pods and calls the other.
    pub(crate) fn graph_site() -> Site {
        let pod = |name: &str, last| Pod {
            name: name.into(),
            address: Ipv4Addr::new(10, 0, 1, last),
            service_account: name.trim_end_matches("-2").into(),
            directory: format!("/lab/{name}"),
            node: match name {
                "ratings" => PodNode::Server(0),
                _ => PodNode::Client,
            },
        };
        let mut site = site();
        site.behind = vec![
            SiteService {
                name: "reviews".into(),
                called: Ipv4Addr::new(10, 0, 8, 1),
                pods: vec![pod("reviews", 11), pod("reviews-2", 12)],
                calls: vec!["ratings".into()],
                clients: false,
            },
            SiteService {
                name: "ratings".into(),
                called: Ipv4Addr::new(10, 0, 1, 13),
                pods: vec![pod("ratings", 13)],
                calls: Vec::new(),
                clients: false,
            },
        ];
        site.calls = vec!["reviews".into(), "ratings".into()];
        site
    }

    /// Two namespaces of three services, of which clients call the first each: one is the server.
    fn tiers_site() -> Site {
        let service = |name: &str, address: [u8; 4], calls: &[&str]| SiteService {
            name: name.into(),
            called: address.into(),
            pods: vec![Pod {
                name: name.into(),
                address: address.into(),
                service_account: name.into(),
                directory: format!("/lab/{name}"),
                node: match name.starts_with("app") {
                    true => PodNode::Client,
                    false => PodNode::Server(0),
                },
            }],
            calls: calls.iter().copied().map(String::from).collect(),
            clients: name.starts_with("web"),
        };
        let mut site = site();
        site.calls = vec!["app-1".into()];
        site.behind = vec![
            service("app-1", [10, 0, 1, 11], &["db-1"]),
            service("db-1", [10, 0, 2, 12], &[]),
            service("web-2", [10, 0, 2, 13], &["app-2"]),
            service("app-2", [10, 0, 1, 14], &["db-2"]),
            service("db-2", [10, 0, 2, 15], &[]),
        ];
        // Another size of answers is asked of all that clients call, and of nobody else.
        site.more_ports = vec![AppPort {
            number: 8081,
            speaks: Speaks::Http1,
            response_bytes: 9,
            path: None,
        }];
        site
    }

    #[test]
    fn golden_blueprints_of_several_services_that_clients_call() {
        let site = tiers_site();
        let hosts: Vec<&str> = site.called_by_clients().map(|called| called.host).collect();
        assert_eq!(hosts, ["server", "web-2"]);
        for plane in DATA_PLANES.iter().filter(|plane| plane.carries_graphs()) {
            let blueprint = plane.blueprint(&site, plane.levels.last().copied(), None);
            insta::assert_json_snapshot!(format!("tiers-2-{}", plane.name), blueprint);
        }
    }

    #[test]
    fn golden_blueprints_of_a_call_graph() {
        let site = graph_site();
        for plane in DATA_PLANES.iter().filter(|plane| plane.carries_graphs()) {
            let blueprint = plane.blueprint(&site, plane.levels.last().copied(), None);
            assert_eq!(blueprint.pods_behind(&site).len(), 3, "{}", plane.name);
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
                OptionKind::Knows => {
                    site.options.knows = Some(Knows {
                        endpoints: 3,
                        per_service: 2,
                        changes_per_s: None,
                    });
                }
                OptionKind::Changes => {
                    let knows = site.options.knows.as_mut();
                    knows.expect("what changes is known").changes_per_s = Some(5.0);
                }
            }
        }
        site
    }

    /// Clients outside come in through a gateway, besides a client in a pod or as the only ones.
    pub(crate) fn gateway_site(is_only_way: bool) -> Site {
        let mut site = site();
        site.gateway = Some(Gateway {
            pod: Pod {
                name: "ingress-gateway".into(),
                address: Ipv4Addr::new(10, 0, 1, 20),
                service_account: "ingress-gateway".into(),
                directory: "/lab/ingress-gateway".into(),
                node: PodNode::Client,
            },
            is_only_way,
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
            let blueprint = plane.blueprint(&site_with(plane.options), level, None);
            assert_ne!(
                blueprint,
                plane.blueprint(&site(), level, None),
                "{}",
                plane.name
            );
            insta::assert_json_snapshot!(format!("options-{}", plane.name), blueprint);
        }
    }

    #[test]
    fn golden_blueprints_of_a_gateway() {
        for plane in DATA_PLANES.iter().filter(|plane| plane.has_gateway()) {
            let level = plane.levels.last().copied();
            let besides = plane.blueprint(&gateway_site(false), level, None);
            insta::assert_json_snapshot!(format!("gateway-{}", plane.name), besides);
            let only = plane.blueprint(&gateway_site(true), level, None);
            assert_eq!(only.client, PodBlueprint::default(), "{}", plane.name);
            if only.gateway != besides.gateway {
                // What serves the node stands with the first of its pods, and that is now the gateway's.
                assert_eq!(plane.name, "ztunnel");
                insta::assert_json_snapshot!("gateway-only-ztunnel-gateway", only.gateway);
            }
            insta::assert_json_snapshot!(
                format!("gateway-only-{}", plane.name),
                (&only.server, &only.probes)
            );
        }
    }

    /// What is compared is the mesh, so all else of a gateway is one configuration.
    #[test]
    fn every_gateway_takes_requests_alike() {
        let listeners = |plane: &DataPlane| {
            let blueprint =
                plane.blueprint(&gateway_site(true), plane.levels.last().copied(), None);
            let gateway = blueprint.gateway.expect("a gateway");
            let file = gateway.files.iter().find(|file| file.name == "envoy.json");
            let Some(Content::Text(config)) = file.map(|file| &file.content) else {
                panic!("{}: no configuration", plane.name);
            };
            let config: serde_json::Value = serde_json::from_str(config).expect("JSON");
            let listeners = config["static_resources"]["listeners"].to_string();
            let cluster = &config["static_resources"]["clusters"][0]["name"];
            listeners.replace(&cluster.to_string(), "\"cluster\"")
        };
        let with = DATA_PLANES.iter().filter(|plane| plane.has_gateway());
        let all: std::collections::BTreeSet<String> = with.map(listeners).collect();
        assert_eq!(all.len(), 1, "{all:#?}");
    }

    /// Otherwise an application's port could meet them.
    #[test]
    fn the_ports_of_all_proxies_are_known() {
        for plane in DATA_PLANES {
            let site = site_with(plane.options);
            let blueprint = plane.blueprint(&site, plane.levels.last().copied(), None);
            let pods = [&blueprint.client, &blueprint.server].into_iter();
            for pod in pods.chain(&blueprint.waypoint) {
                let redirect = &pod.redirect;
                let control = pod.control.iter().filter_map(|service| match service {
                    ControlService::IstioCa { port, .. }
                    | ControlService::Linkerd { port, .. }
                    | ControlService::Discovery { port, .. }
                    | ControlService::TraceCollector { port } => Some(*port),
                    ControlService::WorkloadSocket { .. } => None,
                });
                let metrics = blueprint.http_metrics.iter().map(|metrics| metrics.port);
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
    fn every_level_above_plaintext_is_probed_for_encryption_and_outsiders() {
        for plane in DATA_PLANES {
            for level in plane.levels.iter().filter(|l| **l >= PolicyLevel::Mtls) {
                let blueprint = plane.blueprint(&site(), Some(*level), None);
                for needed in [
                    Probe::PlaintextOutsider,
                    Probe::Canary { readable: false },
                    Probe::Handshake,
                ] {
                    assert!(
                        blueprint.probes.contains(&needed),
                        "{} {level}: {needed:?}",
                        plane.name
                    );
                }
            }
        }
    }

    #[test]
    fn sabotage_keeps_the_probes_and_changes_the_rest() {
        for plane in DATA_PLANES {
            for level in plane.levels {
                for sabotage in Sabotage::ALL {
                    if !sabotage.breaks(plane, *level) {
                        continue;
                    }
                    let site = match sabotage {
                        Sabotage::NoRedirectBehind => graph_site(),
                        Sabotage::AroundTheGateway => gateway_site(false),
                        Sabotage::NoOptions => site_with(plane.options),
                        _ => site(),
                    };
                    let whole = plane.blueprint(&site, Some(*level), None);
                    let broken = plane.blueprint(&site, Some(*level), Some(*sabotage));
                    assert_eq!(whole.probes, broken.probes, "{sabotage:?}");
                    assert_ne!(whole, broken, "{} {level} {sabotage:?}", plane.name);
                }
            }
        }
    }
}
