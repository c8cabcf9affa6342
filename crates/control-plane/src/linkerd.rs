//! Linkerd's identity, destination and policy services (the crate `linkerd2-proxy-api` has their
//! types), limited to what a proxy needs to carry one application's traffic.
//!
//! The responses follow those of Linkerd's own controllers: for a pod's address there
//! is no outbound policy (`NOT_FOUND`) but a profile with an endpoint; the endpoint's hint is HTTP/2
//! and a port for its opaque transport; inbound policies are those of `all-authenticated` servers, of
//! servers with an authorization, and of HTTP routes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};

use linkerd2_proxy_api::destination::destination_server::{Destination, DestinationServer};
use linkerd2_proxy_api::destination::{
    DestinationProfile, GetDestination, NoEndpoints, ProtocolHint, TlsIdentity, Update,
    WeightedAddr, WeightedAddrSet, protocol_hint, tls_identity, update,
};
use linkerd2_proxy_api::http_route::{HttpRouteMatch, PathMatch, path_match};
use linkerd2_proxy_api::http_types::{HttpMethod, http_method};
use linkerd2_proxy_api::identity::identity_server::{Identity, IdentityServer};
use linkerd2_proxy_api::identity::{CertifyRequest, CertifyResponse};
use linkerd2_proxy_api::inbound::authn::permit_mesh_tls::{Clients, PermitClientIdentities};
use linkerd2_proxy_api::inbound::authn::{Permit, PermitMeshTls, PermitUnauthenticated};
use linkerd2_proxy_api::inbound::inbound_server_policies_server::{
    InboundServerPolicies, InboundServerPoliciesServer,
};
use linkerd2_proxy_api::inbound::{
    self, Authn, Authz, HttpRoute, IdentitySuffix, Network, PortSpec, ProxyProtocol, http_route,
    proxy_protocol,
};
use linkerd2_proxy_api::meta::{Metadata, metadata};
use linkerd2_proxy_api::net::{IpAddress, IpNetwork};
use linkerd2_proxy_api::outbound::outbound_policies_server::{
    OutboundPolicies, OutboundPoliciesServer,
};
use linkerd2_proxy_api::outbound::{OutboundPolicy, TrafficSpec, traffic_spec};
use meshtax_dataplane::{
    HttpRule, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
};
use prost_types::Timestamp;
use tokio_stream::{Stream, StreamExt as _};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::authority::SharedAuthority;
use crate::outbound_policy::{self, DETECT_WITHIN};
use crate::server::Server;

/// Serves all of them in plaintext, on loopback.
///
/// # Errors
/// If the thread cannot be started.
pub fn linkerd(
    listener: TcpListener,
    authority: &SharedAuthority,
    services: LinkerdServices,
) -> io::Result<Server> {
    let controller = Controller {
        authority: authority.clone(),
        services: Arc::new(services),
    };
    let routes = Routes::new(IdentityServer::new(controller.clone()))
        .add_service(DestinationServer::new(controller.clone()))
        .add_service(InboundServerPoliciesServer::new(controller.clone()))
        .add_service(OutboundPoliciesServer::new(controller));
    Server::start(listener, routes, None)
}

#[derive(Clone, Debug)]
struct Controller {
    authority: SharedAuthority,
    services: Arc<LinkerdServices>,
}

type Watch<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A stream with one response that stays open: proxies treat its end as a failure.
fn once<T: Send + 'static>(answer: T) -> Response<Watch<T>> {
    let stream = tokio_stream::once(Ok(answer)).chain(tokio_stream::pending());
    Response::new(Box::pin(stream))
}

#[tonic::async_trait]
impl Identity for Controller {
    async fn certify(
        &self,
        request: Request<CertifyRequest>,
    ) -> Result<Response<CertifyResponse>, Status> {
        let authority = self
            .authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let signed = authority
            .sign(&request.get_ref().certificate_signing_request)
            .map_err(|e| Status::invalid_argument(e.to_string()))?;
        Ok(Response::new(CertifyResponse {
            leaf_certificate: signed.der,
            intermediate_certificates: Vec::new(),
            valid_until: Some(Timestamp {
                seconds: signed.valid_until_unix_s,
                nanos: 0,
            }),
        }))
    }
}

#[tonic::async_trait]
impl Destination for Controller {
    type GetStream = Watch<Update>;
    type GetProfileStream = Watch<DestinationProfile>;

    async fn get(
        &self,
        request: Request<GetDestination>,
    ) -> Result<Response<Self::GetStream>, Status> {
        let path = &request.get_ref().path;
        let addrs = self.endpoints(path);
        let update = if addrs.is_empty() {
            update::Update::NoEndpoints(NoEndpoints { exists: false })
        } else {
            update::Update::Add(WeightedAddrSet {
                addrs,
                metric_labels: HashMap::new(),
            })
        };
        Ok(once(Update {
            update: Some(update),
        }))
    }

