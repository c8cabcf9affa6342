//! `ztunnel-waypoint`: a real ztunnel on each node and between them a real Envoy as the service's
//! waypoint, as Istio's ambient mode has it where policies judge requests.
//!
//! Plain, the waypoint speaks HBONE itself: it ends the client's tunnel (listener `connect_terminate`),
//! judges requests behind that (`main_internal`), and opens a tunnel to the server's pod
//! (`connect_originate`). These names, the internal listeners between them, and the filter state
//! `io.istio.peer_principal` are Istio's. Sandwiched, the ztunnel of its node speaks HBONE for it on both
//! sides, and tells whose a connection is in a PROXY protocol header.

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::envoy::{
    DIRECT, Routes, address, bootstrap, cluster, common_tls, connection_manager, http_metrics,
    http_policy, peer_log, pod_endpoints, set_endpoints, side, tcp_proxy, typed, unbound_cluster,
};
use crate::ztunnel::{Mesh, PORT_HBONE, Waypoint, captured, on_node};
use crate::{
    Blueprint, ClientIdentityFrom, DataPlane, DirectTls, Looks, PORT_OUTBOUND, PodBlueprint, Probe,
    Program, Site, Speaks, TRUST_DOMAIN, spiffe_id,
};

pub(crate) const DATA_PLANE: DataPlane = DataPlane {
    name: "ztunnel-waypoint",
    levels: &[PolicyLevel::L7],
    summary: "ztunnel, a real Envoy as waypoint, ztunnel; HBONE on both hops; stands for Istio ambient at L7",
    needs: &[Program::Ztunnel, Program::Envoy],
    note: Some(
        "three proxies and two encrypted hops; upstream Envoy without Istio's own filters: Istio's proxy \
         image may cost more; the waypoint stands on the servers' node",
    ),
    options: &[],
    waypoint: true,
    graphs: false,
    gateway: false,
    build: |site, level| blueprint(site, level, Waypoint::SpeaksHbone),
};

pub(crate) const SANDWICH: DataPlane = DataPlane {
    name: "ztunnel-waypoint-sandwich",
    levels: &[PolicyLevel::L7],
    summary: "the same with the waypoint captured by its node's ztunnel, which speaks HBONE for it",
    needs: &[Program::Ztunnel, Program::Envoy],
    note: Some(
        "the ztunnel of the servers' node carries each byte three times: into the waypoint, out of it, \
         and into the server",
    ),
    options: &[],
    waypoint: true,
    graphs: false,
    gateway: false,
    build: |site, level| {
        let port = PORT_SANDWICH;
        blueprint(site, level, Waypoint::Sandwiched { port })
    },
};

/// Where a captured waypoint takes connections from its ztunnel, with a PROXY protocol header.
const PORT_SANDWICH: u16 = 15088;
/// Istio's key for whose a connection is.
const PEER: &str = "io.istio.peer_principal";
/// What an original-destination filter takes for the address that was called.
const CALLED: &str = "envoy.filters.listener.original_dst.local_ip";
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

fn blueprint(site: &Site, level: PolicyLevel, form: Waypoint) -> Blueprint {
    let mesh = Mesh {
        level,
        waypoint: Some(form),
    };
    let looks = Looks {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        gateway_proxy_port: None,
        wire_ports: vec![PORT_HBONE],
        identity: spiffe_id,
        client_identity: ClientIdentityFrom::ProxyLog,
        server_service_account: site.waypoint.service_account.clone(),
    };
    let mut probes = looks.probes(site, level);
    probes.push(Probe::AroundTheWaypoint {
        identity: site.client.identity(),
        server: site.server.identity(),
    });
    probes.push(Probe::BehindTheWaypoint { port: PORT_HBONE });
    Blueprint {
        waypoint: Some(waypoint(site, level, form)),
        probes,
        direct_tls: DirectTls {
            alpn: vec!["h2".into()],
            port: Some(PORT_HBONE),
            hbone: true,
            at_waypoint: true,
            ..DirectTls::default()
        },
        http_metrics: Some(http_metrics(ComponentRole::Waypoint, "inbound-vip")),
        proxy_port: Some(PORT_HBONE),
        ..Blueprint::meshed(site, |end| on_node(site, end, &mesh))
    }
}

fn waypoint(site: &Site, level: PolicyLevel, form: Waypoint) -> PodBlueprint {
    let config = match form {
        Waypoint::SpeaksHbone => speaking_hbone(site, level),
        Waypoint::Sandwiched { port } => sandwiched(site, level, port),
    };
    let (files, process) = side(site, &site.waypoint, ComponentRole::Waypoint, &config);
    PodBlueprint {
        files,
        processes: vec![process],
        ..match form {
            Waypoint::SpeaksHbone => PodBlueprint::default(),
            Waypoint::Sandwiched { .. } => captured(),
        }
    }
}

