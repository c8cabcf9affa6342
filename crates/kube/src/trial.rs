//! One trial: the load from the clients' pods, and what every node used in its window.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use meshtax_agent::remote::{AgentError, Clock, Metered, Observation};
use meshtax_agent::{ClientLoad, ClientWorker, GeneratorError, Generators, NodeUsage, whole_load};
use meshtax_dataplane::{Fault, PodBlueprint, Redirect};
use meshtax_engine::Measured;
use meshtax_evidence::{AppCounters, LoadPath, contradictions, lost_connections, read_traffic};
use meshtax_load::{LoadSpec, Window};
use meshtax_model::experiment::{LoadPoint, VariantId};
use meshtax_model::failure::{ComponentFailure, LostEvidence, TrialFailure};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::trial::{
    ComponentRole, ComponentUsage, LoadResult, ProxyConnections, ResourceSample, TrialOutcome,
    UsageSeries,
};
use meshtax_observe::{monotonic_ns, sleep_until_ns};
use meshtax_workload::{NoGateway, Timing, bursts};

use crate::error::ClusterError;
use crate::ground::Ground;
use crate::mesh::Installed;
use crate::objects::AGENT;
use crate::pods::RunningPod;
use crate::running::Running;
use crate::variant::Instance;

/// The largest error of a window's edges on another node, as a share of the window.
const EDGE_SHARE: u64 = 100;
/// The time that the engine needs to pass a window on to the agents: the warm-up is no shorter.
const LEAD: Duration = Duration::from_millis(300);

/// Why a trial has no result.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    NoGateway(#[from] NoGateway),
    #[error("the thread that observes a node panicked")]
    Panicked,
}

impl From<Failed> for TrialFailure {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Generator(error) => error.into(),
            other => load_failed(other),
        }
    }
}

pub(crate) fn load_failed(error: impl ToString) -> TrialFailure {
    let detail = error.to_string();
    TrialFailure::LoadFailed { detail }
}

/// What came of a load, and of its observation on each node.
struct Observed {
    load: LoadResult,
    /// Of each client.
    parts: Vec<ClientLoad>,
    nodes: Vec<NodeUsage>,
    proxy_connections: Option<ProxyConnections>,
    /// At the first proxy of each client.
    entered_connections: Vec<Option<u32>>,
    /// The largest error of a node's window.
    clock_error_ns: u64,
}

/// Bursts of the loads of all load points, which are not recorded. Where one fails, the trials do as well, and tell why.
pub(crate) fn warm_up(instance: &Instance, ground: &Ground<'_>) {
    for burst in bursts(&ground.experiment.load_points) {
        let demand = ground.demand();
        let spec = demand.load(&instance.site, None, &burst, Timing::BURST, 0);
        if let (Ok(spec), Ok(workers)) = (spec, workers(instance)) {
            let _ = meshtax_agent::warm_up(&spec, workers);
        }
    }
}

/// The pods of the clients, in their order.
fn clients(instance: &Instance) -> impl Iterator<Item = &RunningPod> {
    let clients = instance.site.clients.iter();
    clients.map(|pod| &instance.pods[&pod.name])
}

/// A started worker of the load generator in each of them.
fn workers(instance: &Instance) -> Result<Vec<ClientWorker>, ClusterError> {
    let started = clients(instance).map(|client| {
        Ok(ClientWorker {
            client: client.name.clone(),
            started: client.agent.start_worker().map_err(|e| client.failed(e))?,
        })
    });
    started.collect()
}

impl Running {
    /// Measures one trial while all other variants idle.
    pub(crate) fn measure(&self, trial: &PlannedTrial, point: &LoadPoint) -> Measured {
        match self.try_measure(trial, point) {
            Ok((outcome, sample)) => Measured {
                outcome,
                sample: Some(sample),
            },
            Err(failure) => Measured {
                outcome: TrialOutcome::Failed { failure },
                sample: None,
            },
        }
    }

