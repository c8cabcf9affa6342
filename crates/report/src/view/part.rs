//! Documents that are no report: parts, one below the other.

use super::{Table, Tone};

/// A part of such a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// What it is.
    Title(String),
    /// A name and what is said of it; later lines stand under the first word.
    Fact(String, String),
    /// A text on its own.
    Text(String, Tone),
    /// A text that is one of several.
    Item(String),
    /// Something to follow, further in than the text before it.
    Aside(String),
    /// A table.
    Table(Table),
    /// Room.
    Gap,
}
