//! Variants that could not be measured or verified, and what their proxies did while they were measured.

use meshtax_model::analysis::Caveat;

use crate::format;
use crate::view::reasons::{exclusion, variant_failure};
use crate::view::source::Loads;

pub(super) fn sentence(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::Excluded { variant, reason } => {
            format!("{variant} was excluded: {}.", exclusion(reason))
        }
        Caveat::FailedInRounds {
            variant,
            rounds,
            of,
            last,
        } => format!(
            "{variant} could not be measured in {rounds} of {of} rounds; last: {}.",
            variant_failure(last)
        ),
        Caveat::NoEvidence { variant, rounds } => format!(
            "{variant}: no evidence on record for {rounds} of the rounds in which it was measured."
        ),
        Caveat::NotWarm {
            variant,
            load_point,
            trials,
            of,
            most,
        } => format!(
            "{variant} {}: in {trials} of {of} trials its proxies opened connections to each other while they were \
             measured (up to {most}), so its figures include handshakes.",
            loads.at(load_point)
        ),
        Caveat::GrowingProxies {
            variant,
            load_point,
            trials,
            of,
        } => format!(
            "{variant} {}: the memory of its proxies grew throughout {trials} of {of} trials, so a longer run may need \
             more than is shown.",
            loads.at(load_point)
        ),
        Caveat::ClusterWarnings { reasons, events } => format!(
            "The cluster reported {events} {} about the run's pods ({}): the page lists its events with their times.",
            format::plural(*events as usize, "warning", "warnings"),
            reasons.join(", ")
        ),
        _ => return None,
    })
}
