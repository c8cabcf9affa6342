//! Limits of a gate, as the command line writes them: `p99 +5%`, `envoy-sidecar-l7: cpu +20us at steady`.

use meshtax_model::analysis::Metric;
use meshtax_model::comparison::{Allowed, Limit};

use crate::error::{nearest, one_of};
use crate::value::{self, ValueError, percentage, shown, within};

/// What a limit may be on, as it is typed.
pub(crate) const METRICS: [(&str, Metric); 8] = [
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

/// A limit: how much worse a metric may get. `p99 +5%` and `p99 5%` are the same, and so are `throughput
/// -5%` and `throughput 5%`. An absolute one is in the metric's unit: a time for latency and for CPU (per
/// request), a size for memory, a rate (`-500/s`) for throughput.
///
/// # Errors
/// If there is no metric or no size, or one of them is unknown or out of range.
pub fn limit(text: &str) -> Result<Limit, ValueError> {
    let (variant, rest) = match text.split_once(':') {
        Some((variant, rest)) => (Some(named("variant", variant)?), rest),
        None => (None, text),
    };
    let (rest, load_point) = match rest.rsplit_once(" at ") {
        Some((rest, load)) => (rest, Some(named("load point", load)?)),
        None => (rest, None),
    };
    let rest = rest.trim();
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '+' | '-'))
        .unwrap_or(rest.len());
    let (word, size) = rest.split_at(end);
    let metric = metric(word)?;
    Ok(Limit {
        text: shown(text.trim()),
        variant,
        metric,
        allowed: allowed(metric, size.trim())?,
        load_point,
    })
}

fn named(what: &str, text: &str) -> Result<String, ValueError> {
    let name = text.trim();
    if name.is_empty() || name.contains(char::is_whitespace) {
        let problem = format!("`{}` is no name of a {what}", shown(text));
        return Err(ValueError::new(problem, FORM));
    }
    Ok(name.to_owned())
}

fn metric(word: &str) -> Result<Metric, ValueError> {
    let lower = word.to_lowercase();
    if let Some((_, metric)) = METRICS.iter().find(|(name, _)| *name == lower) {
        return Ok(*metric);
    }
    let names = METRICS.map(|(name, _)| name);
    let known = format!("known: {}; {FORM}", one_of(names));
    Err(ValueError::new(
        format!("`{}` is not a metric that a limit may be on", shown(word)),
        match nearest(&lower, names) {
            Some(meant) if !lower.is_empty() => format!("did you mean `{meant}`? {known}"),
            _ => known,
        },
    ))
}

/// How much is allowed; without a sign: so much worse.
fn allowed(metric: Metric, text: &str) -> Result<Allowed, ValueError> {
    if text.is_empty() {
        let problem = "the limit does not say how much".to_owned();
        return Err(ValueError::new(problem, FORM));
    }
    let worse = if metric.larger_is_worse() { 1.0 } else { -1.0 };
    let (sign, size) = match text.strip_prefix(['+', '-']) {
        Some(size) => (if text.starts_with('-') { -1.0 } else { 1.0 }, size.trim()),
        None => (worse, text),
    };
    if size.starts_with(['+', '-']) {
        let problem = format!("`{}` has two signs", shown(text));
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
    let also = |e: ValueError, example: &str| {
        let fix = format!("write a share, as in 5%, or {example}");
        ValueError::new(e.problem, fix)
    };
    match metric {
        Metric::AnonymousMemory => value::size_bytes(size)
            .map(|bytes| bytes as f64)
            .map_err(|e| also(e, "a size, as in 10MiB")),
        Metric::Throughput if size.ends_with("/s") => {
            value::rate_per_s(size).map_err(|e| also(e, "a rate, as in 500/s"))
        }
        Metric::Throughput => Err(also(
            ValueError::new(format!("`{}` has no unit", shown(size)), ""),
            "a rate, as in 500/s",
        )),
        _ => value::duration_ns(size)
            .map(|ns| ns as f64)
            .map_err(|e| also(e, "a time, as in 200us")),
    }
}

/// What runs may differ by without any change: 0 % to 50 %.
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
    fn reads_limits() {
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
    fn says_what_is_wrong_and_what_is_allowed() {
        let said: Vec<String> = [
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
        insta::assert_snapshot!(said.join("\n"));
        assert!(between("60%").is_err() && between("1").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = limit(&text);
            let _ = limit(&format!("p99 {text}"));
            let _ = between(&text);
        }
    }
}
