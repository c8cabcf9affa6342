//! Facts of meshes, side by side. They come with their words and sources; nothing is made of them here.

use meshtax_model::advice::{Asked, Facts, FeatureFacts, MeshFact, Need, Question};

/// Each feature for every mesh that anything is known of.
pub(super) fn side_by_side(facts: &Facts, features: &[&str]) -> Vec<FeatureFacts> {
    let of_feature = |feature: &&str| FeatureFacts {
        feature: (*feature).to_owned(),
        meshes: facts
            .0
            .iter()
            .map(|(mesh, known)| MeshFact {
                mesh: mesh.clone(),
                fact: known.get(*feature).cloned(),
            })
            .collect(),
    };
    features.iter().map(of_feature).collect()
}

/// What a network plug-in, whoever runs the cluster, and validation change.
pub(super) fn questions(asked: &Asked, facts: &Facts) -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |asked: String, features: &[&str]| {
        questions.push(Question {
            asked,
            facts: side_by_side(facts, features),
        });
    };
    if let Some(cni) = &asked.cni {
        ask(
            format!("--cni {cni}"),
            &["cni-needs", "kube-proxy-needs", "encryption"],
        );
    }
    if let Some(managed) = &asked.managed {
        ask(format!("--managed {managed}"), &["managed-offers"]);
    }
    if asked.needs.contains(&Need::Fips) {
        ask("--need fips".to_owned(), &["fips", "encryption"]);
    }
    questions
}
