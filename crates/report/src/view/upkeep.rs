//! What each variant takes before its first request, and between requests.

use meshtax_model::analysis::{Estimate, Interval, Upkeep, VariantAnalysis};
use meshtax_model::experiment::Variant;

use super::figures::name_cell;
use super::{Align, Cell, Column, Keep, Source, Table};
use crate::format::{MILLICORES, MILLISECONDS, Unit, decimals_by_interval, grouped, interval_text};

type Figure = fn(&Upkeep) -> Option<Estimate>;

/// One row per measured variant; `None` if nothing of it is known.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let shown: [(&str, Unit, Figure); 4] = [
        ("start to first answer", MILLISECONDS, |s| s.start_ns),
        ("added to no mesh", MILLISECONDS, |s| s.added_start_ns),
        ("told of services in", MILLISECONDS, |s| s.push_ns),
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
        title: "Start and rest".to_owned(),
        detail: "means over rounds".to_owned(),
        columns: heads,
        rows: source.measured().map(row).collect(),
        footnotes: vec![(
            String::new(),
            "start: all processes of the variant at once, on the cores that they share, its files, certificates and \
             rules there already; in a cluster a sidecar starts before the application; idle CPU: of all proxies while \
             another variant was measured"
                .to_owned(),
        )],
    })
}

fn cell(estimate: Option<Estimate>, unit: Unit) -> Cell {
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
