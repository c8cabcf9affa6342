//! `envoy-sidecar`: two real Envoys, configured as Istio configures its sidecars.
//!
//! The shapes of listeners and clusters (virtual outbound at 15001 with `use_original_dst`,
//! virtual inbound at 15006, ALPN `istio*`, upstream source 127.0.0.6, the exact SPIFFE identity
//! verified by the client, the trust domain by the server) follow Istio's "Understanding Envoy
//! and Istio" and Envoy's v3 API reference.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::{
    ALLOWED_PATH, Blueprint, ClientIdentityFrom, Content, DataPlane, DirectTls, ECHO_PATH, Looks,
    PORT_INBOUND, PORT_OUTBOUND, PROXY_MARK, Place, Pod, PodFile, Process, Program, Site,
    TRUST_DOMAIN, certificate_files,
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
    needs: Some(Program::Envoy),
    note: Some(
        "upstream Envoy without Istio's own stats, ALPN and metadata-exchange filters: \
         Istio's proxy image may cost more",
    ),
    build: |site, level| blueprint(site, level, Mode::Http),
};

pub(crate) const TCP: DataPlane = DataPlane {
    name: "envoy-sidecar-tcp",
    levels: &[PolicyLevel::Plaintext, PolicyLevel::Mtls, PolicyLevel::L4],
    summary: "the same Envoys with the port declared TCP: they parse no HTTP; stands for Istio sidecar, port `tcp-...`",
    needs: Some(Program::Envoy),
    note: Some(
        "no HTTP metrics, retries or balancing per request: what is left of a sidecar when it only \
         encrypts and authorises connections",
    ),
    build: |site, level| blueprint(site, level, Mode::Tcp),
};

/// What the sidecars take the application's port for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Http,
    Tcp,
}

impl Mode {
    /// What the client's sidecar offers.
    fn alpn(self) -> &'static str {
        match self {
            Self::Http => ALPN_HTTP11,
            Self::Tcp => "istio",
        }
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
    let client = side(
        site,
        &site.client,
        ComponentRole::ClientProxy,
        &outbound(site, level, mode),
    );
    let server = side(
        site,
        &site.server,
        ComponentRole::ServerProxy,
        &inbound(site, level, mode),
    );
    let identity_from = match mode {
        Mode::Http => ClientIdentityFrom::ForwardedClientCert,
        Mode::Tcp => ClientIdentityFrom::ProxyLog,
    };
    Blueprint {
        probes: Looks::at_sidecars(site, identity_from).probes(site, level),
        direct_tls: DirectTls {
            alpn: vec![mode.alpn().into()],
            ..DirectTls::default()
        },
        ..Blueprint::sidecars(client, server)
    }
}

fn side(site: &Site, pod: &Pod, role: ComponentRole, config: &Value) -> (Vec<PodFile>, Process) {
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

fn bootstrap(pod: &Pod, listeners: &Value, clusters: &Value) -> Value {
    json!({
        "node": {"id": pod.service_account, "cluster": "meshtax"},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    })
}

fn outbound(site: &Site, level: PolicyLevel, mode: Mode) -> Value {
    let name = format!(
        "outbound|{}||server.default.svc.{TRUST_DOMAIN}",
        site.app_port
    );
    let handler = match mode {
        Mode::Http => connection_manager("outbound", &name, json!({}), &[]),
        Mode::Tcp => tcp_proxy(&name, &name),
    };
    let listeners = json!([
        {
            "name": "virtualOutbound",
            "traffic_direction": "OUTBOUND",
            "address": address("0.0.0.0", PORT_OUTBOUND),
            "use_original_dst": true,
            "filter_chains": [{"filters": [tcp_proxy("PassthroughCluster", "PassthroughCluster")]}],
        },
        {
            "name": format!("0.0.0.0_{}", site.app_port),
            "traffic_direction": "OUTBOUND",
            "address": address("0.0.0.0", site.app_port),
            "bind_to_port": false,
            "filter_chains": [{"filters": [handler]}],
        },
    ]);
    let mut cluster = cluster(&name, "STATIC", "0.0.0.0");
    cluster["load_assignment"] = json!({
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": address(&site.server.address.to_string(), site.app_port)},
        }]}],
    });
    if level >= PolicyLevel::Mtls {
        cluster["transport_socket"] = upstream_tls(site, mode);
    }
    let mut passthrough = cluster_passthrough("PassthroughCluster", "0.0.0.0");
    passthrough["lb_policy"] = json!("CLUSTER_PROVIDED");
    bootstrap(&site.client, &listeners, &json!([cluster, passthrough]))
}

