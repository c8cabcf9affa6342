//! Injected known costs, next to the measured values.

use crate::view::labels::unit;
use meshtax_model::analysis::{Calibration, GroundTruth};
use meshtax_model::experiment::Inject;

use crate::format::{self, decimals_of_column, grouped, trimmed};
use crate::view::source::{Source, at_load, load_in_words};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// A cost as configured: `12 µs`, `64 MiB`.
pub(crate) fn in_words(inject: Inject) -> String {
    let time = |ns: u64| format!("{} µs", trimmed(ns as f64 / 1e3));
    match inject {
        Inject::DelayNs(ns) => format!("a delay of {}", time(ns)),
        Inject::DelayShareOfP50(share) => {
            format!(
                "a delay of {} % of the baseline's p50",
                trimmed(share * 100.0)
            )
        }
        Inject::DelaySome { delay_ns, share } => format!(
            "a delay of {} for {} % of the requests",
            time(delay_ns),
            trimmed(share * 100.0)
        ),
        Inject::BurnSteps(steps) => format!("{} units of work", grouped(steps as f64, 0)),
        Inject::HoldBytes(bytes) => format!("{} of memory", format::bytes(bytes)),
        Inject::CapPerS(per_s) => format!("a cap of {} requests/s", trimmed(per_s)),
        Inject::LeakBytes(bytes) => {
            format!("a leak of {} for each request", format::bytes(bytes))
        }
    }
}

/// One row per known cost; `None` if none was injected.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let truths = &source.analysis.ground_truth;
    (!truths.is_empty()).then(|| Table {
        title: "Known costs".to_owned(),
        detail: "injected on purpose, compared with this run's estimates".to_owned(),
        columns: vec![
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("at", Align::Left, Keep::Until(1)),
            Column::new("in", Align::Left, Keep::Always),
            Column::new("truth", Align::Right, Keep::Always),
            Column::new("found", Align::Left, Keep::Always),
            Column::new("", Align::Left, Keep::Always),
        ],
        rows: truths.iter().map(|truth| row(source, truth)).collect(),
        footnotes: Vec::new(),
    })
}

fn row(source: Source<'_>, truth: &GroundTruth) -> Vec<Cell> {
    let unit = unit(truth.metric);
    let scaled = truth.truth * unit.factor;
    let found = truth.found.value * unit.factor;
    let decimals = decimals_of_column([scaled, found].into_iter());
    let (value, interval) = if truth.of_level {
        let interval = truth
            .found
            .interval
            .map(|i| format::scale_interval(i, unit));
        let text = interval.map(|i| format::interval_text(i, 0));
        (grouped(found, 0), text)
    } else {
        format::estimate(truth.found, unit)
    };
    let point = source.analysis.experiment.load_point(&truth.load_point);
    vec![
        Cell::text(truth.variant.0.clone()),
        Cell::text(point.map(load_in_words).unwrap_or_default()),
        Cell::text(format!("{} {}", truth.metric.name(), unit.name)),
        Cell::text(grouped(scaled, decimals)),
        Cell::figure(value, interval.unwrap_or_default()),
        match truth.is_covered() {
            Some(true) => Cell::text("held").toned(Tone::Good),
            Some(false) => Cell::text("missed").toned(Tone::Bad),
            None => Cell::missing(),
        },
    ]
}

/// The number of known costs inside their intervals.
pub(crate) fn lead(calibration: &Calibration) -> String {
    let truths = &calibration.analysis.ground_truth;
    let known: Vec<bool> = truths.iter().filter_map(GroundTruth::is_covered).collect();
    if known.is_empty() {
        return "No interval for any known cost".to_owned();
    }
    let held = known.iter().filter(|held| **held).count();
    let confidence = trimmed(calibration.analysis.confidence * 100.0);
    format!(
        "{held} of {} known costs are within their {confidence} % intervals",
        known.len()
    )
}

/// The smallest effects that runs find: a row per metric, a column per length.
pub(crate) fn resolvable(calibration: &Calibration) -> Table {
    let mut lengths: Vec<u64> = calibration.resolvable.iter().map(|r| r.time_ns).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut lines: Vec<_> = calibration
        .resolvable
        .iter()
        .map(|r| (&r.load_point, r.metric))
        .collect();
    lines.dedup();
    lines.sort();
    lines.dedup();
    let mut columns = vec![Column::new("", Align::Left, Keep::Always)];
    for time_ns in &lengths {
        let head = format!("in {}", format::duration(*time_ns));
        columns.push(Column::new(head, Align::Right, Keep::Always));
    }
    let experiment = &calibration.analysis.experiment;
    let rows = lines.into_iter().map(|(point, metric)| {
        let at = experiment.load_point(point).map(at_load);
        let mut cells = vec![Cell::text(format!(
            "{} {}",
            metric.name(),
            at.unwrap_or_default()
        ))];
        cells.extend(lengths.iter().map(|time_ns| {
            let found = calibration
                .resolvable
                .iter()
                .find(|r| r.load_point == *point && r.metric == metric && r.time_ns == *time_ns);
            found.map_or_else(Cell::missing, |r| {
                Cell::text(format!("{} %", grouped(r.effect * 100.0, 1)))
            })
        }));
        cells
    });
    Table {
        title: "Smallest detectable effect".to_owned(),
        detail: format!(
            "of one variant against no mesh, with a power of {} %, from this run's noise",
            trimmed(calibration.power * 100.0)
        ),
        columns,
        rows: rows.collect(),
        footnotes: Vec::new(),
    }
}
