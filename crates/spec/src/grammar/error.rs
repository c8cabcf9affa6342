//! A value that cannot be used.

/// A value that cannot be used: what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {fix}")]
pub struct ValueError {
    /// What is wrong, with the value as it was given.
    pub problem: String,
    /// What is allowed, with an example.
    pub fix: String,
}

impl ValueError {
    /// A problem and its fix.
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// A value outside its range.
    pub(crate) fn out_of_range(text: &str, range: &str) -> Self {
        Self::new(
            format!("`{}` is out of range", quoted(text)),
            format!("allowed: {range}"),
        )
    }

    /// A value that is not what is expected (`a rate`).
    pub(crate) fn not(text: &str, expected: &str, fix: impl Into<String>) -> Self {
        Self::new(format!("`{}` is not {expected}", quoted(text)), fix)
    }
}

/// A value as quoted in a message: short, and without terminal control characters.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let mut short: String = text
        .chars()
        .take(MAX_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > MAX_CHARS {
        short.push('…');
    }
    short
}
