//! YAML as a tree of values with their locations, and access to it that rejects everything unknown.

mod fields;
mod problem;
mod tree;

pub(crate) use fields::{Fields, items, keyword, scalar, text_of};
pub(crate) use problem::{Problem, Span};
pub(crate) use tree::{Key, Node, Value, read};
