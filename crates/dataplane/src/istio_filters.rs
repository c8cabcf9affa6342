//! What Istio's own build of Envoy has and others do not: Istio's filters, as istiod configures them by default, and what they
//! read. All that distinguishes an `istio-sidecar` from an `envoy-sidecar` is here.
//!
//! Sources, in github.com/istio/istio: the filters in `pilot/pkg/xds/filters/filters.go`; their places in
//! `pilot/pkg/networking/core` (`listener_builder.go` for requests, `networkfilter.go` and `listener_inbound.go` for
//! connections, `cluster_builder.go` for clusters); the statistics, for Prometheus, in `pilot/pkg/model/telemetry.go`;
//! application protocols in `pilot/pkg/networking/util/util.go` and `pilot/pkg/security/authn/utils/utils.go`; metadata in
//! `cluster_builder.go` (`addTelemetryMetadata`), `util.go` (`AppendLbEndpointMetadata`) and `pkg/bootstrap`. Which fields
//! of the node's metadata the filters read: github.com/istio/proxy, `extensions/common/metadata_object.cc`.

use serde_json::{Value, json};

use crate::control::Discovery;
use crate::envoy::typed;
use crate::names::{EMULATED_NAMESPACE, TRUST_DOMAIN};
use crate::site::{AppProtocol, Pod, Site, SiteService};

/// Exchanges the workloads' metadata: of requests in headers, of connections in a preface after the handshake.
const EXCHANGE: &str = "istio.metadata_exchange";
const ALPN: &str = "istio.alpn";
const STATS: &str = "istio.stats";

/// The application protocol of connections that begin with that preface.
const PEER_EXCHANGE: &str = "istio-peer-exchange";
const CLUSTER_ID: &str = "Kubernetes";

/// What a client's sidecar offers: for requests, its ALPN filter replaces what the cluster would offer.
pub(crate) fn offered(protocol: AppProtocol) -> &'static [&'static str] {
    match protocol {
        AppProtocol::Http1 => &["istio-http/1.1", "istio", "http/1.1"],
        AppProtocol::Http2 => &["istio-h2", "istio", "h2"],
        AppProtocol::Tcp => &[PEER_EXCHANGE, "istio"],
    }
}

/// Adds Istio's filters to a sidecar's configuration, and to what it discovers later.
pub(crate) fn add(config: &mut Value, discovered: &mut Discovery, site: &Site, pod: &Pod) {
    config["node"] = node(pod);
    keep_statistics(config);
    let own = site
        .services
        .iter()
        .find(|service| service.pods.contains(pod));
    let own = own.map(SiteService::dns_name);
    let resources = &mut config["static_resources"];
    items(&mut resources["listeners"]).for_each(to_listener);
    for cluster in items(&mut resources["clusters"]).chain(&mut discovered.clusters) {
        to_cluster(cluster, own.as_deref());
    }
    for assignment in &mut discovered.endpoints {
        let cluster = assignment["cluster_name"].as_str().unwrap_or_default();
        let host = cluster.rsplit('|').next().unwrap_or_default().to_owned();
        describe_endpoints(assignment, &host);
    }
}

fn items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

/// The workload, as the agent describes it to Envoy: the part that the filters read and pass on.
fn node(pod: &Pod) -> Value {
    let (name, address, workload) = (&pod.name, pod.address, &pod.service_account);
    json!({
        "id": format!(
            "sidecar~{address}~{name}.{EMULATED_NAMESPACE}~{EMULATED_NAMESPACE}.svc.{TRUST_DOMAIN}"
        ),
        "cluster": format!("{workload}.{EMULATED_NAMESPACE}"),
        "metadata": {
            "CLUSTER_ID": CLUSTER_ID,
            "INSTANCE_IPS": address,
            "LABELS": {
                "service.istio.io/canonical-name": workload,
                "service.istio.io/canonical-revision": "latest",
            },
            "MESH_ID": TRUST_DOMAIN,
            "NAME": name,
            "NAMESPACE": EMULATED_NAMESPACE,
            "OWNER": format!(
                "kubernetes://apis/apps/v1/namespaces/{EMULATED_NAMESPACE}/deployments/{workload}"
            ),
            "SERVICE_ACCOUNT": workload,
            "WORKLOAD_NAME": workload,
        },
    })
}

