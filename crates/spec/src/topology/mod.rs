//! Topologies: which services there are, who calls whom, and where they stand.

mod isotope;
mod named;
mod own;
mod placed;

use meshtax_model::experiment::{
    Experiment, LoadPoint, Protocol, Service, ServiceAddress, Variant,
};
use meshtax_model::graph::{Call, Graph, GraphNode, Page, Work};

pub use named::{Shipped, named, shipped};

use crate::KnownDataPlane;
use crate::error::{Problem, SpecError};
use crate::tree::{self, Node, Value};
use crate::value::ValueError;

/// Services, of which clients call the first, and maybe others.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// `pair`, `chain-3`, `bookinfo`.
    pub name: String,
    /// Pods of the first service that clients call.
    pub replicas: u32,
    /// Nodes over which they are dealt out.
    pub nodes: u32,
    /// Size of its answers in bytes; `None`: the workload's.
    pub response_bytes: Option<u32>,
    /// All other services; `None`: the one that clients call answers by itself.
    pub graph: Option<Graph>,
    /// What of its source has no counterpart here, in words.
    pub left_out: Vec<String>,
}

/// A service as it is written, before it is known where it stands.
#[derive(Clone, Debug, PartialEq)]
struct Draft {
    name: String,
    replicas: u32,
    nodes: u32,
    response_bytes: Option<u32>,
    node: Option<GraphNode>,
    /// Whether clients call it, too, if it is not the first.
    clients: bool,
    work: Work,
    pages: Vec<Page>,
}

impl Draft {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 1,
            nodes: 1,
            response_bytes: None,
            node: None,
            clients: false,
            work: Work::default(),
            pages: Vec::new(),
        }
    }

    /// All that it may call.
    fn calls(&self) -> impl Iterator<Item = &Call> {
        let pages = self.pages.iter().flat_map(Page::calls);
        self.work.calls().chain(pages)
    }
}

/// Reads a topology of the user's own, or one in isotope's format. `file` is how errors call it.
///
/// # Errors
/// What cannot be used, with its place: not YAML, an unknown key, a service that there is not, a cycle.
pub fn topology(file: &str, text: &str) -> Result<Topology, SpecError> {
    tree::read(text)
        .and_then(|root| whole(&root))
        .map_err(|problem| SpecError::new(file, text, problem))
}

fn whole(root: &Node) -> Result<Topology, Problem> {
    match isotope::is_one(root) {
        true => isotope::read(root),
        false => own::read(root),
    }
}

/// A spec's `topology`: a name, or services.
pub(crate) fn read(node: &Node) -> Result<Topology, Problem> {
    match &node.value {
        Value::Scalar(text) => named(text).map_err(|e| {
            let problem = format!("`topology`: {}", e.problem);
            Problem::new(node.at, problem, e.fix)
        }),
        _ => whole(node),
    }
}

impl Topology {
    /// The service that clients call, as the experiment has it.
    #[must_use]
    pub fn service(&self) -> Service {
        Service {
            replicas: self.replicas,
            nodes: self.nodes,
            address: match self.replicas {
                1 => ServiceAddress::Pod,
                _ => ServiceAddress::Virtual,
            },
            program: None,
            graph: self.graph.clone(),
        }
    }

    /// Puts it in the place of what the experiment has, as `--topology` does. Returns what was changed besides, in
    /// words: numbers of connections that cannot be spread evenly over the services that clients call.
    ///
    /// # Errors
    /// If something in the experiment does not go with it, or there is no room for all pods.
    pub fn apply(
        &self,
        experiment: &mut Experiment,
        known: &[KnownDataPlane],
    ) -> Result<Vec<String>, ValueError> {
        if experiment.service.program.is_some() {
            return Err(ValueError {
                problem: "the experiment has a program of the user's own as its service".to_owned(),
                fix: "leave `server` out of the service, or `--topology` off".to_owned(),
            });
        }
        experiment.service = self.service();
        if let Some(bytes) = self.response_bytes {
            experiment.workload.response_bytes = bytes;
        }
        let changed = self.spread_connections(experiment);
        fits(experiment, known)?;
        Ok(changed)
    }

    /// So many connections, or a few more: each service that clients call gets as many.
    pub(crate) fn evenly(&self, connections: u32) -> u32 {
        let called = self.graph.as_ref().map_or(1, Graph::called);
        connections.next_multiple_of(called)
    }

    /// Raises the experiment's numbers of connections to such that can be spread evenly. Returns which, in words.
    fn spread_connections(&self, experiment: &mut Experiment) -> Vec<String> {
        let mut changed = Vec::new();
        let mut raise = |what: &str, connections: &mut u32| {
            let even = self.evenly(*connections);
            if even != *connections {
                changed.push(format!(
                    "{what}: {connections} connections become {even}, as many to each service that clients call"
                ));
                *connections = even;
            }
        };
        raise("workload", &mut experiment.workload.connections);
        for point in &mut experiment.load_points {
            let id = point.id.to_string();
            if let Some(connections) = &mut point.connections {
                raise(&format!("load point `{id}`"), connections);
            }
        }
        changed
    }
}

