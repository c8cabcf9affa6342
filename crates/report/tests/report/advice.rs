//! Advice: how it looks, and that nothing in it makes a report fail.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::advice::{
    Advice, AdviceRequest, AdvisedVariant, Cost, CostFigure, CpuCost, Given, Gives,
    InconclusiveObjective, MemoryCost, MemoryPart, Missing, MissingReason, Need, NeedAnswer,
    Objective, ObjectiveAnswer, ObjectiveCheck, ObjectiveVerdict, PlaceRange, Priority,
    PriorityAnswer, ProxyPlace, Question, Ranking, Standing, Tie, Topic,
};
use meshtax_model::analysis::{
    Caveat, Estimate, Interval, InvalidReason, Metric, NoLevel, Unresolved, Verdict,
};
use meshtax_model::comparison::ComparedRun;
use meshtax_model::experiment::{LoadPointId, PolicyLevel, VariantId};
use meshtax_model::trial::ComponentRole;
use meshtax_report::TerminalOptions;
use meshtax_stats::advise::advise;
use proptest::prelude::*;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::fixtures;
use crate::robustness::{damage, damaged};
use crate::schema::check;

const ENVOY: &str = "envoy-sidecar-l7";
const WAYPOINT: &str = "ztunnel-waypoint-l7";
const LINKERD: &str = "linkerd-l7";
const FLOOR: &str = "limit-mtls";

fn id(name: &str) -> VariantId {
    VariantId(name.to_owned())
}

fn point(name: &str) -> LoadPointId {
    LoadPointId(name.to_owned())
}

/// With an interval of some share to both sides.
fn estimate(value: f64, share: f64) -> Estimate {
    Estimate {
        value,
        interval: Some(Interval {
            low: value * (1.0 - share),
            high: value * (1.0 + share),
        }),
    }
}

fn objectives() -> [Objective; 3] {
    let objective = |text: &str, metric, bound, rate_per_s| Objective {
        text: text.to_owned(),
        metric,
        bound,
        rate_per_s,
    };
    [
        objective("p99<5ms@2000/s", Metric::ResponseP99, 5e6, Some(2000.0)),
        objective("p50<700us@1500/s", Metric::ResponseP50, 7e5, Some(1500.0)),
        objective("throughput>5000/s", Metric::Throughput, 5000.0, None),
    ]
}

fn variant(name: &str, data_plane: &str, standing: Standing, mesh: Option<&str>) -> AdvisedVariant {
    let is_choice = standing == Standing::Choice;
    AdvisedVariant {
        variant: id(name),
        data_plane: data_plane.to_owned(),
        level: is_choice.then_some(PolicyLevel::L7),
        standing,
        mesh: mesh.map(str::to_owned),
        excluded: None,
        gives: vec![Gives {
            need: Need::Mtls,
            given: if is_choice { Given::Yes } else { Given::No },
        }],
    }
}

fn checks(metric: Metric) -> Vec<ObjectiveCheck> {
    let check = |name: &str, level: Option<Estimate>, verdict, reason| ObjectiveCheck {
        variant: id(name),
        load_point: point(if metric == Metric::Throughput {
            "saturated"
        } else {
            "steady-2000"
        }),
        level,
        verdict,
        reason,
        overload: None,
    };
    let (fast, slow) = match metric {
        Metric::Throughput => (31_400.0, 4_100.0),
        _ => (0.6e6, 7.2e6),
    };
    let (good, bad) = (ObjectiveVerdict::Met, ObjectiveVerdict::Missed);
    let (open, near) = (ObjectiveVerdict::Inconclusive, objectives()[0].bound);
    let near = if metric == Metric::Throughput {
        5_050.0
    } else {
        near
    };
    let no_level = match metric {
        Metric::Throughput => InconclusiveObjective::NoLevel {
            reason: NoLevel::NoValidTrials,
            invalid: vec![InvalidReason::ComponentFailed],
        },
        _ => InconclusiveObjective::NoLevel {
            reason: NoLevel::Unresolved(Unresolved {
                metric,
                trials: 6,
                requests: 9,
                needed: 10,
            }),
            invalid: Vec::new(),
        },
    };
    vec![
        check("none", Some(estimate(fast, 0.04)), good, None),
        check(FLOOR, Some(estimate(fast, 0.05)), good, None),
        ObjectiveCheck {
            overload: (metric == Metric::ResponseP99).then(fixtures::overload),
            ..check(ENVOY, Some(estimate(slow, 0.1)), bad, None)
        },
        check(
            WAYPOINT,
            Some(estimate(near, 0.1)),
            open,
            Some(InconclusiveObjective::IntervalContainsBound),
        ),
        check(LINKERD, None, open, Some(no_level)),
    ]
}

