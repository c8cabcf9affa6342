//! A mesh as it is installed on the cluster: its version, and the proxies on the nodes.

use std::net::Ipv4Addr;

use meshtax_model::trial::ComponentRole;

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::mesh::Mesh;
use crate::pods::{ContainerFacts, address, containers, environment, node_name};

/// A mesh that the run uses.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) mesh: &'static Mesh,
    /// Of its proxy.
    pub(crate) image: String,
    /// The image's digest, or the runtime's id where it has none.
    pub(crate) image_id: String,
    /// Worker threads of each proxy.
    pub(crate) workers: u32,
    /// The trust anchor of its certificates (PEM).
    pub(crate) trust_anchor: String,
    /// The proxies on the run's nodes; empty where they are in pods.
    pub(crate) on_nodes: Vec<NodeProxy>,
}

/// A proxy that serves a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeProxy {
    /// Index of its node in the environment.
    pub(crate) node: usize,
    pub(crate) address: Ipv4Addr,
    /// The runtime's id of its container.
    pub(crate) container: String,
}

impl NodeProxy {
    /// Its role in the traffic of a variant that uses it.
    pub(crate) fn role(&self) -> ComponentRole {
        match self.node {
            0 => ComponentRole::ClientProxy,
            _ => ComponentRole::ServerProxy,
        }
    }
}

/// Why a variant's mesh cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInstalled {
    #[error(
        "{mesh} is not installed: namespace {namespace} has no running pod with the label {labels}\n  fix: install \
         {mesh} on the cluster, or leave its variants out"
    )]
    Absent {
        mesh: &'static str,
        namespace: &'static str,
        labels: &'static str,
    },
    #[error(
        "{mesh} has no trust anchor where it keeps it: key {key} of ConfigMap {namespace}/{name}\n  fix: check the \
         installation of {mesh}"
    )]
    NoTrustAnchor {
        mesh: &'static str,
        namespace: &'static str,
        name: &'static str,
        key: &'static str,
    },
    #[error(
        "{mesh} has no proxy on node {node}\n  fix: let its DaemonSet run there, or use other nodes (--nodes)"
    )]
    NotOnNode { mesh: &'static str, node: String },
    #[error(
        "missing permissions for the policies of {mesh}: {}\n  fix: an administrator grants them; docs/kubernetes.md \
         has the rules",
        .rules.join(", ")
    )]
    Permissions {
        mesh: &'static str,
        rules: Vec<String>,
    },
}

impl Installed {
    /// Looks for the mesh. The inner error: it cannot be used.
    pub(crate) fn find(
        cluster: &Cluster,
        mesh: &'static Mesh,
        nodes: &[String],
    ) -> Result<Result<Self, NotInstalled>, ClusterError> {
        let rules = cluster.missing_permissions(mesh.permissions)?;
        if !rules.is_empty() {
            let mesh = mesh.name;
            return Ok(Err(NotInstalled::Permissions { mesh, rules }));
        }
        let at = mesh.proxies;
        let doing = format!("list pods in {}", at.namespace);
        let pods = cluster.list(&cluster.pods(at.namespace), &doing, at.labels)?;
        let proxies: Vec<(NodeProxy, ContainerFacts, String)> = pods
            .iter()
            .filter_map(|pod| {
                let mut all = containers(pod).into_iter();
                let proxy = all.find(|container| container.name == at.container)?;
                let node = node_name(pod);
                let on_node = NodeProxy {
                    node: nodes
                        .iter()
                        .position(|name| *name == node)
                        .unwrap_or(usize::MAX),
                    address: address(pod)?,
                    container: proxy.id.clone(),
                };
                Some((on_node, proxy, node))
            })
            .collect();
        let Some((_, first, _)) = proxies.first() else {
            return Ok(Err(NotInstalled::Absent {
                mesh: mesh.name,
                namespace: at.namespace,
                labels: at.labels,
            }));
        };
        let (image, image_id) = (first.image.clone(), first.image_id.clone());
        let variable = (at.container, mesh.workers_variable);
        let workers = pods
            .first()
            .and_then(|pod| environment(pod, variable)?.parse().ok());
        let mut on_nodes = Vec::new();
        if mesh.sidecar.is_none() {
            for (index, name) in nodes.iter().enumerate() {
                match proxies.iter().find(|(proxy, ..)| proxy.node == index) {
                    Some((proxy, ..)) => on_nodes.push(proxy.clone()),
                    None => {
                        let (mesh, node) = (mesh.name, name.clone());
                        return Ok(Err(NotInstalled::NotOnNode { mesh, node }));
                    }
                }
            }
        }
        let (name, key) = mesh.trust_anchor;
        let Some(trust_anchor) = cluster.config_map(at.namespace, name)?.remove(key) else {
            return Ok(Err(NotInstalled::NoTrustAnchor {
                mesh: mesh.name,
                namespace: at.namespace,
                name,
                key,
            }));
        };
        Ok(Ok(Self {
            mesh,
            trust_anchor,
            image,
            image_id,
            workers: workers.unwrap_or(mesh.workers),
            on_nodes,
        }))
    }

    /// The version in the image's tag; empty where there is none.
    pub(crate) fn version(&self) -> &str {
        let name = self.image.split('@').next().unwrap_or_default();
        let last = name.rsplit('/').next().unwrap_or_default();
        last.split_once(':').map_or("", |(_, tag)| tag)
    }
}
