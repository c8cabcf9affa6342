//! What a run has on the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use meshtax_agent::remote::HostFacts;
use meshtax_model::experiment::{Experiment, Variant, VariantId};

use crate::awaited::await_running;
use crate::chronicle::Chronicle;
use crate::cluster::Cluster;
use crate::deployment::{Authorities, Deployed};
use crate::error::ClusterError;
use crate::ground::Ground;
use crate::lease::NodeLease;
use crate::mesh::Installed;
use crate::mesh::mesh_of;
use crate::names::RUN;
use crate::objects::{Common, NODE_AGENT, OUTSIDER};
use crate::pods::RunningPod;
use crate::variant::{Instance, StartError, VariantPlan};

/// Everything that stays for the whole run.
pub(crate) struct Running {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) experiment: Experiment,
    pub(crate) common: Common,
    /// The clients' node, then the servers'.
    pub(crate) nodes: Vec<String>,
    pub(crate) agents: Agents,
    pub(crate) reaching: Reaching,
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
    /// Whether a round, and not only a pilot, was started.
    pub(crate) had_round: bool,
    pub(crate) chronicle: Chronicle,
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

    /// Which proxies injectors add, where the meshes' own pods do not show it: a pod of the run is created for each, and
    /// removed. One that is forbidden or does not run is reported by the rounds, which leave its variants out.
    pub(crate) fn read_injected(&mut self) -> Result<(), ClusterError> {
        let (cluster, common) = (&self.cluster, &self.common);
        for installed in &mut self.meshes {
            let mesh = installed.mesh;
            let mut plans = self.plans.values();
            let plan = plans.find(|plan| plan.mesh == Some(mesh) && plan.joins());
            let Some((plan, pod)) = plan.and_then(|plan| Some((plan, plan.pods.first()?))) else {
                continue;
            };
            if mesh.shows_its_proxy() {
                continue;
            }
            let labels = format!("{RUN}={}", common.run);
            let applied = cluster.apply(&common.pod(pod));
            let pods = applied
                .and_then(|()| await_running(cluster, &plan.namespace, &labels, 1, &common.token));
            match pods {
                Ok(pods) => pods.iter().for_each(|pod| installed.read_injected(pod)),
                Err(lost @ ClusterError::Unreachable { .. }) => return Err(lost),
                Err(_) => {}
            }
            cluster.remove_pods(&plan.namespace)?;
        }
        Ok(())
    }

    /// What the variants that are up were granted.
    pub(crate) fn record_grants(&mut self) {
        let agents = &self.agents.of_nodes;
        let agent_of = |node: &str| {
            let here = agents.iter().find(|pod| pod.node == node);
            here.map(|pod| &pod.agent)
        };
        for (variant, instance) in &self.round.instances {
            let pods = instance.pods.values();
            self.chronicle.granted(variant, pods, agent_of);
        }
    }

    /// What the cluster reported of the run. An API server that does not answer just now costs the report's events, and
    /// nothing else.
    pub(crate) fn record_events(&mut self) {
        let agents = (None, self.agents.outsider.namespace.as_str());
        let variants = self.plans.iter();
        let variants = variants.map(|(variant, plan)| (Some(variant), plan.namespace.as_str()));
        for (variant, namespace) in variants.chain([agents]) {
            let Ok(events) = self.cluster.events(namespace) else {
                return;
            };
            self.chronicle.events(variant, &events);
        }
    }

    /// How containers of the variants have ended: unknown as soon as their pods are removed.
    pub(crate) fn record_endings(&mut self) {
        for (variant, plan) in &self.plans {
            let Ok(pods) = self.cluster.list_pods(&plan.namespace) else {
                return;
            };
            self.chronicle.endings(variant, &pods);
        }
    }

    /// Reaches the agents anew: containers that ended were started again, and have other ids. Returns why they cannot be
    /// reached just now: what needs them fails, and they are reached again before the next.
    ///
    /// # Errors
    /// If nothing more can be measured.
    pub(crate) fn reach_agents(&mut self) -> Result<Option<ClusterError>, ClusterError> {
        let reached = self.agents_anew();
        let agents = self.reaching.judge(reached)?;
        Ok(agents.map(|agents| self.agents = agents).err())
    }

    /// The same before a trial, if they were not reached when they were last.
    pub(crate) fn reach_lost_agents(&mut self) -> Result<Option<ClusterError>, ClusterError> {
        match self.reaching.failed {
            0 => Ok(None),
            _ => self.reach_agents(),
        }
    }

    /// Only the client outside the mesh has no controller that would create its pod again.
    fn agents_anew(&self) -> Result<Agents, ClusterError> {
        let namespace = &self.agents.outsider.namespace;
        let outsider = self.common.outsider(namespace, &self.nodes[0]);
        self.cluster.apply(&outsider)?;
        Agents::reach(&self.cluster, &self.common, namespace, &self.nodes)
    }
}