    fn try_measure(
        &self,
        trial: &PlannedTrial,
        point: &LoadPoint,
    ) -> Result<(TrialOutcome, ResourceSample), TrialFailure> {
        let instance = self.round.instances.get(&trial.variant);
        let instance = instance.ok_or(TrialFailure::VariantNotRunning)?;
        let components = instance.ended(&self.cluster);
        if !components.is_empty() {
            return Err(TrialFailure::ComponentsEnded { components });
        }
        let ground = self.ground();
        let deployed = self.deployed(instance);
        let subject = instance.subject(&deployed, &ground);
        let path = LoadPath::of(&ground.demand(), point);
        let counters = AppCounters::read(&subject, path, &instance.variant);
        let counters_before = counters.map_err(load_failed)?;
        let traffic_before = read_traffic(&subject, path);
        let (observed, component_failures) = self.offer(instance, trial, point)?;
        let counters = AppCounters::read(&subject, path, &instance.variant).unwrap_or_default();
        let sample = self.sample(&trial.id, &observed);
        let mut lost_evidence = contradicted(instance, point, &sample, &observed);
        let traffic = traffic_before.and_then(|before| {
            let after = read_traffic(&subject, path)?;
            Ok(after.lost_since(&before, &observed.load, &observed.parts))
        });
        lost_evidence.extend(traffic.unwrap_or_else(|unreadable| vec![unreadable]));
        let outcome = TrialOutcome::Measured {
            lost_evidence,
            proxy_connections: observed.proxy_connections,
            load: Box::new(observed.load),
            injected: counters.injected_since(&counters_before),
            replicas: counters.replicas_since(&counters_before),
            component_failures,
        };
        Ok((outcome, sample))
    }

    /// Offers the load of a trial while it is observed. Returns also the containers that ended meanwhile.
    fn offer(
        &self,
        instance: &Instance,
        trial: &PlannedTrial,
        point: &LoadPoint,
    ) -> Result<(Observed, Vec<ComponentFailure>), TrialFailure> {
        let clocks = self.clocks(instance).map_err(load_failed)?;
        let timing = self.timing(point, &clocks);
        let ground = self.ground();
        let seed = trial.arrival_seed;
        let spec = ground
            .demand()
            .load(&instance.site, None, point, timing, seed);
        let spec = spec.map_err(load_failed)?;
        let bypass = Bypass::begin(instance).map_err(load_failed)?;
        let observed = self.observe(instance, &spec, &clocks);
        drop(bypass);
        let components = instance.ended(&self.cluster);
        match observed {
            Ok(observed) => Ok((observed, components)),
            Err(failed) if components.is_empty() => Err(failed.into()),
            Err(_) => Err(TrialFailure::ComponentsEnded { components }),
        }
    }

    /// The clock of the generators, which share their node's, then those of the nodes' agents.
    fn clocks(&self, instance: &Instance) -> Result<Vec<Clock>, ClusterError> {
        let agents = clients(instance).take(1).chain(&self.agents.of_nodes);
        let clock = |pod: &RunningPod| pod.agent.clock().map_err(|e| pod.failed(e));
        agents.map(clock).collect()
    }

    /// The trial's timing: a window long enough for the error of its edges, and a warm-up long enough to pass it on.
    fn timing(&self, point: &LoadPoint, clocks: &[Clock]) -> Timing {
        let timing = Timing::of(&self.experiment.design).at(point);
        let error_ns = worst_error_ns(clocks);
        let lead_ns = LEAD.as_nanos() as u64 + 8 * error_ns;
        Timing {
            warmup_ns: timing.warmup_ns.max(lead_ns),
            window_ns: timing.window_ns.max(error_ns * EDGE_SHARE),
            ..timing
        }
    }

