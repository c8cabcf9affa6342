//! What a process serves: one pod, or a whole node.

use serde::{Deserialize, Serialize};

/// Whether a process or a control service serves one pod or a whole node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessScope {
    /// In the pod.
    #[default]
    Pod,
    /// On the pod's node: one for all of its pods.
    Node,
}
