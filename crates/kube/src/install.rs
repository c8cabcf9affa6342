//! Installing meshes with the user's Helm: what they need first, their charts in order, and their removal without a trace.
//!
//! Runs do not depend on it: they use an installed mesh as it is.

mod charts;
mod error;
mod helm;
mod prerequisites;
mod status;
mod workloads;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Resource};
use serde_json::{Value, json};

pub use charts::{Chart, Choices, INSTALLABLE, Installable, Settings};
pub use error::InstallError;
pub use helm::{Helm, HelmError, Release, Sources};
pub use prerequisites::{Check, CheckId, CheckOutcome};
pub use status::{Status, status};
pub use workloads::Workload;

use crate::cluster::{Cluster, wait};
use crate::error::ClusterError;
use crate::install::helm::MESH;
use crate::install::prerequisites::{Facts, checks};
use crate::install::workloads::workloads;
use crate::names::MANAGED_BY;

/// How long namespaces and types have to go.
const PATIENCE: Duration = Duration::from_secs(120);

/// A step that was completed.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct InstallStep {
    /// What was done.
    pub what: InstallStepKind,
    /// To which object or release.
    pub name: String,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallStepKind {
    /// A namespace was created.
    CreateNamespace,
    /// A release was installed, and is ready.
    InstallRelease,
    /// A release was removed.
    RemoveRelease,
    /// ConfigMaps that the control plane had put into other namespaces were removed.
    RemoveConfigMaps,
    /// A namespace was removed.
    RemoveNamespace,
    /// A type was removed, with all its objects.
    RemoveType,
}

/// Times each step, and reports it when it ends.
struct Steps<'a> {
    begin: Instant,
    report: &'a mut dyn FnMut(InstallStep),
}

impl Steps<'_> {
    fn done(&mut self, what: InstallStepKind, name: impl Into<String>) {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.begin = Instant::now();
        let name = name.into();
        (self.report)(InstallStep {
            what,
            name,
            seconds,
        });
    }
}

/// What a mesh needs of this cluster.
///
/// # Errors
/// If the cluster does not respond.
pub fn check(
    cluster: &Cluster,
    helm: &Helm,
    mesh: &Installable,
    sources: &Sources,
) -> Result<Vec<Check>, ClusterError> {
    Ok(checks(&Facts::gather(cluster, mesh)?, helm, mesh, sources))
}

/// Installs a mesh that is not there yet. `report` gets each step when it ends.
///
/// # Errors
/// If a prerequisite is missing, or a step fails: what was installed before it stays, for [`uninstall`].
pub fn install(
    cluster: &Cluster,
    helm: &Helm,
    mesh: &'static Installable,
    sources: &Sources,
    settings: Settings,
    report: &mut dyn FnMut(InstallStep),
) -> Result<(), InstallError> {
    let facts = Facts::gather(cluster, mesh)?;
    let failed: Vec<Check> = checks(&facts, helm, mesh, sources)
        .into_iter()
        .filter(|check| check.outcome == CheckOutcome::Failed)
        .collect();
    if !failed.is_empty() {
        return Err(InstallError::Prerequisites {
            mesh: mesh.name,
            checks: failed,
        });
    }
    let choices = Choices::new(settings, facts.has_gateway_api)?;
    let mut steps = Steps {
        begin: Instant::now(),
        report,
    };
    if create_namespace(cluster, mesh)? {
        steps.done(InstallStepKind::CreateNamespace, mesh.namespace);
    }
    for chart in mesh.charts {
        helm.install(mesh, chart, sources, &chart.values(&choices))?;
        steps.done(InstallStepKind::InstallRelease, chart.release);
    }
    Ok(())
}

/// The namespace of a mesh: whether it was not there.
fn create_namespace(cluster: &Cluster, mesh: &Installable) -> Result<bool, ClusterError> {
    let api: Api<Namespace> = Api::all(cluster.client());
    let doing = format!("get namespace {}", mesh.namespace);
    if cluster
        .request(&doing, |_| api.get_opt(mesh.namespace))?
        .is_some()
    {
        return Ok(false);
    }
    cluster.apply(&namespace(mesh))?;
    Ok(true)
}

