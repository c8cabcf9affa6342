//! The tables of a published study, with what was measured here beside what it published.

use meshtax_model::analysis::{CurvePoint, Extent, Metric as Measured, Point, Usage, UsageGroup};
use meshtax_model::experiment::{Experiment, LoadPoint, Regime, Role, Variant as Ours};
use meshtax_published::{
    BaseUnit, Column as Published, Metric, ResultSet, Row, Unit, Variant, find,
};

use super::{Align, Cell, Column, Keep, Source, Table, Tone, point_of};
use crate::format::{MISSING, duration, grouped, trimmed};
use crate::published;

/// Requests above a percentile, and trials that they come from, without which it is not given, as for the curves.
const ABOVE: f64 = 10.0;

/// The study's own table, and what groups of processes used, if the study tells it. Empty: the runs follow no study, or
/// there is none of that name. The runs are those of one spec.
pub(crate) fn tables(sources: &[Source<'_>]) -> Vec<Table> {
    let first = sources.first();
    let study = first.and_then(|source| find(source.analysis.experiment.study.as_deref()?));
    let Some(study) = study else {
        return Vec::new();
    };
    let places = places(sources, study);
    let own = Sheet::of(study, None);
    let mut tables = vec![Table {
        title: format!("The study's own table: {}", study.title),
        detail: format!(
            "{}; figures of other machines, not to be compared with these",
            study.measures
        ),
        columns: own.heads(),
        rows: own.rows(&places),
        footnotes: footnotes(sources, study),
    }];
    tables.extend(usage(study, &places));
    tables
}

/// CPU and memory of a group of processes; `None`: the study tells of none that can be held against one.
fn usage(study: &ResultSet, places: &[Place<'_>]) -> Option<Table> {
    let group = study.columns.iter().find_map(|column| column.group)?;
    let sheet = Sheet::of(study, Some(group));
    let what = match group {
        UsageGroup::Application => "the application and the proxies on its side",
        UsageGroup::ClientProxy => "the proxies on the clients' side",
        UsageGroup::Path => "the application and all proxies",
    };
    let note = "measured: CPU of each trial, or of each second of long ones; memory: anonymous pages of all processes and \
                one copy of each program. The mesh's control plane and Kubernetes itself: cluster only";
    Some(Table {
        title: "The study's CPU and memory".to_owned(),
        detail: format!("measured here: {what}, on average, and from the least to the most"),
        columns: sheet.heads(),
        rows: sheet.rows(places),
        footnotes: vec![(String::new(), note.to_owned())],
    })
}

/// A load point of a run, as a place in the study's table.
struct Place<'a> {
    source: Source<'a>,
    point: &'a LoadPoint,
    /// A setting for each factor of the study.
    at: Vec<f64>,
    /// What was published there.
    rows: Vec<&'a Row>,
}

fn places<'a>(sources: &[Source<'a>], study: &'a ResultSet) -> Vec<Place<'a>> {
    let of_source = |source: &Source<'a>| {
        let source = *source;
        source.points().filter_map(move |point| {
            let factors = study.factors.iter();
            let at = factors.map(|factor| setting(source, &factor.name, point));
            let at = at.collect::<Option<Vec<f64>>>()?;
            // Both are numbers as somebody wrote them.
            let same = |(text, here): (&String, &f64)| {
                text.parse()
                    .is_ok_and(|there: f64| there.total_cmp(here).is_eq())
            };
            let rows = study.rows.iter();
            let rows = rows
                .filter(|row| row.at.iter().zip(&at).all(same))
                .collect();
            Some(Place {
                source,
                point,
                at,
                rows,
            })
        })
    };
    sources.iter().flat_map(of_source).collect()
}

/// A load point's setting of a study's factor; `None`: it has none.
fn setting(source: Source<'_>, factor: &str, point: &LoadPoint) -> Option<f64> {
    let experiment = &source.analysis.experiment;
    match (factor, point.load) {
        ("connections", Regime::Saturated) => Some(f64::from(experiment.connections(point))),
        ("rate", Regime::Steady { rate_per_s, .. }) => Some(rate_per_s),
        ("users", Regime::Steady { .. }) if point.by_users => {
            Some(f64::from(experiment.connections(point)))
        }
        ("pods", _) => Some(f64::from(experiment.service.replicas)),
        _ => None,
    }
}

