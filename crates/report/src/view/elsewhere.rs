//! CPU that a variant moves out of its path: to nobody's account, to the generator, or to its mesh's control plane.

use meshtax_model::analysis::{AddedCpu, Estimate};
use meshtax_model::experiment::{LoadPoint, Role};

use crate::format::{self, CPU_MS_PER_1K};
use crate::view::labels::name_cell;
use crate::view::source::{Source, confidence_in_words, load_in_words};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The figure of a column.
type ElsewhereFigure = fn(&AddedCpu) -> Option<Estimate>;

const PARTS: [(&str, ElsewhereFigure); 3] = [
    ("unattributed", |added| added.unattributed),
    ("generator", |added| added.generator),
    ("control plane", |added| added.control_plane),
];

/// All, without the control plane where there is none.
fn parts(source: Source<'_>) -> &'static [(&'static str, ElsewhereFigure)] {
    let mut added = source.analysis.added_cpu.iter();
    match added.any(|added| added.control_plane.is_some()) {
        true => &PARTS,
        false => &PARTS[..2],
    }
}

/// At the load points of the headline.
pub(crate) fn leading(source: Source<'_>) -> Table {
    table(source, &leading_points(source))
}

/// At each of the other load points.
pub(crate) fn others(source: Source<'_>) -> Vec<Table> {
    let leading = leading_points(source);
    let others = source.points().filter(|point| !leading.contains(point));
    others.map(|point| table(source, &[point])).collect()
}

fn leading_points(source: Source<'_>) -> Vec<&LoadPoint> {
    let points = [source.first_steady(), source.first_saturated()];
    points.into_iter().flatten().collect()
}

fn table(source: Source<'_>, points: &[&LoadPoint]) -> Table {
    let mut columns = vec![Column::new("variant", Align::Left, Keep::Always)];
    let parts = parts(source);
    for point in points {
        let heads = parts.iter();
        let heads = heads.map(|(name, _)| format!("{}: {name}", load_in_words(point)));
        columns.extend(heads.map(|head| Column::new(head, Align::Left, Keep::Always)));
    }
    let mut rows = Vec::new();
    for (asked, _) in source.measured() {
        let found = points
            .iter()
            .map(|point| source.analysis.added_cpu(&asked.id, &point.id));
        let found: Vec<Option<&AddedCpu>> = found.collect();
        if found.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![name_cell(asked)];
        for added in found {
            let tone = match asked.role {
                Role::Control => Tone::Muted,
                _ => Tone::Plain,
            };
            let cells = parts.iter();
            row.extend(cells.map(|(_, part)| cell(added.and_then(part)).toned(tone)));
        }
        rows.push(row);
    }
    Table {
        title: "CPU outside the path".to_owned(),
        detail: format!(
            "{}; paired differences from {}; [{} interval]",
            CPU_MS_PER_1K.name,
            source.baseline_name(),
            confidence_in_words(source.analysis)
        ),
        columns,
        rows,
        footnotes: Vec::new(),
    }
}

fn cell(estimate: Option<Estimate>) -> Cell {
    match estimate.filter(|estimate| estimate.value.is_finite()) {
        Some(estimate) => {
            let (value, interval) = format::estimate(estimate, CPU_MS_PER_1K);
            Cell::figure(value, interval.unwrap_or_default())
        }
        None => Cell::missing(),
    }
}
