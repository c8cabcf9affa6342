//! Whole numbers.

use meshtax_model::experiment::Workers;

use super::error::ValueError;
use super::number::{self, within};

/// A whole number within bounds; `what` is for the message (`a number of connections`).
///
/// # Errors
/// If it is not a whole number, or out of range.
pub fn count(text: &str, what: &str, min: u32, max: u32) -> Result<u32, ValueError> {
    let range = format!("whole numbers from {min} to {max}");
    match text.trim().replace('_', "").parse::<i128>() {
        Ok(number) => {
            let number = within(text, number, (i128::from(min), i128::from(max)), &range)?;
            Ok(u32::try_from(number).unwrap_or(max))
        }
        Err(_) => Err(ValueError::not(text, what, format!("allowed: {range}"))),
    }
}

/// A parser of whole numbers within bounds.
pub(crate) fn in_range(
    what: &'static str,
    min: u32,
    max: u32,
) -> impl Fn(&str) -> Result<u32, ValueError> {
    move |text| count(text, what, min, max)
}

/// Worker threads of each proxy: a number, or `native` for what each mesh sets by default.
///
/// # Errors
/// If it is neither, or out of range.
pub fn workers(text: &str) -> Result<Workers, ValueError> {
    match text.trim() {
        "native" => Ok(Workers::Native),
        number => {
            count(number, "a number of worker threads or `native`", 1, 64).map(Workers::Equal)
        }
    }
}

/// A number of requests: `300000`, `10k`, `1M`.
///
/// # Errors
/// If it is not a whole number above zero.
pub fn requests(text: &str) -> Result<u64, ValueError> {
    number::scaled_whole(text)
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            let fix = "write a whole number above 0, as in 300000, 10k or 1M";
            ValueError::not(text, "a number of requests", fix)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_requests_are_whole_and_above_zero() {
        assert_eq!(requests("300000"), Ok(300_000));
        assert_eq!(requests("10k"), Ok(10_000));
        assert_eq!(requests("1.5M"), Ok(1_500_000));
        for invalid in ["0", "-1", "1.5", "k", "", "inf", "1e30", "ten", "µ"] {
            assert!(requests(invalid).is_err(), "{invalid}");
        }
    }
}
