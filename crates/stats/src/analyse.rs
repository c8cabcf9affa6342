//! From records to an [`Analysis`].

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::Analysis;

use crate::added_cpu::{added_cpu, veto_equivalence};
use crate::advise::decide;
use crate::attribution::attributions;
use crate::caveats::caveats;
use crate::effects::effects;
use crate::ground_truth::ground_truth;
use crate::ingress::ingress_costs;
use crate::interval::CONFIDENCE;
use crate::pairing::count_rounds;
use crate::ranking::comparisons;
use crate::run_data::RunData;
use crate::trials::Trials;
use crate::{cluster, noise, points};

pub(crate) fn analyse(data: &RunData<'_>) -> Analysis {
    let trials = Trials::new(data);
    let blocks = trials.blocks();
    let (mut effects, noise_floor) = effects(&trials);
    let added_cpu = added_cpu(&trials, &effects);
    veto_equivalence(&mut effects, &added_cpu);
    let mut analysis = Analysis {
        format_version: FORMAT_VERSION,
        run: data.run.clone(),
        experiment: data.experiment.clone(),
        environment: cluster::environment(data),
        confidence: CONFIDENCE,
        rounds: count_rounds(&blocks),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        variants: trials
            .variants()
            .iter()
            .map(|variant| points::variant(&trials, variant))
            .collect(),
        added_cpu,
        effects,
        comparisons: comparisons(&trials, &noise_floor),
        attribution: attributions(&trials),
        ingress: ingress_costs(&trials),
        noise: noise::facts(&trials),
        round_log: trials.round_log(),
        events: cluster::events(data.cluster),
        monitoring: None,
        noise_floor,
        decision: None,
        ground_truth: Vec::new(),
        caveats: Vec::new(),
    };
    analysis.ground_truth = ground_truth(&trials, &analysis);
    analysis.decision = decide(&analysis, &[]);
    analysis.caveats = caveats(&trials, &analysis);
    analysis
}
