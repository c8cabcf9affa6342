//! Access to a mapping's keys that refuses what is not known.

use crate::error::{Place, Problem, nearest, one_of};
use crate::tree::{Key, Node, Value};
use crate::value::ValueError;

/// A mapping of which every key is known and stands once.
pub(crate) struct Fields<'a> {
    at: Place,
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
                    format!("{what} is a mapping, and here stands {}", node.kind()),
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

    /// The value of a key, if the key is there.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        self.entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, node)| node)
    }

    /// The value of a key that must be there.
    pub(crate) fn need(&self, name: &str, example: &str) -> Result<&'a Node, Problem> {
        self.get(name).ok_or_else(|| {
            Problem::new(
                self.at,
                format!("{} lacks `{name}`", self.what),
                format!("add it, as in {example}"),
            )
        })
    }

    /// Parses a key's value; what is absent is `default`.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<T, Problem> {
        match self.get(name) {
            Some(node) => scalar(node, name, parse),
            None => Ok(default),
        }
    }

    /// The only key and its value; `None` if there is another number of keys.
    pub(crate) fn only(&self) -> Option<(&'a Key, &'a Node)> {
        match self.entries {
            [(key, node)] => Some((key, node)),
            _ => None,
        }
    }
}

fn unknown_key(key: &Key, what: &str, known: &[&'static str]) -> Problem {
    let known_ones = format!("known keys: {}", known.join(", "));
    Problem::new(
        key.at,
        format!("unknown key `{}` in {what}", key.name),
        match nearest(&key.name, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? {known_ones}"),
            None => known_ones,
        },
    )
}

/// Parses a single value; an error gets the key's name and the value's place.
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
            format!(
                "`{name}` is a single value, and here stands {}",
                node.kind()
            ),
            "write one value, or leave the key out for the default",
        )),
    }
}

/// The items of a list that may not be empty.
pub(crate) fn items<'a>(node: &'a Node, name: &str, most: usize) -> Result<&'a [Node], Problem> {
    match &node.value {
        Value::List(items) if items.is_empty() => Err(Problem::new(
            node.at,
            format!("`{name}` is an empty list"),
            "list at least one, or leave the key out for the default",
        )),
        Value::List(items) if items.len() > most => Err(Problem::new(
            node.at,
            format!("`{name}` has {} items", items.len()),
            format!("allowed: 1 to {most}; split the experiment"),
        )),
        Value::List(items) => Ok(items),
        _ => Err(Problem::new(
            node.at,
            format!("`{name}` is a list, and here stands {}", node.kind()),
            "start each item with `- ` on a line of its own, or leave the key out for the default",
        )),
    }
}

/// A word out of a few.
pub(crate) fn word<T: Copy>(
    node: &Node,
    name: &str,
    words: &[(&'static str, T)],
) -> Result<T, Problem> {
    let text = text_of(node, name)?;
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let known = words.iter().map(|(word, _)| *word);
    let allowed = format!("allowed: {}", one_of(known.clone()));
    Err(Problem::new(
        node.at,
        format!("`{name}`: unknown value `{text}`"),
        match nearest(text, known) {
            Some(meant) => format!("did you mean `{meant}`? {allowed}"),
            None => allowed,
        },
    ))
}
