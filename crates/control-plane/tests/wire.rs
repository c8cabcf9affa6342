//! The services for proxies, tested with clients of the real wire formats.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use linkerd2_proxy_api::destination::destination_client::DestinationClient;
use linkerd2_proxy_api::destination::{GetDestination, protocol_hint, tls_identity, update};
use linkerd2_proxy_api::identity::CertifyRequest;
use linkerd2_proxy_api::identity::identity_client::IdentityClient;
use linkerd2_proxy_api::inbound::inbound_server_policies_client::InboundServerPoliciesClient;
use linkerd2_proxy_api::inbound::{PortSpec, authn, proxy_protocol};
use linkerd2_proxy_api::outbound::outbound_policies_client::OutboundPoliciesClient;
use linkerd2_proxy_api::outbound::{self, TrafficSpec, traffic_spec};
use meshtax_control_plane::{
    Authority, SharedAuthority, WorkloadSocket, discovery, istio_ca, linkerd,
};
use meshtax_dataplane::{
    APP_PORT, AppPort, ControlService, Discovery, EMULATED_NAMESPACE, HttpRule, LinkerdEndpoint,
    LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices, Pod, PodNode, Site, SiteService,
    Workload, blueprint,
};
use meshtax_model::catalogue;
use meshtax_model::experiment::{ExtraEndpoints, Options, PolicyLevel, Workers};
use prost::Message as _;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use x509_parser::prelude::*;

const CLIENT: &str = "client.default.serviceaccount.identity.linkerd.cluster.local";
const SERVER: &str = "server.default.serviceaccount.identity.linkerd.cluster.local";
const SPIFFE: &str = "spiffe://cluster.local/ns/default/sa/client";

fn authority() -> SharedAuthority {
    Arc::new(Mutex::new(Authority::new("test").unwrap()))
}

fn request_der(authority: &SharedAuthority, identity: &str) -> Vec<u8> {
    authority
        .lock()
        .unwrap()
        .leaf(identity)
        .unwrap()
        .request_der
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let patient = async { tokio::time::timeout(Duration::from_secs(10), work).await };
    runtime.block_on(patient).expect("answered in time")
}

fn is_for(der: &[u8], identity: &str) {
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let shown = format!("{:?}", names.value.general_names);
    assert!(shown.contains(identity), "{shown}");
}

/// istio/api, security/v1alpha1/ca.proto, with a field that meshtax does not read.
#[derive(Clone, PartialEq, prost::Message)]
struct CertificateRequest {
    #[prost(string, tag = "1")]
    csr: String,
    #[prost(int64, tag = "3")]
    validity_duration: i64,
    #[prost(bytes = "vec", tag = "4")]
    metadata: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CertificateResponse {
    #[prost(string, repeated, tag = "1")]
    cert_chain: Vec<String>,
}

async fn certify(
    address: SocketAddr,
    root_pem: String,
    name: &str,
    csr: String,
) -> Result<CertificateResponse, tonic::Status> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(root_pem))
        .domain_name(name);
    let channel = Channel::from_shared(format!("https://{address}"))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
        .map_err(|e| tonic::Status::unavailable(e.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path =
        PathAndQuery::from_static("/istio.v1.auth.IstioCertificateService/CreateCertificate");
    let request = CertificateRequest {
        csr,
        validity_duration: 86_400,
        metadata: vec![1, 2, 3],
    };
    let codec = ProstCodec::<CertificateRequest, CertificateResponse>::default();
    let answered = client.unary(Request::new(request), path, codec).await?;
    Ok(answered.into_inner())
}

fn pem(der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}

#[test]
fn istio_certificate_service_signs_the_requested_names() {
    let authority = authority();
    let root = authority.lock().unwrap().root_pem();
    let (socket, address) = listener();
    let _server = istio_ca(socket, &authority, "istiod.istio-system.svc").unwrap();
    let request = pem(&request_der(&authority, SPIFFE));
    let chain = within(certify(
        address,
        root.clone(),
        "istiod.istio-system.svc",
        request.clone(),
    ))
    .unwrap()
    .cert_chain;
    assert_eq!(chain.len(), 2, "the leaf, then the root");
    let (_, leaf) = parse_x509_pem(chain[0].as_bytes()).unwrap();
    is_for(&leaf.contents, SPIFFE);
    assert_eq!(chain[1], root);

    let name = "istiod.istio-system.svc";
    let garbage = within(certify(address, root.clone(), name, "hello".into()));
    assert_eq!(garbage.unwrap_err().code(), Code::InvalidArgument);
    // Its certificate is for one name, as a client must be able to verify.
    let elsewhere = within(certify(address, root, "another.name", request));
    assert_eq!(elsewhere.unwrap_err().code(), Code::Unavailable);
}

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

/// istio/ztunnel, proto/zds.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadRequest {
    #[prost(message, optional, tag = "1")]
    add: Option<AddWorkload>,
    #[prost(message, optional, tag = "3")]
    snapshot_sent: Option<()>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AddWorkload {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(message, optional, tag = "2")]
    workload_info: Option<WorkloadInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    service_account: String,
}

