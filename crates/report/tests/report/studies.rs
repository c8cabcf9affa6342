//! A study's own table: what was measured beside what was published.

use meshtax_model::analysis::{
    Analysis, ComponentCpu, CurvePoint, Estimate, IngressCost, Interval,
};
use meshtax_model::experiment::Ingress;
use meshtax_model::graph::{Call, Graph, GraphNode, GraphService, Step, Work};
use meshtax_model::trial::ComponentRole;
use meshtax_report::TerminalOptions;

use crate::fixtures;

const WIDE: TerminalOptions = TerminalOptions {
    width: 100,
    color: false,
};

/// The fixture with its closed loop as the study has it; of the percentiles the first are resolved.
fn livewyer() -> Analysis {
    let mut analysis = fixtures::quick();
    analysis.experiment.study = Some("livewyer-pod".to_owned());
    for point in &mut analysis.experiment.load_points {
        if !point.is_steady() {
            point.connections = Some(64);
            point.requests_per_connection = Some(1);
        }
    }
    let points = analysis.variants.iter_mut().flat_map(|v| &mut v.points);
    for (number, point) in points.enumerate() {
        point.percentiles = [0.5, 0.75, 0.9, 0.95]
            .map(|quantile| CurvePoint {
                quantile,
                value_ns: 7.5e6 * (1.0 + quantile) * (1.0 + number as f64 / 10.0),
            })
            .to_vec();
    }
    analysis
}

#[test]
fn measured_figures_stand_beside_the_published_ones() {
    let text = meshtax_report::terminal(&livewyer(), WIDE);
    let begin = text.find("The study's own table").expect("a table");
    let end = text[begin..].find("\nEvidence").expect("what follows");
    insta::assert_snapshot!("livewyer_pod", &text[begin..begin + end]);
    for said in [
        "cluster only",
        "not in this run",
        "needs ",
        "What is wrong with it",
    ] {
        assert!(text[begin..].contains(said), "{said}: {text}");
    }
}

#[test]
fn a_gateways_own_cpu_stands_beside_what_its_way_adds() {
    let mut analysis = livewyer();
    analysis.experiment.study = Some("livewyer-ingress".to_owned());
    let points = &mut analysis.experiment.load_points;
    let (from_pod, outside) = (points[0].id.clone(), points[1].id.clone());
    points[1].ingress = Some(Ingress::Tls);
    for variant in &mut analysis.variants {
        let point = variant.points.iter_mut().find(|p| p.load_point == outside);
        if let Some(cpu) = point.and_then(|point| point.cpu.as_mut()) {
            cpu.components.push(ComponentCpu {
                role: ComponentRole::Gateway,
                cpu_per_request_ns: 123_400.0,
                ..cpu.components[0].clone()
            });
        }
        let without_interval = variant.variant.0 == "none-again";
        analysis.ingress.push(IngressCost {
            variant: variant.variant.clone(),
            load_point: outside.clone(),
            from_pod: from_pod.clone(),
            difference: (!without_interval).then_some(Estimate {
                value: 120_000.0,
                interval: Some(Interval {
                    low: 110_000.0,
                    high: 130_000.0,
                }),
            }),
        });
    }
    let text = meshtax_report::terminal(&analysis, WIDE);
    let begin = text.find("By ingress, against").expect("a table");
    let end = text[begin..]
        .find("The study's own table")
        .expect("another");
    insta::assert_snapshot!("by_ingress", &text[begin..begin + end]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a VM calls through the ingress"), "{text}");
    assert!(words.contains(", by ingress over TLS"), "{text}");
    assert_is_of_the_schema(&analysis);
}

#[test]
fn a_variant_that_was_left_out_says_so_and_a_study_of_nobody_has_no_table() {
    let mut analysis = livewyer();
    for variant in &mut analysis.variants {
        if variant.variant.0.starts_with("envoy") {
            variant.left_out = Some("no binary".to_owned());
        }
    }
    let text = meshtax_report::terminal(&analysis, WIDE);
    assert!(text.contains("left out"), "{text}");
    analysis.experiment.study = Some("nobody's".to_owned());
    let text = meshtax_report::terminal(&analysis, WIDE);
    assert!(!text.contains("own table"), "{text}");
    // The other formats have it, too.
    let analysis = livewyer();
    assert!(meshtax_report::html(&analysis).contains("own table: Four environments"));
    assert!(meshtax_report::markdown(&analysis).contains("2499.9058"));
}

#[test]
fn a_topology_is_told_and_is_of_the_schema() {
    let mut analysis = livewyer();
    analysis.experiment.service.graph = Some(Graph {
        name: "shop".into(),
        entry: "front".into(),
        work: Work {
            steps: vec![
                Step::SleepNs(1_000),
                Step::Calls(vec![Call {
                    service: "back".into(),
                    share: 0.5,
                }]),
            ],
            ..Work::default()
        },
        others: vec![GraphService {
            name: "back".into(),
            replicas: 2,
            response_bytes: 10,
            node: GraphNode::Client,
            work: Work::default(),
        }],
    });
    let text = meshtax_report::terminal(&analysis, WIDE);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("topology shop: 2 services, 0.5"), "{text}");
    assert_is_of_the_schema(&analysis);
}

fn assert_is_of_the_schema(analysis: &Analysis) {
    let schema = include_str!("../../../../docs/schema/report-v1.json");
    let schema = serde_json::from_str(schema).expect("a schema");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let document = serde_json::from_str(&meshtax_report::json(analysis)).expect("JSON");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
