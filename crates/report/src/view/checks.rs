//! Supporting data: which trials are valid, the noise floor, the features of each variant.

use crate::view::reasons::invalid;
use meshtax_model::analysis::{Metric, NoiseFloor, VariantAnalysis};
use meshtax_model::evidence::{Balances, Features};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::format::{PERCENT, grouped, two_digits};
use crate::view::labels::{margin, name_cell, unit};
use crate::view::outcome;
use crate::view::source::{Source, load_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// All of them.
pub(crate) fn tables(source: Source<'_>) -> Vec<Table> {
    let mut tables = vec![features(source), trials(source), noise_floor(source)];
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn left(head: &str) -> Column {
    Column::new(head, Align::Left, Keep::Always)
}

fn right(head: &str) -> Column {
    Column::new(head, Align::Right, Keep::Always)
}

/// Variants of the same level differ in features: they are listed with the cost.
fn features(source: Source<'_>) -> Table {
    let known = |(asked, found): (&Variant, &VariantAnalysis)| {
        let features = found.evidence.as_ref()?.features.as_ref()?;
        Some(features_row(asked, features))
    };
    Table {
        title: "Features of each variant".to_owned(),
        detail: "observed by probes".to_owned(),
        columns: vec![
            left("variant"),
            left("level"),
            left("HTTP"),
            left("client address"),
            left("HTTP metrics"),
            left("retries after 503"),
            left("balances"),
        ],
        rows: source.measured().filter_map(known).collect(),
        footnotes: Vec::new(),
    }
}

fn features_row(asked: &Variant, features: &Features) -> Vec<Cell> {
    let yes_or_no = |known: Option<bool>| match known {
        Some(true) => Cell::text("yes"),
        Some(false) => Cell::text("no"),
        None => Cell::missing(),
    };
    vec![
        name_cell(asked),
        asked
            .level
            .map_or_else(Cell::empty, |level| Cell::text(level.to_string())),
        Cell::text(if features.added_headers.is_empty() {
            "passed through"
        } else {
            "parsed"
        }),
        Cell::text(if features.keeps_client_address {
            "kept"
        } else {
            "proxy's address"
        }),
        yes_or_no(features.counts_requests),
        yes_or_no(features.tries_again),
        match features.balances {
            Some(Balances::Connections) => Cell::text("connections"),
            Some(Balances::Requests) => Cell::text("requests"),
            None => Cell::missing(),
        },
    ]
}

fn trials(source: Source<'_>) -> Table {
    let mut rows = Vec::new();
    for (asked, found) in source.measured() {
        let mut name = name_cell(asked);
        for point in source.points() {
            if let Some(row) = trials_row(name.clone(), found, point) {
                rows.push(row);
                name = Cell::empty();
            }
        }
    }
    Table {
        title: "Valid trials".to_owned(),
        detail:
            "invalid trials are stored but excluded, by rules that do not depend on the measured latency or \
             throughput"
                .to_owned(),
        columns: vec![
            left("variant"),
            left("at"),
            right("valid"),
            right("invalid"),
            left("why"),
            left("load"),
        ],
        rows,
        footnotes: Vec::new(),
    }
}

fn trials_row(name: Cell, found: &VariantAnalysis, point: &LoadPoint) -> Option<Vec<Cell>> {
    let here = point_of(found, &point.id)?;
    let count: u64 = here.invalid.values().map(|n| u64::from(*n)).sum();
    let why: Vec<String> = here
        .invalid
        .iter()
        .map(|(reason, count)| format!("{} ({count})", invalid(*reason)))
        .collect();
    let cell = Cell::text(grouped(count as f64, 0));
    Some(vec![
        name,
        Cell::text(load_in_words(point)),
        Cell::text(grouped(f64::from(here.valid), 0)),
        if count > 0 {
            cell.toned(Tone::Bad)
        } else {
            cell
        },
        Cell::text(why.join("; ")),
        outcome::cell(here),
    ])
}

fn noise_floor(source: Source<'_>) -> Table {
    let floors = source.analysis.noise_floor.iter();
    Table {
        title: "Noise floor".to_owned(),
        detail: "largest absolute end of the interval of the baseline's difference from itself: smaller differences are \
         not reported as such"
            .to_owned(),
        columns: vec![
            left("of"),
            left("at"),
            right("relative %"),
            left("absolute"),
            right("margin"),
        ],
        rows: floors.map(|floor| noise_row(source, floor)).collect(),
        footnotes: Vec::new(),
    }
}

fn noise_row(source: Source<'_>, floor: &NoiseFloor) -> Vec<Cell> {
    let point = source.analysis.experiment.load_point(&floor.load_point);
    let scaled = |value: Option<f64>, factor: f64| {
        let value = value.map(|v| v.abs() * factor).filter(|v| v.is_finite())?;
        Some(two_digits(value))
    };
    let unit = unit(floor.metric);
    let name = match floor.metric {
        Metric::CpuPerRequest => "CPU per 1,000 requests",
        metric => metric.name(),
    };
    vec![
        Cell::text(name),
        Cell::text(point.map(load_in_words).unwrap_or_default()),
        scaled(floor.relative, PERCENT.factor).map_or_else(Cell::missing, Cell::text),
        scaled(floor.absolute, unit.factor).map_or_else(Cell::missing, |text| {
            let unit = unit.name.trim_end_matches("/1k");
            Cell::text(format!("{text} {unit}"))
        }),
        Cell::text(margin(&source.analysis.experiment.margins, floor.metric)),
    ]
}
