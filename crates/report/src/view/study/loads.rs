//! The counterparts of a published study in these runs: its variants and its loads.

use meshtax_model::analysis::{
    CurvePoint, Estimate, Extent, Interval, Level, Metric as Measured, Point, Usage, UsageGroup,
};
use meshtax_model::experiment::{LoadPoint, Regime, Role, Variant as Ours};
use meshtax_published::{Column, Metric, ResultSet, Row, Variant, find};

use crate::format::{MISSING, trimmed};
use crate::view::source::{Source, load_in_words, point_of};

/// The study that these runs of one spec name. `None`: there is none, or none of that name.
pub(crate) fn of(sources: &[Source<'_>]) -> Option<&'static ResultSet> {
    find(sources.first()?.analysis.experiment.study.as_deref()?)
}

/// A load point of a run, as a load of the study.
pub(crate) struct StudyLoad<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) point: &'a LoadPoint,
    /// A setting for each factor of the study.
    pub(crate) at: Vec<f64>,
    /// What was published there.
    pub(crate) rows: Vec<&'a Row>,
}

/// The load points of these runs that have a setting for each factor of the study.
pub(crate) fn study_loads<'a>(sources: &[Source<'a>], study: &'a ResultSet) -> Vec<StudyLoad<'a>> {
    let of_source = |source: &Source<'a>| {
        let source = *source;
        source.points().filter_map(move |point| {
            let factors = study.factors.iter();
            let at = factors.map(|factor| setting(source, &factor.name, point));
            let at = at.collect::<Option<Vec<f64>>>()?;
            // The published setting is text: compare the numbers.
            let same = |(text, here): (&String, &f64)| {
                text.parse()
                    .is_ok_and(|there: f64| there.total_cmp(here).is_eq())
            };
            let rows = study.rows.iter();
            let rows = rows
                .filter(|row| row.at.iter().zip(&at).all(same))
                .collect();
            Some(StudyLoad {
                source,
                point,
                at,
                rows,
            })
        })
    };
    sources.iter().flat_map(of_source).collect()
}

/// How many of a study's loads these do not include, and how many it has.
pub(crate) fn elsewhere(loads: &[StudyLoad<'_>], study: &ResultSet) -> (usize, usize) {
    let mut settings: Vec<&[String]> = study.rows.iter().map(|row| row.at.as_slice()).collect();
    settings.sort_unstable();
    settings.dedup();
    let here = |at: &&&[String]| {
        let mut rows = loads.iter().flat_map(|load| &load.rows);
        rows.any(|row| row.at == **at)
    };
    let measured = settings.iter().filter(here).count();
    (settings.len() - measured, settings.len())
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
        ("pods", _) => Some(f64::from(experiment.topology.pods())),
        _ => None,
    }
}

impl StudyLoad<'_> {
    /// `64 connections`, `10 pods, 20 requests/s`.
    pub(crate) fn name(&self, study: &ResultSet) -> String {
        let factors = study.factors.iter().zip(&self.at);
        let names: Vec<String> = factors
            .map(|(factor, at)| match factor.name.as_str() {
                "rate" => format!("{} requests/s", trimmed(*at)),
                name if *at == 1.0 => format!("1 {}", name.trim_end_matches('s')),
                name => format!("{} {name}", trimmed(*at)),
            })
            .collect();
        match names.is_empty() {
            true => load_in_words(self.point),
            false => names.join(", "),
        }
    }
}

/// Our variant that corresponds to a variant of the study: with its data plane, and its level if the study states one.
pub(crate) fn ours<'a>(source: Source<'a>, variant: &Variant) -> Option<&'a Ours> {
    let plane = variant.data_plane.as_deref()?;
    let variants = source.analysis.experiment.variants.iter();
    let mut same = variants.filter(|ours| ours.data_plane == plane && ours.is_plain());
    match variant.level {
        Some(level) => same.find(|ours| ours.level == Some(level)),
        None => same.next(),
    }
}

/// Our variants without a counterpart in the study, except the control.
pub(crate) fn further<'a>(source: Source<'a>, study: &ResultSet) -> impl Iterator<Item = &'a Ours> {
    let stands_for = |one: &Ours| {
        let mut variants = study.variants.iter();
        variants.any(|variant| ours(source, variant).is_some_and(|ours| ours.id == one.id))
    };
    let all = source.analysis.experiment.variants.iter();
    let shown = all.filter(|one| one.role != Role::Control && one.inject.is_none());
    let further: Vec<&Ours> = shown.filter(|one| !stands_for(one)).collect();
    further.into_iter()
}

