//! Loads on a variant: what a trial measures, and the bursts before.

use meshtax_agent::{ClientWorker, GeneratorError, StartedWorker};
use meshtax_dataplane::PodNode;
use meshtax_evidence::{OUTSIDER, ingress_address};
use meshtax_load::LoadSpec;
use meshtax_model::experiment::{LoadPoint, VariantId};
use meshtax_model::trial::ComponentRole;
use meshtax_workload::{NoGateway, Timing, bursts};

use super::component::{own_program, spawn_in};
use super::instance::Instance;
use super::netns::NetNs;
use super::setup::Lab;

/// Bursts of the loads of all load points at full concurrency, which are not recorded: proxies that keep connections to
/// each other have as many afterwards as the loads need.
///
/// # Errors
/// If a generator ended before its time. Where a load fails otherwise, the trials fail as well, and tell why.
pub(crate) fn warm_up(lab: &Lab, instance: &Instance) -> Result<(), GeneratorError> {
    for burst in bursts(&lab.setup.load_points) {
        let spec = load(lab, instance, &burst, Timing::BURST, 0);
        let started = start_generators(lab, &instance.variant.id, &burst);
        if let (Ok(spec), Ok(started)) = (spec, started)
            && let Err(ended @ GeneratorError::Ended(_)) = meshtax_agent::warm_up(&spec, started)
        {
            return Err(ended);
        }
    }
    Ok(())
}

/// The load of a point, offered by the generators' cores.
pub(crate) fn load(
    lab: &Lab,
    instance: &Instance,
    point: &LoadPoint,
    timing: Timing,
    seed: u64,
) -> Result<LoadSpec, NoGateway> {
    let address = ingress_address(&instance.site, &instance.blueprint.contract);
    let address = address.map(|(address, _)| address);
    let cores = lab.cores_of(PodNode::Client, ComponentRole::Generator);
    let demand = lab.setup.demand();
    let spec = demand.load(&instance.site, address, point, timing, seed)?;
    Ok(LoadSpec {
        cores: cores.to_vec(),
        threads: cores.len().max(1) as u32,
        ..spec
    })
}

/// Starts a load generator in each source pod of the load: the clients', or the one outside the mesh.
pub(crate) fn start_generators(
    lab: &Lab,
    variant: &VariantId,
    point: &LoadPoint,
) -> Result<Vec<ClientWorker>, GeneratorError> {
    let sources: Vec<(&str, &NetNs)> = match point.ingress {
        None => lab.pods[variant]
            .clients()
            .map(|(pod, namespace)| (pod.name.as_str(), namespace))
            .collect(),
        Some(_) => vec![(OUTSIDER, &lab.outsider.namespace)],
    };
    let cores = lab.cores_of(PodNode::Client, ComponentRole::Generator);
    let start = |(client, namespace): (&str, &NetNs)| {
        let command = own_program("load", &[]);
        Ok(ClientWorker {
            client: client.to_owned(),
            started: StartedWorker::spawn(command, |command| spawn_in(command, namespace, cores))?,
        })
    };
    sources.into_iter().map(start).collect()
}
