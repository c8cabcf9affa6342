//! The environment of a run on a cluster: machines, nodes and programs.

use meshtax_agent::remote::HostFacts;
use meshtax_model::catalogue::{Program, find};
use meshtax_model::environment::{Artifact, Environment, Node, NodeRole, OwnBuild};
use meshtax_model::trial::ComponentRole;

use crate::mesh::mesh_of;
use crate::running::Running;

/// The index of each node's machine: nodes of one kernel share it.
pub(crate) fn machines(hosts: &[HostFacts]) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut indices = Vec::new();
    for HostFacts { host, .. } in hosts {
        let known = seen.iter().position(|id| *id == &host.boot_id);
        indices.push(known.unwrap_or(seen.len()) as u32);
        if known.is_none() {
            seen.push(&host.boot_id);
        }
    }
    indices
}

/// The record of a run that is prepared.
pub(crate) fn environment(running: &Running) -> Environment {
    let mut machines = Vec::new();
    for (host, machine) in running.hosts.iter().zip(&running.machines) {
        if *machine as usize == machines.len() {
            machines.push(host.host.clone());
        }
    }
    let node = |(index, name): (usize, &String)| {
        // Nothing is pinned: each role may use all cores of its node.
        let roles: &[ComponentRole] = match index {
            0 => &[ComponentRole::Generator, ComponentRole::ClientProxy],
            _ => &[ComponentRole::App, ComponentRole::ServerProxy],
        };
        let cores = &running.hosts[index].cores;
        Node {
            name: name.clone(),
            role: match index {
                0 => NodeRole::Client,
                _ => NodeRole::Server,
            },
            machine: running.machines[index],
            cores: roles.iter().map(|role| (*role, cores.clone())).collect(),
        }
    };
    Environment {
        engine: "kubernetes".into(),
        machines,
        nodes: running.nodes.iter().enumerate().map(node).collect(),
        kubernetes: Some(running.cluster.version.clone()),
        cluster_run: Some(running.common.run.clone()),
        rootless: false,
        meshtax: Some(OwnBuild {
            sha256: digest(&running.agents.outsider.image_id),
            image: Some(running.common.image.clone()),
        }),
        artifacts: artifacts(running),
        pods: Vec::new(),
    }
}

/// The digest in the runtime's id of an image, in hexadecimal; empty if it has none.
fn digest(image_id: &str) -> String {
    let parts = image_id.rsplit_once("sha256:");
    parts.map_or(String::new(), |(_, digest)| digest.to_owned())
}

/// The proxies: meshtax's own, from its image, and those of the cluster's meshes, from theirs.
fn artifacts(running: &Running) -> Vec<Artifact> {
    let cores = running.ground().cores;
    let mut all: Vec<Artifact> = Vec::new();
    for variant in running.experiment.variants.iter() {
        let plane = find(&variant.data_plane).filter(|_| running.plans.contains_key(&variant.id));
        let Some(plane) = plane.filter(|plane| !plane.programs.is_empty()) else {
            continue;
        };
        match all.iter_mut().find(|a| a.data_plane == plane.name) {
            Some(same) => same.variants.push(variant.id.clone()),
            None => {
                let mesh = mesh_of(variant);
                let mut installed = running.meshes.iter();
                let installed = installed.find(|of| Some(of.mesh) == mesh);
                let note = mesh.and_then(|mesh| mesh.note);
                let program = mesh.map_or(Program::LimitProxy, |mesh| mesh.program);
                let (version, image, image_id, workers) = match installed {
                    Some(of) => {
                        let proxy = &of.proxy;
                        let version = proxy.version.as_str();
                        (version, &proxy.image, &proxy.image_id, proxy.workers)
                    }
                    None => (
                        env!("CARGO_PKG_VERSION"),
                        &running.common.image,
                        &running.agents.outsider.image_id,
                        Some(running.experiment.workers.of(program, cores)),
                    ),
                };
                all.push(Artifact {
                    data_plane: plane.name.into(),
                    program: program.name().into(),
                    variants: vec![variant.id.clone()],
                    version: version.into(),
                    sha256: digest(image_id),
                    origin: match image.is_empty() {
                        true => "unknown: no pod of the run showed it".into(),
                        false => format!("image {image}"),
                    },
                    workers,
                    note: note.or(plane.note).map(str::to_owned),
                    ..Artifact::default()
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use meshtax_model::environment::Host;

    use super::*;

    #[test]
    fn nodes_of_one_kernel_are_one_machine() {
        let host = |boot_id: &str| HostFacts {
            host: Host {
                boot_id: Some(boot_id.into()),
                ..meshtax_observe::host()
            },
            cores: vec![0],
        };
        assert_eq!(
            machines(&[host("a"), host("a"), host("b"), host("a")]),
            [0, 0, 1, 0]
        );
    }
}
