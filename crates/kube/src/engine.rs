//! The [`Engine`] of a cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use meshtax_agent::remote::HostFacts;
use meshtax_control_plane::Authority;
use meshtax_dataplane::Sabotage;
use meshtax_engine::{Engine, EngineError, Measured, RoundEnd, VariantStart};
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::Environment;
use meshtax_model::experiment::{Design, Experiment, LoadPoint, Placement, Variant, VariantId};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::pods::PullSecret;
use meshtax_model::topology::Topology;
use meshtax_model::trial::TrialOutcome;
use serde_json::{Value, json};

use crate::chronicle::Chronicle;
use crate::cluster::{Access, Cluster, Permission};
use crate::deployment::Authorities;
use crate::environment::{environment, machines};
use crate::error::ClusterError;
use crate::ground::Ground;
use crate::lease::{self, NodeLease};
use crate::mesh::mesh_of;
use crate::mesh::{Installed, NotInstalled};
use crate::names::RunNames;
use crate::nodes;
use crate::objects::{Common, Credentials};
use crate::round::not_started;
use crate::running::{Agents, Reaching, Round, Running};
use crate::settings::Settings;
use crate::trial::load_failed;
use crate::variant::{StartError, VariantPlan};

/// What a run on a cluster needs in addition to its experiment.
#[derive(Clone, Debug)]
pub struct KubernetesOptions {
    /// How the cluster is reached.
    pub access: Access,
    /// The beginning of the names of all namespaces.
    pub namespace_prefix: String,
    /// The nodes to use, the clients' first; empty: any that take pods.
    pub nodes: Vec<String>,
    /// The image of meshtax.
    pub image: Option<String>,
    /// Variants that are broken on purpose, for tests.
    pub sabotage: BTreeMap<VariantId, Sabotage>,
    /// Tells this run apart from others on the cluster: lower-case letters and digits.
    pub run: String,
    /// The name under which this run was on the cluster before it was interrupted: what is left of it is removed first.
    pub interrupted_run: Option<String>,
}

/// The rules that the engine needs, in all namespaces: its namespaces do not exist before the run.
const PERMISSIONS: &[Permission] = &[
    Permission::new("list", "", "nodes"),
    Permission::new("list", "", "namespaces"),
    Permission::new("create", "", "namespaces"),
    Permission::new("patch", "", "namespaces"),
    Permission::new("delete", "", "namespaces"),
    Permission::new("create", "", "secrets"),
    Permission::new("patch", "", "secrets"),
    Permission::new("create", "", "serviceaccounts"),
    Permission::new("patch", "", "serviceaccounts"),
    Permission::new("create", "", "services"),
    Permission::new("patch", "", "services"),
    Permission::new("list", "", "services"),
    Permission::new("create", "", "pods"),
    Permission::new("patch", "", "pods"),
    Permission::new("list", "", "pods"),
    Permission::new("deletecollection", "", "pods"),
    Permission::new("get", "", "pods/log"),
    Permission::new("list", "", "events"),
    // By WebSocket, which begins with a GET: which of the two counts depends on the version of the API server.
    Permission::new("get", "", "pods/portforward"),
    Permission::new("create", "", "pods/portforward"),
    Permission::new("create", "coordination.k8s.io", "leases"),
    Permission::new("patch", "coordination.k8s.io", "leases"),
    Permission::new("list", "coordination.k8s.io", "leases"),
    Permission::new("create", "apps", "daemonsets"),
    Permission::new("patch", "apps", "daemonsets"),
];

/// To copy the Secrets of `image-pull-secrets`.
const READ_PULL_SECRETS: Permission = Permission::new("get", "", "secrets");

/// The Kubernetes engine.
pub struct KubernetesEngine {
    options: KubernetesOptions,
    /// Kept apart from what is prepared: what was created must be removed also if preparation fails.
    cluster: Option<Arc<Cluster>>,
    running: Option<Running>,
    /// Variants that this engine cannot start.
    unsupported: BTreeMap<VariantId, StartError>,
}

impl KubernetesEngine {
    /// An engine that creates nothing yet.
    #[must_use]
    pub fn new(options: KubernetesOptions) -> Self {
        Self {
            options,
            cluster: None,
            running: None,
            unsupported: BTreeMap::new(),
        }
    }

