//! What stands behind the figures: which trials count, the noise floor, what each variant gives.

use meshtax_model::analysis::{Metric, NoiseFloor, VariantAnalysis};
use meshtax_model::evidence::{Balances, Features};
use meshtax_model::experiment::{LoadPoint, Variant};

use super::figures::name_cell;
use super::known_costs::unit;
use super::{Align, Cell, Column, Keep, Source, Table, Tone, load_in_words, point_of};
use crate::format::{PERCENT, decimals_by_size, grouped};

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

/// Levels with one name still differ: what is had for the cost.
fn features(source: Source<'_>) -> Table {
    let known = |(asked, found): (&Variant, &VariantAnalysis)| {
        let features = found.evidence.as_ref()?.features.as_ref()?;
        Some(features_row(asked, features))
    };
    Table {
        title: "What each variant gives".to_owned(),
        detail: "found out by probes, not taken from its name".to_owned(),
        columns: vec![
            left("variant"),
            left("level"),
            left("HTTP"),
            left("client's address"),
            left("HTTP metrics"),
            left("tries again after 503"),
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
            "carried as it is"
        } else {
            "parsed"
        }),
        Cell::text(if features.keeps_client_address {
            "kept"
        } else {
            "a proxy's"
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
        title: "Trials that count".to_owned(),
        detail:
            "invalid ones are kept and left out, by rules that never look at how fast a trial was"
                .to_owned(),
        columns: vec![
            left("variant"),
            left("at"),
            right("valid"),
            right("invalid"),
            left("why"),
        ],
        rows,
        footnotes: Vec::new(),
    }
}

fn trials_row(name: Cell, found: &VariantAnalysis, point: &LoadPoint) -> Option<Vec<Cell>> {
    let here = point_of(found, &point.id)?;
    let invalid: u64 = here.invalid.values().map(|n| u64::from(*n)).sum();
    let why: Vec<String> = here
        .invalid
        .iter()
        .map(|(reason, count)| format!("{reason} ({count})"))
        .collect();
    let count = Cell::text(grouped(invalid as f64, 0));
    Some(vec![
        name,
        Cell::text(load_in_words(point)),
        Cell::text(grouped(f64::from(here.valid), 0)),
        if invalid > 0 {
            count.toned(Tone::Bad)
        } else {
            count
        },
        Cell::text(why.join("; ")),
    ])
}

fn noise_floor(source: Source<'_>) -> Table {
    let floors = source.analysis.noise_floor.iter();
    Table {
        title: "Noise floor".to_owned(),
        detail: "the largest end of the interval of the baseline's difference from itself: no smaller difference is \
                 called one"
            .to_owned(),
        columns: vec![left("of"), left("at"), right("relative %"), left("absolute")],
        rows: floors.map(|floor| noise_row(source, floor)).collect(),
        footnotes: Vec::new(),
    }
}

fn noise_row(source: Source<'_>, floor: &NoiseFloor) -> Vec<Cell> {
    let point = source.analysis.experiment.load_point(&floor.load_point);
    let scaled = |value: Option<f64>, factor: f64| {
        let value = value.map(|v| v.abs() * factor).filter(|v| v.is_finite())?;
        Some(grouped(value, decimals_by_size(value)))
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
    ]
}
