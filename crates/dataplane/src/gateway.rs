//! Where clients outside the mesh come in: an Envoy that takes HTTP in clear and over TLS, as Istio's ingress
//! gateway does, and as plain reverse proxies do that stand before a service without a mesh.
//!
//! It is one program with one configuration for all variants. What differs is how it goes on from there: as it
//! is, through a mesh's sidecar in its pod, or, where it belongs to the mesh, by the mesh's own TLS.

use std::net::Ipv4Addr;

use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::envoy::{
    OUTBOUND, Routes, address, bootstrap, connection_manager, own_tls, set_endpoints, side, typed,
    unbound_cluster,
};
use crate::{Pod, PodBlueprint, Program, Site, Speaks};

/// Where a gateway takes HTTP in clear, as the pods of Istio's gateways do.
pub const GATEWAY_PORT: u16 = 8080;
/// Where it takes HTTP over TLS.
pub const GATEWAY_TLS_PORT: u16 = 8443;

/// What every gateway runs.
pub const GATEWAY_PROGRAM: Program = Program::Envoy;

/// Whom clients outside the mesh call.
pub(crate) fn entered_at(site: &Site) -> Option<Ipv4Addr> {
    let gateway = site.gateway.as_ref()?;
    Some(gateway.pod.address)
}

/// One that knows of no mesh: it calls the service as any client would. `None`: no client stands outside.
pub(crate) fn reverse_proxy(site: &Site) -> Option<PodBlueprint> {
    let gateway = site.gateway.as_ref()?;
    let mut to_service = unbound_cluster("service", "STATIC", Speaks::Http1);
    let called = address(&site.called.to_string(), site.app_port);
    set_endpoints(&mut to_service, &[json!({"endpoint": {"address": called}})]);
    Some(gateway_with(site, &gateway.pod, &to_service))
}

/// One whose requests go on by this cluster.
pub(crate) fn gateway_with(site: &Site, pod: &Pod, cluster: &Value) -> PodBlueprint {
    let name = cluster["name"].as_str().unwrap_or_default();
    let listeners = json!([in_clear(name), over_tls(pod, name)]);
    let config = bootstrap(pod, &listeners, &json!([cluster]));
    let (files, process) = side(site, pod, ComponentRole::Gateway, &config);
    PodBlueprint {
        files,
        processes: vec![process],
        ..PodBlueprint::default()
    }
}

fn in_clear(cluster: &str) -> Value {
    json!({
        "name": format!("0.0.0.0_{GATEWAY_PORT}"),
        "address": address("0.0.0.0", GATEWAY_PORT),
        "filter_chains": [{"filters": [requests_to(cluster)]}],
    })
}

fn over_tls(pod: &Pod, cluster: &str) -> Value {
    let mut tls = typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext");
    // Istio's mode SIMPLE: whoever comes shows no certificate.
    tls["common_tls_context"] = own_tls(pod, &["http/1.1"]);
    json!({
        "name": format!("0.0.0.0_{GATEWAY_TLS_PORT}"),
        "address": address("0.0.0.0", GATEWAY_TLS_PORT),
        "filter_chains": [{
            "filters": [requests_to(cluster)],
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        }],
    })
}

fn requests_to(cluster: &str) -> Value {
    // A gateway trusts nobody's word for whose address a request comes from.
    let at_the_edge = json!({"use_remote_address": true});
    let routes = Routes::All(cluster);
    connection_manager(OUTBOUND, Speaks::Http1, &routes, at_the_edge, &[])
}
