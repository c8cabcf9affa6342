//! YAML as a tree in which every key and value has its location.
//!
//! The spec is read from this tree and not through derived structs, so that each error can name
//! the key, the value's own location, what is allowed and the fix.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, MessageFormatter, NonFiniteFloatPolicy, Spanned};

use super::problem::{Problem, Span};

/// Specs are written by people; a larger file is not a spec.
const MAX_BYTES: usize = 256 * 1024;

/// A value and its location.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Span,
    pub(crate) value: Value,
}

/// A value. Numbers stay text: units are parsed by the grammars.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key and its location.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) at: Span,
    pub(crate) name: String,
}

impl Node {
    /// The kind of value, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value of a key; `None`: there is no such key, or this is not a mapping.
    pub(crate) fn entry(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        let found = entries.iter().find(|(key, _)| key.name == name);
        found.map(|(_, node)| node)
    }
}

impl Node {
    /// Where a path of keys and indices leads, as far as it exists; a key at its end is meant itself.
    pub(crate) fn place(&self, path: &[&str]) -> Span {
        let Some((step, rest)) = path.split_first() else {
            return self.at;
        };
        match &self.value {
            Value::Map(entries) => {
                let found = entries.iter().find(|(key, _)| key.name == *step);
                found.map_or(self.at, |(key, node)| match rest {
                    [] => key.at,
                    rest => node.place(rest),
                })
            }
            Value::List(items) => {
                let item = step.parse().ok().and_then(|index: usize| items.get(index));
                item.map_or(self.at, |node| node.place(rest))
            }
            Value::Null | Value::Scalar(_) => self.at,
        }
    }
}

/// Reads one YAML document.
pub(crate) fn read(text: &str) -> Result<Node, Problem> {
    if text.len() > MAX_BYTES {
        return Err(Problem {
            at: None,
            message: format!("the file has {} bytes and is not a spec", text.len()),
            fix: format!("name a YAML spec of at most {MAX_BYTES} bytes"),
        });
    }
    let options = serde_saphyr::options! {
        with_snippet: false,
        // Our own error names the allowed range.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_nodes: 50_000,
            max_depth: 32,
        },
    };
    serde_saphyr::from_str_with_options::<Node>(text, options).map_err(|e| syntax(&e))
}

fn syntax(error: &serde_saphyr::Error) -> Problem {
    let message = serde_saphyr::UserMessageFormatter.format_message(error);
    // The message may quote the file: terminal control characters are removed.
    let message = message.replace(char::is_control, " ");
    Problem {
        at: error.location().map(|l| span(l, 1)),
        message: format!("not valid YAML: {message}"),
        fix: "correct the YAML here; `meshtax presets show quick` prints a valid spec".to_owned(),
    }
}

fn span(location: Location, width: u32) -> Span {
    Span {
        line: u32::try_from(location.line()).unwrap_or(u32::MAX).max(1),
        column: u32::try_from(location.column()).unwrap_or(u32::MAX).max(1),
        width,
    }
}

/// The characters of a scalar; of a list or a mapping only the start is marked.
fn width_of(location: Location) -> u32 {
    u32::try_from(location.span().len()).unwrap_or(1).max(1)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        let width = match &spanned.value {
            Value::Scalar(_) => width_of(spanned.referenced),
            _ => 1,
        };
        Ok(Self {
            at: span(spanned.referenced, width),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            at: span(spanned.referenced, width_of(spanned.referenced)),
            name: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl ValueVisitor {
    fn scalar(text: impl fmt::Display) -> Value {
        Value::Scalar(text.to_string())
    }
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_i128<E: de::Error>(self, v: i128) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_u128<E: de::Error>(self, v: u128) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        Ok(Self::scalar(v))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(node: &Node, out: &mut Vec<String>) {
        let Span {
            line,
            column,
            width,
        } = node.at;
        match &node.value {
            Value::Null => out.push(format!("{line}:{column} null")),
            Value::Scalar(s) => out.push(format!("{line}:{column}+{width} {s}")),
            Value::List(items) => items.iter().for_each(|n| flat(n, out)),
            Value::Map(entries) => {
                for (key, value) in entries {
                    let at = key.at;
                    out.push(format!(
                        "{}:{}+{} key {}",
                        at.line, at.column, at.width, key.name
                    ));
                    flat(value, out);
                }
            }
        }
    }

    #[test]
    fn every_key_and_value_has_its_location() {
        let text = "a: {b: 1 KiB, c: .nan}\nlist:\n  - x: \"2%\"\n  - 1e3\nempty:\n";
        let mut out = Vec::new();
        flat(&read(text).unwrap(), &mut out);
        insta::assert_snapshot!(out.join("\n"));
    }

    #[test]
    fn deep_nesting_and_alias_expansion_are_rejected() {
        let deep = "[".repeat(5000);
        assert!(read(&deep).is_err());
        let mut lol = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..9 {
            let prior = format!("*a{}, ", i - 1).repeat(10);
            lol.push_str(&format!("a{i}: &a{i} [{}]\n", prior.trim_end_matches(", ")));
        }
        assert!(read(&lol).is_err());
        assert!(read(&"x".repeat(MAX_BYTES + 1)).is_err());
    }
}
