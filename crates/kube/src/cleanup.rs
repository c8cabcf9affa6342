//! Removing what runs left behind.

use k8s_openapi::api::core::v1::Namespace;

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
    /// If the run that was asked for has nothing on the cluster: the runs that have.
    pub others: Vec<String>,
}

/// Removes the namespaces of a run, or of all runs.
///
/// # Errors
/// If the cluster cannot be reached, or a permission is missing.
pub fn remove_leftovers(cluster: &Cluster, run: Option<&str>) -> Result<Removed, ClusterError> {
    let found = cluster.namespaces(run)?;
    if found.is_empty() {
        let mut others: Vec<String> = cluster.namespaces(None)?.iter().map(run_of).collect();
        others.sort_unstable();
        others.dedup();
        return Ok(Removed {
            others,
            ..Removed::default()
        });
    }
    let left = cluster.remove_namespaces(run)?;
    let is_gone = |namespace: &&Namespace| !left.contains(&name(namespace));
    let named = |namespace: &Namespace| format!("{} (run {})", name(namespace), run_of(namespace));
    Ok(Removed {
        namespaces: found.iter().filter(is_gone).map(named).collect(),
        left,
        others: Vec::new(),
    })
}

fn name(namespace: &Namespace) -> String {
    namespace.metadata.name.clone().unwrap_or_default()
}

fn run_of(namespace: &Namespace) -> String {
    let labels = namespace.metadata.labels.as_ref();
    let run = labels.and_then(|labels| labels.get(RUN).cloned());
    run.unwrap_or_default()
}
