//! `ztunnel-waypoint`: a real ztunnel on each node, and between them a real Envoy as the service's
//! waypoint, as in Istio's ambient mode for policies on requests.
//!
//! Without sandwiching, the waypoint handles HBONE itself: it terminates the client's tunnel (`connect_terminate`),
//! applies policies to the inner requests (`main_internal`), and opens a tunnel to the server's pod
//! (`connect_originate`). These names, the internal listeners between them, and the filter state
//! `io.istio.peer_principal` are Istio's. Sandwiched, the ztunnel of its node handles HBONE on both
//! sides, and passes the client's identity in a PROXY protocol header.

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::PolicyLevel;
use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::blueprint::{Blueprint, every_pod, ingress};
use crate::contract::{Contract, DirectTls};
use crate::emulation::PodBlueprint;
use crate::envoy::{
    DIRECT, Routes, address, bootstrap, cluster, common_tls, connection_manager, http_metrics,
    http_policy, peer_log, permitted_requests, pod_endpoints, router, set_endpoints, side,
    tcp_proxy, traffic_counters, typed, unbound_cluster,
};
use crate::names::{PORT_OUTBOUND, TRUST_DOMAIN, spiffe_id};
use crate::probe::{ClientIdentityFrom, Probe};
use crate::probe_targets::ProbeTargets;
use crate::scope::ProcessScope;
use crate::site::{AppProtocol, Site, SiteService};
use crate::ztunnel::{captured, on_node, traffic};
use crate::ztunnel_state::{Mesh, PORT_HBONE, Waypoint};

/// The port at which a captured waypoint accepts connections from its ztunnel, with a PROXY protocol header.
pub(crate) const PORT_SANDWICH: u16 = 15088;
/// Istio's filter state key for the peer's identity.
const PEER: &str = "io.istio.peer_principal";
/// The filter state key that an original-destination filter uses as the destination address.
const CALLED: &str = "envoy.filters.listener.original_dst.local_ip";
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";

pub(crate) fn blueprint(site: &Site, level: PolicyLevel, form: Waypoint) -> Blueprint {
    let mesh = Mesh {
        level,
        waypoint: Some(form),
    };
    let targets = ProbeTargets {
        client_port: PORT_OUTBOUND,
        server_port: PORT_HBONE,
        gateway_proxy_port: None,
        wire_ports: vec![PORT_HBONE],
        identity: Site::spiffe_id,
        client_identity: ClientIdentityFrom::ProxyLog,
        server_service_account: site.waypoint.service_account.clone(),
    };
    let holders = targets.holders(site);
    let mut probes = targets.probes(site, level);
    probes.push(Probe::AroundTheWaypoint {
        identity: site.caller().identity(),
        server: spiffe_id(site.entry_point().service_account()),
    });
    probes.push(Probe::BehindTheWaypoint { port: PORT_HBONE });
    let name = &site.waypoint.name;
    let at_waypoint = traffic_counters(ComponentRole::Waypoint, name, "inbound-vip");
    let at_waypoint = at_waypoint
        .into_iter()
        .filter(|c| c.unit == TrafficUnit::Responses);
    let mut emulation = every_pod(site, |proxied| on_node(site, proxied, &mesh));
    emulation.set(waypoint(site, level, form));
    Blueprint {
        contract: Contract {
            holders,
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
            caller_port: Some(PORT_OUTBOUND),
            traffic: traffic(site, ProcessScope::Node)
                .into_iter()
                .chain(at_waypoint)
                .collect(),
            waypoint: true,
            ingress: ingress(site),
        },
        emulation,
    }
}

fn waypoint(site: &Site, level: PolicyLevel, form: Waypoint) -> PodBlueprint {
    let config = match form {
        Waypoint::SpeaksHbone => speaking_hbone(site, level),
        Waypoint::Sandwiched { port } => sandwiched(site, level, port),
    };
    let role = ComponentRole::Waypoint;
    let (files, process) = side(site, &site.waypoint, role, Program::Envoy, &config);
    PodBlueprint {
        pod: site.waypoint.name.clone(),
        files,
        processes: vec![process],
        ..match form {
            Waypoint::SpeaksHbone => PodBlueprint::default(),
            Waypoint::Sandwiched { .. } => captured(&site.waypoint),
        }
    }
}

/// It terminates and originates tunnels itself, connected by internal listeners.
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
        AppProtocol::Tcp,
        &[],
    )];
    for port in site.ports() {
        let endpoints: Vec<Value> = site
            .entry_point()
            .pods
            .iter()
            .map(|pod| format!("{}:{}", pod.address, port.number))
            .map(|to| {
                json!({
                    "endpoint": {"address": internal_address("connect_originate", &to)},
                    "metadata": {"filter_metadata": {ORIGINAL_DST: {"local": to}}},
                })
            })
            .collect();
        let name = to_port(site.entry_point(), port.number);
        clusters.push(internal_cluster(
            &name,
            "connect_originate",
            port.protocol,
            &endpoints,
        ));
    }
    clusters.push(originate_cluster(site));
    let mut config = bootstrap(site, &site.waypoint, &listeners, &json!(clusters));
    config["bootstrap_extensions"] = json!([{
        "name": "envoy.bootstrap.internal_listener",
        "typed_config": typed("envoy.extensions.bootstrap.internal_listener.v3.InternalListener"),
    }]);
    config
}

