//! Properties of the cluster that affect the choice, and the relevant features of meshes. The report adds what is
//! published about these features: it is not a result of a run.

use meshtax_model::advice::{AdviceRequest, Need, Question, Topic};

/// The effects of the network plug-in, the cluster's operator, and validated cryptography.
pub(super) fn questions(asked: &AdviceRequest) -> Vec<Question> {
    let cni = asked.cni.clone().map(|name| Topic::Cni { name });
    let managed = asked.managed.clone().map(|name| Topic::Managed { name });
    let fips = asked.needs.contains(&Need::Fips).then_some(Topic::Fips);
    [cni, managed, fips]
        .into_iter()
        .flatten()
        .map(|topic| Question {
            features: features(&topic).iter().map(|f| (*f).to_owned()).collect(),
            topic,
        })
        .collect()
}

fn features(topic: &Topic) -> &'static [&'static str] {
    match topic {
        Topic::Cni { .. } => &["cni-needs", "kube-proxy-needs", "encryption"],
        Topic::Managed { .. } => &["managed-offers"],
        Topic::Fips => &["fips", "encryption"],
    }
}
