//! Envoy's configuration, as far as Istio's sidecars and waypoints have it in common.
//!
//! Shapes and names follow Envoy's v3 API reference, and what Istio's control plane sends.

use std::collections::BTreeMap;

use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::{
    Content, ControlService, Counter, Discovery, HttpMetrics, HttpRule, PROXY_MARK, Place, Pod,
    PodFile, Process, Program, Site, Speaks, certificate_files, spiffe_id,
};

/// An Envoy in a pod, and what it needs there.
pub(crate) fn side(
    site: &Site,
    pod: &Pod,
    role: ComponentRole,
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
        &site.workers.to_string(),
        // Hot restart keeps shared memory in /dev/shm and would outlive the process.
        "--disable-hot-restart",
        // Its warnings at every start would be quoted as last words.
        "--log-level",
        "error",
        // What it says of a connection's peer, in TCP mode, is to be heard soon after its end.
        "--file-flush-interval-msec",
        "200",
    ];
    let process = Process {
        role,
        program: Program::Envoy,
        arguments: arguments.map(String::from).to_vec(),
        environment: BTreeMap::new(),
        place: Place::Pod,
    };
    (files, process)
}

pub(crate) fn bootstrap(pod: &Pod, listeners: &Value, clusters: &Value) -> Value {
    json!({
        "node": {"id": pod.name, "cluster": "meshtax"},
        "admin": {"address": address("127.0.0.1", PORT_ADMIN)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    })
}

/// Which requests of a listener go where.
pub(crate) enum Routes<'a> {
    /// All of them to this cluster.
    All(&'a str),
    /// By the name that they ask for, and its port: to the cluster of that service.
    ByHost(u16, &'a [(String, String)]),
    /// As the control plane says under this name.
    Discovered(&'a str),
}

impl Routes<'_> {
    /// As Istio names them: a service is asked for by its whole name or the first part of it, with its port or
    /// without.
    pub(crate) fn virtual_hosts(&self, direction: &str) -> Vec<Value> {
        let route = |cluster: &str| {
            let mut route = json!({"cluster": cluster, "timeout": "0s"});
            if direction == OUTBOUND {
                route["retry_policy"] = default_retries();
            }
            json!([{"match": {"prefix": "/"}, "route": route}])
        };
        match self {
            Self::All(cluster) => vec![json!({
                "name": format!("{direction}|http"),
                "domains": ["*"],
                "routes": route(cluster),
            })],
            Self::ByHost(port, services) => services
                .iter()
                .map(|(name, cluster)| {
                    let short = name.split('.').next().unwrap_or(name);
                    json!({
                        "name": format!("{name}:{port}"),
                        "domains": [name, format!("{name}:{port}"), short, format!("{short}:{port}")],
                        "routes": route(cluster),
                    })
                })
                .collect(),
            Self::Discovered(_) => Vec::new(),
        }
    }
}

/// What a listener looks its requests up in.
pub(crate) fn route_table(name: &str, virtual_hosts: &[Value]) -> Value {
    json!({"name": name, "validate_clusters": false, "virtual_hosts": virtual_hosts})
}

/// The name of what a client's sidecar does with its application's requests.
pub(crate) const OUTBOUND: &str = "outbound";

/// What Istio's sidecars retry if nothing else is said (Istio 1.24 and later: not an answer of 503).
fn default_retries() -> Value {
    json!({
        "retry_on": "connect-failure,refused-stream,unavailable,cancelled",
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
    speaks: Speaks,
    routes: &Routes<'_>,
    more: Value,
    policy: &[Value],
) -> Value {
    let mut filters = policy.to_vec();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router"),
    }));
    let mut config =
        typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager");
    config["stat_prefix"] = json!(direction);
    if speaks == Speaks::Http2 {
        // By itself it would go by ALPN, where it knows `h2` only.
        config["codec_type"] = json!("HTTP2");
    }
    config["server_name"] = json!("istio-envoy");
    config["normalize_path"] = json!(true);
    config["stream_idle_timeout"] = json!("0s");
    config["http_filters"] = json!(filters);
    match routes {
        Routes::Discovered(name) => {
            config["rds"] = json!({"config_source": discovered(), "route_config_name": name});
        }
        told => config["route_config"] = route_table(direction, &told.virtual_hosts(direction)),
    }
    merge(&mut config, more);
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": config})
}

/// An Istio AuthorizationPolicy of action ALLOW with a principal, a method and paths.
pub(crate) fn http_policy(site: &Site, principal: Value) -> Value {
    let mut config = typed("envoy.extensions.filters.http.rbac.v3.RBAC");
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
    let permissions: Vec<Value> = site.http_rules().iter().map(permission).collect();
    config["rules"] = json!({
        "action": "ALLOW",
        "policies": {"ns[default]-policy[allow-client]-rule[0]": {
            "permissions": permissions,
            "principals": [principal],
        }},
    });
    json!({"name": "envoy.filters.http.rbac", "typed_config": config})
}

/// An Istio AuthorizationPolicy of action ALLOW with a principal only.
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

/// Whoever has one of these service accounts.
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

/// Istio's fields of a request's line, in its order (its documentation, "Default access log format").
const LOGGED: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" \
    %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \
    \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
    %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
    \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% \
    %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% \
    %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// A line for each request, to standard output as Istio's proxies write it: what becomes of it behind that is not the
/// proxy's cost.
pub(crate) fn access_log() -> Value {
    let mut log = typed("envoy.extensions.access_loggers.file.v3.FileAccessLog");
    log["path"] = json!("/dev/stdout");
    log["log_format"] = json!({"text_format_source": {"inline_string": LOGGED}});
    json!([{"name": "envoy.access_loggers.file", "typed_config": log}])
}

/// Where an Envoy counts the lines that it has handed on to be written.
pub(crate) fn lines_logged() -> Counter {
    Counter {
        port: PORT_ADMIN,
        path: "/stats?filter=filesystem.write_buffered".into(),
        series: "filesystem.write_buffered".into(),
    }
}

/// Where a pod's proxy finds its collector of traces: OpenTelemetry's own port.
const PORT_COLLECTOR: u16 = 4317;
const COLLECTOR: &str = "opentelemetry-collector";

/// Spans of a share of the requests, by OpenTelemetry's protocol.
pub(crate) fn tracing(pod: &Pod, share: f64) -> Value {
    let mut tracer = typed("envoy.config.trace.v3.OpenTelemetryConfig");
    tracer["grpc_service"] = json!({"envoy_grpc": {"cluster_name": COLLECTOR}});
    tracer["service_name"] = json!(format!("{}.default", pod.service_account));
    json!({
        "provider": {"name": "envoy.tracers.opentelemetry", "typed_config": tracer},
        "random_sampling": {"value": share * 100.0},
        "client_sampling": {"value": 100.0},
        "overall_sampling": {"value": 100.0},
    })
}

/// The collector's cluster.
pub(crate) fn collector_cluster() -> Value {
    on_loopback(COLLECTOR, PORT_COLLECTOR)
}

/// What serves it.
pub(crate) fn trace_collector() -> ControlService {
    ControlService::TraceCollector {
        port: PORT_COLLECTOR,
    }
}

/// A gRPC service in the pod itself.
fn on_loopback(name: &str, port: u16) -> Value {
    let mut cluster = unbound_cluster(name, "STATIC", Speaks::Http2);
    let at = address("127.0.0.1", port);
    set_endpoints(&mut cluster, &[json!({"endpoint": {"address": at}})]);
    cluster
}

/// Where the control plane tells Envoys what they know, as Istio's agent does in each pod.
const PORT_DISCOVERY: u16 = 15012;
const DISCOVERY: &str = "xds-grpc";

/// From the one stream over which the control plane tells all.
pub(crate) fn discovered() -> Value {
    json!({"ads": {}, "resource_api_version": "V3"})
}

/// Has an Envoy ask the control plane for its clusters.
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

/// What the control plane of an Envoy tells it.
pub(crate) fn discovery(tells: Discovery) -> ControlService {
    ControlService::Discovery {
        port: PORT_DISCOVERY,
        tells,
    }
}

/// Where Istio's proxies have their admin page.
const PORT_ADMIN: u16 = 15000;

/// Where an Envoy counts the answers of its connection managers of this name.
pub(crate) fn http_metrics(role: ComponentRole, manager: &str) -> HttpMetrics {
    HttpMetrics {
        role,
        place: Place::Pod,
        port: PORT_ADMIN,
        path: "/stats?filter=downstream_rq_2xx".into(),
        series: format!("http.{manager}.downstream_rq_2xx"),
    }
}

/// From where a connection comes that no proxy stands before.
pub(crate) const DIRECT: &str = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%";

/// A line for each connection that ended: whose it was, and from where.
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
pub(crate) fn cluster(name: &str, kind: &str, source: &str, speaks: Speaks) -> Value {
    const SOL_SOCKET: i32 = 1;
    const SO_MARK: i32 = 36;
    const UNLIMITED: u32 = u32::MAX;
    let mut protocol = typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
    protocol["explicit_http_config"] = match speaks {
        Speaks::Http2 => json!({"http2_protocol_options": {}}),
        Speaks::Http1 | Speaks::Tcp => json!({"http_protocol_options": {}}),
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
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": protocol,
        },
    })
}

