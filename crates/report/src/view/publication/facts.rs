//! What the measured meshes' projects document: facts, none of them measured.

use meshtax_model::catalogue;
use meshtax_published::{Mesh, PageContent, meshes};

use super::section::Section;
use crate::view::published;
use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table};

const NEEDS: [&str; 3] = ["cni-needs", "kube-proxy-needs", "needs-storage"];
const INTEGRATION: [&str; 3] = ["helm-charts", "ingress", "gateway-api"];
const SUPPORT: [&str; 2] = ["managed-offers", "support-contracts"];
const UPGRADES: [&str; 3] = ["stable-releases", "upgrade-cadence", "support-window"];
const COMPLIANCE: [&str; 3] = ["fips", "encryption", "identity"];

/// The meshes whose data planes the run has, each once.
fn measured(source: Source<'_>) -> Vec<&'static Mesh> {
    let mut found: Vec<&Mesh> = Vec::new();
    for (asked, _) in source.variants() {
        let mesh = catalogue::find(&asked.data_plane).and_then(|plane| plane.family.mesh());
        let Some(mesh) = mesh.and_then(|id| meshes().mesh(id)) else {
            continue;
        };
        if !found.iter().any(|known| known.id == mesh.id) {
            found.push(mesh);
        }
    }
    found
}

/// A row for each feature and mesh; empty: no mesh was measured.
fn table(source: Source<'_>, title: &str, features: &[&str]) -> Table {
    let left = |head: &str| Column::new(head, Align::Left, Keep::Always);
    let meshes_here = measured(source);
    let mut rows = Vec::new();
    for feature in features.iter().filter_map(|id| meshes().feature(id)) {
        let mut name = Cell::text(&feature.name);
        for mesh in &meshes_here {
            let Some(fact) = feature.of(&mesh.id) else {
                continue;
            };
            let source = fact
                .source
                .as_deref()
                .map_or_else(Cell::missing, Cell::text);
            rows.push(vec![
                std::mem::replace(&mut name, Cell::empty()),
                Cell::text(&mesh.name),
                published::answer(&fact.answer),
                Cell::text(&fact.words),
                source,
            ]);
        }
    }
    Table {
        title: title.to_owned(),
        detail: format!(
            "documented, not measured; sources read on {}",
            meshes().read
        ),
        columns: ["", "mesh", "answer", "", "source"].map(left).to_vec(),
        rows,
        footnotes: Vec::new(),
    }
}

pub(super) fn prerequisites(source: Source<'_>) -> Section {
    Section::new("Prerequisites", &[PageContent::Prerequisites]).tables([table(
        source,
        "What each mesh needs",
        &NEEDS,
    )])
}

/// What the study calls operational impact.
pub(super) fn operation(source: Source<'_>) -> Section {
    let contents = [
        PageContent::Integration,
        PageContent::CloudProviders,
        PageContent::SupportContracts,
        PageContent::UpgradeCycle,
    ];
    Section::new("Operation", &contents).tables([
        table(source, "Integration", &INTEGRATION),
        table(source, "Support", &SUPPORT),
        table(source, "Upgrades", &UPGRADES),
    ])
}

pub(super) fn compliance(source: Source<'_>) -> Section {
    Section::new("Compliance", &[PageContent::Compliance]).tables([table(
        source,
        "Compliance and encryption",
        &COMPLIANCE,
    )])
}
