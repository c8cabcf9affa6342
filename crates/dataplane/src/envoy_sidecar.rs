//! `envoy-sidecar` and `istio-sidecar`: two real Envoys, configured as Istio configures its sidecars; the latter are Istio's
//! own build, with its filters (`istio_filters.rs`).
//!
//! The shapes of listeners and clusters (virtual outbound at 15001 with `use_original_dst`,
//! virtual inbound at 15006, ALPN `istio*`, upstream source 127.0.0.6, the exact SPIFFE identity
//! verified by the client, the trust domain by the server) follow Istio's "Understanding Envoy
//! and Istio" and Envoy's v3 API reference.

use std::collections::BTreeMap;

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{Options, PolicyLevel};
use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::blueprint::{Blueprint, Sidecar, ingress, sidecars};
use crate::contract::{Contract, DirectTls};
use crate::control::Discovery;
use crate::emulation::PodBlueprint;
use crate::envoy::{
    DIRECT, OUTBOUND, Routes, address, any_request, asks_for_clusters, bootstrap, cluster,
    cluster_passthrough, common_tls, connection_manager, connection_policy, decorate, discovered,
    discovery, http_metrics, http_policy, left_out, peer_log, permitted_principal,
    permitted_requests, pod_endpoints, route_table, set_endpoints, side, tcp_proxy,
    traffic_counters, typed,
};
use crate::envoy_telemetry::{
    access_log, collector_cluster, lines_logged, sampling, trace_collector, tracing,
};
use crate::extra::{ExtraService, services};
use crate::gateway::gateway_with;
use crate::istio_filters;
use crate::mesh::ProxiedPod;
use crate::names::{PORT_INBOUND, PORT_OUTBOUND, TRUST_DOMAIN, spiffe_id};
use crate::probe::{ClientIdentityFrom, Probe};
use crate::probe_targets::ProbeTargets;
use crate::site::{AppPort, AppProtocol, Pod, Site, SiteService};
use crate::traffic::{Proxied, TrafficCounter, proxied};

/// What the sidecars take the application's first port for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Http,
    Tcp,
}

impl Mode {
    /// What they take this port for.
    fn of(self, port: &AppPort) -> AppProtocol {
        match self {
            Self::Http => port.protocol,
            Self::Tcp => AppProtocol::Tcp,
        }
    }
}

/// Whose build of Envoy the sidecars are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Envoy's own: without Istio's filters.
    Upstream,
    /// Istio's, with its filters.
    Istio,
}

impl Flavour {
    fn program(self) -> Program {
        match self {
            Self::Upstream => Program::Envoy,
            Self::Istio => Program::IstioProxy,
        }
    }

    /// The application protocols that a client's sidecar offers.
    fn offered(self, protocol: AppProtocol) -> Vec<String> {
        let offered = match self {
            Self::Upstream => &[alpn(protocol)],
            Self::Istio => istio_filters::offered(protocol),
        };
        offered.iter().copied().map(String::from).collect()
    }
}

/// What the client's sidecar offers without Istio's ALPN filter.
fn alpn(protocol: AppProtocol) -> &'static str {
    match protocol {
        AppProtocol::Http1 => ALPN_HTTP11,
        AppProtocol::Http2 => "istio-h2",
        AppProtocol::Tcp => "istio",
    }
}

/// The ALPN that Istio's sidecars negotiate with each other instead of `http/1.1`.
const ALPN_HTTP11: &str = "istio-http/1.1";
const ALPN_SERVER: [&str; 5] = [
    "istio-peer-exchange",
    "istio",
    "istio-http/1.0",
    ALPN_HTTP11,
    "istio-h2",
];