    /// Runs the load, and has every node observed in its window.
    fn observe(
        &self,
        instance: &Instance,
        spec: &LoadSpec,
        clocks: &[Clock],
    ) -> Result<Observed, Failed> {
        /// Before the window, for a port-forward to open and the kernel to walk its table of connections.
        const AHEAD_NS: u64 = 120_000_000;
        /// For the orders to start to reach the generators, beyond what they need on one machine.
        const ORDERED_NS: u64 = 50_000_000;
        let mut generators = Generators::ready(spec, workers(instance)?)?;
        let theirs_ns = |here_ns: u64| here_ns.saturating_add_signed(clocks[0].offset_ns);
        let here_ns = |theirs_ns: u64| theirs_ns.saturating_add_signed(-clocks[0].offset_ns);
        let lead_ns = generators.lead_ns() + ORDERED_NS + 4 * clocks[0].error_ns;
        let window = generators.start(theirs_ns(monotonic_ns()) + lead_ns)?;
        let (parts, nodes, before) = thread::scope(|scope| {
            let observing: Vec<_> = self
                .observations(instance, window, clocks)
                .into_iter()
                .zip(&self.agents.of_nodes)
                .map(|(observation, pod)| {
                    let observe = move || pod.agent.observe(observation);
                    scope.spawn(move || observe().map_err(|e| pod.failed(e)))
                })
                .collect();
            let ahead_ns = AHEAD_NS + 4 * clocks[0].error_ns;
            let at_ns = here_ns(window.start_monotonic_ns).saturating_sub(ahead_ns);
            let is_in_time = monotonic_ns() <= at_ns;
            sleep_until_ns(at_ns);
            let before = is_in_time.then(|| between_proxies(instance)).flatten();
            let parts = generators.results();
            let nodes: Result<Vec<NodeUsage>, Failed> = observing
                .into_iter()
                .map(|thread| Ok(thread.join().map_err(|_| Failed::Panicked)??))
                .collect();
            (parts, nodes, before)
        });
        // The load is over, and its connections are still open.
        let after = between_proxies(instance);
        let entered_connections = entered(instance);
        drop(generators);
        let parts = parts?;
        Ok(Observed {
            load: whole_load(spec, &parts),
            parts,
            nodes: nodes?,
            proxy_connections: after.map(|after| ProxyConnections { before, after }),
            entered_connections,
            clock_error_ns: worst_error_ns(clocks),
        })
    }

    /// What each node's agent reads: the same window on its own clock.
    fn observations(
        &self,
        active: &Instance,
        window: Window,
        clocks: &[Clock],
    ) -> Vec<Observation> {
        let containers = self.metered(&active.variant.id);
        let of_node = |(node, clock): (usize, &Clock)| {
            let (offset_ns, _) = clocks[0].to(clock);
            let there = |at_ns: u64| at_ns.saturating_add_signed(offset_ns);
            let here = containers.iter().filter(|c| c.node as usize == node);
            Observation {
                window: Window {
                    start_monotonic_ns: there(window.start_monotonic_ns),
                    end_monotonic_ns: there(window.end_monotonic_ns),
                },
                cores: self.hosts[node].cores.clone(),
                containers: here.cloned().collect(),
            }
        };
        clocks[1..].iter().enumerate().map(of_node).collect()
    }

    /// All containers of the run, with their roles in a trial of this variant.
    fn metered(&self, active: &VariantId) -> Vec<Metered> {
        let mut all = Vec::new();
        for (id, instance) in &self.round.instances {
            for placed in instance.all_containers() {
                let Some(container) = instance.container_id(&placed.pod, &placed.name) else {
                    continue;
                };
                let is_other = id != active;
                let is_proxy = !matches!(
                    placed.role,
                    ComponentRole::App | ComponentRole::Generator | ComponentRole::Harness
                );
                all.push(Metered {
                    id: container,
                    name: format!("{id}/{}/{}", placed.pod, placed.name),
                    role: match is_other {
                        true => ComponentRole::Idle,
                        false => placed.role,
                    },
                    node: placed.node as u32,
                    idles_for: (is_other && is_proxy).then(|| id.clone()),
                });
            }
        }
        all.extend(self.metered_meshes(active));
        let agents = self.agents.of_nodes.iter().enumerate();
        all.extend(agents.filter_map(|(node, pod)| {
            Some(Metered {
                id: pod.container_id(AGENT)?,
                name: format!("node-agent/{}", pod.node),
                role: ComponentRole::Harness,
                node: node as u32,
                idles_for: None,
            })
        }));
        each_once(all)
    }

