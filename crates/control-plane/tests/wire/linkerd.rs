//! linkerd2-proxy: identities, destinations and policies.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use linkerd2_proxy_api::destination::destination_client::DestinationClient;
use linkerd2_proxy_api::destination::{GetDestination, protocol_hint, tls_identity, update};
use linkerd2_proxy_api::identity::CertifyRequest;
use linkerd2_proxy_api::identity::identity_client::IdentityClient;
use linkerd2_proxy_api::inbound::inbound_server_policies_client::InboundServerPoliciesClient;
use linkerd2_proxy_api::inbound::{PortSpec, authn, proxy_protocol};
use linkerd2_proxy_api::outbound::outbound_policies_client::OutboundPoliciesClient;
use linkerd2_proxy_api::outbound::{self, TrafficSpec, traffic_spec};
use meshtax_control_plane::{SharedAuthority, linkerd};
use meshtax_dataplane::{
    HttpRule, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
};
use tonic::Code;
use x509_parser::prelude::*;

use crate::{authority, is_for, listener, request_der, within};

const CLIENT: &str = "client.default.serviceaccount.identity.linkerd.cluster.local";

const SERVER: &str = "server.default.serviceaccount.identity.linkerd.cluster.local";

const SERVICE: &str = "server.default.svc.cluster.local";

const OTHER_SERVICE: &str = "other.default.svc.cluster.local";

/// Three services with callers, of which one has two replicas and one no address of its own, each with a port of
/// HTTP and one of opaque TCP.
fn services(inbound: LinkerdInbound) -> LinkerdServices {
    let port = |number, opaque| LinkerdPort { number, opaque };
    let endpoint = |last| LinkerdEndpoint {
        address: Ipv4Addr::new(10, 77, 2, last),
        ports: vec![port(8080, false), port(8081, true)],
        identity: Some(SERVER.into()),
        inbound_port: 4143,
    };
    LinkerdServices {
        callees: vec![
            LinkerdService {
                name: OTHER_SERVICE.into(),
                address: Some(Ipv4Addr::new(10, 77, 8, 2)),
                endpoints: vec![endpoint(20)],
            },
            LinkerdService {
                name: "pod.default.svc.cluster.local".into(),
                address: None,
                endpoints: vec![endpoint(30)],
            },
            LinkerdService {
                name: SERVICE.into(),
                address: Some(Ipv4Addr::new(10, 77, 8, 1)),
                endpoints: vec![endpoint(10), endpoint(12)],
            },
        ],
        inbound: vec![
            (port(8080, false), inbound.clone()),
            (port(8081, true), inbound),
        ],
    }
}

fn linkerd_at(inbound: LinkerdInbound) -> (meshtax_control_plane::Server, String, SharedAuthority) {
    let authority = authority();
    let (socket, address) = listener();
    let server = linkerd(socket, &authority, services(inbound)).unwrap();
    (server, format!("http://{address}"), authority)
}

#[test]
fn linkerd_identity_service_returns_a_certificate_with_its_expiry() {
    let (_server, url, authority) = linkerd_at(LinkerdInbound::AllAuthenticated);
    let certificate_signing_request = request_der(&authority, CLIENT);
    let answer = within(async {
        let mut client = IdentityClient::connect(url).await.unwrap();
        let request = CertifyRequest {
            identity: CLIENT.into(),
            token: b"token".to_vec(),
            certificate_signing_request,
        };
        client.certify(request).await.unwrap().into_inner()
    });
    is_for(&answer.leaf_certificate, CLIENT);
    let (_, certificate) = X509Certificate::from_der(&answer.leaf_certificate).unwrap();
    let until = certificate.validity().not_after.timestamp();
    assert_eq!(answer.valid_until.unwrap().seconds, until);
}

#[test]
fn linkerd_destination_service_resolves_only_the_proxied_pod() {
    let (_server, url, _) = linkerd_at(LinkerdInbound::AllAuthenticated);
    within(async {
        let mut client = DestinationClient::connect(url).await.unwrap();
        for (path, known) in [
            ("10.77.2.10:8080", true),
            ("10.77.2.20:8080", true),
            ("10.77.2.30:8080", true),
            ("10.77.2.11:8080", false),
            ("10.77.2.10:8082", false),
        ] {
            let asked = GetDestination {
                path: path.into(),
                ..GetDestination::default()
            };
            let mut profiles = client.get_profile(asked).await.unwrap().into_inner();
            let endpoint = profiles.message().await.unwrap().unwrap().endpoint;
            assert_eq!(endpoint.is_some(), known, "{path}");
            let Some(endpoint) = endpoint else { continue };
            let Some(tls_identity::Strategy::DnsLikeIdentity(name)) =
                endpoint.tls_identity.unwrap().strategy
            else {
                panic!("Linkerd's identities are DNS names");
            };
            assert_eq!(name.name, SERVER);
            let hint = endpoint.protocol_hint.unwrap();
            assert!(matches!(
                hint.protocol,
                Some(protocol_hint::Protocol::H2(_))
            ));
            assert_eq!(hint.opaque_transport.unwrap().inbound_port, 4143);
            // The end of a watch would be a failure to the proxy.
            let more = tokio::time::timeout(Duration::from_millis(200), profiles.message());
            assert!(more.await.is_err(), "the stream stays open");
        }
    });
}

