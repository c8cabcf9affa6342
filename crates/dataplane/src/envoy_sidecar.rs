//! `envoy-sidecar`: two real Envoys, configured as Istio configures its sidecars.
//!
//! The shapes of listeners and clusters (virtual outbound at 15001 with `use_original_dst`,
//! virtual inbound at 15006, ALPN `istio*`, upstream source 127.0.0.6, the exact SPIFFE identity
//! verified by the client, the trust domain by the server) follow Istio's "Understanding Envoy
//! and Istio" and Envoy's v3 API reference.

use std::collections::BTreeMap;

use meshtax_model::experiment::{OptionKind, PolicyLevel};
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::envoy::{
    DIRECT, OUTBOUND, Routes, access_log, address, asks_for_clusters, bootstrap, cluster,
    cluster_passthrough, collector_cluster, common_tls, connection_manager, connection_policy,
    discovered, discovery, http_metrics, http_policy, lines_logged, peer_log, permitted_principal,
    pod_endpoints, route_table, set_endpoints, side, tcp_proxy, trace_collector, tracing, typed,
};
use crate::gateway::gateway_with;
use crate::known::{KnownService, services};
use crate::{
    AppPort, Blueprint, Callee, ClientIdentityFrom, DataPlane, DirectTls, Discovery, InPod, Looks,
    Meshed, PORT_INBOUND, PORT_OUTBOUND, Pod, PodBlueprint, Probe, Program, Site, Speaks,
    TRUST_DOMAIN, spiffe_id,
};

pub(crate) const HTTP: DataPlane = DataPlane {
    name: "envoy-sidecar",
    levels: &[
        PolicyLevel::Plaintext,
        PolicyLevel::Mtls,
        PolicyLevel::L4,
        PolicyLevel::L7,
    ],
    summary: "two real Envoys configured as Istio's sidecars are; stands for Istio sidecar",
    needs: &[Program::Envoy],
    note: Some(
        "upstream Envoy without Istio's own stats, ALPN and metadata-exchange filters: \
         Istio's proxy image may cost more",
    ),
    options: &[
        OptionKind::Knows,
        OptionKind::Changes,
        OptionKind::AccessLog,
        OptionKind::Tracing,
    ],
    waypoint: false,
    graphs: true,
    gateway: true,
    build: |site, level| blueprint(site, level, Mode::Http),
};

pub(crate) const TCP: DataPlane = DataPlane {
    name: "envoy-sidecar-tcp",
    levels: &[PolicyLevel::Plaintext, PolicyLevel::Mtls, PolicyLevel::L4],
    summary: "the same Envoys with the port declared TCP: they parse no HTTP; stands for Istio sidecar, port `tcp-...`",
    needs: &[Program::Envoy],
    note: Some(
        "no HTTP metrics, retries or balancing per request: what is left of a sidecar when it only \
         encrypts and authorises connections",
    ),
    options: &[],
    waypoint: false,
    graphs: false,
    gateway: false,
    build: |site, level| blueprint(site, level, Mode::Tcp),
};

/// What the sidecars take the application's first port for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Http,
    Tcp,
}

impl Mode {
    /// What they take this port for.
    fn of(self, port: &AppPort) -> Speaks {
        match self {
            Self::Http => port.speaks,
            Self::Tcp => Speaks::Tcp,
        }
    }
}

/// What the client's sidecar offers.
fn alpn(speaks: Speaks) -> &'static str {
    match speaks {
        Speaks::Http1 => ALPN_HTTP11,
        Speaks::Http2 => "istio-h2",
        Speaks::Tcp => "istio",
    }
}

/// What Istio's sidecars offer to each other instead of `http/1.1`.
const ALPN_HTTP11: &str = "istio-http/1.1";
const ALPN_SERVER: [&str; 5] = [
    "istio-peer-exchange",
    "istio",
    "istio-http/1.0",
    ALPN_HTTP11,
    "istio-h2",
];

