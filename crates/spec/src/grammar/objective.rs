//! Objectives: `p99<5ms@2000/s`, `throughput>5000/s`; and the other values of `meshtax advise`: `mtls`, `cost`.

use meshtax_model::LatencyGoal;
use meshtax_model::advice::{Need, Objective, Priority};
use meshtax_model::analysis::{Metric, Weight};

use super::duration::{HOUR, duration_ns};
use super::error::{ValueError, quoted};
use super::limit::METRICS;
use super::number::within;
use super::rate::rate_per_s;
use super::suggestion::{one_of, with_suggestion};

const FORM: &str = "write it as PERCENTILE<DURATION@RATE, as in 'p99<5ms@2000/s', or as throughput>RATE, as in \
                    'throughput>5000/s'";

const GOAL_FORM: &str = "write it as PERCENTILE<DURATION, as in 'p99 < 5ms'";

/// The parts of `SUBJECT<BOUND@LOAD`; `<=` is `<`, and `>=` is `>`.
struct Parts<'a> {
    subject: &'a str,
    /// `>`
    is_minimum: bool,
    bound: &'a str,
    load: Option<&'a str>,
}

fn split<'a>(text: &'a str, form: &str) -> Result<Parts<'a>, ValueError> {
    let Some(at) = text.find(['<', '>']) else {
        let problem = format!("`{}` has neither `<` nor `>`", quoted(text));
        return Err(ValueError::new(problem, form));
    };
    let (subject, rest) = text.split_at(at);
    let is_minimum = rest.starts_with('>');
    let rest = rest[1..].strip_prefix('=').unwrap_or(&rest[1..]);
    let (bound, load) = match rest.split_once('@') {
        Some((bound, load)) => (bound, Some(load.trim())),
        None => (rest, None),
    };
    Ok(Parts {
        subject: subject.trim(),
        is_minimum,
        bound: bound.trim(),
        load,
    })
}

/// An objective: a percentile of response latency at an offered rate, or the throughput when saturated
/// (`@sat` may follow).
///
/// # Errors
/// If a part is missing, unknown or out of range, or if it bounds the latency at saturation.
pub fn objective(text: &str) -> Result<Objective, ValueError> {
    let parts = split(text, FORM)?;
    let metric = metric(parts.subject)?;
    if parts.is_minimum != (metric == Metric::Throughput) {
        let (sign, of) = match parts.is_minimum {
            true => ("<", metric.name()),
            false => (">", "throughput"),
        };
        let problem = format!("`{}`: an objective on {of} has `{sign}`", quoted(text));
        return Err(ValueError::new(problem, FORM));
    }
    let (bound, rate_per_s) = if parts.is_minimum {
        expect_saturated(parts.load)?;
        (rate_per_s(parts.bound)?, None)
    } else {
        let bound_ns = latency_ns(parts.bound, FORM)?;
        (bound_ns as f64, Some(rate(text, parts.load)?))
    };
    Ok(Objective {
        text: quoted(text.trim()),
        metric,
        bound,
        rate_per_s,
    })
}

/// The goal of a search for the knee: any percentile of response latency, or `max`, below a duration.
///
/// # Errors
/// If a part is missing, unknown or out of range.
pub fn latency_goal(text: &str) -> Result<LatencyGoal, ValueError> {
    let parts = split(text, GOAL_FORM)?;
    if parts.is_minimum || parts.load.is_some() {
        return Err(ValueError::not(
            text,
            "an upper bound on latency",
            GOAL_FORM,
        ));
    }
    Ok(LatencyGoal {
        quantile: quantile(parts.subject)?,
        limit_ns: latency_ns(parts.bound, GOAL_FORM)?,
    })
}

fn quantile(subject: &str) -> Result<f64, ValueError> {
    let lower = subject.to_lowercase();
    if lower == "max" {
        return Ok(1.0);
    }
    let digits = lower.strip_prefix('p').filter(|digits| {
        let mut bytes = digits.bytes();
        bytes.all(|b| b.is_ascii_digit() || b == b'.')
    });
    match digits.and_then(|digits| digits.parse::<f64>().ok()) {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(ValueError::not(
            subject,
            "a percentile above 0 and up to 100, or max",
            GOAL_FORM,
        )),
    }
}

