//! Comma-separated values: raw figures for another program.

use meshtax_model::analysis::{Analysis, Effect, Estimate, Metric, Point, Verdict};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::view;

const HEAD: [&str; 20] = [
    "variant",
    "load_point",
    "metric",
    "unit",
    "level",
    "difference",
    "difference_low",
    "difference_high",
    "relative",
    "relative_low",
    "relative_high",
    "p",
    "p_adjusted",
    "lower_bound",
    "primary",
    "verdict",
    "reason",
    "rounds",
    "blocks",
    "requests",
];

/// One row per variant, load point and metric that has a level or an effect.
pub(crate) fn render(analysis: &Analysis) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing into memory cannot fail, and all rows have the head's length.
    let _ = writer.write_record(HEAD);
    for found in &analysis.variants {
        let Some(asked) = analysis.experiment.variant(&found.variant) else {
            continue;
        };
        for point in &analysis.experiment.load_points {
            let measured = found.points.iter().find(|p| p.load_point == point.id);
            for metric in Metric::of(point) {
                if let Some(row) = row(analysis, asked, point, measured, *metric) {
                    let _ = writer.write_record(&row);
                }
            }
        }
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn row(
    analysis: &Analysis,
    variant: &Variant,
    point: &LoadPoint,
    measured: Option<&Point>,
    metric: Metric,
) -> Option<[String; HEAD.len()]> {
    let level = measured.and_then(|p| p.levels.iter().find(|l| l.metric == metric));
    let effect = analysis.effect(&variant.id, &point.id, metric);
    if level.is_none() && effect.is_none() {
        return None;
    }
    let (name, unit) = name_and_unit(metric);
    let [difference, low, high] = estimate(effect.and_then(|e| e.difference));
    let [relative, relative_low, relative_high] = estimate(effect.and_then(|e| e.relative));
    let (verdict, mut reason) = verdict(effect);
    if reason.is_empty() {
        reason = level
            .and_then(|l| l.reason)
            .map(view::no_level)
            .unwrap_or_default();
    }
    Some([
        variant.id.0.clone(),
        point.id.0.clone(),
        name.to_owned(),
        unit.to_owned(),
        number(level.and_then(|l| l.value)),
        difference,
        low,
        high,
        relative,
        relative_low,
        relative_high,
        number(effect.and_then(|e| e.p_value)),
        number(effect.and_then(|e| e.p_adjusted)),
        level.map(|l| l.lower_bound.to_string()).unwrap_or_default(),
        effect.map(|e| e.primary.to_string()).unwrap_or_default(),
        verdict.to_owned(),
        reason,
        effect.map(|e| e.rounds.to_string()).unwrap_or_default(),
        effect.map(|e| e.blocks.to_string()).unwrap_or_default(),
        measured.map(|p| p.requests.to_string()).unwrap_or_default(),
    ])
}

/// The metric's name is that of the JSON document.
pub(crate) fn name_and_unit(metric: Metric) -> (&'static str, &'static str) {
    match metric {
        Metric::ResponseP50 => ("response_p50", "ns"),
        Metric::ResponseP90 => ("response_p90", "ns"),
        Metric::ResponseP99 => ("response_p99", "ns"),
        Metric::ResponseP999 => ("response_p999", "ns"),
        Metric::Throughput => ("throughput", "1/s"),
        Metric::CpuPerRequest => ("cpu_per_request", "ns"),
        Metric::ResponseMean => ("response_mean", "ns"),
        Metric::AnonymousMemory => ("anonymous_memory", "bytes"),
    }
}

fn verdict(effect: Option<&Effect>) -> (&'static str, String) {
    match effect.map(|e| &e.verdict) {
        None => ("", String::new()),
        Some(Verdict::Different) => ("different", String::new()),
        Some(Verdict::Inconclusive) => ("inconclusive", String::new()),
        Some(Verdict::Equivalent) => ("equivalent", String::new()),
        Some(Verdict::Overloaded(overload)) => ("overloaded", view::overload(overload)),
        Some(Verdict::NotEstimable { reason }) => {
            let of = effect.map(|e| &e.variant);
            ("not-estimable", view::not_estimable(reason, of))
        }
    }
}

fn estimate(estimate: Option<Estimate>) -> [String; 3] {
    let interval = estimate.and_then(|e| e.interval);
    [
        number(estimate.map(|e| e.value)),
        number(interval.map(|i| i.low)),
        number(interval.map(|i| i.high)),
    ]
}

/// Empty where there is no figure.
fn number(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => value.to_string(),
        _ => String::new(),
    }
}
