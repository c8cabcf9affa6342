//! Names and ids: they occur in paths, in tables and in URL fragments.

use super::error::ValueError;

/// Characters in a name, at most.
pub(crate) const MAX_LENGTH: usize = 64;

/// A name of ASCII letters, digits, `-`, `_`, `.` and `+` that begins with a letter or a digit.
pub(crate) fn safe_name(text: &str) -> Result<String, ValueError> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && text.len() <= MAX_LENGTH && text.chars().all(is_safe) {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(
        "this name cannot be used",
        format!(
            "allowed: up to {MAX_LENGTH} of a-z A-Z 0-9 - _ . +, beginning with a letter or a digit, as in \
             envoy-sidecar-l7"
        ),
    ))
}
