//! Topologies that ship with meshtax, and those that are defined by a number.

use meshtax_model::topology::{Call, Service, Topology, Work, WorkStep};

use super::definition::TopologySpec;
use super::draft::Draft;
use super::{own, placed};
use crate::grammar::{ValueError, count, quoted, with_suggestion};
use crate::service::{MAX_REPLICAS, enough_for, number_of_nodes};
use crate::yaml;

/// More hops on one machine would measure its scheduler.
const LONGEST_CHAIN: u32 = 20;
const WIDEST_FAN: u32 = 50;
/// Of three pods each; more exceed one machine.
const MAX_NAMESPACES: u32 = 50;

/// A topology that ships with meshtax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name for `topology:` and `--topology`; `N` stands for a number.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Its YAML; `None`: it is generated from the number.
    pub yaml: Option<&'static str>,
}

/// All of them.
#[must_use]
pub fn shipped() -> &'static [Shipped] {
    &SHIPPED
}

static SHIPPED: [Shipped; 8] = [
    Shipped {
        name: "pair",
        summary: "one service with one pod: the default",
        yaml: None,
    },
    Shipped {
        name: "replicas-N",
        summary: "one service with N pods behind its service address (1 to 500)",
        yaml: None,
    },
    Shipped {
        name: "replicas-N-nodes-M",
        summary: "the same, with the pods distributed round-robin over M nodes (1 to 20)",
        yaml: None,
    },
    Shipped {
        name: "chain-N",
        summary: "N services, each of which calls the next (1 to 20)",
        yaml: None,
    },
    Shipped {
        name: "fanout-N",
        summary: "a service that calls N others concurrently (1 to 50)",
        yaml: None,
    },
    Shipped {
        name: "tiers-N",
        summary: "N namespaces of a web, an app and a db service; clients call every web (1 to 50)",
        yaml: None,
    },
    Shipped {
        name: "bookinfo",
        summary: "a page that calls details and reviews; two of three reviews call ratings; 6 pods",
        yaml: Some(include_str!("../../topologies/bookinfo.yaml")),
    },
    Shipped {
        name: "teastore",
        summary: "a shop of seven services; 7 pods",
        yaml: Some(include_str!("../../topologies/teastore.yaml")),
    },
];

/// The topology of this name.
///
/// # Errors
/// If there is none, or its number is out of range.
pub fn named(name: &str) -> Result<TopologySpec, ValueError> {
    let shipped = SHIPPED
        .iter()
        .find(|s| s.name == name && !name.ends_with("-N"));
    if let Some(Shipped {
        yaml: Some(yaml), ..
    }) = shipped
    {
        return yaml::read(yaml)
            .and_then(|root| own::read(&root))
            .map_err(|e| ValueError::new(e.message, e.fix));
    }
    if name == "pair" {
        return Ok(replicas(name, 1, 1));
    }
    let numbered = name
        .rsplit_once('-')
        .filter(|(_, number)| !number.is_empty());
    let within = |number: &str, what: &str, max| count(number, what, 1, max);
    match numbered {
        Some(("replicas", number)) => {
            let count = within(number, "a number of pods", MAX_REPLICAS)?;
            Ok(replicas(name, count, 1))
        }
        Some((several, nodes)) if on_nodes(several).is_some() => {
            let pods = on_nodes(several).unwrap_or_default();
            let count = within(pods, "a number of pods", MAX_REPLICAS)?;
            let nodes = number_of_nodes(nodes)?;
            enough_for(nodes, count)?;
            Ok(replicas(name, count, nodes))
        }
        Some(("chain", number)) => {
            let count = within(number, "a number of services", LONGEST_CHAIN)?;
            chain(name, count)
        }
        Some(("fanout", number)) => {
            let count = within(number, "a number of services", WIDEST_FAN)?;
            fanout(name, count)
        }
        Some(("tiers", number)) => {
            let count = within(number, "a number of namespaces", MAX_NAMESPACES)?;
            tiers(name, count)
        }
        _ => Err(unknown(name)),
    }
}

/// The number of pods in `replicas-20-nodes`.
fn on_nodes(before: &str) -> Option<&str> {
    before.strip_prefix("replicas-")?.strip_suffix("-nodes")
}

fn unknown(name: &str) -> ValueError {
    let names = || SHIPPED.iter().map(|s| s.name);
    let fix = format!(
        "known: {}; or list services of your own, or name a file of them with --topology FILE",
        names().collect::<Vec<_>>().join(", ")
    );
    ValueError::new(
        format!("unknown topology `{}`", quoted(name)),
        with_suggestion(name, names(), fix),
    )
}

fn replicas(name: &str, replicas: u32, nodes: u32) -> TopologySpec {
    TopologySpec {
        name: name.to_owned(),
        topology: Topology {
            name: None,
            services: vec![Service {
                replicas,
                nodes,
                ..Service::new("server")
            }],
        },
        response_bytes: None,
        unsupported: Vec::new(),
    }
}