/// The metrics of limits that an objective can have.
fn metrics() -> impl Iterator<Item = (&'static str, Metric)> {
    let is_allowed = |metric: Metric| metric.quantile().is_some() || metric == Metric::Throughput;
    METRICS
        .into_iter()
        .filter(move |(_, metric)| is_allowed(*metric))
}

fn metric(word: &str) -> Result<Metric, ValueError> {
    let all: Vec<(&str, Metric)> = metrics().collect();
    by_name("a metric of an objective", word, &all, &format!("; {FORM}"))
}

fn latency_ns(text: &str, form: &str) -> Result<u64, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("the objective has no bound", form));
    }
    const RANGE: &str = "1ns to 1h, as in 5ms";
    within(text, duration_ns(text)?, (1, HOUR), RANGE)
}

/// The rate of a latency objective, without which it has no meaning.
fn rate(text: &str, load: Option<&str>) -> Result<f64, ValueError> {
    match load {
        None | Some("") => {
            let whole = quoted(text.trim().trim_end_matches('@'));
            Err(ValueError::new(
                format!("`{whole}` has no rate, and latency depends on it"),
                format!("append the rate, as in '{whole}@2000/s'"),
            ))
        }
        Some(load) if is_saturated(load) => Err(ValueError::new(
            "latency at saturation equals connections / throughput, whatever is measured",
            "use a rate below saturation, as in 'p99<5ms@2000/s', or an objective on throughput, as in \
             'throughput>5000/s'",
        )),
        Some(load) => rate_per_s(load),
    }
}

fn expect_saturated(load: Option<&str>) -> Result<(), ValueError> {
    match load {
        Some(load) if !is_saturated(load) => Err(ValueError::new(
            format!("throughput at `{}` is the offered rate", quoted(load)),
            "throughput objectives are for saturated load: write it as in 'throughput>5000/s'",
        )),
        _ => Ok(()),
    }
}

fn is_saturated(load: &str) -> bool {
    matches!(load.to_lowercase().as_str(), "sat" | "saturated")
}

/// A capability that is required of a mesh.
///
/// # Errors
/// If it is unknown.
pub fn need(text: &str) -> Result<Need, ValueError> {
    by_name(
        "a need",
        text,
        &Need::ALL.map(|need| (need.name(), need)),
        "",
    )
}

/// A priority of a choice.
///
/// # Errors
/// If it is unknown.
pub fn priority(text: &str) -> Result<Priority, ValueError> {
    let all = Priority::ALL.map(|priority| (priority.name(), priority));
    by_name("a priority", text, &all, "")
}

/// The largest weight, so that sums stay exact enough to be compared.
const WEIGHT_MAX: f64 = 1e6;

/// How much a requirement counts in a decision: `performance=3`, above zero and at most 1,000,000.
///
/// # Errors
/// If the requirement is unknown, or the weight is no such number.
pub fn weight(text: &str) -> Result<Weight, ValueError> {
    let example = "a requirement and its weight, as in performance=3";
    let Some((name, weight)) = text.split_once('=') else {
        return Err(ValueError::not(text, "a weight", example));
    };
    let weight = number("a weight", weight, (0.0, WEIGHT_MAX), example)?;
    if weight <= 0.0 {
        return Err(ValueError::not(text, "a weight above zero", example));
    }
    Ok(Weight {
        requirement: priority(name)?,
        weight,
    })
}

