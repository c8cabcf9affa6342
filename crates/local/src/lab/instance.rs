//! One variant in the lab: its files, redirection, control planes and processes.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Command;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_agent::nft;
use meshtax_control_plane::SharedAuthority;
use meshtax_dataplane::{
    Blueprint, Content, Fault, Pod, PodBlueprint, PodNode, Process, ProcessScope, Redirect, Site,
    blueprint,
};
use meshtax_evidence::{READY_WITHIN, Subject, all_respond, canary};
use meshtax_model::catalogue::{self, Program};
use meshtax_model::experiment::{Variant, VariantId};
use meshtax_model::failure::ComponentFailure;
use meshtax_model::topology::Topology;
use meshtax_model::trial::ComponentRole;

use super::apps;
use super::component::{Component, TrafficSource, own_program};
use super::control::{self, Control};
use super::deployed::Deployed;
use super::error::StartError;
use super::netlink;
use super::netns::NetNs;
use super::network::node_index;
use super::setup::{Lab, Pods};
use crate::protocol::LabProgram;

/// One variant that is up.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) variant: Variant,
    pub(crate) site: Site,
    pub(crate) blueprint: Blueprint,
    /// A text that the probes send, and that nothing else on the wire contains.
    canary: String,
    /// The applications first, then the proxies.
    pub(crate) components: Vec<Component>,
    /// The control planes that meshtax serves to the proxies.
    pub(crate) control: Vec<Control>,
    /// When its first process was to start.
    began: Instant,
    /// When its first permitted request must have succeeded.
    ready_until: Instant,
    /// From the start of its first process to the first response; `None`: not observed.
    pub(crate) served_ns: Option<u64>,
}

impl Instance {
    /// Starts a variant and waits for its first response before any other variant starts, since all share the cores.
    pub(crate) fn start(lab: &Lab, variant: &Variant, round: u32) -> Result<Self, StartError> {
        let mut instance = Self::start_processes(lab, variant, round)?;
        // A sabotaged variant may never respond.
        if !lab.setup.sabotage.contains_key(&variant.id) {
            instance.served_ns = instance.first_response(lab);
        }
        Ok(instance)
    }

    fn start_processes(lab: &Lab, variant: &Variant, round: u32) -> Result<Self, StartError> {
        let pods = &lab.pods[&variant.id];
        let site = pods.site(variant).map_err(StartError::Directories)?;
        let unknown = || StartError::UnknownDataPlane(variant.data_plane.clone());
        let plane = catalogue::find(&variant.data_plane).ok_or_else(unknown)?;
        let sabotage = lab.setup.sabotage.get(&variant.id).copied();
        let blueprint = blueprint(plane, &site, variant.level, sabotage);
        let placed = placed(lab, pods, &site, &blueprint);
        let mut control = Vec::new();
        for pod in &placed {
            control.extend(pod.configure(pods, &lab.authority)?);
        }
        let began = Instant::now();
        let mut components = apps::start(lab, variant, &site)?;
        for pod in &placed {
            for process in &pod.blueprint.processes {
                let programs = &lab.setup.programs;
                components.push(pod.start(variant, process, programs, &lab.authority)?);
            }
        }
        drop(placed);
        if blueprint.emulation.fault == Some(Fault::LoadBypassesBusyProxies) {
            components.extend(busy_proxies(lab, variant)?);
        }
        Ok(Self {
            variant: variant.clone(),
            site,
            blueprint,
            canary: canary(&variant.id, round),
            components,
            control,
            began,
            ready_until: Instant::now() + READY_WITHIN,
            served_ns: None,
        })
    }

    /// The time until every service that clients call has responded, in nanoseconds. That a variant never gets ready is
    /// reported by its probes.
    fn first_response(&self, lab: &Lab) -> Option<u64> {
        const PAUSE: Duration = Duration::from_millis(2);
        let deployed = self.deployed(lab);
        let subject = self.subject(&deployed, &lab.setup.topology);
        loop {
            if all_respond(&subject) {
                return u64::try_from(self.began.elapsed().as_nanos()).ok();
            }
            let ended = self.components.iter().any(|c| c.failure().is_some());
            if Instant::now() > self.ready_until || ended {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }

    /// The variant as the probes see it.
    pub(crate) fn deployed<'a>(&'a self, lab: &'a Lab) -> Deployed<'a> {
        Deployed {
            pods: &lab.pods[&self.variant.id],
            outsider: &lab.outsider,
            components: &self.components,
            control: &self.control,
            authority: &lab.authority,
            foreign: &lab.foreign,
        }
    }

    /// What the probes verify.
    pub(crate) fn subject<'a>(
        &'a self,
        deployed: &'a Deployed<'a>,
        topology: &'a Topology,
    ) -> Subject<'a> {
        Subject {
            variant: &self.variant.id,
            site: &self.site,
            contract: &self.blueprint.contract,
            topology,
            deployment: deployed,
            canary: &self.canary,
            ready_until: self.ready_until,
            served_ns: self.served_ns,
        }
    }

    /// The processes that have ended.
    pub(crate) fn ended(&self) -> Vec<ComponentFailure> {
        self.components
            .iter()
            .filter_map(Component::failure)
            .collect()
    }
}

/// Processes of both sides that use CPU and forward nothing.
fn busy_proxies(lab: &Lab, variant: &Variant) -> Result<Vec<Component>, StartError> {
    let busy = |(role, name): (ComponentRole, &str)| {
        let name = format!("{}/busy-{name}", variant.id);
        let mut command = Command::new("nice");
        command.args(["-n", "19", "sh", "-c", "while :; do :; done"]);
        let namespace = &lab.outsider.namespace;
        let cores = lab.cores_of(PodNode::Server(0), role);
        Component::start(name.clone(), role, command, namespace, cores)
            .map_err(|source| StartError::Process { name, source })
    };
    let sides = [
        (ComponentRole::ClientProxy, "client-proxy"),
        (ComponentRole::ServerProxy, "server-proxy"),
    ];
    sides.into_iter().map(busy).collect()
}

