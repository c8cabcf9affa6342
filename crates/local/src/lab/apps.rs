//! Starts the applications of all services, and the user's own program.

use std::process::Command;

use meshtax_dataplane::{Pod, Site, SiteService};
use meshtax_model::experiment::Variant;
use meshtax_model::topology::{OwnProgram, Service};
use meshtax_model::trial::ComponentRole;
use meshtax_workload::{Application, applications};

use super::component::{Component, own_program};
use super::error::StartError;
use super::network::node_index;
use super::setup::Lab;

/// Starts the applications of all services, and the user's own program.
pub(crate) fn start(
    lab: &Lab,
    variant: &Variant,
    site: &Site,
) -> Result<Vec<Component>, StartError> {
    let services = lab.setup.topology.services.iter().zip(&site.services);
    let mut components = Vec::new();
    for (service, placed) in services {
        for pod in &placed.pods {
            let mut started = start_pod(lab, variant, site, (service, placed), pod)?;
            for component in &mut started {
                component.node = node_index(pod.node);
            }
            components.extend(started);
        }
    }
    Ok(components)
}

fn start_pod(
    lab: &Lab,
    variant: &Variant,
    site: &Site,
    (service, placed): (&Service, &SiteService),
    pod: &Pod,
) -> Result<Vec<Component>, StartError> {
    let demand = lab.setup.demand();
    let cores = lab.cores_of(pod.node, ComponentRole::App);
    let bytes = (
        demand.workload.response_bytes,
        demand.response_bytes(service),
    );
    let threads = app_threads(cores);
    let apps = applications(service, variant.inject, site, &placed.ports, bytes, threads)?;
    let namespace = lab.pods[&variant.id].namespace(pod);
    let replica = pod.name.trim_start_matches(&placed.name);
    let mut started = Vec::new();
    for Application { suffix, config } in apps {
        let name = format!("{}/{}-app{replica}{suffix}", variant.id, service.name);
        let command = own_program("app", &[serde_json::to_string(&config)?]);
        let component =
            Component::start(name.clone(), ComponentRole::App, command, namespace, cores);
        started.push(component.map_err(|source| StartError::Process { name, source })?);
    }
    if let Some(first) = started.first_mut() {
        first.is_first_app = service.entry_point;
    }
    if let Some(program) = &service.program {
        let name = format!("{}/own-program{replica}", variant.id);
        let command = own_command(lab, program)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let component = Component::start(name, ComponentRole::App, command, namespace, cores);
        started.push(component.map_err(|source| StartError::OwnProgram { program, source })?);
    }
    Ok(started)
}

/// One thread is as fast as the generator's one. On a node with cores to spare, the application must not be the
/// bottleneck of a pair either.
fn app_threads(cores: &[u32]) -> u32 {
    (cores.len() as u32).clamp(1, 4)
}

/// The user's program, with the host's files.
fn own_command(lab: &Lab, program: &OwnProgram) -> Result<Command, StartError> {
    let (name, arguments) = program
        .command
        .split_first()
        .ok_or(StartError::UnnamedProgram)?;
    let mut command = Command::new(name);
    command.args(arguments);
    lab.host_mounts.enter(&mut command);
    Ok(command)
}