    async fn get_profile(
        &self,
        request: Request<GetDestination>,
    ) -> Result<Response<Self::GetProfileStream>, Status> {
        let asked = request.get_ref().path.parse().ok();
        if let Some((service, port)) = asked.and_then(|asked| self.service(asked)) {
            return Ok(once(DestinationProfile {
                fully_qualified_name: service.name.clone(),
                opaque_protocol: port.opaque,
                ..DestinationProfile::default()
            }));
        }
        let found = asked.and_then(|asked| self.endpoint(asked));
        Ok(once(DestinationProfile {
            opaque_protocol: found.is_some_and(|(_, port)| port.opaque),
            endpoint: found.map(|(endpoint, port)| weighted(endpoint, port)),
            ..DestinationProfile::default()
        }))
    }
}

impl Controller {
    /// The pod with this address, of any service, and its port.
    fn endpoint(&self, asked: SocketAddr) -> Option<(&LinkerdEndpoint, LinkerdPort)> {
        let is_it = |e: &&LinkerdEndpoint| IpAddr::V4(e.address) == asked.ip();
        let mut all = self.services.callees.iter().flat_map(|c| &c.endpoints);
        let endpoint = all.find(is_it)?;
        Some((endpoint, port_of(endpoint, asked.port())?))
    }

    /// The service with this address, and its port.
    fn service(&self, asked: SocketAddr) -> Option<(&LinkerdService, LinkerdPort)> {
        let is_it = |service: &&LinkerdService| service.address.map(IpAddr::V4) == Some(asked.ip());
        let service = self.services.callees.iter().find(is_it)?;
        let port = port_of(service.endpoints.first()?, asked.port())?;
        Some((service, port))
    }

    /// The target of a destination: a pod's address, or a service's name, with a port.
    fn endpoints(&self, path: &str) -> Vec<WeightedAddr> {
        if let Ok(asked) = path.parse() {
            let found = self.endpoint(asked).into_iter();
            return found.map(|(e, port)| weighted(e, port)).collect();
        }
        let Some((name, port)) = path.rsplit_once(':') else {
            return Vec::new();
        };
        let is_it = |service: &&LinkerdService| service.name == name;
        let (Some(service), Ok(port)) = (self.services.callees.iter().find(is_it), port.parse())
        else {
            return Vec::new();
        };
        let endpoints = service.endpoints.iter();
        endpoints
            .filter_map(|endpoint| Some(weighted(endpoint, port_of(endpoint, port)?)))
            .collect()
    }
}

fn port_of(endpoint: &LinkerdEndpoint, number: u16) -> Option<LinkerdPort> {
    endpoint.ports.iter().copied().find(|p| p.number == number)
}

fn weighted(endpoint: &LinkerdEndpoint, port: LinkerdPort) -> WeightedAddr {
    let name = |name: &String| tls_identity::DnsLikeIdentity { name: name.clone() };
    let meshed = endpoint.identity.as_ref();
    WeightedAddr {
        addr: Some(SocketAddr::from((endpoint.address, port.number)).into()),
        // Linkerd's controller sends this weight for every endpoint that has none configured.
        weight: 10_000,
        tls_identity: meshed.map(|identity| TlsIdentity {
            strategy: Some(tls_identity::Strategy::DnsLikeIdentity(name(identity))),
            server_name: Some(name(identity)),
        }),
        protocol_hint: Some(ProtocolHint {
            protocol: Some(match port.opaque {
                true => protocol_hint::Protocol::Opaque(protocol_hint::Opaque {}),
                false => protocol_hint::Protocol::H2(protocol_hint::H2 {}),
            }),
            opaque_transport: Some(protocol_hint::OpaqueTransport {
                inbound_port: u32::from(endpoint.inbound_port),
            }),
        }),
        ..WeightedAddr::default()
    }
}

#[tonic::async_trait]
impl InboundServerPolicies for Controller {
    type WatchPortStream = Watch<inbound::Server>;

    async fn get_port(
        &self,
        request: Request<PortSpec>,
    ) -> Result<Response<inbound::Server>, Status> {
        self.inbound(request.get_ref().port).map(Response::new)
    }

    async fn watch_port(
        &self,
        request: Request<PortSpec>,
    ) -> Result<Response<Self::WatchPortStream>, Status> {
        self.inbound(request.get_ref().port).map(once)
    }
}

impl Controller {
    fn inbound(&self, port: u32) -> Result<inbound::Server, Status> {
        let known = self.services.inbound.iter();
        let found = known.clone().find(|(p, _)| u32::from(p.number) == port);
        let (port, policy) = found.ok_or_else(|| Status::not_found("no such port"))?;
        Ok(server(policy, port.opaque))
    }
}

#[tonic::async_trait]
impl OutboundPolicies for Controller {
    type WatchStream = Watch<OutboundPolicy>;

    async fn get(&self, request: Request<TrafficSpec>) -> Result<Response<OutboundPolicy>, Status> {
        self.outbound(request.get_ref()).map(Response::new)
    }

