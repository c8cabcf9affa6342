//! What a run has on the cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use meshtax_agent::remote::HostFacts;
use meshtax_model::experiment::{Experiment, Variant, VariantId};

use crate::cluster::Cluster;
use crate::deployment::{Authorities, Deployed};
use crate::error::ClusterError;
use crate::ground::Ground;
use crate::lease::NodeLease;
use crate::mesh::Installed;
use crate::mesh::mesh_of;
use crate::names::RUN;
use crate::objects::{Common, NODE_AGENT, OUTSIDER};
use crate::pods::{RunningPod, await_running};
use crate::variant::{Instance, StartError, VariantPlan};

/// Everything that stays for the whole run.
pub(crate) struct Running {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) experiment: Experiment,
    pub(crate) common: Common,
    /// The clients' node, then the servers'.
    pub(crate) nodes: Vec<String>,
    pub(crate) agents: Agents,
    pub(crate) hosts: Vec<HostFacts>,
    /// The index of each node's machine.
    pub(crate) machines: Vec<u32>,
    pub(crate) authorities: Authorities,
    /// The cluster's meshes that variants use.
    pub(crate) meshes: Vec<Installed>,
    pub(crate) plans: BTreeMap<VariantId, VariantPlan>,
    /// The addresses of each variant's services.
    pub(crate) services: BTreeMap<VariantId, BTreeMap<String, Ipv4Addr>>,
    pub(crate) round: Round,
    /// No other run uses the nodes while this lives.
    pub(crate) _lease: NodeLease,
}

impl Running {
    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground {
            experiment: &self.experiment,
            nodes: &self.nodes,
            cores: self.hosts.iter().map(|h| h.cores.len()).max().unwrap_or(1) as u32,
        }
    }

    pub(crate) fn plan(&self, variant: &Variant) -> Result<&VariantPlan, StartError> {
        let unknown = || StartError::UnknownDataPlane(variant.data_plane.to_string());
        self.plans.get(&variant.id).ok_or_else(unknown)
    }

    pub(crate) fn deployed<'a>(&'a self, instance: &'a Instance) -> Deployed<'a> {
        Deployed::new(
            &self.cluster,
            instance,
            &self.agents.outsider,
            &self.authorities,
            self.installed(instance),
        )
    }

    /// The mesh of a variant.
    pub(crate) fn installed(&self, instance: &Instance) -> Option<&Installed> {
        let mesh = mesh_of(&instance.variant)?;
        self.meshes.iter().find(|installed| installed.mesh == mesh)
    }

    /// Reaches the agents anew: containers that ended were started again, and have other ids. Only the client outside the
    /// mesh has no controller that would create its pod again.
    pub(crate) fn reach_agents(&mut self) -> Result<(), ClusterError> {
        let namespace = &self.agents.outsider.namespace;
        let outsider = self.common.outsider(namespace, &self.nodes[0]);
        self.cluster.apply(&outsider)?;
        self.agents = Agents::reach(&self.cluster, &self.common, namespace, &self.nodes)?;
        Ok(())
    }
}

/// The agents that stay for the whole run.
pub(crate) struct Agents {
    /// On each of the run's nodes, in their order.
    pub(crate) of_nodes: Vec<RunningPod>,
    /// The client outside the mesh.
    pub(crate) outsider: RunningPod,
}

impl Agents {
    /// Waits until they run, and reaches them.
    pub(crate) fn reach(
        cluster: &Cluster,
        common: &Common,
        namespace: &str,
        nodes: &[String],
    ) -> Result<Self, ClusterError> {
        let running =
            |labels: &str, count| await_running(cluster, namespace, labels, count, &common.token);
        let mut of_nodes = running(&format!("app={NODE_AGENT}"), nodes.len())?;
        of_nodes.sort_by_key(|pod| nodes.iter().position(|node| *node == pod.node));
        let mut outsiders = running(&format!("app={OUTSIDER},{RUN}={}", common.run), 1)?;
        Ok(Self {
            of_nodes,
            outsider: outsiders.remove(0),
        })
    }
}

/// The variants that are up.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) instances: BTreeMap<VariantId, Instance>,
}
