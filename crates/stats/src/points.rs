//! Levels and counts of one variant at one load point.

use std::collections::BTreeMap;

use meshtax_model::LatencyHistogram;
use meshtax_model::analysis::{
    CurvePoint, Interval, Level, LoadOutcome, Metric, NoLevel, Point, Shortfall, Spread,
    VariantAnalysis,
};
use meshtax_model::event::Ending;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{LoadPoint, Variant};
use meshtax_model::trial::ResourceSample;

use crate::account::{IN_PATH, account, median};
use crate::effects::{arm, figure, is_tail};
use crate::interval::{self, Inference, above_zero};
use crate::memory::{self, anonymous_bytes};
use crate::outcome::{is_lower_bound, outcome};
use crate::pairing::unit_means_of;
use crate::study;
use crate::tails::{self, Counts, enough_above, resolved};
use crate::timeline;
use crate::trials::{Cell, Trials};
use crate::upkeep::upkeep;

/// The results of one variant.
pub(crate) fn variant(trials: &Trials<'_>, variant: &Variant) -> VariantAnalysis {
    let mut evidence: Vec<_> = trials.evidence_of(&variant.id).collect();
    evidence.sort_by_key(|seen| seen.round);
    let failing = evidence.iter().find(|seen| !seen.passed());
    let stopped = trials.data.run.ending == Some(Ending::PrecisionReached);
    let held = |seen: &Evidence| seen.passed() && !trials.was_lost(&variant.id, seen.round);
    let proven = evidence.iter().filter(|seen| held(seen)).count();
    let mut tried = trials.rounds_measured(&variant.id);
    tried.extend(evidence.iter().map(|seen| seen.round));
    tried.extend(trials.failures_of(&variant.id).map(|f| f.round));
    let cells = || {
        let points = trials.points().iter();
        points.map(|point| (point, trials.cell(&variant.id, &point.id)))
    };
    VariantAnalysis {
        variant: variant.id.clone(),
        excluded: trials.excluded(&variant.id),
        evidence: failing.or(evidence.last()).map(|seen| (*seen).clone()),
        rounds_proven: u32::try_from(proven).unwrap_or(u32::MAX),
        rounds_tried: u32::try_from(tried.len()).unwrap_or(u32::MAX),
        points: cells()
            .filter(|(at, _)| trials.data.experiment.gap(variant, at).is_none())
            .map(|(at, cell)| {
                let point = point(outcome(trials, variant, at), at, cell, stopped);
                match &trials.data.experiment.study {
                    Some(_) => study::studied(point, cell, stopped),
                    None => point,
                }
            })
            .collect(),
        memory: memory::by_role(trials, &variant.id),
        nodes: memory::by_node(trials, &variant.id),
        timeline: timeline::moments(trials, &variant.id),
        upkeep: upkeep(trials, variant),
    }
}

