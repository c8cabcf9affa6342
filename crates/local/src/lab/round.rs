//! A round's processes: started together, proven one by one, all ended together.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::{
    Blueprint, Content, DataPlane, Place, Pod, PodBlueprint, Process, Program, Site, find,
};
use meshtax_model::evidence::{Evidence, probe};
use meshtax_model::experiment::{Variant, VariantId};
use meshtax_model::trial::ComponentRole;

use super::apps;
use super::calls::Behind;
use super::capture::{Capture, Captured, OfPods};
use super::component::{Component, Way};
use super::control::{self, Control};
use super::ends::{End, ends, namespaces, site};
use super::netns::NetNs;
use super::network::{POD_LINK, PodNet};
use super::packet_socket::PacketSocket;
use super::path;
use super::probes::{self, Identities, READY_WITHIN, Subject};
use super::setup::{Lab, Pods};
use super::{netlink, nft};
use crate::protocol::StartReport;
use crate::sandbox::FIRST_PROGRAM;

/// One variant that is up.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) variant: Variant,
    pub(crate) site: Site,
    pub(crate) blueprint: Blueprint,
    /// A text that the probes send, and that nothing else on the wire holds.
    pub(crate) canary: String,
    /// The application first, then the proxies.
    pub(crate) components: Vec<Component>,
    /// What meshtax serves to the proxies, as long as they run.
    pub(crate) control: Vec<Control>,
    /// When its first process was to start.
    began: Instant,
    /// It has until then to answer.
    ready_until: Instant,
    /// From the start of its first process to the first request that was answered; `None`: not looked for, or none was.
    served_ns: Option<u64>,
}

/// All variants that are up.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) instances: BTreeMap<VariantId, Instance>,
}

impl Round {
    /// Starts all variants, then proves them one by one, since they share the cores.
    pub(crate) fn start(lab: &Lab, round: u32, variants: &[Variant]) -> (Self, Vec<StartReport>) {
        let capture = start_capture(lab);
        let of_pods: BTreeMap<VariantId, OfPods<Capture>> = variants
            .iter()
            .map(|variant| (variant.id.clone(), capture_at_pods(lab, variant)))
            .collect();
        let mut started: Vec<(VariantId, Result<Instance, String>)> = variants
            .iter()
            .map(|variant| (variant.id.clone(), start_alone(lab, variant, round)))
            .collect();
        let mut active = Vec::new();
        for (id, instance) in &mut started {
            active.push(instance.as_mut().ok().map(|instance| {
                let (mut subject, identities) = subject(lab, instance);
                let results = probes::run_active(&mut subject, &identities);
                (id.clone(), results)
            }));
        }
        let captured = capture.and_then(Capture::finish);
        let mut of_pods: BTreeMap<VariantId, OfPods<Captured>> = of_pods
            .into_iter()
            .map(|(id, captures)| (id, captures.finish()))
            .collect();
        let mut instances = BTreeMap::new();
        let mut reports = Vec::new();
        for ((id, instance), active) in started.into_iter().zip(active) {
            match (instance, active) {
                (Ok(mut instance), Some((_, active))) => {
                    let of_pods = of_pods.remove(&id).unwrap_or_default();
                    reports.push(report(
                        lab,
                        &mut instance,
                        round,
                        active,
                        (&captured, &of_pods),
                    ));
                    instances.insert(id, instance);
                }
                (Err(failure), _) => reports.push(StartReport {
                    variant: id,
                    evidence: None,
                    failure: Some(failure),
                }),
                (Ok(_), None) => {}
            }
        }
        // What failed does not stay up: it would only take CPU from the others.
        instances.retain(|id, _| {
            reports
                .iter()
                .any(|r| r.variant == *id && r.failure.is_none())
        });
        (Self { instances }, reports)
    }
}

impl Round {
    /// Components that are no longer there, each with how it ended.
    pub(crate) fn died(&mut self) -> Vec<String> {
        self.instances
            .values_mut()
            .flat_map(|instance| {
                instance
                    .components
                    .iter_mut()
                    .filter_map(Component::failure)
            })
            .collect()
    }
}

