//! What added CPU per request means, in cores and in lost throughput.

use meshtax_model::analysis::{
    AddedCpu, Effect, Elsewhere, Estimate, Metric, ThroughputLoss, Verdict,
};
use meshtax_model::experiment::{LoadPoint, Role, Variant};

use crate::format::{self, PERCENT, Unit, grouped};
use crate::view::labels::name_cell;
use crate::view::source::{Source, at_load};
use crate::view::table::{Align, Cell, Column, Keep, Table};

/// The rate for which cores are counted.
const RATE: &str = "10,000 requests/s";

/// Nanoseconds per request, as cores at that rate.
const CORES: Unit = Unit {
    factor: 1e-5,
    name: "cores",
};

fn added_cpu<'a>(source: Source<'a>, effect: &Effect) -> Option<&'a AddedCpu> {
    let (variant, point) = (&effect.variant, &effect.load_point);
    source.analysis.added_cpu(variant, point)
}

/// Where work may have moved out of the path: the added CPU with it, and what it is.
pub(crate) fn with_elsewhere(source: Source<'_>, effect: &Effect) -> Option<(Estimate, String)> {
    let end = added_cpu(source, effect)?.with_elsewhere.as_ref()?;
    let is_known = end.added.value.is_finite();
    is_known.then(|| (end.added, parts(&end.parts)))
}

/// What the second figure of a range contains: `unattributed CPU`.
pub(crate) fn parts(parts: &[Elsewhere]) -> String {
    let names: Vec<&str> = parts
        .iter()
        .map(|part| match part {
            Elsewhere::Unattributed => "unattributed CPU",
            Elsewhere::Generator => "the generator's CPU",
            Elsewhere::ControlPlane => "the control plane's CPU",
        })
        .collect();
    names.join(" and ")
}

/// `10,000 requests/s need 2.5 more cores`: of the first effect that is a difference. Intervals, and the other regime, are
/// in [`table`].
pub(crate) fn cores(source: Source<'_>, effects: [Option<&Effect>; 2]) -> Option<String> {
    let mut effects = effects.into_iter().flatten();
    let effect = effects.find(|effect| effect.verdict == Verdict::Different)?;
    let elsewhere = with_elsewhere(source, effect).map(|(added, _)| added);
    let mut range: Vec<Estimate> = effect.difference.into_iter().chain(elsewhere).collect();
    range.retain(|added| added.value.is_finite());
    range.sort_by(|a, b| a.value.total_cmp(&b.value));
    let texts: Vec<String> = range
        .iter()
        .map(|added| few_digits(*added, CORES))
        .collect();
    (!texts.is_empty()).then(|| format!("{RATE} need {} more cores", texts.join(" to ")))
}

/// `a 1 ms application loses 8.5 % of its throughput, this 5 µs one 95 %`.
pub(crate) fn losses(source: Source<'_>, effect: &Effect) -> Option<String> {
    let added = added_cpu(source, effect).filter(|_| effect.verdict == Verdict::Different)?;
    let figures = |is_measured| {
        let mut losses = added.losses.iter();
        let loss = losses.find(|loss| loss.is_measured == is_measured)?;
        Some((app_cpu(loss), few_digits(loss.share, PERCENT)))
    };
    let (cpu, share) = figures(false)?;
    let own = figures(true).map_or_else(String::new, |(cpu, share)| {
        format!(", this {cpu} one {share} %")
    });
    Some(format!(
        "a {cpu} application loses {share} % of its throughput{own}"
    ))
}

/// The same figures with their intervals.
pub(crate) fn table(source: Source<'_>) -> Table {
    let points = [source.first_steady(), source.first_saturated()];
    let points: Vec<&LoadPoint> = points.into_iter().flatten().collect();
    let mut columns = vec![Column::new("variant", Align::Left, Keep::Always)];
    for point in &points {
        let head = format!("cores for {RATE}, measured {}", at_load(point));
        columns.push(Column::new(head, Align::Left, Keep::Always));
    }
    let candidates = || {
        let measured = source.measured().map(|(asked, _)| asked);
        measured.filter(|asked| asked.role == Role::Candidate)
    };
    let all = &source.analysis.added_cpu;
    let losses = all
        .iter()
        .find_map(|added| (!added.losses.is_empty()).then_some(&added.losses));
    for loss in losses.into_iter().flatten() {
        let whose = if loss.is_measured { " (this one)" } else { "" };
        let head = format!("lost throughput of {} per request{whose}, %", app_cpu(loss));
        columns.push(Column::new(head, Align::Left, Keep::Always));
    }
    let count = columns.len();
    Table {
        title: "What the added CPU means".to_owned(),
        detail:
            "lost throughput: of an application on saturated cores that it shares with its proxies"
                .to_owned(),
        columns,
        rows: candidates()
            .map(|asked| row(source, asked, &points, count))
            .collect(),
        footnotes: Vec::new(),
    }
}

fn row(source: Source<'_>, asked: &Variant, points: &[&LoadPoint], count: usize) -> Vec<Cell> {
    let figure = |estimate: Estimate, unit| {
        let (value, interval) = format::estimate(estimate, unit);
        Cell::figure(value, interval.unwrap_or_default())
    };
    let mut cells = vec![name_cell(asked)];
    for point in points {
        let effect = source.effect(&asked.id, &point.id, Metric::CpuPerRequest);
        let added = effect.and_then(|effect| effect.difference);
        cells.push(added.map_or_else(Cell::missing, |added| figure(added, CORES)));
    }
    let added = points
        .iter()
        .filter_map(|point| source.analysis.added_cpu(&asked.id, &point.id));
    for loss in added.flat_map(|added| &added.losses) {
        cells.push(figure(loss.share, PERCENT));
    }
    cells.resize(count, Cell::missing());
    cells
}

fn app_cpu(loss: &ThroughputLoss) -> String {
    let ns = loss.app_cpu_ns;
    let unit = format::time_unit(ns);
    format!(
        "{} {}",
        format::trimmed((ns * unit.factor * 10.0).round() / 10.0),
        unit.name
    )
}

/// A value without its interval: two digits, and what is nearly everything is not rounded to it.
fn few_digits(estimate: Estimate, unit: Unit) -> String {
    let value = estimate.value * unit.factor;
    let decimals = match value.abs() {
        v if v < 1.0 => 2,
        v if v < 10.0 || (unit == PERCENT && v > 99.0) => 1,
        _ => 0,
    };
    grouped(value, decimals)
}