/// Whether the rest of an experiment goes with its services.
pub(crate) fn fits(experiment: &Experiment, known: &[KnownDataPlane]) -> Result<(), ValueError> {
    crate::service::room_for_all(experiment)?;
    let Some(graph) = &experiment.service.graph else {
        return Ok(());
    };
    carried_by_all(experiment, known)?;
    crate::ingress::leads_to_one(experiment)?;
    clients_reach_each(experiment, graph)?;
    let points = &experiment.load_points;
    let has_pages = !graph.pages.is_empty();
    let other = |point: &&LoadPoint| point.protocol != Protocol::Http1;
    if let Some(point) = points.iter().filter(|_| has_pages).find(other) {
        return Err(ValueError {
            problem: format!(
                "the load point `{}` speaks {}, and this topology's pages are asked for over HTTP/1.1",
                point.id, point.protocol
            ),
            fix: "leave `protocol` out, or the pages".to_owned(),
        });
    }
    match points.iter().find(|p| p.protocol == Protocol::Tcp) {
        Some(point) => Err(ValueError {
            problem: format!(
                "the load point `{}` speaks TCP, over which bytes come back and no service is called",
                point.id
            ),
            fix: "leave it out, or use the topology `pair`".to_owned(),
        }),
        None => Ok(()),
    }
}

/// Whether all variants' data planes can carry services that call each other.
fn carried_by_all(experiment: &Experiment, known: &[KnownDataPlane]) -> Result<(), ValueError> {
    let cannot = |variant: &&Variant| {
        let plane = known.iter().find(|k| k.name == variant.data_plane);
        plane.is_some_and(|plane| !plane.carries_graphs)
    };
    let Some(variant) = experiment.variants.iter().find(cannot) else {
        return Ok(());
    };
    let able = known.iter().filter(|k| k.carries_graphs);
    let able: Vec<&str> = able.map(|k| k.name.as_str()).collect();
    Err(ValueError {
        problem: format!(
            "the data plane `{}` cannot carry services that call each other here",
            variant.data_plane
        ),
        fix: format!(
            "these can: {}; the topologies `pair` and `replicas-N` go with all",
            able.join(", ")
        ),
    })
}

/// Whether every service that clients call has as many connections as the others.
fn clients_reach_each(experiment: &Experiment, graph: &Graph) -> Result<(), ValueError> {
    let called = graph.called();
    let uneven = |point: &&LoadPoint| !experiment.connections(point).is_multiple_of(called);
    let Some(point) = experiment.load_points.iter().find(uneven) else {
        return Ok(());
    };
    let connections = experiment.connections(point);
    Err(ValueError {
        problem: format!(
            "the load point `{}` has {connections} connections, which cannot be spread evenly over the \
             {called} services that clients call",
            point.id
        ),
        fix: format!(
            "write `{}: {}`, or another multiple of {called}",
            match point.by_users {
                true => "users",
                false => "connections",
            },
            connections.next_multiple_of(called)
        ),
    })
}

#[cfg(test)]
mod tests {
    use meshtax_model::graph::{GraphNode, Step};

    use super::*;

    const SHOP: &str = "
name: shop
services:
  - name: front
    replicas: 2
    response: 4 KiB
    calls: [cart, {all: [stock, price]}, {call: ads, share: 20%}, {sleep: 5ms}]
  - {name: cart, burn: 10k, time: 'lognormal:2ms,0.5', errors: 1%}
  - {name: stock, calls: [db]}
  - {name: price, node: server, calls: [db]}
  - {name: ads}
  - {name: db}
";

    #[test]
    fn services_of_the_users_own() {
        let shop = topology("shop.yaml", SHOP).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((shop.replicas, shop.response_bytes), (2, Some(4096)));
        let graph = shop.graph.unwrap();
        assert_eq!(graph.entry, "front");
        assert_eq!(graph.work.steps.len(), 4);
        assert_eq!(graph.work.steps[3], Step::SleepNs(5_000_000));
        assert!((graph.calls_per_request() - 5.2).abs() < 1e-9);
        assert!((graph.calls_in_sequence() - 3.2).abs() < 1e-9);
        let node = |name| graph.other(name).map(|service| service.node);
        assert_eq!(node("cart"), Some(GraphNode::Client));
        assert_eq!(node("price"), Some(GraphNode::Server));
        // On the other node than the first that calls it.
        assert_eq!(node("db"), Some(GraphNode::Server));
        let cart = &graph.other("cart").unwrap().work;
        assert_eq!((cart.burn_steps, cart.error_share), (10_000, 0.01));
        assert!(cart.time.is_some());
    }