impl Round {
    /// Proves all once more. Returns the variants that are no longer what they were, with what was lost.
    /// A dead component is told apart from this.
    pub(crate) fn lost(&mut self, lab: &Lab) -> Vec<(VariantId, String)> {
        let capture = start_capture(lab);
        let mut checked = Vec::new();
        for (id, instance) in &mut self.instances {
            if instance
                .components
                .iter_mut()
                .any(|c| c.failure().is_some())
            {
                continue;
            }
            let (mut subject, identities) = subject(lab, instance);
            checked.push((id.clone(), probes::run_again(&mut subject, &identities)));
        }
        // Without a capture the wire is not judged again; it was when the round began.
        let captured = capture.and_then(Capture::finish).ok();
        let mut lost = Vec::new();
        for (id, active) in checked {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            let (subject, _) = subject(lab, instance);
            let failed = probes::failed_again(&subject, active, captured.as_ref());
            if !failed.is_empty() {
                lost.push((id, failed.join("; ")));
            }
        }
        lost
    }
}

fn start_capture(lab: &Lab) -> io::Result<Capture> {
    lab.network.listen().map(Capture::start)
}

/// What passes the links of pods whose other hop stays on their node. What cannot be captured is missed by its probe.
fn capture_at_pods(lab: &Lab, variant: &Variant) -> OfPods<Capture> {
    let pods = &lab.pods[&variant.id];
    let at = |pod: &PodNet| {
        let socket = pod
            .namespace
            .run(|| PacketSocket::open(netlink::index(POD_LINK)?));
        socket.map(|socket| Capture::start(vec![socket])).ok()
    };
    let has_waypoint = find(&variant.data_plane).is_some_and(DataPlane::has_waypoint);
    OfPods {
        waypoint: has_waypoint.then(|| at(&pods.waypoint)).flatten(),
        gateway: pods.gateway.as_ref().and_then(at),
    }
}

impl OfPods<Capture> {
    fn finish(self) -> OfPods<Captured> {
        let finish = |capture: Option<Capture>| capture.and_then(|c| c.finish().ok());
        OfPods {
            waypoint: finish(self.waypoint),
            gateway: finish(self.gateway),
        }
    }
}

fn subject<'a>(lab: &'a Lab, instance: &'a mut Instance) -> (Subject<'a>, Identities<'a>) {
    let pods = &lab.pods[&instance.variant.id];
    let gateway = pods.gateway.as_ref().map(|pod| &pod.namespace);
    let own = &pods.client.namespace;
    let (client, caller) = match gateway {
        Some(gateway) if instance.site.has_outside_clients_only() => {
            (&lab.outsider.namespace, gateway)
        }
        _ => (own, own),
    };
    let subject = Subject {
        canary: &instance.canary,
        variant: &instance.variant.id,
        site: &instance.site,
        blueprint: &instance.blueprint,
        client,
        caller,
        gateway,
        servers: pods.servers().map(|pod| &pod.namespace).collect(),
        behind: subjects_behind(lab, pods, &instance.site),
        server_nodes: pods.server_nodes.iter().collect(),
        waypoint: &pods.waypoint.namespace,
        outsider: &lab.outsider.namespace,
        outsider_address: lab.outsider.address,
        components: &mut instance.components,
        control: &instance.control,
        ready_until: instance.ready_until,
        served_ns: instance.served_ns,
        response_bytes: lab.setup.workload.response_bytes,
    };
    let identities = Identities {
        authority: &lab.authority,
        foreign: &lab.foreign,
    };
    (subject, identities)
}

fn subjects_behind<'a>(lab: &'a Lab, pods: &'a Pods, site: &'a Site) -> Vec<Behind<'a>> {
    let Some(graph) = &lab.setup.service.graph else {
        return Vec::new();
    };
    // The probes ask for no page, and every service that clients call.
    let graph = graph.without_pages();
    let called = f64::from(graph.called());
    let services = site.behind.iter().zip(&pods.behind);
    services
        .map(|(service, nets)| Behind {
            service,
            pods: nets.pods.iter().map(|pod| &pod.namespace).collect(),
            response_bytes: apps::response_bytes_of(&lab.setup, &service.name),
            asked: called * graph.requests_per_request(&service.name),
            asked_across: called * graph.requests_across(&service.name),
        })
        .collect()
}

fn canary(variant: &VariantId, round: u32) -> String {
    format!(
        "canary-{variant}-{round}-{:016x}",
        meshtax_observe::monotonic_ns().wrapping_mul(0x9E37_79B9_7F4A_7C15)
    )
}

