//! Comparisons between candidates.
//!
//! Two variants are ranked by the interval of *their* paired difference, never by whether the intervals
//! of their effects overlap: both effects contain the same baselines, whose noise cancels out between them.

use meshtax_model::analysis::{Comparison, Metric, NoiseFloor, NotEstimable, Verdict};
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::margins::Margins;

use crate::effects::{compare_variants, is_primary, relative_floor, too_few};
use crate::family::holm;
use crate::interval::Inference;
use crate::trials::Trials;
use crate::verdict::{self, Bounds};

/// Every pair of measured candidates, at every load point, in the primary metrics; adjusted
/// over all of them (Holm). Margins and noise floors are those of effects.
pub(crate) fn comparisons(trials: &Trials<'_>, floors: &[NoiseFloor]) -> Vec<Comparison> {
    let mut drafts: Vec<(Comparison, Option<Inference>)> = Vec::new();
    for (first, second) in pairs(trials) {
        for point in trials.points() {
            let primary = Metric::of(point).iter().copied();
            for metric in primary.filter(|metric| is_primary(point, *metric)) {
                drafts.extend(draft(trials, [first, second], point, metric));
            }
        }
    }
    let p_values: Vec<f64> = drafts
        .iter()
        .filter_map(|(_, fit)| fit.as_ref()?.p_value())
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    for (comparison, fit) in &mut drafts {
        let Some(fit) = fit.as_ref().filter(|fit| fit.p_value().is_some()) else {
            continue;
        };
        comparison.p_adjusted = adjusted.next();
        judge(comparison, fit, floors, &trials.data.experiment.margins);
    }
    drafts
        .into_iter()
        .map(|(comparison, _)| comparison)
        .collect()
}

fn pairs<'a>(trials: &Trials<'a>) -> Vec<(&'a Variant, &'a Variant)> {
    let candidates: Vec<&Variant> = trials
        .by_role(Role::Candidate)
        .filter(|variant| trials.excluded(&variant.id).is_none())
        .collect();
    let later = |at: usize| candidates[at + 1..].iter().copied();
    let pairs = candidates.iter().enumerate();
    pairs
        .flat_map(|(at, first)| later(at).map(|second| (*first, second)))
        .collect()
}

/// `None`: one of the two does not support this load.
fn draft(
    trials: &Trials<'_>,
    [first, second]: [&Variant; 2],
    point: &LoadPoint,
    metric: Metric,
) -> Option<(Comparison, Option<Inference>)> {
    let experiment = trials.data.experiment;
    if [first, second]
        .iter()
        .any(|variant| experiment.gap(variant, point).is_some())
    {
        return None;
    }
    let compared = compare_variants(trials, second, &[first], point, metric);
    let (fit, reason) = match compared {
        Ok(paired) => {
            let reason = too_few(&paired).unwrap_or(NotEstimable::NotFinite);
            (Some(paired.log_ratio), reason)
        }
        Err(reason) => (None, reason),
    };
    let comparison = Comparison {
        first: first.id.clone(),
        second: second.id.clone(),
        load_point: point.id.clone(),
        metric,
        relative: fit.as_ref().map(Inference::estimate_relative),
        p_adjusted: None,
        verdict: Verdict::NotEstimable { reason },
        longer_to_tell: None,
    };
    Some((comparison, fit))
}

fn judge(comparison: &mut Comparison, fit: &Inference, floors: &[NoiseFloor], margins: &Margins) {
    let Some(floor) = relative_floor(floors, &comparison.load_point, comparison.metric) else {
        let reason = NotEstimable::NoNoiseFloor;
        comparison.verdict = Verdict::NotEstimable { reason };
        return;
    };
    let p_value = comparison.p_adjusted.unwrap_or(1.0);
    let margin = comparison.metric.margin(margins);
    (comparison.verdict, comparison.longer_to_tell) =
        verdict::of(fit, p_value, Bounds { floor, margin });
}