fn inbound(site: &Site, level: PolicyLevel, mode: Mode) -> Value {
    let name = format!("inbound|{}||", site.app_port);
    // Istio turns a policy that names no part of a request into a filter of the connection, and any
    // other into a filter of requests: never both.
    let connection_rules = (level == PolicyLevel::L4).then(|| connection_policy(site));
    let handler = match mode {
        Mode::Http => inbound_http(site, level, &name),
        Mode::Tcp => inbound_tcp(&name),
    };
    let filters: Vec<Value> = connection_rules.into_iter().chain([handler]).collect();
    let mut chain = json!({
        "filter_chain_match": {"destination_port": site.app_port},
        "filters": filters,
    });
    if level >= PolicyLevel::Mtls {
        // Whatever is not the mesh's TLS matches no chain, and is closed: Istio's STRICT mode.
        chain["filter_chain_match"]["transport_protocol"] = json!("tls");
        chain["filter_chain_match"]["application_protocols"] = json!(ALPN_SERVER);
        chain["transport_socket"] = downstream_tls(site);
    }
    let listeners = json!([{
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
        "filter_chains": [chain],
    }]);
    let mut to_app = cluster_passthrough(&name, "127.0.0.6");
    to_app["lb_policy"] = json!("CLUSTER_PROVIDED");
    bootstrap(&site.server, &listeners, &json!([to_app]))
}

fn inbound_http(site: &Site, level: PolicyLevel, cluster: &str) -> Value {
    let rules = (level == PolicyLevel::L7).then(|| http_policy(site));
    let forwarded = json!({
        "forward_client_cert_details": "APPEND_FORWARD",
        "set_current_client_cert_details": {"subject": true, "dns": true, "uri": true},
    });
    connection_manager("inbound", cluster, forwarded, rules.as_slice())
}

/// Whose connection it was is the one thing that is logged: no header can tell it to the application.
fn inbound_tcp(cluster: &str) -> Value {
    let mut log = typed("envoy.extensions.access_loggers.stream.v3.StderrAccessLog");
    log["log_format"] = json!({"text_format_source": {"inline_string":
        "peer %DOWNSTREAM_PEER_URI_SAN% from %DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%\n",
    }});
    let mut proxy = tcp_proxy(cluster, cluster);
    proxy["typed_config"]["access_log"] =
        json!([{"name": "envoy.access_loggers.stderr", "typed_config": log}]);
    proxy
}

fn connection_manager(direction: &str, cluster: &str, more: Value, policy: &[Value]) -> Value {
    let mut filters = policy.to_vec();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router"),
    }));
    let mut config =
        typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager");
    config["stat_prefix"] = json!(direction);
    config["server_name"] = json!("istio-envoy");
    config["normalize_path"] = json!(true);
    config["stream_idle_timeout"] = json!("0s");
    config["http_filters"] = json!(filters);
    config["route_config"] = json!({
        "name": direction,
        "validate_clusters": false,
        "virtual_hosts": [{
            "name": format!("{direction}|http"),
            "domains": ["*"],
            "routes": [{
                "match": {"prefix": "/"},
                "route": {"cluster": cluster, "timeout": "0s"},
            }],
        }],
    });
    merge(&mut config, more);
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": config})
}

