//! `meshtax advise`: a run's results for the choice of a mesh.

use meshtax_model::advice::{AdviceRequest, PresetRates};
use meshtax_model::analysis::{Analysis, Verdict};
use meshtax_model::experiment::Regime;

use crate::args::AdviseArgs;
use crate::exit::{Failure, Outcome, SUCCESS, TOO_FEW};
use crate::experiments;
use crate::runs::conclusion::has_result;
use crate::runs::stored;
use crate::terminal;

pub(crate) fn advise(args: &AdviseArgs) -> Outcome {
    let analysis = stored::analysis(&args.run)?;
    if !has_result(&analysis) {
        return Err(too_few(&analysis));
    }
    let advice = meshtax_stats::advise::advise(&analysis, &asked(args)?, &presets());
    terminal::print(&if args.json {
        meshtax_report::advice_json(&advice)
    } else {
        meshtax_report::advice_terminal(&advice, terminal::options())
    });
    Ok(SUCCESS)
}

/// The question, with the hops of the topology if one is named.
fn asked(args: &AdviseArgs) -> Result<AdviceRequest, Failure> {
    let mut asked = args.asked();
    if let Some(name) = &args.topology {
        let topology = experiments::topology(name)?;
        asked.hops = 1.0 + topology.topology.calls_per_request();
        asked.topology = Some(topology.name);
    }
    Ok(asked)
}

/// The rates that each preset measures, for questions that this run does not answer.
fn presets() -> Vec<PresetRates> {
    let presets = meshtax_spec::presets().iter();
    presets
        .filter_map(|shipped| {
            let experiment = experiments::preset(shipped.name).ok()?;
            // The services and users of a study are a different question.
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
        Verdict::NotEstimable { reason } => {
            Some(meshtax_report::not_estimable(reason, &effect.variant))
        }
        _ => None,
    });
    let why = why.unwrap_or_else(|| "nothing was compared".to_owned());
    let message = format!("this run has no effect with an interval: {why}");
    Failure::with_fix(
        TOO_FEW,
        message,
        "measure longer, as in `meshtax run --time 2m`",
    )
}
