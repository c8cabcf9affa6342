//! Facts about meshes: features and operations, each with the page that supports it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::error::DataError;

/// A mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mesh {
    /// Stable: `istio-sidecar`, `istio-ambient`, `linkerd`, `cilium`.
    pub id: String,
    /// For people.
    pub name: String,
}

/// A feature, or a requirement of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// Stable: `traffic-shifting`.
    pub id: String,
    /// For people.
    pub name: String,
    /// A fact for each mesh, in the order of [`Meshes::meshes`].
    pub facts: Vec<Fact>,
}

/// A fact about one feature of one mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Id of the mesh.
    pub mesh: String,
    /// The short answer.
    pub answer: Answer,
    /// Details; empty if the answer needs none.
    pub words: String,
    /// The page that supports it; `None` exactly if the answer is unknown.
    pub source: Option<String>,
    /// A second page.
    pub also: Option<String>,
    /// The day on which the source was read, `YYYY-MM-DD`; `None` exactly if there is no source.
    pub read: Option<String>,
}

/// The short answer of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Answer {
    /// Supported.
    Yes,
    /// In part, or under conditions that the details name.
    Partly,
    /// Not supported.
    No,
    /// No source was found.
    Unknown,
    /// Another answer: `quarterly`.
    Text(String),
}

impl Answer {
    /// As it is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Text(text) => text,
        }
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        match text.as_str() {
            "yes" => Self::Yes,
            "partly" => Self::Partly,
            "no" => Self::No,
            "unknown" => Self::Unknown,
            _ => Self::Text(text),
        }
    }
}

impl From<Answer> for String {
    fn from(answer: Answer) -> Self {
        answer.as_str().to_owned()
    }
}

/// All facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meshes {
    /// The day on which sources were read, unless a fact has its own.
    pub read: String,
    /// The meshes, in the order of the tables.
    pub meshes: Vec<Mesh>,
    /// The features, in the order of the tables.
    pub features: Vec<Feature>,
}

impl Meshes {
    /// The mesh of this id.
    #[must_use]
    pub fn mesh(&self, id: &str) -> Option<&Mesh> {
        self.meshes.iter().find(|m| m.id == id)
    }

    /// The feature of this id.
    #[must_use]
    pub fn feature(&self, id: &str) -> Option<&Feature> {
        self.features.iter().find(|f| f.id == id)
    }
}

impl Feature {
    /// The fact of the mesh of this id.
    #[must_use]
    pub fn of(&self, mesh: &str) -> Option<&Fact> {
        self.facts.iter().find(|f| f.mesh == mesh)
    }
}

/// All facts of all meshes.
#[must_use]
pub fn meshes() -> &'static Meshes {
    &MESHES
}

/// The fact about a feature of a mesh, by their ids. `None`: there is no such mesh or feature.
#[must_use]
pub fn fact(mesh: &str, feature: &str) -> Option<&'static Fact> {
    meshes().feature(feature)?.of(mesh)
}

const FILE: &str = include_str!("../data/meshes.yaml");

