//! Shares, written as percentages: `2%`.

use super::error::ValueError;
use super::number::{self, within};

/// A share as a fraction: `2%` is 0.02. The sign is required, so that 2 and 0.02 cannot be confused.
///
/// # Errors
/// If the number or the `%` is missing.
pub fn percentage(text: &str) -> Result<f64, ValueError> {
    match number::with_unit(text, "a percentage", "2%")? {
        (number, "%") => Ok(number / 100.0),
        _ => Err(ValueError::not(
            text,
            "a percentage",
            "write the number and %, as in 2%",
        )),
    }
}

/// A share as a fraction, where the `%` is optional: `5` and `5%` are 0.05; 0.5 % to 100 %.
///
/// # Errors
/// If it is not a number, or out of range.
pub fn percent(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "0.5 to 100 percent, as in 5";
    match number::with_unit(text, "a percentage", "5%")? {
        (number, "" | "%") => within(text, number / 100.0, (0.005, 1.0), RANGE),
        _ => Err(ValueError::not(
            text,
            "a percentage",
            format!("allowed: {RANGE}"),
        )),
    }
}

/// A share of the requests: `20%`.
///
/// # Errors
/// If it is not a percentage of 0 to 100.
pub fn share(text: &str) -> Result<f64, ValueError> {
    within(text, percentage(text)?, (0.0, 1.0), "0% to 100%")
}

/// A share in isotope's notation: with `%`, or a number in `unit` (1, or 0.01 for percent).
pub(crate) fn isotope_share(text: &str, unit: f64) -> Result<f64, ValueError> {
    let share = match number::with_unit(text, "a share", "10%")? {
        (number, "") => number * unit,
        _ => percentage(text)?,
    };
    within(text, share, (0.0, 1.0), "0% to 100%")
}

/// The half width of an interval at which a run may stop, as a fraction: 0.1 % to 50 %.
///
/// # Errors
/// If it is not a percentage, or out of range.
pub fn precision(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "0.1% to 50%, as in 2%";
    within(text, percentage(text)?, (0.001, 0.5), RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percent_sign_is_required_except_where_percent_is_the_unit() {
        assert_eq!(percentage("2%"), Ok(0.02));
        assert_eq!(percentage("0.5 %"), Ok(0.005));
        assert!(percentage("2").is_err());
        assert_eq!(percent("5"), Ok(0.05));
        assert_eq!(percent("2.5 %"), Ok(0.025));
        for invalid in ["0", "NaN", "x", "5 km"] {
            assert!(percent(invalid).is_err(), "{invalid}");
        }
    }
}
