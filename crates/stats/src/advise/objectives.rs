//! Objectives against the intervals of levels.

use meshtax_model::advice::{
    AdvisedVariant, Objective, ObjectiveAnswer, ObjectiveCheck, ObjectiveVerdict, PresetRates,
};
use meshtax_model::analysis::{Analysis, Estimate, Interval, Metric, Point};
use meshtax_model::experiment::{LoadPoint, Regime};

use super::measured;

/// Rates that differ by no more are one rate.
const SAME_RATE: f64 = 0.01;

/// One objective, for every variant at each load point of its kind.
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
            let variants = variants.iter().filter(|v| v.left_out.is_none()).filter(has);
            variants.map(move |variant| check(analysis, variant, point, objective))
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

/// Whether a load point is what an objective is about. One at another rate is not, higher or lower: see
/// [`super`].
pub(super) fn is_asked(objective: &Objective, point: &LoadPoint) -> bool {
    match (objective.rate_per_s, steady_rate(point)) {
        (Some(wanted), Some(rate)) => same(rate, wanted),
        (None, None) => true,
        _ => false,
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
    let level = point.ok_or_else(|| "no trial of it at this load".to_owned());
    let level = level.and_then(|point| level_of(point, objective.metric));
    let (verdict, reason) = match &level {
        Err(reason) => (ObjectiveVerdict::CannotTell, reason.clone()),
        Ok(level) => judge(level, objective),
    };
    ObjectiveCheck {
        variant: variant.variant.clone(),
        load_point: load.id.clone(),
        level: level.ok(),
        verdict,
        reason,
    }
}

fn level_of(point: &Point, metric: Metric) -> Result<Estimate, String> {
    let level = point.levels.iter().find(|level| level.metric == metric);
    let level = level.ok_or_else(|| format!("{} is not on record", metric.name()))?;
    let Some(value) = level.value.filter(|value| value.is_finite()) else {
        let mut reason = level.reason.clone().unwrap_or_default();
        let kinds: Vec<&str> = point.invalid.keys().map(String::as_str).collect();
        if point.valid == 0 && !kinds.is_empty() {
            reason.push_str(&format!(" ({})", kinds.join("; ")));
        }
        return Err(reason);
    };
    let usable = |i: &Interval| i.low.is_finite() && i.high.is_finite();
    Ok(Estimate {
        value,
        interval: level.interval.filter(usable),
    })
}

/// By the ends of the interval, never by the estimate.
fn judge(level: &Estimate, objective: &Objective) -> (ObjectiveVerdict, String) {
    let Some(Interval { low, high }) = level.interval else {
        let reason = "no interval: fewer than six of its blocks count".to_owned();
        return (ObjectiveVerdict::CannotTell, reason);
    };
    let bound = objective.bound;
    let (keeps, is_beyond) = if objective.metric.larger_is_worse() {
        (high < bound, low > bound)
    } else {
        (low > bound, high < bound)
    };
    match (keeps, is_beyond) {
        (true, _) => (ObjectiveVerdict::Met, String::new()),
        (_, true) => (ObjectiveVerdict::Missed, String::new()),
        _ => {
            let reason = "the interval holds the bound".to_owned();
            (ObjectiveVerdict::CannotTell, reason)
        }
    }
}
