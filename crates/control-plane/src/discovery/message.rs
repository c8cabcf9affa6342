//! Envoy's messages from their JSON form to bytes, by a table of the fields that blueprints use.
//!
//! Names and numbers are those of Envoy's v3 API (`envoy/config`, `envoy/extensions`) and of protobuf's own types. A
//! field that is not in the table is an error: nothing in a blueprint is omitted silently.

use serde_json::{Map, Value};

/// A message as far as it is used.
pub(super) struct Message {
    name: &'static str,
    fields: &'static [(&'static str, u32, Kind)],
}

/// How a field's value is encoded. A list is encoded item by item.
enum Kind {
    Text,
    Number,
    /// `google.protobuf.UInt32Value`.
    Wrapped,
    Flag,
    /// `google.protobuf.BoolValue`.
    WrappedFlag,
    /// `google.protobuf.Duration`, in whole seconds: `10s`.
    Seconds,
    /// An enum value by its name.
    Word(&'static [(&'static str, u64)]),
    Of(&'static Message),
    /// `google.protobuf.Any` with its type as `@type`.
    Any,
    /// A map from names to `google.protobuf.Any`.
    Anys,
    /// `google.protobuf.Struct`: any object.
    Object,
    /// A map from names to those.
    Objects,
}

use Kind::{
    Any, Anys, Flag, Number, Object, Objects, Of, Seconds, Text, Word, Wrapped, WrappedFlag,
};

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
        ("typed_extension_protocol_options", 36, Anys),
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
    [("name", 1, Text), ("typed_config", 2, Any),]
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
    [("name", 1, Text), ("typed_config", 3, Any),]
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
    [("name", 1, Text), ("typed_config", 3, Any),]
);
message!(
    PREVIOUS_HOSTS,
    "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
    []
);

/// Message types that may be packed in an `Any`.
static ANY: &[&Message] = &[&UPSTREAM_TLS, &HTTP_OPTIONS, &PREVIOUS_HOSTS, &TYPED_STRUCT];

/// Prefix of the type name in a type URL.
pub(super) const TYPE_URL: &str = "type.googleapis.com/";

impl Message {
    /// The type URL, as in `google.protobuf.Any` and discovery.
    pub(super) fn type_url(&self) -> String {
        format!("{TYPE_URL}{}", self.name)
    }

