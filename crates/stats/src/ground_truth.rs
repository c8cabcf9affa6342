//! Injected known costs and their measured values.

use meshtax_model::analysis::{Analysis, Effect, Estimate, GroundTruth, Metric, Point};
use meshtax_model::experiment::{Inject, LoadPoint, Role, Variant};

use crate::interval::Inference;
use crate::pairing::unit_means_of;
use crate::trials::Trials;

/// Every known cost, in every metric and at every load point where its true value is known.
pub(crate) fn ground_truth(trials: &Trials<'_>, analysis: &Analysis) -> Vec<GroundTruth> {
    let injected = trials
        .by_role(Role::Candidate)
        .filter_map(|variant| Some((variant, variant.inject?)));
    let points = |variant: &Variant| {
        let found = analysis.variants.iter().find(|v| v.variant == variant.id);
        let found = found.map_or(&[][..], |v| &v.points);
        let asked = trials.points().iter();
        asked
            .filter_map(|asked| {
                let point = found.iter().find(|p| p.load_point == asked.id)?;
                Some((asked, point))
            })
            .collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for (variant, inject) in injected {
        for (asked, found) in points(variant) {
            for (metric, truth) in truths(inject, asked, found) {
                let effect = analysis.effect(&variant.id, &asked.id, metric);
                all.extend(difference(effect, metric, truth));
            }
            if let Inject::CapPerS(cap) = inject {
                all.extend(level(trials, variant, asked, cap));
            }
        }
    }
    all
}

/// The metrics that a known cost changes, and by how much. For a delay of some requests, the mean is known.
fn truths(inject: Inject, asked: &LoadPoint, found: &Point) -> Vec<(Metric, f64)> {
    match inject {
        Inject::DelayNs(_) | Inject::DelayShareOfP50(_) if asked.is_steady() => {
            let spun = found.injected_ns.into_iter();
            spun.map(|ns| (Metric::ResponseP50, ns)).collect()
        }
        Inject::DelaySome { share, .. } if asked.is_steady() => {
            let waited = found.injected_ns.into_iter();
            waited
                .map(|ns| (Metric::ResponseMean, ns * share))
                .collect()
        }
        // Where the server is the limit, its work changes the rest of the cost of a request: the generator sleeps
        // between responses, and waking it is the server's time.
        Inject::BurnSteps(_) if asked.is_steady() => {
            let used = found.injected_ns.into_iter();
            used.map(|ns| (Metric::CpuPerRequest, ns)).collect()
        }
        Inject::HoldBytes(bytes) => vec![(Metric::AnonymousMemory, bytes as f64)],
        Inject::DelayNs(_)
        | Inject::DelayShareOfP50(_)
        | Inject::DelaySome { .. }
        | Inject::BurnSteps(_)
        | Inject::CapPerS(_)
        | Inject::LeakBytes(_) => Vec::new(),
    }
}

fn difference(effect: Option<&Effect>, metric: Metric, truth: f64) -> Option<GroundTruth> {
    let effect = effect?;
    Some(GroundTruth {
        variant: effect.variant.clone(),
        load_point: effect.load_point.clone(),
        metric,
        truth,
        found: effect.difference?,
        of_level: false,
    })
}

/// A cap is visible only where nothing else limits the throughput.
fn level(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    cap_per_s: f64,
) -> Option<GroundTruth> {
    if point.is_steady() {
        return None;
    }
    let valid = &trials.cell(&variant.id, &point.id).valid;
    let by_block = valid.iter().map(|t| (t.key, t.load.goodput_per_s()));
    let found: Estimate = Inference::of_mean(&unit_means_of(by_block))?.estimate_plain();
    Some(GroundTruth {
        variant: variant.id.clone(),
        load_point: point.id.clone(),
        metric: Metric::Throughput,
        truth: cap_per_s,
        found,
        of_level: true,
    })
}
