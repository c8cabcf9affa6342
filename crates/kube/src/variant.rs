//! One variant: its namespace, its pods, and what they start.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use meshtax_agent::remote::{AgentError, ContainerStart, DeliveredFile};
use meshtax_control_plane::{ContentError, SharedAuthority};
use meshtax_dataplane::{
    AppPort, AppProtocol, Blueprint, Emulation, Pod, PodBlueprint, Redirect, Sabotage, Site,
    SiteService, blueprint,
};
use meshtax_evidence::{Deployment, READY_WITHIN, Subject, all_respond, canary};
use meshtax_model::catalogue::{DataPlane, Program, find};
use meshtax_model::experiment::{Experiment, Placement, Variant};
use meshtax_model::pods::PodRole;
use meshtax_model::trial::ComponentRole;
use meshtax_workload::{Application, UnresolvedDelay};

use crate::awaited::await_running;
use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::ground::Ground;
use crate::mesh::{Mesh, NotInstalled, mesh_of};
use crate::names::RUN;
use crate::objects::{AGENT, Common, ContainerPlan, PodPlan};
use crate::pods::RunningPod;
use crate::policies::policies;

/// Why a variant is not up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("there is no data plane {0}")]
    UnknownDataPlane(String),
    #[error("{0}")]
    Unsupported(Unsupported),
    #[error(transparent)]
    NotInstalled(NotInstalled),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error(transparent)]
    UnresolvedDelay(#[from] UnresolvedDelay),
    #[error("the application's configuration: {0}")]
    Configuration(#[from] serde_json::Error),
    #[error("service {0} has no address")]
    NoAddress(String),
}

impl StartError {
    /// Whether other pods may not meet the same: a connection to a pod was lost, a container of it ended, its node had no
    /// room for it just then, or packets of its capture were lost.
    pub(crate) fn may_pass(&self) -> bool {
        let Self::Cluster(error) = self else {
            return false;
        };
        match error {
            ClusterError::NotForwarded { .. }
            | ClusterError::Ended { .. }
            | ClusterError::PodFailed { .. } => true,
            ClusterError::Agent { source, .. } => matches!(
                source,
                AgentError::Unreachable(_) | AgentError::CaptureIncomplete { .. }
            ),
            _ => false,
        }
    }
}

/// What this engine does not have yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsupported {
    #[error(
        "{0} is not available on Kubernetes: the engine starts the baseline and meshtax's own proxy (limit-l4, \
         limit-mtls), and uses Linkerd (linkerd), Istio ambient (ztunnel) and Istio's sidecars (envoy-sidecar) where they \
         are installed"
    )]
    DataPlane(String),
    #[error(
        "{0} is the emulation of an installed mesh, and on Kubernetes that mesh itself is measured: write {1} in the spec"
    )]
    Emulation(&'static str, &'static str),
    #[error("the service's own program is not available on Kubernetes")]
    OwnProgram,
    #[error("ingress is not available on Kubernetes")]
    Ingress,
    #[error(
        "on one node, {0} has a single proxy for client and server, whose CPU cannot be attributed to either: use `placement: two-nodes`"
    )]
    OneProxyForBothSides(&'static str),
    #[error("this sabotage is not available on Kubernetes")]
    Sabotage,
    #[error(
        "extra endpoints, tracing and other options of proxies are not available on Kubernetes"
    )]
    Options,
    #[error(
        "meshtax does not create the proxies of {0}, so that it cannot set `limits` on them: set them in the mesh itself"
    )]
    Limits(&'static str),
    #[error(
        "a build (`version`, `program`, `--preset upgrade`) cannot be chosen on Kubernetes: the installed mesh, or the image of \
         meshtax, determines it"
    )]
    Build,
}