static MESHES: LazyLock<Meshes> = LazyLock::new(|| {
    parse(FILE).unwrap_or_else(|why| unreachable!("the tests parse this file: {why}"))
});

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    read: String,
    meshes: Vec<Mesh>,
    features: Vec<FileFeature>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFeature {
    id: String,
    name: String,
    facts: BTreeMap<String, FileFact>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileFact {
    answer: Answer,
    #[serde(default)]
    words: String,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    also: Option<String>,
    #[serde(default)]
    read: Option<String>,
}

/// Parses the file.
fn parse(text: &str) -> Result<Meshes, DataError> {
    let file: File = serde_saphyr::from_str(text)?;
    let features: Result<Vec<Feature>, DataError> = file
        .features
        .into_iter()
        .map(|f| feature(f, &file.meshes, &file.read))
        .collect();
    Ok(Meshes {
        read: file.read,
        meshes: file.meshes,
        features: features?,
    })
}

fn feature(from: FileFeature, meshes: &[Mesh], read: &str) -> Result<Feature, DataError> {
    let FileFeature {
        id,
        name,
        mut facts,
    } = from;
    let mut ordered = Vec::new();
    for mesh in meshes {
        let Some(fact) = facts.remove(&mesh.id) else {
            let mesh = mesh.id.clone();
            return Err(DataError::MissingFact { feature: id, mesh });
        };
        let is_known = fact.answer != Answer::Unknown;
        if is_known != fact.source.is_some() {
            let mesh = mesh.id.clone();
            return Err(DataError::Source { feature: id, mesh });
        }
        ordered.push(Fact {
            mesh: mesh.id.clone(),
            answer: fact.answer,
            words: fact.words,
            source: fact.source,
            also: fact.also,
            read: is_known.then(|| fact.read.unwrap_or_else(|| read.to_owned())),
        });
    }
    if let Some((mesh, _)) = facts.pop_first() {
        return Err(DataError::UnknownMesh { feature: id, mesh });
    }
    Ok(Feature {
        id,
        name,
        facts: ordered,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_stable() {
        let meshes = meshes();
        let ids: Vec<&str> = meshes.meshes.iter().map(|m| m.id.as_str()).collect();
        assert_eq!(ids, ["istio-sidecar", "istio-ambient", "linkerd", "cilium"]);
        let features: Vec<&str> = meshes.features.iter().map(|f| f.id.as_str()).collect();
        let promised = "observability tracing retries timeouts fault-injection traffic-shifting mirroring \
                        circuit-breaking multi-cluster virtual-machines ingress gateway-api cni-needs \
                        kube-proxy-needs encryption identity helm-charts needs-storage managed-offers \
                        upgrade-cadence support-window support-contracts fips governance licence stable-releases";
        assert_eq!(features, promised.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn every_known_answer_has_a_source_and_a_date() {
        for feature in &meshes().features {
            let of: BTreeSet<&str> = feature.facts.iter().map(|f| f.mesh.as_str()).collect();
            assert_eq!(of.len(), meshes().meshes.len(), "{}", feature.id);
            for fact in &feature.facts {
                let named = format!("{} of {}", feature.id, fact.mesh);
                if fact.answer == Answer::Unknown {
                    assert!(fact.source.is_none() && fact.read.is_none(), "{named}");
                    assert!(fact.words.is_empty() && fact.also.is_none(), "{named}");
                    continue;
                }
                let sources = fact.source.iter().chain(&fact.also);
                assert!(
                    sources.clone().all(|s| s.starts_with("https://")),
                    "{named}"
                );
                assert!(fact.source.is_some(), "{named}");
                let read = fact.read.as_deref().unwrap();
                assert!(
                    read.len() == 10 && read.starts_with("20"),
                    "{named}: {read}"
                );
            }
        }
    }

    #[test]
    fn answers_fit_a_table_of_four_meshes() {
        for feature in &meshes().features {
            assert!(feature.name.chars().count() <= 18, "{}", feature.name);
            for fact in &feature.facts {
                let answer = fact.answer.as_str();
                assert!(answer.chars().count() <= 18, "{}: {answer}", feature.id);
            }
        }
    }

    #[test]
    fn fact_is_found_by_mesh_and_feature() {
        assert_eq!(fact("linkerd", "ingress").unwrap().answer, Answer::No);
        assert_eq!(
            fact("istio-ambient", "virtual-machines").unwrap().answer,
            Answer::No
        );
        assert_eq!(
            fact("linkerd", "stable-releases").unwrap().answer,
            Answer::No
        );
        assert!(fact("linkerd", "speed").is_none() && fact("consul", "ingress").is_none());
    }

    fn rejected(from: &str, to: &str) -> DataError {
        let bad = FILE.replacen(from, to, 1);
        assert_ne!(FILE, bad, "{from} is in the file");
        parse(&bad).unwrap_err()
    }

    #[test]
    fn invalid_files_are_rejected() {
        let error = rejected("        source: https", "        sauce: https");
        assert!(matches!(error, DataError::Yaml(_)), "{error}");
        let error = rejected("        answer: \"yes\"", "        answer: unknown");
        assert!(matches!(error, DataError::Source { .. }), "{error}");
        let error = rejected("      linkerd:", "      linkerd2:");
        assert!(
            matches!(&error, DataError::MissingFact { mesh, .. } if mesh == "linkerd"),
            "{error}"
        );
        let error = rejected("  - {id: cilium, name: Cilium}\n", "");
        assert!(
            matches!(&error, DataError::UnknownMesh { mesh, .. } if mesh == "cilium"),
            "{error}"
        );
    }
}
