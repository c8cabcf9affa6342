//! Rates: `1000`, `1000/s`, `16k/s`.

use super::error::ValueError;
use super::number::{self, within};

const RANGE: &str = "1 to 1000000 requests per second, as in 1000";

fn per_second(text: &str) -> Option<f64> {
    let text = text.trim();
    number::scaled(text.strip_suffix("/s").unwrap_or(text))
}

/// An offered rate in requests per second: 1 to 1,000,000. `1000` and `1000/s` are the same.
///
/// # Errors
/// If it is not a rate, or out of range.
pub fn rate_per_s(text: &str) -> Result<f64, ValueError> {
    let rate = per_second(text)
        .ok_or_else(|| ValueError::not(text, "a rate", format!("allowed: {RANGE}")))?;
    within(text, rate, (1.0, 1e6), RANGE)
}

/// A rate above zero, in requests per second: also `0.2`.
///
/// # Errors
/// If it is not a rate above zero.
pub fn unbounded_rate_per_s(text: &str) -> Result<f64, ValueError> {
    per_second(text).filter(|rate| *rate > 0.0).ok_or_else(|| {
        let fix = "write a number above 0, as in 1000, 2.5 or 10k";
        ValueError::not(text, "a rate in requests per second", fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_may_have_a_multiplier_and_a_unit() {
        assert_eq!(rate_per_s("1000/s"), Ok(1000.0));
        assert_eq!(rate_per_s("10_000"), Ok(10_000.0));
        assert_eq!(unbounded_rate_per_s("0.2"), Ok(0.2));
        assert_eq!(unbounded_rate_per_s("16k/s"), Ok(16_000.0));
        for invalid in ["0", "-5", "NaN", "fast", ""] {
            assert!(unbounded_rate_per_s(invalid).is_err(), "{invalid}");
        }
    }
}
