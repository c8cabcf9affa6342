//! The decision table: it suggests what the injected costs say, and nothing where intervals leave it open.

use meshtax_model::advice::{AdviceRequest, Need, Priority};
use meshtax_model::analysis::{
    Analysis, DecisionCell, DecisionReason, DecisionRow, Estimate, ExclusionReason, Ground,
    Interval, Metric, NotEstimable, Suggestion, Verdict, Weight,
};
use meshtax_model::experiment::PolicyLevel;
use meshtax_model::pods::{ProxyRole, Quantities};
use meshtax_stats::advise::{advise, decide};

use crate::common::{Cost, run};

use Suggestion::{AsGoodAs, Inconclusive, NotMeasuredHere, NotSuggested, Suggested};

fn cost(name: &'static str, delay_us: f64, cpu_us: f64) -> Cost {
    Cost {
        name,
        level: PolicyLevel::Mtls,
        delay_ns: delay_us * 1e3,
        cpu_ns: cpu_us * 1e3,
    }
}

fn measured(costs: &[Cost]) -> Analysis {
    run(3, 12, 1, 0.03, costs).analyse()
}

fn row(analysis: &Analysis, requirement: Option<Priority>, weights: &[Weight]) -> DecisionRow {
    let decision = decide(analysis, weights).expect("two choices at one level");
    let [group] = &decision.groups[..] else {
        panic!("one level: {decision:?}");
    };
    let mut rows = group.rows.iter();
    let found = rows.find(|row| row.requirement == requirement);
    found.expect("the requirement").clone()
}

fn cells(row: &DecisionRow) -> Vec<(&str, Suggestion)> {
    let cells = row.cells.iter();
    cells
        .map(|cell| (cell.variant.0.as_str(), cell.suggestion))
        .collect()
}

fn weighted(weights: &[(Priority, f64)]) -> Vec<Weight> {
    let weights = weights.iter();
    weights
        .map(|&(requirement, weight)| Weight {
            requirement,
            weight,
        })
        .collect()
}

#[test]
fn lowest_injected_cost_is_suggested_and_the_others_are_not() {
    let analysis = measured(&[
        cost("much", 80.0, 30.0),
        cost("as-much", 80.0, 30.0),
        cost("little", 20.0, 5.0),
    ]);
    for requirement in [Priority::Performance, Priority::Cost] {
        let row = row(&analysis, Some(requirement), &[]);
        assert_eq!(
            cells(&row),
            [
                ("much", NotSuggested),
                ("as-much", NotSuggested),
                ("little", Suggested)
            ],
            "{row:?}"
        );
        let DecisionReason::Better { than } = &row.cells[2].reason else {
            panic!("{row:?}");
        };
        assert_eq!(than.len(), 2);
        let Ground::Difference {
            relative: Some(relative),
            ..
        } = &than[0].ground
        else {
            panic!("{than:?}");
        };
        let interval = relative.interval.expect("an interval");
        assert!(interval.high < 0.0, "less than the other: {relative:?}");
        // The same difference, as seen from the other side.
        let DecisionReason::Worse { than } = &row.cells[0].reason else {
            panic!("{row:?}");
        };
        let Ground::Difference {
            relative: Some(more),
            ..
        } = &than[0].ground
        else {
            panic!("{than:?}");
        };
        let product = (1.0 + relative.value) * (1.0 + more.value);
        assert!((product - 1.0).abs() < 1e-9, "{product}");
    }
    assert_eq!(analysis.decision, decide(&analysis, &[]));
}

#[test]
fn overlapping_costs_are_inconclusive() {
    let analysis = measured(&[cost("one", 40.0, 10.0), cost("other", 40.0, 10.0)]);
    for requirement in [Priority::Performance, Priority::Cost] {
        let row = row(&analysis, Some(requirement), &[]);
        let expected = [("one", Inconclusive), ("other", Inconclusive)];
        assert_eq!(cells(&row), expected, "{row:?}");
        let DecisionReason::NotSeparated { from } = &row.cells[0].reason else {
            panic!("{row:?}");
        };
        let Ground::Difference {
            relative: Some(relative),
            ..
        } = &from[0].ground
        else {
            panic!("{from:?}");
        };
        let Interval { low, high } = relative.interval.expect("an interval");
        assert!(low < 0.0 && 0.0 < high, "{relative:?}");
    }
}

