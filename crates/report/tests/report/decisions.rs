//! The decision table: one section in every format, which fits the terminal.

use jsonschema::draft202012;
use meshtax_model::advice::{Need, Priority};
use meshtax_model::analysis::{
    Analysis, Decision, DecisionCell, DecisionGroup, DecisionReason, DecisionRow, Estimate,
    ExclusionReason, Ground, Interval, Metric, NotEstimable, Opponent, Suggestion, Weight,
    Withheld,
};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, VariantId};
use meshtax_report::TerminalOptions;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::fixtures;

const ENVOY: &str = "envoy-sidecar-mtls";
const LINKERD: &str = "linkerd-mtls";
const ZTUNNEL: &str = "ztunnel-mtls";

fn id(name: &str) -> VariantId {
    VariantId(name.to_owned())
}

fn difference(metric: Metric, value: f64, open: &[Metric]) -> Ground {
    let (low, high) = (value - 0.04, value + 0.05);
    Ground::Difference {
        metric,
        load_point: LoadPointId("steady-1000".to_owned()),
        relative: Some(Estimate {
            value,
            interval: Some(Interval { low, high }),
        }),
        withheld: None,
        open: open.to_vec(),
    }
}

fn to(name: &str, ground: Ground) -> Vec<Opponent> {
    let variant = id(name);
    vec![Opponent { variant, ground }]
}

fn row(
    requirement: Option<Priority>,
    cells: Vec<(&str, Suggestion, DecisionReason)>,
) -> DecisionRow {
    let cell = |(name, suggestion, reason): (&str, Suggestion, DecisionReason)| DecisionCell {
        variant: id(name),
        suggestion,
        reason,
    };
    DecisionRow {
        requirement,
        weight: (requirement == Some(Priority::Performance)).then_some(2.5),
        cells: cells.into_iter().map(cell).collect(),
    }
}

fn measured() -> Vec<DecisionRow> {
    use DecisionReason::{Better, Equivalent, Excluded, NotSeparated, Worse};
    use Suggestion::{AsGoodAs, Inconclusive, NotMeasuredHere, NotSuggested, Suggested};
    // In a short run the p99 is not estimable.
    let p50 = |value| difference(Metric::ResponseP50, value, &[Metric::ResponseP99]);
    let unresolved = Ground::NotEstimable {
        metric: Metric::CpuPerRequest,
        load_point: LoadPointId("saturated".to_owned()),
        reason: NotEstimable::NoCommonBlock,
    };
    let conflict = Ground::Conflict {
        better: Metric::ResponseP50,
        worse: Metric::ResponseP99,
    };
    let overload = Ground::Overload {
        load_point: LoadPointId("steady-1000".to_owned()),
        carried: false,
    };
    let proof = || Ground::Proof {
        needs: vec![Need::Mtls, Need::IdentityPolicy],
    };
    let [than, worse] = [to(ENVOY, p50(-0.41)), to(LINKERD, p50(0.72))];
    let [from, other] = [to(LINKERD, unresolved), to(ENVOY, conflict)];
    vec![
        row(
            Some(Priority::Performance),
            vec![
                (ENVOY, NotSuggested, Worse { than: worse }),
                (LINKERD, Suggested, Better { than }),
                (
                    ZTUNNEL,
                    NotMeasuredHere,
                    Excluded {
                        reason: ExclusionReason::NoTrials,
                    },
                ),
            ],
        ),
        row(
            Some(Priority::Cost),
            vec![
                (ENVOY, Inconclusive, NotSeparated { from }),
                (LINKERD, Inconclusive, NotSeparated { from: other }),
                (
                    ZTUNNEL,
                    NotSuggested,
                    Worse {
                        than: to(ENVOY, overload),
                    },
                ),
            ],
        ),
        row(
            Some(Priority::Compliance),
            vec![
                (
                    ENVOY,
                    AsGoodAs,
                    Equivalent {
                        to: to(LINKERD, proof()),
                    },
                ),
                (
                    LINKERD,
                    AsGoodAs,
                    Equivalent {
                        to: to(ENVOY, proof()),
                    },
                ),
            ],
        ),
    ]
}

