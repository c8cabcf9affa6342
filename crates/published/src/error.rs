//! What can be wrong with a data file.

/// Why a data file is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// It is not valid YAML, or has other fields.
    #[error(transparent)]
    Yaml(#[from] serde_saphyr::Error),
    /// A feature lacks a fact about a mesh.
    #[error("{feature}: no fact about {mesh}")]
    MissingFact { feature: String, mesh: String },
    /// A fact without a source, or a source without a fact.
    #[error("{feature} of {mesh}: a known answer needs a source, an unknown one has none")]
    Source { feature: String, mesh: String },
    /// A fact about a mesh that is not listed.
    #[error("{feature}: {mesh} is not in the list of meshes")]
    UnknownMesh { feature: String, mesh: String },
    /// A row whose length does not match columns and factors.
    #[error("{set}: {row}: expected a figure per column and a setting per factor")]
    RowLength { set: String, row: String },
    /// A figure that is not a decimal number.
    #[error("{set}: {row}: `{text}` is not a decimal number")]
    NotANumber {
        set: String,
        row: String,
        text: String,
    },
}
