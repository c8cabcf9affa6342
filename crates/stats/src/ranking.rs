//! Comparisons between candidates.
//!
//! Two variants are ranked by the interval of *their* paired difference, never by whether the intervals
//! of their effects overlap: both effects contain the same baselines, whose noise cancels out between them.

use meshtax_model::analysis::{Comparison, Metric, NoiseFloor, NotEstimable, Verdict, Withheld};
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::margins::Margins;

use crate::effects::{compare_variants, is_primary, relative_floor, too_few};
use crate::elsewhere;
use crate::family::holm;
use crate::interval::{CONFIDENCE, Inference, relative};
use crate::trials::Trials;
use crate::truncated::Truncated;
use crate::verdict::{self, Bounds};

/// Every pair of measured candidates, at every load point, in the primary metrics; adjusted
/// over all of them (Holm). Margins and noise floors are those of effects.
pub(crate) fn comparisons(trials: &Trials<'_>, floors: &[NoiseFloor]) -> Vec<Comparison> {
    let mut drafts: Vec<Draft> = Vec::new();
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
        .filter_map(|draft| draft.fit.as_ref()?.p_value())
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    for draft in &mut drafts {
        if draft.fit.as_ref().and_then(Inference::p_value).is_some() {
            draft.comparison.p_adjusted = adjusted.next();
            judge(draft, floors, &trials.data.experiment.margins);
        }
    }
    drafts.into_iter().map(|draft| draft.comparison).collect()
}

/// A comparison before adjustment.
struct Draft {
    comparison: Comparison,
    fit: Option<Inference>,
    truncated: Truncated,
    /// With CPU elsewhere.
    whole: Option<Inference>,
}

impl Draft {
    /// Why a verdict is not given. `path`: the estimate.
    fn withheld(&self, verdict: &Verdict, path: f64, margin: f64) -> Option<Withheld> {
        let whole = self.whole.as_ref();
        if self.truncated.withholds(verdict, path) {
            return Some(Withheld::LowerBound);
        }
        whole
            .is_some_and(|whole| elsewhere::withholds(verdict, path, whole, margin))
            .then_some(Withheld::CpuElsewhere)
    }
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
) -> Option<Draft> {
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
        withheld: None,
    };
    let [reference, own] = [first, second].map(|variant| trials.cell(&variant.id, &point.id));
    Some(Draft {
        comparison,
        fit,
        truncated: Truncated::of(metric, own, &[reference]),
        whole: elsewhere::whole(trials, metric, own, &[reference]),
    })
}

fn judge(draft: &mut Draft, floors: &[NoiseFloor], margins: &Margins) {
    let Some(fit) = &draft.fit else {
        return;
    };
    let comparison = &draft.comparison;
    let Some(floor) = relative_floor(floors, &comparison.load_point, comparison.metric) else {
        let reason = NotEstimable::NoNoiseFloor;
        draft.comparison.verdict = Verdict::NotEstimable { reason };
        return;
    };
    let p_value = comparison.p_adjusted.unwrap_or(1.0);
    let margin = comparison.metric.margin(margins);
    let (mut verdict, longer_to_tell) = verdict::of(fit, p_value, Bounds { floor, margin });
    let mut withheld = draft.withheld(&verdict, fit.estimate, margin);
    if withheld.is_some() {
        verdict = Verdict::Inconclusive;
    } else if verdict == Verdict::Different && is_within(fit, margin) {
        // Advice calls a difference irrelevant if it is shown, and shown to be within the margin.
        withheld = draft.withheld(&Verdict::Equivalent, fit.estimate, margin);
    }
    draft.comparison = Comparison {
        verdict,
        longer_to_tell,
        withheld,
        ..draft.comparison.clone()
    };
}

fn is_within(fit: &Inference, margin: f64) -> bool {
    let interval = fit.interval(CONFIDENCE).map(relative);
    interval.is_some_and(|interval| interval.largest_absolute_end() < margin)
}
