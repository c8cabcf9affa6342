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
    let all = || {
        source
            .analysis
            .attribution
            .iter()
            .filter(|a| a.metric == metric)
    };
    let largest = all()
        .flat_map(|a| &a.steps)
        .filter_map(|step| step.difference)
        .map(|e| e.value.abs())
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let unit = unit_of(metric, largest);
    // The minimal proxies are in every picture of the others; those are listed first.
    let mut ordered: Vec<&Attribution> = all().collect();
    ordered.sort_by_key(|a| catalogue::is_floor(&a.data_plane));
    for attribution in ordered {
        let point = source
            .analysis
            .experiment
            .load_point(&attribution.load_point);
        let at = point.map(load_in_words).unwrap_or_default();
        let chart = Chart::Waterfall(waterfall(attribution, unit));
        for step in &attribution.steps {
            data.row(row(attribution, step, unit));
        }
        choices.push(Choice {
            label: format!("{}, {at}", attribution.data_plane),
            alt: format!(
                "{title}, {}, {at}. {}",
                attribution.data_plane,
                in_words(&chart)
            ),
            chart,
        });
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
