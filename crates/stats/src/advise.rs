//! Advice for choosing a data plane: an [`Analysis`] and a request -> [`Advice`].
//!
//! Nothing is measured or estimated again here. An objective is compared with the interval of a level, a cost is an
//! effect times how often it occurs, and a ranking is the run's own paired comparisons. What was not measured is
//! reported as missing: there is no extrapolation to other rates, and no zero in place of a figure.
//!
//! An objective that is met at a higher rate is not assumed to be met at a lower one: latency does not decrease with
//! the rate. Idle processors sleep, caches cool down, and batches become small; published measurements have a median at
//! 160 requests/s that is more than twice the one at 16,000.

mod costs;
mod decision;
mod estimates;
mod measured;
mod needs;
mod objectives;
mod planes;
mod questions;
mod ranking;
mod relation;

use meshtax_model::FORMAT_VERSION;
use meshtax_model::advice::{Advice, AdviceRequest, AdvisedVariant, PresetRates};
use meshtax_model::analysis::{Analysis, Decision, ExclusionReason, Weight};
use meshtax_model::comparison::ComparedRun;
use meshtax_model::experiment::{Role, Variant};

use measured::measured;
use planes::{mesh, standing};

/// Computes the requested advice from one run. `presets`: those that could measure what this run did not.
///
/// Never panics, for any analysis: missing figures are reported as such.
#[must_use]
pub fn advise(analysis: &Analysis, asked: &AdviceRequest, presets: &[PresetRates]) -> Advice {
    let variants = all_advised(analysis);
    let sufficient = needs::sufficient(&variants, &asked.needs);
    let objectives = asked
        .objectives
        .iter()
        .map(|objective| objectives::answer(analysis, &variants, objective, presets))
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
        priorities: ranking::priorities(analysis, asked, &variants, &sufficient),
        decision: decision::decision(analysis, asked, &variants, &sufficient),
        questions: questions::questions(asked),
        caveats: analysis.caveats.clone(),
        variants,
        sufficient,
    }
}

/// The decision table of a run: what it suggests for each requirement, and for all that have a weight together. `None`: no
/// two variants do the same work.
#[must_use]
pub fn decide(analysis: &Analysis, weights: &[Weight]) -> Option<Decision> {
    let asked = AdviceRequest {
        weights: weights.to_vec(),
        ..AdviceRequest::default()
    };
    decision::decision(analysis, &asked, &all_advised(analysis), &[])
}

/// In the experiment's order, without the control.
fn all_advised(analysis: &Analysis) -> Vec<AdvisedVariant> {
    let variants = analysis.experiment.variants.iter();
    variants
        .filter(|variant| variant.role != Role::Control)
        .map(|variant| advised(analysis, variant))
        .collect()
}

fn advised(analysis: &Analysis, variant: &Variant) -> AdvisedVariant {
    let found = analysis.variants.iter().find(|f| f.variant == variant.id);
    AdvisedVariant {
        variant: variant.id.clone(),
        data_plane: variant.data_plane.clone(),
        level: variant.level,
        standing: standing(variant),
        mesh: mesh(&variant.data_plane).map(str::to_owned),
        excluded: match found {
            Some(found) => found.excluded.clone(),
            None => Some(ExclusionReason::NoTrials),
        },
        gives: needs::gives(variant, found),
    }
}
