//! Loads that were not carried, and what limited them.

use meshtax_model::analysis::{Caveat, VariantTrials};

use super::words::{all, percent, trials as counted};
use crate::view::outcome::{overload, shortfall};
use crate::view::source::Loads;

pub(super) fn sentence(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::Overloaded {
            variant,
            load_point,
            overload: found,
        } => format!(
            "{variant} is overloaded {}: it {}. Its latencies are lower bounds.",
            loads.at(load_point),
            overload(found)
        ),
        Caveat::BeyondMachine {
            load_point,
            trials,
            of,
        } => format!(
            "The load {} is beyond this machine: the baselines did not carry it in {trials} of {of} trials, so only an \
             overload can be shown there.",
            loads.at(load_point)
        ),
        Caveat::ShortTrials {
            variant,
            load_point,
            trials,
            of,
            shortfalls,
        } => format!(
            "{variant} did not carry the load {} in {trials} of {of} trials ({}). They count.",
            loads.at(load_point),
            all(shortfalls, |one| shortfall(*one).to_owned())
        ),
        Caveat::GeneratorBoundBaselines { .. } | Caveat::GeneratorBoundCandidates { .. } => {
            return generator_bound(caveat, loads);
        }
        Caveat::BusyAtSteady {
            variant,
            load_point,
            busy_share,
        } => format!(
            "{variant} kept its cores {} busy {}, so much of its latency is queueing: a lower rate shows the cost of the \
             path alone.",
            percent(*busy_share),
            loads.at(load_point)
        ),
        _ => return None,
    })
}

/// The generator was the limit in a closed loop.
fn generator_bound(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::GeneratorBoundBaselines { load_point, trials } => format!(
            "The generator was the limit {} in {} of the baselines: their throughput is a lower bound, and a mesh costs at \
             least as much throughput as shown.",
            loads.at(load_point),
            counted(*trials)
        ),
        Caveat::GeneratorBoundCandidates {
            load_point,
            variants,
            baselines_too,
        } => {
            let so = match baselines_too {
                true => {
                    "as it was with the baselines, their cost in throughput has no bound on either side"
                }
                false => "they cost at most as much throughput as shown",
            };
            let variants = all(variants, |of: &VariantTrials| {
                format!("{} ({})", of.variant, counted(of.trials))
            });
            format!(
                "The generator was the limit {} with {variants}: {so}.",
                loads.at(load_point)
            )
        }
        _ => return None,
    })
}
