//! The fields of Envoy's messages that blueprints use.
//!
//! Names and numbers are those of Envoy's v3 API (`envoy/config`, `envoy/extensions`) and of protobuf's own types.

use super::message::Kind::{
    Any, Anys, Flag, Number, Object, Objects, Of, Seconds, Text, Word, Wrapped, WrappedFlag,
};
use super::message::Message;

macro_rules! message {
    ($name:ident, $full:literal, [$(($field:literal, $number:literal, $kind:expr)),* $(,)?]) => {
        pub(crate) static $name: Message = Message {
            name: $full,
            fields: &[$(($field, $number, $kind)),*],
        };
    };
}

message!(
    CLUSTER,
    "envoy.config.cluster.v3.Cluster",
    [
        ("name", 1, Text),
        (
            "type",
            2,
            Word(&[("STATIC", 0), ("EDS", 3), ("ORIGINAL_DST", 4)])
        ),
        ("eds_cluster_config", 3, Of(&EDS_CLUSTER_CONFIG)),
        ("connect_timeout", 4, Seconds),
        (
            "lb_policy",
            6,
            Word(&[("ROUND_ROBIN", 0), ("LEAST_REQUEST", 1)])
        ),
        ("circuit_breakers", 10, Of(&CIRCUIT_BREAKERS)),
        ("upstream_bind_config", 21, Of(&BIND_CONFIG)),
        ("transport_socket", 24, Of(&TRANSPORT_SOCKET)),
        ("metadata", 25, Of(&METADATA)),
        ("typed_extension_protocol_options", 36, Anys(ANY)),
        ("filters", 40, Of(&UPSTREAM_FILTER)),
    ]
);

message!(
    METADATA,
    "envoy.config.core.v3.Metadata",
    [("filter_metadata", 1, Objects)]
);

message!(
    UPSTREAM_FILTER,
    "envoy.config.cluster.v3.Filter",
    [("name", 1, Text), ("typed_config", 2, Any(ANY)),]
);

message!(
    TYPED_STRUCT,
    "udpa.type.v1.TypedStruct",
    [("type_url", 1, Text), ("value", 2, Object),]
);

message!(
    EDS_CLUSTER_CONFIG,
    "envoy.config.cluster.v3.Cluster.EdsClusterConfig",
    [
        ("eds_config", 1, Of(&CONFIG_SOURCE)),
        ("service_name", 2, Text),
    ]
);

message!(
    CONFIG_SOURCE,
    "envoy.config.core.v3.ConfigSource",
    [
        ("ads", 3, Of(&EMPTY)),
        ("resource_api_version", 6, Word(&[("V3", 2)])),
    ]
);

message!(EMPTY, "a message without fields here", []);

message!(
    CIRCUIT_BREAKERS,
    "envoy.config.cluster.v3.CircuitBreakers",
    [("thresholds", 1, Of(&THRESHOLDS)),]
);

message!(
    THRESHOLDS,
    "envoy.config.cluster.v3.CircuitBreakers.Thresholds",
    [
        ("max_connections", 2, Wrapped),
        ("max_pending_requests", 3, Wrapped),
        ("max_requests", 4, Wrapped),
        ("max_retries", 5, Wrapped),
    ]
);

message!(
    BIND_CONFIG,
    "envoy.config.core.v3.BindConfig",
    [
        ("source_address", 1, Of(&SOCKET_ADDRESS)),
        ("socket_options", 3, Of(&SOCKET_OPTION)),
    ]
);

message!(
    SOCKET_ADDRESS,
    "envoy.config.core.v3.SocketAddress",
    [("address", 2, Text), ("port_value", 3, Number),]
);

message!(
    SOCKET_OPTION,
    "envoy.config.core.v3.SocketOption",
    [
        ("level", 2, Number),
        ("name", 3, Number),
        ("int_value", 4, Number),
        ("state", 6, Word(&[("STATE_PREBIND", 0)])),
    ]
);

message!(
    TRANSPORT_SOCKET,
    "envoy.config.core.v3.TransportSocket",
    [("name", 1, Text), ("typed_config", 3, Any(ANY)),]
);

message!(
    UPSTREAM_TLS,
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    [("common_tls_context", 1, Of(&COMMON_TLS)), ("sni", 2, Text),]
);

message!(
    COMMON_TLS,
    "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext",
    [
        ("tls_params", 1, Of(&TLS_PARAMETERS)),
        ("tls_certificates", 2, Of(&TLS_CERTIFICATE)),
        ("validation_context", 3, Of(&VALIDATION)),
        ("alpn_protocols", 4, Text),
    ]
);

message!(
    TLS_PARAMETERS,
    "envoy.extensions.transport_sockets.tls.v3.TlsParameters",
    [
        ("tls_minimum_protocol_version", 1, Word(TLS_VERSIONS)),
        ("tls_maximum_protocol_version", 2, Word(TLS_VERSIONS)),
        ("ecdh_curves", 4, Text),
    ]
);