/// Tunnels end and begin in it, with internal listeners between.
fn speaking_hbone(site: &Site, level: PolicyLevel) -> Value {
    let listeners = json!([
        connect_terminate(site),
        {
            "name": "main_internal",
            "internal_listener": {},
            "listener_filters": [original_dst()],
            "filter_chains": judged(site, level, None),
        },
        connect_originate(),
    ]);
    let mut clusters = vec![internal_cluster(
        "main_internal",
        "main_internal",
        Speaks::Tcp,
        &[],
    )];
    for port in site.ports() {
        let endpoints: Vec<Value> = site
            .servers()
            .map(|pod| format!("{}:{}", pod.address, port.number))
            .map(|to| {
                json!({
                    "endpoint": {"address": internal_address("connect_originate", &to)},
                    "metadata": {"filter_metadata": {ORIGINAL_DST: {"local": to}}},
                })
            })
            .collect();
        let name = to_port(port.number);
        clusters.push(internal_cluster(
            &name,
            "connect_originate",
            port.speaks,
            &endpoints,
        ));
    }
    clusters.push(originate_cluster(site));
    let mut config = bootstrap(&site.waypoint, &listeners, &json!(clusters));
    config["bootstrap_extensions"] = json!([{
        "name": "envoy.bootstrap.internal_listener",
        "typed_config": typed("envoy.extensions.bootstrap.internal_listener.v3.InternalListener"),
    }]);
    config
}

/// The cluster to one port of the service.
fn to_port(port: u16) -> String {
    format!("inbound-vip|{port}||{}", crate::SERVICE_NAME)
}

fn original_dst() -> Value {
    json!({
        "name": ORIGINAL_DST,
        "typed_config": typed("envoy.extensions.filters.listener.original_dst.v3.OriginalDst"),
    })
}

/// Takes HBONE: mutual TLS, HTTP/2, `CONNECT`; what is inside goes to `main_internal`, with whose it is
/// and whom it called.
fn connect_terminate(site: &Site) -> Value {
    let mut remember = typed("envoy.extensions.filters.http.set_filter_state.v3.Config");
    remember["on_request_headers"] = json!([
        remembered(PEER, "envoy.string", "%DOWNSTREAM_PEER_URI_SAN%"),
        remembered(CALLED, CALLED, "%REQ(:AUTHORITY)%"),
    ]);
    let filter = json!({
        "name": "envoy.filters.http.set_filter_state",
        "typed_config": remember,
    });
    let more = json!({
        "codec_type": "HTTP2",
        "http2_protocol_options": {"allow_connect": true},
        "upgrade_configs": [{"upgrade_type": "CONNECT"}],
        "access_log": peer_log("%DOWNSTREAM_PEER_URI_SAN%", DIRECT),
        "route_config": {
            "name": "default",
            "validate_clusters": false,
            "virtual_hosts": [{
                "name": "default",
                "domains": ["*"],
                "routes": [{
                    "match": {"connect_matcher": {}},
                    "route": {
                        "cluster": "main_internal",
                        "timeout": "0s",
                        "upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}],
                    },
                }],
            }],
        },
    });
    let handler = connection_manager(
        "connect_terminate",
        Speaks::Http2,
        &Routes::All("main_internal"),
        more,
        &[filter],
    );
    let mut tls = typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext");
    tls["require_client_certificate"] = json!(true);
    tls["common_tls_context"] = common_tls(
        &site.waypoint,
        &["h2"],
        &json!({"prefix": format!("spiffe://{TRUST_DOMAIN}/")}),
    );
    json!({
        "name": "connect_terminate",
        "address": address("0.0.0.0", PORT_HBONE),
        "filter_chains": [{
            "filters": [handler],
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        }],
    })
}

/// Something that is remembered of a connection, also behind an internal listener.
fn remembered(key: &str, factory: &str, value: &str) -> Value {
    json!({
        "object_key": key,
        "factory_key": factory,
        "format_string": {"text_format_source": {"inline_string": value}},
        "shared_with_upstream": "TRANSITIVE",
    })
}

