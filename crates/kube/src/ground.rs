//! What the variants of a run have in common, and the site and the applications of each.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_agent::remote::START_DIRECTORY;
use meshtax_dataplane::{EMULATED_NAMESPACE, INTRUDER, Pod, PodNode, Site, SiteService};
use meshtax_model::experiment::{Experiment, Variant};
use meshtax_model::topology::{NodeSide, Service, ServiceAddress};
use meshtax_workload::{
    Application, CLIENT, Demand, UnresolvedDelay, applications, callees, client_name, pod_name,
};

use crate::mesh::mesh_of;

/// What the variants of a run have in common.
pub(crate) struct Ground<'a> {
    pub(crate) experiment: &'a Experiment,
    /// The clients' node, then the servers'.
    pub(crate) nodes: &'a [String],
    /// Cores of a node.
    pub(crate) cores: u32,
}

impl Ground<'_> {
    pub(crate) fn demand(&self) -> Demand<'_> {
        Demand {
            topology: &self.experiment.topology,
            workload: &self.experiment.workload,
            load_points: &self.experiment.load_points,
        }
    }

    /// The index of a pod's node.
    pub(crate) fn node_index(node: PodNode) -> usize {
        match node {
            PodNode::Client => 0,
            PodNode::Server(number) => 1 + number as usize,
        }
    }

    pub(crate) fn node(&self, node: PodNode) -> String {
        self.nodes
            .get(Self::node_index(node))
            .cloned()
            .unwrap_or_default()
    }

    /// The site of a variant whose pods and services have these addresses; those that are missing are 0.0.0.0.
    pub(crate) fn site(
        &self,
        variant: &Variant,
        namespace: &str,
        pods: &BTreeMap<String, Ipv4Addr>,
        services: &BTreeMap<String, Ipv4Addr>,
    ) -> Site {
        let addresses = Addresses { pods, services };
        let mesh = mesh_of(variant);
        let own = self.experiment.topology.services.iter();
        Site {
            // The minimal proxy's identities are emulated.
            namespace: match mesh {
                Some(_) => namespace.to_owned(),
                None => EMULATED_NAMESPACE.to_owned(),
            },
            clients: (0..self.experiment.workload.clients.max(1))
                .map(|client| addresses.pod(&client_name(client), CLIENT, PodNode::Client))
                .collect(),
            services: own.map(|of| self.site_service(of, &addresses)).collect(),
            waypoint: addresses.pod("waypoint", "waypoint", PodNode::Server(0)),
            gateway: None,
            intruder: mesh.map(|_| addresses.pod(INTRUDER, INTRUDER, PodNode::Client)),
            workers: self.experiment.workers,
            cores: self.cores,
            options: variant.options,
            runtime: variant.runtime.clone(),
        }
    }

    fn site_service(&self, service: &Service, addresses: &Addresses<'_>) -> SiteService {
        let replica = |replica: u32| {
            let node = match service.node {
                NodeSide::Client => PodNode::Client,
                NodeSide::Server => PodNode::Server(service.node_of(replica)),
            };
            addresses.pod(&pod_name(service, replica), &service.name, node)
        };
        let pods: Vec<Pod> = (0..service.replicas.max(1)).map(replica).collect();
        let ports = self.demand().ports();
        let count = match service.entry_point {
            true => ports.len(),
            // Other services request the usual response only.
            false => 1,
        };
        SiteService {
            name: service.name.clone(),
            address: match (service.address, pods.as_slice()) {
                (ServiceAddress::Pod, [only]) => only.address,
                _ => addresses.service(&service.name),
            },
            pods,
            ports: ports[..count].to_vec(),
            calls: callees(service),
            entry_point: service.entry_point,
        }
    }

    /// Its applications, each with its pod.
    pub(crate) fn applications(
        &self,
        variant: &Variant,
        site: &Site,
    ) -> Result<Vec<(Pod, Application)>, UnresolvedDelay> {
        /// One thread is as fast as the generator's one.
        const THREADS: u32 = 1;
        let demand = self.demand();
        let services = self.experiment.topology.services.iter();
        let mut all = Vec::new();
        for (service, placed) in services.zip(&site.services) {
            let bytes = (
                demand.workload.response_bytes,
                demand.response_bytes(service),
            );
            for pod in &placed.pods {
                let ports = &placed.ports;
                let started = applications(service, variant.inject, site, ports, bytes, THREADS)?;
                all.extend(started.into_iter().map(|app| (pod.clone(), app)));
            }
        }
        Ok(all)
    }
}

/// The addresses of a variant's pods and services, as far as they are known.
struct Addresses<'a> {
    pods: &'a BTreeMap<String, Ipv4Addr>,
    services: &'a BTreeMap<String, Ipv4Addr>,
}

impl Addresses<'_> {
    fn pod(&self, name: &str, account: &str, node: PodNode) -> Pod {
        let known = self.pods.get(name).copied();
        Pod {
            name: name.to_owned(),
            address: known.unwrap_or(Ipv4Addr::UNSPECIFIED),
            service_account: account.to_owned(),
            directory: START_DIRECTORY.to_owned(),
            node,
        }
    }

    fn service(&self, name: &str) -> Ipv4Addr {
        let known = self.services.get(name).copied();
        known.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }
}