/// One of several words; `more` follows the list of the allowed ones.
fn by_name<T: Copy>(
    expected: &str,
    text: &str,
    all: &[(&'static str, T)],
    more: &str,
) -> Result<T, ValueError> {
    let lower = text.trim().to_lowercase();
    let found = all.iter().find(|(name, _)| *name == lower);
    found.map(|(_, meant)| *meant).ok_or_else(|| {
        let names = || all.iter().map(|(name, _)| *name);
        let fix = format!("allowed: {}{more}", one_of(names()));
        ValueError::not(text, expected, with_suggestion(&lower, names(), fix))
    })
}

/// A price per hour, without a currency: 0 to 1,000,000.
///
/// # Errors
/// If it is not a number, or out of range.
pub fn hourly_price(text: &str) -> Result<f64, ValueError> {
    number("a price", text, (0.0, 1e6), "0 to 1000000, as in 0.04")
}

/// The mean number of calls between services per request of a user: more than 0, at most 1,000.
///
/// # Errors
/// If it is not a number, or out of range.
pub fn hops(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "0.001 to 1000, as in 2.5";
    number("a number of hops", text, (1e-3, 1e3), RANGE)
}

fn number(expected: &str, text: &str, bounds: (f64, f64), range: &str) -> Result<f64, ValueError> {
    let number: f64 = text
        .trim()
        .parse()
        .map_err(|_| ValueError::not(text, expected, format!("allowed: {range}")))?;
    within(text, number, bounds, range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_objective_has_a_metric_a_bound_and_a_load() {
        let read = |text| objective(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let p99 = read("p99<5ms@2000/s");
        assert_eq!(p99.text, "p99<5ms@2000/s");
        assert_eq!((p99.metric, p99.bound), (Metric::ResponseP99, 5e6));
        assert_eq!(p99.rate_per_s, Some(2000.0));
        let p50 = read(" P50 <= 400 us @ 1_000 ");
        assert_eq!((p50.metric, p50.bound), (Metric::ResponseP50, 4e5));
        assert_eq!(p50.rate_per_s, Some(1000.0));
        assert_eq!(read("p99.9<1s@10/s").metric, Metric::ResponseP999);
        for text in ["throughput>5000/s", "throughput >= 5000 @sat"] {
            let throughput = read(text);
            assert_eq!(throughput.metric, Metric::Throughput);
            assert_eq!((throughput.bound, throughput.rate_per_s), (5000.0, None));
        }
        assert_eq!(need("mTLS"), Ok(Need::Mtls));
        assert_eq!(priority("cost"), Ok(Priority::Cost));
        assert_eq!(hourly_price("0.04"), Ok(0.04));
        assert_eq!(hops("2.5"), Ok(2.5));
    }

    #[test]
    fn a_latency_goal_is_any_percentile_or_the_maximum_below_a_duration() {
        for (text, quantile, limit_ns, written) in [
            ("p99 < 5ms", 0.99, 5_000_000, "p99 < 5ms"),
            ("P99.9<=800us", 0.999, 800_000, "p99.9 < 800us"),
            (" p50 < 1.5 ms ", 0.5, 1_500_000, "p50 < 1.5ms"),
            ("max<2s", 1.0, 2_000_000_000, "max < 2s"),
            ("p100 < 1µs", 1.0, 1000, "max < 1us"),
        ] {
            let read = latency_goal(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(
                (read.limit_ns, read.to_string().as_str()),
                (limit_ns, written)
            );
            assert!((read.quantile - quantile).abs() < 1e-12);
        }
        for text in [
            "p99",
            "p99 < 5",
            "mean < 5ms",
            "p0 < 1ms",
            "p101 < 1ms",
            "p99 < 0ms",
            "q < 1s",
            "p99 > 5ms",
            "p99 < 5ms@100/s",
        ] {
            assert!(latency_goal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_objectives_are_rejected_with_the_allowed_form() {
        let objectives = [
            "",
            "p99",
            "p99<5ms",
            "p99<5ms@",
            "p99<5ms@sat",
            "p99<5@2000/s",
            "p99<@2000/s",
            "p99<0ms@2000/s",
            "p99<-5ms@2000/s",
            "p99<2h@2000/s",
            "p99<5ms@fast",
            "p99<5ms@0/s",
            "p99>5ms@2000/s",
            "p95<5ms@2000/s",
            "cpu<5ms@2000/s",
            "thruoghput>5/s",
            "throughput<5000/s",
            "throughput>5000/s@2000/s",
            "throughput>NaN",
        ];
        let mut errors: Vec<String> = objectives
            .into_iter()
            .map(|text| objective(text).expect_err(text).to_string())
            .collect();
        errors.push(need("encryption").expect_err("a need").to_string());
        errors.push(priority("costs").expect_err("a priority").to_string());
        errors.push(hourly_price("-1").expect_err("a price").to_string());
        errors.push(hourly_price("NaN").expect_err("a price").to_string());
        errors.push(hops("none").expect_err("hops").to_string());
        insta::assert_snapshot!(errors.join("\n"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = objective(&text);
            let _ = objective(&format!("p99<{text}"));
            let _ = objective(&format!("p99<5ms@{text}"));
            let _ = latency_goal(&text);
            let _ = latency_goal(&format!("p{text}<5ms"));
            let _ = (need(&text), priority(&text), hourly_price(&text), hops(&text));
        }
    }
}
