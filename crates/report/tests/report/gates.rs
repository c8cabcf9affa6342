//! Comparisons of runs and gates: how they look, and that nothing in them makes a report fail.

use jsonschema::Validator;
use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    Estimate, ExclusionReason, Interval, Metric, NotEstimable, RunSide, Verdict,
};
use meshtax_model::comparison::{
    Between, BetweenSource, Change, ComparedRun, ComparisonNote, Differing, GateCheck, GateReport,
    GateVerdict, InconclusiveCheck, RunComparison, Setting, SettingValue,
};
use meshtax_model::experiment::{LoadPointId, VariantId};
use meshtax_model::failure::VariantFailureReason;
use meshtax_report::TerminalOptions;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures;
use crate::robustness::damage;
use crate::schema::check;

fn estimate(value: f64, low: f64, high: f64) -> Estimate {
    Estimate {
        value,
        interval: Some(Interval { low, high }),
    }
}

fn change(variant: &str, point: &str, metric: Metric, relative: Option<Estimate>) -> Change {
    Change {
        variant: variant.to_owned(),
        base_variant: VariantId(variant.to_owned()),
        new_variant: VariantId(variant.to_owned()),
        load_point: LoadPointId(point.to_owned()),
        metric,
        base: Some(estimate(1.52, 1.4, 1.64)),
        new: Some(estimate(1.83, 1.71, 1.95)),
        relative,
        lower_bound: false,
        between: relative.map(|_| Between {
            value: 0.02,
            source: BetweenSource::Default,
        }),
        base_runs: 1,
        new_runs: 1,
        p_value: relative.map(|_| 0.003),
        primary: metric != Metric::CpuPerRequest,
        verdict: match relative.and_then(|r| r.interval) {
            Some(interval) if interval.excludes_zero() => Verdict::Different,
            Some(_) => Verdict::Inconclusive,
            None => Verdict::NotEstimable {
                reason: not_found(variant),
            },
        },
    }
}

fn not_found(variant: &str) -> NotEstimable {
    let detail = "no Envoy <found> & \"none\" | installed".to_owned();
    NotEstimable::InSide {
        side: RunSide::New,
        reason: Box::new(NotEstimable::Excluded {
            variant: VariantId(variant.to_owned()),
            reason: ExclusionReason::Failed {
                round: 1,
                failure: VariantFailureReason::StartFailed { detail },
            },
        }),
    }
}

fn changes() -> Vec<Change> {
    let envoy = "envoy-sidecar-l7";
    vec![
        change(
            envoy,
            "steady",
            Metric::ResponseP50,
            Some(estimate(0.123, 0.081, 0.167)),
        ),
        change(
            envoy,
            "steady",
            Metric::ResponseP99,
            Some(estimate(0.04, -0.06, 0.15)),
        ),
        change(
            envoy,
            "steady",
            Metric::CpuPerRequest,
            Some(estimate(0.012, -0.031, 0.057)),
        ),
        change("linkerd-l7", "steady", Metric::ResponseP50, None),
        change(
            envoy,
            "saturated",
            Metric::Throughput,
            Some(estimate(-0.01, -0.05, 0.03)),
        ),
    ]
}

fn run(id: &str) -> ComparedRun {
    let mut run = fixtures::quick().run;
    run.id = id.to_owned();
    ComparedRun {
        run,
        rounds: 18,
        blocks: 18,
    }
}

fn differing() -> Vec<Differing> {
    let text = |text: &str| vec![SettingValue::Text(text.to_owned())];
    let program = |version: &str, sha256: &str| {
        vec![SettingValue::Program {
            version: version.to_owned(),
            sha256: sha256.to_owned(),
        }]
    };
    vec![
        Differing {
            setting: Setting::Kernel,
            base: text("6.18.44"),
            new: text("6.19.1"),
        },
        Differing {
            setting: Setting::Program {
                data_plane: "envoy-sidecar".to_owned(),
            },
            base: program("1.40.0", "0a1b2c3d4e5f0000"),
            new: program("1.41.0", "99887766aabb0000"),
        },
    ]
}

fn comparison() -> RunComparison {
    RunComparison {
        interleaved: false,
        pairs: Vec::new(),
        format_version: FORMAT_VERSION,
        base: vec![run("20261121-monday")],
        new: vec![run("20261122-tuesday")],
        confidence: 0.95,
        differing: differing(),
        notes: vec![ComparisonNote::SameSeed { seed: 7 }],
        changes: changes(),
    }
}

