//! The tables of a published study, with the measured figures next to the published ones.

pub(super) mod loads;

use meshtax_model::analysis::{Extent, Point, Usage, UsageGroup};
use meshtax_model::experiment::{Design, Experiment, Variant as Ours};
use meshtax_published::{
    BaseUnit, Column as Published, Metric, ResultSet, Row, Unit, Variant, find,
};

use self::loads::{
    Found, NO_COUNTERPART, StudyLoad, control_plane, found, further, is_on_cluster, ours, per_s,
    quantile, used, value,
};
use crate::format::{duration, grouped, three_digits, trimmed};
use crate::view::published;
use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The minimum number of requests above a percentile, and of trials that they come from, as for the curves.
const ABOVE: f64 = 10.0;

/// The study's table, and the CPU and memory of groups of processes, if the study has them. Empty: these runs of one spec
/// name no study, or an unknown one.
pub(crate) fn tables(sources: &[Source<'_>]) -> Vec<Table> {
    let Some(study) = loads::of(sources) else {
        return Vec::new();
    };
    let loads = loads::study_loads(sources, study);
    let own = Sheet::of(study, None);
    let mut tables = vec![Table {
        title: format!("Study: {}", study.title),
        detail: format!(
            "{}; published figures are from other machines and not comparable with these",
            study.measures
        ),
        columns: own.heads(),
        rows: own.rows(&loads),
        footnotes: footnotes(sources, study),
    }];
    tables.extend(usage(study, &loads));
    tables
}

/// CPU and memory of a group of processes; `None`: the study has no comparable group.
fn usage(study: &ResultSet, loads: &[StudyLoad<'_>]) -> Option<Table> {
    let group = study.columns.iter().find_map(|column| column.group)?;
    let sheet = Sheet::of(study, Some(group));
    let what = match group {
        UsageGroup::Application => "application and server-side proxies",
        UsageGroup::ClientProxy => "client-side proxies",
        UsageGroup::Path => "application and all proxies",
    };
    let source = loads.first()?.source;
    let note = format!(
        "CPU: per trial, or per second of long trials; memory: anonymous pages of all processes and one copy of each \
         program. Control plane of the mesh: {}; of Kubernetes: not measured by any engine",
        match is_on_cluster(source) {
            true => "in the charts over the run",
            false => "on clusters only",
        }
    );
    Some(Table {
        title: "CPU and memory in the study".to_owned(),
        detail: format!("measured here: {what}; mean, minimum and maximum"),
        columns: sheet.heads(),
        rows: sheet.rows(loads),
        footnotes: vec![(String::new(), note)],
    })
}

/// Some of a study's columns as a table of their own: those of requests, or those of what processes used.
struct Sheet<'a> {
    study: &'a ResultSet,
    /// With their places among the study's.
    columns: Vec<(usize, &'a Published)>,
    /// The group whose minimum and maximum are appended.
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
    fn rows(&self, loads: &[StudyLoad<'_>]) -> Vec<Vec<Cell>> {
        let mut rows = Vec::new();
        for load in loads {
            for variant in &self.study.variants {
                let published = load.rows.iter().filter(|row| row.variant == variant.id);
                let published: Vec<&Row> = published.copied().collect();
                let ours = ours(load.source, variant);
                if ours.is_some() || !published.is_empty() {
                    rows.push(self.measured(load, ours, Some(variant)));
                }
                let published = published.into_iter();
                rows.extend(published.map(|row| self.published(row, variant)));
            }
            let further = further(load.source, self.study);
            rows.extend(further.map(|ours| self.measured(load, Some(ours), None)));
        }
        rows
    }

    /// `of_study`: the study's variant that `ours` corresponds to, if any.
    fn measured(
        &self,
        load: &StudyLoad<'_>,
        ours: Option<&Ours>,
        of_study: Option<&Variant>,
    ) -> Vec<Cell> {
        let mut cells: Vec<Cell> = load.at.iter().map(|at| Cell::text(trimmed(*at))).collect();
        let name = ours.map(|ours| ours.id.0.clone());
        let name = name.or(of_study.map(|variant| variant.name.clone()));
        cells.push(Cell::text(name.unwrap_or_default()).toned(Tone::Strong));
        let reason = match found(load, ours, of_study) {
            Found::At(at) => {
                cells.extend(self.figures(load, at));
                return cells;
            }
            Found::Not(reason) => reason,
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

    fn figures(&self, load: &StudyLoad<'_>, at: &Point) -> Vec<Cell> {
        let requests = load.rows.first();
        let requests = requests.and_then(|row| requests_of(self.study, row));
        let figure = |(_, column): &(usize, &Published)| {
            let asked = StudyCell {
                at,
                control_plane: control_plane(load.source),
                base: base(self.study, load, column),
                part_s: part_s(load),
                requests,
                design: &load.source.analysis.experiment.design,
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
        "published: {} ({}). Caveats: {}",
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
        "needs N s: this figure needs N seconds of measurement at the rate measured here to be based on enough \
         requests; use a longer --time. In the time column: how long the study's number of requests would take".to_owned(),
    );
    notes.extend(absent(sources, study));
    if sources.len() > 1 {
        notes.push(
            "each run has its own baselines: figures of different runs are not paired".to_owned(),
        );
    }
    let mut points = sources.iter().flat_map(|source| source.points());
    if points.any(|point| !point.is_steady()) {
        notes.push(
            "closed loop: latency is connections / throughput and carries no further information"
                .to_owned(),
        );
    }
    notes.extend(gateways(sources, study));
    notes
        .into_iter()
        .map(|note| (String::new(), note))
        .collect()
}

/// What stands in place of figures that are not here.
fn absent(sources: &[Source<'_>], study: &ResultSet) -> Vec<String> {
    let mut notes = Vec::new();
    if study.variants.iter().any(|v| v.data_plane.is_none()) {
        notes.push(format!("{NO_COUNTERPART}: not measured by any engine"));
    }
    let mut columns = study.columns.iter();
    if columns.any(is_of_control_plane) {
        let mut texts: Vec<&str> = sources.iter().map(|s| control_plane(*s)).collect();
        texts.dedup();
        let note = |text: &&str| {
            format!("{text}: control planes are sampled on clusters only, and drawn over the run")
        };
        notes.extend(texts.iter().map(note));
    }
    notes
}

/// The study's gateways in place of the measured ones; `None`: no load went through a gateway, or the study has none.
fn gateways(sources: &[Source<'_>], study: &ResultSet) -> Option<String> {
    let mut points = sources.iter().flat_map(|source| source.points());
    points.find(|point| point.ingress.is_some())?;
    let published = study.variants.iter().filter_map(|variant| {
        let ingress = variant.ingress.as_ref()?;
        Some(format!("{} ({})", ingress, variant.name))
    });
    let published: Vec<String> = published.collect();
    (!published.is_empty()).then(|| {
        format!(
            "gateways: here Envoy for every variant, for no engine of meshtax runs nginx; in the study {}",
            published.join(", ")
        )
    })
}

/// Which published figures have no measured counterpart in these runs of one spec.
pub(crate) fn unmatched(sources: &[Source<'_>]) -> Option<String> {
    let study = loads::of(sources)?;
    let mut sentences = Vec::new();
    let (elsewhere, all) = loads::elsewhere(&loads::study_loads(sources, study), study);
    if elsewhere == all {
        let factors: Vec<&str> = study.factors.iter().map(|f| f.name.as_str()).collect();
        sentences.push(format!(
            "None of its loads was measured here (its factors: {}), so none of its figures is shown.",
            factors.join(" and ")
        ));
    } else if elsewhere > 0 {
        sentences.push(format!(
            "{elsewhere} of its {all} loads were not measured in this run."
        ));
    }
    let without = study.variants.iter().filter(|variant| {
        let mut sources = sources.iter();
        !sources.any(|source| ours(*source, variant).is_some())
    });
    let without: Vec<&str> = without.map(|variant| variant.name.as_str()).collect();
    if !without.is_empty() {
        sentences.push(format!(
            "Without a counterpart here: {}.",
            without.join(", ")
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn part_s(load: &StudyLoad<'_>) -> f64 {
    let design = &load.source.analysis.experiment.design;
    design.part_ns().unwrap_or(design.trial_ns) as f64 / 1e9
}

/// What a column of differences is a difference to, at the same place.
fn base<'a>(study: &ResultSet, load: &StudyLoad<'a>, column: &Published) -> Option<&'a Point> {
    let variant = study.variant(column.over.as_deref()?)?;
    match found(load, Some(ours(load.source, variant)?), None) {
        Found::At(at) => Some(at),
        Found::Not(_) => None,
    }
}

/// The number of requests in a run of the study, if derivable from its duration and rate.
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

/// A variant at a load point, for a row of the study.
struct StudyCell<'a> {
    at: &'a Point,
    /// What stands in place of a figure of the control plane.
    control_plane: &'static str,
    /// What a difference is to.
    base: Option<&'a Point>,
    /// How long a trial is, or each part of a long one, in seconds.
    part_s: f64,
    /// The number of requests that the study made; `None`: it ran for a fixed time.
    requests: Option<f64>,
    /// Of this run.
    design: &'a Design,
}

impl StudyCell<'_> {
    fn figure(&self, column: &Published) -> Cell {
        if is_of_control_plane(column) {
            return Cell::text(self.control_plane).toned(Tone::Muted);
        }
        if column.metric == Metric::Duration {
            return self
                .requests
                .map_or_else(Cell::missing, |n| self.duration(n));
        }
        match (level(self.at, column), &column.over) {
            (Some(value), None) => Cell::text(match column.metric {
                Metric::Throughput => grouped(value, 1),
                _ => three_digits(column.unit.of_base(value)),
            }),
            (Some(value), Some(_)) => self.over(value, column),
            (None, _) => match quantile(column.metric) {
                Some(quantile) => {
                    let seconds = ABOVE / (1.0 - quantile) / per_s(self.at);
                    needs(seconds.max(ABOVE * self.part_s))
                }
                None => Cell::missing(),
            },
        }
    }

    /// The time for the study's number of requests: measured where the trials sent as many.
    fn duration(&self, requests: f64) -> Cell {
        let took_s = requests / self.at.achieved_per_s;
        let sent = self.design.requests_per_trial.map(|sent| sent as f64);
        let is_as_many = sent.is_some_and(|sent| sent.total_cmp(&requests).is_eq());
        // A trial that its time limit ended sent fewer.
        match is_as_many && took_s * 1e9 <= self.design.trial_ns as f64 {
            true => Cell::text(grouped(took_s, 1)),
            false => needs(requests / per_s(self.at)),
        }
    }

    /// A difference, in percent of the reference value or in the column's unit.
    fn over(&self, value_here: f64, column: &Published) -> Cell {
        let base = self.base.and_then(|base| level(base, column));
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
        Cell::text(three_digits(column.unit.of_base(difference)))
    }
}

/// What processes used, without a group of this run's that is comparable.
fn is_of_control_plane(column: &Published) -> bool {
    column.of.is_some() && column.group.is_none()
}

fn level(at: &Point, column: &Published) -> Option<f64> {
    value(at, column).map(|estimate| estimate.value)
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

/// The least and the most of CPU and of memory, as [`EXTENTS`] has them.
fn extents(usage: Option<&Usage>) -> Vec<Cell> {
    let figures = |unit: Unit, extent: Option<Extent>| match extent {
        Some(e) => [e.min, e.max].map(|figure| Cell::text(three_digits(unit.of_base(figure)))),
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
            "as in the study: {trials} trials of {} each, {} in total, plus set-up",
            duration(each),
            duration(ns)
        ),
        Some(requests) => {
            let study = experiments.first().and_then(|e| find(e.study.as_deref()?));
            let own = study.and_then(study_took_ns);
            let own = own.map_or_else(String::new, |ns| {
                format!(
                    " (the study's own trials took {} in total)",
                    duration(ns as u64)
                )
            });
            format!(
                "as in the study: {trials} trials of {} requests each, in a closed loop, and at most {} each{own}",
                grouped(requests as f64, 0),
                duration(each)
            )
        }
    }
}

/// The duration of all of a study's trials, if it states the duration of each.
fn study_took_ns(study: &ResultSet) -> Option<f64> {
    let values = study.rows.iter().flat_map(|row| study.values(row));
    let took = values.filter(|value| value.metric == Metric::Duration);
    let sum: f64 = took.map(|value| value.value).sum();
    (sum > 0.0).then_some(sum)
}