    /// What runs for the cluster's meshes outside the run's pods.
    fn metered_meshes(&self, active: &VariantId) -> Vec<Metered> {
        let active = self.round.instances.get(active);
        let active = active.and_then(|instance| self.installed(instance));
        let is_active = |installed: &Installed| active.is_some_and(|of| of.mesh == installed.mesh);
        // Istio's control plane belongs to both of its meshes: it counts for the one that is measured, which comes first.
        let mut meshes: Vec<&Installed> = self.meshes.iter().collect();
        meshes.sort_by_key(|installed| !is_active(installed));
        let mut all: Vec<Metered> = Vec::new();
        for installed in meshes {
            let is_active = is_active(installed);
            let metered = |id: &str, name: &str, role, node: usize| Metered {
                id: id.to_owned(),
                name: format!("{}/{name}", installed.mesh.name),
                role: match is_active {
                    true => role,
                    false => ComponentRole::Idle,
                },
                node: node as u32,
                // Several variants may share it.
                idles_for: None,
            };
            all.extend(installed.on_nodes.iter().map(|proxy| {
                let name = &self.nodes[proxy.node];
                metered(&proxy.container, name, proxy.role(), proxy.node)
            }));
            let own = installed.control_plane.iter();
            all.extend(
                own.map(|of| metered(&of.id, &of.name, ComponentRole::ControlPlane, of.node)),
            );
        }
        all
    }

    /// All nodes together.
    fn sample(&self, trial: &TrialId, observed: &Observed) -> ResourceSample {
        let mut sample = ResourceSample {
            clock_error_ns: Some(observed.clock_error_ns),
            ..ResourceSample::new(trial.clone())
        };
        let mut idle = ComponentUsage::new("idle", ComponentRole::Idle);
        let mut proxies: BTreeMap<VariantId, u64> = BTreeMap::new();
        for (usage, machine) in observed.nodes.iter().zip(&self.machines) {
            sample.components.extend(usage.components.iter().cloned());
            idle.cpu_ns += usage.idle_cpu_ns;
            for of_variant in &usage.idle_proxies {
                *proxies.entry(of_variant.variant.clone()).or_default() += of_variant.cpu_ns;
            }
            add_series(&mut sample.series, &usage.series);
            // Nodes of one kernel see the same machine.
            if *machine as usize == sample.machines.len() {
                sample.machines.push(usage.machine.clone());
            }
        }
        sample.components.push(idle);
        sample.idle_proxies = proxies
            .into_iter()
            .map(|(variant, cpu_ns)| meshtax_model::trial::IdleProxies { variant, cpu_ns })
            .collect();
        sample
    }
}

/// What a trial's own readings contradict of the evidence.
fn contradicted(
    instance: &Instance,
    point: &LoadPoint,
    sample: &ResourceSample,
    observed: &Observed,
) -> Vec<LostEvidence> {
    let (load, connections) = (&observed.load, observed.proxy_connections);
    let mut lost = contradictions(point, &sample.components, load, connections);
    let has_first_proxy = instance.blueprint.contract.caller_port.is_some();
    if has_first_proxy && point.requests_per_connection.is_none() {
        let entered = &observed.entered_connections;
        lost.extend(lost_connections(entered, &observed.parts));
    }
    lost
}

/// Each container where it is listed first: an agent that serves several places is listed for each, and what two meshes share
/// for both.
fn each_once(mut all: Vec<Metered>) -> Vec<Metered> {
    let mut seen = BTreeSet::new();
    all.retain(|metered| seen.insert(metered.id.clone()));
    all
}

/// Nothing is redirected while this lives: a fault of the variant, for tests.
struct Bypass<'a>(&'a Instance, Fault);

impl<'a> Bypass<'a> {
    /// `None`: the variant has no such fault.
    fn begin(instance: &'a Instance) -> Result<Option<Self>, AgentError> {
        let Some(fault) = instance.blueprint.emulation.fault else {
            return Ok(None);
        };
        let this = Self(instance, fault);
        this.in_each_pod(|_| None)?;
        Ok(Some(this))
    }

    fn in_each_pod(
        &self,
        redirect: impl Fn(&PodBlueprint) -> Option<Redirect>,
    ) -> Result<(), AgentError> {
        let Self(instance, fault) = self;
        let pods = instance.blueprint.emulation.pods.iter();
        let mut pods = pods.filter(|pod| fault.lifts_redirection(&instance.site, &pod.pod));
        pods.try_for_each(|blueprint| match instance.pods.get(&blueprint.pod) {
            Some(pod) => pod.agent.redirect(redirect(blueprint)),
            None => Ok(()),
        })
    }
}

