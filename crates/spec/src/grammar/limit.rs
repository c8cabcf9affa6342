//! Limits of a gate: `p99 +5%`, `envoy-sidecar-l7: cpu +20us at steady`.

use meshtax_model::analysis::Metric;
use meshtax_model::comparison::{Allowed, Limit};

use super::duration::duration_ns;
use super::error::{ValueError, quoted};
use super::number::within;
use super::rate::rate_per_s;
use super::share::percentage;
use super::size::size_bytes;
use super::suggestion::{one_of, with_suggestion};

/// The metrics of limits, as they are typed.
pub(super) const METRICS: [(&str, Metric); 8] = [
    ("p50", Metric::ResponseP50),
    ("p90", Metric::ResponseP90),
    ("p99", Metric::ResponseP99),
    ("p99.9", Metric::ResponseP999),
    ("mean", Metric::ResponseMean),
    ("throughput", Metric::Throughput),
    ("cpu", Metric::CpuPerRequest),
    ("memory", Metric::AnonymousMemory),
];

const FORM: &str = "write it as [VARIANT:] METRIC +LIMIT [at LOAD], as in 'p99 +5%', 'throughput -5%' or \
                    'envoy-sidecar-l7: cpu +20us at steady'";

/// A limit: how much worse a metric may become. `p99 +5%` and `p99 5%` are the same, and so are `throughput
/// -5%` and `throughput 5%`. An absolute limit is in the metric's unit: a duration for latency and for CPU (per
/// request), a size for memory, a rate (`-500/s`) for throughput.
///
/// # Errors
/// If the metric or the size is missing, unknown or out of range.
pub fn limit(text: &str) -> Result<Limit, ValueError> {
    let (variant, rest) = match text.split_once(':') {
        Some((variant, rest)) => (Some(id("variant", variant)?), rest),
        None => (None, text),
    };
    let (rest, load_point) = match rest.rsplit_once(" at ") {
        Some((rest, load)) => (rest, Some(id("load point", load)?)),
        None => (rest, None),
    };
    let rest = rest.trim();
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '+' | '-'))
        .unwrap_or(rest.len());
    let (word, size) = rest.split_at(end);
    let metric = metric(word)?;
    Ok(Limit {
        text: quoted(text.trim()),
        variant,
        metric,
        allowed: allowed(metric, size.trim())?,
        load_point,
    })
}

fn id(of: &str, text: &str) -> Result<String, ValueError> {
    let id = text.trim();
    if id.is_empty() || id.contains(char::is_whitespace) {
        return Err(ValueError::not(text, &format!("the id of a {of}"), FORM));
    }
    Ok(id.to_owned())
}

fn metric(word: &str) -> Result<Metric, ValueError> {
    let lower = word.to_lowercase();
    if let Some((_, metric)) = METRICS.iter().find(|(name, _)| *name == lower) {
        return Ok(*metric);
    }
    let names = METRICS.map(|(name, _)| name);
    let fix = format!("allowed: {}; {FORM}", one_of(names));
    let fix = with_suggestion(&lower, names, fix);
    Err(ValueError::not(word, "a metric of a limit", fix))
}

/// The allowed change; without a sign, a change for the worse.
fn allowed(metric: Metric, text: &str) -> Result<Allowed, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("the limit has no size", FORM));
    }
    let worse = if metric.larger_is_worse() { 1.0 } else { -1.0 };
    let (sign, size) = match text.strip_prefix(['+', '-']) {
        Some(size) => (if text.starts_with('-') { -1.0 } else { 1.0 }, size.trim()),
        None => (worse, text),
    };
    if size.starts_with(['+', '-']) {
        let problem = format!("`{}` has two signs", quoted(text));
        return Err(ValueError::new(problem, FORM));
    }
    if size.ends_with('%') {
        const RANGE: &str = "more than -100% and at most +10000%, as in +5%";
        let share = within(text, sign * percentage(size)?, (-0.999_999, 100.0), RANGE)?;
        return Ok(Allowed::Relative(share));
    }
    Ok(Allowed::Absolute(sign * absolute(metric, size)?))
}

fn absolute(metric: Metric, size: &str) -> Result<f64, ValueError> {
    let (parsed, example) = match metric {
        Metric::AnonymousMemory => (size_bytes(size).map(|b| b as f64), "a size, as in 10MiB"),
        Metric::Throughput if size.ends_with("/s") => (rate_per_s(size), "a rate, as in 500/s"),
        Metric::Throughput => {
            let problem = format!("`{}` has no unit", quoted(size));
            (Err(ValueError::new(problem, "")), "a rate, as in 500/s")
        }
        _ => (
            duration_ns(size).map(|ns| ns as f64),
            "a duration, as in 200us",
        ),
    };
    parsed.map_err(|e| ValueError::new(e.problem, format!("write a share, as in 5%, or {example}")))
}

/// The variation between runs without any change: 0 % to 50 %.
///
/// # Errors
/// If it is not a percentage, or out of range.
pub fn between(text: &str) -> Result<f64, ValueError> {
    within(text, percentage(text)?, (0.0, 0.5), "0% to 50%, as in 2%")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_limit_has_a_metric_a_size_and_optionally_a_variant_and_a_load_point() {
        let read = |text| limit(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let p99 = read("p99 +5%");
        assert_eq!(p99.metric, Metric::ResponseP99);
        assert_eq!(p99.allowed, Allowed::Relative(0.05));
        assert_eq!((p99.variant, p99.load_point), (None, None));
        assert_eq!(read("p99 5%").allowed, Allowed::Relative(0.05));
        assert_eq!(read("P99.9+5%").metric, Metric::ResponseP999);
        assert_eq!(read("throughput 5%").allowed, Allowed::Relative(-0.05));
        assert_eq!(read("throughput -5%").allowed, Allowed::Relative(-0.05));
        assert_eq!(read("mean - 5 %").allowed, Allowed::Relative(-0.05));
        assert_eq!(read("p50 +200us").allowed, Allowed::Absolute(200e3));
        assert_eq!(read("cpu 20us").allowed, Allowed::Absolute(20e3));
        let mib = f64::from(10 << 20);
        assert_eq!(read("memory 10MiB").allowed, Allowed::Absolute(mib));
        assert_eq!(read("throughput 500/s").allowed, Allowed::Absolute(-500.0));
        let named = read(" envoy-sidecar-l7: cpu +10% at steady-1000 ");
        assert_eq!(named.variant.as_deref(), Some("envoy-sidecar-l7"));
        assert_eq!(named.load_point.as_deref(), Some("steady-1000"));
        assert_eq!(between("1.5%"), Ok(0.015));
    }

    #[test]
    fn invalid_limits_are_rejected_with_the_allowed_form() {
        let errors: Vec<String> = [
            "",
            "p99",
            "p98 +5%",
            "p99 +5",
            "p99 ++5%",
            "p99 +five%",
            "p99 -100%",
            "p99 +NaN%",
            "p99 +99999999%",
            "throughput -500",
            "memory +5us",
            "latency +5%",
            ": p99 +5%",
            "a b: p99 +5%",
            "p99 +5% at ",
            "p99 +5% at a b",
            "trouhgput -5%",
        ]
        .into_iter()
        .map(|text| limit(text).expect_err(text).to_string())
        .collect();
        insta::assert_snapshot!(errors.join("\n"));
        assert!(between("60%").is_err() && between("1").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = limit(&text);
            let _ = limit(&format!("p99 {text}"));
            let _ = between(&text);
        }
    }
}
