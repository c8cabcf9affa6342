//! Envoy's messages from their JSON form to bytes, by a table of the fields that blueprints use.
//!
//! A field that is not in the table is an error: nothing in a blueprint is omitted silently.

use serde_json::{Map, Value};

/// A message as far as it is used.
pub(super) struct Message {
    pub(super) name: &'static str,
    pub(super) fields: &'static [(&'static str, u32, Kind)],
}

/// How a field's value is encoded. A list is encoded item by item.
pub(super) enum Kind {
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
    /// `google.protobuf.Any` with its type as `@type`: one of these.
    Any(&'static [&'static Message]),
    /// A map from names to those.
    Anys(&'static [&'static Message]),
    /// `google.protobuf.Struct`: any object.
    Object,
    /// A map from names to objects.
    Objects,
}

use Kind::{
    Any, Anys, Flag, Number, Object, Objects, Of, Seconds, Text, Word, Wrapped, WrappedFlag,
};

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
            Any(known) => delimited(number, &self.any(known, name, value)?, bytes),
            Anys(known) => {
                for (key, value) in value.as_object().ok_or_else(wrong)? {
                    let any = self.any(known, name, value)?;
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

    /// One of the `known` types, packed.
    fn any(&self, known: &[&Message], name: &str, value: &Value) -> Result<Vec<u8>, EncodeError> {
        let url = value["@type"].as_str().unwrap_or_default();
        let found = known.iter().find(|message| message.type_url() == url);
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

/// A value that is not in the table, or not of its type.
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
    use crate::discovery::table::{ADDRESS, CLUSTER, PREVIOUS_HOSTS, ROUTE_ACTION, TYPED_STRUCT};

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
