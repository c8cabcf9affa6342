//! Envoy configuration shared by Istio's sidecars and waypoints.
//!
//! Shapes and names follow Envoy's v3 API reference, and what Istio's control plane sends.

use std::collections::BTreeMap;

use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::contract::HttpMetrics;
use crate::control::{ControlService, Discovery};
use crate::emulation::{Content, PodFile, Process, certificate_files};
use crate::names::{PROXY_MARK, spiffe_id};
use crate::probe::Counter;
use crate::scope::ProcessScope;
use crate::site::{AppProtocol, HttpRule, Pod, Site};
use crate::traffic::TrafficCounter;
use meshtax_model::catalogue::Program;

/// An Envoy in a pod, of one build or another, and what it needs there.
pub(crate) fn side(
    site: &Site,
    pod: &Pod,
    role: ComponentRole,
    program: Program,
    config: &Value,
) -> (Vec<PodFile>, Process) {
    let mut files = certificate_files(&pod.identity());
    files.push(PodFile {
        name: "envoy.json".into(),
        content: Content::Text(serde_json::to_string_pretty(config).unwrap_or_default()),
    });
    let arguments = [
        "--config-path",
        &pod.path("envoy.json"),
        "--concurrency",
        &site.workers_of(program).to_string(),
        // Hot restart keeps shared memory in /dev/shm and would outlive the process.
        "--disable-hot-restart",
        // Envoy warns at every start; these lines would be quoted as the cause of a failure.
        "--log-level",
        "error",
        // In TCP mode, the log line about a connection's peer must be flushed soon after its end.
        "--file-flush-interval-msec",
        "200",
    ];
    let process = Process {
        role,
        program,
        arguments: arguments.map(String::from).to_vec(),
        environment: BTreeMap::new(),
        scope: ProcessScope::Pod,
    };
    (files, process)
}