/// Keeps what the filters count (the bootstrap's prefix `istio`).
fn keep_statistics(config: &mut Value) {
    let kept = config.pointer_mut("/stats_config/stats_matcher/inclusion_list/patterns");
    if let Some(patterns) = kept.and_then(Value::as_array_mut) {
        patterns.push(json!({"prefix": "istio"}));
    }
}

/// A filter of Istio's. As a `TypedStruct`, it is an error that names it where an Envoy does not have it; its own type would
/// be one of syntax.
fn filter(name: &str, message: &str, value: Value) -> Value {
    let mut config = typed("udpa.type.v1.TypedStruct");
    config["type_url"] = json!(format!("type.googleapis.com/{message}"));
    config["value"] = value;
    json!({"name": name, "typed_config": config})
}

/// Of connections.
fn peer_exchange() -> Value {
    filter(
        EXCHANGE,
        "envoy.tcp.metadataexchange.config.MetadataExchange",
        json!({"protocol": PEER_EXCHANGE, "enable_discovery": true}),
    )
}

/// Of requests. Discovery of workloads needs an extension that sidecars have in an ambient mesh only.
fn peer_metadata(is_inbound: bool) -> Value {
    let side = match is_inbound {
        true => "downstream",
        false => "upstream",
    };
    let mut value = json!({});
    value[format!("{side}_discovery")] = json!([{"istio_headers": {}}, {"workload_discovery": {}}]);
    value[format!("{side}_propagation")] = json!([{"istio_headers": {}}]);
    filter(EXCHANGE, "io.istio.http.peer_metadata.Config", value)
}

fn alpn() -> Value {
    let of = |protocol: &str, offered: &[&str]| json!({"upstream_protocol": protocol, "alpn_override": offered});
    let overrides = json!([
        of("HTTP10", &["istio-http/1.0", "istio", "http/1.0"]),
        of("HTTP11", offered(AppProtocol::Http1)),
        of("HTTP2", offered(AppProtocol::Http2)),
    ]);
    filter(
        ALPN,
        "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
        json!({"alpn_override": overrides}),
    )
}

fn stats(is_inbound: bool) -> Value {
    let value = match is_inbound {
        true => json!({"disable_host_header_fallback": true}),
        false => json!({}),
    };
    filter(STATS, "stats.PluginConfig", value)
}

fn to_listener(listener: &mut Value) {
    let is_inbound = listener["traffic_direction"] == "INBOUND";
    for chain in items(&mut listener["filter_chains"]) {
        to_chain(is_inbound, chain);
    }
    if let Some(chain) = listener.get_mut("default_filter_chain") {
        to_chain(is_inbound, chain);
    }
}

fn to_chain(is_inbound: bool, chain: &mut Value) {
    let Some(filters) = chain["filters"].as_array_mut() else {
        return;
    };
    // What decides where connections or requests go comes last.
    let Some(last) = filters.len().checked_sub(1) else {
        return;
    };
    let of_requests = filters[last].pointer_mut("/typed_config/http_filters");
    let accepted: &[&str] = match of_requests.and_then(Value::as_array_mut) {
        Some(of_requests) => {
            to_requests(is_inbound, of_requests);
            &["h2", "http/1.1"]
        }
        None => {
            filters.insert(last, stats(is_inbound));
            &[PEER_EXCHANGE, "h2", "http/1.1"]
        }
    };
    // Outbound, clusters have it. Before policies, so that their refusals can be attributed.
    if is_inbound {
        filters.insert(0, peer_exchange());
        set_protocols(chain, accepted);
    }
}

/// What a connection manager does with requests.
fn to_requests(is_inbound: bool, filters: &mut Vec<Value>) {
    let router = filters.len().saturating_sub(1);
    filters.insert(router, stats(is_inbound));
    let grpc = filters
        .iter()
        .position(|filter| filter["name"] == "envoy.filters.http.grpc_stats");
    if let Some(grpc) = grpc.filter(|_| !is_inbound) {
        filters.insert(grpc + 1, alpn());
    }
    filters.insert(0, peer_metadata(is_inbound));
}

/// Sets the application protocols of the TLS of a chain or of a cluster, if it has any.
fn set_protocols(of: &mut Value, protocols: &[&str]) {
    let path = "/transport_socket/typed_config/common_tls_context/alpn_protocols";
    if let Some(alpn) = of.pointer_mut(path) {
        *alpn = json!(protocols);
    }
}

