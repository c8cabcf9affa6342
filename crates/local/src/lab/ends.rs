//! Where the pods of a variant stand, and what each is given.

use std::collections::BTreeMap;
use std::io;

use meshtax_dataplane::{Blueprint, Gateway, Pod, PodBlueprint, PodNode, Site, SiteService};
use meshtax_model::experiment::{Variant, node_of};
use meshtax_model::graph::{Call, GraphNode, GraphService};

use super::apps;
use super::component::Way;
use super::netns::NetNs;
use super::network::PodNet;
use super::setup::{Lab, Pods};

/// A pod with what it is given, and where.
pub(super) struct End<'a> {
    pub(super) pod: &'a Pod,
    pub(super) blueprint: &'a PodBlueprint,
    pub(super) namespace: &'a NetNs,
    /// Of what serves its node.
    pub(super) node: &'a NetNs,
    pub(super) cores: &'a [u32],
    /// By which way requests come through it; `None`: by each.
    pub(super) way: Option<Way>,
}

/// The client's pod, the servers', then the waypoint's and the gateway's, if there are any.
pub(super) fn ends<'a>(
    lab: &'a Lab,
    pods: &'a Pods,
    site: &'a Site,
    blueprint: &'a Blueprint,
) -> Vec<End<'a>> {
    let layout = &lab.setup.layout;
    let mut ends = vec![End {
        pod: &site.client,
        blueprint: &blueprint.client,
        namespace: &pods.client.namespace,
        node: &pods.client_node,
        cores: &layout.client_node,
        way: Some(Way::Pod),
    }];
    for ((pod, blueprint), net) in blueprint.servers(site).into_iter().zip(pods.servers()) {
        ends.push(End {
            pod,
            blueprint,
            namespace: &net.namespace,
            node: pods.node(pod.node),
            cores: &layout.server_node,
            way: None,
        });
    }
    ends.extend(ends_behind(lab, pods, site, blueprint));
    if let Some(blueprint) = &blueprint.waypoint {
        ends.push(End {
            pod: &site.waypoint,
            blueprint,
            namespace: &pods.waypoint.namespace,
            node: pods.node(site.waypoint.node),
            cores: &layout.server_node,
            way: None,
        });
    }
    ends.extend(gateway_end(lab, pods, site, blueprint));
    ends
}

/// The namespaces of all pods of a variant, by their names.
pub(super) fn namespaces<'a>(pods: &'a Pods, site: &'a Site) -> BTreeMap<&'a str, &'a NetNs> {
    let mut all: Vec<(&Pod, &PodNet)> = vec![
        (&site.client, &pods.client),
        (&site.waypoint, &pods.waypoint),
    ];
    all.extend(site.servers().zip(pods.servers()));
    for (service, nets) in site.behind.iter().zip(&pods.behind) {
        all.extend(service.pods.iter().zip(&nets.pods));
    }
    if let (Some(gateway), Some(net)) = (&site.gateway, &pods.gateway) {
        all.push((&gateway.pod, net));
    }
    let named = all.into_iter();
    named
        .map(|(pod, net)| (pod.name.as_str(), &net.namespace))
        .collect()
}

fn gateway_end<'a>(
    lab: &'a Lab,
    pods: &'a Pods,
    site: &'a Site,
    blueprint: &'a Blueprint,
) -> Option<End<'a>> {
    Some(End {
        pod: &site.gateway.as_ref()?.pod,
        blueprint: blueprint.gateway.as_ref()?,
        namespace: &pods.gateway.as_ref()?.namespace,
        node: &pods.client_node,
        cores: &lab.setup.layout.client_node,
        way: Some(Way::Ingress),
    })
}

