//! Percentile curves, as HdrHistogram draws them.

use meshtax_model::analysis::{CurvePoint, Point};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::format::{MICROSECONDS, MILLISECONDS, Unit, trimmed};
use crate::view::chart::{
    Axis, Chapter, Chart, Choice, Dot, Figure, Line, LineChart, Scale, Sheet, Stroke,
};
use crate::view::charts::words::{figure_text, in_words, name, raw};
use crate::view::source::{Source, load_in_words, point_of};

pub(super) fn percentiles(source: Source<'_>) -> Option<Figure> {
    let mut data = Sheet::new(&["load_point", "variant", "quantile", "response_latency_ns"]);
    let mut choices = Vec::new();
    for point in source.points().filter(|p| p.is_steady()) {
        let Some(lines) = lines(source, point, &mut data) else {
            continue;
        };
        let chart = Chart::Lines(lines);
        choices.push(Choice {
            label: load_in_words(point),
            alt: format!(
                "Response latency over its percentiles. {}",
                in_words(&chart)
            ),
            chart,
        });
    }
    (!choices.is_empty()).then(|| Figure {
        id: "percentiles",
        chapter: Chapter::Latency,
        title: "Response latency by percentile".to_owned(),
        caption: "Measured from the intended send time; all valid trials merged. A curve ends where too few requests lie \
         above the percentile."
            .to_owned(),
        choices,
        data,
    })
}

fn lines(source: Source<'_>, point: &LoadPoint, data: &mut Sheet) -> Option<LineChart> {
    let with_curve = || {
        source.measured().filter_map(|(asked, found)| {
            let found = point_of(found, &point.id)?;
            (found.curve.len() > 1).then_some((asked, found))
        })
    };
    let largest = with_curve()
        .filter_map(|(_, found)| found.curve.last())
        .map(|last| last.value_ns)
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max);
    let unit = if largest >= 10e6 {
        MILLISECONDS
    } else {
        MICROSECONDS
    };
    let series: Vec<Line> = with_curve()
        .map(|(asked, found)| series(source, asked, found, unit))
        .collect();
    for (asked, found) in with_curve() {
        for at in &found.curve {
            data.row([
                point.id.0.clone(),
                asked.id.0.clone(),
                raw(Some(at.quantile)),
                raw(Some(at.value_ns)),
            ]);
        }
    }
    (!series.is_empty()).then(|| LineChart {
        x: Axis {
            name: "percentile of requests".to_owned(),
            scale: Scale::Nines,
        },
        y: Axis {
            name: format!("response latency, {}", unit.name),
            scale: Scale::Log,
        },
        series,
        rules: Vec::new(),
    })
}

fn series(source: Source<'_>, asked: &Variant, found: &Point, unit: Unit) -> Line {
    let dot = |at: &CurvePoint| Dot {
        x: at.quantile,
        y: at.value_ns * unit.factor,
        tip: format!("p{} {}", nines(at.quantile), figure_text(at.value_ns, unit)),
        faint: false,
    };
    let place = source.place(&asked.id);
    Line {
        variant: Some(place),
        look: place,
        label: match found.levels.iter().any(|level| level.lower_bound) {
            true => format!("{} (lower bounds)", name(asked)),
            false => name(asked),
        },
        // The minimum is the fastest of thousands, and not informative.
        dots: found.curve.iter().skip(1).map(dot).collect(),
        stroke: Stroke::Line,
    }
}

/// `50`, `99.9`, with no more digits than needed to distinguish it from 100.
fn nines(quantile: f64) -> String {
    let percent = quantile * 100.0;
    if percent < 99.0 {
        return trimmed((percent * 10.0).round() / 10.0);
    }
    let left = 100.0 - percent;
    let decimals = (1.0 - left.max(1e-6).log10()).ceil().clamp(1.0, 6.0) as usize;
    format!("{percent:.decimals$}")
}
