//! Values with human units, as they stand in a spec and on the command line.

use meshtax_model::experiment::Inject;
use meshtax_model::graph::ServiceTime;

use crate::error::{nearest, one_of};

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
    pub(crate) fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Units of time, in nanoseconds.
const TIME_UNITS: [(&str, f64); 7] = [
    ("ns", 1.0),
    ("us", 1e3),
    // The micro sign and the Greek mu look alike; both are typed.
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
];

/// Units of size, in bytes.
const SIZE_UNITS: [(&str, f64); 7] = [
    ("", 1.0),
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("kib", 1024.0),
    ("mib", 1024.0 * 1024.0),
    ("k", 1024.0),
];

/// Splits `1.5 s` into its number and its unit.
fn number_and_unit<'a>(
    what: &str,
    text: &'a str,
    example: &str,
) -> Result<(f64, &'a str), ValueError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | '_')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.replace('_', "").parse().map_err(|_| {
        ValueError::new(
            format!("`{}` is not {what}", shown(text)),
            format!("write a number and a unit, as in {example}"),
        )
    })?;
    Ok((number, unit.trim()))
}

/// A value as it is quoted in a message: short, and without anything that steers a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut short: String = text
        .chars()
        .take(40)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > 40 {
        short.push('…');
    }
    short
}

/// A length of time in nanoseconds: `2m`, `500ms`, `12us`, `1.5s`.
///
/// # Errors
/// If the number or the unit is missing, unknown or negative.
pub fn duration_ns(text: &str) -> Result<u64, ValueError> {
    const EXAMPLE: &str = "500ms, 1.5s or 2m";
    let (number, unit) = number_and_unit("a length of time", text, EXAMPLE)?;
    if unit.is_empty() {
        return Err(ValueError::new(
            format!("`{}` has no unit", shown(text)),
            format!("write ns, us, ms, s, m or h after it, as in {EXAMPLE}"),
        ));
    }
    let unit_ns = TIME_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, ns)| *ns)
        .or_else(|| (unit == "h").then_some(HOUR as f64))
        .ok_or_else(|| {
            ValueError::new(
                format!("`{}` has the unknown unit `{}`", shown(text), shown(unit)),
                format!("write ns, us, ms, s, m or h, as in {EXAMPLE}"),
            )
        })?;
    if number < 0.0 {
        return Err(ValueError::new(
            format!("`{}` is negative", shown(text)),
            format!("a length of time is zero or more, as in {EXAMPLE}"),
        ));
    }
    Ok((number * unit_ns).round() as u64)
}

/// A share as a fraction: `2%` is 0.02. The sign is required, so that 2 and 0.02 cannot be mixed up.
///
/// # Errors
/// If the number or the `%` is missing.
pub fn percentage(text: &str) -> Result<f64, ValueError> {
    let (number, unit) = number_and_unit("a percentage", text, "2%")?;
    if unit != "%" {
        return Err(ValueError::new(
            format!("`{}` is not a percentage", shown(text)),
            "write the number and %, as in 2%",
        ));
    }
    Ok(number / 100.0)
}

/// A size in bytes: `1 KiB`, `64 kB`, `1 MiB`, `1024`.
///
/// # Errors
/// If the number is missing, negative or not whole bytes, or the unit is unknown.
pub fn size_bytes(text: &str) -> Result<u64, ValueError> {
    const EXAMPLE: &str = "1 KiB, 64 kB or 512 B";
    let (number, unit) = number_and_unit("a size", text, EXAMPLE)?;
    let lower = unit.to_lowercase();
    let scale = SIZE_UNITS
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, scale)| *scale)
        .ok_or_else(|| {
            ValueError::new(
                format!("`{}` has the unknown unit `{}`", shown(text), shown(unit)),
                format!("write B, kB, KiB, MB or MiB, as in {EXAMPLE}"),
            )
        })?;
    let bytes = number * scale;
    if bytes < 0.0 || bytes.fract() != 0.0 {
        return Err(ValueError::new(
            format!("`{}` is not a whole number of bytes", shown(text)),
            format!("write a size of zero or more, as in {EXAMPLE}"),
        ));
    }
    Ok(bytes as u64)
}

