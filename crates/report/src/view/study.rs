//! The table of a published study, with what was measured here beside what it published.

use meshtax_model::analysis::{Metric as Measured, Point};
use meshtax_model::experiment::{LoadPoint, Regime, Variant as Ours};
use meshtax_published::{Column as Published, Metric, ResultSet, Row, Variant, find};

use super::{Align, Cell, Column, Keep, Source, Table, Tone, point_of};
use crate::format::{MISSING, grouped};

/// Requests above a percentile, and trials that they come from, without which it is not given, as for the curves.
const ABOVE: f64 = 10.0;

/// `None`: the experiment follows no study, or there is none of that name.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let study = find(source.analysis.experiment.study.as_deref()?)?;
    let mut rows = Vec::new();
    for row in &study.rows {
        let (Some(variant), Some(point)) = (study.variant(&row.variant), point(source, study, row))
        else {
            continue;
        };
        rows.push(measured(source, study, row, variant, point));
        rows.push(published(study, row, variant));
    }
    let mut columns: Vec<Column> = study
        .factors
        .iter()
        .map(|factor| Column::new(factor.name.clone(), Align::Right, Keep::Always))
        .collect();
    columns.push(Column::new("variant", Align::Left, Keep::Always));
    columns.extend(
        study
            .columns
            .iter()
            .map(|column| Column::new(head(column), Align::Right, Keep::Always)),
    );
    Some(Table {
        title: format!("The study's own table: {}", study.title),
        detail: format!(
            "{}; figures of other machines, not to be compared with these",
            study.measures
        ),
        columns,
        rows,
        footnotes: footnotes(source, study),
    })
}

fn footnotes(source: Source<'_>, study: &ResultSet) -> Vec<(String, String)> {
    let mut notes = vec![format!(
        "published: {} ({}). What is wrong with it: {}",
        study.source,
        study.date.as_deref().unwrap_or("no date"),
        study
            .caveats
            .iter()
            .map(|caveat| caveat.words.clone())
            .collect::<Vec<_>>()
            .join(" ")
    )];
    notes.push(
        "needs N s: so long this cell must be measured at the rate that was found here, for a figure that stands on \
         enough requests; a longer --time gives it. In the column of the time: so long the study's number of requests would take".to_owned(),
    );
    notes.push("cluster only: nothing here stands for it".to_owned());
    if source.points().any(|point| !point.is_steady()) {
        notes.push(
            "a closed loop: its latency is connections / throughput, and says nothing more"
                .to_owned(),
        );
    }
    notes
        .into_iter()
        .map(|note| (String::new(), note))
        .collect()
}

/// The load point at which a row of the study was measured again.
fn point<'a>(source: Source<'a>, study: &ResultSet, row: &Row) -> Option<&'a LoadPoint> {
    let experiment = &source.analysis.experiment;
    source.points().find(|point| {
        let factors = study.factors.iter().zip(&row.at);
        factors.into_iter().all(|(factor, at)| {
            let here = match (factor.name.as_str(), point.load) {
                ("connections", Regime::Saturated) => f64::from(experiment.connections(point)),
                ("rate", Regime::Steady { rate_per_s, .. }) => rate_per_s,
                _ => return false,
            };
            // Both are numbers as somebody wrote them.
            at.parse().is_ok_and(|at: f64| at.total_cmp(&here).is_eq())
        })
    })
}

/// Ours that stands for a variant of the study: of its data plane, and of its level where the study says one.
fn ours<'a>(source: Source<'a>, variant: &Variant) -> Option<&'a Ours> {
    let plane = variant.data_plane.as_deref()?;
    let variants = source.analysis.experiment.variants.iter();
    let mut same = variants.filter(|ours| ours.data_plane == plane && ours.is_plain());
    match variant.level {
        Some(level) => same.find(|ours| ours.level == Some(level)),
        None => same.next(),
    }
}

fn factors(row: &Row, first: bool) -> Vec<Cell> {
    let cell = |at: &String| match first {
        true => Cell::text(at.clone()),
        false => Cell::text(String::new()),
    };
    row.at.iter().map(cell).collect()
}