/// `ZdsHello{version: V1}`, and `WorkloadResponse{ack: Ack{}}`, as they are on the wire.
const HELLO: &[u8] = &[0x08, 0x01];
const ACKNOWLEDGED: &[u8] = &[0x0a, 0x00];

/// One packet, and the descriptor in it.
fn packet(stream: &OwnedFd) -> (WorkloadRequest, Option<OwnedFd>) {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::empty()).unwrap();
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    assert!(descriptors.len() < 2);
    let request = WorkloadRequest::decode(&bytes[..received.bytes]).unwrap();
    (request, descriptors.pop())
}

#[test]
fn workload_socket_sends_each_pod_namespace_and_then_snapshot_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ztunnel.sock");
    let pods: Vec<(Workload, OwnedFd)> = ["client", "server"]
        .into_iter()
        .map(|name| {
            let workload = Workload {
                uid: format!("cluster//Pod/default/{name}"),
                name: name.into(),
                namespace: "default".into(),
                service_account: format!("{name}-account"),
            };
            let file = std::fs::File::create(directory.path().join(name)).unwrap();
            (workload, file.into())
        })
        .collect();
    let _socket = WorkloadSocket::serve(&path, pods).unwrap();
    // A restarted ztunnel connects again.
    for _ in 0..2 {
        let stream = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        connect(&stream, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        send(&stream, HELLO, SendFlags::NOSIGNAL).unwrap();
        for name in ["client", "server"] {
            let (request, namespace) = packet(&stream);
            let add = request.add.expect("a workload");
            let info = add.workload_info.unwrap();
            assert_eq!(add.uid, format!("cluster//Pod/default/{name}"));
            assert_eq!(
                (info.name.as_str(), info.namespace.as_str()),
                (name, "default")
            );
            assert_eq!(info.service_account, format!("{name}-account"));
            // It is that very file.
            let (given, meant) = (namespace.unwrap(), directory.path().join(name));
            let meant = std::fs::File::open(meant).unwrap();
            let inode = |fd: std::os::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
            assert_eq!(inode(given.as_fd()), inode(meant.as_fd()));
            send(&stream, ACKNOWLEDGED, SendFlags::NOSIGNAL).unwrap();
        }
        let (last, nothing) = packet(&stream);
        assert!(last.snapshot_sent.is_some() && nothing.is_none());
        send(&stream, ACKNOWLEDGED, SendFlags::NOSIGNAL).unwrap();
    }
}

/// envoy/service/discovery/v3/discovery.proto; so far as it is used here.
#[derive(Clone, PartialEq, prost::Message)]
struct DeltaDiscoveryRequest {
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    resource_names_subscribe: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeltaDiscoveryResponse {
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, optional, tag = "2")]
    resource: Option<prost_types::Any>,
}

/// envoy/config/cluster/v3/cluster.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Cluster {
    #[prost(message, optional, tag = "25")]
    metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "40")]
    filters: Vec<Filter>,
}

/// envoy/config/cluster/v3/filter.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Filter {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    typed_config: Option<prost_types::Any>,
}

/// udpa/type/v1/typed_struct.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<prost_types::Struct>,
}

/// envoy/config/core/v3/base.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, prost_types::Struct>,
}