fn report(
    lab: &Lab,
    instance: &mut Instance,
    round: u32,
    active: probes::Active,
    (captured, of_pods): (&io::Result<Captured>, &OfPods<Captured>),
) -> StartReport {
    let variant = instance.variant.id.clone();
    let captured = match captured {
        Ok(captured) => captured,
        Err(e) => {
            let failure = Some(format!(
                "no packets could be captured between the nodes: {e}"
            ));
            return StartReport {
                variant,
                evidence: None,
                failure,
            };
        }
    };
    let died: Vec<String> = instance
        .components
        .iter_mut()
        .filter_map(Component::failure)
        .collect();
    let (subject, _) = subject(lab, instance);
    let evidence = probes::conclude(&subject, round, active, captured, of_pods);
    // A probe that met a dead process says no more than its last words.
    let of_the_dead = |failure: &String| died.iter().any(|dead| failure.contains(dead.as_str()));
    let others: Vec<String> = failures(&subject, &evidence)
        .into_iter()
        .filter(|failure| !of_the_dead(failure))
        .collect();
    let failed: Vec<String> = died.iter().cloned().chain(others).collect();
    let failure = (!failed.is_empty()).then(|| failed.join("; "));
    StartReport {
        variant,
        evidence: Some(evidence),
        failure,
    }
}

/// What failed, the most telling first: that the traffic is readable says more than that a request
/// got no answer, which follows from all the others.
fn failures(subject: &Subject<'_>, evidence: &Evidence) -> Vec<String> {
    let rank = |name: &str| match name {
        probe::CANARY => 0,
        probe::PERMITTED => 2,
        _ => 1,
    };
    let mut failed: Vec<_> = evidence.probes.iter().filter(|p| !p.passed).collect();
    failed.sort_by_key(|p| rank(&p.probe));
    let absent = probes::absent_proxy(subject).filter(|_| !failed.is_empty());
    absent
        .map(str::to_owned)
        .into_iter()
        .chain(
            failed
                .into_iter()
                .map(|p| format!("{}: {}", p.probe, p.seen)),
        )
        .collect()
}

impl Instance {
    fn start(lab: &Lab, variant: &Variant, round: u32) -> Result<Self, String> {
        let site = site(lab, variant).map_err(|e| e.to_string())?;
        let plane = find(&variant.data_plane)
            .ok_or_else(|| format!("no data plane is called {}", variant.data_plane))?;
        let sabotage = lab.setup.sabotage.get(&variant.id).copied();
        let blueprint = plane.blueprint(&site, variant.level, sabotage);
        let pods = &lab.pods[&variant.id];
        let ends = ends(lab, pods, &site, &blueprint);
        let named = namespaces(pods, &site);
        let mut control = Vec::new();
        for end in &ends {
            write_files(lab, end.pod, end.blueprint)?;
            end.namespace
                .run(|| nft::apply(&end.blueprint.redirect))
                .map_err(|e| format!("cannot redirect into the proxy: {e}"))?;
            for service in &end.blueprint.control {
                let serving =
                    control::serve(service, (end.namespace, end.node), &named, &lab.authority)
                        .map_err(|e| format!("cannot serve the proxy's control plane: {e}"))?;
                control.push(serving);
            }
        }
        let began = Instant::now();
        let mut components = Vec::new();
        for (number, server) in pods.servers().enumerate() {
            let mut of_replica = apps::start(lab, variant, &server.namespace, number)?;
            let server_node = site.node_of(number) as u32;
            of_replica
                .iter_mut()
                .for_each(|app| app.server_node = server_node);
            components.extend(of_replica);
        }
        components.extend(apps::start_behind(lab, variant, &site)?);
        for end in &ends {
            for process in &end.blueprint.processes {
                let place = match process.place {
                    Place::Pod => end.namespace,
                    Place::Node => end.node,
                };
                components.push(start_process(lab, variant, plane, process, place, end)?);
            }
        }
        drop((ends, named));
        let canary = canary(&variant.id, round);
        Ok(Self {
            variant: variant.clone(),
            site,
            blueprint,
            canary,
            components,
            control,
            began,
            ready_until: Instant::now() + READY_WITHIN,
            served_ns: None,
        })
    }
}

/// Starts a variant and has it answer once before any other starts, since all share the cores.
fn start_alone(lab: &Lab, variant: &Variant, round: u32) -> Result<Instance, String> {
    let mut instance = Instance::start(lab, variant, round)?;
    // What is broken on purpose may never answer.
    if !lab.setup.sabotage.contains_key(&variant.id) {
        instance.served_ns = first_served(lab, &mut instance);
    }
    Ok(instance)
}

