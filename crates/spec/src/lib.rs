//! What a person writes -> what is run: YAML specs, presets, human units, and the seeded plan.
//!
//! Pure: the text, the list of data planes and the seed are given by the caller.
#![forbid(unsafe_code)]

mod error;
mod fields;
mod parse;
mod plan;
mod presets;
mod service;
mod tree;
mod value;
mod variants;

use meshtax_model::experiment::{Experiment, PolicyLevel};

pub use error::SpecError;
pub use plan::{arrival_seed, block};
pub use presets::{Preset, preset, presets};
pub use value::{
    ValueError, count, duration_ns, inject, percentage, precision, rate_per_s, size_bytes,
    time_limit_ns, trial_ns, warmup_ns,
};
pub use variants::add_injected;

/// A data plane that a spec may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDataPlane {
    /// As it is written in a spec.
    pub name: String,
    /// The policy levels that it has; empty if it takes none.
    pub levels: Vec<PolicyLevel>,
}

impl KnownDataPlane {
    /// A data plane with its levels.
    #[must_use]
    pub fn new(name: &str, levels: impl Into<Vec<PolicyLevel>>) -> Self {
        Self {
            name: name.to_owned(),
            levels: levels.into(),
        }
    }
}

/// Reads a spec. `file` is how errors call it; `none` is known without being in `known`.
///
/// # Errors
/// The first thing that cannot be used: not YAML, an unknown or missing key, a value out of
/// range, an unknown data plane or level, a duplicate.
pub fn parse(file: &str, text: &str, known: &[KnownDataPlane]) -> Result<Experiment, SpecError> {
    tree::read(text)
        .and_then(|root| parse::experiment(&root, known))
        .map_err(|problem| SpecError::new(file, text, problem))
}
