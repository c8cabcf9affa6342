//! Objectives compared with the intervals of levels.

use meshtax_model::advice::{
    AdvisedVariant, InconclusiveObjective, Objective, ObjectiveAnswer, ObjectiveCheck,
    ObjectiveVerdict, PresetRates,
};
use meshtax_model::analysis::{
    Analysis, Estimate, ExclusionReason, Interval, LoadOutcome, Metric, NoLevel, Point,
};
use meshtax_model::experiment::{LoadPoint, Regime};

use super::measured::measured;

/// Rates that differ by no more count as equal.
const SAME_RATE: f64 = 0.01;

/// One objective, for every variant at each load point of its kind, whether or not the variant could be measured.
pub(super) fn answer(
    analysis: &Analysis,
    variants: &[AdvisedVariant],
    objective: &Objective,
    presets: &[PresetRates],
) -> ObjectiveAnswer {
    let points = &analysis.experiment.load_points;
    let asked = points.iter().filter(|point| is_asked(objective, point));
    let checks = asked
        .flat_map(|point| {
            let has = |v: &&AdvisedVariant| {
                let variant = analysis.experiment.variant(&v.variant);
                variant.is_some_and(|v| analysis.experiment.gap(v, point).is_none())
            };
            let variants = variants.iter().filter(has);
            variants.map(move |variant| match &variant.excluded {
                None => check(analysis, variant, point, objective),
                Some(why) => not_measured(variant, point, why),
            })
        })
        .collect();
    let mut measured_per_s: Vec<f64> = points.iter().filter_map(steady_rate).collect();
    measured_per_s.sort_by(f64::total_cmp);
    measured_per_s.dedup();
    let has_rate = |preset: &&PresetRates| {
        let wanted = objective.rate_per_s;
        wanted.is_some_and(|wanted| preset.rates_per_s.iter().any(|rate| same(*rate, wanted)))
    };
    ObjectiveAnswer {
        objective: objective.clone(),
        checks,
        measured_per_s,
        measured_saturated: points.iter().any(|point| !point.is_steady()),
        presets: presets
            .iter()
            .filter(has_rate)
            .map(|preset| preset.name.clone())
            .collect(),
    }
}

fn steady_rate(point: &LoadPoint) -> Option<f64> {
    match point.load {
        Regime::Steady { rate_per_s, .. } => Some(rate_per_s),
        Regime::Saturated => None,
    }
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= SAME_RATE * other.abs()
}

/// Whether an objective applies to a load point. It does not at another rate, higher or lower: see
/// [`super`].
pub(super) fn is_asked(objective: &Objective, point: &LoadPoint) -> bool {
    match (objective.rate_per_s, steady_rate(point)) {
        (Some(wanted), Some(rate)) => same(rate, wanted),
        (None, None) => true,
        _ => false,
    }
}

/// An objective covers every variant: one that was excluded has not met it.
fn not_measured(
    variant: &AdvisedVariant,
    load: &LoadPoint,
    why: &ExclusionReason,
) -> ObjectiveCheck {
    ObjectiveCheck {
        variant: variant.variant.clone(),
        load_point: load.id.clone(),
        level: None,
        verdict: ObjectiveVerdict::Inconclusive,
        reason: Some(InconclusiveObjective::NotMeasured {
            reason: why.clone(),
        }),
        overload: None,
    }
}

fn check(
    analysis: &Analysis,
    variant: &AdvisedVariant,
    load: &LoadPoint,
    objective: &Objective,
) -> ObjectiveCheck {
    let found = measured(analysis, &variant.variant);
    let point = found.and_then(|v| v.points.iter().find(|p| p.load_point == load.id));
    let level = point
        .ok_or(InconclusiveObjective::NoTrials)
        .and_then(|point| level_of(point, objective.metric));
    let overload = point.and_then(|point| match point.outcome {
        LoadOutcome::Overloaded(overload) => Some(overload),
        _ => None,
    });
    let (verdict, reason) = match (&level, point.and_then(undecided)) {
        _ if overload.is_some() => (ObjectiveVerdict::Missed, None),
        (_, Some(reason)) => (ObjectiveVerdict::Inconclusive, Some(reason)),
        (Err(reason), None) => (ObjectiveVerdict::Inconclusive, Some(reason.clone())),
        (Ok(level), None) => judge(level, objective),
    };
    ObjectiveCheck {
        variant: variant.variant.clone(),
        load_point: load.id.clone(),
        level: level.ok().map(|(level, _)| level),
        verdict,
        reason,
        overload,
    }
}

/// Why a load cannot be judged although it was measured.
fn undecided(point: &Point) -> Option<InconclusiveObjective> {
    match point.outcome {
        LoadOutcome::Carried | LoadOutcome::Overloaded(_) => None,
        LoadOutcome::Uncertain { trials, of } => {
            Some(InconclusiveObjective::LoadNotCarried { trials, of })
        }
        LoadOutcome::BeyondMachine { .. } => Some(InconclusiveObjective::BeyondMachine),
    }
}

/// The level, and whether it is a lower bound.
fn level_of(point: &Point, metric: Metric) -> Result<(Estimate, bool), InconclusiveObjective> {
    let level = point.levels.iter().find(|level| level.metric == metric);
    let level = level.ok_or(InconclusiveObjective::NotOnRecord)?;
    let Some(value) = level.value.filter(|value| value.is_finite()) else {
        let invalid = point.invalid.keys().copied();
        return Err(InconclusiveObjective::NoLevel {
            reason: level.reason.unwrap_or(NoLevel::NoRequests),
            invalid: invalid.filter(|_| point.valid == 0).collect(),
        });
    };
    let usable = |i: &Interval| i.low.is_finite() && i.high.is_finite();
    let estimate = Estimate {
        value,
        interval: level.interval.filter(usable),
    };
    Ok((estimate, level.lower_bound))
}

/// Decided by the ends of the interval, never by the estimate.
fn judge(
    (level, lower_bound): &(Estimate, bool),
    objective: &Objective,
) -> (ObjectiveVerdict, Option<InconclusiveObjective>) {
    let inconclusive = |reason| (ObjectiveVerdict::Inconclusive, Some(reason));
    let Some(Interval { low, high }) = level.interval else {
        return inconclusive(InconclusiveObjective::NoInterval);
    };
    let bound = objective.bound;
    let (keeps, is_beyond) = if objective.metric.larger_is_worse() {
        (high < bound, low > bound)
    } else {
        (low > bound, high < bound)
    };
    match (keeps, is_beyond) {
        (true, _) if *lower_bound => inconclusive(InconclusiveObjective::LowerBound),
        (true, _) => (ObjectiveVerdict::Met, None),
        (_, true) => (ObjectiveVerdict::Missed, None),
        _ => inconclusive(InconclusiveObjective::IntervalContainsBound),
    }
}
