//! The pictures of a report.

mod curves;
mod overheads;
pub(super) mod published;
mod rates;
mod stacks;
mod timeline;
mod waterfall;

use meshtax_model::analysis::Metric;
use meshtax_model::experiment::{Role, Variant};

use super::Source;
use crate::figure::{Chart, Figure};
use crate::format::{self, CPU_MS_PER_1K, MIB, MICROSECONDS, MILLISECONDS, PERCENT, Unit};

/// All of them, in a report's order; those without anything to show are left out.
pub(crate) fn figures(source: Source<'_>) -> Vec<Figure> {
    let mut figures = overheads::figures(source);
    figures.extend(published::figure(&[source]));
    figures.extend(curves::percentiles(source));
    figures.extend(rates::over_rate(source));
    figures.extend(stacks::cpu(source));
    figures.extend(stacks::memory(source));
    figures.extend(waterfall::figures(source));
    figures.extend(timeline::figures(source));
    figures
}

/// Place and name of each variant.
pub(crate) fn drawn(source: Source<'_>) -> Vec<(usize, String)> {
    let measured = source.measured();
    measured
        .map(|(asked, _)| (source.place(&asked.id), name(asked)))
        .collect()
}

/// How a variant is called in a picture.
fn name(variant: &Variant) -> String {
    match variant.role {
        Role::Control => format!("{} (A/A)", variant.id),
        Role::Baseline | Role::Candidate => variant.id.0.clone(),
    }
}

/// The unit in which a metric reads well: with values of this size.
fn unit_of(metric: Metric, largest_ns: f64) -> Unit {
    match metric {
        Metric::Throughput => PERCENT,
        Metric::CpuPerRequest => CPU_MS_PER_1K,
        Metric::AnonymousMemory => MIB,
        _ if largest_ns >= 1e6 => MILLISECONDS,
        _ => MICROSECONDS,
    }
}

/// A raw figure; nothing where there is none.
fn raw(value: Option<f64>) -> String {
    value
        .filter(|value| value.is_finite())
        .map(|value| value.to_string())
        .unwrap_or_default()
}

/// All labels and figures of a chart, as sentences.
fn in_words(chart: &Chart) -> String {
    const LONGEST: usize = 1_500;
    let texts: Vec<String> = match chart {
        Chart::Forest(panel) => {
            let marks = panel.marks.iter();
            marks.map(|m| format!("{} {}", m.label, m.figure)).collect()
        }
        Chart::Stacks(stacks) => {
            let stacks = stacks.stacks.iter();
            stacks
                .map(|s| format!("{} {}", s.label, s.figure))
                .collect()
        }
        Chart::Waterfall(waterfall) => {
            let rises = waterfall.rises.iter();
            rises.map(|r| format!("{} {}", r.label, r.figure)).collect()
        }
        Chart::Lines(lines) => lines.series.iter().map(line_in_words).collect(),
        Chart::Lanes(lanes) => published::in_words(lanes),
    };
    let mut words = texts.join("; ");
    if words.chars().count() > LONGEST {
        words = words.chars().take(LONGEST).collect();
        words.push('…');
    }
    words
}

/// A line's ends are what its shape comes to.
fn line_in_words(series: &crate::figure::Series) -> String {
    let ends = match series.dots.as_slice() {
        [] => "no points".to_owned(),
        [one] => one.tip.clone(),
        [first, .., last] => format!("from {} to {}", first.tip, last.tip),
    };
    format!("{} {ends}", series.label)
}

/// `1,234 µs`.
fn figure_text(value: f64, unit: Unit) -> String {
    let scaled = value * unit.factor;
    let decimals = format::decimals_by_size(scaled);
    format!("{} {}", format::grouped(scaled, decimals), unit.name)
}