/// A pod with its blueprint, its namespaces and its cores.
struct PlacedPod<'a> {
    pod: &'a Pod,
    blueprint: &'a PodBlueprint,
    namespace: &'a NetNs,
    /// That of the proxies that serve its node.
    node: &'a NetNs,
    lab: &'a Lab,
    /// The source of the traffic that passes it; `None`: any.
    source: Option<TrafficSource>,
}

/// All pods that have a blueprint, in its order.
fn placed<'a>(
    lab: &'a Lab,
    pods: &'a Pods,
    site: &'a Site,
    blueprint: &'a Blueprint,
) -> Vec<PlacedPod<'a>> {
    let blueprints = blueprint.emulation.pods.iter();
    let placed = blueprints.filter_map(|blueprint| {
        let pod = site.pods().find(|pod| pod.name == blueprint.pod)?;
        let gateway = site.gateway.as_ref();
        let is_gateway = gateway.is_some_and(|gateway| gateway.pod.name == pod.name);
        Some(PlacedPod {
            pod,
            blueprint,
            namespace: pods.namespace(pod),
            node: pods.node(pod.node),
            lab,
            source: match (is_gateway, site.is_client(&pod.name)) {
                (true, _) => Some(TrafficSource::Ingress),
                (_, true) => Some(TrafficSource::Pod),
                (false, false) => None,
            },
        })
    });
    placed.collect()
}

impl PlacedPod<'_> {
    /// Writes its files, redirects its traffic, and serves its control planes.
    fn configure(
        &self,
        pods: &Pods,
        authority: &SharedAuthority,
    ) -> Result<Vec<Control>, StartError> {
        for file in &self.blueprint.files {
            let path = self.pod.path(&file.name);
            let bytes = content(authority, &file.content)?;
            write_private(&path, &bytes).map_err(|source| StartError::File { path, source })?;
        }
        self.namespace
            .run(|| redirect(&self.blueprint.redirect))
            .map_err(StartError::Redirect)?;
        let serve = |service| {
            let at = (self.namespace, self.node);
            control::serve(service, at, pods.all(), authority)
        };
        let served: io::Result<Vec<Control>> = self.blueprint.control.iter().map(serve).collect();
        served.map_err(StartError::ControlPlane)
    }

    fn start(
        &self,
        variant: &Variant,
        process: &Process,
        programs: &[LabProgram],
        authority: &SharedAuthority,
    ) -> Result<Component, StartError> {
        let mut command = match process.program {
            Program::LimitProxy => own_program("limit-proxy", &process.arguments),
            program => {
                let choice = variant.choice(program);
                let found = programs.iter().find(|p| p.choice == choice);
                let mut command = found
                    .ok_or(StartError::MissingProgram(program.name()))?
                    .command();
                command.args(&process.arguments);
                command
            }
        };
        for (name, value) in &process.environment {
            command.env(name, OsString::from_vec(content(authority, value)?));
        }
        let name = self.process_name(&variant.id, process);
        let namespace = match process.scope {
            ProcessScope::Pod => self.namespace,
            ProcessScope::Node => self.node,
        };
        let cores = self.lab.cores_of(self.pod.node, process.role);
        let limits = |source| StartError::Limits {
            name: name.clone(),
            source,
        };
        let cgroup = self.lab.cgroup(variant, process.role).map_err(limits)?;
        let admitted = cgroup.as_ref().map(|cgroup| cgroup.admit(&mut command));
        let mut component = admitted
            .unwrap_or(Ok(()))
            .and_then(|()| Component::start(name.clone(), process.role, command, namespace, cores))
            .map_err(|source| StartError::Process { name, source })?;
        component.cgroup = cgroup;
        // All traffic passes what serves a node.
        component.source = self.source.filter(|_| process.scope == ProcessScope::Pod);
        component.node = node_index(self.pod.node);
        Ok(component)
    }

    /// `limit-mtls/server-proxy-2`.
    fn process_name(&self, variant: &VariantId, process: &Process) -> String {
        let account = &self.pod.service_account;
        let proxy = match process.role {
            ComponentRole::Gateway => "gateway".into(),
            ComponentRole::Waypoint => "waypoint".into(),
            _ => format!("{account}-proxy"),
        };
        let number = self.pod.name.trim_start_matches(account);
        // A pod may have one proxy for its callers and another for its callees.
        let same = self.blueprint.processes.iter();
        let same = same.filter(|p| p.role == process.role);
        let out = match same.take_while(|p| *p != process).count() {
            0 => "",
            _ => "-out",
        };
        format!("{variant}/{proxy}{number}{out}")
    }
}

/// Puts a pod's redirection in force in the calling thread's namespace.
fn redirect(redirect: &Redirect) -> io::Result<()> {
    const TABLE: u8 = 100;
    if redirect.keeps_source {
        // Of `lo`, so that it is a packet for this pod whatever its address.
        netlink::add_local_table(nft::KEPT_SOURCE_MARK, nft::KEPT_SOURCE_MASK, TABLE)?;
    }
    nft::redirect(redirect)
}

fn write_private(path: &str, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
}

fn content(authority: &SharedAuthority, content: &Content) -> Result<Vec<u8>, StartError> {
    let mut authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(authority.content(content)?)
}