/// Some of a study's columns as a table of their own: those of requests, or those of what processes used.
struct Sheet<'a> {
    study: &'a ResultSet,
    /// With their places among the study's.
    columns: Vec<(usize, &'a Published)>,
    /// Whose least and most stand behind them.
    group: Option<UsageGroup>,
}

/// Behind the columns of what processes used.
const EXTENTS: [&str; 4] = ["CPU min m", "CPU max m", "memory min MiB", "memory max MiB"];

impl<'a> Sheet<'a> {
    fn of(study: &'a ResultSet, group: Option<UsageGroup>) -> Self {
        let columns = study.columns.iter().enumerate();
        let of_processes = |column: &Published| column.of.is_some();
        Self {
            study,
            columns: columns
                .filter(|(_, column)| of_processes(column) == group.is_some())
                .collect(),
            group,
        }
    }

    fn heads(&self) -> Vec<Column> {
        let right = |head: String| Column::new(head, Align::Right, Keep::Always);
        let factors = self.study.factors.iter();
        let mut heads: Vec<Column> = factors.map(|factor| right(factor.name.clone())).collect();
        heads.push(Column::new("variant", Align::Left, Keep::Always));
        heads.extend(self.columns.iter().map(|(_, column)| right(head(column))));
        if self.group.is_some() {
            heads.extend(EXTENTS.map(|head| right(head.to_owned())));
        }
        heads
    }

    /// What was measured in place of each variant of the study, what it published, and what it has not.
    fn rows(&self, places: &[Place<'_>]) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for place in places {
            for variant in &self.study.variants {
                let published = place.rows.iter().filter(|row| row.variant == variant.id);
                let published: Vec<&Row> = published.copied().collect();
                let ours = ours(place.source, variant);
                if ours.is_some() || !published.is_empty() {
                    rows.push(self.measured(place, ours, Some(variant)));
                }
                let published = published.into_iter();
                rows.extend(published.map(|row| self.published(row, variant)));
            }
            let further = further(place.source, self.study);
            rows.extend(further.map(|ours| self.measured(place, Some(ours), None)));
        }
        rows
    }

    /// `of_study`: what `ours` stands for, or would.
    fn measured(
        &self,
        place: &Place<'_>,
        ours: Option<&Ours>,
        of_study: Option<&Variant>,
    ) -> Vec<Cell> {
        let mut cells: Vec<Cell> = place.at.iter().map(|at| Cell::text(trimmed(*at))).collect();
        let name = ours.map(|ours| ours.id.0.clone());
        let name = name.or(of_study.map(|variant| variant.name.clone()));
        cells.push(Cell::text(name.unwrap_or_default()).toned(Tone::Strong));
        let reason = match (ours.map(|ours| found(place, ours)), of_study) {
            (Some(Found::At(at)), _) => {
                cells.extend(self.figures(place, at));
                return cells;
            }
            (Some(Found::Not(reason)), _) => reason,
            (None, Some(variant)) if variant.data_plane.is_some() => "not in this run",
            (None, _) => "cluster only",
        };
        cells.push(Cell::text(reason).toned(Tone::Muted));
        let rest = self.width().saturating_sub(1);
        cells.extend((0..rest).map(|_| Cell::missing()));
        cells
    }

    /// Columns of figures.
    fn width(&self) -> usize {
        let extents = self.group.map_or(0, |_| EXTENTS.len());
        self.columns.len() + extents
    }

    fn figures(&self, place: &Place<'_>, at: &Point) -> Vec<Cell> {
        let requests = place.rows.first();
        let requests = requests.and_then(|row| requests_of(self.study, row));
        let figure = |(_, column): &(usize, &Published)| {
            let asked = Asked {
                at,
                base: base(self.study, place, column),
                part_s: part_s(place),
                requests,
            };
            asked.figure(column)
        };
        let mut cells: Vec<Cell> = self.columns.iter().map(figure).collect();
        if let Some(group) = self.group {
            cells.extend(extents(used(at, group)));
        }
        cells
    }

    /// As it was published, to the digit.
    fn published(&self, row: &Row, variant: &Variant) -> Vec<Cell> {
        let mut cells: Vec<Cell> = row.at.iter().map(|_| Cell::empty()).collect();
        let name = match &row.remark {
            Some(remark) => format!("{}, published ({remark})", variant.name),
            None => format!("{}, published", variant.name),
        };
        cells.push(Cell::text(name).toned(Tone::Muted));
        let figures = self.columns.iter().map(|(at, _)| row.figures.get(*at));
        cells.extend(figures.map(|figure| match figure {
            Some(Some(figure)) => Cell::text(figure.published.clone()).toned(Tone::Muted),
            _ => Cell::missing(),
        }));
        let extents = self.width() - self.columns.len();
        cells.extend((0..extents).map(|_| Cell::missing()));
        cells
    }
}