/// The same without a socket of its own to bind, or to keep from being redirected.
pub(crate) fn unbound_cluster(name: &str, kind: &str, speaks: Speaks) -> Value {
    let mut cluster = cluster(name, kind, "0.0.0.0", speaks);
    if let Some(fields) = cluster.as_object_mut() {
        fields.remove("upstream_bind_config");
    }
    cluster
}

/// What a cluster's requests are spread over, as Istio does.
pub(crate) fn set_endpoints(cluster: &mut Value, endpoints: &[Value]) {
    cluster["load_assignment"] = json!({
        "cluster_name": cluster["name"],
        "endpoints": [{"lb_endpoints": endpoints}],
    });
    if endpoints.len() > 1 {
        cluster["lb_policy"] = json!("LEAST_REQUEST");
    }
}

/// One port of all of a service's pods.
pub(crate) fn pod_endpoints<'a>(pods: impl Iterator<Item = &'a Pod>, port: u16) -> Vec<Value> {
    let endpoint =
        |pod: &Pod| json!({"endpoint": {"address": address(&pod.address.to_string(), port)}});
    pods.map(endpoint).collect()
}

pub(crate) fn cluster_passthrough(name: &str, source: &str, speaks: Speaks) -> Value {
    cluster(name, "ORIGINAL_DST", source, speaks)
}

pub(crate) fn common_tls(pod: &Pod, alpn: &[&str], peer: &Value) -> Value {
    let mut context = own_tls(pod, alpn);
    context["validation_context"] = json!({
        "trusted_ca": {"filename": pod.path("root.pem")},
        "match_typed_subject_alt_names": [{"san_type": "URI", "matcher": peer}],
    });
    context
}

/// What one side of a TLS connection shows and takes, without asking who the other one is.
pub(crate) fn own_tls(pod: &Pod, alpn: &[&str]) -> Value {
    json!({
        "tls_params": {
            "tls_minimum_protocol_version": "TLSv1_2",
            "tls_maximum_protocol_version": "TLSv1_3",
            // Envoy's own first choice is X25519MLKEM768, which the other data planes do not all
            // have: equal work means one group for all.
            "ecdh_curves": ["X25519"],
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