/// The namespace that is created for a mesh.
#[must_use]
pub fn namespace(mesh: &Installable) -> Value {
    let (key, value) = MANAGED_BY;
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": mesh.namespace, "labels": {key: value, MESH: mesh.name}},
    })
}

/// Removes what [`install`] installed; with `types` also the mesh's custom resource definitions, and with them all objects of these
/// types. Where nothing of the mesh runs any more, what an earlier removal left is removed.
///
/// # Errors
/// If meshtax did not install it, or a step fails: what remains can be removed by trying again.
pub fn uninstall(
    cluster: &Cluster,
    helm: &Helm,
    mesh: &'static Installable,
    types: bool,
    report: &mut dyn FnMut(InstallStep),
) -> Result<(), InstallError> {
    let own = helm.releases(Some(&format!("{MESH}={}", mesh.name)))?;
    let namespace_is_ours = has_namespace(cluster, mesh)?;
    if own.is_empty() && !namespace_is_ours {
        Others::look(cluster, helm, mesh, types)?.may_be_removed(mesh)?;
    }
    let mut steps = Steps {
        begin: Instant::now(),
        report,
    };
    for chart in mesh.charts.iter().rev() {
        if let Some(release) = own.iter().find(|release| release.name == chart.release) {
            helm.uninstall(release)?;
            steps.done(InstallStepKind::RemoveRelease, chart.release);
        }
    }
    if remove_config_maps(cluster, mesh)? {
        steps.done(
            InstallStepKind::RemoveConfigMaps,
            mesh.leaves_config_maps.join(", "),
        );
    }
    if namespace_is_ours {
        let api: Api<Namespace> = Api::all(cluster.client());
        remove(cluster, &api, "namespace", mesh.namespace)?;
        steps.done(InstallStepKind::RemoveNamespace, mesh.namespace);
    }
    if types {
        for name in types_of(cluster, mesh)? {
            let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
            remove(cluster, &api, "type", &name)?;
            steps.done(InstallStepKind::RemoveType, name);
        }
    }
    Ok(())
}

/// What there is of a mesh whose releases and namespace are not those of [`install`].
struct Others {
    /// The names of its releases.
    releases: Vec<String>,
    /// Whether anything runs in its namespace.
    runs: bool,
    /// Whether there is something that removing releases leaves, and that is to be removed.
    remains: bool,
}

impl Others {
    fn look(
        cluster: &Cluster,
        helm: &Helm,
        mesh: &Installable,
        types: bool,
    ) -> Result<Self, InstallError> {
        let all = helm.releases(None)?.into_iter();
        let releases = all.filter(|release| release.is_of(mesh));
        let has_maps = match mesh.leaves_config_maps.last() {
            Some(anchor) => !cluster.config_map(mesh.namespace, anchor)?.is_empty(),
            None => false,
        };
        Ok(Self {
            releases: releases.map(|release| release.name).collect(),
            runs: !workloads(cluster, mesh)?.is_empty(),
            remains: has_maps || (types && !types_of(cluster, mesh)?.is_empty()),
        })
    }

    /// What still runs belongs to whoever installed it. Types and ConfigMaps do not tell who that was; without a release, nothing
    /// else will remove them.
    fn may_be_removed(self, mesh: &Installable) -> Result<(), InstallError> {
        match self.releases.is_empty() && !self.runs && self.remains {
            true => Ok(()),
            false => Err(InstallError::NotOurs {
                mesh: mesh.name,
                releases: self.releases,
            }),
        }
    }
}

/// Whether there is a namespace that [`install`] created.
fn has_namespace(cluster: &Cluster, mesh: &Installable) -> Result<bool, ClusterError> {
    let api: Api<Namespace> = Api::all(cluster.client());
    let labels = format!("{MESH}={}", mesh.name);
    Ok(!cluster.list(&api, "list namespaces", &labels)?.is_empty())
}