/// Checks what the engine can start.
fn supported(
    experiment: &Experiment,
    variant: &Variant,
    sabotage: Option<Sabotage>,
) -> Result<(), Unsupported> {
    if sabotage == Some(Sabotage::LoadAroundBusyProxies) {
        return Err(Unsupported::Sabotage);
    }
    let is_own = |plane: &DataPlane| {
        let mut programs = plane.programs.iter();
        programs.all(|program| *program == Program::LimitProxy)
    };
    let (mesh, plane) = (mesh_of(variant), find(&variant.data_plane));
    if let Some((plane, installed)) = plane.and_then(|of| Some((of, Mesh::installed_as(of)?))) {
        return Err(Unsupported::Emulation(plane.name, installed));
    }
    if mesh.is_none() && !plane.is_some_and(is_own) {
        return Err(Unsupported::DataPlane(variant.data_plane.to_string()));
    }
    if mesh.is_some() && sabotage.is_some_and(|sabotage| !Mesh::SABOTAGE.contains(&sabotage)) {
        return Err(Unsupported::Sabotage);
    }
    let serves_nodes = mesh.filter(|mesh| mesh.sidecar.is_none());
    if let Some(mesh) = serves_nodes.filter(|_| experiment.placement == Placement::OneNode) {
        return Err(Unsupported::OneProxyForBothSides(mesh.name));
    }
    if experiment.has_ingress() {
        return Err(Unsupported::Ingress);
    }
    if experiment.topology.program().is_some() {
        return Err(Unsupported::OwnProgram);
    }
    if let Some(mesh) = mesh.filter(|_| !variant.limits.is_empty()) {
        return Err(Unsupported::Limits(mesh.name));
    }
    if !variant.builds.is_empty() {
        return Err(Unsupported::Build);
    }
    match variant.options.is_empty() && variant.runtime.is_empty() {
        true => Ok(()),
        false => Err(Unsupported::Options),
    }
}

/// A container of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Its pod's name.
    pub(crate) pod: String,
    pub(crate) name: String,
    pub(crate) role: ComponentRole,
    /// Index of its node in the environment.
    pub(crate) node: usize,
}

/// A variant's namespace, and what will be in its pods.
pub(crate) struct VariantPlan {
    pub(crate) variant: Variant,
    pub(crate) namespace: String,
    pub(crate) mesh: Option<&'static Mesh>,
    /// Without addresses.
    site: Site,
    pub(crate) pods: Vec<PodPlan>,
    /// The containers beside agents.
    containers: Vec<Placed>,
    sabotage: Option<Sabotage>,
}

/// The container of a pod's process.
fn proxy_container(blueprint: &PodBlueprint, index: usize) -> String {
    match blueprint.processes.len() {
        1 => "proxy".into(),
        _ => format!("proxy-{}", index + 1),
    }
}

impl VariantPlan {
    /// What a variant needs, whatever the addresses of its pods will be.
    pub(crate) fn new(
        ground: &Ground<'_>,
        variant: &Variant,
        namespace: String,
        sabotage: Option<Sabotage>,
    ) -> Result<Self, StartError> {
        supported(ground.experiment, variant, sabotage).map_err(StartError::Unsupported)?;
        let nowhere = BTreeMap::new();
        let site = ground.site(variant, &namespace, &nowhere, &nowhere);
        let mesh = mesh_of(variant);
        let blueprint = blueprint_of(variant, &site, sabotage)?;
        let mut containers = started(ground, variant, (&site, &blueprint))?;
        let planned = |(pod, service): (&Pod, Option<&SiteService>)| PodPlan {
            namespace: namespace.clone(),
            name: pod.name.clone(),
            service_account: account(mesh, &site, pod, sabotage),
            service: service.map(|service| service.name.clone()),
            node: ground.node(pod.node),
            generates: site.is_client(&pod.name),
            is_redirected: blueprint
                .emulation
                .pod(&pod.name)
                .is_some_and(|of_pod| of_pod.redirect != Redirect::default()),
            annotations: mesh.map_or(&[], |mesh| mesh.pod_annotations),
            restarts: false,
            containers: of_pod(&containers, variant, &pod.name),
        };
        let pods: Vec<PodPlan> = in_mesh(&site).map(planned).collect();
        if let Some(sidecar) = mesh.and_then(|mesh| mesh.sidecar) {
            containers.extend(injected(&site, sidecar));
        }
        Ok(Self {
            variant: variant.clone(),
            pods,
            namespace,
            mesh,
            site,
            containers,
            sabotage,
        })
    }

