//! How the load was spread over a service's replicas.

use meshtax_model::analysis::{Spread, VariantAnalysis};
use meshtax_model::evidence::Balances;

use crate::format::grouped;
use crate::view::labels::name_cell;
use crate::view::source::{Source, load_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table};

/// One row per measured variant; `None` where a service has one replica.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let all = || source.measured().flat_map(|(_, found)| &found.points);
    let replicas = all()
        .filter_map(|point| point.spread)
        .map(|s| s.replicas)
        .max()?;
    let points: Vec<_> = source.points().collect();
    let rows: Vec<Vec<Cell>> = source
        .measured()
        .map(|(asked, found)| {
            let mut cells = vec![name_cell(asked)];
            cells.extend(points.iter().map(|point| {
                let spread = point_of(found, &point.id).and_then(|p| p.spread);
                spread.map_or_else(Cell::missing, |spread| cell(&spread))
            }));
            cells.push(balances(found));
            cells
        })
        .collect();
    let mut columns = vec![Column::new("variant", Align::Left, Keep::Always)];
    for point in &points {
        columns.push(Column::new(
            load_in_words(point),
            Align::Right,
            Keep::Always,
        ));
    }
    columns.push(Column::new("balances", Align::Left, Keep::Always));
    Some(Table {
        title: format!("Load distribution over {replicas} replicas"),
        detail: format!(
            "per trial: replicas with requests, and the share of the busiest; an even share is {} %",
            grouped(100.0 / f64::from(replicas), 1)
        ),
        columns,
        rows,
        footnotes: vec![(
            String::new(),
            "connections: each connection stays with one replica, so some replicas are idle and others get \
             several times their share; requests: requests of one connection go to several replicas"
                .to_owned(),
        )],
    })
}

/// `20 of 20`, or between which numbers that was.
fn cell(spread: &Spread) -> Cell {
    let hit = if spread.hit_min == spread.hit_max {
        spread.hit_min.to_string()
    } else {
        format!("{}-{}", spread.hit_min, spread.hit_max)
    };
    let share = grouped(spread.busiest_share * 100.0, 1);
    Cell::figure(hit, format!("{share} %"))
}

fn balances(found: &VariantAnalysis) -> Cell {
    let features = found.evidence.as_ref().and_then(|e| e.features.as_ref());
    match features.and_then(|features| features.balances) {
        Some(Balances::Connections) => Cell::text("connections"),
        Some(Balances::Requests) => Cell::text("requests"),
        None => Cell::missing(),
    }
}
