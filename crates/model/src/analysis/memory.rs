//! Memory, by component and by node.

use serde::{Deserialize, Serialize};

use crate::environment::NodeRole;
use crate::trial::ComponentRole;

/// Memory of one component: the median over the valid trials of all load points, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentMemory {
    /// Its role in the traffic.
    pub role: ComponentRole,
    /// Resident anonymous pages.
    pub anonymous_bytes: u64,
    /// Resident file pages: mostly the program's text.
    pub file_bytes: u64,
    /// Proportional set size.
    pub pss_bytes: u64,
    /// The peak of resident memory, file pages included.
    #[serde(default)]
    pub peak_bytes: u64,
    /// Steady-state anonymous pages: the median over the second half of each round's trials.
    #[serde(default)]
    pub settled_bytes: u64,
    /// Growth of anonymous pages within the windows, in bytes per second: median over the trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_s: Option<f64>,
}

/// Memory of a node: anonymous pages of all processes on it, and one copy of each program's file pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// Index of the node in [`crate::environment::Environment::nodes`].
    pub node: u32,
    /// What the node is for: the generator of a client's node is not included.
    pub role: NodeRole,
    /// Anonymous pages, in bytes.
    pub anonymous_bytes: u64,
    /// One copy of each program, in bytes.
    pub file_bytes: u64,
    /// Of them, those of the proxies' programs; `None`: it has no proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_file_bytes: Option<u64>,
}
