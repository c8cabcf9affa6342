//! What a person writes -> what is run: YAML specs, presets, human units, and the seeded plan.
//!
//! Pure: the text, the list of data planes and the seed are given by the caller.
#![forbid(unsafe_code)]

mod error;
mod fields;
mod ingress;
mod limit;
mod objective;
mod options;
mod parse;
mod plan;
mod presets;
mod service;
mod sides;
mod topology;
mod tree;
mod value;
mod variants;

use meshtax_model::experiment::{Experiment, OptionKind, PolicyLevel};

pub use error::{SpecError, nearest};
pub use ingress::{enter_by_gateway, ingress};
pub use limit::{between, limit};
pub use objective::{hops, hourly_price, need, objective, priority};
pub use options::{PER_SERVICE, per_service};
pub use plan::{arrival_seed, block};
pub use presets::{Preset, preset, presets};
pub use sides::{SideError, Sides, interleave};
pub use topology::{Shipped, Topology, named as named_topology, shipped as topologies, topology};
pub use value::{
    ValueError, count, duration_ns, inject, percentage, precision, rate_per_s, service_time, share,
    size_bytes, time_limit_ns, trial_ns, warmup_ns,
};
pub use variants::{add_injected, policy_level};

/// A data plane that a spec may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDataPlane {
    /// As it is written in a spec.
    pub name: String,
    /// The policy levels that it has; empty if it takes none.
    pub levels: Vec<PolicyLevel>,
    /// Whether services that call each other can stand on it.
    pub carries_graphs: bool,
    /// The options that a variant of it can have.
    pub options: Vec<OptionKind>,
    /// Whether clients outside the mesh can come in through its gateway.
    pub has_gateway: bool,
}

impl KnownDataPlane {
    /// A data plane with its levels.
    #[must_use]
    pub fn new(name: &str, levels: impl Into<Vec<PolicyLevel>>) -> Self {
        Self {
            name: name.to_owned(),
            levels: levels.into(),
            carries_graphs: true,
            options: Vec::new(),
            has_gateway: true,
        }
    }

    /// The same, with a gateway for clients outside the mesh or without one.
    #[must_use]
    pub fn having_gateway(self, has_gateway: bool) -> Self {
        Self {
            has_gateway,
            ..self
        }
    }

    /// The same, for one service only or for services that call each other.
    #[must_use]
    pub fn carrying_graphs(self, carries_graphs: bool) -> Self {
        Self {
            carries_graphs,
            ..self
        }
    }

    /// The same, whose variants can have these options.
    #[must_use]
    pub fn with_options(self, options: impl Into<Vec<OptionKind>>) -> Self {
        Self {
            options: options.into(),
            ..self
        }
    }
}

/// How long trials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// As the spec's design has them.
    Short,
    /// As the published study had them whose set-up the spec is.
    Faithful,
}

/// Reads a spec: its experiment, or one for each of its `topologies`, which are run one after the other. `file` is
/// how errors call it; `none` is known without being in `known`.
///
/// # Errors
/// The first thing that cannot be used: not YAML, an unknown or missing key, a value out of
/// range, an unknown data plane or level, a duplicate.
pub fn parse_all(
    file: &str,
    text: &str,
    known: &[KnownDataPlane],
    lengths: Lengths,
) -> Result<Vec<Experiment>, SpecError> {
    tree::read(text)
        .and_then(|root| parse::experiments(&root, known, lengths))
        .map_err(|problem| SpecError::new(file, text, problem))
}

/// Reads a spec that is one experiment.
///
/// # Errors
/// Those of [`parse_all`], and a spec with several topologies.
pub fn parse(file: &str, text: &str, known: &[KnownDataPlane]) -> Result<Experiment, SpecError> {
    tree::read(text)
        .and_then(|root| parse::only_experiment(&root, known))
        .map_err(|problem| SpecError::new(file, text, problem))
}