/// A row of each kind.
pub(crate) fn decision() -> Decision {
    use Suggestion::NotMeasuredHere;
    let mut rows = measured();
    let features = vec!["support-contracts".to_owned(), "managed-offers".to_owned()];
    let all = |reason: DecisionReason| {
        let names = [ENVOY, LINKERD].into_iter();
        names
            .map(|name| (name, NotMeasuredHere, reason.clone()))
            .collect::<Vec<_>>()
    };
    rows.push(row(
        Some(Priority::Support),
        all(DecisionReason::NoMeasurement { features }),
    ));
    rows.push(row(
        Some(Priority::EaseOfInstallation),
        all(DecisionReason::NoComparison),
    ));
    rows.push(row(
        Some(Priority::EaseOfMaintenance),
        all(DecisionReason::NotProven),
    ));
    let weights = Ground::Weights {
        better: 2.5,
        worse: 0.0,
        equivalent: 0.0,
        open: 1.0,
    };
    let reason = DecisionReason::Better {
        than: to(ENVOY, weights),
    };
    rows.push(row(None, vec![(LINKERD, Suggestion::Suggested, reason)]));
    Decision {
        weights: vec![Weight {
            requirement: Priority::Performance,
            weight: 2.5,
        }],
        groups: vec![DecisionGroup {
            level: Some(PolicyLevel::Mtls),
            rows,
        }],
    }
}

fn decided() -> Analysis {
    Analysis {
        decision: Some(decision()),
        ..fixtures::quick()
    }
}

fn terminal(analysis: &Analysis, width: usize) -> String {
    let color = false;
    meshtax_report::terminal(analysis, TerminalOptions { width, color })
}

/// Of the terminal's text.
fn section(text: &str) -> String {
    let lines = text
        .lines()
        .skip_while(|l| !l.starts_with("Decision table"));
    let section = lines.take_while(|line| !line.is_empty());
    section.collect::<Vec<_>>().join("\n")
}

#[test]
fn decision_table_matches_snapshots() {
    for width in [80, 100] {
        let text = section(&terminal(&decided(), width));
        insta::assert_snapshot!(format!("decision_{width}"), text);
    }
}

#[test]
fn decision_table_fits_the_terminal() {
    for width in 60..=160 {
        for line in section(&terminal(&decided(), width)).lines() {
            assert!(line.width() <= width, "at {width}: {line}");
        }
    }
}

#[test]
fn decision_is_a_section_of_every_format() {
    let analysis = decided();
    let page = meshtax_report::html(&analysis);
    assert!(page.contains("<section id=\"decision\">"));
    assert!(page.contains("<a href=\"#decision\">"));
    for text in [meshtax_report::markdown(&analysis), page] {
        assert!(text.contains("as good as") && text.contains("not measured here"));
    }
    let document: Value = serde_json::from_str(&meshtax_report::json(&analysis)).expect("JSON");
    let rows = &document["decision"]["groups"][0]["rows"];
    assert_eq!(rows[0]["cells"][1]["suggestion"], "suggested");
    assert_eq!(rows[2]["cells"][0]["suggestion"], "as-good-as");
    assert_eq!(rows[3]["cells"][0]["reason"]["id"], "no-measurement");
    assert_eq!(schema_errors(&analysis), [] as [String; 0]);
}

fn schema_errors(analysis: &Analysis) -> Vec<String> {
    let document: Value = serde_json::from_str(&meshtax_report::json(analysis)).expect("JSON");
    let schema = include_str!("../../../../docs/schema/report-v2.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = draft202012::new(&schema).expect("a schema");
    let errors = validator.iter_errors(&document);
    errors
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect()
}

#[test]
fn withheld_difference_has_its_reason() {
    for (withheld, expected) in [
        (
            Withheld::LowerBound,
            "(requests are missing from latencies that look better or equal)",
        ),
        (
            Withheld::CpuElsewhere,
            "(CPU outside the path does not support it)",
        ),
    ] {
        let mut ground = difference(Metric::CpuPerRequest, -0.2, &[]);
        if let Ground::Difference { withheld: why, .. } = &mut ground {
            *why = Some(withheld);
        }
        let from = to(LINKERD, ground);
        let reason = DecisionReason::NotSeparated { from };
        let mut analysis = decided();
        analysis.comparisons[0].withheld = Some(withheld);
        let rows = vec![row(
            Some(Priority::Cost),
            vec![(ENVOY, Suggestion::Inconclusive, reason)],
        )];
        if let Some(decision) = &mut analysis.decision {
            decision.groups[0].rows = rows;
        }
        let text = meshtax_report::markdown(&analysis);
        assert!(text.contains(expected), "{text}");
        let details = expected.trim_matches(['(', ')']);
        assert!(text.contains(&format!("inconclusive: {details}")), "{text}");
        assert_eq!(schema_errors(&analysis), [] as [String; 0]);
    }
}

#[test]
fn run_without_a_decision_has_no_section() {
    let analysis = Analysis {
        decision: None,
        ..decided()
    };
    assert!(!meshtax_report::html(&analysis).contains("id=\"decision\""));
    assert_eq!(section(&terminal(&analysis, 100)), "");
}