/// envoy/config/endpoint/v3/endpoint.proto and endpoint_components.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct ClusterLoadAssignment {
    #[prost(message, repeated, tag = "2")]
    endpoints: Vec<LocalityLbEndpoints>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LocalityLbEndpoints {
    #[prost(message, repeated, tag = "2")]
    lb_endpoints: Vec<LbEndpoint>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LbEndpoint {
    #[prost(message, optional, tag = "3")]
    metadata: Option<Metadata>,
}

/// What the client's sidecar of `istio-sidecar` discovers with one extra endpoint.
fn told_to_istios_sidecar() -> Discovery {
    let pod = |name: &str, last, node| Pod {
        name: name.into(),
        address: Ipv4Addr::new(10, 0, 0, last),
        service_account: name.into(),
        directory: format!("/{name}"),
        node,
    };
    let server = pod("server", 2, PodNode::Server(0));
    let site = Site {
        namespace: EMULATED_NAMESPACE.into(),
        clients: vec![pod("client", 1, PodNode::Client)],
        services: vec![SiteService {
            name: server.name.clone(),
            address: server.address,
            pods: vec![server],
            ports: vec![AppPort::http1(APP_PORT)],
            calls: Vec::new(),
            entry_point: true,
        }],
        waypoint: pod("waypoint", 3, PodNode::Server(0)),
        gateway: None,
        intruder: None,
        workers: Workers::Equal(1),
        cores: 2,
        options: Options {
            extra_endpoints: Some(ExtraEndpoints {
                endpoints: 1,
                per_service: 1,
                changes_per_s: None,
            }),
            ..Options::default()
        },
        runtime: BTreeMap::new(),
    };
    let plane = catalogue::find("istio-sidecar").unwrap();
    let blueprint = blueprint(plane, &site, Some(PolicyLevel::Mtls), None);
    let client = blueprint.emulation.pod("client").unwrap();
    let discovered = client.control.iter().find_map(|service| match service {
        ControlService::Discovery { tells, .. } => Some(tells.clone()),
        _ => None,
    });
    discovered.unwrap()
}

/// The only resource of a type.
async fn discovered<M: prost::Message + Default>(address: SocketAddr, message: &str) -> M {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static(
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
    );
    let request = DeltaDiscoveryRequest {
        type_url: format!("type.googleapis.com/{message}"),
        resource_names_subscribe: vec!["*".into()],
    };
    let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let requests = Request::new(tokio_stream::once(request));
    let responses = client.streaming(requests, path, codec).await.unwrap();
    let response = responses.into_inner().message().await.unwrap().unwrap();
    let [resource] = &response.resources[..] else {
        panic!("{response:?}");
    };
    let any = resource.resource.as_ref().unwrap();
    assert!(any.type_url.ends_with(message), "{any:?}");
    M::decode(any.value.as_slice()).unwrap()
}

/// A field of an object, as text.
fn field(object: &prost_types::Struct, name: &str) -> String {
    format!("{:?}", object.fields[name].kind.as_ref().unwrap())
}

#[test]
fn istio_filters_and_metadata_of_clusters_and_endpoints_are_on_the_wire() {
    let (socket, address) = listener();
    let _server = discovery(socket, &told_to_istios_sidecar()).unwrap();
    let cluster: Cluster = within(discovered(address, "envoy.config.cluster.v3.Cluster"));
    let [filter] = &cluster.filters[..] else {
        panic!("{cluster:?}");
    };
    assert_eq!(filter.name, "istio.metadata_exchange");
    let any = filter.typed_config.as_ref().unwrap();
    assert_eq!(any.type_url, "type.googleapis.com/udpa.type.v1.TypedStruct");
    let config = TypedStruct::decode(any.value.as_slice()).unwrap();
    assert_eq!(
        config.type_url,
        "type.googleapis.com/envoy.tcp.metadataexchange.config.MetadataExchange"
    );
    let value = config.value.unwrap();
    assert_eq!(
        field(&value, "protocol"),
        "StringValue(\"istio-peer-exchange\")"
    );
    assert_eq!(field(&value, "enable_discovery"), "BoolValue(true)");
    let services = field(
        &cluster.metadata.unwrap().filter_metadata["istio"],
        "services",
    );
    assert!(
        services.contains("known-1.default.svc.cluster.local"),
        "{services}"
    );

    let message = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    let assignment: ClusterLoadAssignment = within(discovered(address, message));
    let endpoint = &assignment.endpoints[0].lb_endpoints[0];
    let metadata = &endpoint.metadata.as_ref().unwrap().filter_metadata["istio"];
    assert_eq!(
        field(metadata, "workload"),
        "StringValue(\"known-1;default;known-1;;Kubernetes\")"
    );
}
