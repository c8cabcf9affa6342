//! What runs in a mesh's own namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::PodSpec;
use kube::Api;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::install::charts::Installable;

/// A Deployment or DaemonSet of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods that there should be.
    pub desired: i32,
    /// Of its containers.
    pub images: Vec<String>,
}

/// Deployments and DaemonSets of a mesh's namespace, by name. None for a cluster's network: its workloads share a namespace with
/// the system's own.
pub(crate) fn workloads(
    cluster: &Cluster,
    mesh: &Installable,
) -> Result<Vec<Workload>, ClusterError> {
    if !mesh.on_running_cluster {
        return Ok(Vec::new());
    }
    let namespace = mesh.namespace;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
    let daemons: Api<DaemonSet> = Api::namespaced(cluster.client(), namespace);
    let doing = |kind: &str| format!("list {kind} of {namespace}");
    let deployments = cluster.list(&deployments, &doing("Deployments"), "")?;
    let daemons = cluster.list(&daemons, &doing("DaemonSets"), "")?;
    let of_deployment = |of: Deployment| {
        let spec = of.spec.unwrap_or_default();
        Workload {
            name: of.metadata.name.unwrap_or_default(),
            ready: of.status.and_then(|s| s.ready_replicas).unwrap_or(0),
            desired: spec.replicas.unwrap_or(1),
            images: images(spec.template.spec),
        }
    };
    let of_daemon = |of: DaemonSet| {
        let status = of.status.unwrap_or_default();
        Workload {
            name: of.metadata.name.unwrap_or_default(),
            ready: status.number_ready,
            desired: status.desired_number_scheduled,
            images: images(of.spec.and_then(|spec| spec.template.spec)),
        }
    };
    let mut all: Vec<Workload> = deployments
        .into_iter()
        .map(of_deployment)
        .chain(daemons.into_iter().map(of_daemon))
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn images(spec: Option<PodSpec>) -> Vec<String> {
    let containers = spec.map(|spec| spec.containers).unwrap_or_default();
    let images = containers
        .into_iter()
        .filter_map(|container| container.image);
    images.collect::<BTreeSet<_>>().into_iter().collect()
}