/// The pods of all services but the first that clients call.
fn ends_behind<'a>(
    lab: &'a Lab,
    pods: &'a Pods,
    site: &'a Site,
    blueprint: &'a Blueprint,
) -> impl Iterator<Item = End<'a>> {
    let nets = pods.behind.iter().flat_map(|service| {
        let pods = service.pods.iter();
        pods.map(|net| (net, service.node))
    });
    let given = blueprint.pods_behind(site).into_iter();
    given.zip(nets).map(|((pod, blueprint), (net, node))| End {
        pod,
        blueprint,
        namespace: &net.namespace,
        node: pods.node(pod.node),
        cores: lab.cores_of(node),
        way: None,
    })
}

pub(super) fn site(lab: &Lab, variant: &Variant) -> io::Result<Site> {
    let pods = &lab.pods[&variant.id];
    let pod = |net: &PodNet, service_account: &str, name: &str, node| {
        Ok::<_, io::Error>(Pod {
            name: name.into(),
            address: net.address,
            service_account: service_account.into(),
            directory: Lab::pod_directory(&variant.id, name)?,
            node,
        })
    };
    let more_servers = pods.more_servers.iter().zip(1_u32..);
    let nodes = lab.setup.service.nodes;
    let graph = lab.setup.service.graph.as_ref();
    Ok(Site {
        client: pod(&pods.client, "client", "client", PodNode::Client)?,
        server: pod(&pods.server, "server", "server", PodNode::Server(0))?,
        more_servers: more_servers
            .map(|(net, replica)| {
                let name = format!("server-{}", replica + 1);
                let node = PodNode::Server(node_of(replica, nodes));
                pod(net, "server", &name, node)
            })
            .collect::<io::Result<_>>()?,
        waypoint: pod(&pods.waypoint, "waypoint", "waypoint", PodNode::Server(0))?,
        gateway: match &pods.gateway {
            Some(net) => Some(Gateway {
                pod: pod(net, "ingress-gateway", "ingress-gateway", PodNode::Client)?,
                is_only_way: lab.setup.has_ingress_only(),
            }),
            None => None,
        },
        called: pods.called,
        app_port: apps::first_port(&lab.setup),
        more_ports: apps::more_ports(&lab.setup),
        workers: lab.setup.equal_work.workers,
        behind: behind(lab, variant)?,
        calls: graph.map_or_else(Vec::new, |graph| called_by(graph.entry_calls())),
        options: variant.options,
    })
}

/// All services but the first that clients call, where they stand.
fn behind(lab: &Lab, variant: &Variant) -> io::Result<Vec<SiteService>> {
    let Some(graph) = &lab.setup.service.graph else {
        return Ok(Vec::new());
    };
    let nets = &lab.pods[&variant.id].behind;
    let pod = |service: &GraphService, number: usize, net: &PodNet| {
        let name = match number {
            0 => service.name.clone(),
            _ => format!("{}-{}", service.name, number + 1),
        };
        Ok::<_, io::Error>(Pod {
            directory: Lab::pod_directory(&variant.id, &name)?,
            name,
            address: net.address,
            service_account: service.name.clone(),
            node: stands_on(service.node),
        })
    };
    let services = graph.others.iter().zip(nets);
    services
        .map(|(service, nets)| {
            let pods = nets.pods.iter().enumerate();
            Ok(SiteService {
                name: service.name.clone(),
                called: nets.called,
                pods: pods
                    .map(|(number, net)| pod(service, number, net))
                    .collect::<io::Result<_>>()?,
                calls: called_by(service.work.calls()),
                clients: service.clients,
            })
        })
        .collect()
}

/// Of the servers' nodes, services behind the one that clients call have the first.
fn stands_on(node: GraphNode) -> PodNode {
    match node {
        GraphNode::Client => PodNode::Client,
        GraphNode::Server => PodNode::Server(0),
    }
}

/// Names of the services that are called, each once.
fn called_by<'a>(calls: impl Iterator<Item = &'a Call>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for call in calls {
        if !names.contains(&call.service) {
            names.push(call.service.clone());
        }
    }
    names
}