pub(crate) fn blueprint(
    site: &Site,
    level: PolicyLevel,
    mode: Mode,
    flavour: Flavour,
) -> Blueprint {
    let identity_from = match mode {
        Mode::Http => ClientIdentityFrom::ForwardedClientCert,
        Mode::Tcp => ClientIdentityFrom::ProxyLog,
    };
    let targets = ProbeTargets {
        // Istio's gateway has no sidecar: it is a proxy of the mesh itself.
        gateway_proxy_port: None,
        ..ProbeTargets::at_sidecars(site, identity_from)
    };
    let holders = targets.holders(site);
    let mut probes = targets.probes(site, level);
    probes.extend(option_probes(site));
    let mut emulation = sidecars(site, |proxied| {
        let mut draft = Draft {
            site,
            level,
            mode,
            discovery: Discovery::default(),
        };
        let config = draft.config(proxied);
        sidecar(site, proxied, flavour, config, draft.discovery)
    });
    if let Some(gateway) = gateway(site, level) {
        emulation.set(gateway);
    }
    let first_protocol = mode.of(&AppPort::http1(site.app_port()));
    Blueprint {
        contract: Contract {
            holders,
            probes,
            direct_tls: DirectTls {
                alpn: flavour.offered(first_protocol),
                ..DirectTls::default()
            },
            http_metrics: Some(http_metrics(ComponentRole::ServerProxy, "inbound")),
            proxy_port: Some(PORT_INBOUND),
            caller_port: Some(PORT_OUTBOUND),
            traffic: traffic(site, mode),
            ingress: ingress(site),
            ..Contract::default()
        },
        emulation,
    }
}

/// The probes of the variant's options.
fn option_probes(site: &Site) -> Vec<Probe> {
    let Options {
        extra_endpoints,
        access_log,
        tracing,
        all_stats,
        ..
    } = &site.options;
    let extra = extra_endpoints.map(|extra| Probe::ExtraEndpoints {
        services: extra.services(),
        endpoints: extra.endpoints,
    });
    let logs = access_log.then(|| Probe::LogsRequests {
        lines: lines_logged(),
    });
    let spans = tracing.map(|_| Probe::SendsSpans);
    let stats = all_stats.then(|| Probe::KeepsAllStats {
        counter: left_out(),
    });
    [extra, logs, spans, stats].into_iter().flatten().collect()
}

/// What the sidecars and the gateway count.
fn traffic(site: &Site, mode: Mode) -> Vec<TrafficCounter> {
    let of = |(role, workload, _): Proxied<'_>| {
        let direction = match role {
            ComponentRole::ServerProxy => "inbound",
            _ => OUTBOUND,
        };
        let responses = traffic_counters(role, workload, direction);
        let all = responses.into_iter();
        all.filter(|counter| mode == Mode::Http || counter.unit == TrafficUnit::Bytes)
            .collect::<Vec<_>>()
    };
    proxied(site).into_iter().flat_map(of).collect()
}

/// A sidecar with this configuration, and what its control plane tells it.
fn sidecar(
    site: &Site,
    proxied: &ProxiedPod<'_>,
    flavour: Flavour,
    mut config: Value,
    mut discovered: Discovery,
) -> Sidecar {
    if flavour == Flavour::Istio {
        istio_filters::add(&mut config, &mut discovered, site, proxied.pod);
    }
    let role = match proxied.callers {
        None => ComponentRole::ClientProxy,
        Some(_) => ComponentRole::ServerProxy,
    };
    let (files, process) = side(site, proxied.pod, role, flavour.program(), &config);
    let extra = site.options.extra_endpoints;
    let resources = extra.map(|_| discovery(discovered));
    let collector = site.options.tracing.map(|_| trace_collector());
    Sidecar {
        files,
        control: resources.into_iter().chain(collector).collect(),
        processes: vec![process],
    }
}

/// Istio's gateway: what it sends on, it encrypts as a sidecar does. Whatever the sidecars' flavour, it is upstream Envoy:
/// every variant has the same gateway.
fn gateway(site: &Site, level: PolicyLevel) -> Option<PodBlueprint> {
    let proxied = site.proxied_gateway()?;
    let callee = proxied.callees.first()?;
    let port = site.app_port();
    let name = outbound(port, &callee.dns_name());
    let http1 = AppProtocol::Http1;
    let cluster = to_service(proxied.pod, callee, level, &name, port, http1);
    Some(gateway_with(site, proxied.pod, &cluster))
}