/// A number with its unit within bounds, or an error that says the bounds.
pub(crate) fn within<T: PartialOrd>(
    text: &str,
    value: T,
    (least, most): (T, T),
    range: &str,
) -> Result<T, ValueError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(ValueError::new(
        format!("`{}` is out of range", shown(text)),
        format!("allowed: {range}"),
    ))
}

/// How long a run may take, in nanoseconds: 1 second to 24 hours.
///
/// # Errors
/// If it is not a length of time, or out of range.
pub fn time_limit_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (SECOND, 24 * HOUR), "1s to 24h")
}

/// The measured part of a trial, in nanoseconds: 20 milliseconds to an hour.
///
/// # Errors
/// If it is not a length of time, or out of range.
pub fn trial_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (20 * MS, HOUR), "20ms to 1h")
}

/// The part of a trial before its window, in nanoseconds: 0 to 10 minutes.
///
/// # Errors
/// If it is not a length of time, or out of range.
pub fn warmup_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (0, 10 * MINUTE), "0s to 10m")
}

/// The half width of an interval that is enough, as a fraction: 0.1 % to 50 %.
///
/// # Errors
/// If it is not a percentage, or out of range.
pub fn precision(text: &str) -> Result<f64, ValueError> {
    within(
        text,
        percentage(text)?,
        (0.001, 0.5),
        "0.1% to 50%, as in 2%",
    )
}

/// An offered rate in requests per second: 1 to 1,000,000. `1000` and `1000/s` are the same.
///
/// # Errors
/// If it is not a number, or out of range.
pub fn rate_per_s(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "1 to 1000000 requests per second, as in 1000";
    let bare = text.trim().trim_end_matches("/s").trim_end();
    let number: f64 = bare.replace('_', "").parse().map_err(|_| {
        ValueError::new(
            format!("`{}` is not a rate", shown(text)),
            format!("allowed: {RANGE}"),
        )
    })?;
    within(text, number, (1.0, 1e6), RANGE)
}

/// A whole number within bounds; `what` is for the message (`a number of connections`).
///
/// # Errors
/// If it is not a whole number, or out of range.
pub fn count(text: &str, what: &str, least: u32, most: u32) -> Result<u32, ValueError> {
    let range = format!("whole numbers from {least} to {most}");
    match text.trim().replace('_', "").parse::<i128>() {
        Ok(number) => {
            let number = within(text, number, (i128::from(least), i128::from(most)), &range)?;
            Ok(u32::try_from(number).unwrap_or(most))
        }
        Err(_) => Err(ValueError::new(
            format!("`{}` is not {what}", shown(text)),
            format!("allowed: {range}"),
        )),
    }
}

/// What `inject` knows, with an example of each.
pub(crate) const INJECTABLE: [(&str, &str); 5] = [
    ("delay", "15%, 12us or 1ms@1%"),
    ("burn", "100k"),
    ("memory", "64MiB"),
    ("cap", "5000/s"),
    ("leak", "4KiB"),
];

/// A known cost of this kind and size: `delay` of `12us` (a time), `15%` (of the baseline's median
/// latency) or `1ms@1%` (for one request in a hundred), `burn` of `100k` (steps for each request),
/// `memory` of `64MiB`, `cap` of `5000/s`, `leak` of `4KiB` (for each request).
///
/// # Errors
/// If the kind is unknown, or the size is none, or out of range.
pub(crate) fn known_cost(kind: &str, size: &str) -> Result<Inject, ValueError> {
    match kind.trim() {
        "delay" => delay(size),
        "burn" => burn_steps(size).map(Inject::BurnSteps),
        "memory" => {
            const RANGE: &str = "1MiB to 8GiB";
            let bytes = within(size, size_bytes(size)?, (1 << 20, 8 << 30), RANGE)?;
            Ok(Inject::HoldBytes(bytes))
        }
        "cap" => Ok(Inject::CapPerS(rate_per_s(size)?)),
        "leak" => {
            let bytes = within(size, size_bytes(size)?, (1, 1 << 20), "1B to 1MiB")?;
            Ok(Inject::LeakBytes(bytes))
        }
        other => Err(ValueError::new(
            format!("`{}` is not a cost that can be injected", shown(other)),
            match nearest(other, INJECTABLE.map(|(kind, _)| kind)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known: {}", one_of(INJECTABLE.map(|(kind, _)| kind))),
            },
        )),
    }
}