    fn build(&mut self, experiment: &Experiment) -> Result<Environment, ClusterError> {
        let mut common = common(experiment, &self.options, token()?)?;
        let cluster = Arc::new(Cluster::connect(&self.options.access)?);
        check_permissions(&cluster, experiment)?;
        common.pull_secrets = credentials(&cluster, experiment)?;
        self.cluster = Some(Arc::clone(&cluster));
        if let Some(run) = &self.options.interrupted_run {
            remove_interrupted(&cluster, run)?;
        }
        let server_nodes = experiment.topology.server_nodes() as usize;
        let places = (experiment.placement, server_nodes);
        let named = &self.options.nodes;
        let nodes = nodes::choose(&cluster, named, places, &common.settings)?;
        let names = RunNames::new(&self.options.namespace_prefix, &self.options.run);
        let namespace = names.agents();
        cluster.apply(&common.namespace(&namespace, None))?;
        let lease = NodeLease::claim(&cluster, &namespace, &common.run, &nodes)?;
        let agents = deploy_agents(&cluster, &common, &namespace, &nodes)?;
        let hosts: Vec<HostFacts> = agents
            .of_nodes
            .iter()
            .map(|pod| pod.agent.host().map_err(|e| pod.failed(e)))
            .collect::<Result<_, _>>()?;
        let machines = machines(&hosts);
        let mut running = Running {
            experiment: experiment.clone(),
            authorities: authorities()?,
            meshes: Vec::new(),
            plans: BTreeMap::new(),
            services: BTreeMap::new(),
            round: Round::default(),
            had_round: false,
            chronicle: Chronicle::default(),
            _lease: lease,
            cluster,
            common,
            nodes,
            agents,
            reaching: Reaching::default(),
            hosts,
            machines,
        };
        self.unsupported = plan_variants(&mut running, &names, &self.options.sabotage)?;
        running.read_injected()?;
        let environment = environment(&running);
        self.running = Some(running);
        Ok(environment)
    }

    fn running(&mut self) -> Result<&mut Running, EngineError> {
        self.running.as_mut().ok_or_else(|| EngineError::Lost {
            component: "the cluster",
            problem: "was not prepared".into(),
        })
    }
}

/// What all objects of a run have in common, without the credentials of registries.
fn common(
    experiment: &Experiment,
    options: &KubernetesOptions,
    token: String,
) -> Result<Common, ClusterError> {
    Ok(Common {
        run: options.run.clone(),
        image: options.image.clone().ok_or(ClusterError::NoImage)?,
        token,
        settings: Settings::new(experiment.kubernetes.as_ref())?,
        pull_secrets: Vec::new(),
    })
}

fn check_permissions(cluster: &Cluster, experiment: &Experiment) -> Result<(), ClusterError> {
    let mut needed = PERMISSIONS.to_vec();
    if pull_secrets(experiment).next().is_some() {
        needed.push(READ_PULL_SECRETS);
    }
    match cluster.missing_permissions(&needed)? {
        missing if missing.is_empty() => Ok(()),
        missing => Err(ClusterError::MissingPermissions(missing)),
    }
}

fn pull_secrets(experiment: &Experiment) -> impl Iterator<Item = &PullSecret> {
    let settings = experiment.kubernetes.iter();
    settings.flat_map(|settings| &settings.image_pull_secrets)
}

/// The credentials of registries that the experiment names.
fn credentials(
    cluster: &Cluster,
    experiment: &Experiment,
) -> Result<Vec<Credentials>, ClusterError> {
    let read = |of: &PullSecret| {
        let (namespace, name) = (of.namespace.clone(), of.name.clone());
        let absent = ClusterError::NoPullSecret { namespace, name };
        let secret = cluster.secret(&of.namespace, &of.name)?.ok_or(absent)?;
        Ok(Credentials {
            name: of.name.clone(),
            kind: secret.type_.unwrap_or_default(),
            data: json!(secret.data.unwrap_or_default()),
        })
    };
    pull_secrets(experiment).map(read).collect()
}

/// Removes what an interrupted run left: its pods would run beside the measured ones.
fn remove_interrupted(cluster: &Cluster, run: &str) -> Result<(), ClusterError> {
    lease::await_expiry(cluster, run)?;
    let left = cluster.remove_namespaces(Some(run))?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(ClusterError::Remains { namespaces: left }),
    }
}