    async fn watch(
        &self,
        request: Request<TrafficSpec>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.outbound(request.get_ref()).map(once)
    }
}

impl Controller {
    fn outbound(&self, asked: &TrafficSpec) -> Result<OutboundPolicy, Status> {
        let asked: Option<SocketAddr> = match &asked.target {
            Some(traffic_spec::Target::Addr(address)) => (*address).try_into().ok(),
            Some(traffic_spec::Target::Authority(authority)) => authority.parse().ok(),
            None => None,
        };
        let (service, port) = asked
            .and_then(|asked| self.service(asked))
            .ok_or_else(no_such_service)?;
        Ok(outbound_policy::to_service(service, port))
    }
}

/// A pod's address has no outbound policy: the proxy then requests its profile.
fn no_such_service() -> Status {
    Status::not_found("no such service")
}

fn server(policy: &LinkerdInbound, opaque: bool) -> inbound::Server {
    let (authorizations, http_routes) = match policy {
        LinkerdInbound::Anyone => {
            let anyone = Permit::Unauthenticated(PermitUnauthenticated {});
            (
                vec![authorization(anyone, "all-unauthenticated")],
                Vec::new(),
            )
        }
        LinkerdInbound::AllAuthenticated => (vec![authenticated(None)], Vec::new()),
        LinkerdInbound::Clients { identities } => {
            (vec![authenticated(Some(identities))], Vec::new())
        }
        LinkerdInbound::Routes { identities, rules } => (Vec::new(), routes(identities, rules)),
    };
    inbound::Server {
        protocol: Some(ProxyProtocol {
            kind: Some(match opaque {
                true => proxy_protocol::Kind::Opaque(proxy_protocol::Opaque {}),
                false => proxy_protocol::Kind::Detect(proxy_protocol::Detect {
                    timeout: DETECT_WITHIN.try_into().ok(),
                    http_routes,
                    http_local_rate_limit: None,
                }),
            }),
        }),
        server_ips: Vec::new(),
        authorizations,
        labels: labels("server", "server"),
    }
}

fn labels(kind: &str, name: &str) -> HashMap<String, String> {
    [
        ("group", "policy.linkerd.io"),
        ("kind", kind),
        ("name", name),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

fn named(name: &str) -> Metadata {
    Metadata {
        kind: Some(metadata::Kind::Default(name.into())),
    }
}

/// Permits these clients over mutual TLS, or all with a proven identity.
fn authenticated(clients: Option<&[String]>) -> Authz {
    let names = clients.unwrap_or_default().iter().cloned();
    let identities = PermitClientIdentities {
        identities: names.map(|name| inbound::Identity { name }).collect(),
        suffixes: match clients {
            Some(_) => Vec::new(),
            // An empty suffix matches every name.
            None => vec![IdentitySuffix { parts: Vec::new() }],
        },
    };
    let permit = Permit::MeshTls(PermitMeshTls {
        clients: Some(Clients::Identities(identities)),
    });
    match clients {
        Some(_) => authorization(permit, "allow-callers"),
        None => authorization(permit, "all-authenticated"),
    }
}

fn authorization(permit: Permit, name: &str) -> Authz {
    Authz {
        networks: vec![Network {
            net: Some(IpNetwork {
                ip: Some(IpAddress::from(Ipv4Addr::UNSPECIFIED)),
                prefix_len: 0,
            }),
            except: Vec::new(),
        }],
        authentication: Some(Authn {
            permit: Some(permit),
        }),
        labels: labels("authorizationpolicy", name),
        metadata: Some(named(name)),
    }
}

/// The permitted requests, and a route that denies all others: without it they would get a
/// "not found" response, which a server can return without any policy.
fn routes(identities: &[String], rules: &[HttpRule]) -> Vec<HttpRoute> {
    let route = |name: &str, authorizations, matches| HttpRoute {
        metadata: Some(named(name)),
        hosts: Vec::new(),
        authorizations,
        rules: vec![http_route::Rule {
            matches,
            filters: Vec::new(),
        }],
    };
    let path = |kind: path_match::Kind, method: Option<&str>| HttpRouteMatch {
        path: Some(PathMatch { kind: Some(kind) }),
        method: method.map(|method| HttpMethod {
            r#type: Some(http_method::Type::Unregistered(method.into())),
        }),
        ..HttpRouteMatch::default()
    };
    let allowed = rules
        .iter()
        .flat_map(|rule| {
            let prefixes = rule.prefixes.iter().cloned().map(path_match::Kind::Prefix);
            let exact = rule.exact.iter().cloned().map(path_match::Kind::Exact);
            prefixes
                .chain(exact)
                .map(|kind| path(kind, Some(&rule.method)))
        })
        .collect();
    vec![
        route("allowed", vec![authenticated(Some(identities))], allowed),
        route(
            "all-else",
            Vec::new(),
            vec![path(path_match::Kind::Prefix("/".into()), None)],
        ),
    ]
}