fn blueprint(site: &Site, level: PolicyLevel, mode: Mode) -> Blueprint {
    let identity_from = match mode {
        Mode::Http => ClientIdentityFrom::ForwardedClientCert,
        Mode::Tcp => ClientIdentityFrom::ProxyLog,
    };
    let looks = Looks {
        // Istio's gateway has no sidecar: it is a proxy of the mesh itself.
        gateway_proxy_port: None,
        ..Looks::at_sidecars(site, identity_from)
    };
    let mut probes = looks.probes(site, level);
    if let Some(knows) = site.options.knows {
        probes.push(Probe::Knows {
            services: knows.services(),
            endpoints: knows.endpoints,
        });
    }
    if site.options.access_log {
        probes.push(Probe::LogsRequests {
            lines: lines_logged(),
        });
    }
    if site.options.tracing.is_some() {
        probes.push(Probe::SendsSpans);
    }
    Blueprint {
        probes,
        gateway: gateway(site, level),
        direct_tls: DirectTls {
            alpn: vec![
                alpn(match mode {
                    Mode::Http => Speaks::Http1,
                    Mode::Tcp => Speaks::Tcp,
                })
                .into(),
            ],
            ..DirectTls::default()
        },
        http_metrics: Some(http_metrics(ComponentRole::ServerProxy, "inbound")),
        ..Blueprint::sidecars(site, |end| {
            let mut sidecar = Sidecar {
                site,
                level,
                mode,
                tells: Discovery::default(),
            };
            let config = sidecar.config(end);
            let role = match end.callers {
                None => ComponentRole::ClientProxy,
                Some(_) => ComponentRole::ServerProxy,
            };
            let (files, process) = side(site, end.pod, role, &config);
            let tells = site.options.knows.map(|_| discovery(sidecar.tells));
            let collects = site.options.tracing.map(|_| trace_collector());
            InPod {
                files,
                control: tells.into_iter().chain(collects).collect(),
                processes: vec![process],
            }
        })
    }
}

/// Istio's gateway: what it sends on, it encrypts as a sidecar does.
fn gateway(site: &Site, level: PolicyLevel) -> Option<PodBlueprint> {
    let end = site.gateway_end()?;
    let callee = end.callees.first()?;
    let name = format!("outbound|{}||{}", site.app_port, callee.name);
    let cluster = to_service(end.pod, callee, level, &name, site.app_port, Speaks::Http1);
    Some(gateway_with(site, end.pod, &cluster))
}

/// One sidecar, as its configuration is put together.
struct Sidecar<'a> {
    site: &'a Site,
    level: PolicyLevel,
    mode: Mode,
    /// What it is told by the control plane, and not by its own file.
    tells: Discovery,
}

impl Sidecar<'_> {
    /// For what the pod calls, for who calls it, or for both; and for what it knows of the cluster besides.
    fn config(&mut self, end: &Meshed<'_>) -> Value {
        let (mut listeners, mut clusters) = (Vec::new(), Vec::new());
        if !end.callees.is_empty() || self.site.options.knows.is_some() {
            self.outbound(end, &mut listeners, &mut clusters);
        }
        if let Some(callers) = &end.callers {
            let served = Served {
                pod: end.pod,
                callers,
                level: self.level,
            };
            inbound(self.site, &served, self.mode, &mut listeners, &mut clusters);
        }
        if self.site.options.tracing.is_some() {
            clusters.push(collector_cluster());
        }
        let mut bootstrap = bootstrap(end.pod, &json!(listeners), &json!(clusters));
        if self.site.options.knows.is_some() {
            asks_for_clusters(&mut bootstrap);
        }
        bootstrap
    }

    fn outbound(
        &mut self,
        end: &Meshed<'_>,
        listeners: &mut Vec<Value>,
        clusters: &mut Vec<Value>,
    ) {
        listeners.push(json!({
            "name": "virtualOutbound",
            "traffic_direction": "OUTBOUND",
            "address": address("0.0.0.0", PORT_OUTBOUND),
            "use_original_dst": true,
            "filter_chains": [{"filters": [tcp_proxy("PassthroughCluster", "PassthroughCluster")]}],
        }));
        let mut by_port: BTreeMap<u16, Vec<(&Callee<'_>, Speaks)>> = BTreeMap::new();
        for callee in &end.callees {
            for port in &callee.ports {
                let callees = by_port.entry(port.number).or_default();
                callees.push((callee, self.mode.of(port)));
            }
        }
        let known = services(self.site.options.knows);
        if !known.is_empty() {
            // What is known has the first port of the application: one table of routes, as in Istio.
            by_port.entry(self.site.app_port).or_default();
        }
        for (port, callees) in by_port {
            let mut hosts = Vec::new();
            for (callee, speaks) in &callees {
                let name = format!("outbound|{port}||{}", callee.name);
                clusters.push(to_service(
                    end.pod, callee, self.level, &name, port, *speaks,
                ));
                hosts.push((callee.name.clone(), name));
            }
            let speaks = callees.first().map_or(Speaks::Http1, |(_, speaks)| *speaks);
            let known = match port == self.site.app_port {
                true => known.as_slice(),
                false => &[],
            };
            listeners.push(json!({
                "name": format!("0.0.0.0_{port}"),
                "traffic_direction": "OUTBOUND",
                "address": address("0.0.0.0", port),
                "bind_to_port": false,
                "filter_chains": [{"filters": [self.calls_at(end.pod, port, &hosts, speaks, known)]}],
            }));
        }
        let mut passthrough = cluster_passthrough("PassthroughCluster", "0.0.0.0", Speaks::Tcp);
        passthrough["lb_policy"] = json!("CLUSTER_PROVIDED");
        clusters.push(passthrough);
    }

    /// What is done with calls to one port: of `hosts`, each with its cluster, and of what is `known` there.
    fn calls_at(
        &mut self,
        pod: &Pod,
        port: u16,
        hosts: &[(String, String)],
        speaks: Speaks,
        known: &[KnownService],
    ) -> Value {
        let routes = match (hosts, speaks) {
            ([(_, only), ..], Speaks::Tcp) => return tcp_proxy(only, only),
            ([(_, only)], _) => Routes::All(only),
            (several, _) => Routes::ByHost(port, several),
        };
        let more = observed(self.site, pod);
        if known.is_empty() {
            return connection_manager(OUTBOUND, speaks, &routes, more, &[]);
        }
        let (mut clusters, mut hosts) = (Vec::new(), Vec::new());
        for service in known {
            let host = service.dns_name();
            let name = format!("outbound|{port}||{host}");
            clusters.push(to_known(pod, service, self.level, &name, port));
            self.tells.endpoints.push(assigned(service, &name, port));
            hosts.push((host, name));
        }
        let mut table = Routes::ByHost(port, &hosts).virtual_hosts(OUTBOUND);
        table.extend(routes.virtual_hosts(OUTBOUND));
        let name = port.to_string();
        self.tells.clusters.extend(clusters);
        self.tells.routes.push(route_table(&name, &table));
        self.tells.changes_per_s = self.site.options.knows.and_then(|k| k.changes_per_s);
        connection_manager(OUTBOUND, speaks, &Routes::Discovered(&name), more, &[])
    }
}