/// One sidecar, as its configuration is put together.
struct Draft<'a> {
    site: &'a Site,
    level: PolicyLevel,
    mode: Mode,
    /// The resources that come from the control plane instead of its own file.
    discovery: Discovery,
}

impl Draft<'_> {
    /// For outbound calls, inbound calls, or both; and for the extra endpoints.
    fn config(&mut self, proxied: &ProxiedPod<'_>) -> Value {
        let (mut listeners, mut clusters) = (Vec::new(), Vec::new());
        if !proxied.callees.is_empty() || self.site.options.extra_endpoints.is_some() {
            self.outbound(proxied, &mut listeners, &mut clusters);
        }
        if let Some(callers) = &proxied.callers {
            let served = Served {
                pod: proxied.pod,
                callers,
                level: self.level,
            };
            inbound(self.site, &served, self.mode, &mut listeners, &mut clusters);
        }
        if self.site.options.tracing.is_some() {
            clusters.push(collector_cluster());
        }
        let mut bootstrap = bootstrap(self.site, proxied.pod, &json!(listeners), &json!(clusters));
        if self.site.options.extra_endpoints.is_some() {
            asks_for_clusters(&mut bootstrap);
        }
        bootstrap
    }

    fn outbound(
        &mut self,
        proxied: &ProxiedPod<'_>,
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
        let mut by_port: BTreeMap<u16, Vec<(&SiteService, AppProtocol)>> = BTreeMap::new();
        for callee in &proxied.callees {
            for port in &callee.ports {
                let callees = by_port.entry(port.number).or_default();
                callees.push((callee, self.mode.of(port)));
            }
        }
        let known = services(self.site.options.extra_endpoints);
        if !known.is_empty() {
            // What is known has the first port of the application: one table of routes, as in Istio.
            by_port.entry(self.site.app_port()).or_default();
        }
        for (port, callees) in by_port {
            let mut hosts = Vec::new();
            for (callee, protocol) in &callees {
                let host = callee.dns_name();
                let name = outbound(port, &host);
                clusters.push(to_service(
                    proxied.pod,
                    callee,
                    self.level,
                    &name,
                    port,
                    *protocol,
                ));
                hosts.push((host, name));
            }
            let protocol = callees
                .first()
                .map_or(AppProtocol::Http1, |(_, protocol)| *protocol);
            let known = match port == self.site.app_port() {
                true => known.as_slice(),
                false => &[],
            };
            let calls = self.calls_at(proxied.pod, port, &hosts, protocol, known);
            listeners.push(outbound_listener(port, protocol, &calls));
        }
        let mut passthrough =
            cluster_passthrough("PassthroughCluster", "0.0.0.0", AppProtocol::Tcp);
        passthrough["lb_policy"] = json!("CLUSTER_PROVIDED");
        clusters.push(passthrough);
    }

    /// What is done with calls to one port: of `hosts`, each with its cluster, and of what is `known` there.
    fn calls_at(
        &mut self,
        pod: &Pod,
        port: u16,
        hosts: &[(String, String)],
        protocol: AppProtocol,
        known: &[ExtraService],
    ) -> Value {
        let routes = match (hosts, protocol) {
            ([(_, only), ..], AppProtocol::Tcp) => return tcp_proxy(only, only),
            ([(_, only)], _) => Routes::All(only),
            (several, _) => Routes::ByHost(port, several),
        };
        let more = observed(self.site, pod);
        if known.is_empty() {
            return connection_manager(OUTBOUND, protocol, &routes, more, &[]);
        }
        let (mut clusters, mut hosts) = (Vec::new(), Vec::new());
        for service in known {
            let host = service.dns_name();
            let name = outbound(port, &host);
            clusters.push(to_known(pod, service, self.level, &name, port));
            self.discovery
                .endpoints
                .push(assigned(service, &name, port));
            hosts.push((host, name));
        }
        let mut table = Routes::ByHost(port, &hosts).virtual_hosts(OUTBOUND);
        table.extend(routes.virtual_hosts(OUTBOUND));
        decorate(&mut table);
        let name = port.to_string();
        self.discovery.clusters.extend(clusters);
        self.discovery.routes.push(route_table(&name, &table));
        self.discovery.changes_per_s = self
            .site
            .options
            .extra_endpoints
            .and_then(|k| k.changes_per_s);
        connection_manager(OUTBOUND, protocol, &Routes::Discovered(&name), more, &[])
    }
}