#[test]
fn best_ones_within_the_margin_are_as_good_as_each_other() {
    let mut analysis = measured(&[
        cost("one", 20.0, 5.0),
        cost("other", 20.0, 5.0),
        cost("much", 80.0, 30.0),
    ]);
    for comparison in &mut analysis.comparisons {
        if comparison.second.0 == "other" {
            comparison.verdict = Verdict::Equivalent;
        }
    }
    let row = row(&analysis, Some(Priority::Cost), &[]);
    let expected = [
        ("one", AsGoodAs),
        ("other", AsGoodAs),
        ("much", NotSuggested),
    ];
    assert_eq!(cells(&row), expected, "{row:?}");
}

#[test]
fn difference_within_the_margin_suggests_nobody() {
    let mut analysis = measured(&[cost("one", 20.0, 5.0), cost("other", 20.0, 5.0)]);
    for comparison in &mut analysis.comparisons {
        comparison.verdict = Verdict::Different;
        let (low, high) = (0.003, 0.007);
        comparison.relative = Some(Estimate {
            value: 0.005,
            interval: Some(Interval { low, high }),
        });
    }
    let row = row(&analysis, Some(Priority::Cost), &[]);
    assert_eq!(cells(&row), [("one", AsGoodAs), ("other", AsGoodAs)]);
}

#[test]
fn unresolved_tail_leaves_performance_open() {
    let mut analysis = measured(&[cost("one", 20.0, 5.0), cost("other", 20.0, 5.0)]);
    for comparison in &mut analysis.comparisons {
        comparison.verdict = match comparison.metric {
            Metric::ResponseP99 => Verdict::Inconclusive,
            _ => Verdict::Equivalent,
        };
    }
    let row = row(&analysis, Some(Priority::Performance), &[]);
    assert_eq!(
        cells(&row),
        [("one", Inconclusive), ("other", Inconclusive)]
    );
}

#[test]
fn variants_with_options_or_limits_are_not_in_the_table() {
    let mut analysis = measured(&[
        cost("much", 80.0, 30.0),
        cost("little", 20.0, 5.0),
        cost("limited", 90.0, 5.0),
    ]);
    let mut variants = analysis.experiment.variants.iter_mut();
    let limited = variants.find(|v| v.id.0 == "limited").expect("it is there");
    let half = Quantities {
        cpu_millis: Some(500),
        ..Quantities::default()
    };
    limited.limits.insert(ProxyRole::ServerProxy, half);
    let decision = decide(&analysis, &[]).expect("two are left");
    let cells = decision.groups.iter().flat_map(|group| &group.rows);
    let mut cells = cells.flat_map(|row| &row.cells);
    assert!(cells.all(|cell| cell.variant.0 != "limited"));
}

#[test]
fn rival_without_an_estimate_prevents_a_suggestion() {
    let mut analysis = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
    for comparison in &mut analysis.comparisons {
        comparison.verdict = Verdict::NotEstimable {
            reason: NotEstimable::NoCommonBlock,
        };
    }
    let row = row(&analysis, Some(Priority::Performance), &[]);
    assert_eq!(
        cells(&row),
        [("much", Inconclusive), ("little", Inconclusive)]
    );
    let DecisionReason::NotSeparated { from } = &row.cells[0].reason else {
        panic!("{row:?}");
    };
    assert!(matches!(from[0].ground, Ground::NotEstimable { .. }));
}

#[test]
fn median_that_decides_without_the_tail_is_named_as_the_only_basis() {
    let open = |verdict: Verdict| {
        let mut analysis = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
        let mut tails = analysis.comparisons.iter_mut();
        let tail = tails.find(|c| c.metric == Metric::ResponseP99);
        let tail = tail.expect("a p99");
        tail.verdict = verdict;
        tail.relative = Some(Estimate {
            value: -0.2,
            interval: None,
        });
        let row = row(&analysis, Some(Priority::Performance), &[]);
        assert_eq!(cells(&row), [("much", NotSuggested), ("little", Suggested)]);
        let DecisionReason::Better { than } = &row.cells[1].reason else {
            panic!("{row:?}");
        };
        match &than[0].ground {
            Ground::Difference { metric, open, .. } => {
                assert_eq!(*metric, Metric::ResponseP50);
                open.clone()
            }
            other => panic!("{other:?}"),
        }
    };
    let reason = NotEstimable::NoNoiseFloor;
    let tail = [Metric::ResponseP99];
    assert_eq!(open(Verdict::NotEstimable { reason }), tail);
    assert_eq!(open(Verdict::Inconclusive), tail);
    assert_eq!(open(Verdict::Equivalent), []);
    assert_eq!(open(Verdict::Different), []);
}

