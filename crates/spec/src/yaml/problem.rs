//! What is wrong with a spec, and where.

use crate::grammar::ValueError;

/// The location of a key or a value. Lines and columns count from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Characters to underline, on that line.
    pub(crate) width: u32,
}

/// What is wrong with a spec, before the file and its text are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `None`: the whole file.
    pub(crate) at: Option<Span>,
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl Problem {
    pub(crate) fn new(at: Span, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            at: Some(at),
            message: message.into(),
            fix: fix.into(),
        }
    }

    /// A value that cannot be used, at its location.
    pub(crate) fn at(at: Span, error: ValueError) -> Self {
        Self::new(at, error.problem, error.fix)
    }
}
