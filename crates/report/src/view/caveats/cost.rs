//! Costs that are not in the expected order, and figures from elsewhere.

use meshtax_model::analysis::{Caveat, Metric};
use meshtax_model::experiment::VariantId;

use super::words::signed;
use crate::view::source::Loads;

pub(super) fn sentence(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::BaselinesDiffer {
            metric,
            load_point,
            change,
        } => format!(
            "The baseline differs from itself (A/A) {}: {} {}. Differences of that size are noise here.",
            loads.at(load_point),
            metric.name(),
            signed(*change)
        ),
        Caveat::CheaperThanNoMesh {
            variant,
            metric,
            load_point,
            change,
        } => cheaper(variant, *metric, &loads.at(load_point), *change),
        Caveat::HigherLevelCheaper {
            higher,
            lower,
            metric,
            load_point,
            change,
        } => format!(
            "{higher} costs less than {lower} {} ({} {}), although its policy level is higher: check for noise or an \
             unequal path.",
            loads.at(load_point),
            metric.name(),
            signed(*change)
        ),
        Caveat::BelowFloor {
            floor,
            variant,
            metric,
            load_point,
            change,
        } => format!(
            "{floor} is a reference and not a floor {}: {variant} costs less ({} {}).",
            loads.at(load_point),
            metric.name(),
            signed(*change)
        ),
        Caveat::PublishedFigures { study } => format!(
            "Figures published as {study} are shown beside the measured ones, as requested: they are from other \
             machines, another load and another application. `meshtax published show {study}` has their source."
        ),
        _ => return None,
    })
}

fn cheaper(variant: &VariantId, metric: Metric, at: &str, change: f64) -> String {
    let how = match metric {
        Metric::CpuPerRequest => "uses less CPU than",
        Metric::AnonymousMemory => "uses less memory than",
        _ => "is faster than",
    };
    format!(
        "{variant} {how} no mesh {at} ({} {}): check for noise, pooling or load balancing. Nothing was excluded because \
         of it.",
        metric.name(),
        signed(change)
    )
}