/// `stopped`: because the run's intervals were narrow.
fn point(outcome: LoadOutcome, point: &LoadPoint, cell: &Cell<'_>, stopped: bool) -> Point {
    let merged = Counts::merged(cell.valid.iter().map(|trial| &trial.response));
    let per_s = |count: &dyn Fn(&Cell<'_>) -> f64| {
        let window_ns: f64 = cell.valid.iter().map(|t| t.load.window_ns as f64).sum();
        if window_ns > 0.0 {
            count(cell) * 1e9 / window_ns
        } else {
            0.0
        }
    };
    let achieved_per_s = per_s(&|cell| cell.valid.iter().map(|t| t.load.completed as f64).sum());
    let offered_per_s = if point.is_steady() {
        per_s(&|cell| cell.valid.iter().map(|t| t.load.offered as f64).sum())
    } else {
        achieved_per_s
    };
    let connections = cell
        .valid
        .iter()
        .filter_map(|t| Some(t.proxy_connections?.after));
    let samples: Vec<&ResourceSample> = cell.valid.iter().filter_map(|t| t.sample).collect();
    let (series_ends_ns, series) = memory::series(&samples);
    Point {
        load_point: point.id.clone(),
        valid: cell.valid_count(),
        invalid: cell.invalid.clone(),
        short: shortfalls(cell),
        outcome,
        requests: merged.total(),
        offered_per_s,
        achieved_per_s,
        levels: Metric::of(point)
            .iter()
            .map(|metric| {
                let level = level(*metric, cell, &merged);
                let known = level
                    .value
                    .and_then(|_| level_interval(*metric, cell, stopped));
                Level {
                    interval: known,
                    lower_bound: is_lower_bound(*metric, cell),
                    ..level
                }
            })
            .collect(),
        curve: curve(point, cell, &merged),
        percentiles: Vec::new(),
        first_byte: Vec::new(),
        longest_ns: None,
        usage: Vec::new(),
        send_lag_p99_ns: send_lag_p99_ns(point, cell),
        proxy_connections: median(connections.collect()),
        spread: spread(cell),
        injected_ns: injected_ns(cell),
        cpu: account(&sampled(cell)).map(|account| account.shown),
        series_ends_ns,
        series,
    }
}

/// How many trials lacked what.
fn shortfalls(cell: &Cell<'_>) -> BTreeMap<Shortfall, u32> {
    let mut counts = BTreeMap::new();
    for short in cell.attempts().filter_map(|trial| trial.short) {
        *counts.entry(short).or_default() += 1;
    }
    counts
}

/// Points of a percentile curve per additional nine.
const CURVE_STEPS: u32 = 12;
/// Up to the p99.9999.
const CURVE_NINES: u32 = 6;

/// Quantiles at even distances in nines (0, .. 0.9, .. 0.99, ..), up to where too few values remain
/// above: by the rule of the tails, from the p90 on.
fn curve(point: &LoadPoint, cell: &Cell<'_>, merged: &Counts) -> Vec<CurvePoint> {
    if !point.is_steady() {
        return Vec::new();
    }
    let mut curve = Vec::new();
    for step in 0..=CURVE_STEPS * CURVE_NINES {
        let quantile = 1.0 - 0.1_f64.powf(f64::from(step) / f64::from(CURVE_STEPS));
        if step > CURVE_STEPS && !has_enough_above(quantile, cell, merged) {
            break;
        }
        let Some(value_ns) = merged.quantile(quantile) else {
            break;
        };
        curve.push(CurvePoint {
            quantile,
            value_ns,
            interval: None,
        });
    }
    curve
}

fn has_enough_above(quantile: f64, cell: &Cell<'_>, merged: &Counts) -> bool {
    enough_above(
        quantile,
        cell.valid.iter().map(|trial| &trial.response),
        merged,
    )
}

/// `None` without a valid trial.
fn spread(cell: &Cell<'_>) -> Option<Spread> {
    let counted = || cell.valid.iter().map(|trial| trial.replicas);
    let counted = || counted().filter(|counts| counts.iter().any(|count| *count > 0));
    let hit = counted().map(|counts| counts.iter().filter(|count| **count > 0).count() as u32);
    let shares: Vec<f64> = counted()
        .map(|counts| {
            let most = counts.iter().max().copied().unwrap_or(0);
            most as f64 / counts.iter().sum::<u64>() as f64
        })
        .collect();
    Some(Spread {
        replicas: counted().map(<[u64]>::len).max()? as u32,
        hit_min: hit.clone().min()?,
        hit_max: hit.max()?,
        busiest_share: interval::median(shares)?,
    })
}

/// The valid trials that have a resource sample, with their completed requests.
pub(crate) fn sampled<'a>(cell: &Cell<'a>) -> Vec<(&'a ResourceSample, u64)> {
    let valid = cell.valid.iter();
    valid
        .filter_map(|trial| Some((trial.sample?, trial.load.completed)))
        .collect()
}