impl Drop for Bypass<'_> {
    fn drop(&mut self) {
        // If it fails, the probes at the round's end do.
        let _ = self.in_each_pod(|blueprint| Some(blueprint.redirect.clone()));
    }
}

/// The error of the edges of a window of the generator on the node whose clock is known least.
fn worst_error_ns(clocks: &[Clock]) -> u64 {
    let errors = clocks[1..].iter().map(|clock| clocks[0].to(clock).1);
    errors.max().unwrap_or(0)
}

/// Established connections between the proxies.
fn between_proxies(instance: &Instance) -> Option<u32> {
    let port = instance.blueprint.contract.proxy_port?;
    let pods = instance
        .site
        .entry_points()
        .flat_map(|service| &service.pods);
    pods.map(|pod| instance.pods.get(&pod.name)?.agent.connections(port).ok())
        .sum()
}

/// The connections of each client's part of the load at its first proxy.
fn entered(instance: &Instance) -> Vec<Option<u32>> {
    let port = instance.blueprint.contract.caller_port;
    clients(instance)
        .map(|client| client.agent.connections(port?).ok())
        .collect()
}

/// Adds the series of one node to that of the others: the steps of one window are the same everywhere.
fn add_series(sum: &mut UsageSeries, of_node: &UsageSeries) {
    if sum.ends_ns.is_empty() {
        *sum = of_node.clone();
        return;
    }
    if sum.ends_ns.len() != of_node.ends_ns.len() {
        return;
    }
    for more in &of_node.components {
        match sum.components.iter_mut().find(|c| c.role == more.role) {
            None => sum.components.push(more.clone()),
            Some(same) => {
                add(&mut same.cpu_ns, &more.cpu_ns);
                add(&mut same.anonymous_bytes, &more.anonymous_bytes);
            }
        }
    }
}

/// Element by element; empty if one of them is.
fn add(sums: &mut Vec<u64>, more: &[u64]) {
    match sums.len() == more.len() {
        true => sums
            .iter_mut()
            .zip(more)
            .for_each(|(sum, more)| *sum += more),
        false => sums.clear(),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::trial::ComponentSeries;

    use super::*;

    #[test]
    fn series_of_nodes_add_up_by_role() {
        let series = |role, cpu_ns: &[u64], bytes: &[u64]| UsageSeries {
            ends_ns: vec![1, 2],
            components: vec![ComponentSeries {
                role,
                cpu_ns: cpu_ns.to_vec(),
                anonymous_bytes: bytes.to_vec(),
            }],
        };
        let mut sum = UsageSeries::default();
        add_series(&mut sum, &series(ComponentRole::App, &[1, 2], &[10, 20]));
        add_series(&mut sum, &series(ComponentRole::App, &[3, 4], &[]));
        add_series(
            &mut sum,
            &series(ComponentRole::ServerProxy, &[5, 6], &[7, 8]),
        );
        assert_eq!(sum.components[0].cpu_ns, [4, 6]);
        assert!(
            sum.components[0].anonymous_bytes.is_empty(),
            "unknown on a node"
        );
        assert_eq!(sum.components[1].cpu_ns, [5, 6]);
    }

    #[test]
    fn no_container_is_metered_twice() {
        let metered = |id: &str, role, node| Metered {
            id: id.to_owned(),
            name: format!("{id} of place {node}"),
            role,
            node,
            idles_for: None,
        };
        // One node has both places, and so the same agent.
        let all = each_once(vec![
            metered("app", ComponentRole::App, 1),
            metered("istiod", ComponentRole::ControlPlane, 0),
            metered("istiod", ComponentRole::Idle, 0),
            metered("agent", ComponentRole::Harness, 0),
            metered("agent", ComponentRole::Harness, 1),
        ]);
        let names: Vec<&str> = all.iter().map(|metered| metered.name.as_str()).collect();
        assert_eq!(
            names,
            ["app of place 1", "istiod of place 0", "agent of place 0"]
        );
        assert_eq!(all[1].role, ComponentRole::ControlPlane);
    }

    #[test]
    fn error_of_a_window_is_that_of_both_clocks() {
        let clock = |error_ns| Clock {
            offset_ns: 0,
            error_ns,
        };
        assert_eq!(worst_error_ns(&[clock(10), clock(20), clock(5)]), 30);
    }
}
