//! Documents for programs.

use meshtax_model::FORMAT_VERSION;
use meshtax_published::{BaseUnit, Column, Fact, Feature, Mesh, Meshes, ResultSet};
use serde::Serialize;

pub(crate) fn pretty(what: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(what)
        .unwrap_or_else(|_| unreachable!("plain data with text keys is always JSON"));
    text.push('\n');
    text
}

/// All result sets without their figures.
#[must_use]
pub fn published_list_json(sets: &[ResultSet]) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        name: &'a str,
        title: &'a str,
        by: &'a str,
        source: &'a str,
        url: Option<&'a str>,
        date: Option<&'a str>,
        measures: &'a str,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        results: Vec<Entry<'a>>,
    }
    let results = sets.iter().map(|set| Entry {
        name: &set.name,
        title: &set.title,
        by: &set.by,
        source: &set.source,
        url: set.url.as_deref(),
        date: set.date.as_deref(),
        measures: &set.measures,
    });
    pretty(&Document {
        format_version: FORMAT_VERSION,
        results: results.collect(),
    })
}

/// One result set, whole: each figure with the digits of its source and in base units.
#[must_use]
pub fn published_json(set: &ResultSet) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        result: &'a ResultSet,
        /// The unit of `value` in each column.
        base_units: Vec<BaseUnit>,
    }
    pretty(&Document {
        format_version: FORMAT_VERSION,
        result: set,
        base_units: set.columns.iter().map(Column::base_unit).collect(),
    })
}

/// All facts of all meshes.
#[must_use]
pub fn meshes_json(meshes: &Meshes) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        read: &'a str,
        meshes: &'a [Mesh],
        features: &'a [Feature],
    }
    pretty(&Document {
        format_version: FORMAT_VERSION,
        read: &meshes.read,
        meshes: &meshes.meshes,
        features: &meshes.features,
    })
}

/// The facts of one mesh, by the ids of the features.
#[must_use]
pub fn mesh_json(meshes: &Meshes, mesh: &Mesh) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        feature: &'a str,
        name: &'a str,
        fact: &'a Fact,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        mesh: &'a Mesh,
        facts: Vec<Entry<'a>>,
    }
    let facts = meshes.features.iter().filter_map(|feature| {
        Some(Entry {
            feature: &feature.id,
            name: &feature.name,
            fact: feature.of(&mesh.id)?,
        })
    });
    pretty(&Document {
        format_version: FORMAT_VERSION,
        mesh,
        facts: facts.collect(),
    })
}
