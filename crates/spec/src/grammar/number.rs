//! Numbers with a unit or a multiplier, and their bounds.

use super::error::ValueError;

/// Splits `1.5 s` into its number and its unit.
pub(super) fn with_unit<'a>(
    text: &'a str,
    expected: &str,
    example: &str,
) -> Result<(f64, &'a str), ValueError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "").parse().map_err(|_| {
        let fix = format!("write a number and a unit, as in {example}");
        ValueError::not(text, expected, fix)
    })?;
    Ok((number, unit.trim()))
}

/// A number that may have `k` or `M` after it: `2.5`, `10k`, `1_000`.
pub(super) fn scaled(text: &str) -> Option<f64> {
    let text = text.trim().replace('_', "");
    let (digits, scale) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        _ => (text.as_str(), 1.0),
    };
    // Rust's own parser also accepts `inf` and `nan`.
    let is_decimal = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = digits.parse().ok().filter(|_| is_decimal)?;
    Some(value * scale)
}

/// A whole number that may have `k` or `M` after it.
pub(super) fn scaled_whole(text: &str) -> Option<u64> {
    const MAX: f64 = 1e15;
    let value = scaled(text)?;
    (value.fract() == 0.0 && value < MAX).then_some(value as u64)
}

/// A value within bounds, or an error that names the bounds.
pub(crate) fn within<T: PartialOrd>(
    text: &str,
    value: T,
    (min, max): (T, T),
    range: &str,
) -> Result<T, ValueError> {
    match value >= min && value <= max {
        true => Ok(value),
        false => Err(ValueError::out_of_range(text, range)),
    }
}