fn answers() -> Vec<ObjectiveAnswer> {
    let [p99, p50, throughput] = objectives();
    let answer = |objective: Objective, checks, presets: &[&str]| ObjectiveAnswer {
        objective,
        checks,
        measured_per_s: vec![500.0, 2000.0],
        measured_saturated: true,
        presets: presets.iter().map(|name| (*name).to_owned()).collect(),
    };
    vec![
        answer(p99, checks(Metric::ResponseP99), &["rates"]),
        answer(p50, Vec::new(), &[]),
        answer(throughput, checks(Metric::Throughput), &[]),
    ]
}

fn cost(name: &str, us: f64, mib: f64, per: ProxyPlace) -> Cost {
    let bytes = mib * f64::from(1 << 20);
    let of_node = per == ProxyPlace::Node;
    let count = if of_node { 12 } else { 500 };
    let part = |role| MemoryPart {
        role,
        anonymous_bytes: bytes as u64,
        file_bytes: 52 << 20,
    };
    Cost {
        variant: id(name),
        cpu: Some(CpuCost {
            load_point: point("steady-500"),
            asked_per_proxy_per_s: Some(if of_node { 3333.333 } else { 80.0 }),
            measured_per_proxy_per_s: 499.0 + us / 1e3,
            per_request_ns: estimate(us * 1e3, 0.05),
            cores: estimate(us / 50.0, 0.05),
            monthly: Some(estimate(us / 50.0 * 29.2, 0.05)),
            verdict: if us < 50.0 {
                Verdict::Inconclusive
            } else {
                Verdict::Different
            },
        }),
        memory: Some(MemoryCost {
            load_point: point("steady-500"),
            per,
            count,
            each_bytes: estimate(bytes, 0.02),
            waypoint_bytes: of_node.then_some(19 << 20),
            total_bytes: estimate(bytes * f64::from(count), 0.02),
            monthly: Some(estimate(26.0, 0.02)),
        }),
        parts: vec![
            part(ComponentRole::ClientProxy),
            part(ComponentRole::ServerProxy),
        ],
        monthly: Some(estimate(us / 50.0 * 29.2 + 26.0, 0.05)),
        missing: vec![Missing {
            figure: CostFigure::IdleCpu,
            reason: MissingReason::NotRead,
        }],
    }
}

fn costs() -> Vec<Cost> {
    let mut linkerd = cost(LINKERD, 310.0, 4.0, ProxyPlace::Pod);
    linkerd.memory = None;
    linkerd.monthly = None;
    linkerd.missing.push(Missing {
        figure: CostFigure::Memory,
        reason: MissingReason::NotMeasured,
    });
    vec![
        cost(FLOOR, 31.0, 0.7, ProxyPlace::Pod),
        cost(ENVOY, 643.0, 14.6, ProxyPlace::Pod),
        cost(WAYPOINT, 420.0, 9.1, ProxyPlace::Node),
        linkerd,
    ]
}

fn ranking(metric: Metric) -> Ranking {
    let place = |name: &str, best, worst| PlaceRange {
        variant: id(name),
        best,
        worst,
    };
    Ranking {
        level: None,
        metric,
        load_point: point(if metric == Metric::CpuPerRequest {
            "saturated"
        } else {
            "steady-2000"
        }),
        places: vec![
            place(LINKERD, 1, 2),
            place(WAYPOINT, 1, 2),
            place(ENVOY, 3, 3),
        ],
        ties: vec![Tie {
            first: id(WAYPOINT),
            second: id(LINKERD),
            verdict: Verdict::Inconclusive,
        }],
        unranked: Vec::new(),
    }
}