const TLS_VERSIONS: &[(&str, u64)] = &[("TLSv1_2", 3), ("TLSv1_3", 4)];

message!(
    TLS_CERTIFICATE,
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
    [
        ("certificate_chain", 1, Of(&DATA_SOURCE)),
        ("private_key", 2, Of(&DATA_SOURCE)),
    ]
);

message!(
    DATA_SOURCE,
    "envoy.config.core.v3.DataSource",
    [("filename", 1, Text)]
);

message!(
    VALIDATION,
    "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
    [
        ("trusted_ca", 1, Of(&DATA_SOURCE)),
        ("match_typed_subject_alt_names", 15, Of(&SUBJECT_ALT_NAME)),
    ]
);

message!(
    SUBJECT_ALT_NAME,
    "envoy.extensions.transport_sockets.tls.v3.SubjectAltNameMatcher",
    [
        ("san_type", 1, Word(&[("URI", 3)])),
        ("matcher", 2, Of(&STRING_MATCHER)),
    ]
);

message!(
    STRING_MATCHER,
    "envoy.type.matcher.v3.StringMatcher",
    [("exact", 1, Text), ("prefix", 2, Text),]
);

message!(
    HTTP_OPTIONS,
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    [("explicit_http_config", 3, Of(&EXPLICIT_HTTP)),]
);

message!(
    EXPLICIT_HTTP,
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions.ExplicitHttpConfig",
    [
        ("http_protocol_options", 1, Of(&EMPTY)),
        ("http2_protocol_options", 2, Of(&EMPTY)),
    ]
);

message!(
    ASSIGNMENT,
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    [("cluster_name", 1, Text), ("endpoints", 2, Of(&LOCALITY)),]
);

message!(
    LOCALITY,
    "envoy.config.endpoint.v3.LocalityLbEndpoints",
    [("lb_endpoints", 2, Of(&LB_ENDPOINT)),]
);

message!(
    LB_ENDPOINT,
    "envoy.config.endpoint.v3.LbEndpoint",
    [
        ("endpoint", 1, Of(&ENDPOINT)),
        ("metadata", 3, Of(&METADATA)),
    ]
);

message!(
    ENDPOINT,
    "envoy.config.endpoint.v3.Endpoint",
    [("address", 1, Of(&ADDRESS))]
);

message!(
    ADDRESS,
    "envoy.config.core.v3.Address",
    [("socket_address", 1, Of(&SOCKET_ADDRESS))]
);

message!(
    ROUTES,
    "envoy.config.route.v3.RouteConfiguration",
    [
        ("name", 1, Text),
        ("virtual_hosts", 2, Of(&VIRTUAL_HOST)),
        ("validate_clusters", 7, WrappedFlag),
    ]
);

message!(
    VIRTUAL_HOST,
    "envoy.config.route.v3.VirtualHost",
    [
        ("name", 1, Text),
        ("domains", 2, Text),
        ("routes", 3, Of(&ROUTE)),
        ("include_request_attempt_count", 14, Flag),
    ]
);

message!(
    ROUTE,
    "envoy.config.route.v3.Route",
    [
        ("match", 1, Of(&ROUTE_MATCH)),
        ("route", 2, Of(&ROUTE_ACTION)),
        ("decorator", 5, Of(&DECORATOR)),
        ("name", 14, Text),
    ]
);

message!(
    DECORATOR,
    "envoy.config.route.v3.Decorator",
    [("operation", 1, Text)]
);

message!(
    ROUTE_MATCH,
    "envoy.config.route.v3.RouteMatch",
    [("prefix", 1, Text)]
);

message!(
    ROUTE_ACTION,
    "envoy.config.route.v3.RouteAction",
    [
        ("cluster", 1, Text),
        ("timeout", 8, Seconds),
        ("retry_policy", 9, Of(&RETRY_POLICY)),
        ("max_grpc_timeout", 23, Seconds),
    ]
);

message!(
    RETRY_POLICY,
    "envoy.config.route.v3.RetryPolicy",
    [
        ("retry_on", 1, Text),
        ("num_retries", 2, Wrapped),
        ("retry_host_predicate", 5, Of(&RETRY_HOST_PREDICATE)),
        ("host_selection_retry_max_attempts", 6, Number),
    ]
);

message!(
    RETRY_HOST_PREDICATE,
    "envoy.config.route.v3.RetryPolicy.RetryHostPredicate",
    [("name", 1, Text), ("typed_config", 3, Any(ANY)),]
);

message!(
    PREVIOUS_HOSTS,
    "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    []
);

/// Message types that may be packed in an `Any`.
static ANY: &[&Message] = &[&UPSTREAM_TLS, &HTTP_OPTIONS, &PREVIOUS_HOSTS, &TYPED_STRUCT];
