//! Topologies: services, the calls between them, and their nodes.

mod definition;
mod draft;
mod isotope;
mod named;
mod own;
mod placed;

pub use definition::{RoundedConnections, TopologySpec, UnsupportedFeature};
pub(crate) use definition::{round_connections, validate};
pub use named::{Shipped, named, shipped};

use crate::error::SpecError;
use crate::yaml::{self, Node, Problem, Value};

/// Reads a topology in meshtax's own format or in isotope's. `file` is its name in errors.
///
/// # Errors
/// The first problem with its location: invalid YAML, an unknown key, an unknown service, a cycle.
pub fn topology(file: &str, text: &str) -> Result<TopologySpec, SpecError> {
    yaml::read(text)
        .and_then(|root| services(&root))
        .map_err(|problem| SpecError::new(file, text, problem))
}

/// The value of a spec's `topology`: a name, or services.
pub(crate) fn read(node: &Node) -> Result<TopologySpec, Problem> {
    match &node.value {
        Value::Scalar(text) => named(text).map_err(|e| {
            let problem = format!("`topology`: {}", e.problem);
            Problem::new(node.at, problem, e.fix)
        }),
        _ => services(node),
    }
}

fn services(root: &Node) -> Result<TopologySpec, Problem> {
    match isotope::is_format_of(root) {
        true => isotope::read(root),
        false => own::read(root),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::topology::{NodeSide, WorkStep};

    use super::{UnsupportedFeature, named, topology};

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
    fn own_services_form_a_graph_with_calls_and_nodes() {
        let shop = topology("shop.yaml", SHOP).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(shop.response_bytes, Some(4096));
        let topology = shop.topology;
        let front = &topology.services[0];
        assert_eq!((front.name.as_str(), front.replicas), ("front", 2));
        assert_eq!(front.work.steps.len(), 4);
        assert_eq!(front.work.steps[3], WorkStep::SleepNs(5_000_000));
        assert!((topology.calls_per_request() - 5.2).abs() < 1e-9);
        assert!((topology.calls_in_sequence() - 3.2).abs() < 1e-9);
        let node = |name| topology.service(name).map(|service| service.node);
        assert_eq!(node("cart"), Some(NodeSide::Client));
        assert_eq!(node("price"), Some(NodeSide::Server));
        // On the node opposite to its first caller.
        assert_eq!(node("db"), Some(NodeSide::Server));
        let cart = &topology.service("cart").unwrap().work;
        assert_eq!((cart.burn_steps, cart.error_share), (10_000, 0.01));
        assert!(cart.time.is_some());
    }

    /// A file, the line of its first problem, and a part of the message.
    type Invalid = (&'static str, u32, &'static str);

    #[track_caller]
    fn assert_rejected(cases: &[Invalid]) {
        for (text, line, expected) in cases {
            let rejected = topology("own.yaml", text).unwrap_err();
            assert!(rejected.message.contains(expected), "{text}: {rejected}");
            assert_eq!(rejected.line, Some(*line), "{text}: {rejected}");
        }
    }

    #[test]
    fn calls_to_nowhere_and_in_cycles_are_rejected_at_their_location() {
        assert_rejected(&[
            (
                "services: [{name: a, calls: [b]}]",
                1,
                "`a` calls `b`, and there is no such service",
            ),
            (
                "services:\n  - {name: a, calls: [b]}\n  - {name: b, calls: [a]}",
                3,
                "`b` calls `a`, which calls `b`",
            ),
            ("services: [{name: a, calls: [a]}]", 1, "`a` calls `a`"),
        ]);
    }

    #[test]
    fn names_that_pods_cannot_have_are_rejected_at_their_location() {
        assert_rejected(&[
            (
                "services: [{name: Front}]",
                1,
                "`Front` cannot be the name of a service",
            ),
            (
                "services: [{name: client}]",
                1,
                "the name `client` is reserved",
            ),
            (
                "services: [{name: client-2}]",
                1,
                "the name `client-2` is reserved",
            ),
            (
                "services: [{name: a, replicas: 2}, {name: a-2}]",
                1,
                "two pods would have the name `a-2`",
            ),
            (
                "services: [{name: a}, {name: a}]",
                1,
                "two pods would have the name `a`",
            ),
        ]);
    }

    #[test]
    fn values_and_keys_of_services_are_rejected_at_their_location() {
        assert_rejected(&[
            ("services: []", 1, "empty list"),
            ("name: x", 1, "has no `services`"),
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
                "not a distribution",
            ),
        ]);
    }

    #[test]
    fn pages_and_entry_points_are_rejected_at_their_location() {
        assert_rejected(&[
            (
                "services:\n  - {name: a}\n  - {name: b, clients: false}",
                3,
                "`clients`",
            ),
            (
                "services: [{name: a, pages: [{name: home, post: 'a b'}]}]",
                1,
                "cannot be sent",
            ),
            (
                "services:\n  - {name: a, pages: [{name: home}]}\n  - {name: b, clients: true}",
                3,
                "clients also call `b`, while the first service has pages",
            ),
        ]);
    }

    #[test]
    fn posted_pages_are_rejected_at_l7_and_only_there() {
        let spec = |level: &str| {
            format!(
                "topology:\n  name: shop\n  services: [{{name: a, pages: [{{name: buy, post: item=1}}]}}]\n\
                 variants: [{{data-plane: envoy-sidecar, level: {level}}}]\n"
            )
        };
        let parsed =
            crate::parse("shop.yaml", &spec("mtls")).expect("mtls has no policy on methods");
        let pages = &parsed.topology.services[0].pages;
        assert_eq!(pages[0].post.as_deref(), Some("item=1"));
        let rejected = crate::parse("shop.yaml", &spec("l7")).unwrap_err();
        assert!(rejected.message.contains("`buy` is posted"), "{rejected}");
    }

    #[test]
    fn shipped_teastore_has_the_eight_requests_of_its_profile() {
        let topology = named("teastore").expect("it is shipped").topology;
        let pages = &topology.services[0].pages;
        assert_eq!(pages.len(), 8);
        let posted = pages
            .iter()
            .filter_map(|page| Some((page.name.as_str(), page.post.as_deref()?)));
        let posted: Vec<(&str, &str)> = posted.collect();
        let forms = [
            ("login", "username=user1&password=password"),
            ("add-product-to-cart", "addToCart=&productid=7"),
            ("add-product-2-to-cart", "addToCart=&productid=9"),
            ("logout", "logout="),
        ];
        assert_eq!(posted, forms);
        let (before, session) = pages.split_at(2);
        assert!(before.iter().all(|page| page.cookie.is_none()));
        let cookie = session[0].cookie.as_deref().expect("a session");
        assert!(cookie.starts_with("session="), "{cookie}");
        assert!(session.iter().all(|p| p.cookie.as_deref() == Some(cookie)));
    }

    #[test]
    fn clients_can_call_several_services() {
        let text = "services:\n  - {name: a, node: client, calls: [c]}\n  \
                    - {name: b, clients: true, replicas: 2, calls: [c, d]}\n  - {name: c, clients: true, node: client}\n  \
                    - {name: d, response: 7 B}";
        let topology = topology("own.yaml", text).unwrap().topology;
        assert_eq!(topology.entry_point_count(), 3);
        let of = |name| {
            topology
                .service(name)
                .map(|s| (s.entry_point, s.node, s.response_bytes))
        };
        // Services that clients call have the response size of the workload, and run on the opposite node.
        assert_eq!(of("b"), Some((true, NodeSide::Server, None)));
        assert_eq!(of("c"), Some((true, NodeSide::Client, None)));
        assert_eq!(of("d"), Some((false, NodeSide::Client, Some(7))));
        assert!((topology.requests_per_request("c") - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_service_that_clients_call_has_the_same_number_of_connections() {
        let of = |more: &str| {
            let text = format!("topology: tiers-3\nvariants: [{{data-plane: limit-l4}}]\n{more}");
            crate::parse("spec.yaml", &text)
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
            let rejected = of(more).unwrap_err();
            assert_eq!(rejected.line, Some(1), "{rejected}");
            assert!(rejected.fix.contains(fix), "{more}: {}", rejected.fix);
        }
        let by_gateway = of("workload: {ingress: tls}\n").unwrap_err();
        assert!(by_gateway.fix.contains("omit `ingress`"), "{by_gateway}");
        let text = "variants: [{data-plane: limit-l4}]\nload: [{saturated: {connections: 4}}, {saturated: {}}]\n";
        let mut given = crate::parse("spec.yaml", text).unwrap();
        let changed = named("tiers-3").unwrap().apply(&mut given).unwrap();
        let changes: Vec<_> = changed
            .iter()
            .map(|c| (c.load_point.as_ref(), c.from, c.to))
            .collect();
        let point = &given.load_points[0].id;
        assert_eq!(point.0, "saturated-c4");
        assert_eq!(changes, [(None, 32, 33), (Some(point), 4, 6)]);
        let text = changed[1].to_string();
        assert!(
            text.contains("`saturated-c4`: 4 connections increased to 6"),
            "{text}"
        );
        let changed = named("pair").unwrap().apply(&mut given).unwrap();
        assert!(changed.is_empty(), "{changed:?}");
    }

    /// The example of isotope's own documentation.
    #[test]
    fn isotopes_format_is_read_and_unsupported_features_are_reported() {
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
        let services = &read.topology.services;
        assert_eq!(services[0].name, "d", "the one that no service calls");
        assert_eq!(services.len(), 4);
        let service = |name| read.topology.service(name).unwrap();
        assert_eq!(service("b").replicas, 3);
        assert!((service("a").work.error_share - 1e-4).abs() < 1e-12);
        assert!((read.topology.calls_per_request() - 4.5).abs() < 1e-9);
        let expected = [UnsupportedFeature::Grpc, UnsupportedFeature::RequestBodies];
        assert_eq!(read.unsupported, expected);
        let entry =
            "services: [{name: a, script: []}, {name: b, isEntrypoint: true, script: [{call: a}]}]";
        let first = |text| topology("i", text).unwrap().topology.services[0].clone();
        assert_eq!(first(entry).name, "b");
        // Of several, one that no other service calls comes first.
        let several = "services: [{name: a, isEntrypoint: true}, {name: b, isEntrypoint: true, script: [{call: a}]}]";
        let read = topology("i", several).unwrap().topology;
        assert_eq!(
            (first(several).name.as_str(), read.entry_point_count()),
            ("b", 2)
        );
        assert_eq!(read.service("a").unwrap().response_bytes, Some(0));
        let wrong = "services: [{name: a, script: [{call: nobody}]}]";
        assert!(
            topology("i", wrong)
                .unwrap_err()
                .message
                .contains("`nobody`")
        );
    }

    #[test]
    fn a_spec_accepts_a_topology_by_name_or_by_services_and_no_service_with_it() {
        let parse = |text: &str| crate::parse("spec.yaml", text);
        let of = "variants: [{data-plane: limit-l4}]\n";
        let bookinfo = parse(&format!("topology: bookinfo\n{of}")).unwrap();
        assert_eq!(bookinfo.workload.response_bytes, 5 * 1024);
        assert_eq!(bookinfo.topology.name.as_deref(), Some("bookinfo"));
        let own = parse(&format!("topology: {{services: [{{name: a}}]}}\n{of}")).unwrap();
        assert_eq!(own.topology.services.len(), 1);
        let sized = parse(&format!(
            "topology: bookinfo\nworkload: {{response: 1 KiB}}\n{of}"
        ));
        assert_eq!(sized.unwrap().workload.response_bytes, 1024);
        for (text, expected) in [
            ("topology: bookinf\n", "unknown topology `bookinf`"),
            (
                "topology: pair\nservice: {replicas: 2}\n",
                "both define the services",
            ),
            (
                "topology: chain-2\nload: [{saturated: {protocol: tcp}}]\n",
                "uses TCP",
            ),
            (
                "topology: fanout-50\nvariants: [{data-plane: limit-l4}]\n",
                "",
            ),
        ] {
            let rejected = parse(text);
            match expected {
                "" => assert!(rejected.is_ok(), "{text}"),
                expected => assert!(rejected.unwrap_err().message.contains(expected), "{text}"),
            }
        }
        let waypoint = "variants: [{data-plane: ztunnel-waypoint}]\n";
        let rejected = parse(&format!("topology: chain-3\n{waypoint}"));
        let rejected = rejected.unwrap_err();
        assert!(
            rejected
                .message
                .contains("`ztunnel-waypoint` does not support services"),
            "{rejected}"
        );
        assert!(parse(&format!("topology: replicas-3\n{waypoint}")).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[a-z{}\\[\\]:,\\- \n0-9%]{0,200}") {
            let _ = topology("any", &text);
            let _ = topology("any", &format!("services: [{text}]"));
            let _ = topology("any", &format!("kind: MockServiceGraph\nservices: [{{name: a, script: [{text}]}}]"));
            let _ = named(&text);
        }
    }
}