fn priorities() -> Vec<PriorityAnswer> {
    let answer = |priority: &Priority| PriorityAnswer {
        priority: *priority,
        rankings: match priority {
            Priority::Performance => {
                vec![ranking(Metric::ResponseP50), ranking(Metric::ResponseP99)]
            }
            Priority::Cost => vec![ranking(Metric::CpuPerRequest)],
            _ => Vec::new(),
        },
        features: match priority {
            Priority::EaseOfInstallation => vec!["helm-charts".to_owned()],
            _ => Vec::new(),
        },
    };
    Priority::ALL.iter().map(answer).collect()
}

/// Everything that an advice may have.
fn advice() -> Advice {
    let analysis = fixtures::quick();
    let choices = [ENVOY, WAYPOINT, LINKERD].map(id).to_vec();
    let need = |need: &Need| NeedAnswer {
        need: *need,
        asked: matches!(need, Need::Mtls | Need::HttpPolicy | Need::Fips),
        level: need.level(),
        given_by: match need {
            Need::Retries | Need::Fips => Vec::new(),
            _ => choices.clone(),
        },
    };
    Advice {
        format_version: FORMAT_VERSION,
        run: ComparedRun {
            run: analysis.run,
            rounds: 6,
            blocks: 18,
        },
        experiment: "data-planes".to_owned(),
        environment: analysis.environment,
        confidence: 0.95,
        asked: AdviceRequest {
            objectives: objectives().to_vec(),
            pods: Some(500),
            nodes: Some(12),
            requests_per_s: Some(20_000.0),
            hops: 1.0,
            topology: Some("bookinfo".to_owned()),
            cpu_price: Some(0.04),
            memory_price: Some(0.005),
            priorities: Vec::new(),
            weights: crate::decisions::decision().weights,
            needs: vec![Need::Mtls, Need::HttpPolicy, Need::Fips],
            cni: Some("cilium".to_owned()),
            managed: Some("eks".to_owned()),
        },
        variants: vec![
            variant("none", "none", Standing::Baseline, None),
            variant(FLOOR, "limit-mtls", Standing::Floor, None),
            variant(
                ENVOY,
                "envoy-sidecar",
                Standing::Choice,
                Some("istio-sidecar"),
            ),
            variant(
                WAYPOINT,
                "ztunnel-waypoint",
                Standing::Choice,
                Some("istio-ambient"),
            ),
            variant(LINKERD, "linkerd", Standing::Choice, Some("linkerd")),
        ],
        needs: Need::ALL.iter().map(need).collect(),
        sufficient: choices,
        objectives: answers(),
        costs: costs(),
        priorities: priorities(),
        decision: Some(crate::decisions::decision()),
        questions: vec![
            Question {
                topic: Topic::Cni {
                    name: "cilium".to_owned(),
                },
                features: vec!["cni-needs".to_owned()],
            },
            Question {
                topic: Topic::Managed {
                    name: "eks".to_owned(),
                },
                features: vec!["managed-offers".to_owned()],
            },
        ],
        caveats: vec![Caveat::SpeedSpread { spread: 0.09 }],
    }
}

/// Without a request, the advice is short.
fn bare() -> Advice {
    let mut bare = advice();
    bare.asked = AdviceRequest::default();
    bare.objectives.clear();
    bare.decision = None;
    bare.questions.clear();
    bare.sufficient.clear();
    bare.caveats.clear();
    bare.variants.truncate(3);
    bare.costs.truncate(2);
    for need in &mut bare.needs {
        need.asked = false;
    }
    for cost in &mut bare.costs {
        cost.cpu = None;
        cost.memory = None;
        cost.monthly = None;
        cost.missing.push(Missing {
            figure: CostFigure::Cpu,
            reason: MissingReason::NoRequestRate,
        });
    }
    for priority in &mut bare.priorities {
        priority.rankings.clear();
        priority.features.clear();
    }
    bare
}

