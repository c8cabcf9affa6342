//! From a variant's evidence to the reason why it cannot be measured.

use meshtax_model::evidence::{Evidence, FailedProbe, ProbeId};
use meshtax_model::failure::{ComponentFailure, VariantFailureReason};

use crate::subject::Subject;
use crate::verify::missing_proxies;

/// Why a variant does not count as verified; `None`: it does. `ended`: its processes that ended on their own.
#[must_use]
pub fn judge(
    subject: &Subject<'_>,
    evidence: &Evidence,
    ended: Vec<ComponentFailure>,
) -> Option<VariantFailureReason> {
    let mut probes = most_telling_first(evidence.failed_probes());
    let missing_proxies = match probes.as_slice() {
        [] => Vec::new(),
        _ => missing_proxies(subject),
    };
    // These wait for a response, and end with the process: they report no more than its last output.
    if !ended.is_empty() {
        probes.retain(|failed| {
            !matches!(
                failed.probe,
                ProbeId::PermittedRequest | ProbeId::AdditionalPort | ProbeId::ThroughGateway
            )
        });
    }
    let is_proven = ended.is_empty() && missing_proxies.is_empty() && probes.is_empty();
    (!is_proven).then_some(VariantFailureReason::NotProven {
        ended,
        missing_proxies,
        probes,
    })
}

/// That the traffic is readable is more telling than that a request got no response, which follows from all others.
fn most_telling_first(mut failed: Vec<FailedProbe>) -> Vec<FailedProbe> {
    failed.sort_by_key(|failed| match failed.probe {
        ProbeId::Canary => 0,
        ProbeId::PermittedRequest => 2,
        _ => 1,
    });
    failed
}