pub(crate) fn bootstrap(site: &Site, pod: &Pod, listeners: &Value, clusters: &Value) -> Value {
    let mut bootstrap = json!({
        "node": {"id": pod.name, "cluster": "meshtax"},
        "admin": {"address": address("127.0.0.1", PORT_ADMIN)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    });
    if !site.options.all_stats {
        merge(&mut bootstrap, istio_stats());
    }
    let runtime = site.runtime_keys();
    if !runtime.is_empty() {
        // envoy.config.bootstrap.v3.LayeredRuntime; the admin interface reports the result at /runtime.
        bootstrap["layered_runtime"] =
            json!({"layers": [{"name": "variant", "static_layer": runtime_layer(&runtime)}]});
    }
    bootstrap
}

/// Switches and numbers as such, so that Envoy takes them for what they are.
fn runtime_layer(switches: &BTreeMap<&str, &str>) -> Value {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let all = switches.iter();
    all.map(|(key, text)| ((*key).to_owned(), value(text)))
        .collect()
}

/// The statistics that Istio's bootstrap keeps (its `pkg/bootstrap/config.go`); a cluster's are created when it is used.
/// Envoy's default is all of them.
fn istio_stats() -> Value {
    const PREFIXES: [&str; 7] = [
        "reporter=",
        "cluster_manager",
        "listener_manager",
        "server",
        "cluster.xds-grpc",
        "wasm",
        "component",
    ];
    const SUFFIXES: [&str; 4] = [
        "rbac.allowed",
        "rbac.denied",
        "shadow_allowed",
        "shadow_denied",
    ];
    // Not Istio's: what the evidence reads.
    const READ: [&str; 3] = [RESPONSES_2XX, SENT_BYTES, LINES_LOGGED];
    let prefixes = PREFIXES.map(|prefix| json!({"prefix": prefix}));
    let suffixes = SUFFIXES.iter().chain(&READ);
    let suffixes = suffixes.map(|suffix| json!({"suffix": suffix}));
    let routes = json!({"safe_regex": {"regex": r"vhost\.*\.route\.*"}});
    let patterns: Vec<Value> = prefixes
        .into_iter()
        .chain(suffixes)
        .chain([routes])
        .collect();
    json!({
        "stats_config": {
            "use_all_default_tags": false,
            "stats_matcher": {"inclusion_list": {"patterns": patterns}},
        },
        "deferred_stat_options": {"enable_deferred_creation_stats": true},
    })
}

/// Which requests of a listener go where.
pub(crate) enum Routes<'a> {
    /// All of them to this cluster.
    All(&'a str),
    /// By the requested host name and port: to the cluster of that service.
    ByHost(u16, &'a [(String, String)]),
    /// From the control plane, under this name.
    Discovered(&'a str),
}

impl Routes<'_> {
    /// As in Istio: a service can be requested by its full name or its first label, with or without
    /// the port.
    pub(crate) fn virtual_hosts(&self, direction: &str) -> Vec<Value> {
        let host = |name: String, domains: Value, cluster: &str| {
            let mut host =
                json!({"name": name, "domains": domains, "routes": [route(direction, cluster)]});
            if direction == OUTBOUND {
                host["include_request_attempt_count"] = json!(true);
            }
            host
        };
        match self {
            Self::All(cluster) => vec![host(format!("{direction}|http"), json!(["*"]), cluster)],
            Self::ByHost(port, services) => services
                .iter()
                .map(|(name, cluster)| {
                    let short = name.split('.').next().unwrap_or(name);
                    let domains = json!([
                        name,
                        format!("{name}:{port}"),
                        short,
                        format!("{short}:{port}")
                    ]);
                    host(format!("{name}:{port}"), domains, cluster)
                })
                .collect(),
            Self::Discovered(_) => Vec::new(),
        }
    }
}

/// The route of all requests to a cluster, as istiod sends it.
fn route(direction: &str, cluster: &str) -> Value {
    let mut action = json!({"cluster": cluster, "timeout": "0s"});
    match direction {
        OUTBOUND => {
            action["retry_policy"] = outbound_retries();
            action["max_grpc_timeout"] = json!("0s");
        }
        _ => {
            action["retry_policy"] = inbound_retries();
            action["max_stream_duration"] =
                json!({"max_stream_duration": "0s", "grpc_timeout_header_max": "0s"});
        }
    }
    json!({"name": "default", "match": {"prefix": "/"}, "route": action})
}

/// Names the operation of each route, which sidecars pass on in a header: service and port, from the name of the cluster
/// (`DIRECTION|PORT|SUBSET|HOST`).
pub(crate) fn decorate(virtual_hosts: &mut [Value]) {
    let routes = virtual_hosts
        .iter_mut()
        .filter_map(|host| host["routes"].as_array_mut());
    for route in routes.flatten() {
        let cluster = route["route"]["cluster"].as_str().unwrap_or_default();
        let parts: Vec<&str> = cluster.split('|').collect();
        if let [_, port, _, host] = parts.as_slice() {
            route["decorator"] = json!({"operation": format!("{host}:{port}/*")});
        }
    }
}

/// The routing table of a listener.
pub(crate) fn route_table(name: &str, virtual_hosts: &[Value]) -> Value {
    json!({"name": name, "validate_clusters": false, "virtual_hosts": virtual_hosts})
}

/// The operation name for outbound requests of a client's sidecar.
pub(crate) const OUTBOUND: &str = "outbound";

/// What Istio's sidecars retry by default (Istio 1.24 and later).
fn inbound_retries() -> Value {
    json!({"retry_on": "reset-before-request", "num_retries": 2})
}

/// The same towards other pods: not a 503.
fn outbound_retries() -> Value {
    json!({
        "retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
        "num_retries": 2,
        "retry_host_predicate": [{
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": typed("envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
        }],
        "host_selection_retry_max_attempts": 5,
    })
}

pub(crate) fn connection_manager(
    direction: &str,
    protocol: AppProtocol,
    routes: &Routes<'_>,
    more: Value,
    policy: &[Value],
) -> Value {
    let filters: Vec<Value> = policy.iter().cloned().chain(usual_filters()).collect();
    let mut config =
        typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager");
    config["stat_prefix"] = json!(direction);
    if protocol == AppProtocol::Http2 {
        // By default it would use ALPN, where it supports `h2` only.
        config["codec_type"] = json!("HTTP2");
    }
    if direction != OUTBOUND {
        config["server_name"] = json!("istio-envoy");
    }
    config["normalize_path"] = json!(true);
    config["path_with_escaped_slashes_action"] = json!("KEEP_UNCHANGED");
    config["proxy_100_continue"] = json!(true);
    config["stream_idle_timeout"] = json!("0s");
    config["http_filters"] = json!(filters);
    match routes {
        Routes::Discovered(name) => {
            config["rds"] = json!({"config_source": discovered(), "route_config_name": name});
        }
        routes => {
            let mut hosts = routes.virtual_hosts(direction);
            if more.get("tracing").is_some() {
                decorate(&mut hosts);
            }
            config["route_config"] = route_table(direction, &hosts);
        }
    }
    merge(&mut config, more);
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": config})
}

/// The filters that end every chain for requests in Istio, apart from its own.
fn usual_filters() -> [Value; 4] {
    let mut grpc_stats = typed("envoy.extensions.filters.http.grpc_stats.v3.FilterConfig");
    grpc_stats["emit_filter_state"] = json!(true);
    grpc_stats["stats_for_all_methods"] = json!(false);
    [
        json!({"name": "envoy.filters.http.grpc_stats", "typed_config": grpc_stats}),
        json!({
            "name": "envoy.filters.http.fault",
            "typed_config": typed("envoy.extensions.filters.http.fault.v3.HTTPFault"),
        }),
        json!({
            "name": "envoy.filters.http.cors",
            "typed_config": typed("envoy.extensions.filters.http.cors.v3.Cors"),
        }),
        router(),
    ]
}

pub(crate) fn router() -> Value {
    json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router"),
    })
}