/// What a connection manager does besides, where requests are logged or traced.
fn observed(site: &Site, pod: &Pod) -> Value {
    let mut more = json!({});
    if site.options.access_log {
        more["access_log"] = access_log();
    }
    if let Some(share) = site.options.tracing {
        more["tracing"] = tracing(pod, share);
    }
    more
}

/// The cluster of a service that is known: as that of one that is called, but that its endpoints are told apart from it.
fn to_known(pod: &Pod, service: &KnownService, level: PolicyLevel, name: &str, port: u16) -> Value {
    let mut cluster = cluster(name, "EDS", "0.0.0.0", Speaks::Http1);
    cluster["eds_cluster_config"] = json!({"eds_config": discovered()});
    cluster["lb_policy"] = json!("LEAST_REQUEST");
    if level >= PolicyLevel::Mtls {
        let peer = Peer {
            host: &service.dns_name(),
            service_account: &service.name,
        };
        cluster["transport_socket"] = upstream_tls(pod, &peer, port, Speaks::Http1);
    }
    cluster
}

/// Its endpoints.
fn assigned(service: &KnownService, cluster: &str, port: u16) -> Value {
    let endpoints: Vec<Value> = service
        .endpoints
        .iter()
        .map(|at| json!({"endpoint": {"address": address(&at.to_string(), port)}}))
        .collect();
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]})
}

/// The cluster of a port of a service.
fn to_service(
    pod: &Pod,
    callee: &Callee<'_>,
    level: PolicyLevel,
    name: &str,
    port: u16,
    speaks: Speaks,
) -> Value {
    let mut cluster = cluster(name, "STATIC", "0.0.0.0", speaks);
    set_endpoints(
        &mut cluster,
        &pod_endpoints(callee.pods.iter().copied(), port),
    );
    if level >= PolicyLevel::Mtls {
        let peer = Peer {
            host: &callee.name,
            service_account: callee.service_account(),
        };
        cluster["transport_socket"] = upstream_tls(pod, &peer, port, speaks);
    }
    cluster
}

/// A pod whose calls a sidecar takes.
struct Served<'a> {
    pod: &'a Pod,
    /// Service accounts of those who may call it.
    callers: &'a [&'a str],
    level: PolicyLevel,
}

