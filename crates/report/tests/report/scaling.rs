//! Laws of growth in words, and what variants take besides requests.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Estimate, Interval, NodeMemory, Upkeep};
use meshtax_model::experiment::{Knows, Options, Role, VariantId};
use meshtax_model::scaling::{Grows, Law, Line, Over, Prediction, Scaling};
use meshtax_report::{TerminalOptions, markdown, scaling_terminal, terminal};

use crate::fixtures;

fn estimate(value: f64, half: f64) -> Estimate {
    Estimate {
        value,
        interval: Some(Interval {
            low: value - half,
            high: value + half,
        }),
    }
}

fn law(grows: Grows, points: &[(u32, f64)], line: Option<Line>) -> Law {
    let reason = line
        .is_none()
        .then(|| "0 of 4 runs have a figure, and a line takes 3".to_owned());
    Law {
        variant: VariantId("envoy-sidecar-mtls".to_owned()),
        grows,
        points: points.to_vec(),
        line,
        reason,
    }
}

/// What was asked is not a number: each law has its own count of hops.
#[test]
fn laws_over_hops_say_what_a_call_graph_adds() {
    let latency = Line {
        fixed: estimate(0.02e6, 0.04e6),
        each: estimate(0.81e6, 0.02e6),
        predicted: Some(Prediction {
            at: 3.667,
            value: estimate(2.99e6, 0.11e6),
            by_one: Some(estimate(3.02e6, 0.08e6)),
            measured: Some(3.31e6),
            holds: Some(false),
        }),
    };
    let points = [(1, 0.83e6), (2, 1.64e6), (3, 2.44e6), (5, 4.08e6)];
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Hops,
        confidence: 0.95,
        topology: Some("bookinfo".to_owned()),
        runs: vec!["a".to_owned(), "b".to_owned()],
        laws: vec![law(Grows::AddedMeanLatency, &points, Some(latency))],
    };
    insta::assert_snapshot!(scaling_terminal(&scaling, TerminalOptions::default()));
}

#[test]
fn laws_over_what_is_known_count_by_the_thousand() {
    const MIB: f64 = 1_048_576.0;
    let memory = Line {
        fixed: estimate(30.0 * MIB, 0.8 * MIB),
        each: estimate(0.02 * MIB, 0.0004 * MIB),
        predicted: Some(Prediction {
            at: 2_500.0,
            value: estimate(80.0 * MIB, 2.0 * MIB),
            by_one: None,
            measured: Some(80.9 * MIB),
            holds: Some(true),
        }),
    };
    let points = [(1, 30.1), (100, 31.9), (1_000, 50.2), (5_000, 130.0)];
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Known,
        confidence: 0.95,
        topology: None,
        runs: vec!["a".to_owned(), "b".to_owned()],
        laws: vec![
            law(
                Grows::ProxyMemory,
                &points.map(|(at, mib)| (at, mib * MIB)),
                Some(memory),
            ),
            law(Grows::PushTime, &[], None),
        ],
    };
    insta::assert_snapshot!(scaling_terminal(&scaling, TerminalOptions::default()));
}

#[test]
fn each_of_several_nodes_has_a_line_of_its_own() {
    let mut analysis = fixtures::quick();
    analysis.experiment.service.replicas = 3;
    analysis.experiment.service.nodes = 2;
    for found in &mut analysis.variants {
        let second = NodeMemory {
            number: 1,
            ..found.nodes[0]
        };
        found.nodes.push(second);
    }
    let text = markdown(&analysis);
    for said in [
        "3 replicas behind the service's address, dealt out to 2 nodes of the servers'",
        "server's 1: its replicas and what stands before them",
        "server's 2: its replicas and what stands before them",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn laws_over_nodes_say_what_a_node_adds() {
    const MIB: f64 = 1_048_576.0;
    let line = Line {
        fixed: estimate(900.0 * MIB, 8.0 * MIB),
        each: estimate(40.0 * MIB, 0.5 * MIB),
        predicted: None,
    };
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Nodes,
        confidence: 0.95,
        topology: None,
        runs: vec!["a".to_owned()],
        laws: vec![law(Grows::NodesMemory, &[(1, 940.0 * MIB)], Some(line))],
    };
    let text = scaling_terminal(&scaling, TerminalOptions::default());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "how costs grow with the servers' nodes",
        "memory of all proxies and of their programs, a copy on each node: 40.0 [39.5, 40.5] MiB a node, and",
        "The number of pods stays",
    ] {
        assert!(words.contains(said), "{said}: {words}");
    }
}

#[test]
fn starts_and_rest_stand_in_a_table_and_options_in_the_notes() {
    let mut analysis = fixtures::quick();
    for asked in &mut analysis.experiment.variants {
        if asked.role == Role::Candidate {
            asked.options = Options {
                knows: Some(Knows {
                    endpoints: 1_000,
                    per_service: 10,
                    changes_per_s: Some(5.0),
                }),
                access_log: true,
                tracing: Some(0.1),
            };
        }
    }
    for found in &mut analysis.variants {
        let is_none = found.variant.0.starts_with("none");
        found.upkeep = Upkeep {
            start_ns: Some(estimate(if is_none { 9.1e6 } else { 310e6 }, 4e6)),
            added_start_ns: (!is_none).then(|| estimate(301e6, 4e6)),
            push_ns: (!is_none).then(|| estimate(92e6, 7e6)),
            idle_cores: (!is_none).then(|| estimate(0.0031, 0.0002)),
        };
    }
    let text = terminal(&analysis, TerminalOptions::default());
    let table: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("Start and rest"))
        .take_while(|line| !line.is_empty())
        .collect();
    let notes: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("each proxy knows"))
        .take(8)
        .collect();
    insta::assert_snapshot!(format!("{}\n\n{}", table.join("\n"), notes.join("\n")));
}