fn footnotes(sources: &[Source<'_>], study: &ResultSet) -> Vec<(String, String)> {
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
    if sources.len() > 1 {
        notes.push(
            "each of these runs has baselines of its own: figures of different runs are not paired with each other"
                .to_owned(),
        );
    }
    let mut points = sources.iter().flat_map(|source| source.points());
    if points.any(|point| !point.is_steady()) {
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

/// Ours that stand for nothing in the study, the control aside.
fn further<'a>(source: Source<'a>, study: &ResultSet) -> impl Iterator<Item = &'a Ours> {
    let stands_for = |one: &Ours| {
        let mut variants = study.variants.iter();
        variants.any(|variant| ours(source, variant).is_some_and(|ours| ours.id == one.id))
    };
    let all = source.analysis.experiment.variants.iter();
    let shown = all.filter(|one| one.role != Role::Control && one.inject.is_none());
    let further: Vec<&Ours> = shown.filter(|one| !stands_for(one)).collect();
    further.into_iter()
}

fn part_s(place: &Place<'_>) -> f64 {
    let design = &place.source.analysis.experiment.design;
    design.part_ns().unwrap_or(design.trial_ns) as f64 / 1e9
}

/// What was measured of a variant at a place, or why nothing.
enum Found<'a> {
    At(&'a Point),
    Not(&'static str),
}

fn found<'a>(place: &Place<'a>, ours: &Ours) -> Found<'a> {
    let mut variants = place.source.analysis.variants.iter();
    let found = variants.find(|found| found.variant == ours.id);
    match (found, found.and_then(|f| point_of(f, &place.point.id))) {
        (Some(found), _) if found.left_out.is_some() => Found::Not("left out"),
        (Some(_), Some(at)) if at.valid == 0 => Found::Not("not valid"),
        (Some(_), Some(at)) => Found::At(at),
        _ => Found::Not(MISSING),
    }
}

/// What a column of differences is a difference to, at the same place.
fn base<'a>(study: &ResultSet, place: &Place<'a>, column: &Published) -> Option<&'a Point> {
    let variant = study.variant(column.over.as_deref()?)?;
    match found(place, ours(place.source, variant)?) {
        Found::At(at) => Some(at),
        Found::Not(_) => None,
    }
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

/// A variant at a load point, as a row of the study asks for it.
struct Asked<'a> {
    at: &'a Point,
    /// What a difference is to.
    base: Option<&'a Point>,
    /// How long a trial is, or each part of a long one, in seconds.
    part_s: f64,
    /// How many requests the study made; `None`: it went by time.
    requests: Option<f64>,
}

impl Asked<'_> {
    fn figure(&self, column: &Published) -> Cell {
        if column.of.is_some() && column.group.is_none() {
            return Cell::text("cluster only").toned(Tone::Muted);
        }
        if column.metric == Metric::Duration {
            let per_s = self.per_s();
            let needed = self.requests.map(|requests| requests / per_s);
            return needed.map_or_else(Cell::missing, needs);
        }
        match (value(self.at, column), &column.over) {
            (Some(value), None) => Cell::text(match column.metric {
                Metric::Throughput => grouped(value, 1),
                _ => digits(column.unit.of_base(value)),
            }),
            (Some(value), Some(_)) => self.over(value, column),
            (None, _) => match quantile(column.metric) {
                Some(quantile) => {
                    let seconds = ABOVE / (1.0 - quantile) / self.per_s();
                    needs(seconds.max(ABOVE * self.part_s))
                }
                None => Cell::missing(),
            },
        }
    }

    /// A difference, in percent of what it is a difference to or in the column's unit.
    fn over(&self, value_here: f64, column: &Published) -> Cell {
        let base = self.base.and_then(|base| value(base, column));
        let Some(base) = base.filter(|base| *base > 0.0) else {
            return Cell::missing();
        };
        let is_itself = self.base.is_some_and(|base| std::ptr::eq(base, self.at));
        if is_itself {
            return Cell::missing();
        }
        let difference = match column.base_unit() {
            BaseUnit::Ratio => value_here / base - 1.0,
            _ => value_here - base,
        };
        Cell::text(digits(column.unit.of_base(difference)))
    }

    /// Successful requests a second, or those that were answered at all.
    fn per_s(&self) -> f64 {
        level(self.at, Measured::Throughput).unwrap_or(self.at.achieved_per_s)
    }
}

