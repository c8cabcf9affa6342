//! What is added, with intervals and the noise floor.

use crate::view::outcome;
use crate::view::reasons::not_estimable;
use meshtax_model::analysis::{Effect, Estimate, Interval, Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::format::{self, Unit};
use crate::view::chart::{Chapter, Chart, Choice, Figure, Mark, Panel, Sheet};
use crate::view::charts::words::{in_words, name, raw, unit_of};
use crate::view::source::{Source, load_in_words};
use crate::view::table::Tone;

const CAPTION: &str = "Points are estimated paired differences from no mesh, whiskers their confidence intervals. The shaded band is \
 the noise floor: the difference of the baseline from itself.";

/// Latency, throughput, CPU and memory. The first one has the reading instructions.
pub(super) fn figures(source: Source<'_>) -> Vec<Figure> {
    let all = [
        latency(source),
        throughput(source),
        cpu(source),
        memory(source),
    ];
    let mut figures: Vec<Figure> = all.into_iter().flatten().collect();
    if let Some(first) = figures.first_mut() {
        first.caption = CAPTION.to_owned();
    }
    figures
}

fn latency(source: Source<'_>) -> Option<Figure> {
    let points = || source.points().filter(|p| p.is_steady());
    let several = points().count() > 1;
    let metrics = [
        Metric::ResponseP50,
        Metric::ResponseP90,
        Metric::ResponseP99,
        Metric::ResponseP999,
        Metric::ResponseMean,
    ];
    let wanted = points().flat_map(|point| metrics.map(|metric| (point, metric)));
    let first = source.first_steady()?;
    let title = if several {
        "Added latency".to_owned()
    } else {
        format!("Added latency at {}", load_in_words(first))
    };
    figure(source, "added-latency", title, wanted, |point, metric| {
        if several {
            format!("{}, {}", metric.name(), load_in_words(point))
        } else {
            metric.name().to_owned()
        }
    })
}

fn throughput(source: Source<'_>) -> Option<Figure> {
    let wanted = source
        .points()
        .filter(|p| !p.is_steady())
        .map(|point| (point, Metric::Throughput));
    let title = "Change of throughput at saturation".to_owned();
    figure(source, "throughput", title, wanted, |point, _| {
        load_in_words(point)
    })
}

fn cpu(source: Source<'_>) -> Option<Figure> {
    // Saturated first: there it is known best.
    let (saturated, steady): (Vec<_>, Vec<_>) = source.points().partition(|p| !p.is_steady());
    let wanted = saturated
        .into_iter()
        .chain(steady)
        .map(|point| (point, Metric::CpuPerRequest));
    let title = "Added CPU per 1,000 requests".to_owned();
    figure(source, "added-cpu", title, wanted, |point, _| {
        load_in_words(point)
    })
}

fn memory(source: Source<'_>) -> Option<Figure> {
    let wanted = source
        .points()
        .map(|point| (point, Metric::AnonymousMemory));
    let title = "Added memory of application and proxies".to_owned();
    figure(source, "added-memory", title, wanted, |point, _| {
        load_in_words(point)
    })
}

fn figure<'a>(
    source: Source<'a>,
    id: &'static str,
    title: String,
    wanted: impl Iterator<Item = (&'a LoadPoint, Metric)>,
    label: impl Fn(&LoadPoint, Metric) -> String,
) -> Option<Figure> {
    let mut data = Sheet::new(&[
        "load_point",
        "metric",
        "variant",
        "unit",
        "difference",
        "low",
        "high",
        "noise_floor",
        "verdict",
    ]);
    let mut choices = Vec::new();
    for (point, metric) in wanted {
        let panel = panel(source, point, metric, &mut data);
        if panel.marks.is_empty() {
            continue;
        }
        let chart = Chart::Forest(panel);
        choices.push(Choice {
            label: label(point, metric),
            alt: format!("{}. {}", title, in_words(&chart)),
            chart,
        });
    }
    (!choices.is_empty()).then(|| Figure {
        id,
        chapter: Chapter::Overheads,
        title,
        caption: String::new(),
        choices,
        data,
    })
}

/// Throughput is relative to no mesh; all other metrics are differences.
fn estimate(effect: &Effect, metric: Metric) -> Option<Estimate> {
    match metric {
        Metric::Throughput => effect.relative,
        _ => effect.difference,
    }
}

fn panel(source: Source<'_>, point: &LoadPoint, metric: Metric, data: &mut Sheet) -> Panel {
    let found = || {
        source.measured().filter_map(|(asked, _)| {
            let effect = source.effect(&asked.id, &point.id, metric)?;
            Some((asked, effect))
        })
    };
    let largest = found()
        .filter_map(|(_, effect)| effect.difference)
        .map(|e| e.value.abs())
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let unit = unit_of(metric, largest);
    let floors = source.analysis.noise_floor.iter();
    let floor = floors
        .filter(|f| f.load_point == point.id && f.metric == metric)
        .find_map(|f| match metric {
            Metric::Throughput => f.relative,
            _ => f.absolute,
        })
        .map(|f| f.abs() * unit.factor)
        .filter(|f| f.is_finite());
    for (asked, effect) in found() {
        data.row(row(asked, point, effect, unit, floor));
    }
    Panel {
        axis: match metric {
            Metric::Throughput => "change of throughput, %".to_owned(),
            Metric::CpuPerRequest => "added CPU, ms per 1,000 requests".to_owned(),
            _ => format!("added {}, {}", metric.name(), unit.name),
        },
        noise_floor: floor,
        marks: found()
            .filter_map(|(asked, effect)| mark(source, asked, effect, unit))
            .collect(),
    }
}

fn row(
    asked: &Variant,
    point: &LoadPoint,
    effect: &Effect,
    unit: Unit,
    floor: Option<f64>,
) -> [String; 9] {
    let scaled = estimate(effect, effect.metric).map(|e| format::scale(e, unit));
    let interval = scaled.and_then(|e| e.interval);
    [
        point.id.0.clone(),
        effect.metric.name().to_owned(),
        asked.id.0.clone(),
        unit.name.to_owned(),
        raw(scaled.map(|e| e.value)),
        raw(interval.map(|i| i.low)),
        raw(interval.map(|i| i.high)),
        raw(floor),
        match &effect.verdict {
            Verdict::Different => "different".to_owned(),
            Verdict::Inconclusive => "inconclusive".to_owned(),
            Verdict::Equivalent => "equivalent".to_owned(),
            Verdict::Overloaded(overload) => format!("overloaded: {}", outcome::overload(overload)),
            Verdict::NotEstimable { reason } => {
                let why = not_estimable(reason, Some(&effect.variant));
                format!("not estimable: {why}")
            }
        },
    ]
}

fn mark(source: Source<'_>, asked: &Variant, effect: &Effect, unit: Unit) -> Option<Mark> {
    let estimate = estimate(effect, effect.metric)?;
    let scaled = format::scale(estimate, unit);
    let (value, interval) = format::estimate(estimate, unit);
    let value = outcome::at_least(value, effect.lower_bound);
    let ends = scaled
        .interval
        .filter(|Interval { low, high }| low.is_finite() && high.is_finite());
    if !scaled.value.is_finite() {
        return None;
    }
    let mut figure = format!("{value} {}", unit.name);
    if let Some(interval) = interval {
        figure.push_str(&format!(" {interval}"));
    }
    Some(Mark {
        variant: source.place(&asked.id),
        label: name(asked),
        figure,
        value: scaled.value,
        interval: ends.map(|i| (i.low, i.high)),
        tone: match effect.verdict {
            Verdict::Different => Tone::Strong,
            Verdict::Overloaded(_) => Tone::Bad,
            _ => Tone::Muted,
        },
    })
}
