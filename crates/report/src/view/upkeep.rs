//! What each variant takes before its first request, and between requests.

use meshtax_model::analysis::{Estimate, Interval, Upkeep, VariantAnalysis};
use meshtax_model::experiment::Variant;

use crate::format::{MILLICORES, MILLISECONDS, Unit, decimals_by_interval, grouped, interval_text};
use crate::view::labels::name_cell;
use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table};

type Figure = fn(&Upkeep) -> Option<Estimate>;

/// One row per measured variant; `None` if nothing of it is known.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let shown: [(&str, Unit, Figure); 4] = [
        ("start to first response", MILLISECONDS, |s| s.start_ns),
        ("added vs. no mesh", MILLISECONDS, |s| s.added_start_ns),
        ("configured in", MILLISECONDS, |s| s.push_ns),
        ("idle CPU", MILLICORES, |s| s.idle_cores),
    ];
    let is_known = |(_, _, of): &(&str, Unit, Figure)| {
        let mut all = source.measured();
        all.any(|(_, found)| of(&found.upkeep).is_some())
    };
    let columns: Vec<_> = shown.into_iter().filter(is_known).collect();
    if columns.is_empty() {
        return None;
    }
    let row = |(asked, found): (&Variant, &VariantAnalysis)| -> Vec<Cell> {
        let figures = columns.iter();
        let figures = figures.map(|(_, unit, of)| cell(of(&found.upkeep), *unit));
        std::iter::once(name_cell(asked)).chain(figures).collect()
    };
    let mut heads = vec![Column::new("variant", Align::Left, Keep::Always)];
    heads.extend(columns.iter().map(|(name, unit, _)| {
        Column::new(format!("{name} {}", unit.name), Align::Right, Keep::Always)
    }));
    Some(Table {
        title: "Start-up time and idle CPU".to_owned(),
        detail: "means over rounds".to_owned(),
        columns: heads,
        rows: source.measured().map(row).collect(),
        footnotes: vec![(String::new(), meaning(source).to_owned())],
    })
}

/// What the figures include depends on who starts the processes.
fn meaning(source: Source<'_>) -> &'static str {
    match source.analysis.environment.is_local() {
        true => {
            "start-up: all processes of the variant start at once on shared cores, with files, certificates and \
             rules in place; in a cluster a sidecar starts before the application; idle CPU: all proxies while \
             another variant was measured"
        }
        false => {
            "start-up: from the start of the programs in running pods, including a mesh's own proxies, to the \
             first response; idle CPU: the proxies in the variant's pods while another variant was measured"
        }
    }
}

/// An estimate in a unit, with its interval beside it.
pub(super) fn cell(estimate: Option<Estimate>, unit: Unit) -> Cell {
    let Some(estimate) = estimate else {
        return Cell::empty();
    };
    let value = estimate.value * unit.factor;
    let interval = estimate.interval.map(|interval| Interval {
        low: interval.low * unit.factor,
        high: interval.high * unit.factor,
    });
    let decimals = decimals_by_interval(value, interval);
    let beside = interval.map(|interval| interval_text(interval, decimals));
    Cell::figure(grouped(value, decimals), beside.unwrap_or_default())
}