/// What a column tells of a point, in the base unit of its metric.
fn value(at: &Point, column: &Published) -> Option<f64> {
    let of_curve = |curve: &[CurvePoint]| {
        let wanted = quantile(column.metric)?;
        let mut found = curve.iter();
        let found = found.find(|p| (p.quantile - wanted).abs() < 1e-9)?;
        Some(found.value_ns)
    };
    match column.metric {
        Metric::Throughput => Some(level(at, Measured::Throughput).unwrap_or(at.achieved_per_s)),
        Metric::LatencyMean => level(at, Measured::ResponseMean),
        Metric::LatencyMax => at.longest_ns.map(|ns| ns as f64),
        Metric::FirstByteP75 => of_curve(&at.first_byte),
        Metric::Cpu => Some(used(at, column.group?)?.cores.mean),
        Metric::Memory => Some(used(at, column.group?)?.memory_bytes?.mean),
        _ => of_curve(&at.percentiles),
    }
}

fn quantile(metric: Metric) -> Option<f64> {
    Some(match metric {
        Metric::LatencyP50 => 0.5,
        Metric::LatencyP75 | Metric::FirstByteP75 => 0.75,
        Metric::LatencyP90 => 0.9,
        Metric::LatencyP95 => 0.95,
        Metric::LatencyP99 => 0.99,
        Metric::LatencyP999 => 0.999,
        _ => return None,
    })
}

fn level(at: &Point, metric: Measured) -> Option<f64> {
    let mut levels = at.levels.iter();
    levels.find(|level| level.metric == metric)?.value
}

fn used(at: &Point, group: UsageGroup) -> Option<&Usage> {
    at.usage.iter().find(|usage| usage.group == group)
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
        _ => published::head(column),
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

/// The least and the most of CPU and of memory, as [`EXTENTS`] has them.
fn extents(usage: Option<&Usage>) -> Vec<Cell> {
    let figures = |unit: Unit, extent: Option<Extent>| match extent {
        Some(e) => [e.min, e.max].map(|figure| Cell::text(digits(unit.of_base(figure)))),
        None => [(); 2].map(|()| Cell::missing()),
    };
    let cores = figures(Unit::Millicores, usage.map(|usage| usage.cores));
    let memory = usage.and_then(|usage| usage.memory_bytes);
    let memory = figures(Unit::Mebibytes, memory);
    cores.into_iter().chain(memory).collect()
}

/// What a run at a study's own lengths is in for: trials, and the time that they take by themselves.
pub(crate) fn how_long(experiments: &[Experiment]) -> String {
    let (mut trials, mut ns) = (0_u64, 0_u64);
    for experiment in experiments {
        let rounds = u64::from(experiment.design.min_rounds);
        trials += experiment.block_trials() * rounds;
        ns = ns.saturating_add(experiment.block_ns().saturating_mul(rounds));
    }
    let design = experiments.first().map(|experiment| &experiment.design);
    let each = design.map_or(0, |design| design.trial_ns);
    match design.and_then(|design| design.requests_per_trial) {
        None => format!(
            "as the study measured: {trials} trials of {} each, {} in all, and what setting up takes",
            duration(each),
            duration(ns)
        ),
        Some(requests) => {
            let study = experiments.first().and_then(|e| find(e.study.as_deref()?));
            let own = study.and_then(study_took_ns);
            let own = own.map_or_else(String::new, |ns| {
                format!(
                    " (the study's own trials took {} in all)",
                    duration(ns as u64)
                )
            });
            format!(
                "as the study measured: {trials} trials of {} requests each, as fast as this machine answers them, and \
                 no longer than {} each{own}",
                grouped(requests as f64, 0),
                duration(each)
            )
        }
    }
}

/// All of a study's trials, where it says how long each took.
fn study_took_ns(study: &ResultSet) -> Option<f64> {
    let values = study.rows.iter().flat_map(|row| study.values(row));
    let took = values.filter(|value| value.metric == Metric::Duration);
    let sum: f64 = took.map(|value| value.value).sum();
    (sum > 0.0).then_some(sum)
}