fn at(width: usize) -> TerminalOptions {
    TerminalOptions {
        width,
        color: false,
    }
}

#[test]
fn advice_matches_snapshots() {
    for (name, advice) in [("all", advice()), ("bare", bare())] {
        let text = meshtax_report::advice_terminal(&advice, at(100));
        insta::assert_snapshot!(format!("advice_{name}"), text);
    }
}

#[test]
fn objective_missed_by_the_baseline_is_not_blamed_on_a_mesh() {
    let expected = "Missed even without a mesh";
    let mut advice = advice();
    let text = |advice: &Advice| meshtax_report::advice_terminal(advice, at(160));
    assert!(!text(&advice).contains(expected));
    let check = &mut advice.objectives[0].checks[0];
    assert_eq!(check.variant, id("none"));
    check.verdict = ObjectiveVerdict::Missed;
    let text = text(&advice);
    assert!(
        text.contains(expected) && text.contains("the cause: p99<5ms@2000/s."),
        "{text}"
    );
}

#[test]
fn floor_that_a_mesh_undercuts_is_called_a_reference() {
    let mut advice = advice();
    advice.caveats.push(Caveat::BelowFloor {
        floor: id(FLOOR),
        variant: id(LINKERD),
        metric: Metric::CpuPerRequest,
        load_point: point("steady-500"),
        change: -0.2,
    });
    let text = meshtax_report::advice_terminal(&advice, at(160));
    let expected = "limit-mtls (reference: a mesh that does more costs less)";
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains("floor of user-space proxies"), "{text}");
}

#[test]
fn advice_fits_the_terminal_width() {
    for width in 60..=160 {
        for advice in [advice(), bare()] {
            for line in meshtax_report::advice_terminal(&advice, at(width)).lines() {
                assert!(line.width() <= width, "at {width}: {line}");
            }
        }
    }
}

#[test]
fn advice_document_matches_its_schema() {
    let text = include_str!("../../../../docs/schema/advise-v2.json");
    let schema: Value = serde_json::from_str(text).expect("the schema is JSON");
    check("", &schema);
    let version = &schema["properties"]["format_version"]["const"];
    assert_eq!(*version, json!(FORMAT_VERSION));
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    for advice in [advice(), bare()] {
        let text = meshtax_report::advice_json(&advice);
        let back: Advice = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, advice);
        let mut document: Value = serde_json::from_str(&text).expect("JSON");
        let errors: Vec<String> = validator
            .iter_errors(&document)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert_eq!(errors, [] as [String; 0]);
        document["costs"][0]["surprise"] = json!(1);
        assert!(!validator.is_valid(&document));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// From the analysis on, as a user has it.
    #[test]
    fn damaged_run_does_not_break_advice(
        which in any::<proptest::sample::Index>(),
        width in 0_usize..220,
        damages in prop::collection::vec((any::<usize>(), any::<u8>()), 0..40),
    ) {
        let analysis = damaged(&which, damages);
        let advice = advise(&analysis, &advice().asked, &[]);
        let text = meshtax_report::advice_terminal(&advice, at(width));
        prop_assert!(!text.contains(['\u{202e}', '\u{1b}']), "nothing steers a terminal");
        let back: Advice = serde_json::from_str(&meshtax_report::advice_json(&advice)).unwrap();
        prop_assert_eq!(back.costs.len(), advice.costs.len());
    }

    #[test]
    fn damaged_advice_is_rendered(
        width in 0_usize..220,
        damages in prop::collection::vec((any::<usize>(), any::<u8>()), 1..40),
    ) {
        let mut document = serde_json::to_value(advice()).unwrap();
        for (pick, how) in damages {
            damage::<Advice>(&mut document, pick, how);
        }
        let advice: Advice = serde_json::from_value(document).unwrap();
        let text = meshtax_report::advice_terminal(&advice, at(width));
        prop_assert!(!text.contains(['\u{202e}', '\u{1b}']), "nothing steers a terminal");
        let sections = text.lines().filter(|line| line.starts_with(['1', '2', '3', '4', '5', '6']));
        prop_assert!(sections.count() >= 6);
    }
}