    /// The encoded message.
    ///
    /// # Errors
    /// If a field is not in the table, or a value is not of its type.
    pub(super) fn encode(&self, json: &Value) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::new();
        let Value::Object(fields) = json else {
            return Err(self.wrong("the whole", json));
        };
        for (name, value) in fields.iter().filter(|(name, _)| *name != "@type") {
            let known = self.fields.iter().find(|(field, ..)| field == name);
            let (_, number, kind) = known.ok_or_else(|| self.wrong(name, value))?;
            match value {
                Value::Array(items) => {
                    for item in items {
                        self.field(name, *number, kind, item, &mut bytes)?;
                    }
                }
                single => self.field(name, *number, kind, single, &mut bytes)?,
            }
        }
        Ok(bytes)
    }

    fn field(
        &self,
        name: &str,
        number: u32,
        kind: &Kind,
        value: &Value,
        bytes: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let wrong = || self.wrong(name, value);
        let text = || value.as_str().ok_or_else(wrong);
        let whole = || value.as_u64().ok_or_else(wrong);
        match kind {
            Text => delimited(number, text()?.as_bytes(), bytes),
            Number => varint(number, whole()?, bytes),
            Wrapped => delimited(number, &only(whole()?), bytes),
            Flag => varint(number, u64::from(value.as_bool().ok_or_else(wrong)?), bytes),
            WrappedFlag => {
                let flag = value.as_bool().ok_or_else(wrong)?;
                delimited(number, &only(u64::from(flag)), bytes);
            }
            Seconds => {
                let seconds = text()?.strip_suffix('s').and_then(|s| s.parse().ok());
                delimited(number, &only(seconds.ok_or_else(wrong)?), bytes);
            }
            Word(words) => {
                let word = text()?;
                let found = words.iter().find(|(known, _)| *known == word);
                varint(number, found.ok_or_else(wrong)?.1, bytes);
            }
            Of(message) => delimited(number, &message.encode(value)?, bytes),
            Any => delimited(number, &self.any(name, value)?, bytes),
            Anys => {
                for (key, value) in value.as_object().ok_or_else(wrong)? {
                    let any = self.any(name, value)?;
                    delimited(number, &entry(key, &any), bytes);
                }
            }
            Object => delimited(number, &object(value.as_object().ok_or_else(wrong)?), bytes),
            Objects => {
                for (key, value) in value.as_object().ok_or_else(wrong)? {
                    let fields = object(value.as_object().ok_or_else(wrong)?);
                    delimited(number, &entry(key, &fields), bytes);
                }
            }
        }
        Ok(())
    }

    fn any(&self, name: &str, value: &Value) -> Result<Vec<u8>, EncodeError> {
        let url = value["@type"].as_str().unwrap_or_default();
        let found = ANY.iter().find(|message| message.type_url() == url);
        let message = found.ok_or_else(|| self.wrong(name, value))?;
        let mut bytes = Vec::new();
        delimited(1, url.as_bytes(), &mut bytes);
        delimited(2, &message.encode(value)?, &mut bytes);
        Ok(bytes)
    }

    fn wrong(&self, field: &str, value: &Value) -> EncodeError {
        EncodeError {
            message: self.name,
            field: field.to_owned(),
            value: value.to_string().chars().take(200).collect(),
        }
    }
}

/// An empty value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of {message} cannot be encoded: {value}")]
pub(super) struct EncodeError {
    message: &'static str,
    field: String,
    value: String,
}

/// An entry of a map.
fn entry(key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    delimited(1, key.as_bytes(), &mut bytes);
    delimited(2, value, &mut bytes);
    bytes
}

/// `google.protobuf.Struct`.
fn object(fields: &Map<String, Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in fields {
        delimited(1, &entry(key, &any_value(value)), &mut bytes);
    }
    bytes
}

/// `google.protobuf.Value`, in which defaults are written as well.
fn any_value(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value {
        Value::Null => varint(1, 0, &mut bytes),
        Value::Number(number) => double(2, number.as_f64().unwrap_or(f64::NAN), &mut bytes),
        Value::String(text) => delimited(3, text.as_bytes(), &mut bytes),
        Value::Bool(flag) => varint(4, u64::from(*flag), &mut bytes),
        Value::Object(fields) => delimited(5, &object(fields), &mut bytes),
        Value::Array(items) => {
            let mut list = Vec::new();
            for item in items {
                delimited(1, &any_value(item), &mut list);
            }
            delimited(6, &list, &mut bytes);
        }
    }
    bytes
}

/// A message whose only field, number 1, has this value; empty if it is the default.
fn only(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if number > 0 {
        varint(1, number, &mut bytes);
    }
    bytes
}

fn varint(number: u32, value: u64, bytes: &mut Vec<u8>) {
    raw(u64::from(number) << 3, bytes);
    raw(value, bytes);
}