fn calls(names: Vec<String>) -> Work {
    let call = |service| Call {
        service,
        share: 1.0,
    };
    Work {
        steps: vec![WorkStep::Calls(names.into_iter().map(call).collect())],
        ..Work::default()
    }
}

fn chain(name: &str, count: u32) -> Result<TopologySpec, ValueError> {
    let service = |number: u32| {
        let mut draft = Draft::new(&format!("hop-{number}"));
        if number < count {
            draft.work = calls(vec![format!("hop-{}", number + 1)]);
        }
        draft
    };
    placed::topology(name, (1..=count).map(service).collect())
}

fn fanout(name: &str, count: u32) -> Result<TopologySpec, ValueError> {
    let leaf = |number: u32| format!("leaf-{number}");
    let mut front = Draft::new("front");
    front.work = calls((1..=count).map(leaf).collect());
    let leaves = (1..=count).map(|number| Draft::new(&leaf(number)));
    placed::topology(name, std::iter::once(front).chain(leaves).collect())
}

fn tiers(name: &str, count: u32) -> Result<TopologySpec, ValueError> {
    let namespace = |number: u32| {
        let [web, app, db] = ["web", "app", "db"].map(|tier| format!("{tier}-{number}"));
        [
            Draft {
                entry_point: true,
                work: calls(vec![app.clone()]),
                ..Draft::new(&web)
            },
            Draft {
                work: calls(vec![db.clone()]),
                ..Draft::new(&app)
            },
            Draft::new(&db),
        ]
    };
    placed::topology(name, (1..=count).flat_map(namespace).collect())
}

#[cfg(test)]
mod tests {
    use meshtax_model::topology::NodeSide;

    use super::*;

    #[test]
    fn named_topologies_have_the_pods_and_calls_of_their_definition() {
        for (name, pods, calls) in [
            ("pair", 1, 0.0),
            ("replicas-7", 7, 0.0),
            ("replicas-7-nodes-3", 7, 0.0),
            ("chain-1", 1, 0.0),
            ("chain-4", 4, 3.0),
            ("fanout-5", 6, 5.0),
            ("tiers-1", 3, 2.0),
            ("tiers-50", 150, 2.0),
            ("bookinfo", 6, 2.667),
            ("teastore", 7, 3.877_5),
        ] {
            let topology = named(name).unwrap_or_else(|e| panic!("{name}: {}", e.problem));
            assert_eq!(topology.name, name);
            assert_eq!(topology.topology.pods(), pods, "{name}");
            let made = topology.topology.calls_per_request();
            assert!((made - calls).abs() < 1e-9, "{name}: {made}");
        }
    }

    /// Every call of a chain crosses the link between the nodes, as the clients' requests do.
    #[test]
    fn a_chain_alternates_between_the_nodes() {
        let chain = named("chain-4").unwrap().topology;
        let nodes: Vec<NodeSide> = chain.services.iter().map(|s| s.node).collect();
        let (client, server) = (NodeSide::Client, NodeSide::Server);
        assert_eq!(nodes, [server, client, server, client]);
    }

    #[test]
    fn in_tiers_clients_call_every_web_and_every_call_crosses_the_nodes() {
        let tiers = named("tiers-3").unwrap().topology;
        assert_eq!(tiers.entry_point_count(), 3);
        for number in 1..=3 {
            for (tier, node) in [
                ("web", NodeSide::Server),
                ("app", NodeSide::Client),
                ("db", NodeSide::Server),
            ] {
                let name = format!("{tier}-{number}");
                let (requests, across) = (
                    tiers.requests_per_request(&name),
                    tiers.requests_across_nodes(&name),
                );
                assert!((requests - 1.0 / 3.0).abs() < 1e-12, "{name}: {requests}");
                assert!((across - requests).abs() < 1e-12, "{name}: {across}");
                let service = tiers.service(&name).expect("a tier");
                assert_eq!((service.node, service.entry_point), (node, tier == "web"));
            }
        }
        assert!((tiers.calls_in_sequence() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn unknown_names_are_rejected_with_the_known_ones() {
        for (name, expected) in [
            ("bookinf", "did you mean `bookinfo`?"),
            ("chain-0", "whole numbers from 1 to 20"),
            ("replicas-501", "1 to 500"),
            (
                "replicas-2-nodes-3",
                "use at least 3 replicas, or fewer nodes",
            ),
            ("replicas-50-nodes-21", "1 to 20"),
            ("replicas--nodes-2", "1 to 500"),
            ("replicas-nodes-2", "known: pair"),
            ("chain-N", "whole numbers"),
            ("fanout-", "known: pair"),
            ("tiers-51", "1 to 50"),
            ("", "known: pair"),
        ] {
            let rejected = named(name).unwrap_err();
            assert!(rejected.fix.contains(expected), "{name}: {rejected:?}");
        }
    }
}
