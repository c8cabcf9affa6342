//! Names and figures in pictures, and a picture in words.

use meshtax_model::analysis::Metric;
use meshtax_model::experiment::{Role, Variant};

use crate::format::{self, CPU_MS_PER_1K, MIB, MICROSECONDS, MILLISECONDS, PERCENT, Unit};
use crate::view::chart::{Chart, Lanes, Line, LoadGroup};

/// How a variant is called in a picture.
pub(super) fn name(variant: &Variant) -> String {
    match variant.role {
        Role::Control => format!("{} (A/A)", variant.id),
        Role::Baseline | Role::Candidate => variant.id.0.clone(),
    }
}

/// The unit in which a metric reads well: with values of this size.
pub(super) fn unit_of(metric: Metric, largest_ns: f64) -> Unit {
    match metric {
        Metric::Throughput => PERCENT,
        Metric::CpuPerRequest => CPU_MS_PER_1K,
        Metric::AnonymousMemory => MIB,
        _ if largest_ns >= 1e6 => MILLISECONDS,
        _ => MICROSECONDS,
    }
}

/// A raw figure; nothing where there is none.
pub(super) fn raw(value: Option<f64>) -> String {
    value
        .filter(|value| value.is_finite())
        .map(|value| value.to_string())
        .unwrap_or_default()
}

/// All labels and figures of a chart, as sentences.
pub(super) fn in_words(chart: &Chart) -> String {
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
        Chart::Lanes(lanes) => lanes_in_words(lanes),
    };
    let mut words = texts.join("; ");
    if words.chars().count() > LONGEST {
        words = words.chars().take(LONGEST).collect();
        words.push('…');
    }
    words
}

/// The ends of a line, which describe its shape.
fn line_in_words(series: &Line) -> String {
    let ends = match series.dots.as_slice() {
        [] => "no points".to_owned(),
        [one] => one.tip.clone(),
        [first, .., last] => format!("from {} to {}", first.tip, last.tip),
    };
    format!("{} {ends}", series.label)
}

/// `1,234 µs`.
pub(super) fn figure_text(value: f64, unit: Unit) -> String {
    let scaled = value * unit.factor;
    let decimals = format::decimals_by_size(scaled);
    format!("{} {}", format::grouped(scaled, decimals), unit.name)
}

/// What the marks are, then `64 connections: envoy-sidecar-mtls 0.0132 s; published: Istio 0.5286 s`.
fn lanes_in_words(lanes: &Lanes) -> Vec<String> {
    let of_load = |load: &LoadGroup| {
        let all = load.pairs.iter().flat_map(|pair| &pair.lanes);
        let figures: Vec<String> = all
            .map(|lane| format!("{} {}", lane.name(), lane.text()))
            .collect();
        format!("{}: {}", load.name, figures.join("; "))
    };
    let mut words = vec![lanes.measured.clone(), lanes.published.clone()];
    words.extend(lanes.loads.iter().map(of_load));
    words
}