/// A listener for calls to one port: what is not HTTP on a port for HTTP passes through.
fn outbound_listener(port: u16, protocol: AppProtocol, calls: &Value) -> Value {
    let mut listener = json!({
        "name": format!("0.0.0.0_{port}"),
        "traffic_direction": "OUTBOUND",
        "address": address("0.0.0.0", port),
        "bind_to_port": false,
        "filter_chains": [{"filters": [calls]}],
    });
    if protocol != AppProtocol::Tcp {
        listener["filter_chains"][0]["filter_chain_match"] = json!({
            "transport_protocol": "raw_buffer",
            "application_protocols": ["http/1.1", "h2c"],
        });
        listener["listener_filters"] = json!([http_inspector()]);
        listener["listener_filters_timeout"] = json!("0s");
        listener["continue_on_listener_filters_timeout"] = json!(true);
        let passed_through = tcp_proxy("PassthroughCluster", "PassthroughCluster");
        listener["default_filter_chain"] = json!({"filters": [passed_through]});
    }
    listener
}

fn http_inspector() -> Value {
    json!({
        "name": "envoy.filters.listener.http_inspector",
        "typed_config": typed("envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"),
    })
}

/// The name of a cluster.
fn outbound(port: u16, host: &str) -> String {
    format!("outbound|{port}||{host}")
}

/// A connection manager's settings for what is logged and traced.
fn observed(site: &Site, pod: &Pod) -> Value {
    let mut more = json!({});
    if site.options.access_log {
        more["access_log"] = access_log();
    }
    more["tracing"] = match site.options.tracing {
        Some(share) => tracing(pod, share),
        None => sampling(pod),
    };
    more
}

/// The cluster of an extra service: like that of a called one, but with its endpoints sent separately (EDS).
fn to_known(pod: &Pod, service: &ExtraService, level: PolicyLevel, name: &str, port: u16) -> Value {
    let mut cluster = cluster(name, "EDS", "0.0.0.0", AppProtocol::Http1);
    cluster["eds_cluster_config"] = json!({"eds_config": discovered()});
    cluster["lb_policy"] = json!("LEAST_REQUEST");
    if level >= PolicyLevel::Mtls {
        let peer = Peer {
            host: &service.dns_name(),
            service_account: &service.name,
        };
        cluster["transport_socket"] = upstream_tls(pod, &peer, port, AppProtocol::Http1);
    }
    cluster
}