/// The requests that an Istio AuthorizationPolicy without methods and paths permits.
pub(crate) fn any_request() -> Vec<Value> {
    vec![json!({"and_rules": {"rules": [{"any": true}]}})]
}

/// The requests that one with the site's methods and paths permits.
pub(crate) fn permitted_requests(site: &Site) -> Vec<Value> {
    let path = |kind: &str, path: &String| json!({"url_path": {"path": {kind: path}}});
    let permission = |rule: &HttpRule| {
        let prefixes = rule.prefixes.iter().map(|prefix| path("prefix", prefix));
        let exact = rule.exact.iter().map(|whole| path("exact", whole));
        let paths: Vec<Value> = prefixes.chain(exact).collect();
        json!({"and_rules": {"rules": [
            {"or_rules": {"rules": [
                {"header": {"name": ":method", "string_match": {"exact": rule.method}}},
            ]}},
            {"or_rules": {"rules": paths}},
        ]}})
    };
    site.http_rules().iter().map(permission).collect()
}

/// An Istio AuthorizationPolicy of action ALLOW, on a port for HTTP: applied to each request.
pub(crate) fn http_policy(permissions: &[Value], principal: Value) -> Value {
    let mut config = typed("envoy.extensions.filters.http.rbac.v3.RBAC");
    config["rules"] = json!({
        "action": "ALLOW",
        "policies": {"ns[default]-policy[allow-client]-rule[0]": {
            "permissions": permissions,
            "principals": [principal],
        }},
    });
    json!({"name": "envoy.filters.http.rbac", "typed_config": config})
}

/// The same on a TCP port, with a principal only: applied to each connection.
pub(crate) fn connection_policy(principal: &Value) -> Value {
    let mut config = typed("envoy.extensions.filters.network.rbac.v3.RBAC");
    config["stat_prefix"] = json!("tcp.");
    config["rules"] = json!({
        "action": "ALLOW",
        "policies": {"ns[default]-policy[allow-client]-rule[0]": {
            "permissions": [{"any": true}],
            "principals": [principal],
        }},
    });
    json!({"name": "envoy.filters.network.rbac", "typed_config": config})
}

