//! Durations: `500ms`, `1.5s`, `2m`.

use super::error::{ValueError, quoted};
use super::number::{self, within};

const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

const EXAMPLE: &str = "500ms, 1.5s or 2m";

/// Units, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The micro sign and the Greek mu look alike; both are typed.
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", MS),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

/// A duration in nanoseconds: `2m`, `500ms`, `12us`, `1.5s`.
///
/// # Errors
/// If the number or the unit is missing, unknown or negative.
pub fn duration_ns(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = number::with_unit(text, "a duration", EXAMPLE)?;
    if unit.is_empty() {
        return Err(ValueError::new(
            format!("`{}` has no unit", quoted(text)),
            format!("append ns, us, ms, s, m or h, as in {EXAMPLE}"),
        ));
    }
    let Some((_, unit_ns)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(ValueError::new(
            format!("`{}` has the unknown unit `{}`", quoted(text), quoted(unit)),
            format!("use ns, us, ms, s, m or h, as in {EXAMPLE}"),
        ));
    };
    nanoseconds(text, number, *unit_ns)
}

/// A duration in nanoseconds, where a number without a unit is in seconds, as in hey and oha.
///
/// # Errors
/// Those of [`duration_ns`], without that of a missing unit.
pub fn seconds_ns(text: &str) -> Result<u64, ValueError> {
    match number::with_unit(text, "a duration", EXAMPLE)? {
        (seconds, "") => nanoseconds(text, seconds, SECOND),
        _ => duration_ns(text),
    }
}

fn nanoseconds(text: &str, number: f64, unit_ns: u64) -> Result<u64, ValueError> {
    if number < 0.0 {
        return Err(ValueError::new(
            format!("`{}` is negative", quoted(text)),
            format!("a duration is zero or more, as in {EXAMPLE}"),
        ));
    }
    Ok((number * unit_ns as f64).round() as u64)
}

/// The time limit of a run, in nanoseconds: 1 second to 24 hours.
///
/// # Errors
/// If it is not a duration, or out of range.
pub fn time_limit_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (SECOND, 24 * HOUR), "1s to 24h")
}

/// The window of a trial, in nanoseconds: 20 milliseconds to an hour.
///
/// # Errors
/// If it is not a duration, or out of range.
pub fn trial_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (20 * MS, HOUR), "20ms to 1h")
}

/// The warm-up of a trial, in nanoseconds: 0 to 10 minutes.
///
/// # Errors
/// If it is not a duration, or out of range.
pub fn warmup_ns(text: &str) -> Result<u64, ValueError> {
    pause_ns(text)
}

/// A pause, in nanoseconds: 0 to 10 minutes.
pub(crate) fn pause_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (0, 10 * MINUTE), "0s to 10m")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(duration_ns("2m"), Ok(120 * SECOND));
        assert_eq!(duration_ns(" 500 ms "), Ok(500 * MS));
        assert_eq!(duration_ns("12us"), Ok(12_000));
        assert_eq!(duration_ns("12µs"), Ok(12_000));
        assert_eq!(duration_ns("1.5s"), Ok(1_500 * MS));
        assert_eq!(duration_ns("1h"), Ok(HOUR));
    }

    #[test]
    fn a_number_without_a_unit_is_in_seconds_where_seconds_are_the_default() {
        assert_eq!(seconds_ns("30"), Ok(30_000_000_000));
        assert_eq!(seconds_ns("0.5"), Ok(500_000_000));
        assert_eq!(seconds_ns("400ms"), Ok(400_000_000));
        assert_eq!(seconds_ns("0"), Ok(0));
        for invalid in ["-1", "inf", "nan", "", "s", "5 parsecs", "-1s"] {
            assert!(seconds_ns(invalid).is_err(), "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn durations_keep_their_value(ns in 0_u64..9_000_000_000) {
            prop_assert_eq!(duration_ns(&format!("{ns}ns")), Ok(ns));
            prop_assert_eq!(duration_ns(&format!("{ns} ms")), Ok(ns * MS));
        }
    }
}
