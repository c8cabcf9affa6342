//! What of a mesh is on a cluster.

use serde::Serialize;

use crate::cluster::Cluster;
use crate::install::charts::Installable;
use crate::install::error::InstallError;
use crate::install::helm::{Helm, MESH, Release};
use crate::install::workloads::{Workload, workloads};

/// What of a mesh is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its name.
    pub mesh: &'static str,
    /// Its namespace.
    pub namespace: &'static str,
    /// Its releases, however they were installed.
    pub releases: Vec<Release>,
    /// Whether meshtax installed them.
    pub by_meshtax: bool,
    /// What runs in its namespace.
    pub workloads: Vec<Workload>,
}

impl Status {
    /// Whether there is anything of it.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        !(self.releases.is_empty() && self.workloads.is_empty())
    }
}

/// Asks the cluster and Helm.
///
/// # Errors
/// If either does not respond.
pub fn status(
    cluster: &Cluster,
    helm: &Helm,
    mesh: &'static Installable,
) -> Result<Status, InstallError> {
    let all = helm.releases(None)?;
    // Whatever mesh they are of: all of Istio share a namespace and releases.
    let own = helm.releases(Some(MESH))?;
    let releases: Vec<Release> = all
        .into_iter()
        .filter(|release| release.is_of(mesh))
        .collect();
    Ok(Status {
        mesh: mesh.name,
        namespace: mesh.namespace,
        by_meshtax: releases.iter().any(|release| own.contains(release)),
        workloads: workloads(cluster, mesh)?,
        releases,
    })
}
