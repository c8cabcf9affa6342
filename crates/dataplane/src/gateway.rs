//! The ingress gateway: an Envoy that accepts plaintext HTTP and HTTPS, as Istio's ingress
//! gateway does, and as plain reverse proxies in front of a service without a mesh do.
//!
//! It is one program with one configuration for all variants. Only the upstream path differs: direct,
//! through a mesh's sidecar in its pod, or, as part of the mesh, over the mesh's own TLS.

use meshtax_model::catalogue::GATEWAY_PROGRAM;
use meshtax_model::trial::ComponentRole;
use serde_json::{Value, json};

use crate::emulation::PodBlueprint;
use crate::envoy::{
    OUTBOUND, Routes, address, bootstrap, connection_manager, own_tls, set_endpoints, side, typed,
    unbound_cluster,
};
use crate::site::{AppProtocol, Pod, Site};

/// The port at which a gateway accepts plaintext HTTP, as the pods of Istio's gateways do.
pub const GATEWAY_PORT: u16 = 8080;
/// The port at which it accepts HTTPS.
pub const GATEWAY_TLS_PORT: u16 = 8443;

/// A gateway without a mesh: it calls the service like any client. `None`: there are no clients outside.
pub(crate) fn reverse_proxy(site: &Site) -> Option<PodBlueprint> {
    let gateway = site.gateway.as_ref()?;
    let mut to_service = unbound_cluster("service", "STATIC", AppProtocol::Http1);
    let (at, port) = site.entry_point().endpoint();
    let called = address(&at.to_string(), port);
    set_endpoints(&mut to_service, &[json!({"endpoint": {"address": called}})]);
    Some(gateway_with(site, &gateway.pod, &to_service))
}

/// A gateway whose requests are forwarded to this cluster.
pub(crate) fn gateway_with(site: &Site, pod: &Pod, cluster: &Value) -> PodBlueprint {
    let name = cluster["name"].as_str().unwrap_or_default();
    let listeners = json!([in_clear(name), over_tls(pod, name)]);
    let config = bootstrap(site, pod, &listeners, &json!([cluster]));
    let (files, process) = side(site, pod, ComponentRole::Gateway, GATEWAY_PROGRAM, &config);
    PodBlueprint {
        pod: pod.name.clone(),
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
    // Istio's mode SIMPLE: clients present no certificate.
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
    // Do not trust `x-forwarded-for` from clients.
    let at_the_edge = json!({"use_remote_address": true});
    let routes = Routes::All(cluster);
    connection_manager(OUTBOUND, AppProtocol::Http1, &routes, at_the_edge, &[])
}