fn gate(verdict: GateVerdict) -> GateReport {
    let limits = [
        "p50 +5%",
        "p99 +20%",
        "cpu +10%",
        "p50 +5%",
        "throughput -10%",
    ];
    let verdicts = [
        GateVerdict::Fail,
        GateVerdict::Pass,
        GateVerdict::Pass,
        GateVerdict::Inconclusive,
        GateVerdict::Pass,
    ];
    let all = changes().into_iter().zip(limits).zip(verdicts);
    let mut checks: Vec<GateCheck> = all
        .map(|((change, limit), verdict)| GateCheck {
            limit: limit.to_owned(),
            allowed: Some(match limit {
                "p99 +20%" => 0.2,
                "cpu +10%" => 0.1,
                "throughput -10%" => -0.1,
                _ => 0.05,
            }),
            reason: match &change.verdict {
                Verdict::NotEstimable { reason } => Some(InconclusiveCheck::NotEstimable {
                    reason: reason.clone(),
                }),
                _ => None,
            },
            change,
            p_beyond: Some(0.01),
            verdict,
            longer_to_tell: None,
        })
        .collect();
    checks.retain(|check| check.verdict <= verdict);
    if let Some(open) = checks
        .iter_mut()
        .find(|c| c.change.metric == Metric::ResponseP99)
        && verdict == GateVerdict::Inconclusive
    {
        open.verdict = GateVerdict::Inconclusive;
        open.reason = Some(InconclusiveCheck::IntervalContainsLimit);
        open.longer_to_tell = Some(4.2);
        open.limit = "p99 +200us".to_owned();
        open.allowed = Some(0.11);
    }
    GateReport {
        format_version: FORMAT_VERSION,
        verdict,
        interleaved: false,
        base: vec![run("20261121-monday")],
        new: vec![run("20261122-tuesday")],
        confidence: 0.95,
        differing: differing(),
        notes: Vec::new(),
        checks,
    }
}

const VERDICTS: [GateVerdict; 3] = [
    GateVerdict::Pass,
    GateVerdict::Inconclusive,
    GateVerdict::Fail,
];

fn at(width: usize) -> TerminalOptions {
    TerminalOptions {
        width,
        color: false,
    }
}

#[test]
fn comparisons_match_snapshots() {
    let comparison = comparison();
    insta::assert_snapshot!(
        "compare_terminal",
        meshtax_report::comparison_terminal(&comparison, at(100))
    );
    insta::assert_snapshot!(
        "compare_markdown",
        meshtax_report::comparison_markdown(&comparison)
    );
    let page = meshtax_report::comparison_html(&comparison);
    assert!(
        page.contains("Differences between the runs") && !page.contains("<found>"),
        "{page}"
    );
    let text = meshtax_report::comparison_terminal(&comparison, at(100));
    let (differs, changed) = (text.find("Differences between"), text.find("At steady"));
    assert!(differs.is_some() && differs < changed, "{text}");
}

#[test]
fn gates_match_snapshots() {
    for verdict in VERDICTS {
        let gate = gate(verdict);
        let all = format!(
            "{}\n=== JUnit\n{}\n=== GitHub\n{}",
            meshtax_report::gate_terminal(&gate, at(100)),
            meshtax_report::gate_junit(&gate),
            meshtax_report::gate_annotations(&gate)
        );
        insta::assert_snapshot!(format!("gate_{verdict}").replace(' ', "_"), all);
    }
    insta::assert_snapshot!(
        "gate_markdown",
        meshtax_report::gate_markdown(&gate(GateVerdict::Fail))
    );
}

#[test]
fn overloaded_variant_fails_with_its_achieved_rate_and_errors() {
    let mut gate = gate(GateVerdict::Fail);
    let check = &mut gate.checks[0];
    check.change.verdict = Verdict::Overloaded(fixtures::overload());
    check.change.relative = None;
    let texts = [
        meshtax_report::gate_terminal(&gate, at(160)),
        meshtax_report::gate_junit(&gate),
        meshtax_report::gate_annotations(&gate).replace("%25", "%"),
        meshtax_report::gate_markdown(&gate),
    ];
    let expected = "overloaded, completed 5,312 of 16,000 requests/s (0.04 % errors, 62 % without a response) in 17 of \
                18 trials";
    for text in texts {
        assert!(text.contains(expected), "{text}");
    }
    let document = meshtax_report::gate_json(&gate);
    let validator = jsonschema::draft202012::new(&schema("gate")).expect("a schema");
    assert_eq!(errors(&validator, &document), [] as [&str; 0]);
    let mut compared = comparison();
    compared.changes[0].verdict = Verdict::Overloaded(fixtures::overload());
    let text = meshtax_report::comparison_terminal(&compared, at(120));
    assert!(text.contains("overloaded (1)"), "{text}");
}

