//! What a run says to somebody who has to choose: an [`Analysis`] and questions -> [`Advice`].
//!
//! Nothing is measured or estimated anew here. An objective is held against the interval of a level, a cost is an
//! effect times how often it occurs, and a ranking is the run's own paired comparisons. What was not measured is
//! said to be missing: there is no extrapolation to other rates, and no zero in place of a figure.
//!
//! Why an objective that is met at a higher rate is not met at a lower one by that: latency does not fall with the
//! rate. Idle processors sleep, caches cool down, and batches become small; published measurements have a median at
//! 160 requests/s that is more than twice the one at 16,000.

mod costs;
mod facts;
mod needs;
mod objectives;
mod ranking;

use meshtax_model::FORMAT_VERSION;
use meshtax_model::advice::{
    Advice, AdvisedVariant, Asked, Facts, PresetRates, ProxyPlace, Standing,
};
use meshtax_model::analysis::{Analysis, Estimate, Interval, VariantAnalysis};
use meshtax_model::comparison::ComparedRun;
use meshtax_model::experiment::{Role, Variant, VariantId};

/// What is known besides the run.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Of meshes.
    pub facts: &'a Facts,
    /// What could be run to measure what this run did not.
    pub presets: &'a [PresetRates],
}

/// Answers what is asked from one run.
///
/// Never panics, whatever the analysis holds: what cannot be told is said to be so.
#[must_use]
pub fn advise(analysis: &Analysis, asked: &Asked, known: Known<'_>) -> Advice {
    let variants: Vec<AdvisedVariant> = analysis
        .experiment
        .variants
        .iter()
        .filter(|variant| variant.role != Role::Control)
        .map(|variant| advised(analysis, variant))
        .collect();
    let sufficient = needs::sufficient(&variants, &asked.needs);
    let objectives = asked
        .objectives
        .iter()
        .map(|objective| objectives::answer(analysis, &variants, objective, known.presets))
        .collect();
    let candidates = analysis.experiment.variants.iter();
    let candidates = candidates.filter(|variant| variant.role == Role::Candidate);
    Advice {
        format_version: FORMAT_VERSION,
        run: ComparedRun {
            run: analysis.run.clone(),
            rounds: analysis.rounds,
            blocks: analysis.blocks,
        },
        experiment: analysis.experiment.name.clone(),
        environment: analysis.environment.clone(),
        confidence: analysis.confidence,
        asked: asked.clone(),
        needs: needs::answers(&variants, &asked.needs),
        objectives,
        costs: candidates
            .filter(|variant| measured(analysis, &variant.id).is_some())
            .map(|variant| costs::cost(analysis, asked, variant))
            .collect(),
        priorities: ranking::priorities(analysis, asked, &variants, &sufficient, known.facts),
        questions: facts::questions(asked, known.facts),
        caveats: analysis.caveats.clone(),
        variants,
        sufficient,
    }
}

/// What was found of a variant, if it was measured.
fn measured<'a>(analysis: &'a Analysis, id: &VariantId) -> Option<&'a VariantAnalysis> {
    let mut all = analysis.variants.iter();
    all.find(|found| found.variant == *id && found.left_out.is_none())
}

fn advised(analysis: &Analysis, variant: &Variant) -> AdvisedVariant {
    let found = analysis.variants.iter().find(|f| f.variant == variant.id);
    AdvisedVariant {
        variant: variant.id.clone(),
        data_plane: variant.data_plane.clone(),
        level: variant.level,
        standing: standing(variant),
        mesh: mesh(&variant.data_plane).map(str::to_owned),
        left_out: match found {
            Some(found) => found.left_out.clone(),
            None => Some("nothing of it is on record".to_owned()),
        },
        gives: needs::gives(variant, found),
    }
}

fn standing(variant: &Variant) -> Standing {
    match variant.data_plane.as_str() {
        _ if variant.role != Role::Candidate => Standing::Baseline,
        name if name.starts_with("limit-") => Standing::Floor,
        name if name.starts_with("node-proxy") => Standing::Emulation,
        _ => Standing::Choice,
    }
}

/// The mesh that a data plane stands for, as [`Facts`] call it.
fn mesh(data_plane: &str) -> Option<&'static str> {
    let starts = |name| data_plane.starts_with(name);
    match () {
        () if starts("envoy-sidecar") => Some("istio-sidecar"),
        () if starts("ztunnel") => Some("istio-ambient"),
        () if starts("linkerd") => Some("linkerd"),
        () => None,
    }
}

/// Where a data plane has its proxies.
fn place(data_plane: &str) -> ProxyPlace {
    match data_plane {
        // A ztunnel that belongs to one pod alone.
        "ztunnel-dedicated" => ProxyPlace::Pod,
        name if name.starts_with("ztunnel") || name.starts_with("node-proxy") => ProxyPlace::Node,
        _ => ProxyPlace::Pod,
    }
}

/// Each end so many times; `None` if that is no number.
fn times(estimate: Estimate, factor: f64) -> Option<Estimate> {
    map(estimate, |value| value * factor)
}

fn map(estimate: Estimate, to: impl Fn(f64) -> f64) -> Option<Estimate> {
    let interval = estimate.interval.map(|interval| Interval {
        low: to(interval.low),
        high: to(interval.high),
    });
    let interval = interval.filter(|i| i.low.is_finite() && i.high.is_finite());
    let value = to(estimate.value);
    value.is_finite().then_some(Estimate { value, interval })
}
