//! What a person writes -> what is run: YAML specs, presets, human units, and the seeded plan.
//!
//! Pure: the text, the list of data planes and the seed are given by the caller.
#![forbid(unsafe_code)]

mod error;
mod fields;
mod ingress;
mod limit;
mod objective;
mod parse;
mod plan;
mod presets;
mod service;
mod sides;
mod topology;
mod tree;
mod value;
mod variants;

use meshtax_model::experiment::{Experiment, PolicyLevel};

pub use error::{SpecError, nearest};
pub use ingress::{enter_by_gateway, ingress};
pub use limit::{between, limit};
pub use objective::{hops, hourly_price, need, objective, priority};
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
