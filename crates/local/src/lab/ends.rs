//! Where the pods of a variant stand, and what each is given.

use std::io;

use meshtax_dataplane::{Blueprint, Gateway, Pod, PodBlueprint, Site, SiteService};
use meshtax_model::experiment::Variant;
use meshtax_model::graph::{Call, GraphService};

use super::apps;
use super::component::Way;
use super::netns::NetNs;
use super::network::{NodeName, PodNet};
use super::setup::{Lab, Pods};

/// A pod with what it is given, and where.
pub(super) struct End<'a> {
    pub(super) pod: &'a Pod,
    pub(super) blueprint: &'a PodBlueprint,
    /// Its own, and those of the pods that its node's proxy serves besides.
    pub(super) namespaces: Vec<&'a NetNs>,
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
        namespaces: vec![&pods.client.namespace],
        node: &pods.client_node,
        cores: &layout.client_node,
        way: Some(Way::Pod),
    }];
    let mut namespaces: Vec<&NetNs> = pods.servers().map(|pod| &pod.namespace).collect();
    namespaces.push(&pods.waypoint.namespace);
    for (number, (pod, blueprint)) in blueprint.servers(site).into_iter().enumerate() {
        ends.push(End {
            pod,
            blueprint,
            namespaces: namespaces[number..].to_vec(),
            node: &pods.server_node,
            cores: &layout.server_node,
            way: None,
        });
    }
    ends.extend(ends_behind(lab, pods, site, blueprint));
    if let Some(blueprint) = &blueprint.waypoint {
        ends.push(End {
            pod: &site.waypoint,
            blueprint,
            namespaces: vec![&pods.waypoint.namespace],
            node: &pods.server_node,
            cores: &layout.server_node,
            way: None,
        });
    }
    ends.extend(gateway_end(lab, pods, site, blueprint));
    ends
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
        namespaces: vec![&pods.gateway.as_ref()?.namespace],
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
        namespaces: vec![&net.namespace],
        node: match node {
            NodeName::A => &pods.client_node,
            NodeName::B => &pods.server_node,
        },
        cores: lab.cores_of(node),
        way: None,
    })
}

pub(super) fn site(lab: &Lab, variant: &Variant) -> io::Result<Site> {
    let pods = &lab.pods[&variant.id];
    let pod = |net: &PodNet, service_account: &str, name: &str| {
        Ok::<_, io::Error>(Pod {
            name: name.into(),
            address: net.address,
            service_account: service_account.into(),
            directory: Lab::pod_directory(&variant.id, name)?,
        })
    };
    let more_servers = pods.more_servers.iter().zip(2..);
    let graph = lab.setup.service.graph.as_ref();
    Ok(Site {
        client: pod(&pods.client, "client", "client")?,
        server: pod(&pods.server, "server", "server")?,
        more_servers: more_servers
            .map(|(net, number)| pod(net, "server", &format!("server-{number}")))
            .collect::<io::Result<_>>()?,
        waypoint: pod(&pods.waypoint, "waypoint", "waypoint")?,
        gateway: match &pods.gateway {
            Some(net) => Some(Gateway {
                pod: pod(net, "ingress-gateway", "ingress-gateway")?,
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
