//! From records to an [`Analysis`].

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Analysis, Effect};

use crate::RunData;
use crate::attribution::attributions;
use crate::caveats::caveats;
use crate::effects::effects;
use crate::ground_truth::ground_truth;
use crate::interval::{CONFIDENCE, UNITS_MIN};
use crate::pairing::count_rounds;
use crate::ranking::comparisons;
use crate::trials::Trials;
use crate::{noise, points};

/// Measuring may stop on precision only after this many blocks.
pub(crate) const BLOCKS_BEFORE_STOPPING: u32 = 10;

pub(crate) fn analyse(data: &RunData<'_>) -> Analysis {
    let trials = Trials::new(data);
    let blocks = trials.blocks();
    let (effects, noise_floor) = effects(&trials);
    let mut analysis = Analysis {
        format_version: FORMAT_VERSION,
        run: data.run.clone(),
        experiment: data.experiment.clone(),
        environment: data.environment.clone(),
        confidence: CONFIDENCE,
        rounds: count_rounds(&blocks),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        variants: trials
            .variants()
            .iter()
            .map(|variant| points::variant(&trials, variant))
            .collect(),
        effects,
        comparisons: comparisons(&trials, &noise_floor),
        attribution: attributions(&trials),
        noise: noise::facts(&trials),
        noise_floor,
        ground_truth: Vec::new(),
        caveats: Vec::new(),
    };
    analysis.ground_truth = ground_truth(&trials, &analysis);
    analysis.caveats = caveats(&trials, &analysis);
    analysis
}

pub(crate) fn precision_reached(analysis: &Analysis, half_width: f64) -> bool {
    let left_out = |effect: &Effect| {
        analysis
            .variants
            .iter()
            .any(|v| v.variant == effect.variant && v.left_out.is_some())
    };
    let mut waited_for = analysis
        .effects
        .iter()
        .filter(|effect| effect.primary && !left_out(effect))
        .peekable();
    waited_for.peek().is_some()
        && analysis.blocks >= BLOCKS_BEFORE_STOPPING
        && analysis.rounds as usize >= UNITS_MIN
        && waited_for.all(|effect| narrower(effect, half_width))
}

/// An effect that has no interval yet, such as a p99 that is not resolved, is waited for.
fn narrower(effect: &Effect, half_width: f64) -> bool {
    let interval = effect.relative.and_then(|estimate| estimate.interval);
    effect.rounds as usize >= UNITS_MIN
        && interval.is_some_and(|i| (i.high - i.low) / 2.0 < half_width)
}