/// What was measured of a variant at a place, or why nothing.
pub(crate) enum Found<'a> {
    At(&'a Point),
    Not(&'static str),
}

/// What stands in place of a variant of a study that no engine measures.
pub(crate) const NO_COUNTERPART: &str = "no counterpart";

/// What stands in place of a figure of the control plane in a study's table.
pub(crate) fn control_plane(source: Source<'_>) -> &'static str {
    match is_on_cluster(source) {
        true => "in charts",
        false => "cluster only",
    }
}

pub(crate) fn is_on_cluster(source: Source<'_>) -> bool {
    source.analysis.environment.kubernetes.is_some()
}

/// `ours`: the counterpart of `of_study`, or a variant without one.
pub(crate) fn found<'a>(
    load: &StudyLoad<'a>,
    ours: Option<&Ours>,
    of_study: Option<&Variant>,
) -> Found<'a> {
    let Some(ours) = ours else {
        let has_like = of_study.is_some_and(|variant| variant.data_plane.is_some());
        return Found::Not(match has_like {
            true => "not in this run",
            false => NO_COUNTERPART,
        });
    };
    let mut variants = load.source.analysis.variants.iter();
    let found = variants.find(|found| found.variant == ours.id);
    match (found, found.and_then(|f| point_of(f, &load.point.id))) {
        (Some(found), _) if found.excluded.is_some() => Found::Not("excluded"),
        (Some(_), Some(at)) if at.valid == 0 => Found::Not("not valid"),
        (Some(_), Some(at)) => Found::At(at),
        _ => Found::Not(MISSING),
    }
}

/// The value of a column at a point, in the base unit of its metric, with its interval.
pub(crate) fn value(at: &Point, column: &Column) -> Option<Estimate> {
    let sure = |value| Estimate {
        value,
        interval: None,
    };
    let of_level = |level: &Level| {
        let interval = level.interval;
        level.value.map(|value| Estimate { value, interval })
    };
    match column.metric {
        Metric::Throughput => {
            let known = level(at, Measured::Throughput).and_then(of_level);
            Some(known.unwrap_or_else(|| sure(at.achieved_per_s)))
        }
        Metric::LatencyMean => of_level(level(at, Measured::ResponseMean)?),
        Metric::LatencyMax => at.longest_ns.map(|ns| sure(ns as f64)),
        Metric::FirstByteP75 => of_curve(&at.first_byte, quantile(column.metric)?),
        Metric::Cpu | Metric::Memory => extent(at, column).map(|extent| sure(extent.mean)),
        metric => of_curve(&at.percentiles, quantile(metric)?),
    }
}

fn of_curve(curve: &[CurvePoint], quantile: f64) -> Option<Estimate> {
    let mut found = curve.iter();
    let found = found.find(|p| (p.quantile - quantile).abs() < 1e-9)?;
    Some(Estimate {
        value: found.value_ns,
        interval: found.interval,
    })
}

/// The range of a column of CPU or of memory.
pub(crate) fn extent(at: &Point, column: &Column) -> Option<Extent> {
    let used = used(at, column.group?)?;
    match column.metric {
        Metric::Cpu => Some(used.cores),
        Metric::Memory => used.memory_bytes,
        _ => None,
    }
}

pub(crate) fn used(at: &Point, group: UsageGroup) -> Option<&Usage> {
    at.usage.iter().find(|usage| usage.group == group)
}

pub(crate) fn quantile(metric: Metric) -> Option<f64> {
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

fn level(at: &Point, metric: Measured) -> Option<&Level> {
    at.levels.iter().find(|level| level.metric == metric)
}

/// Requests per second: successful ones, or those with any response.
pub(crate) fn per_s(at: &Point) -> f64 {
    let known = level(at, Measured::Throughput).and_then(|level| level.value);
    known.unwrap_or(at.achieved_per_s)
}

/// An interval whose ends are numbers.
pub(crate) fn ends(interval: Option<Interval>) -> Option<(f64, f64)> {
    let Interval { low, high } = interval?;
    (low.is_finite() && high.is_finite()).then_some((low, high))
}