/// A metric's level in a cell; `None` if there is none, or it is not resolved.
pub(crate) fn level_in(metric: Metric, cell: &Cell<'_>) -> Option<f64> {
    let merged = Counts::merged(cell.valid.iter().map(|trial| &trial.response));
    level(metric, cell, &merged).value
}

fn level(metric: Metric, cell: &Cell<'_>, merged: &Counts) -> Level {
    let value = match metric {
        _ if cell.valid.is_empty() => Err(NoLevel::NoValidTrials),
        Metric::Throughput => Ok(goodput_per_s(cell)),
        Metric::CpuPerRequest => cpu_per_request(cell).ok_or(NoLevel::NoResourceSample),
        Metric::ResponseMean => merged.mean().ok_or(NoLevel::NoRequests),
        Metric::AnonymousMemory => memory_level(cell).ok_or(NoLevel::NoMemoryReading),
        Metric::ResponseP50 | Metric::ResponseP90 | Metric::ResponseP99 | Metric::ResponseP999 => {
            percentile(metric, cell, merged)
        }
    };
    Level {
        metric,
        value: value.as_ref().ok().copied(),
        interval: None,
        lower_bound: false,
        reason: value.err(),
    }
}

/// The uncertainty of a level within this run; only where it is compared with something ([`crate::advise`]).
fn level_interval(metric: Metric, cell: &Cell<'_>, stopped: bool) -> Option<Interval> {
    let fit = match metric.quantile() {
        Some(quantile) => tails::level(quantile, &arm([cell]))?,
        None if metric == Metric::Throughput => {
            let figures = cell.valid.iter();
            let figures = figures.filter_map(|trial| Some((trial.key, figure(metric, trial)?)));
            Inference::of_mean(&unit_means_of(figures))?
        }
        None => return None,
    };
    above_zero(fit, stopped)
}

fn percentile(metric: Metric, cell: &Cell<'_>, merged: &Counts) -> Result<f64, NoLevel> {
    let quantile = metric.quantile().ok_or(NoLevel::NoRequests)?;
    if is_tail(metric) {
        resolved(metric, &arm([cell])).map_err(NoLevel::Unresolved)?;
    }
    merged.quantile(quantile).ok_or(NoLevel::NoRequests)
}

fn goodput_per_s(cell: &Cell<'_>) -> f64 {
    let window_ns: f64 = cell.valid.iter().map(|t| t.load.window_ns as f64).sum();
    let succeeded: f64 = cell.valid.iter().map(|t| t.load.succeeded as f64).sum();
    // A window without a length makes the trial invalid.
    succeeded * 1e9 / window_ns.max(1.0)
}

fn memory_level(cell: &Cell<'_>) -> Option<f64> {
    let held = cell.valid.iter();
    interval::median(
        held.filter_map(|trial| anonymous_bytes(trial.sample?))
            .collect(),
    )
}

fn cpu_per_request(cell: &Cell<'_>) -> Option<f64> {
    let account = account(&sampled(cell))?.shown;
    let in_path = account
        .components
        .iter()
        .filter(|component| IN_PATH.contains(&component.role));
    let sum: f64 = in_path.map(|component| component.cpu_per_request_ns).sum();
    (sum > 0.0).then_some(sum)
}

/// In a closed loop a request is intended when it is sent: there is no send lag.
fn send_lag_p99_ns(point: &LoadPoint, cell: &Cell<'_>) -> Option<u64> {
    if !point.is_steady() {
        return None;
    }
    let mut merged = LatencyHistogram::new();
    for trial in &cell.valid {
        merged.merge(&trial.load.send_lag);
    }
    merged.quantile_ns(0.99)
}

fn injected_ns(cell: &Cell<'_>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for injected in cell.valid.iter().filter_map(|trial| trial.injected) {
        if injected.mean_ns.is_finite() {
            sum += injected.mean_ns * injected.count as f64;
            count += injected.count as f64;
        }
    }
    let mean: f64 = sum / count;
    (count > 0.0 && mean.is_finite()).then_some(mean)
}