/// A secret of 128 random bits.
fn token() -> Result<String, ClusterError> {
    let mut bytes = [0_u8; 16];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes)
        .map_err(|_| ClusterError::Runtime(std::io::Error::other("no random bytes")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The objects that a run applies before its first round and in each round, for people who want to read them first. Nodes
/// are named only where they were chosen.
///
/// # Errors
/// If no image is known.
pub fn objects(
    experiment: &Experiment,
    options: &KubernetesOptions,
) -> Result<Vec<String>, ClusterError> {
    let mut common = common(experiment, options, "(random)".into())?;
    common.pull_secrets = pull_secrets(experiment)
        .map(|of| Credentials {
            name: of.name.clone(),
            kind: format!("(that of {}/{})", of.namespace, of.name),
            data: json!({}),
        })
        .collect();
    let count = 1 + experiment.topology.server_nodes() as usize;
    let name = |place: usize| {
        let number = match experiment.placement {
            Placement::TwoNodes => place,
            Placement::OneNode => 0,
        };
        let named = options.nodes.get(number);
        named
            .cloned()
            .unwrap_or_else(|| format!("(node {})", number + 1))
    };
    let nodes: Vec<String> = (0..count).map(name).collect();
    let names = RunNames::new(&options.namespace_prefix, &options.run);
    let mut objects = agent_objects(&common, &names.agents(), &nodes);
    objects.push(common.node_agents(&names.agents(), &nodes));
    let ground = Ground {
        experiment,
        nodes: &nodes,
        cores: 1,
    };
    for variant in &experiment.variants {
        // A run reports the variants that it cannot start.
        let namespace = names.variant(&variant.id);
        if let Ok(plan) = VariantPlan::new(&ground, variant, namespace, None) {
            objects.extend(plan.lasting(&ground, &common));
            objects.extend(plan.objects(&common));
        }
    }
    Ok(objects
        .iter()
        .map(|object| format!("{object:#}\n"))
        .collect())
}

/// The namespace of the agents, and what is in it but the nodes' agents.
fn agent_objects(common: &Common, namespace: &str, nodes: &[String]) -> Vec<Value> {
    let mut objects = vec![
        common.namespace(namespace, None),
        lease::object(namespace, &common.run, nodes),
    ];
    objects.extend(common.secrets(namespace));
    objects.push(common.service_account(namespace, "default"));
    objects.push(common.outsider(namespace, &nodes[0]));
    objects
}

/// Starts an agent on each node, and the client outside the mesh.
fn deploy_agents(
    cluster: &Cluster,
    common: &Common,
    namespace: &str,
    nodes: &[String],
) -> Result<Agents, ClusterError> {
    for object in agent_objects(common, namespace, nodes) {
        cluster.apply(&object)?;
    }
    cluster.admit(&common.node_agent(namespace, nodes))?;
    cluster.apply(&common.node_agents(namespace, nodes))?;
    Agents::reach(cluster, common, namespace, nodes)
}

fn authorities() -> Result<Authorities, ClusterError> {
    let authority = |name| {
        let authority = Authority::new(name);
        let authority = authority.map_err(|e| ClusterError::Runtime(std::io::Error::other(e)))?;
        Ok::<_, ClusterError>(Arc::new(Mutex::new(authority)))
    };
    Ok(Authorities {
        mesh: authority("meshtax")?,
        foreign: authority("somebody else")?,
    })
}

/// Finds the meshes that variants use. Returns why those that cannot be used cannot.
fn find_meshes(
    running: &mut Running,
) -> Result<BTreeMap<&'static str, NotInstalled>, ClusterError> {
    let mut absent = BTreeMap::new();
    let variants = running.experiment.variants.iter();
    let mut meshes: Vec<_> = variants.filter_map(mesh_of).collect();
    meshes.dedup();
    for mesh in meshes {
        if running
            .meshes
            .iter()
            .any(|installed| installed.mesh == mesh)
        {
            continue;
        }
        let places = (running.nodes.as_slice(), running.ground().cores);
        match Installed::find(&running.cluster, mesh, places)? {
            Ok(installed) => running.meshes.push(installed),
            Err(why) => {
                absent.insert(mesh.name, why);
            }
        }
    }
    Ok(absent)
}

/// Creates what stays of each variant. Returns the variants that this engine cannot start.
fn plan_variants(
    running: &mut Running,
    names: &RunNames,
    sabotage: &BTreeMap<VariantId, Sabotage>,
) -> Result<BTreeMap<VariantId, StartError>, ClusterError> {
    let absent = find_meshes(running)?;
    let mut unsupported = BTreeMap::new();
    let (mut plans, mut services) = (BTreeMap::new(), BTreeMap::new());
    for variant in &running.experiment.variants {
        let ground = running.ground();
        if let Some(why) = mesh_of(variant).and_then(|mesh| absent.get(mesh.name)) {
            let why = StartError::NotInstalled(why.clone());
            unsupported.insert(variant.id.clone(), why);
            continue;
        }
        let broken = sabotage.get(&variant.id).copied();
        let plan = match VariantPlan::new(&ground, variant, names.variant(&variant.id), broken) {
            Ok(plan) => plan,
            Err(StartError::Cluster(error)) => return Err(error),
            Err(other) => {
                unsupported.insert(variant.id.clone(), other);
                continue;
            }
        };
        for object in plan.lasting(&ground, &running.common) {
            running.cluster.apply(&object)?;
        }
        services.insert(
            variant.id.clone(),
            addresses(&running.cluster, &plan.namespace)?,
        );
        plans.insert(variant.id.clone(), plan);
    }
    running.plans = plans;
    running.services = services;
    Ok(unsupported)
}

/// The addresses of a namespace's services.
fn addresses(
    cluster: &Cluster,
    namespace: &str,
) -> Result<BTreeMap<String, Ipv4Addr>, ClusterError> {
    let api: Api<Service> = Api::namespaced(cluster.client(), namespace);
    let services = cluster.list(&api, &format!("list services in {namespace}"), "")?;
    let address = |service: Service| {
        let address = service.spec?.cluster_ip?.parse().ok()?;
        Some((service.metadata.name?, address))
    };
    Ok(services.into_iter().filter_map(address).collect())
}

impl Engine for KubernetesEngine {
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError> {
        Ok(self.build(experiment)?)
    }

    fn set_work(&mut self, topology: &Topology, design: &Design) -> Result<(), EngineError> {
        let experiment = &mut self.running()?.experiment;
        experiment.topology = topology.clone();
        experiment.design = design.clone();
        Ok(())
    }

    fn start_round(
        &mut self,
        round: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, EngineError> {
        let mut starts = Vec::new();
        let mut present = Vec::new();
        for variant in variants {
            match self.unsupported.get(&variant.id) {
                None => present.push(variant.clone()),
                Some(error) => starts.push(not_started(&variant.id, error)),
            }
        }
        starts.extend(self.running()?.start_round(round, &present)?);
        Ok(starts)
    }

    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError> {
        let running = self.running()?;
        if let Some(error) = running.reach_lost_agents()? {
            let failure = load_failed(error);
            return Ok(Measured {
                outcome: TrialOutcome::Failed { failure },
                sample: None,
            });
        }
        let measured = running.measure(trial, load_point);
        if matches!(measured.outcome, TrialOutcome::Failed { .. }) {
            // If they are not reached now, the next trial tries again.
            running.reach_agents()?;
        }
        Ok(measured)
    }

    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError> {
        Ok(self.running()?.end_round(prove)?)
    }

    fn observed(&mut self) -> Vec<ClusterRecord> {
        let Some(running) = self.running.as_mut() else {
            return Vec::new();
        };
        running.record_events();
        running.chronicle.take()
    }

    fn teardown(&mut self) -> Vec<String> {
        self.running = None;
        let Some(cluster) = self.cluster.take() else {
            return Vec::new();
        };
        let run = &self.options.run;
        match cluster.remove_namespaces(Some(run)) {
            Ok(left) => left.into_iter().map(|n| format!("namespace {n}")).collect(),
            Err(error) => vec![format!(
                "the namespaces of run {run} ({error}); `meshtax cleanup {run}` removes them"
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::mesh::Mesh;

    /// `[a, "b"]` after a key.
    fn list<'a>(line: &'a str, key: &str) -> Vec<&'a str> {
        let (_, rest) = line.split_once(key).expect("the key");
        let (_, rest) = rest.split_once('[').expect("a list");
        let (list, _) = rest.split_once(']').expect("its end");
        list.split(',')
            .map(|item| item.trim().trim_matches('"'))
            .collect()
    }

    #[test]
    fn documented_role_has_exactly_the_permissions_that_are_needed() {
        let document = include_str!("../../../docs/kubernetes.md");
        let rules = document
            .lines()
            .filter(|line| line.contains("- {apiGroups"));
        let mut documented = BTreeSet::new();
        for line in rules {
            for resource in list(line, "resources:") {
                for verb in list(line, "verbs:") {
                    for group in list(line, "apiGroups:") {
                        documented.insert((verb, group, resource));
                    }
                }
            }
        }
        let of_meshes = Mesh::ALL.iter().flat_map(|mesh| mesh.permissions);
        let needed = PERMISSIONS.iter().chain(of_meshes);
        let needed = needed.chain([&READ_PULL_SECRETS]);
        let needed = needed.map(|p| (p.verb, p.group, p.resource));
        assert_eq!(documented, needed.collect());
    }
}