/// Asks until every service that clients call answers. That a variant is never ready is for its probes to tell.
fn first_served(lab: &Lab, instance: &mut Instance) -> Option<u64> {
    const PAUSE: Duration = Duration::from_millis(2);
    let (began, until) = (instance.began, instance.ready_until);
    let (subject, _) = subject(lab, instance);
    loop {
        if path::each_answers(&subject) {
            return u64::try_from(began.elapsed().as_nanos()).ok();
        }
        let has_died = |component: &mut Component| component.failure().is_some();
        if Instant::now() > until || subject.components.iter_mut().any(has_died) {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

fn write_files(lab: &Lab, pod: &Pod, blueprint: &PodBlueprint) -> Result<(), String> {
    for file in &blueprint.files {
        let bytes = resolve(lab, &file.content)?;
        let path = pod.path(&file.name);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut f| f.write_all(&bytes))
            .map_err(|e| format!("cannot write {path}: {e}"))?;
    }
    Ok(())
}

fn resolve(lab: &Lab, content: &Content) -> Result<Vec<u8>, String> {
    let mut authority = lab.authority.lock().unwrap_or_else(PoisonError::into_inner);
    let mut leaf = |identity: &str| {
        authority
            .leaf(identity)
            .map_err(|e| format!("{identity}: {e}"))
    };
    Ok(match content {
        Content::Text(text) => text.clone().into_bytes(),
        Content::CertificateChain(identity) => leaf(identity)?.chain_pem.into_bytes(),
        Content::PrivateKey(identity) => leaf(identity)?.key_pem.into_bytes(),
        Content::PrivateKeyDer(identity) => leaf(identity)?.key_der,
        Content::SigningRequest(identity) => leaf(identity)?.request_der,
        Content::TrustAnchor => authority.root_pem().into_bytes(),
    })
}

fn start_process(
    lab: &Lab,
    variant: &Variant,
    plane: &DataPlane,
    process: &Process,
    place: &NetNs,
    end: &End<'_>,
) -> Result<Component, String> {
    let mut command = match process.program {
        Program::LimitProxy => apps::own_program("limit-proxy", &process.arguments),
        program => {
            let number = lab.setup.programs.iter().position(|p| *p == program);
            let number = number.ok_or_else(|| format!("there is no {}", program.name()))?;
            let descriptor = FIRST_PROGRAM + number as RawFd;
            let mut command = Command::new(format!("/proc/self/fd/{descriptor}"));
            command.arg0(program.name()).args(&process.arguments);
            command
        }
    };
    for (name, content) in &process.environment {
        command.env(name, OsString::from_vec(resolve(lab, content)?));
    }
    // What serves a node is passed by each way.
    let way = end.way.filter(|_| process.place == Place::Pod);
    let is_behind = lab.is_behind(&end.pod.service_account);
    let proxy = match process.role {
        ComponentRole::Gateway => "gateway".into(),
        _ if is_behind || way == Some(Way::Ingress) => {
            format!("{}-proxy", end.pod.service_account)
        }
        ComponentRole::ClientProxy => "client-proxy".into(),
        ComponentRole::Waypoint => "waypoint".into(),
        _ => "server-proxy".into(),
    };
    let number = end.pod.name.trim_start_matches(&end.pod.service_account);
    // A pod may have a proxy for what it calls besides the one for who calls it.
    let same = end.blueprint.processes.iter();
    let same = same.filter(|p| p.role == process.role);
    let out = same.take_while(|p| *p != process).count();
    let out = if out > 0 { "-out" } else { "" };
    let name = format!("{}/{proxy}{number}{out}", variant.id);
    let mut component = Component::start(name.clone(), process.role, command, place, end.cores)
        .map_err(|e| format!("cannot start {name} ({}): {e}", plane.name))?;
    component.way = way;
    component.server_node = end.pod.node.of_servers() as u32;
    Ok(component)
}

impl Drop for Round {
    fn drop(&mut self) {
        let components = self.instances.values_mut().flat_map(|i| &mut i.components);
        components.for_each(Component::kill);
        for instance in self.instances.values() {
            let site = &instance.site;
            let ends = [&site.client, &site.waypoint].into_iter();
            let ends = ends.chain(site.gateway.as_ref().map(|gateway| &gateway.pod));
            let behind = site.behind.iter().flat_map(|service| &service.pods);
            for pod in ends.chain(site.servers()).chain(behind) {
                let _ = fs::remove_dir_all(&pod.directory);
            }
        }
    }
}
