//! Topologies that ship with meshtax, and those that are a number.

use meshtax_model::graph::{Call, Step, Work};

use super::{Draft, Topology, placed, topology};
use crate::error::nearest;
use crate::service::{MOST_REPLICAS, enough_for, number_of_nodes};
use crate::value::{self, ValueError};

/// More hops on one machine measure its scheduler.
const LONGEST_CHAIN: u32 = 20;
const WIDEST_FAN: u32 = 50;
/// Three pods each: more than this are not one machine's.
const MOST_NAMESPACES: u32 = 50;

/// A topology that ships with meshtax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// What `topology:` and `--topology` take; `N` stands for a number.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// As a user could have written it; `None`: it is made from the number.
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
        summary: "one service of one pod, called by its clients: the default",
        yaml: None,
    },
    Shipped {
        name: "replicas-N",
        summary: "one service of N pods behind its address (1 to 500)",
        yaml: None,
    },
    Shipped {
        name: "replicas-N-nodes-M",
        summary: "the same, its pods dealt out to M nodes (1 to 20)",
        yaml: None,
    },
    Shipped {
        name: "chain-N",
        summary: "N services, each of which calls the next (1 to 20)",
        yaml: None,
    },
    Shipped {
        name: "fanout-N",
        summary: "a service that calls N others at once (1 to 50)",
        yaml: None,
    },
    Shipped {
        name: "tiers-N",
        summary: "N namespaces of a web, an app and a db service; clients call every web (1 to 50)",
        yaml: None,
    },
    Shipped {
        name: "bookinfo",
        summary: "a page that asks for details and for reviews, of which two in three ask for ratings; 6 pods",
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
pub fn named(name: &str) -> Result<Topology, ValueError> {
    let shipped = SHIPPED
        .iter()
        .find(|s| s.name == name && !name.ends_with("-N"));
    if let Some(Shipped {
        yaml: Some(yaml), ..
    }) = shipped
    {
        return topology(name, yaml).map_err(|e| ValueError {
            problem: e.message,
            fix: e.help,
        });
    }
    if name == "pair" {
        return Ok(replicas(name, 1, 1));
    }
    let numbered = name
        .rsplit_once('-')
        .filter(|(_, number)| !number.is_empty());
    let within = |number: &str, what: &str, most| value::count(number, what, 1, most);
    match numbered {
        Some(("replicas", number)) => {
            let count = within(number, "a number of pods", MOST_REPLICAS)?;
            Ok(replicas(name, count, 1))
        }
        Some((several, nodes)) if on_nodes(several).is_some() => {
            let pods = on_nodes(several).unwrap_or_default();
            let count = within(pods, "a number of pods", MOST_REPLICAS)?;
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
            let count = within(number, "a number of namespaces", MOST_NAMESPACES)?;
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
    let known = format!(
        "known: {}; or services of your own, or a file of them with --topology FILE",
        names().collect::<Vec<_>>().join(", ")
    );
    ValueError {
        problem: format!("no topology is called `{}`", value::shown(name)),
        fix: match nearest(name, names()) {
            Some(meant) => format!("did you mean `{meant}`? {known}"),
            None => known,
        },
    }
}

fn replicas(name: &str, replicas: u32, nodes: u32) -> Topology {
    Topology {
        name: name.to_owned(),
        replicas,
        nodes,
        response_bytes: None,
        graph: None,
        left_out: Vec::new(),
    }
}

fn calls(names: Vec<String>) -> Work {
    let call = |service| Call {
        service,
        share: 1.0,
    };
    Work {
        steps: vec![Step::Calls(names.into_iter().map(call).collect())],
        ..Work::default()
    }
}

fn chain(name: &str, count: u32) -> Result<Topology, ValueError> {
    let service = |number: u32| {
        let mut draft = Draft::new(&format!("hop-{number}"));
        if number < count {
            draft.work = calls(vec![format!("hop-{}", number + 1)]);
        }
        draft
    };
    placed::topology(name, (1..=count).map(service).collect())
}

fn fanout(name: &str, count: u32) -> Result<Topology, ValueError> {
    let leaf = |number: u32| format!("leaf-{number}");
    let mut front = Draft::new("front");
    front.work = calls((1..=count).map(leaf).collect());
    let leaves = (1..=count).map(|number| Draft::new(&leaf(number)));
    placed::topology(name, std::iter::once(front).chain(leaves).collect())
}

fn tiers(name: &str, count: u32) -> Result<Topology, ValueError> {
    let namespace = |number: u32| {
        let [web, app, db] = ["web", "app", "db"].map(|tier| format!("{tier}-{number}"));
        [
            Draft {
                clients: true,
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
    use meshtax_model::graph::{Graph, GraphNode};

    use super::*;

    #[test]
    fn each_is_what_its_name_says() {
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
            ("teastore", 7, 3.876_25),
        ] {
            let topology = named(name).unwrap_or_else(|e| panic!("{name}: {}", e.problem));
            assert_eq!(topology.name, name);
            let behind = topology.graph.as_ref().map_or(0, Graph::pods);
            assert_eq!(topology.replicas + behind, pods, "{name}");
            let made = topology
                .graph
                .map_or(0.0, |graph| graph.calls_per_request());
            assert!((made - calls).abs() < 1e-9, "{name}: {made}");
        }
    }

    /// Every call of a chain crosses the link between the nodes, as the clients' own does.
    #[test]
    fn a_chain_goes_to_and_fro_between_the_nodes() {
        let graph = named("chain-4").unwrap().graph.unwrap();
        let nodes: Vec<GraphNode> = graph.others.iter().map(|s| s.node).collect();
        assert_eq!(
            nodes,
            [GraphNode::Client, GraphNode::Server, GraphNode::Client]
        );
    }

    #[test]
    fn of_tiers_clients_call_every_web_and_every_call_crosses_the_nodes() {
        let graph = named("tiers-3").unwrap().graph.unwrap();
        assert_eq!((graph.entry.as_str(), graph.called()), ("web-1", 3));
        for number in 1..=3 {
            for (tier, node) in [
                ("web", GraphNode::Server),
                ("app", GraphNode::Client),
                ("db", GraphNode::Server),
            ] {
                let name = format!("{tier}-{number}");
                let (asked, across) = (
                    graph.requests_per_request(&name),
                    graph.requests_across(&name),
                );
                assert!((asked - 1.0 / 3.0).abs() < 1e-12, "{name}: {asked}");
                assert!((across - asked).abs() < 1e-12, "{name}: {across}");
                if let Some(service) = graph.other(&name) {
                    assert_eq!((service.node, service.clients), (node, tier == "web"));
                }
            }
        }
        assert!((graph.calls_in_sequence() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_none_is_refused_with_what_there_is() {
        for (name, said) in [
            ("bookinf", "did you mean `bookinfo`?"),
            ("chain-0", "whole numbers from 1 to 20"),
            ("replicas-501", "1 to 500"),
            (
                "replicas-2-nodes-3",
                "give it 3 replicas at least, or fewer nodes",
            ),
            ("replicas-50-nodes-21", "1 to 20"),
            ("replicas--nodes-2", "1 to 500"),
            ("replicas-nodes-2", "known: pair"),
            ("chain-N", "whole numbers"),
            ("fanout-", "known: pair"),
            ("tiers-51", "1 to 50"),
            ("", "known: pair"),
        ] {
            let refused = named(name).unwrap_err();
            assert!(refused.fix.contains(said), "{name}: {refused:?}");
        }
    }
}
