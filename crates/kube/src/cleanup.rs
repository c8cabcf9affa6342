//! Removing what runs left behind.

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::names::RUN;

/// What was removed, and what remains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Namespaces that are gone, with everything in them.
    pub namespaces: Vec<String>,
    /// Namespaces that are still there.
    pub left: Vec<String>,
}

/// Removes the namespaces of a run, or of all runs.
///
/// # Errors
/// If the cluster cannot be reached, or a permission is missing.
pub fn remove_leftovers(cluster: &Cluster, run: Option<&str>) -> Result<Removed, ClusterError> {
    let found = cluster.namespaces(run)?;
    let name = |namespace: &k8s_openapi::api::core::v1::Namespace| {
        let labels = namespace.metadata.labels.as_ref();
        let run = labels.and_then(|labels| labels.get(RUN).cloned());
        let name = namespace.metadata.name.clone().unwrap_or_default();
        format!("{name} (run {})", run.unwrap_or_default())
    };
    let names: Vec<String> = found.iter().map(name).collect();
    let left = cluster.remove_namespaces(run)?;
    let is_left = |name: &String| left.iter().any(|left| name.starts_with(left.as_str()));
    Ok(Removed {
        namespaces: names.into_iter().filter(|name| !is_left(name)).collect(),
        left,
    })
}