/// An Istio AuthorizationPolicy of action ALLOW with a principal, a method and paths.
fn http_policy(site: &Site) -> Value {
    let mut config = typed("envoy.extensions.filters.http.rbac.v3.RBAC");
    let path = |prefix: &str| json!({"url_path": {"path": {"prefix": prefix}}});
    config["rules"] = json!({
        "action": "ALLOW",
        "policies": {"ns[default]-policy[allow-client]-rule[0]": {
            "permissions": [{"and_rules": {"rules": [
                {"or_rules": {"rules": [
                    {"header": {"name": ":method", "string_match": {"exact": "GET"}}},
                ]}},
                {"or_rules": {"rules": [path(ALLOWED_PATH), path(ECHO_PATH)]}},
            ]}}],
            "principals": [permitted_principal(site)],
        }},
    });
    json!({"name": "envoy.filters.http.rbac", "typed_config": config})
}

/// An Istio AuthorizationPolicy of action ALLOW with a principal only.
fn connection_policy(site: &Site) -> Value {
    let mut config = typed("envoy.extensions.filters.network.rbac.v3.RBAC");
    config["stat_prefix"] = json!("tcp.");
    config["rules"] = json!({
        "action": "ALLOW",
        "policies": {"ns[default]-policy[allow-client]-rule[0]": {
            "permissions": [{"any": true}],
            "principals": [permitted_principal(site)],
        }},
    });
    json!({"name": "envoy.filters.network.rbac", "typed_config": config})
}

fn permitted_principal(site: &Site) -> Value {
    json!({"and_ids": {"ids": [
        {"authenticated": {"principal_name": {"exact": site.client.identity()}}},
    ]}})
}

fn tcp_proxy(stat_prefix: &str, cluster: &str) -> Value {
    let mut config = typed("envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy");
    config["stat_prefix"] = json!(stat_prefix);
    config["cluster"] = json!(cluster);
    json!({"name": "envoy.filters.network.tcp_proxy", "typed_config": config})
}

/// A cluster with Istio's defaults whose connections carry the proxy's mark.
fn cluster(name: &str, kind: &str, source: &str) -> Value {
    const SOL_SOCKET: i32 = 1;
    const SO_MARK: i32 = 36;
    const UNLIMITED: u32 = u32::MAX;
    let mut protocol = typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
    protocol["explicit_http_config"] = json!({"http_protocol_options": {}});
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

fn cluster_passthrough(name: &str, source: &str) -> Value {
    cluster(name, "ORIGINAL_DST", source)
}

fn upstream_tls(site: &Site, mode: Mode) -> Value {
    let mut config = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    config["sni"] = json!(format!(
        "outbound_.{}_._.server.default.svc.{TRUST_DOMAIN}",
        site.app_port
    ));
    config["common_tls_context"] = common_tls(
        &site.client,
        &[mode.alpn()],
        &json!({"exact": site.server.identity()}),
    );
    json!({"name": "envoy.transport_sockets.tls", "typed_config": config})
}

fn downstream_tls(site: &Site) -> Value {
    let mut config = typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext");
    config["require_client_certificate"] = json!(true);
    config["common_tls_context"] = common_tls(
        &site.server,
        &ALPN_SERVER,
        &json!({"prefix": format!("spiffe://{TRUST_DOMAIN}/")}),
    );
    json!({"name": "envoy.transport_sockets.tls", "typed_config": config})
}

fn common_tls(pod: &Pod, alpn: &[&str], peer: &Value) -> Value {
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
        "validation_context": {
            "trusted_ca": {"filename": pod.path("root.pem")},
            "match_typed_subject_alt_names": [{"san_type": "URI", "matcher": peer}],
        },
    })
}

fn address(address: &str, port: u16) -> Value {
    json!({"socket_address": {"address": address, "port_value": port}})
}

fn typed(name: &str) -> Value {
    json!({"@type": format!("type.googleapis.com/{name}")})
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
