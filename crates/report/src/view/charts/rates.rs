//! Latency over the offered rate, and where each variant ceases to keep up.

use meshtax_model::analysis::{LoadOutcome, Metric, Point};
use meshtax_model::experiment::{LoadPoint, Regime, Variant};

use crate::format::{MICROSECONDS, grouped};
use crate::view::chart::{
    Axis, Chapter, Chart, Choice, Dot, Figure, Line, LineChart, Rule, Scale, Sheet, Stroke,
};
use crate::view::charts::words::{figure_text, in_words, name, raw};
use crate::view::source::{Source, manner_in_words, point_of};

const METRICS: [Metric; 3] = [
    Metric::ResponseP50,
    Metric::ResponseP90,
    Metric::ResponseP99,
];

/// `None` unless the run offered several rates in one manner.
pub(super) fn over_rate(source: Source<'_>) -> Option<Figure> {
    let mut data = Sheet::new(&[
        "load_point",
        "metric",
        "variant",
        "offered_per_s",
        "response_latency_ns",
        "valid_trials",
        "saturated_per_s",
    ]);
    let mut choices = Vec::new();
    for manner in manners(source) {
        for metric in METRICS {
            let lines = lines(source, &manner, metric, &mut data);
            if lines.series.is_empty() {
                continue;
            }
            let chart = Chart::Lines(lines);
            let manner = manner
                .first()
                .map(|(point, _)| manner_in_words(point))
                .unwrap_or_default();
            choices.push(Choice {
                label: format!("{}{manner}", metric.name()),
                alt: format!(
                    "{} over the offered rate. {}",
                    metric.name(),
                    in_words(&chart)
                ),
                chart,
            });
        }
    }
    (!choices.is_empty()).then(|| Figure {
        id: "latency-over-rate",
        chapter: Chapter::Latency,
        title: "Latency by offered rate".to_owned(),
        caption: "A line ends at the highest offered rate that its variant kept up with. Dashed: saturation throughput; \
         the knee is below it."
            .to_owned(),
        choices,
        data,
    })
}

/// Steady load points that differ by nothing but their rate, ascending; two rates at least.
fn manners(source: Source<'_>) -> Vec<Vec<(&LoadPoint, f64)>> {
    let mut manners: Vec<Vec<(&LoadPoint, f64)>> = Vec::new();
    for point in source.points() {
        let Regime::Steady { rate_per_s, .. } = point.load else {
            continue;
        };
        let same = manners.iter_mut().find(|manner| {
            manner
                .first()
                .is_some_and(|(first, _)| manner_in_words(first) == manner_in_words(point))
        });
        match same {
            Some(manner) => manner.push((point, rate_per_s)),
            None => manners.push(vec![(point, rate_per_s)]),
        }
    }
    manners.retain(|manner| manner.len() > 1);
    for manner in &mut manners {
        manner.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    manners
}

fn lines(
    source: Source<'_>,
    manner: &[(&LoadPoint, f64)],
    metric: Metric,
    data: &mut Sheet,
) -> LineChart {
    let mut series = Vec::new();
    let mut rules = Vec::new();
    for (asked, found) in source.measured() {
        let first = manner.first().map(|(first, _)| *first);
        let capacity = first.and_then(|first| saturated(source, asked, first));
        let mut dots = Vec::new();
        for (point, rate) in manner {
            let Some(at) = point_of(found, &point.id) else {
                continue;
            };
            // Beyond it, latency is that of a queue that grows.
            let value = level(at, metric).filter(|_| at.outcome == LoadOutcome::Carried);
            data.row([
                point.id.0.clone(),
                metric.name().to_owned(),
                asked.id.0.clone(),
                raw(Some(*rate)),
                raw(value),
                at.valid.to_string(),
                raw(capacity),
            ]);
            dots.extend(value.filter(|v| v.is_finite()).map(|v| dot(*rate, v)));
        }
        if dots.is_empty() {
            continue;
        }
        let place = source.place(&asked.id);
        rules.extend(capacity.and_then(|per_s| rule(asked, place, per_s)));
        series.push(Line {
            variant: Some(place),
            look: place,
            label: name(asked),
            dots,
            stroke: Stroke::Marked,
        });
    }
    let axis = |name| Axis {
        name,
        scale: Scale::Log,
    };
    LineChart {
        x: axis("offered requests per second".to_owned()),
        y: axis(format!("{} of response latency, µs", metric.name())),
        series,
        rules,
    }
}

/// Where a variant saturates.
fn rule(asked: &Variant, place: usize, per_s: f64) -> Option<Rule> {
    (per_s.is_finite() && per_s > 0.0).then(|| Rule {
        variant: place,
        look: place,
        x: per_s,
        tip: format!("{} saturated: {}/s", asked.id, grouped(per_s, 0)),
    })
}

/// A latency in nanoseconds at a rate.
fn dot(rate: f64, value: f64) -> Dot {
    Dot {
        x: rate,
        y: value * MICROSECONDS.factor,
        tip: format!(
            "{} at {}/s",
            figure_text(value, MICROSECONDS),
            grouped(rate, 0)
        ),
        faint: false,
    }
}

fn level(point: &Point, metric: Metric) -> Option<f64> {
    let mut levels = point.levels.iter();
    levels.find(|level| level.metric == metric)?.value
}

/// What the variant reaches in a closed loop, in the same manner.
fn saturated(source: Source<'_>, asked: &Variant, like: &LoadPoint) -> Option<f64> {
    let mut measured = source.measured();
    let (_, found) = measured.find(|(other, _)| other.id == asked.id)?;
    let mut points = source.points();
    let point = points.find(|p| !p.is_steady() && manner_in_words(p) == manner_in_words(like))?;
    level(point_of(found, &point.id)?, Metric::Throughput)
}
