//! The programs of the proxies: which build of each ran, and how it was built.

use meshtax_model::environment::Artifact;

use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table};

/// Digits of a digest that distinguish builds.
const DIGEST: usize = 12;

/// As much of a hash as distinguishes builds.
pub(crate) fn digest(sha256: &str) -> String {
    sha256.chars().take(DIGEST).collect()
}

/// One row for each build of each data plane's programs.
pub(crate) fn table(source: Source<'_>) -> Table {
    let text = |name, keep| Column::new(name, Align::Left, keep);
    Table {
        title: "Programs".to_owned(),
        detail: "builds, as far as files and programs reveal them".to_owned(),
        columns: vec![
            text("data plane", Keep::Always),
            text("program", Keep::Always),
            text("version", Keep::Always),
            Column::new("workers", Align::Right, Keep::Always),
            text("profile", Keep::Always),
            text("LTO", Keep::Always),
            text("allocator", Keep::Always),
            text("crypto", Keep::Always),
            text("compiler", Keep::Always),
            text("SHA-256", Keep::Always),
            text("from", Keep::Always),
        ],
        rows: source
            .analysis
            .environment
            .artifacts
            .iter()
            .map(row)
            .collect(),
        footnotes: Vec::new(),
    }
}

fn row(artifact: &Artifact) -> Vec<Cell> {
    let build = &artifact.build;
    let read = |fact: &Option<String>| match fact {
        Some(fact) => Cell::text(fact.clone()),
        None => Cell::missing(),
    };
    vec![
        Cell::text(artifact.data_plane.clone()),
        Cell::text(artifact.program.clone()),
        Cell::text(artifact.version.clone()),
        match artifact.workers {
            Some(workers) => Cell::text(workers.to_string()),
            None => Cell::missing(),
        },
        read(&build.profile),
        read(&build.lto),
        read(&build.allocator),
        read(&build.crypto),
        read(&build.compiler),
        Cell::text(digest(&artifact.sha256)),
        Cell::text(artifact.origin.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_number_of_workers_is_missing_and_not_a_number() {
        let workers = |workers| {
            let artifact = Artifact {
                workers,
                ..Artifact::default()
            };
            row(&artifact)[3].clone()
        };
        assert_eq!(workers(None), Cell::missing());
        assert_eq!(workers(Some(2)), Cell::text("2"));
    }
}
