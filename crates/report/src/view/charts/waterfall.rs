//! The components of a data plane's overhead, as steps.

use meshtax_model::analysis::{Attribution, AttributionStep, Metric};
use meshtax_model::catalogue;

use crate::format::{self, Unit};
use crate::view::attribution::parts_in_words;
use crate::view::chart::{Chapter, Chart, Choice, Figure, Rise, Sheet, Waterfall};
use crate::view::charts::words::{in_words, raw, unit_of};
use crate::view::source::{Source, load_in_words};

/// One for latency, one for CPU.
pub(super) fn figures(source: Source<'_>) -> Vec<Figure> {
    let latency = figure(
        source,
        "latency-by-step",
        Metric::ResponseMean,
        "Added mean latency, step by step",
    );
    let cpu = figure(
        source,
        "cpu-by-step",
        Metric::CpuPerRequest,
        "Added CPU per 1,000 requests, step by step",
    );
    [latency, cpu].into_iter().flatten().collect()
}

fn figure(source: Source<'_>, id: &'static str, metric: Metric, title: &str) -> Option<Figure> {
    let mut data = Sheet::new(&[
        "data_plane",
        "load_point",
        "step",
        "from",
        "to",
        "unit",
        "difference",
        "low",
        "high",
    ]);
    let mut choices = Vec::new();
    let attributions = attributions(source, metric);
    let unit = unit_of(metric, largest(&attributions));
    for attribution in attributions {
        for step in &attribution.steps {
            data.row(row(attribution, step, unit));
        }
        choices.push(choice(source, attribution, unit, title));
    }
    (!choices.is_empty()).then(|| Figure {
        id,
        chapter: Chapter::Attribution,
        title: title.to_owned(),
        caption: "Each step is a paired difference between two variants of this run, with its interval. Costs that this \
         run cannot separate are one step."
            .to_owned(),
        choices,
        data,
    })
}

/// The minimal proxies are in every picture of the others; those are listed first.
fn attributions(source: Source<'_>, metric: Metric) -> Vec<&Attribution> {
    let all = source.analysis.attribution.iter();
    let mut all: Vec<&Attribution> = all.filter(|a| a.metric == metric).collect();
    all.sort_by_key(|a| catalogue::is_floor(&a.data_plane));
    all
}

/// Of the steps' sizes.
fn largest(attributions: &[&Attribution]) -> f64 {
    let steps = attributions.iter().flat_map(|a| &a.steps);
    let sizes = steps.filter_map(|step| Some(step.difference?.value.abs()));
    sizes.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn choice(source: Source<'_>, attribution: &Attribution, unit: Unit, title: &str) -> Choice {
    let experiment = &source.analysis.experiment;
    let point = experiment.load_point(&attribution.load_point);
    let at = point.map(load_in_words).unwrap_or_default();
    let label = format!("{}, {at}", attribution.data_plane);
    let chart = Chart::Waterfall(waterfall(attribution, unit));
    Choice {
        alt: format!("{title}, {label}. {}", in_words(&chart)),
        label,
        chart,
    }
}

fn waterfall(attribution: &Attribution, unit: Unit) -> Waterfall {
    let values = attribution
        .steps
        .iter()
        .map(|step| Some(step.difference?.value * unit.factor));
    let total: Option<f64> = values.sum();
    let total = total.filter(|sum| sum.is_finite() && attribution.steps.len() > 1);
    Waterfall {
        axis: match attribution.metric {
            Metric::CpuPerRequest => "added CPU, ms per 1,000 requests".to_owned(),
            metric => format!("added {}, {}", metric.name(), unit.name),
        },
        rises: attribution
            .steps
            .iter()
            .map(|step| rise(step, unit))
            .collect(),
        total: total.map(|sum| {
            let decimals = format::decimals_by_size(sum);
            format!("{} {}", format::signed(sum, decimals), unit.name)
        }),
    }
}

fn rise(step: &AttributionStep, unit: Unit) -> Rise {
    let known = step.difference.filter(|e| e.value.is_finite());
    let figure = known.map_or_else(
        || "not estimable".to_owned(),
        |difference| {
            let (value, interval) = format::estimate(difference, unit);
            let interval = interval.map(|text| format!(" {text}")).unwrap_or_default();
            format!("{value} {}{interval}", unit.name)
        },
    );
    Rise {
        label: parts_in_words(&step.parts),
        figure,
        value: known.map(|e| e.value * unit.factor),
        interval: known
            .and_then(|e| e.interval)
            .map(|i| format::scale_interval(i, unit))
            .filter(|i| i.low.is_finite() && i.high.is_finite())
            .map(|i| (i.low, i.high)),
    }
}

fn row(attribution: &Attribution, step: &AttributionStep, unit: Unit) -> [String; 9] {
    let scaled = step.difference.map(|e| format::scale(e, unit));
    let interval = scaled.and_then(|e| e.interval);
    [
        attribution.data_plane.clone(),
        attribution.load_point.0.clone(),
        parts_in_words(&step.parts),
        step.from.0.clone(),
        step.to.0.clone(),
        unit.name.to_owned(),
        raw(scaled.map(|e| e.value)),
        raw(interval.map(|i| i.low)),
        raw(interval.map(|i| i.high)),
    ]
}
