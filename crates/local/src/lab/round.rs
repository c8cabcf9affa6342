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

use meshtax_app::AppConfig;
use meshtax_dataplane::{
    APP_PORT, Blueprint, Content, DataPlane, Place, Pod, PodBlueprint, Process, Program, Site, find,
};
use meshtax_model::evidence::{Evidence, probe};
use meshtax_model::experiment::{Inject, Variant, VariantId};
use meshtax_model::trial::ComponentRole;

use super::capture::{Capture, Captured};
use super::component::Component;
use super::control::{self, Control};
use super::netns::NetNs;
use super::network::{NODE_LINK, PodNet};
use super::packet_socket::PacketSocket;
use super::probes::{self, Identities, Subject};
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
    _control: Vec<Control>,
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
        let mut started: Vec<(VariantId, Result<Instance, String>)> = variants
            .iter()
            .map(|variant| (variant.id.clone(), Instance::start(lab, variant, round)))
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
        let mut instances = BTreeMap::new();
        let mut reports = Vec::new();
        for ((id, instance), active) in started.into_iter().zip(active) {
            match (instance, active) {
                (Ok(mut instance), Some((_, active))) => {
                    reports.push(report(lab, &mut instance, round, active, &captured));
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

fn start_capture(lab: &Lab) -> io::Result<Capture> {
    lab.network
        .capture_point()
        .run(|| PacketSocket::open(netlink::index(NODE_LINK)?))
        .map(Capture::start)
}

fn subject<'a>(lab: &'a Lab, instance: &'a mut Instance) -> (Subject<'a>, Identities<'a>) {
    let pods = &lab.pods[&instance.variant.id];
    let subject = Subject {
        canary: &instance.canary,
        variant: &instance.variant.id,
        site: &instance.site,
        blueprint: &instance.blueprint,
        client: &pods.client.namespace,
        server: &pods.server.namespace,
        server_node: &pods.server_node,
        outsider: &lab.outsider.namespace,
        components: &mut instance.components,
        response_bytes: lab.setup.workload.response_bytes,
    };
    let identities = Identities {
        authority: &lab.authority,
        foreign: &lab.foreign,
    };
    (subject, identities)
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
    captured: &io::Result<Captured>,
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
    let evidence = probes::conclude(&subject, round, active, captured);
    let failed: Vec<String> = died
        .into_iter()
        .chain(failures(&subject, &evidence))
        .collect();
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
        write_files(lab, &site.client, &blueprint.client)?;
        write_files(lab, &site.server, &blueprint.server)?;
        let Pods {
            client,
            server,
            client_node,
            server_node,
        } = &lab.pods[&variant.id];
        let mut components = vec![start_app(lab, variant, server)?];
        let mut control = Vec::new();
        let layout = &lab.setup.layout;
        for (pod, node, blueprint, cores) in [
            (client, client_node, &blueprint.client, &layout.client_node),
            (server, server_node, &blueprint.server, &layout.server_node),
        ] {
            let pod = &pod.namespace;
            pod.run(|| nft::apply(&blueprint.redirect))
                .map_err(|e| format!("cannot redirect into the proxy: {e}"))?;
            for service in &blueprint.control {
                let serving = control::serve(service, pod, node, &lab.authority)
                    .map_err(|e| format!("cannot serve the proxy's control plane: {e}"))?;
                control.push(serving);
            }
            for process in &blueprint.processes {
                let place = match process.place {
                    Place::Pod => pod,
                    Place::Node => node,
                };
                components.push(start_process(lab, variant, plane, process, place, cores)?);
            }
        }
        let canary = canary(&variant.id, round);
        Ok(Self {
            variant: variant.clone(),
            site,
            blueprint,
            canary,
            components,
            _control: control,
        })
    }
}

fn site(lab: &Lab, variant: &Variant) -> io::Result<Site> {
    let pods = &lab.pods[&variant.id];
    let pod = |net: &PodNet, name: &str| {
        Ok::<_, io::Error>(Pod {
            address: net.address,
            service_account: name.into(),
            directory: Lab::pod_directory(&variant.id, name)?,
        })
    };
    Ok(Site {
        client: pod(&pods.client, "client")?,
        server: pod(&pods.server, "server")?,
        app_port: APP_PORT,
        workers: lab.setup.equal_work.workers,
    })
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

fn own_program(name: &str, arguments: &[String]) -> Command {
    // By this name it is found even if its path is hidden by the lab's own file systems.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("meshtax")
        .arg("internal")
        .arg(name)
        .args(arguments);
    command
}

fn start_app(lab: &Lab, variant: &Variant, pod: &PodNet) -> Result<Component, String> {
    let delay_ns = match variant.inject {
        Some(Inject::DelayNs(delay_ns)) => delay_ns,
        Some(Inject::DelayShareOfP50(_)) => {
            return Err(
                "a delay relative to the p50 must be resolved before the first round".into(),
            );
        }
        None => 0,
    };
    let config = AppConfig {
        response_bytes: lab.setup.workload.response_bytes,
        delay_ns,
        threads: app_threads(lab),
        ..AppConfig::new((std::net::Ipv4Addr::UNSPECIFIED, APP_PORT).into())
    };
    let config = serde_json::to_string(&config).map_err(|e| e.to_string())?;
    let command = own_program("app", &[config]);
    let name = format!("{}/app", variant.id);
    Component::start(
        name,
        ComponentRole::App,
        command,
        &pod.namespace,
        &lab.setup.layout.server_node,
    )
    .map_err(|e| format!("cannot start the test application: {e}"))
}

/// One thread is as fast as the generator's one; on a node with cores to spare the application must
/// not be the bottleneck of a pair either.
fn app_threads(lab: &Lab) -> u32 {
    (lab.setup.layout.server_node.len() as u32).clamp(1, 4)
}

fn start_process(
    lab: &Lab,
    variant: &Variant,
    plane: &DataPlane,
    process: &Process,
    place: &NetNs,
    cores: &[u32],
) -> Result<Component, String> {
    let mut command = match process.program {
        Program::LimitProxy => own_program("limit-proxy", &process.arguments),
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
    let end = match process.role {
        ComponentRole::ClientProxy => "client-proxy",
        _ => "server-proxy",
    };
    let name = format!("{}/{end}", variant.id);
    Component::start(name.clone(), process.role, command, place, cores)
        .map_err(|e| format!("cannot start {name} ({}): {e}", plane.name))
}

impl Drop for Round {
    fn drop(&mut self) {
        for instance in self.instances.values() {
            for pod in [&instance.site.client, &instance.site.server] {
                let _ = fs::remove_dir_all(&pod.directory);
            }
        }
    }
}