    #[test]
    fn what_cannot_be_is_refused_at_its_place() {
        for (text, line, said) in [
            (
                "services: [{name: a, calls: [b]}]",
                1,
                "`a` calls `b`, and no service is called so",
            ),
            (
                "services:\n  - {name: a, calls: [b]}\n  - {name: b, calls: [a]}",
                3,
                "`b` calls `a`, from where it is called itself",
            ),
            ("services: [{name: a, calls: [a]}]", 1, "`a` calls `a`"),
            (
                "services: [{name: Front}]",
                1,
                "`Front` cannot be a service's name",
            ),
            (
                "services: [{name: server}]",
                1,
                "the name `server` is taken",
            ),
            (
                "services: [{name: a, replicas: 2}, {name: a-2}]",
                1,
                "two pods would be called `a-2`",
            ),
            (
                "services: [{name: a}, {name: a}]",
                1,
                "two pods would be called `a`",
            ),
            ("services: []", 1, "empty list"),
            ("name: x", 1, "lacks `services`"),
            (
                "services: [{name: a, calls: [{call: b, share: 120%}]}, {name: b}]",
                1,
                "out of range",
            ),
            (
                "services: [{name: a, calls: [{wait: 5ms}]}]",
                1,
                "unknown key `wait`",
            ),
            ("services: [{name: a, calls: [{sleep: 5}]}]", 1, "no unit"),
            (
                "services: [{name: a, time: normal:2ms}]",
                1,
                "no distribution",
            ),
            (
                "services:\n  - {name: a}\n  - {name: b, clients: false}",
                3,
                "`clients`",
            ),
            (
                "services:\n  - {name: a}\n  - {name: c}\n  - {name: b, clients: true, calls: [a]}",
                4,
                "`b` calls `a`, the first of the services that clients call",
            ),
            (
                "services:\n  - {name: a, pages: [{name: home}]}\n  - {name: b, clients: true}",
                3,
                "clients call `b`, too, and ask the first service for pages",
            ),
        ] {
            let refused = topology("own.yaml", text).unwrap_err();
            assert!(refused.message.contains(said), "{text}: {refused}");
            assert_eq!(refused.line, Some(line), "{text}: {refused}");
        }
    }