fn inbound(
    site: &Site,
    served: &Served<'_>,
    mode: Mode,
    listeners: &mut Vec<Value>,
    clusters: &mut Vec<Value>,
) {
    let mut chains = Vec::new();
    for port in site.ports() {
        let speaks = mode.of(&port);
        let name = format!("inbound|{}||", port.number);
        chains.push(inbound_chain(site, served, &name, port.number, speaks));
        let mut to_app = cluster_passthrough(&name, "127.0.0.6", speaks);
        to_app["lb_policy"] = json!("CLUSTER_PROVIDED");
        clusters.push(to_app);
    }
    listeners.push(json!({
        "name": "virtualInbound",
        "traffic_direction": "INBOUND",
        "address": address("0.0.0.0", PORT_INBOUND),
        "listener_filters": [
            {
                "name": "envoy.filters.listener.original_dst",
                "typed_config": typed("envoy.extensions.filters.listener.original_dst.v3.OriginalDst"),
            },
            {
                "name": "envoy.filters.listener.tls_inspector",
                "typed_config": typed("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"),
            },
        ],
        "filter_chains": chains,
    }));
}

/// What is done with connections to one port of the application.
fn inbound_chain(
    site: &Site,
    served: &Served<'_>,
    cluster: &str,
    port: u16,
    speaks: Speaks,
) -> Value {
    let level = served.level;
    // Istio turns a policy that names no part of a request into a filter of the connection, and any
    // other into a filter of requests: never both.
    let by_connection = match speaks {
        Speaks::Tcp => level >= PolicyLevel::L4,
        Speaks::Http1 | Speaks::Http2 => level == PolicyLevel::L4,
    };
    let principal = permitted_principal(served.callers);
    let connection_rules = by_connection.then(|| connection_policy(&principal));
    let handler = match speaks {
        Speaks::Tcp => inbound_tcp(cluster),
        _ => inbound_http(site, served, principal, cluster, speaks),
    };
    let filters: Vec<Value> = connection_rules.into_iter().chain([handler]).collect();
    let mut chain = json!({
        "filter_chain_match": {"destination_port": port},
        "filters": filters,
    });
    if level >= PolicyLevel::Mtls {
        // Whatever is not the mesh's TLS matches no chain, and is closed: Istio's STRICT mode.
        chain["filter_chain_match"]["transport_protocol"] = json!("tls");
        chain["filter_chain_match"]["application_protocols"] = json!(ALPN_SERVER);
        chain["transport_socket"] = downstream_tls(served.pod);
    }
    chain
}

fn inbound_http(
    site: &Site,
    served: &Served<'_>,
    principal: Value,
    cluster: &str,
    speaks: Speaks,
) -> Value {
    let rules = (served.level == PolicyLevel::L7).then(|| http_policy(site, principal));
    let mut more = observed(site, served.pod);
    more["forward_client_cert_details"] = json!("APPEND_FORWARD");
    more["set_current_client_cert_details"] = json!({"subject": true, "dns": true, "uri": true});
    let routes = Routes::All(cluster);
    connection_manager("inbound", speaks, &routes, more, rules.as_slice())
}

/// Whose connection it was is the one thing that is logged: no header can tell it to the application.
fn inbound_tcp(cluster: &str) -> Value {
    let mut proxy = tcp_proxy(cluster, cluster);
    proxy["typed_config"]["access_log"] = peer_log("%DOWNSTREAM_PEER_URI_SAN%", DIRECT);
    proxy
}

/// Whom a client's sidecar wants to speak with.
struct Peer<'a> {
    host: &'a str,
    service_account: &'a str,
}

fn upstream_tls(pod: &Pod, peer: &Peer<'_>, port: u16, speaks: Speaks) -> Value {
    let mut config = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    config["sni"] = json!(format!("outbound_.{port}_._.{}", peer.host));
    config["common_tls_context"] = common_tls(
        pod,
        &[alpn(speaks)],
        &json!({"exact": spiffe_id(peer.service_account)}),
    );
    json!({"name": "envoy.transport_sockets.tls", "typed_config": config})
}

fn downstream_tls(pod: &Pod) -> Value {
    let mut config = typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext");
    config["require_client_certificate"] = json!(true);
    config["common_tls_context"] = common_tls(
        pod,
        &ALPN_SERVER,
        &json!({"prefix": format!("spiffe://{TRUST_DOMAIN}/")}),
    );
    json!({"name": "envoy.transport_sockets.tls", "typed_config": config})
}