/// What is done with the connections to each port: requests are judged, and sent on.
fn judged(site: &Site, level: PolicyLevel, before: Option<&Value>) -> Value {
    let chains: Vec<Value> = site
        .ports()
        .iter()
        .map(|port| {
            let name = to_port(port.number);
            let rules =
                (level == PolicyLevel::L7).then(|| http_policy(site, peer_in_filter_state(site)));
            let handler = match port.speaks {
                Speaks::Tcp => tcp_proxy(&name, &name),
                speaks => connection_manager(
                    "inbound-vip",
                    speaks,
                    &Routes::All(&name),
                    json!({}),
                    rules.as_slice(),
                ),
            };
            json!({
                "filter_chain_match": {"destination_port": port.number},
                "filters": before.into_iter().chain([&handler]).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!(chains)
}

fn peer_in_filter_state(site: &Site) -> Value {
    json!({"and_ids": {"ids": [{"filter_state": {
        "key": PEER,
        "string_match": {"exact": site.client.identity()},
    }}]}})
}

fn internal_address(listener: &str, endpoint: &str) -> Value {
    json!({"envoy_internal_address": {
        "server_listener_name": listener,
        "endpoint_id": endpoint,
    }})
}

/// A cluster whose connections stay in this Envoy. Without endpoints it has one.
fn internal_cluster(name: &str, listener: &str, speaks: Speaks, endpoints: &[Value]) -> Value {
    let only = [json!({"endpoint": {"address": internal_address(listener, listener)}})];
    let endpoints = if endpoints.is_empty() {
        &only
    } else {
        endpoints
    };
    let mut cluster = unbound_cluster(name, "STATIC", speaks);
    set_endpoints(&mut cluster, endpoints);
    let mut transport =
        typed("envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport");
    transport["passthrough_metadata"] = json!([{"kind": {"host": {}}, "name": ORIGINAL_DST}]);
    transport["transport_socket"] = json!({
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": typed("envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"),
    });
    cluster["transport_socket"] = json!({
        "name": "envoy.transport_sockets.internal_upstream",
        "typed_config": transport,
    });
    cluster
}

/// Opens a tunnel to the pod that was chosen.
fn connect_originate() -> Value {
    let mut proxy = tcp_proxy("connect_originate", "connect_originate");
    proxy["typed_config"]["tunneling_config"] = json!({"hostname": "%DOWNSTREAM_LOCAL_ADDRESS%"});
    json!({
        "name": "connect_originate",
        "internal_listener": {},
        "listener_filters": [original_dst()],
        "filter_chains": [{"filters": [proxy]}],
    })
}

/// HBONE to the pod's own ztunnel, which must show the pod's identity.
fn originate_cluster(site: &Site) -> Value {
    let mut cluster = cluster(
        "connect_originate",
        "ORIGINAL_DST",
        "0.0.0.0",
        Speaks::Http2,
    );
    cluster["lb_policy"] = json!("CLUSTER_PROVIDED");
    cluster["original_dst_lb_config"] = json!({"upstream_port_override": PORT_HBONE});
    let mut tls = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    tls["common_tls_context"] = common_tls(
        &site.waypoint,
        &["h2"],
        &json!({"exact": site.server.identity()}),
    );
    cluster["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": tls,
    });
    cluster
}

/// Its ztunnel ends and begins the tunnels: it takes plain connections with a header in front, and opens
/// plain ones, which are captured.
fn sandwiched(site: &Site, level: PolicyLevel, port: u16) -> Value {
    // The principal's place in ztunnel's header (istio/ztunnel, src/proxy.rs).
    const TLV_PRINCIPAL: u8 = 0xd0;
    let mut header = typed("envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol");
    header["rules"] = json!([{
        "tlv_type": TLV_PRINCIPAL,
        "on_tlv_present": {"key": "peer_principal"},
    }]);
    const TOLD: &str = "%DYNAMIC_METADATA(envoy.filters.listener.proxy_protocol:peer_principal)%";
    let mut remember = typed("envoy.extensions.filters.network.set_filter_state.v3.Config");
    remember["on_new_connection"] = json!([remembered(PEER, "envoy.string", TOLD)]);
    let remember = json!({
        "name": "envoy.filters.network.set_filter_state",
        "typed_config": remember,
    });
    let listeners = json!([{
        "name": "sandwich",
        "address": address("0.0.0.0", port),
        "listener_filters": [{
            "name": "envoy.filters.listener.proxy_protocol",
            "typed_config": header,
        }],
        "access_log": peer_log(TOLD, "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
        "filter_chains": judged(site, level, Some(&remember)),
    }]);
    let clusters: Vec<Value> = site
        .ports()
        .iter()
        .map(|port| {
            // Its connections must be captured.
            let mut cluster = unbound_cluster(&to_port(port.number), "STATIC", port.speaks);
            set_endpoints(&mut cluster, &pod_endpoints(site.servers(), port.number));
            cluster
        })
        .collect();
    bootstrap(&site.waypoint, &listeners, &json!(clusters))
}
