//! `meshtax advise`: what a run says to somebody who has to choose.

use meshtax_model::advice::{Asked, Fact, Facts, PresetRates};
use meshtax_model::analysis::{Analysis, Verdict};
use meshtax_model::experiment::Regime;
use meshtax_model::graph::Graph;
use meshtax_stats::advise::Known;

use super::run::{answers, preset};
use super::{analysis, topologies};
use crate::args::AdviseArgs;
use crate::exit::{Failure, Outcome, SUCCESS, TOO_FEW};
use crate::terminal;

pub(crate) fn advise(args: &AdviseArgs) -> Outcome {
    let analysis = analysis::of_directory(&args.run)?;
    if !answers(&analysis) {
        return Err(too_few(&analysis));
    }
    let known = Known {
        facts: &facts(),
        presets: &presets(),
    };
    let advice = meshtax_stats::advise::advise(&analysis, &asked(args)?, known);
    terminal::print(&if args.json {
        meshtax_report::advice_json(&advice)
    } else {
        meshtax_report::advice_terminal(&advice, terminal::options())
    });
    Ok(SUCCESS)
}

/// With the hops of the services that were named, if they were.
fn asked(args: &AdviseArgs) -> Result<Asked, Failure> {
    let mut asked = args.asked();
    if let Some(name) = &args.topology {
        let topology = topologies::find(name)?;
        let calls = topology.graph.as_ref().map(Graph::calls_per_request);
        asked.hops = 1.0 + calls.unwrap_or(0.0);
        asked.topology = Some(topology.name);
    }
    Ok(asked)
}

/// What is known of the meshes, by mesh and feature. What no source was found for is not there.
fn facts() -> Facts {
    let known = meshtax_published::meshes();
    let of_mesh = |id: &str| {
        let features = known.features.iter();
        let facts = features.filter_map(|feature| {
            let fact = feature.of(id)?;
            let fact = Fact {
                answer: fact.answer.as_str().to_owned(),
                words: fact.words.clone(),
                source: fact.source.clone()?,
            };
            Some((feature.id.clone(), fact))
        });
        facts.collect()
    };
    let meshes = known.meshes.iter();
    Facts(
        meshes
            .map(|mesh| (mesh.id.clone(), of_mesh(&mesh.id)))
            .collect(),
    )
}

/// What each preset measures, for whoever asks for what this run did not.
fn presets() -> Vec<PresetRates> {
    let presets = meshtax_spec::presets().iter();
    presets
        .filter_map(|shipped| {
            let experiment = preset(shipped.name).ok()?;
            // A study's services and users are another question.
            if experiment.study.is_some() {
                return None;
            }
            let points = experiment.load_points.iter();
            let rates = points.filter_map(|point| match point.load {
                Regime::Steady { rate_per_s, .. } => Some(rate_per_s),
                Regime::Saturated => None,
            });
            Some(PresetRates {
                name: shipped.name.to_owned(),
                rates_per_s: rates.collect(),
            })
        })
        .collect()
}

fn too_few(analysis: &Analysis) -> Failure {
    let mut effects = analysis.effects.iter();
    let why = effects.find_map(|effect| match &effect.verdict {
        Verdict::NotEstimable { reason } => Some(reason.as_str()),
        _ => None,
    });
    let why = why.unwrap_or("nothing was compared");
    let message = format!("this run has no figure with an interval: {why}");
    Failure::with_fix(
        TOO_FEW,
        message,
        "measure for longer, as in `meshtax run --time 2m`",
    )
}