fn delay(text: &str) -> Result<Inject, ValueError> {
    const RANGE: &str = "1us to 1s, or 0.1% to 1000% of the baseline's median latency";
    let time = |text: &str| {
        let ns = duration_ns(text)
            .map_err(|e| ValueError::new(e.problem, format!("allowed: {RANGE}")))?;
        within(text, ns, (1_000, SECOND), RANGE)
    };
    if let Some((time_text, share)) = text.split_once('@') {
        let share = within(
            text,
            percentage(share)?,
            (0.000_1, 1.0),
            "0.01% to 100% of the requests, as in 1ms@1%",
        )?;
        let delay_ns = time(time_text)?;
        return Ok(Inject::DelaySome { delay_ns, share });
    }
    if text.trim_end().ends_with('%') {
        let share = within(text, percentage(text)?, (0.001, 10.0), RANGE)?;
        return Ok(Inject::DelayShareOfP50(share));
    }
    Ok(Inject::DelayNs(time(text)?))
}

/// Steps of work: `100000`, `100k`, `2M`.
pub(crate) fn burn_steps(text: &str) -> Result<u64, ValueError> {
    const RANGE: &str = "100 to 100M steps for each request, about a nanosecond each, as in 100k";
    let bare = text.trim().replace('_', "");
    let (digits, unit) = match bare.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => match bare.strip_suffix('M') {
            Some(digits) => (digits, 1_000_000),
            None => (bare.as_str(), 1),
        },
    };
    let steps = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| {
            let problem = format!("`{}` is not a number of steps", shown(text));
            ValueError::new(problem, format!("allowed: {RANGE}"))
        })?;
    within(text, steps, (100, 100_000_000), RANGE)
}

/// A share of the requests: `20%`.
///
/// # Errors
/// If it is no percentage of 0 to 100.
pub fn share(text: &str) -> Result<f64, ValueError> {
    within(text, percentage(text)?, (0.0, 1.0), "0% to 100%")
}

/// A pause, in nanoseconds.
pub(crate) fn pause_ns(text: &str) -> Result<u64, ValueError> {
    within(text, duration_ns(text)?, (0, 10 * MINUTE), "0s to 10m")
}

/// How long a service takes besides its CPU: `exp:2ms`, `uniform:1ms-5ms` or `lognormal:2ms,0.5` (the median
/// and the standard deviation of the natural logarithm).
///
/// # Errors
/// If it is none of these, or longer than a minute.
pub fn service_time(text: &str) -> Result<ServiceTime, ValueError> {
    const FORMS: &str = "write it as exp:2ms, uniform:1ms-5ms or lognormal:2ms,0.5";
    let none = || {
        let problem = format!("`{}` is no distribution of times", shown(text));
        ValueError::new(problem, FORMS)
    };
    let ns = |text: &str| {
        pause_ns(text).map_err(|e| ValueError::new(e.problem, format!("{}; {FORMS}", e.fix)))
    };
    let (name, parameters) = text.split_once(':').ok_or_else(none)?;
    match name.trim() {
        "exp" => Ok(ServiceTime::Exponential {
            mean_ns: ns(parameters)?,
        }),
        "uniform" => {
            let (from, to) = parameters.split_once('-').ok_or_else(none)?;
            let (from_ns, to_ns) = (ns(from)?, ns(to)?);
            if from_ns > to_ns {
                let problem = format!("`{}` ends before it begins", shown(text));
                let fix = format!("put the shorter time first: uniform:{to}-{from}");
                return Err(ValueError::new(problem, fix));
            }
            Ok(ServiceTime::Uniform { from_ns, to_ns })
        }
        "lognormal" => {
            let (median, sigma) = parameters.split_once(',').ok_or_else(none)?;
            let sigma: f64 = sigma.trim().parse().map_err(|_| none())?;
            Ok(ServiceTime::LogNormal {
                median_ns: ns(median)?,
                sigma: within(text, sigma, (0.0, 5.0), "a sigma of 0 to 5")?,
            })
        }
        _ => Err(none()),
    }
}