    /// What stays for the whole run: the namespace, its accounts and its services.
    pub(crate) fn lasting(&self, ground: &Ground<'_>, common: &Common) -> Vec<serde_json::Value> {
        let namespace = self.namespace.as_str();
        let mut accounts: Vec<&str> = self
            .pods
            .iter()
            .map(|p| p.service_account.as_str())
            .collect();
        accounts.sort_unstable();
        accounts.dedup();
        let (joined, governed) = match self.sabotage {
            Some(Sabotage::NoProxy) => (None, None),
            Some(Sabotage::NoPolicy) => (self.mesh.map(Mesh::without_policies), None),
            _ => (self.mesh.copied(), self.mesh),
        };
        let mut objects = vec![common.namespace(namespace, joined.as_ref())];
        objects.extend(common.secrets(namespace));
        objects.extend(
            accounts
                .iter()
                .map(|name| common.service_account(namespace, name)),
        );
        let ports: Vec<(u16, String)> = ground
            .demand()
            .ports()
            .iter()
            .map(|port| (port.number, port_name(port)))
            .collect();
        for service in &ground.experiment.topology.services {
            objects.push(common.service(namespace, &service.name, &ports));
        }
        if let (Some(mesh), Some(level)) = (governed, self.variant.level) {
            objects.extend(policies(mesh, common, &self.site, level));
        }
        objects
    }

    /// The pods of a round.
    pub(crate) fn objects(&self, common: &Common) -> Vec<serde_json::Value> {
        self.pods.iter().map(|pod| common.pod(pod)).collect()
    }

    /// Whether its pods get what its mesh's injector adds.
    pub(crate) fn joins(&self) -> bool {
        self.mesh.is_some() && self.sabotage != Some(Sabotage::NoProxy)
    }

    /// Waits for the pods of this variant.
    pub(crate) fn await_pods(
        &self,
        cluster: &Cluster,
        common: &Common,
    ) -> Result<BTreeMap<String, RunningPod>, ClusterError> {
        let labels = format!("{RUN}={}", common.run);
        let count = self.pods.len();
        let pods = await_running(cluster, &self.namespace, &labels, count, &common.token)?;
        for pod in &pods {
            let plan = self.pods.iter().find(|plan| plan.name == pod.name);
            let planned = plan.iter().flat_map(|plan| &plan.containers);
            let planned = planned.map(|container| container.name.as_str());
            let expected: Vec<&str> = planned.chain([AGENT]).collect();
            pod.is_as_planned(&expected, self.mesh)?;
        }
        Ok(pods
            .into_iter()
            .map(|pod| (pod.name.clone(), pod))
            .collect())
    }
}

/// The pods that belong to a mesh, each with its service.
fn in_mesh(site: &Site) -> impl Iterator<Item = (&Pod, Option<&SiteService>)> {
    let callers = site.clients.iter().chain(&site.intruder);
    let of_services = site
        .services
        .iter()
        .flat_map(|service| service.pods.iter().map(move |pod| (pod, Some(service))));
    callers.map(|pod| (pod, None)).chain(of_services)
}

/// The containers that meshtax starts beside the agents: applications, and proxies of its own.
fn started(
    ground: &Ground<'_>,
    variant: &Variant,
    (site, blueprint): (&Site, &Blueprint),
) -> Result<Vec<Placed>, UnresolvedDelay> {
    let mut containers = Vec::new();
    for (pod, application) in ground.applications(variant, site)? {
        containers.push(Placed {
            name: app_container(&application),
            role: ComponentRole::App,
            node: Ground::node_index(pod.node),
            pod: pod.name,
        });
    }
    for of_pod in &blueprint.emulation.pods {
        let node = site.pods().find(|pod| pod.name == of_pod.pod);
        let node = node.map_or(0, |pod| Ground::node_index(pod.node));
        for (index, process) in of_pod.processes.iter().enumerate() {
            containers.push(Placed {
                pod: of_pod.pod.clone(),
                name: proxy_container(of_pod, index),
                role: process.role,
                node,
            });
        }
    }
    Ok(containers)
}