    #[test]
    fn clients_may_call_several_services() {
        let text = "services:\n  - {name: a, node: client, calls: [c]}\n  \
                    - {name: b, clients: true, replicas: 2, calls: [c, d]}\n  - {name: c, clients: true, node: client}\n  \
                    - {name: d, response: 7 B}";
        let graph = topology("own.yaml", text).unwrap().graph.unwrap();
        assert_eq!(graph.called(), 3);
        let of = |name| {
            graph
                .other(name)
                .map(|s| (s.clients, s.node, s.response_bytes))
        };
        // What clients call answers as the workload says, and stands on the other node than they.
        assert_eq!(of("b"), Some((true, GraphNode::Server, None)));
        assert_eq!(of("c"), Some((true, GraphNode::Client, None)));
        assert_eq!(of("d"), Some((false, GraphNode::Client, Some(7))));
        assert!((graph.requests_per_request("c") - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_service_that_clients_call_has_as_many_connections() {
        use crate::presets::tests::known;

        let of = |more: &str| {
            let text = format!("topology: tiers-3\nvariants: [{{data-plane: limit-l4}}]\n{more}");
            crate::parse("spec.yaml", &text, &known())
        };
        assert_eq!(of("").unwrap().workload.connections, 33);
        for (more, fix) in [
            ("workload: {connections: 32}\n", "write `connections: 33`"),
            (
                "load: [{saturated: {connections: 2}}]\n",
                "write `connections: 3`",
            ),
            (
                "load: [{steady: {rate: 1000, users: 4}}]\n",
                "write `users: 6`",
            ),
        ] {
            let refused = of(more).unwrap_err();
            assert_eq!(refused.line, Some(1), "{refused}");
            assert!(refused.help.contains(fix), "{more}: {}", refused.help);
        }
        let by_gateway = of("workload: {ingress: tls}\n").unwrap_err();
        assert!(
            by_gateway.help.contains("leave `ingress` out"),
            "{by_gateway}"
        );
        let text = "variants: [{data-plane: limit-l4}]\nload: [{saturated: {connections: 4}}, {saturated: {}}]\n";
        let mut given = crate::parse("spec.yaml", text, &known()).unwrap();
        let changed = named("tiers-3")
            .unwrap()
            .apply(&mut given, &known())
            .unwrap();
        assert_eq!(changed.len(), 2, "{changed:?}");
        assert!(
            changed[0].contains("32 connections become 33"),
            "{changed:?}"
        );
        assert!(
            changed[1].contains("`saturated-c4`: 4 connections become 6"),
            "{changed:?}"
        );
        let changed = named("pair").unwrap().apply(&mut given, &known()).unwrap();
        assert_eq!(changed, Vec::<String>::new());
    }

    /// The words of isotope's own documentation.
    #[test]
    fn isotopes_format_is_read_and_what_it_has_more_is_told() {
        let text = "
apiVersion: v1alpha1
kind: MockServiceGraph
defaults: {type: grpc, requestSize: 1 KB, responseSize: 16 KB}
services:
- {name: a, errorRate: 0.01%, script: [{sleep: 100ms}]}
- {name: b, type: grpc, numReplicas: 3}
- name: c
  script: [{call: {service: a, size: 10K}}, {call: {service: b, probability: 50}}]
- name: d
  script:
  - - call: a
    - call: c
  - sleep: 10ms
  - call: b
";
        let read = topology("isotope.yaml", text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read.response_bytes, Some(16 * 1024));
        let graph = read.graph.unwrap();
        assert_eq!(graph.entry, "d", "the one that nobody calls");
        assert_eq!(graph.others.len(), 3);
        assert_eq!(graph.other("b").unwrap().replicas, 3);
        assert!((graph.other("a").unwrap().work.error_share - 1e-4).abs() < 1e-12);
        assert!((graph.calls_per_request() - 4.5).abs() < 1e-9);
        let said = read.left_out.join("; ");
        for word in ["gRPC", "bodies of requests"] {
            assert!(said.contains(word), "{said}");
        }
        let entry =
            "services: [{name: a, script: []}, {name: b, isEntrypoint: true, script: [{call: a}]}]";
        assert_eq!(topology("i", entry).unwrap().graph.unwrap().entry, "b");
        // Of several, one that no other calls comes first.
        let several = "services: [{name: a, isEntrypoint: true}, {name: b, isEntrypoint: true, script: [{call: a}]}]";
        let graph = topology("i", several).unwrap().graph.unwrap();
        assert_eq!((graph.entry.as_str(), graph.called()), ("b", 2));
        assert_eq!(graph.other("a").unwrap().response_bytes, Some(0));
        let wrong = "services: [{name: a, script: [{call: nobody}]}]";
        assert!(
            topology("i", wrong)
                .unwrap_err()
                .message
                .contains("`nobody`")
        );
    }

    #[test]
    fn a_spec_takes_a_name_or_services_and_not_a_service_besides() {
        use crate::presets::tests::known;

        let parse = |text: &str| crate::parse("spec.yaml", text, &known());
        let of = "variants: [{data-plane: limit-l4}]\n";
        let bookinfo = parse(&format!("topology: bookinfo\n{of}")).unwrap();
        assert_eq!(bookinfo.workload.response_bytes, 5 * 1024);
        assert_eq!(bookinfo.service.graph.unwrap().name, "bookinfo");
        let own = parse(&format!("topology: {{services: [{{name: a}}]}}\n{of}")).unwrap();
        assert_eq!(own.service.graph.unwrap().others.len(), 0);
        let sized = parse(&format!(
            "topology: bookinfo\nworkload: {{response: 1 KiB}}\n{of}"
        ));
        assert_eq!(sized.unwrap().workload.response_bytes, 1024);
        for (text, said) in [
            ("topology: bookinf\n", "no topology is called `bookinf`"),
            (
                "topology: pair\nservice: {replicas: 2}\n",
                "both say what is called",
            ),
            (
                "topology: chain-2\nload: [{saturated: {protocol: tcp}}]\n",
                "speaks TCP",
            ),
            (
                "topology: fanout-50\nvariants: [{data-plane: limit-l4}]\n",
                "",
            ),
        ] {
            let refused = parse(text);
            match said {
                "" => assert!(refused.is_ok(), "{text}"),
                said => assert!(refused.unwrap_err().message.contains(said), "{text}"),
            }
        }
        let mut known = known();
        known[1].carries_graphs = false;
        let refused = crate::parse("spec.yaml", &format!("topology: chain-3\n{of}"), &known);
        let refused = refused.unwrap_err();
        assert!(
            refused.message.contains("`limit-l4` cannot carry services"),
            "{refused}"
        );
        assert!(crate::parse("spec.yaml", &format!("topology: replicas-3\n{of}"), &known).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_panic(text in "[a-z{}\\[\\]:,\\- \n0-9%]{0,200}") {
            let _ = topology("any", &text);
            let _ = topology("any", &format!("services: [{text}]"));
            let _ = topology("any", &format!("kind: MockServiceGraph\nservices: [{{name: a, script: [{text}]}}]"));
            let _ = named(&text);
        }
    }
}