#[test]
fn better_by_one_metric_and_worse_by_another_is_inconclusive() {
    let mut analysis = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
    for comparison in &mut analysis.comparisons {
        if comparison.metric == Metric::ResponseP99 {
            comparison.verdict = Verdict::Different;
            comparison.relative = Some(Estimate {
                value: 0.5,
                interval: None,
            });
        }
    }
    let row = row(&analysis, Some(Priority::Performance), &[]);
    assert_eq!(
        cells(&row),
        [("much", Inconclusive), ("little", Inconclusive)],
        "{row:?}"
    );
}

#[test]
fn unmeasured_requirements_and_variants_are_never_decided() {
    let mut analysis = measured(&[
        cost("much", 80.0, 30.0),
        cost("little", 20.0, 5.0),
        cost("absent", 1.0, 1.0),
    ]);
    let mut variants = analysis.variants.iter_mut();
    let absent = variants.find(|v| v.variant.0 == "absent");
    absent.expect("it is there").excluded = Some(ExclusionReason::NoTrials);
    for requirement in [
        Priority::EaseOfInstallation,
        Priority::EaseOfMaintenance,
        Priority::Support,
    ] {
        let row = row(&analysis, Some(requirement), &[]);
        let is_unmeasured = |cell: &DecisionCell| cell.suggestion == NotMeasuredHere;
        assert!(row.cells.iter().all(is_unmeasured), "{row:?}");
    }
    let row = row(&analysis, Some(Priority::Cost), &[]);
    assert_eq!(
        cells(&row),
        [
            ("much", NotSuggested),
            ("little", Suggested),
            ("absent", NotMeasuredHere)
        ]
    );
}

#[test]
fn what_probes_proved_decides_compliance() {
    let analysis = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
    let row = row(&analysis, Some(Priority::Compliance), &[]);
    for cell in &row.cells {
        match &cell.reason {
            DecisionReason::Equivalent { to } => {
                let needs = vec![Need::Mtls];
                assert_eq!(to[0].ground, Ground::Proof { needs });
                assert_eq!(cell.suggestion, AsGoodAs);
            }
            reason => assert_eq!(*reason, DecisionReason::NotProven),
        }
    }
}

#[test]
fn weights_decide_between_requirements() {
    // One is faster, and the other one needs less CPU.
    let analysis = measured(&[cost("fast", 20.0, 30.0), cost("cheap", 80.0, 5.0)]);
    for (weights, expected) in [
        ([3.0, 1.0], [("fast", Suggested), ("cheap", NotSuggested)]),
        ([1.0, 3.0], [("fast", NotSuggested), ("cheap", Suggested)]),
        // Neither outweighs the other, and they are not equivalent.
        (
            [1.0, 1.0],
            [("fast", Inconclusive), ("cheap", Inconclusive)],
        ),
    ] {
        let [performance, cost] = weights;
        let weights = weighted(&[(Priority::Performance, performance), (Priority::Cost, cost)]);
        assert_eq!(cells(&row(&analysis, None, &weights)), expected);
    }
}

#[test]
fn weight_of_an_unmeasured_requirement_leaves_it_open() {
    let analysis = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
    let weights = |support| weighted(&[(Priority::Cost, 2.0), (Priority::Support, support)]);
    let result = |support| row(&analysis, None, &weights(support));
    assert_eq!(
        cells(&result(1.0)),
        [("much", NotSuggested), ("little", Suggested)],
        "it cannot change the result"
    );
    let open = [("much", Inconclusive), ("little", Inconclusive)];
    assert_eq!(cells(&result(2.0)), open);
    let alone = row(&analysis, None, &weighted(&[(Priority::Support, 1.0)]));
    let all = alone.cells.iter();
    assert!(all.clone().all(|c| c.suggestion == NotMeasuredHere));
    assert!(
        all.clone()
            .all(|c| c.reason == DecisionReason::NothingWeighted)
    );
}

#[test]
fn single_choice_has_no_decision() {
    let analysis = measured(&[cost("alone", 80.0, 30.0)]);
    assert_eq!(decide(&analysis, &[]), None);
    let asked = AdviceRequest {
        needs: vec![Need::HttpPolicy],
        ..AdviceRequest::default()
    };
    let two = measured(&[cost("much", 80.0, 30.0), cost("little", 20.0, 5.0)]);
    assert_eq!(advise(&two, &asked, &[]).decision, None);
}