/// A known cost as the command line writes it: `delay=15%`, `memory=64MiB`.
///
/// # Errors
/// If the kind of cost is unknown or its size cannot be used.
pub fn inject(text: &str) -> Result<Inject, ValueError> {
    let Some((kind, size)) = text.split_once('=') else {
        return Err(ValueError::new(
            format!("`{}` does not say how much", shown(text)),
            "write the cost and its size, as in delay=15% or memory=64MiB",
        ));
    };
    known_cost(kind, size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_human_units() {
        assert_eq!(duration_ns("2m"), Ok(120 * SECOND));
        assert_eq!(duration_ns(" 500 ms "), Ok(500 * MS));
        assert_eq!(duration_ns("12us"), Ok(12_000));
        assert_eq!(duration_ns("12µs"), Ok(12_000));
        assert_eq!(duration_ns("1.5s"), Ok(1_500 * MS));
        assert_eq!(duration_ns("1h"), Ok(HOUR));
        assert_eq!(percentage("2%"), Ok(0.02));
        assert_eq!(percentage("0.5 %"), Ok(0.005));
        assert_eq!(size_bytes("1 KiB"), Ok(1024));
        assert_eq!(size_bytes("1024"), Ok(1024));
        assert_eq!(size_bytes("1.5 kB"), Ok(1500));
        assert_eq!(size_bytes("2MiB"), Ok(2 * 1024 * 1024));
        assert_eq!(rate_per_s("1000/s"), Ok(1000.0));
        assert_eq!(rate_per_s("10_000"), Ok(10_000.0));
        assert_eq!(inject("delay=15%"), Ok(Inject::DelayShareOfP50(0.15)));
        assert_eq!(inject("delay=12us"), Ok(Inject::DelayNs(12_000)));
        let some = Inject::DelaySome {
            delay_ns: 1_000_000,
            share: 0.01,
        };
        assert_eq!(inject("delay=1ms@1%"), Ok(some));
        assert_eq!(inject("burn=100k"), Ok(Inject::BurnSteps(100_000)));
        assert_eq!(inject("memory=64MiB"), Ok(Inject::HoldBytes(64 << 20)));
        assert_eq!(inject("cap=5000/s"), Ok(Inject::CapPerS(5000.0)));
        assert_eq!(inject("leak=4KiB"), Ok(Inject::LeakBytes(4096)));
    }

    #[test]
    fn says_what_is_wrong_and_what_is_allowed() {
        let said: Vec<String> = [
            duration_ns("2").map(drop),
            duration_ns("-1s").map(drop),
            duration_ns("2 parsecs").map(drop),
            duration_ns("soon").map(drop),
            time_limit_ns("48h").map(drop),
            time_limit_ns("0s").map(drop),
            percentage("2").map(drop),
            precision("NaN%").map(drop),
            precision("99%").map(drop),
            size_bytes("1.5 B").map(drop),
            size_bytes("3 bananas").map(drop),
            rate_per_s("0").map(drop),
            rate_per_s("NaN").map(drop),
            rate_per_s("inf").map(drop),
            rate_per_s("1e99").map(drop),
            count("0", "a number of connections", 1, 10_000).map(drop),
            count("1.5", "a number of connections", 1, 10_000).map(drop),
            inject("delay").map(drop),
            inject("dealy=3us").map(drop),
            inject("memory=3").map(drop),
            inject("memory=64").map(drop),
            inject("burn=12us").map(drop),
            inject("burn=1").map(drop),
            inject("cap=0").map(drop),
            inject("leak=2MiB").map(drop),
            inject("delay=1ms@").map(drop),
            inject("delay=1ms@200%").map(drop),
            inject("delay=@1%").map(drop),
            delay("3").map(drop),
            delay("0%").map(drop),
            delay("1h").map(drop),
        ]
        .into_iter()
        .map(|r| r.unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(said.join("\n"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = duration_ns(&text);
            let _ = percentage(&text);
            let _ = size_bytes(&text);
            let _ = rate_per_s(&text);
            let _ = count(&text, "a count", 1, 9);
            let _ = inject(&text);
        }

        #[test]
        fn durations_keep_their_value(ns in 0_u64..9_000_000_000) {
            prop_assert_eq!(duration_ns(&format!("{ns}ns")), Ok(ns));
            prop_assert_eq!(duration_ns(&format!("{ns} ms")), Ok(ns * MS));
        }
    }
}
