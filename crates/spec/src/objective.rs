//! What `meshtax advise` is asked, as the command line writes it: `p99<5ms@2000/s`, `mtls`, `cost`.

use meshtax_model::advice::{Need, Objective, Priority};
use meshtax_model::analysis::Metric;

use crate::error::{nearest, one_of};
use crate::limit::METRICS;
use crate::value::{ValueError, duration_ns, rate_per_s, shown, within};

const FORM: &str = "write it as PERCENTILE<TIME@RATE, as in 'p99<5ms@2000/s', or as throughput>RATE, as in \
                    'throughput>5000/s'";

/// An objective: a percentile of response latency at an offered rate, or the throughput when saturated
/// (`@sat` may stand behind it). `<=` is `<`.
///
/// # Errors
/// If a part of it is missing, unknown or out of range, or latency is asked for at saturation.
pub fn objective(text: &str) -> Result<Objective, ValueError> {
    let Some(at) = text.find(['<', '>']) else {
        let problem = format!("`{}` has no `<` and no `>`", shown(text));
        return Err(ValueError::new(problem, FORM));
    };
    let (word, rest) = text.split_at(at);
    let metric = metric(word)?;
    let least = rest.starts_with('>');
    let rest = rest[1..].strip_prefix('=').unwrap_or(&rest[1..]);
    let (bound, load) = match rest.split_once('@') {
        Some((bound, load)) => (bound.trim(), Some(load.trim())),
        None => (rest.trim(), None),
    };
    if least != (metric == Metric::Throughput) {
        let (sign, of) = if least {
            ("<", metric.name())
        } else {
            (">", "throughput")
        };
        let problem = format!("`{}`: an objective on {of} has `{sign}`", shown(text));
        return Err(ValueError::new(problem, FORM));
    }
    let (bound, rate_per_s) = if least {
        saturated(load)?;
        (rate_per_s(bound)?, None)
    } else {
        (time_ns(bound)?, Some(rate(text, load)?))
    };
    Ok(Objective {
        text: shown(text.trim()),
        metric,
        bound,
        rate_per_s,
    })
}

/// The metrics of limits that an objective may be on.
fn known() -> impl Iterator<Item = (&'static str, Metric)> {
    let may = |metric: Metric| metric.quantile().is_some() || metric == Metric::Throughput;
    METRICS.into_iter().filter(move |(_, metric)| may(*metric))
}

fn metric(word: &str) -> Result<Metric, ValueError> {
    let lower = word.trim().to_lowercase();
    if let Some((_, metric)) = known().find(|(name, _)| *name == lower) {
        return Ok(metric);
    }
    let names: Vec<&str> = known().map(|(name, _)| name).collect();
    let problem = format!("`{}` is nothing that an objective may be on", shown(word));
    Err(unknown(problem, &lower, &names, FORM))
}

/// Names what was probably meant, and all that there is.
fn unknown(problem: String, typed: &str, names: &[&str], more: &str) -> ValueError {
    let mut known = format!("known: {}", one_of(names.iter().copied()));
    if !more.is_empty() {
        known.push_str(&format!("; {more}"));
    }
    let fix = match nearest(typed, names.iter().copied()) {
        Some(meant) if !typed.is_empty() => format!("did you mean `{meant}`? {known}"),
        _ => known,
    };
    ValueError::new(problem, fix)
}

fn time_ns(text: &str) -> Result<f64, ValueError> {
    const HOUR_NS: u64 = 3_600_000_000_000;
    if text.is_empty() {
        let problem = "the objective does not say how much".to_owned();
        return Err(ValueError::new(problem, FORM));
    }
    let ns = within(
        text,
        duration_ns(text)?,
        (1, HOUR_NS),
        "1ns to 1h, as in 5ms",
    )?;
    Ok(ns as f64)
}