/// Custom resource definitions that a release of the mesh brought and Helm kept, as some charts tell it to. Helm annotates what it
/// creates.
fn types_of(cluster: &Cluster, mesh: &Installable) -> Result<Vec<String>, ClusterError> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let all = cluster.list(&api, "list custom resource definitions", "")?;
    let is_of_mesh = |of: &CustomResourceDefinition| {
        let annotation = |key: &str| of.metadata.annotations.as_ref()?.get(key).cloned();
        let release = annotation("meta.helm.sh/release-name");
        let namespace = annotation("meta.helm.sh/release-namespace");
        namespace.as_deref() == Some(mesh.namespace)
            && mesh
                .charts
                .iter()
                .any(|chart| release.as_deref() == Some(chart.release))
    };
    let names = all.into_iter().filter(is_of_mesh);
    Ok(names.filter_map(|of| of.metadata.name).collect())
}

/// Removes the ConfigMaps that the mesh's control plane left in the namespaces that have its trust anchor. Another mesh of the same project
/// has ConfigMaps of the same names with another trust anchor: those stay. Those of its own namespace go last: by them, a second
/// attempt recognises what the first has not removed. Returns whether there were any.
fn remove_config_maps(cluster: &Cluster, mesh: &Installable) -> Result<bool, ClusterError> {
    let Some(anchor) = mesh.leaves_config_maps.last() else {
        return Ok(false);
    };
    let own = cluster.config_map(mesh.namespace, anchor)?;
    if own.is_empty() {
        return Ok(false);
    }
    let all: Api<ConfigMap> = Api::all(cluster.client());
    let is_copy = |map: &ConfigMap| {
        map.metadata.name.as_deref() == Some(anchor) && map.data.as_ref() == Some(&own)
    };
    let mut maps = cluster.list(&all, "list ConfigMaps", "")?;
    maps.retain(is_copy);
    let namespaces = maps.into_iter().filter_map(|map| map.metadata.namespace);
    for namespace in own_last(namespaces.collect(), mesh.namespace) {
        let api: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
        for name in mesh.leaves_config_maps {
            let what = format!("ConfigMap {namespace}/{name}");
            cluster.delete(&api, (&what, name))?;
        }
    }
    Ok(true)
}

/// The same, the mesh's own at the end.
fn own_last(mut namespaces: Vec<String>, own: &str) -> Vec<String> {
    namespaces.sort_by_key(|namespace| namespace == own);
    namespaces
}

/// Removes an object that may have others below it, and waits until it is gone. `what`: its kind, for messages.
fn remove<K>(cluster: &Cluster, api: &Api<K>, what: &str, name: &str) -> Result<(), ClusterError>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object = format!("{what} {name}");
    let doing = format!("get {object}");
    let found = || cluster.request(&doing, |_| api.get_opt(name));
    // The API server rejects to delete what is being deleted.
    if found()?.is_some_and(|there| there.meta().deletion_timestamp.is_none()) {
        cluster.delete(api, (&object, name))?;
    }
    wait(PATIENCE, &object, || Ok(found()?.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linkerd() -> &'static Installable {
        INSTALLABLE.iter().find(|of| of.name == "linkerd").unwrap()
    }

    #[test]
    fn reference_of_the_copies_is_deleted_last() {
        let all = ["istio-system", "default", "kube-system"].map(str::to_owned);
        assert_eq!(
            own_last(all.to_vec(), "istio-system"),
            ["default", "kube-system", "istio-system"]
        );
    }

    #[test]
    fn only_what_a_removal_left_is_removed_without_a_release_of_meshtax() {
        let removed = |releases: &[&str], runs, remains| {
            let others = Others {
                releases: releases.iter().map(|name| (*name).to_owned()).collect(),
                runs,
                remains,
            };
            others.may_be_removed(linkerd()).is_ok()
        };
        assert!(removed(&[], false, true));
        assert!(!removed(&[], false, false), "nothing is there");
        assert!(!removed(&[], true, true), "installed without Helm");
        assert!(!removed(&["linkerd-crds"], false, true), "with Helm");
    }
}