/// Those of one pod, with what they are given.
fn of_pod(containers: &[Placed], variant: &Variant, pod: &str) -> Vec<ContainerPlan> {
    let plan = |container: &Placed| {
        let limited = container.role.limited();
        let limits = limited.and_then(|role| variant.limits.get(&role).copied());
        ContainerPlan {
            name: container.name.clone(),
            role: match container.role {
                ComponentRole::App => PodRole::Service,
                _ => PodRole::Proxy,
            },
            marks: container.role != ComponentRole::App,
            limits: limits.unwrap_or_default(),
        }
    };
    let here = containers.iter().filter(|container| container.pod == pod);
    here.map(plan).collect()
}

/// A port's name tells meshes its protocol (Istio: explicit protocol selection).
fn port_name(port: &AppPort) -> String {
    let protocol = match port.protocol {
        AppProtocol::Http1 => "http",
        AppProtocol::Http2 => "http2",
        AppProtocol::Tcp => "tcp",
    };
    format!("{protocol}-{}", port.number)
}

fn app_container(application: &Application) -> String {
    format!("app{}", application.suffix)
}

fn blueprint_of(
    variant: &Variant,
    site: &Site,
    sabotage: Option<Sabotage>,
) -> Result<Blueprint, StartError> {
    let unknown = || StartError::UnknownDataPlane(variant.data_plane.to_string());
    let plane = find(&variant.data_plane).ok_or_else(unknown)?;
    let whole = blueprint(plane, site, variant.level, sabotage);
    Ok(match Mesh::of(plane) {
        None => whole,
        // The mesh itself does what would be emulated.
        Some(_) => Blueprint {
            emulation: Emulation {
                pods: Vec::new(),
                fault: whole.emulation.fault,
            },
            ..whole
        },
    })
}

/// The service account with which a pod is created: on a mesh, that is its identity, which a sabotage replaces.
fn account(mesh: Option<&Mesh>, site: &Site, pod: &Pod, sabotage: Option<Sabotage>) -> String {
    const IMPOSTOR: &str = "impostor";
    let is_server = || site.service_pods().any(|of| of.name == pod.name);
    let is_wrong = match sabotage {
        Some(Sabotage::WrongClientIdentity) => site.is_client(&pod.name),
        Some(Sabotage::WrongServerIdentity) => is_server(),
        _ => false,
    };
    match mesh.is_some() && is_wrong {
        true => IMPOSTOR.to_owned(),
        false => pod.service_account.clone(),
    }
}

/// The proxies that a mesh's injector adds.
fn injected(site: &Site, container: &str) -> Vec<Placed> {
    let clients = site
        .clients
        .iter()
        .map(|pod| (pod, ComponentRole::ClientProxy));
    let servers = site
        .service_pods()
        .map(|pod| (pod, ComponentRole::ServerProxy));
    let intruder = site
        .intruder
        .iter()
        .map(|pod| (pod, ComponentRole::Harness));
    clients
        .chain(servers)
        .chain(intruder)
        .map(|(pod, role)| Placed {
            pod: pod.name.clone(),
            name: container.to_owned(),
            role,
            node: Ground::node_index(pod.node),
        })
        .collect()
}

/// A variant that is up.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) variant: Variant,
    pub(crate) namespace: String,
    pub(crate) site: Site,
    pub(crate) blueprint: Blueprint,
    /// By name.
    pub(crate) pods: BTreeMap<String, RunningPod>,
    /// The containers beside agents.
    pub(crate) containers: Vec<Placed>,
    canary: String,
    began: Instant,
    ready_until: Instant,
    pub(crate) served_ns: Option<u64>,
}