/// How often in a row the agents could not be reached.
#[derive(Debug, Default)]
pub(crate) struct Reaching {
    failed: u32,
}

impl Reaching {
    /// So many times are a trial's or a round's failure each. Each waits as long as a pod may take to start.
    const MOST: u32 = 3;

    /// Whether a failure to reach them costs what needs them now, or is the end.
    fn judge<T>(
        &mut self,
        reached: Result<T, ClusterError>,
    ) -> Result<Result<T, ClusterError>, ClusterError> {
        match reached {
            Ok(agents) => {
                self.failed = 0;
                Ok(Ok(agents))
            }
            Err(error) if error.may_pass() && self.failed < Self::MOST => {
                self.failed += 1;
                Ok(Err(error))
            }
            Err(error) => Err(error),
        }
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
        let of_nodes = of_nodes(nodes, |count| running(&format!("app={NODE_AGENT}"), count))?;
        let mut outsiders = running(&format!("app={OUTSIDER},{RUN}={}", common.run), 1)?;
        Ok(Self {
            of_nodes,
            outsider: outsiders.remove(0),
        })
    }
}

/// The agent of each place; several places may be on one node, whose agent then serves each of them.
fn of_nodes(
    nodes: &[String],
    running: impl Fn(usize) -> Result<Vec<RunningPod>, ClusterError>,
) -> Result<Vec<RunningPod>, ClusterError> {
    let count = nodes.iter().collect::<BTreeSet<_>>().len();
    let mut found: Vec<RunningPod> = Vec::new();
    let mut agents = Vec::new();
    for node in nodes {
        let here = |pod: &RunningPod| pod.node == *node;
        if !found.iter().any(here) {
            found.extend(running(count)?);
        }
        let at = found.iter().position(here);
        let at = at.ok_or_else(|| ClusterError::NoAgent { node: node.clone() })?;
        agents.push(found.swap_remove(at));
    }
    Ok(agents)
}

/// The variants that are up.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) instances: BTreeMap<VariantId, Instance>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn not_ready() -> ClusterError {
        ClusterError::NotReady {
            pod: "n/node-agent".into(),
            state: "agent is started again".into(),
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn agents_that_are_not_reached_cost_a_few_trials_and_then_the_run() {
        let mut reaching = Reaching::default();
        for _ in 0..Reaching::MOST {
            assert!(matches!(
                reaching.judge(Err::<(), _>(not_ready())),
                Ok(Err(_))
            ));
        }
        // In a row: they were reached in between.
        assert!(matches!(reaching.judge(Ok(())), Ok(Ok(()))));
        for _ in 0..Reaching::MOST {
            assert!(matches!(
                reaching.judge(Err::<(), _>(not_ready())),
                Ok(Err(_))
            ));
        }
        let end = reaching.judge(Err::<(), _>(not_ready()));
        assert!(matches!(end, Err(ClusterError::NotReady { .. })));
    }

    #[test]
    fn missing_permission_and_deleted_namespace_end_the_run_at_once() {
        let (doing, message) = ("apply Pod n/outsider".to_owned(), String::new());
        let finals = [
            ClusterError::Forbidden {
                doing: doing.clone(),
                message: message.clone(),
            },
            ClusterError::Gone { doing, message },
        ];
        for error in finals {
            let judged = Reaching::default().judge(Err::<(), _>(error));
            assert!(judged.is_err(), "{judged:?}");
        }
    }
}
