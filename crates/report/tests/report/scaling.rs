//! Scaling laws in words, and the start-up time and idle usage of variants.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Estimate, Interval, NodeMemory, Upkeep};
use meshtax_model::experiment::{ExtraEndpoints, Options, Role, VariantId};
use meshtax_model::scaling::{
    Grows, Law, Line, NoInterval, NoLine, Over, Prediction, ScaledProgram, Scaling,
};
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
    let reason = line.is_none().then_some(NoLine::FewRuns {
        runs: 0,
        of: 4,
        needed: 3,
    });
    Law {
        variant: VariantId("envoy-sidecar-mtls".to_owned()),
        grows,
        points: points.to_vec(),
        line,
        reason,
    }
}

/// The request is not a number: each law has its own count of hops.
#[test]
fn laws_over_hops_predict_call_graphs() {
    let latency = Line {
        fixed: estimate(0.02e6, 0.04e6),
        each: estimate(0.81e6, 0.02e6),
        lack_of_fit: Some(0.4),
        predicted: Some(Prediction {
            at: 3.667,
            value: Estimate {
                value: 2.99e6,
                interval: None,
            },
            no_interval: Some(NoInterval::CallGraph),
            held_out_error: None,
            by_one: Some(3.02e6),
            measured: Some(3.31e6),
            holds: None,
        }),
    };
    let points = [(1, 0.83e6), (2, 1.64e6), (3, 2.44e6), (5, 4.08e6)];
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Hops,
        confidence: 0.95,
        topology: Some("bookinfo".to_owned()),
        runs: vec!["a".to_owned(), "b".to_owned()],
        programs: Vec::new(),
        laws: vec![law(Grows::AddedMeanLatency, &points, Some(latency))],
    };
    insta::assert_snapshot!(scaling_terminal(&scaling, TerminalOptions::default()));
}

#[test]
fn laws_over_endpoints_are_per_thousand() {
    const MIB: f64 = 1_048_576.0;
    let memory = Line {
        fixed: estimate(30.0 * MIB, 0.8 * MIB),
        each: estimate(0.02 * MIB, 0.0004 * MIB),
        lack_of_fit: Some(0.4),
        predicted: Some(Prediction {
            at: 2_500.0,
            value: estimate(80.0 * MIB, 2.0 * MIB),
            no_interval: None,
            held_out_error: None,
            by_one: None,
            measured: Some(80.9 * MIB),
            holds: Some(true),
        }),
    };
    let points = [(1, 30.1), (100, 31.9), (1_000, 50.2), (5_000, 130.0)];
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Endpoints,
        confidence: 0.95,
        topology: None,
        runs: vec!["a".to_owned(), "b".to_owned()],
        programs: vec![ScaledProgram {
            program: "envoy".to_owned(),
            version: "1.40.0".to_owned(),
            sha256: "0123456789abcdef".to_owned(),
        }],
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
fn each_node_has_a_row() {
    let mut analysis = fixtures::quick();
    analysis.experiment.topology.services[0].replicas = 3;
    analysis.experiment.topology.services[0].nodes = 2;
    let nodes = &mut analysis.environment.nodes;
    let second = meshtax_model::environment::Node {
        name: "server-2".to_owned(),
        ..nodes[1].clone()
    };
    nodes.push(second);
    for found in &mut analysis.variants {
        let second = NodeMemory {
            node: 2,
            ..found.nodes[0]
        };
        found.nodes.push(second);
    }
    let text = markdown(&analysis);
    for expected in [
        "3 replicas behind the service address, distributed over 2 server nodes",
        "server-1: application and proxies",
        "server-2: application and proxies",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn laws_over_nodes_are_per_node() {
    const MIB: f64 = 1_048_576.0;
    let line = Line {
        fixed: estimate(900.0 * MIB, 8.0 * MIB),
        each: estimate(40.0 * MIB, 0.5 * MIB),
        lack_of_fit: Some(0.4),
        predicted: None,
    };
    let scaling = Scaling {
        format_version: FORMAT_VERSION,
        over: Over::Nodes,
        confidence: 0.95,
        topology: None,
        runs: vec!["a".to_owned()],
        programs: Vec::new(),
        laws: vec![law(Grows::NodesMemory, &[(1, 940.0 * MIB)], Some(line))],
    };
    let text = scaling_terminal(&scaling, TerminalOptions::default());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "how costs grow with the servers' nodes",
        "memory of all proxies and of their programs, a copy on each node: 40.0 [39.5, 40.5] MiB a node, plus",
        "The number of pods is constant",
    ] {
        assert!(words.contains(expected), "{expected}: {words}");
    }
}

#[test]
fn start_up_and_idle_cpu_have_a_table_and_options_have_notes() {
    let mut analysis = fixtures::quick();
    for asked in &mut analysis.experiment.variants {
        if asked.role == Role::Candidate {
            asked.options = Options {
                extra_endpoints: Some(ExtraEndpoints {
                    endpoints: 1_000,
                    per_service: 10,
                    changes_per_s: Some(5.0),
                }),
                access_log: true,
                all_stats: true,
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
        .skip_while(|line| !line.starts_with("Start-up time and idle CPU"))
        .take_while(|line| !line.is_empty())
        .collect();
    let notes: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("each proxy is configured with"))
        .take(8)
        .collect();
    insta::assert_snapshot!(format!("{}\n\n{}", table.join("\n"), notes.join("\n")));
}