#[test]
fn linkerd_policies_match_the_level() {
    let client = || CLIENT.to_owned();
    let levels = [
        (LinkerdInbound::AllAuthenticated, 1, 0, ""),
        (
            LinkerdInbound::Clients {
                identities: vec!["gateway".into(), client()],
            },
            1,
            0,
            CLIENT,
        ),
        (
            LinkerdInbound::Routes {
                identities: vec![client()],
                rules: vec![HttpRule {
                    method: "GET".into(),
                    prefixes: vec!["/allowed".into()],
                    exact: Vec::new(),
                }],
            },
            0,
            2,
            "",
        ),
    ];
    for (inbound, authorizations, routes, identity) in levels {
        let (_server, url, _) = linkerd_at(inbound.clone());
        let server = within(async {
            let mut client = InboundServerPoliciesClient::connect(url).await.unwrap();
            let port = PortSpec {
                workload: "{}".into(),
                port: 8080,
            };
            let mut watch = client.watch_port(port).await.unwrap().into_inner();
            watch.message().await.unwrap().unwrap()
        });
        assert_eq!(server.authorizations.len(), authorizations, "{inbound:?}");
        let Some(proxy_protocol::Kind::Detect(detect)) = server.protocol.unwrap().kind else {
            panic!("{inbound:?}: the protocol is detected");
        };
        assert_eq!(detect.http_routes.len(), routes, "{inbound:?}");
        if let Some(route) = detect.http_routes.last() {
            assert!(route.authorizations.is_empty(), "nobody may take all else");
        }
        let permitted = server.authorizations.first().map(|authorization| {
            let permit = authorization
                .authentication
                .as_ref()
                .unwrap()
                .permit
                .as_ref();
            assert!(
                matches!(permit, Some(authn::Permit::MeshTls(_))),
                "{inbound:?}"
            );
            format!("{permit:?}")
        });
        assert!(
            permitted.unwrap_or_default().contains(identity),
            "{inbound:?}"
        );
    }
}

/// A service without callers: neither names nor a suffix, since an empty suffix would match all clients.
#[test]
fn linkerd_service_without_callers_denies_all_clients() {
    let identities = Vec::new();
    let (_server, url, _) = linkerd_at(LinkerdInbound::Clients { identities });
    let server = within(async {
        let mut client = InboundServerPoliciesClient::connect(url).await.unwrap();
        let port = PortSpec {
            workload: "{}".into(),
            port: 8080,
        };
        client.get_port(port).await.unwrap().into_inner()
    });
    let authorization = server.authorizations.into_iter().next();
    let permit = authorization.and_then(|a| a.authentication?.permit);
    let Some(authn::Permit::MeshTls(tls)) = permit else {
        panic!("{permit:?}");
    };
    let Some(authn::permit_mesh_tls::Clients::Identities(clients)) = tls.clients else {
        panic!("{tls:?}");
    };
    assert!(clients.identities.is_empty() && clients.suffixes.is_empty());
}

/// The proxy's lookup for a service's address: the policy names a destination, which has that service's endpoints.
#[test]
fn linkerd_balances_a_service_address_over_its_pods() {
    let (_server, url, _) = linkerd_at(LinkerdInbound::AllAuthenticated);
    within(async {
        let mut policies = OutboundPoliciesClient::connect(url.clone()).await.unwrap();
        let mut destinations = DestinationClient::connect(url).await.unwrap();
        for (name, address, port, pods) in [
            (SERVICE, "10.77.8.1", 8080, 2),
            (SERVICE, "10.77.8.1", 8081, 2),
            (OTHER_SERVICE, "10.77.8.2", 8080, 1),
        ] {
            let opaque = port == 8081;
            let address: SocketAddr = format!("{address}:{port}").parse().unwrap();
            let asked = TrafficSpec {
                target: Some(traffic_spec::Target::Addr(address.into())),
                ..TrafficSpec::default()
            };
            let policy = policies.get(asked).await.unwrap().into_inner();
            let kind = policy.protocol.unwrap().kind.unwrap();
            let is_opaque = matches!(kind, outbound::proxy_protocol::Kind::Opaque(_));
            assert_eq!(is_opaque, opaque);
            let path = format!("{name}:{port}");
            assert!(format!("{kind:?}").contains(&path), "{kind:?}");
            let asked = GetDestination {
                path,
                ..GetDestination::default()
            };
            let mut updates = destinations.get(asked).await.unwrap().into_inner();
            let update = updates.message().await.unwrap().unwrap().update;
            let Some(update::Update::Add(set)) = update else {
                panic!("{update:?}");
            };
            assert_eq!(set.addrs.len(), pods, "{name}");
        }
    });
}

#[test]
fn linkerd_pod_address_has_no_outbound_policy() {
    let (_server, url, _) = linkerd_at(LinkerdInbound::AllAuthenticated);
    let refused = within(async {
        let mut client = OutboundPoliciesClient::connect(url).await.unwrap();
        client.watch(TrafficSpec::default()).await.unwrap_err()
    });
    assert_eq!(refused.code(), Code::NotFound);
}