/// What is reached through it, and `own`, the service of this pod.
fn to_cluster(cluster: &mut Value, own: Option<&str>) {
    let name = cluster["name"].as_str().unwrap_or_default().to_owned();
    match name.split('|').collect::<Vec<_>>()[..] {
        ["outbound", _, _, host] => {
            cluster["filters"] = json!([peer_exchange()]);
            cluster["metadata"] = service(host);
            if let Some(assignment) = cluster.get_mut("load_assignment") {
                describe_endpoints(assignment, host);
            }
            let protocols: &[&str] = match is_http2(cluster) {
                true => &[PEER_EXCHANGE, "istio", "h2"],
                false => offered(AppProtocol::Tcp),
            };
            set_protocols(cluster, protocols);
        }
        ["PassthroughCluster"] => cluster["filters"] = json!([peer_exchange()]),
        ["inbound", ..] => {
            if let Some(host) = own {
                cluster["metadata"] = service(host);
            }
        }
        // The control plane, the trace collector.
        _ => {}
    }
}

fn is_http2(cluster: &Value) -> bool {
    let options = &cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"];
    options["explicit_http_config"]
        .get("http2_protocol_options")
        .is_some()
}

/// The service and its namespace in a name of the cluster's DNS.
fn labels(host: &str) -> (&str, &str) {
    let mut labels = host.split('.');
    let mut next = || labels.next().unwrap_or_default();
    (next(), next())
}

/// The service to which requests of a cluster are attributed.
fn service(host: &str) -> Value {
    let (name, namespace) = labels(host);
    let services = json!([{"host": host, "name": name, "namespace": namespace}]);
    json!({"filter_metadata": {"istio": {"services": services}}})
}

