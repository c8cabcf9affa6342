//! Access to the keys of a mapping that rejects unknown ones.

use super::problem::{Problem, Span};
use super::tree::{Key, Node, Value};
use crate::grammar::{ValueError, one_of, with_suggestion};

/// A mapping whose keys are all known.
pub(crate) struct Fields<'a> {
    at: Span,
    what: &'static str,
    entries: &'a [(Key, Node)],
}

impl<'a> Fields<'a> {
    /// Checks the keys; `what` names the mapping in messages, `example` shows its form.
    pub(crate) fn of(
        node: &'a Node,
        what: &'static str,
        known: &[&'static str],
        example: &str,
    ) -> Result<Self, Problem> {
        let entries: &[(Key, Node)] = match &node.value {
            Value::Map(entries) => entries,
            _ => {
                return Err(Problem::new(
                    node.at,
                    format!("{what} must be a mapping, not {}", node.kind()),
                    format!("write it as {example}"),
                ));
            }
        };
        for (key, _) in entries {
            if !known.contains(&key.name.as_str()) {
                return Err(unknown_key(key, what, known));
            }
        }
        Ok(Self {
            at: node.at,
            what,
            entries,
        })
    }

    /// The value of a key, if there is one.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, node)| node)
    }

    /// The value of a required key.
    pub(crate) fn need(&self, name: &str, example: &str) -> Result<&'a Node, Problem> {
        self.get(name).ok_or_else(|| {
            Problem::new(
                self.at,
                format!("{} has no `{name}`", self.what),
                format!("add it, as in {example}"),
            )
        })
    }

    /// Parses the value of a key; `default` if the key is absent.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<T, Problem> {
        Ok(self.optional(name, parse)?.unwrap_or(default))
    }

    /// Parses the value of a key, if there is one.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<Option<T>, Problem> {
        self.get(name)
            .map(|node| scalar(node, name, parse))
            .transpose()
    }

    /// The value of a key that is one of several words, if there is one.
    pub(crate) fn keyword<T: Copy>(
        &self,
        name: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Problem> {
        self.get(name)
            .map(|node| keyword(node, name, words))
            .transpose()
    }

    /// The only key and its value; `None` if the mapping does not have exactly one key.
    pub(crate) fn only(&self) -> Option<(&'a Key, &'a Node)> {
        match self.entries {
            [(key, node)] => Some((key, node)),
            _ => None,
        }
    }
}

fn unknown_key(key: &Key, what: &str, known: &[&'static str]) -> Problem {
    let fix = format!("known keys: {}", known.join(", "));
    Problem::new(
        key.at,
        format!("unknown key `{}` in {what}", key.name),
        with_suggestion(&key.name, known.iter().copied(), fix),
    )
}

/// Parses a single value; an error gets the name of the key and the location of the value.
pub(crate) fn scalar<T>(
    node: &Node,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, ValueError>,
) -> Result<T, Problem> {
    let text = text_of(node, name)?;
    parse(text).map_err(|e| Problem::new(node.at, format!("`{name}`: {}", e.problem), e.fix))
}

/// The text of a single value.
pub(crate) fn text_of<'a>(node: &'a Node, name: &str) -> Result<&'a str, Problem> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => Err(Problem::new(
            node.at,
            format!("`{name}` must be a single value, not {}", node.kind()),
            "write one value, or omit the key for the default",
        )),
    }
}

/// The items of a non-empty list.
pub(crate) fn items<'a>(node: &'a Node, name: &str, max: usize) -> Result<&'a [Node], Problem> {
    match &node.value {
        Value::List(items) if items.is_empty() => Err(Problem::new(
            node.at,
            format!("`{name}` is an empty list"),
            "list at least one item, or omit the key for the default",
        )),
        Value::List(items) if items.len() > max => Err(Problem::new(
            node.at,
            format!("`{name}` has {} items", items.len()),
            format!("allowed: 1 to {max}; split the experiment"),
        )),
        Value::List(items) => Ok(items),
        _ => Err(Problem::new(
            node.at,
            format!("`{name}` must be a list, not {}", node.kind()),
            "begin each item with `- ` on its own line, or omit the key for the default",
        )),
    }
}

/// One of several words.
pub(crate) fn keyword<T: Copy>(
    node: &Node,
    name: &str,
    words: &[(&'static str, T)],
) -> Result<T, Problem> {
    let text = text_of(node, name)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let known = words.iter().map(|(word, _)| *word);
    let fix = format!("allowed: {}", one_of(known.clone()));
    Err(Problem::new(
        node.at,
        format!("`{name}`: unknown value `{text}`"),
        with_suggestion(text, known, fix),
    ))
}