/// Any of these service accounts.
pub(crate) fn permitted_principal(callers: &[&str]) -> Value {
    let is =
        |caller: &&str| json!({"authenticated": {"principal_name": {"exact": spiffe_id(caller)}}});
    match callers {
        [only] => json!({"and_ids": {"ids": [is(only)]}}),
        several => {
            let ids: Vec<Value> = several.iter().map(is).collect();
            json!({"and_ids": {"ids": [{"or_ids": {"ids": ids}}]}})
        }
    }
}

/// A gRPC service in the same pod.
pub(crate) fn on_loopback(name: &str, port: u16) -> Value {
    let mut cluster = unbound_cluster(name, "STATIC", AppProtocol::Http2);
    let at = address("127.0.0.1", port);
    set_endpoints(&mut cluster, &[json!({"endpoint": {"address": at}})]);
    cluster
}

/// The address at which Envoys reach the control plane: as with Istio's agent, in their own pod.
const PORT_DISCOVERY: u16 = 15012;
const DISCOVERY: &str = "xds-grpc";

/// Configuration source: the aggregated discovery stream.
pub(crate) fn discovered() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

/// Makes an Envoy fetch its clusters from the control plane.
pub(crate) fn asks_for_clusters(bootstrap: &mut Value) {
    bootstrap["dynamic_resources"] = json!({
        "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": DISCOVERY}}],
        },
        "cds_config": discovered(),
    });
    if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        clusters.push(on_loopback(DISCOVERY, PORT_DISCOVERY));
    }
}

/// The discovery service of an Envoy.
pub(crate) fn discovery(tells: Discovery) -> ControlService {
    ControlService::Discovery {
        port: PORT_DISCOVERY,
        tells,
    }
}

/// The port of the admin interface of Istio's proxies.
pub(crate) const PORT_ADMIN: u16 = 15000;

/// A statistic of every Envoy that Istio's bootstrap leaves out.
pub(crate) fn left_out() -> Counter {
    Counter {
        port: PORT_ADMIN,
        path: "/stats?filter=http.admin.downstream_cx_total".into(),
        series: "http.admin.downstream_cx_total".into(),
    }
}

const RESPONSES_2XX: &str = "downstream_rq_2xx";

/// Access log lines written.
pub(crate) const LINES_LOGGED: &str = "filesystem.write_buffered";

const SENT_BYTES: &str = "downstream_cx_tx_bytes_total";

/// The Envoy statistic of responses of the connection managers with this name.
pub(crate) fn http_metrics(role: ComponentRole, manager: &str) -> HttpMetrics {
    HttpMetrics {
        role,
        scope: ProcessScope::Pod,
        port: PORT_ADMIN,
        path: format!("/stats?filter={RESPONSES_2XX}"),
        // Istio appends an address to the manager's name.
        series: format!("http.{manager}"),
    }
}

/// What an Envoy counts in its connection managers and its TCP proxies of one direction.
pub(crate) fn traffic_counters(
    role: ComponentRole,
    workload: &str,
    direction: &str,
) -> [TrafficCounter; 2] {
    let page = |unit, statistic: &str, series| TrafficCounter {
        role,
        workload: workload.to_owned(),
        unit,
        scope: ProcessScope::Pod,
        counter: Counter {
            port: PORT_ADMIN,
            path: format!("/stats?filter={statistic}"),
            series,
        },
        with: vec![format!(".{statistic}: ")],
    };
    // Connection managers have this prefix here; in Istio, their address follows: `http.inbound_0.0.0.0_8080;.`.
    let http = format!("http.{direction}");
    // TCP proxies are named after their clusters.
    let tcp = format!("tcp.{direction}|");
    [
        page(TrafficUnit::Responses, RESPONSES_2XX, http),
        page(TrafficUnit::Bytes, SENT_BYTES, tcp),
    ]
}

/// The source of a connection without a proxy in front.
pub(crate) const DIRECT: &str = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%";