#[test]
fn each_reason_for_a_withheld_verdict_is_in_words_and_in_the_schema() {
    let validator = jsonschema::draft202012::new(&schema("gate")).expect("a schema");
    let reason = not_found("envoy-sidecar-l7");
    for (reason, expected) in [
        (InconclusiveCheck::LowerBound, "the change is a lower bound"),
        (
            InconclusiveCheck::UpperBound,
            "the change is an upper bound",
        ),
        (InconclusiveCheck::CpuElsewhere, "CPU outside the path"),
        (
            InconclusiveCheck::MissingRun { reason },
            "not in each run of NEW",
        ),
    ] {
        let mut gate = gate(GateVerdict::Inconclusive);
        gate.checks.truncate(1);
        gate.checks[0].verdict = GateVerdict::Inconclusive;
        gate.checks[0].reason = Some(reason);
        let text = meshtax_report::gate_annotations(&gate);
        assert!(text.contains(expected), "{text}");
        let document = meshtax_report::gate_json(&gate);
        assert_eq!(errors(&validator, &document), [] as [&str; 0]);
    }
}

#[test]
fn first_line_of_a_gate_is_the_whole_verdict() {
    for (verdict, start) in
        VERDICTS
            .iter()
            .zip(["gate passed: ", "gate inconclusive: ", "gate FAILED: "])
    {
        let text = meshtax_report::gate_terminal(&gate(*verdict), at(40));
        let line = text.lines().next().unwrap_or_default();
        assert!(line.starts_with(start), "{line}");
        assert!(
            *verdict != GateVerdict::Fail || line.contains("beyond +5 %"),
            "{line}"
        );
    }
}

fn schema(name: &str) -> Value {
    let text = match name {
        "gate" => include_str!("../../../../docs/schema/gate-v2.json"),
        _ => include_str!("../../../../docs/schema/compare-v2.json"),
    };
    serde_json::from_str(text).expect("the schema is JSON")
}

fn errors(validator: &Validator, document: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(document).expect("JSON");
    let errors = validator.iter_errors(&document);
    errors
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect()
}

#[test]
fn gate_and_comparison_documents_match_their_schemas() {
    for name in ["compare", "gate"] {
        let schema = schema(name);
        check("", &schema);
        let version = &schema["properties"]["format_version"]["const"];
        assert_eq!(*version, json!(FORMAT_VERSION));
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        let documents = match name {
            "gate" => VERDICTS
                .map(|v| meshtax_report::gate_json(&gate(v)))
                .to_vec(),
            _ => vec![meshtax_report::comparison_json(&comparison())],
        };
        for document in documents {
            assert_eq!(errors(&validator, &document), [] as [String; 0], "{name}");
            let mut more: Value = serde_json::from_str(&document).expect("JSON");
            more["surprise"] = json!(1);
            assert!(!validator.is_valid(&more));
        }
    }
}

/// Tags are balanced, and all special characters are escaped.
fn assert_xml(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
    for tag in text.split('<').skip(1) {
        let (tag, rest) = tag.split_once('>').expect("an end of the tag");
        assert!(!rest.contains('>'), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{text}");
        } else if !tag.ends_with('/') && !tag.starts_with('?') {
            open.push(tag.split(' ').next().unwrap_or_default());
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_comparisons_and_gates_are_rendered(
        width in 0_usize..220,
        damages in prop::collection::vec((any::<usize>(), any::<u8>()), 1..40),
    ) {
        let mut compared = serde_json::to_value(comparison()).unwrap();
        let mut gated = serde_json::to_value(gate(GateVerdict::Fail)).unwrap();
        for (pick, how) in damages {
            damage::<RunComparison>(&mut compared, pick, how);
            damage::<GateReport>(&mut gated, pick, how);
        }
        let compared: RunComparison = serde_json::from_value(compared).unwrap();
        let gated: GateReport = serde_json::from_value(gated).unwrap();
        for text in [
            meshtax_report::comparison_terminal(&compared, at(width)),
            meshtax_report::comparison_markdown(&compared),
            meshtax_report::comparison_html(&compared),
            meshtax_report::gate_terminal(&gated, at(width)),
            meshtax_report::gate_markdown(&gated),
        ] {
            prop_assert!(!text.contains(['\u{202e}', '\u{1b}']), "nothing steers a terminal");
        }
        assert_xml(&meshtax_report::gate_junit(&gated));
        for line in meshtax_report::gate_annotations(&gated).lines() {
            let commands = ["::error ", "::warning ", "::notice "];
            prop_assert!(commands.iter().any(|c| line.starts_with(c)), "{}", line);
        }
        let document: Value = serde_json::from_str(&meshtax_report::gate_json(&gated)).unwrap();
        prop_assert!(document["checks"].is_array());
    }
}
