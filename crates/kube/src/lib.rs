//! The Kubernetes engine: the same experiment on the user's cluster, with real pods and nodes.
//!
//! Everything goes through the API server: objects are applied to it, and agents in the pods are reached by its
//! port-forward. A run has one namespace for its agents and one for each variant; nothing else is created, so that
//! removing these namespaces removes the run.

#![forbid(unsafe_code)]

mod awaited;
mod chronicle;
mod cleanup;
mod cluster;
mod deployment;
mod engine;
mod environment;
mod error;
#[cfg(test)]
mod fake_api;
mod forward;
mod ground;
pub mod install;
mod lease;
mod mesh;
mod names;
mod nodes;
mod objects;
mod passed;
mod pods;
mod policies;
mod round;
mod running;
mod settings;
mod trial;
mod variant;

pub use cleanup::{Removed, remove_leftovers};
pub use cluster::{Access, Cluster};
pub use engine::{KubernetesEngine, KubernetesOptions, objects};
pub use error::{Awaited, ClusterError};
pub use passed::PassedError;
pub use settings::check_settings;
