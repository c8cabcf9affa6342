//! Envoy: resources by delta discovery.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use meshtax_control_plane::discovery;
use meshtax_dataplane::{
    APP_PORT, AppPort, ControlService, Discovery, EMULATED_NAMESPACE, Pod, PodNode, Site,
    SiteService, blueprint,
};
use meshtax_model::catalogue;
use meshtax_model::experiment::{ExtraEndpoints, Options, PolicyLevel, Workers};
use prost::Message as _;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

use crate::{listener, within};

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