/// The cluster for one port of the service.
fn to_port(service: &SiteService, port: u16) -> String {
    format!("inbound-vip|{port}||{}", service.dns_name())
}

fn original_dst() -> Value {
    json!({
        "name": ORIGINAL_DST,
        "typed_config": typed("envoy.extensions.filters.listener.original_dst.v3.OriginalDst"),
    })
}

/// Accepts HBONE: mutual TLS, HTTP/2, `CONNECT`; the inner connection goes to `main_internal`, with the peer's
/// identity and the destination address.
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
        "http_filters": [filter, router()],
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
        AppProtocol::Http2,
        &Routes::All("main_internal"),
        more,
        &[],
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

/// Filter state of a connection, shared with the internal listener behind.
fn remembered(key: &str, factory: &str, value: &str) -> Value {
    json!({
        "object_key": key,
        "factory_key": factory,
        "format_string": {"text_format_source": {"inline_string": value}},
        "shared_with_upstream": "TRANSITIVE",
    })
}

/// The filter chains for each port: policies are applied to requests, which are then forwarded.
fn judged(site: &Site, level: PolicyLevel, before: Option<&Value>) -> Value {
    let chains: Vec<Value> = site
        .ports()
        .iter()
        .map(|port| {
            let name = to_port(site.entry_point(), port.number);
            let rules = (level == PolicyLevel::L7)
                .then(|| http_policy(&permitted_requests(site), peer_in_filter_state(site)));
            let handler = match port.protocol {
                AppProtocol::Tcp => tcp_proxy(&name, &name),
                protocol => connection_manager(
                    "inbound-vip",
                    protocol,
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
        "string_match": {"exact": site.caller().identity()},
    }}]}})
}

fn internal_address(listener: &str, endpoint: &str) -> Value {
    json!({"envoy_internal_address": {
        "server_listener_name": listener,
        "endpoint_id": endpoint,
    }})
}

/// A cluster for connections within this Envoy. It has one endpoint unless others are given.
fn internal_cluster(
    name: &str,
    listener: &str,
    protocol: AppProtocol,
    endpoints: &[Value],
) -> Value {
    let only = [json!({"endpoint": {"address": internal_address(listener, listener)}})];
    let endpoints = if endpoints.is_empty() {
        &only
    } else {
        endpoints
    };
    let mut cluster = unbound_cluster(name, "STATIC", protocol);
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

/// Opens a tunnel to the selected pod.
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

/// HBONE to the pod's own ztunnel, which must present the pod's identity.
fn originate_cluster(site: &Site) -> Value {
    let mut cluster = cluster(
        "connect_originate",
        "ORIGINAL_DST",
        "0.0.0.0",
        AppProtocol::Http2,
    );
    cluster["lb_policy"] = json!("CLUSTER_PROVIDED");
    cluster["original_dst_lb_config"] = json!({"upstream_port_override": PORT_HBONE});
    let mut tls = typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext");
    tls["common_tls_context"] = common_tls(
        &site.waypoint,
        &["h2"],
        &json!({"exact": spiffe_id(site.entry_point().service_account())}),
    );
    cluster["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": tls,
    });
    cluster
}

/// Its ztunnel terminates and originates the tunnels: the waypoint accepts plain connections with a PROXY protocol
/// header, and opens plain ones, which are captured.
fn sandwiched(site: &Site, level: PolicyLevel, port: u16) -> Value {
    // The TLV type of the principal in ztunnel's header (istio/ztunnel, src/proxy.rs).
    const TLV_PRINCIPAL: u8 = 0xd0;
    let mut header = typed("envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol");
    header["rules"] = json!([{
        "tlv_type": TLV_PRINCIPAL,
        "on_tlv_present": {"key": "peer_principal"},
    }]);
    const PEER_PRINCIPAL: &str =
        "%DYNAMIC_METADATA(envoy.filters.listener.proxy_protocol:peer_principal)%";
    let mut remember = typed("envoy.extensions.filters.network.set_filter_state.v3.Config");
    remember["on_new_connection"] = json!([remembered(PEER, "envoy.string", PEER_PRINCIPAL)]);
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
        "access_log": peer_log(PEER_PRINCIPAL, "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
        "filter_chains": judged(site, level, Some(&remember)),
    }]);
    let clusters: Vec<Value> = site
        .ports()
        .iter()
        .map(|port| {
            // Its connections must be captured.
            let mut cluster = unbound_cluster(
                &to_port(site.entry_point(), port.number),
                "STATIC",
                port.protocol,
            );
            set_endpoints(
                &mut cluster,
                &pod_endpoints(&site.entry_point().pods, port.number),
            );
            cluster
        })
        .collect();
    bootstrap(site, &site.waypoint, &listeners, &json!(clusters))
}