fn measured(
    source: Source<'_>,
    study: &ResultSet,
    row: &Row,
    variant: &Variant,
    point: &LoadPoint,
) -> Vec<Cell> {
    let ours = ours(source, variant);
    let mut cells = factors(row, true);
    cells.push(match ours {
        Some(ours) => Cell::text(ours.id.0.clone()).toned(Tone::Strong),
        None => Cell::text(variant.name.clone()).toned(Tone::Strong),
    });
    let found = ours.and_then(|ours| {
        let mut variants = source.analysis.variants.iter();
        variants.find(|found| found.variant == ours.id)
    });
    let at = found.and_then(|found| point_of(found, &point.id));
    let reason = match (ours, found.and_then(|f| f.left_out.as_ref()), at) {
        (None, _, _) if variant.data_plane.is_some() => "not in this run",
        (None, _, _) => "cluster only",
        (Some(_), Some(_), _) => "left out",
        (Some(_), None, Some(at)) if at.valid == 0 => "not valid",
        (Some(_), None, Some(at)) => {
            let asked = Asked {
                at,
                trial_s: source.analysis.experiment.design.trial_ns as f64 / 1e9,
                requests: requests_of(study, row),
            };
            cells.extend(study.columns.iter().map(|column| asked.figure(column)));
            return cells;
        }
        (Some(_), None, None) => MISSING,
    };
    cells.push(Cell::text(reason).toned(Tone::Muted));
    cells.extend(study.columns.iter().skip(1).map(|_| Cell::missing()));
    cells
}

/// How many requests a run of the study had, where its time and its rate say so.
fn requests_of(study: &ResultSet, row: &Row) -> Option<f64> {
    let of = |metric| {
        study
            .values(row)
            .find(|v| v.metric == metric)
            .map(|v| v.value)
    };
    let seconds = of(Metric::Duration)? / 1e9;
    Some((seconds * of(Metric::Throughput)? / 1_000.0).round() * 1_000.0)
}

fn throughput(at: &Point) -> Option<f64> {
    let mut levels = at.levels.iter();
    levels
        .find(|level| level.metric == Measured::Throughput)?
        .value
}

/// A variant at a load point, as a row of the study asks for it.
struct Asked<'a> {
    at: &'a Point,
    /// How long a trial is, in seconds.
    trial_s: f64,
    /// How many requests the study made; `None`: it went by time.
    requests: Option<f64>,
}

impl Asked<'_> {
    fn figure(&self, column: &Published) -> Cell {
        let per_s = throughput(self.at).unwrap_or(self.at.achieved_per_s);
        let quantile = match column.metric {
            Metric::Throughput => return Cell::text(grouped(per_s, 1)),
            Metric::Duration => {
                let needed = self.requests.map(|requests| requests / per_s);
                return needed.map_or_else(Cell::missing, needs);
            }
            Metric::LatencyP50 => 0.5,
            Metric::LatencyP75 => 0.75,
            Metric::LatencyP90 => 0.9,
            Metric::LatencyP95 => 0.95,
            Metric::LatencyP99 => 0.99,
            Metric::LatencyP999 => 0.999,
            _ => return Cell::missing(),
        };
        let mut found = self.at.percentiles.iter();
        match found.find(|p| (p.quantile - quantile).abs() < 1e-9) {
            Some(found) => Cell::text(digits(column.unit.of_base(found.value_ns))),
            None => needs((ABOVE / (1.0 - quantile) / per_s).max(ABOVE * self.trial_s)),
        }
    }
}

fn needs(seconds: f64) -> Cell {
    match seconds.is_finite() {
        true => Cell::text(format!("needs {} s", grouped(seconds.ceil(), 0))).toned(Tone::Muted),
        false => Cell::missing(),
    }
}

/// What a column holds and its unit, short: studies have many.
fn head(column: &Published) -> String {
    match column.metric {
        Metric::Throughput => "req/s".to_owned(),
        metric => format!("{} {}", metric.name(), column.unit.symbol()),
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    grouped(value, decimals)
}

/// As it was published, to the digit.
fn published(study: &ResultSet, row: &Row, variant: &Variant) -> Vec<Cell> {
    let mut cells = factors(row, false);
    let name = match &row.remark {
        Some(remark) => format!("{}, published ({remark})", variant.name),
        None => format!("{}, published", variant.name),
    };
    cells.push(Cell::text(name).toned(Tone::Muted));
    let figures = row.figures.iter().take(study.columns.len());
    cells.extend(figures.map(|figure| match figure {
        Some(figure) => Cell::text(figure.published.clone()).toned(Tone::Muted),
        None => Cell::missing(),
    }));
    cells
}
