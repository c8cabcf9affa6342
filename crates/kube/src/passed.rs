//! Reads what a spec passes on to Kubernetes as Kubernetes' own types, and rejects every field that they do not have.

use std::collections::btree_map;

use meshtax_model::pods::Passed;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// A value that Kubernetes cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct PassedError {
    /// The keys and indices that lead to it.
    pub path: Vec<String>,
    /// What is wrong with it.
    pub problem: String,
    /// What is allowed.
    pub fix: String,
}

impl PassedError {
    fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    fn unknown(field: &str, of: &str, known: &[&str]) -> Self {
        Self::new(
            format!("unknown key `{field}`: Kubernetes' {of} does not have it"),
            format!("known keys: {}", known.join(", ")),
        )
        .within(field)
    }

    fn expected(what: &str, found: &Passed) -> Self {
        let found = match found {
            Passed::Null => "nothing",
            Passed::Text(_) => "a single value",
            Passed::List(_) => "a list",
            Passed::Map(_) => "a mapping",
        };
        Self::new(format!("{what} is expected here, not {found}"), AS_IN_A_POD)
    }

    /// The same, seen from further outside.
    pub(crate) fn within(mut self, step: impl Into<String>) -> Self {
        self.path.insert(0, step.into());
        self
    }
}

const AS_IN_A_POD: &str =
    "write it as in the specification of a pod; `kubectl explain pod.spec` describes it";

impl de::Error for PassedError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), AS_IN_A_POD)
    }
}

/// A number or a truth value, from its text.
macro_rules! parsed {
    ($($method:ident, $visit:ident, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
            let Passed::Text(text) = self.0 else {
                return Err(PassedError::expected($what, self.0));
            };
            match text.parse() {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(PassedError::new(format!("`{text}` is not {}", $what), AS_IN_A_POD)),
            }
        }
    )*};
}

/// A value that is being read.
#[derive(Clone, Copy)]
struct Reader<'de>(&'de Passed);

/// Reads a value as a type of Kubernetes.
pub(crate) fn read<'de, T: de::Deserialize<'de>>(passed: &'de Passed) -> Result<T, PassedError> {
    T::deserialize(Reader(passed))
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = PassedError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        match self.0 {
            Passed::Null => visitor.visit_unit(),
            Passed::Text(text) => visitor.visit_borrowed_str(text),
            Passed::List(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Passed::Map(entries) => visitor.visit_map(Entries {
                left: entries.iter(),
                value: None,
            }),
        }
    }

    parsed! {
        deserialize_bool, visit_bool, "true or false";
        deserialize_i8, visit_i8, "a whole number";
        deserialize_i16, visit_i16, "a whole number";
        deserialize_i32, visit_i32, "a whole number";
        deserialize_i64, visit_i64, "a whole number";
        deserialize_u8, visit_u8, "a whole number";
        deserialize_u16, visit_u16, "a whole number";
        deserialize_u32, visit_u32, "a whole number";
        deserialize_u64, visit_u64, "a whole number";
        deserialize_f32, visit_f32, "a number";
        deserialize_f64, visit_f64, "a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        match self.0 {
            Passed::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PassedError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        match self.0 {
            Passed::Text(text) => visitor.visit_borrowed_str(text),
            other => Err(PassedError::expected("a single value", other)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        match self.0 {
            Passed::List(_) => self.deserialize_any(visitor),
            other => Err(PassedError::expected("a list", other)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PassedError> {
        match self.0 {
            Passed::Map(_) => self.deserialize_any(visitor),
            other => Err(PassedError::expected("a mapping", other)),
        }
    }

    /// Kubernetes' types ignore unknown fields by themselves.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PassedError> {
        let Passed::Map(entries) = self.0 else {
            return Err(PassedError::expected("a mapping", self.0));
        };
        match entries.keys().find(|key| !fields.contains(&key.as_str())) {
            Some(unknown) => Err(PassedError::unknown(unknown, name, fields)),
            None => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Items<'de>(std::iter::Enumerate<std::slice::Iter<'de, Passed>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = PassedError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, PassedError> {
        let item = self.0.next().map(|(index, item)| {
            let read = seed.deserialize(Reader(item));
            read.map_err(|e| e.within(index.to_string()))
        });
        item.transpose()
    }
}

struct Entries<'de> {
    left: btree_map::Iter<'de, String, Passed>,
    value: Option<(&'de str, &'de Passed)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = PassedError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, PassedError> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = Some((key, value));
        let key: StrDeserializer<'_, PassedError> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, PassedError> {
        let Some((key, value)) = self.value.take() else {
            return Err(de::Error::custom("a value without a key"));
        };
        seed.deserialize(Reader(value)).map_err(|e| e.within(key))
    }
}
