//! What Linkerd's policy controller returns for a service's address: one balancer over its endpoints, for
//! any detected protocol.
//!
//! Latency estimates, queue and time to detect are the controller's own
//! (linkerd2, policy-controller/grpc/src/outbound).

use std::time::Duration;

use linkerd2_proxy_api::http_route::{HttpRouteMatch, PathMatch, path_match};
use linkerd2_proxy_api::meta::{Metadata, Resource, metadata};
use linkerd2_proxy_api::outbound::backend::balance_p2c::{Load, PeakEwma};
use linkerd2_proxy_api::outbound::backend::endpoint_discovery::{self, DestinationGet};
use linkerd2_proxy_api::outbound::backend::{self, BalanceP2c, EndpointDiscovery};
use linkerd2_proxy_api::outbound::proxy_protocol::{Detect, Http1, Http2, Kind, Opaque};
use linkerd2_proxy_api::outbound::{
    Backend, HttpRoute, OpaqueRoute, OutboundPolicy, ProxyProtocol, Queue, http_route, opaque_route,
};
use meshtax_dataplane::{LinkerdPort, LinkerdService};

/// How long a proxy waits for a connection's first bytes before it treats it as opaque: Linkerd's default.
pub(crate) const DETECT_WITHIN: Duration = Duration::from_secs(10);

const DEFAULT_RTT: Duration = Duration::from_millis(30);
const DECAY: Duration = Duration::from_secs(10);
const QUEUE_CAPACITY: u32 = 100;
const FAILFAST_AFTER: Duration = Duration::from_secs(3);

/// To the endpoint with the lowest latency (peak EWMA).
pub(crate) fn to_service(service: &LinkerdService, port: LinkerdPort) -> OutboundPolicy {
    let opaque = || Opaque {
        routes: vec![opaque_route(service, port)],
    };
    let http = || vec![http_route(service, port)];
    let kind = if port.opaque {
        Kind::Opaque(opaque())
    } else {
        Kind::Detect(Detect {
            timeout: DETECT_WITHIN.try_into().ok(),
            opaque: Some(opaque()),
            http1: Some(Http1 {
                routes: http(),
                failure_accrual: None,
            }),
            http2: Some(Http2 {
                routes: http(),
                failure_accrual: None,
            }),
        })
    };
    OutboundPolicy {
        protocol: Some(ProxyProtocol { kind: Some(kind) }),
        metadata: Some(resource(service, port)),
    }
}

fn resource(service: &LinkerdService, port: LinkerdPort) -> Metadata {
    let short = service.name.split('.').next().unwrap_or_default();
    Metadata {
        kind: Some(metadata::Kind::Resource(Resource {
            group: "core".into(),
            kind: "Service".into(),
            name: short.into(),
            namespace: "default".into(),
            section: String::new(),
            port: u32::from(port.number),
        })),
    }
}

fn by_default(name: &str) -> Metadata {
    Metadata {
        kind: Some(metadata::Kind::Default(name.into())),
    }
}

fn balancer(service: &LinkerdService, port: LinkerdPort) -> Backend {
    let discovery = endpoint_discovery::Kind::Dst(DestinationGet {
        path: format!("{}:{}", service.name, port.number),
    });
    Backend {
        metadata: Some(resource(service, port)),
        queue: Some(Queue {
            capacity: QUEUE_CAPACITY,
            failfast_timeout: FAILFAST_AFTER.try_into().ok(),
        }),
        kind: Some(backend::Kind::Balancer(BalanceP2c {
            discovery: Some(EndpointDiscovery {
                kind: Some(discovery),
            }),
            load: Some(Load::PeakEwma(PeakEwma {
                default_rtt: DEFAULT_RTT.try_into().ok(),
                decay: DECAY.try_into().ok(),
            })),
        })),
    }
}

fn http_route(service: &LinkerdService, port: LinkerdPort) -> HttpRoute {
    use http_route::distribution::{FirstAvailable, Kind};
    let backend = http_route::RouteBackend {
        backend: Some(balancer(service, port)),
        ..http_route::RouteBackend::default()
    };
    HttpRoute {
        metadata: Some(by_default("http")),
        hosts: Vec::new(),
        rules: vec![http_route::Rule {
            matches: vec![HttpRouteMatch {
                path: Some(PathMatch {
                    kind: Some(path_match::Kind::Prefix("/".into())),
                }),
                ..HttpRouteMatch::default()
            }],
            backends: Some(http_route::Distribution {
                kind: Some(Kind::FirstAvailable(FirstAvailable {
                    backends: vec![backend],
                })),
            }),
            ..http_route::Rule::default()
        }],
    }
}

fn opaque_route(service: &LinkerdService, port: LinkerdPort) -> OpaqueRoute {
    use opaque_route::distribution::{FirstAvailable, Kind};
    let backend = opaque_route::RouteBackend {
        backend: Some(balancer(service, port)),
        ..opaque_route::RouteBackend::default()
    };
    OpaqueRoute {
        metadata: Some(by_default("opaque")),
        rules: vec![opaque_route::Rule {
            backends: Some(opaque_route::Distribution {
                kind: Some(Kind::FirstAvailable(FirstAvailable {
                    backends: vec![backend],
                })),
            }),
            filters: Vec::new(),
        }],
    }
}