/// Logs a line per closed connection: the peer's identity and address.
pub(crate) fn peer_log(identity: &str, from: &str) -> Value {
    let mut log = typed("envoy.extensions.access_loggers.stream.v3.StderrAccessLog");
    log["log_format"] = json!({"text_format_source": {"inline_string": format!(
        "peer {identity} from {from}\n"
    )}});
    json!([{"name": "envoy.access_loggers.stderr", "typed_config": log}])
}

pub(crate) fn tcp_proxy(stat_prefix: &str, cluster: &str) -> Value {
    let mut config = typed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy");
    config["stat_prefix"] = json!(stat_prefix);
    config["cluster"] = json!(cluster);
    json!({"name": "envoy.filters.network.tcp_proxy", "typed_config": config})
}

/// A cluster with Istio's defaults whose connections carry the proxy's mark.
pub(crate) fn cluster(name: &str, kind: &str, source: &str, protocol: AppProtocol) -> Value {
    const SOL_SOCKET: i32 = 1;
    const SO_MARK: i32 = 36;
    const UNLIMITED: u32 = u32::MAX;
    let mut options = typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
    options["explicit_http_config"] = match protocol {
        AppProtocol::Http2 => json!({"http2_protocol_options": {}}),
        AppProtocol::Http1 | AppProtocol::Tcp => json!({"http_protocol_options": {}}),
    };
    json!({
        "name": name,
        "type": kind,
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [{
            "max_connections": UNLIMITED,
            "max_pending_requests": UNLIMITED,
            "max_requests": UNLIMITED,
            "max_retries": UNLIMITED,
        }]},
        "upstream_bind_config": {
            "source_address": {"address": source, "port_value": 0},
            "socket_options": [{
                "level": SOL_SOCKET,
                "name": SO_MARK,
                "int_value": PROXY_MARK,
                "state": "STATE_PREBIND",
            }],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
        },
    })
}

/// The same without upstream bind configuration or mark.
pub(crate) fn unbound_cluster(name: &str, kind: &str, protocol: AppProtocol) -> Value {
    let mut cluster = cluster(name, kind, "0.0.0.0", protocol);
    if let Some(fields) = cluster.as_object_mut() {
        fields.remove("upstream_bind_config");
    }
    cluster
}

/// Load balancing over a cluster's endpoints, as in Istio.
pub(crate) fn set_endpoints(cluster: &mut Value, endpoints: &[Value]) {
    cluster["load_assignment"] = json!({
        "cluster_name": cluster["name"],
        "endpoints": [{"lb_endpoints": endpoints}],
    });
    cluster["lb_policy"] = json!("LEAST_REQUEST");
}

/// One port on all pods of a service.
pub(crate) fn pod_endpoints(pods: &[Pod], port: u16) -> Vec<Value> {
    let endpoint =
        |pod: &Pod| json!({"endpoint": {"address": address(&pod.address.to_string(), port)}});
    pods.iter().map(endpoint).collect()
}

pub(crate) fn cluster_passthrough(name: &str, source: &str, protocol: AppProtocol) -> Value {
    cluster(name, "ORIGINAL_DST", source, protocol)
}

pub(crate) fn common_tls(pod: &Pod, alpn: &[&str], peer: &Value) -> Value {
    let mut context = own_tls(pod, alpn);
    context["validation_context"] = json!({
        "trusted_ca": {"filename": pod.path("root.pem")},
        "match_typed_subject_alt_names": [{"san_type": "URI", "matcher": peer}],
    });
    context
}

/// The TLS parameters of one side of a connection, without verification of the peer.
pub(crate) fn own_tls(pod: &Pod, alpn: &[&str]) -> Value {
    json!({
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_2",
            "tls_maximum_protocol_version": "TLSv1_3",
        },
        "alpn_protocols": alpn,
        "tls_certificates": [{
            "certificate_chain": {"filename": pod.path("chain.pem")},
            "private_key": {"filename": pod.path("key.pem")},
        }],
    })
}

pub(crate) fn address(address: &str, port: u16) -> Value {
    json!({"socket_address": {"address": address, "port_value": port}})
}

pub(crate) fn typed(name: &str) -> Value {
    json!({"@type": format!("type.googleapis.com/{name}")})
}

pub(crate) fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