/// Adds the workload to each endpoint, for requests that do not reach it: its name, its namespace, its canonical service and
/// revision (nothing: `latest`), its cluster. A workload is called like its service here.
fn describe_endpoints(assignment: &mut Value, host: &str) {
    let (name, namespace) = labels(host);
    let workload = format!("{name};{namespace};{name};;{CLUSTER_ID}");
    for locality in items(&mut assignment["endpoints"]) {
        for endpoint in items(&mut locality["lb_endpoints"]) {
            endpoint["metadata"] = json!({"filter_metadata": {"istio": {"workload": workload}}});
        }
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::catalogue::find;
    use meshtax_model::experiment::{ExtraEndpoints, PolicyLevel};

    use super::*;
    use crate::plane::blueprint;
    use crate::site::AppPort;
    use crate::tests::site;
    use crate::{Content, ControlService, PodBlueprint};

    /// A pod's configuration of Envoy, and what its Envoy discovers later.
    fn configuration(pod: &PodBlueprint) -> Value {
        let file = pod.files.iter().find(|file| file.name == "envoy.json");
        let Some(Content::Text(text)) = file.map(|file| &file.content) else {
            panic!("{}: no configuration", pod.pod);
        };
        let config: Value = serde_json::from_str(text).expect("JSON");
        let discovered = pod.control.iter().filter_map(|service| match service {
            ControlService::Discovery { tells, .. } => {
                Some(json!([tells.clusters, tells.endpoints]))
            }
            _ => None,
        });
        json!([config, discovered.collect::<Vec<_>>()])
    }

    fn configurations(data_plane: &str, level: PolicyLevel) -> Vec<Value> {
        let mut site = site();
        site.services[0].ports.extend([
            AppPort {
                number: 8081,
                protocol: AppProtocol::Http2,
                ..AppPort::http1(8081)
            },
            AppPort {
                number: 8082,
                protocol: AppProtocol::Tcp,
                ..AppPort::http1(8082)
            },
        ]);
        site.options.extra_endpoints = Some(ExtraEndpoints {
            endpoints: 2,
            per_service: 1,
            changes_per_s: None,
        });
        let plane = find(data_plane).expect("a data plane");
        let blueprint = blueprint(plane, &site, Some(level), None);
        blueprint.emulation.pods.iter().map(configuration).collect()
    }

    /// Without what this module adds or replaces.
    fn without_istios(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for added in ["node", "metadata", "alpn_protocols"] {
                    // Not in a tag of a trace, whose metadata is another.
                    if !fields.contains_key("tag") {
                        fields.remove(added);
                    }
                }
                fields.values_mut().for_each(without_istios);
                fields.retain(|name, value| name != "filters" || *value != json!([]));
            }
            Value::Array(items) => {
                items.retain(|item| {
                    let name = item["name"].as_str().unwrap_or_default();
                    !name.starts_with("istio.") && item["prefix"] != "istio"
                });
                items.iter_mut().for_each(without_istios);
            }
            _ => {}
        }
    }

    #[test]
    fn istio_sidecar_is_an_envoy_sidecar_with_istios_filters_and_metadata() {
        for level in find("istio-sidecar").expect("a data plane").levels {
            let istios = configurations("istio-sidecar", *level);
            let upstream = configurations("envoy-sidecar", *level);
            assert_ne!(istios, upstream);
            let without = |mut all: Vec<Value>| {
                all.iter_mut().for_each(without_istios);
                all
            };
            assert_eq!(without(istios), without(upstream), "{level}");
        }
    }

    fn names(filters: &Value) -> Vec<&str> {
        let filters = filters.as_array().expect("filters").iter();
        filters
            .filter_map(|filter| filter["name"].as_str())
            .collect()
    }

    fn listener<'a>(pod: &'a Value, name: &str) -> &'a Value {
        let all = pod[0]["static_resources"]["listeners"].as_array();
        let mut all = all.expect("listeners").iter();
        all.find(|listener| listener["name"] == name).expect(name)
    }

    /// The order matters: policies see the peer's metadata, and statistics what the other filters did.
    #[test]
    fn filters_are_in_istiods_order() {
        const MANAGER: &str = "envoy.filters.network.http_connection_manager";
        let pods = configurations("istio-sidecar", PolicyLevel::L4);
        let listener = |pod: usize, name| listener(&pods[pod], name);
        let outbound = &listener(0, "0.0.0.0_8080")["filter_chains"][0]["filters"];
        assert_eq!(names(outbound), [MANAGER]);
        assert_eq!(
            names(&outbound[0]["typed_config"]["http_filters"]),
            [
                "istio.metadata_exchange",
                "envoy.filters.http.grpc_stats",
                "istio.alpn",
                "envoy.filters.http.fault",
                "envoy.filters.http.cors",
                "istio.stats",
                "envoy.filters.http.router"
            ]
        );
        let tcp = &listener(0, "0.0.0.0_8082")["filter_chains"][0]["filters"];
        assert_eq!(
            names(tcp),
            ["istio.stats", "envoy.filters.network.tcp_proxy"]
        );
        let inbound = &listener(1, "virtualInbound")["filter_chains"];
        let http = &inbound[0]["filters"];
        assert_eq!(names(http), ["istio.metadata_exchange", MANAGER]);
        assert_eq!(
            names(&http[1]["typed_config"]["http_filters"]),
            [
                "istio.metadata_exchange",
                "envoy.filters.http.rbac",
                "envoy.filters.http.grpc_stats",
                "envoy.filters.http.fault",
                "envoy.filters.http.cors",
                "istio.stats",
                "envoy.filters.http.router"
            ]
        );
        assert_eq!(
            names(&inbound[2]["filters"]),
            [
                "istio.metadata_exchange",
                "envoy.filters.network.rbac",
                "istio.stats",
                "envoy.filters.network.tcp_proxy"
            ]
        );
    }

    /// The preface of a connection is sent where both sides agree on its protocol: on TCP ports.
    #[test]
    fn peers_agree_on_the_exchange_on_tcp_ports_only() {
        let pods = configurations("istio-sidecar", PolicyLevel::Mtls);
        let alpn = |of: &Value| {
            of["transport_socket"]["typed_config"]["common_tls_context"]["alpn_protocols"].clone()
        };
        let chains = &listener(&pods[1], "virtualInbound")["filter_chains"];
        assert_eq!(alpn(&chains[0]), json!(["h2", "http/1.1"]));
        assert_eq!(alpn(&chains[1]), json!(["h2", "http/1.1"]));
        assert_eq!(
            alpn(&chains[2]),
            json!(["istio-peer-exchange", "h2", "http/1.1"])
        );
        let clusters = &pods[0][0]["static_resources"]["clusters"];
        assert_eq!(alpn(&clusters[0]), json!(["istio-peer-exchange", "istio"]));
        assert_eq!(
            alpn(&clusters[1]),
            json!(["istio-peer-exchange", "istio", "h2"])
        );
        assert_eq!(alpn(&clusters[2]), json!(["istio-peer-exchange", "istio"]));
    }
}