impl Instance {
    /// Tells each pod what to start, now that all have addresses.
    pub(crate) fn configure(
        plan: &VariantPlan,
        ground: &Ground<'_>,
        pods: BTreeMap<String, RunningPod>,
        services: &BTreeMap<String, Ipv4Addr>,
        (authority, round): (&SharedAuthority, u32),
    ) -> Result<Self, StartError> {
        let variant = &plan.variant;
        let addresses = pods.iter().map(|(name, pod)| (name.clone(), pod.address));
        let site = ground.site(variant, &plan.namespace, &addresses.collect(), services);
        if let Some(service) = site.services.iter().find(|s| s.address.is_unspecified()) {
            return Err(StartError::NoAddress(service.name.clone()));
        }
        let blueprint = blueprint_of(variant, &site, plan.sabotage)?;
        let began = Instant::now();
        for (name, pod) in &pods {
            let mut starts = Vec::new();
            for (of, application) in ground.applications(variant, &site)? {
                if of.name == *name {
                    let config = serde_json::to_string(&application.config)?;
                    let arguments = ["internal", "app", &config].map(str::to_owned).to_vec();
                    starts.push(ContainerStart {
                        container: app_container(&application),
                        arguments,
                        environment: BTreeMap::new(),
                    });
                }
            }
            let of_pod = blueprint.emulation.pod(name).cloned().unwrap_or_default();
            let files = files(&of_pod, authority)?;
            starts.extend(proxies(&of_pod));
            let configured = pod.agent.configure(files, of_pod.redirect, starts);
            configured.map_err(|e| pod.failed(e))?;
        }
        Ok(Self {
            variant: variant.clone(),
            namespace: plan.namespace.clone(),
            site,
            blueprint,
            pods,
            containers: plan.containers.clone(),
            canary: canary(&variant.id, round),
            began,
            ready_until: Instant::now() + READY_WITHIN,
            served_ns: None,
        })
    }

    /// The time until every service that clients call has responded, in nanoseconds. That a variant never gets ready is
    /// reported by its probes.
    pub(crate) fn first_response(
        &self,
        deployed: &dyn Deployment,
        ground: &Ground<'_>,
    ) -> Option<u64> {
        const PAUSE: Duration = Duration::from_millis(20);
        let subject = self.subject(deployed, ground);
        while !all_respond(&subject) {
            if Instant::now() > self.ready_until {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        u64::try_from(self.began.elapsed().as_nanos()).ok()
    }

    /// What the probes verify.
    pub(crate) fn subject<'a>(
        &'a self,
        deployment: &'a dyn Deployment,
        ground: &Ground<'a>,
    ) -> Subject<'a> {
        Subject {
            variant: &self.variant.id,
            site: &self.site,
            contract: &self.blueprint.contract,
            topology: &ground.experiment.topology,
            deployment,
            canary: &self.canary,
            ready_until: self.ready_until,
            served_ns: self.served_ns,
        }
    }

    /// The agent's container of a pod: those of the clients are the generators'.
    pub(crate) fn agent_role(&self, pod: &str) -> ComponentRole {
        match self.site.is_client(pod) {
            true => ComponentRole::Generator,
            false => ComponentRole::Harness,
        }
    }

    /// The runtime's id of a container.
    pub(crate) fn container_id(&self, pod: &str, container: &str) -> Option<String> {
        self.pods.get(pod)?.container_id(container)
    }

    /// All containers with agents.
    pub(crate) fn all_containers(&self) -> Vec<Placed> {
        let agents = self.pods.keys().map(|pod| Placed {
            pod: pod.clone(),
            name: AGENT.into(),
            role: self.agent_role(pod),
            node: {
                let site = self.site.pods().find(|of| of.name == *pod);
                site.map_or(0, |of| Ground::node_index(of.node))
            },
        });
        agents.chain(self.containers.iter().cloned()).collect()
    }
}

fn files(
    blueprint: &PodBlueprint,
    authority: &SharedAuthority,
) -> Result<Vec<DeliveredFile>, ContentError> {
    let mut authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
    let file = |file: &meshtax_dataplane::PodFile| {
        Ok(DeliveredFile {
            name: file.name.clone(),
            content: authority.content(&file.content)?,
        })
    };
    blueprint.files.iter().map(file).collect()
}

fn proxies(blueprint: &PodBlueprint) -> Vec<ContainerStart> {
    let start = |(index, process): (usize, &meshtax_dataplane::Process)| {
        let own = ["internal", "limit-proxy"].map(str::to_owned).into_iter();
        ContainerStart {
            container: proxy_container(blueprint, index),
            arguments: own.chain(process.arguments.iter().cloned()).collect(),
            environment: BTreeMap::new(),
        }
    };
    blueprint.processes.iter().enumerate().map(start).collect()
}
