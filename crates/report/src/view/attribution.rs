//! The components of a data plane's overhead.

use meshtax_model::analysis::{Attribution, AttributionPart, Metric};

use crate::format::{self, CPU_MS_PER_1K, MICROSECONDS};
use crate::view::source::{Source, load_in_words};
use crate::view::table::{Align, Cell, Column, Keep, Table};

fn part_name(part: AttributionPart) -> &'static str {
    match part {
        AttributionPart::Hop => "the hop itself",
        AttributionPart::Proxying => "proxying and parsing",
        AttributionPart::Encryption => "encryption",
        AttributionPart::IdentityPolicy => "authorization by identity",
        AttributionPart::RequestPolicy => "authorization by request",
    }
}

/// `encryption`, or several components that are not separated.
pub(crate) fn parts_in_words(parts: &[AttributionPart]) -> String {
    let names: Vec<&str> = parts.iter().copied().map(part_name).collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last} (not separable)", most.join(", ")),
        [] => String::new(),
    }
}

/// Whether the run has what takes the hop itself apart.
pub(crate) fn is_asked_for(source: Source<'_>) -> bool {
    let all = source.analysis.attribution.iter();
    let mut steps = all.flat_map(|attribution| &attribution.steps);
    steps.any(|step| step.parts == [AttributionPart::Hop])
}

/// One table per load point and metric.
pub(crate) fn tables(source: Source<'_>) -> Vec<Table> {
    let mut tables = Vec::new();
    for point in source.points() {
        for metric in [Metric::ResponseMean, Metric::CpuPerRequest] {
            let here: Vec<&Attribution> = source
                .analysis
                .attribution
                .iter()
                .filter(|a| a.load_point == point.id && a.metric == metric)
                .collect();
            if here.is_empty() {
                continue;
            }
            let (what, unit) = match metric {
                Metric::CpuPerRequest => ("added CPU", CPU_MS_PER_1K),
                _ => ("added mean latency", MICROSECONDS),
            };
            let columns = vec![
                Column::new("data plane", Align::Left, Keep::Always),
                Column::new("step", Align::Left, Keep::Always),
                Column::new(format!("adds {}", unit.name), Align::Left, Keep::Always),
                Column::new("from", Align::Left, Keep::IfItFits(2)),
                Column::new("to", Align::Left, Keep::IfItFits(1)),
            ];
            let rows = here.iter().flat_map(|attribution| {
                attribution.steps.iter().enumerate().map(move |(at, step)| {
                    let name = if at == 0 {
                        attribution.data_plane.as_str()
                    } else {
                        ""
                    };
                    let adds = step.difference.map_or_else(Cell::missing, |difference| {
                        let (value, interval) = format::estimate(difference, unit);
                        Cell::figure(value, interval.unwrap_or_default())
                    });
                    vec![
                        Cell::text(name),
                        Cell::text(parts_in_words(&step.parts)),
                        adds,
                        Cell::text(step.from.0.clone()),
                        Cell::text(step.to.0.clone()),
                    ]
                })
            });
            tables.push(Table {
                title: format!("Attribution of {what}, {}", load_in_words(point)),
                detail: "each step is a paired difference between two variants".to_owned(),
                rows: rows.collect(),
                columns,
                footnotes: Vec::new(),
            });
        }
    }
    tables
}