/// Its endpoints.
fn assigned(service: &ExtraService, cluster: &str, port: u16) -> Value {
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
    callee: &SiteService,
    level: PolicyLevel,
    name: &str,
    port: u16,
    protocol: AppProtocol,
) -> Value {
    let mut cluster = cluster(name, "STATIC", "0.0.0.0", protocol);
    set_endpoints(&mut cluster, &pod_endpoints(&callee.pods, port));
    if level >= PolicyLevel::Mtls {
        let peer = Peer {
            host: &callee.dns_name(),
            service_account: callee.service_account(),
        };
        cluster["transport_socket"] = upstream_tls(pod, &peer, port, protocol);
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

impl Served<'_> {
    fn principal(&self) -> Value {
        permitted_principal(self.callers)
    }
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
        let protocol = mode.of(port);
        let name = format!("inbound|{}||", port.number);
        chains.push(inbound_chain(site, served, &name, port.number, protocol));
        let mut to_app = cluster_passthrough(&name, "127.0.0.6", protocol);
        to_app["lb_policy"] = json!("CLUSTER_PROVIDED");
        clusters.push(to_app);
    }
    let mut tls_inspector =
        typed("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector");
    tls_inspector["initial_read_buffer_size"] = json!(512);
    let mut listener_filters = vec![
        json!({
            "name": "envoy.filters.listener.original_dst",
            "typed_config": typed("envoy.extensions.filters.listener.original_dst.v3.OriginalDst"),
        }),
        json!({"name": "envoy.filters.listener.tls_inspector", "typed_config": tls_inspector}),
    ];
    if served.level == PolicyLevel::Plaintext {
        // Under STRICT, istiod matches TLS only, and inspects no further.
        listener_filters.push(http_inspector());
    }
    listeners.push(json!({
        "name": "virtualInbound",
        "traffic_direction": "INBOUND",
        "address": address("0.0.0.0", PORT_INBOUND),
        "listener_filters": listener_filters,
        "listener_filters_timeout": "0s",
        "continue_on_listener_filters_timeout": true,
        "max_connections_to_accept_per_socket_event": 1,
        "filter_chains": chains,
    }));
}

/// What is done with connections to one port of the application.
fn inbound_chain(
    site: &Site,
    served: &Served<'_>,
    cluster: &str,
    port: u16,
    protocol: AppProtocol,
) -> Value {
    // istiod turns a policy into a filter of requests wherever the port is one for HTTP, even if it names no part of a
    // request.
    let filters = match protocol {
        AppProtocol::Tcp => inbound_tcp(served, cluster),
        _ => vec![inbound_http(site, served, cluster, protocol)],
    };
    let mut chain = json!({
        "filter_chain_match": {"destination_port": port},
        "filters": filters,
    });
    if served.level >= PolicyLevel::Mtls {
        // Whatever is not the mesh's TLS matches no chain, and is closed: Istio's STRICT mode.
        chain["filter_chain_match"]["transport_protocol"] = json!("tls");
        chain["filter_chain_match"]["application_protocols"] = json!(ALPN_SERVER);
        chain["transport_socket"] = downstream_tls(served.pod);
    }
    chain
}

fn inbound_http(site: &Site, served: &Served<'_>, cluster: &str, protocol: AppProtocol) -> Value {
    let permitted = match served.level {
        PolicyLevel::Plaintext | PolicyLevel::Mtls => None,
        PolicyLevel::L4 => Some(any_request()),
        PolicyLevel::L7 => Some(permitted_requests(site)),
    };
    let rules = permitted.map(|requests| http_policy(&requests, served.principal()));
    let mut more = observed(site, served.pod);
    more["forward_client_cert_details"] = json!("APPEND_FORWARD");
    more["set_current_client_cert_details"] = json!({"subject": true, "dns": true, "uri": true});
    let routes = Routes::All(cluster);
    connection_manager("inbound", protocol, &routes, more, rules.as_slice())
}

/// The peer's identity is available in the log only: no header can pass it to the application.
fn inbound_tcp(served: &Served<'_>, cluster: &str) -> Vec<Value> {
    let mut proxy = tcp_proxy(cluster, cluster);
    proxy["typed_config"]["access_log"] = peer_log("%DOWNSTREAM_PEER_URI_SAN%", DIRECT);
    let has_policy = served.level >= PolicyLevel::L4;
    let rules = has_policy.then(|| connection_policy(&served.principal()));
    rules.into_iter().chain([proxy]).collect()
}

/// The server identity that a client's sidecar expects.
struct Peer<'a> {
    host: &'a str,
    service_account: &'a str,
}

fn upstream_tls(pod: &Pod, peer: &Peer<'_>, port: u16, protocol: AppProtocol) -> Value {
    let mut config = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    config["sni"] = json!(format!("outbound_.{port}_._.{}", peer.host));
    config["common_tls_context"] = common_tls(
        pod,
        &[alpn(protocol)],
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