/// The rate of a latency, without which it means nothing.
fn rate(text: &str, load: Option<&str>) -> Result<f64, ValueError> {
    match load {
        None | Some("") => {
            let whole = shown(text.trim().trim_end_matches('@'));
            Err(ValueError::new(
                format!("`{whole}` does not say at which rate, and latency depends on it"),
                format!("write the rate behind it, as in '{whole}@2000/s'"),
            ))
        }
        Some(load) if is_saturated(load) => Err(ValueError::new(
            "latency at saturation is connections / throughput, whatever is measured".to_owned(),
            "write a rate below saturation, as in 'p99<5ms@2000/s', or ask for throughput, as in \
             'throughput>5000/s'",
        )),
        Some(load) => rate_per_s(load),
    }
}

fn saturated(load: Option<&str>) -> Result<(), ValueError> {
    match load {
        Some(load) if !is_saturated(load) => Err(ValueError::new(
            format!(
                "throughput at `{}` is the rate that was offered",
                shown(load)
            ),
            "throughput is a saturated load's: write it as in 'throughput>5000/s'",
        )),
        _ => Ok(()),
    }
}

fn is_saturated(load: &str) -> bool {
    matches!(load.to_lowercase().as_str(), "sat" | "saturated")
}

/// Something that a mesh is wanted for.
///
/// # Errors
/// If it is unknown.
pub fn need(text: &str) -> Result<Need, ValueError> {
    named("a need", text, Need::ALL.map(|need| (need.name(), need)))
}

/// What matters most.
///
/// # Errors
/// If it is unknown.
pub fn priority(text: &str) -> Result<Priority, ValueError> {
    let all = Priority::ALL.map(|priority| (priority.name(), priority));
    named("a priority", text, all)
}

fn named<T: Copy, const N: usize>(
    what: &str,
    text: &str,
    all: [(&'static str, T); N],
) -> Result<T, ValueError> {
    let lower = text.trim().to_lowercase();
    let found = all.iter().find(|(name, _)| *name == lower);
    found.map(|(_, meant)| *meant).ok_or_else(|| {
        let problem = format!("`{}` is not {what}", shown(text));
        unknown(problem, &lower, &all.map(|(name, _)| name), "")
    })
}

/// A price of an hour, without a currency: 0 to 1,000,000.
///
/// # Errors
/// If it is no number, or out of range.
pub fn hourly_price(text: &str) -> Result<f64, ValueError> {
    number("a price", text, (0.0, 1e6), "0 to 1000000, as in 0.04")
}

/// How often a request passes the mesh, on average: more than 0, at most 1,000.
///
/// # Errors
/// If it is no number, or out of range.
pub fn hops(text: &str) -> Result<f64, ValueError> {
    number(
        "a number of hops",
        text,
        (1e-3, 1e3),
        "0.001 to 1000, as in 2.5",
    )
}

fn number(what: &str, text: &str, bounds: (f64, f64), range: &str) -> Result<f64, ValueError> {
    let number: f64 = text.trim().parse().map_err(|_| {
        let problem = format!("`{}` is not {what}", shown(text));
        ValueError::new(problem, format!("allowed: {range}"))
    })?;
    within(text, number, bounds, range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_objectives() {
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
    fn says_what_is_wrong_and_what_is_allowed() {
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
        let mut said: Vec<String> = objectives
            .into_iter()
            .map(|text| objective(text).expect_err(text).to_string())
            .collect();
        said.push(need("encryption").expect_err("a need").to_string());
        said.push(priority("costs").expect_err("a priority").to_string());
        said.push(hourly_price("-1").expect_err("a price").to_string());
        said.push(hourly_price("NaN").expect_err("a price").to_string());
        said.push(hops("none").expect_err("hops").to_string());
        insta::assert_snapshot!(said.join("\n"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = objective(&text);
            let _ = objective(&format!("p99<{text}"));
            let _ = objective(&format!("p99<5ms@{text}"));
            let _ = (need(&text), priority(&text), hourly_price(&text), hops(&text));
        }
    }
}