fn double(number: u32, value: f64, bytes: &mut Vec<u8>) {
    const EIGHT_BYTES: u64 = 1;
    raw((u64::from(number) << 3) | EIGHT_BYTES, bytes);
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn delimited(number: u32, content: &[u8], bytes: &mut Vec<u8>) {
    const LENGTH_DELIMITED: u64 = 2;
    raw((u64::from(number) << 3) | LENGTH_DELIMITED, bytes);
    raw(content.len() as u64, bytes);
    bytes.extend_from_slice(content);
}

fn raw(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    /// The same message by prost's own derivation.
    #[derive(Clone, PartialEq, prost::Message)]
    struct SocketAddress {
        #[prost(string, tag = "2")]
        address: String,
        #[prost(uint32, tag = "3")]
        port_value: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Address {
        #[prost(message, optional, tag = "1")]
        socket_address: Option<SocketAddress>,
    }

    #[test]
    fn encoding_matches_prost() {
        let json = json!({"socket_address": {"address": "100.64.0.1", "port_value": 8080}});
        let expected = Address {
            socket_address: Some(SocketAddress {
                address: "100.64.0.1".into(),
                port_value: 8080,
            }),
        };
        assert_eq!(ADDRESS.encode(&json), Ok(expected.encode_to_vec()));
    }

    #[test]
    fn well_known_types_match_prost() {
        let json = json!({"timeout": "0s", "retry_policy": {
            "num_retries": 2,
            "retry_host_predicate": [{"name": "n", "typed_config": {"@type": PREVIOUS_HOSTS.type_url()}}],
        }});
        let bytes = ROUTE_ACTION.encode(&json).unwrap();
        let any = prost_types::Any {
            type_url: PREVIOUS_HOSTS.type_url(),
            value: Vec::new(),
        };
        // An empty `Any` differs from prost's only by its empty value.
        let inside = any.encode_to_vec();
        assert!(bytes.windows(inside.len()).any(|part| part == inside));
        let seconds = prost_types::Duration {
            seconds: 10,
            nanos: 0,
        };
        let mut timeout = Vec::new();
        delimited(8, &seconds.encode_to_vec(), &mut timeout);
        assert_eq!(ROUTE_ACTION.encode(&json!({"timeout": "10s"})), Ok(timeout));
    }

    #[test]
    fn objects_of_any_shape_are_what_prost_decodes() {
        use prost_types::value::Kind::{
            BoolValue, ListValue, NullValue, NumberValue, StringValue, StructValue,
        };
        let json = json!({"value": {
            "flag": false, "list": ["a", {"b": 1.5}], "none": null, "number": 0, "text": "", "words": {},
        }});
        let of = |kind| prost_types::Value { kind: Some(kind) };
        let object = |fields: &[(&str, prost_types::Value)]| prost_types::Struct {
            fields: fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        };
        let inner = of(StructValue(object(&[("b", of(NumberValue(1.5)))])));
        let list = vec![of(StringValue("a".into())), inner];
        let expected = object(&[
            ("flag", of(BoolValue(false))),
            (
                "list",
                of(ListValue(prost_types::ListValue { values: list })),
            ),
            ("none", of(NullValue(0))),
            ("number", of(NumberValue(0.0))),
            ("text", of(StringValue(String::new()))),
            ("words", of(StructValue(object(&[])))),
        ]);
        #[derive(Clone, PartialEq, prost::Message)]
        struct TypedStruct {
            #[prost(message, optional, tag = "2")]
            value: Option<prost_types::Struct>,
        }
        let bytes = TYPED_STRUCT.encode(&json).unwrap();
        let decoded = TypedStruct::decode(bytes.as_slice()).unwrap();
        assert_eq!(decoded.value, Some(expected));
    }

    #[test]
    fn unknown_fields_are_an_error_without_a_panic() {
        for json in [
            json!({"nam": "x"}),
            json!({"name": 7}),
            json!({"type": "LOGICAL_DNS"}),
            json!({"connect_timeout": "10ms"}),
            json!({"transport_socket": {"typed_config": {"@type": "unknown"}}}),
            json!({"transport_socket": {"typed_config": null}}),
            json!({"metadata": {"filter_metadata": {"istio": "x"}}}),
            json!([]),
            json!(null),
        ] {
            assert!(CLUSTER.encode(&json).is_err(), "{json}");
        }
        let error = CLUSTER
            .encode(&json!({"nam": "x"}))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`nam` of envoy.config.cluster.v3.Cluster"),
            "{error}"
        );
    }
}
