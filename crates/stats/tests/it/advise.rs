//! Advice: claims are limited to what the intervals support.

use std::sync::OnceLock;

use meshtax_model::advice::{
    Advice, AdviceRequest, Cost, CostFigure, Given, InconclusiveObjective, MissingReason, Need,
    Objective, ObjectiveVerdict, PlaceRange, PresetRates, Priority, ProxyPlace, Ranking, Standing,
    Topic,
};
use meshtax_model::analysis::{
    Analysis, Elsewhere, Estimate, Interval, Metric, NoLevel, NotEstimable, Verdict, WithElsewhere,
};
use meshtax_model::evidence::{Balances, Features};
use meshtax_model::experiment::{Inject, PolicyLevel};
use meshtax_model::topology::{Call, Service, Topology, Work, WorkStep};
use meshtax_stats::advise::advise;
use proptest::prelude::*;

use crate::common::{Cost as Injected, Run, run};
use crate::robust::{apply, harm, small};

fn advice_on(analysis: &Analysis, asked: &AdviceRequest) -> Advice {
    let presets = [("rates", vec![1000.0, 2000.0]), ("quick", vec![1000.0])];
    let presets = presets.map(|(name, rates_per_s)| PresetRates {
        name: name.to_owned(),
        rates_per_s,
    });
    advise(analysis, asked, &presets)
}

fn latency(metric: Metric, bound: f64, rate_per_s: f64) -> AdviceRequest {
    AdviceRequest {
        objectives: vec![Objective {
            text: "as typed".to_owned(),
            metric,
            bound,
            rate_per_s: Some(rate_per_s),
        }],
        ..AdviceRequest::default()
    }
}

/// A cluster of some size.
fn cluster(pods: u32, requests_per_s: f64) -> AdviceRequest {
    AdviceRequest {
        pods: Some(pods),
        nodes: Some(20),
        requests_per_s: Some(requests_per_s),
        cpu_price: Some(0.04),
        memory_price: Some(0.005),
        ..AdviceRequest::default()
    }
}

fn injected(name: &'static str, level: PolicyLevel, delay_us: f64, cpu_us: f64) -> Injected {
    Injected {
        name,
        level,
        delay_ns: delay_us * 1e3,
        cpu_ns: cpu_us * 1e3,
    }
}

/// One candidate costs little, one much, and one as much as that.
fn three() -> Run {
    let level = PolicyLevel::Mtls;
    let costs = [
        injected("much", level, 80.0, 30.0),
        injected("as-much", level, 80.0, 30.0),
        injected("little", level, 20.0, 5.0),
    ];
    run(3, 12, 1, 0.03, &costs)
}

fn analysed() -> &'static Analysis {
    static ANALYSIS: OnceLock<Analysis> = OnceLock::new();
    ANALYSIS.get_or_init(|| three().analyse())
}

fn p50(analysis: &Analysis, variant: &str) -> Interval {
    let found = analysis.variants.iter().find(|v| v.variant.0 == variant);
    let point = &found.expect("a variant").points[0];
    let level = point
        .levels
        .iter()
        .find(|l| l.metric == Metric::ResponseP50);
    level.and_then(|level| level.interval).expect("an interval")
}

fn verdict(advice: &Advice, variant: &str) -> ObjectiveVerdict {
    let mut checks = advice.objectives[0].checks.iter();
    let check = checks.find(|check| check.variant.0 == variant);
    check.expect("a check").verdict
}

#[test]
fn objective_is_met_only_if_the_upper_bound_meets_it() {
    let analysis = analysed();
    let Interval { low, high } = p50(analysis, "much");
    assert!(low < high, "[{low}, {high}]");
    for (bound, expected) in [
        (high + 1.0, ObjectiveVerdict::Met),
        (high, ObjectiveVerdict::Inconclusive),
        ((low + high) / 2.0, ObjectiveVerdict::Inconclusive),
        (low, ObjectiveVerdict::Inconclusive),
        (low - 1.0, ObjectiveVerdict::Missed),
    ] {
        let advice = advice_on(analysis, &latency(Metric::ResponseP50, bound, 400.0));
        assert_eq!(verdict(&advice, "much"), expected, "{bound}");
    }
    let throughput = |bound| {
        let mut asked = latency(Metric::Throughput, bound, 1.0);
        asked.objectives[0].rate_per_s = None;
        verdict(&advice_on(analysis, &asked), "little")
    };
    assert_eq!(throughput(1.0), ObjectiveVerdict::Met);
    assert_eq!(throughput(1e9), ObjectiveVerdict::Missed);
}

#[test]
fn objective_at_an_unmeasured_rate_is_not_shown() {
    // 400/s was measured; meeting a trivial bound there does not imply meeting it at other rates.
    for rate in [100.0, 390.0, 410.0, 2000.0] {
        let advice = advice_on(analysed(), &latency(Metric::ResponseP50, 1e12, rate));
        let answer = &advice.objectives[0];
        assert!(answer.checks.is_empty(), "{answer:?}");
        assert_eq!(answer.measured_per_s, [400.0]);
        assert!(answer.measured_saturated);
        let presets: &[&str] = if rate == 2000.0 { &["rates"] } else { &[] };
        assert_eq!(answer.presets, presets);
    }
    let advice = advice_on(analysed(), &latency(Metric::ResponseP999, 1e12, 400.0));
    for check in &advice.objectives[0].checks {
        assert_eq!(check.verdict, ObjectiveVerdict::Inconclusive);
        assert!(
            matches!(
                check.reason,
                Some(InconclusiveObjective::NoLevel {
                    reason: NoLevel::Unresolved(_),
                    ..
                })
            ),
            "{check:?}"
        );
    }
}

#[test]
fn objective_without_an_interval_is_not_met() {
    let costs = [injected("a", PolicyLevel::Mtls, 20.0, 5.0)];
    let analysis = run(3, 5, 1, 0.03, &costs).analyse();
    let advice = advice_on(&analysis, &latency(Metric::ResponseP50, 1e12, 400.0));
    for check in &advice.objectives[0].checks {
        assert_eq!(check.verdict, ObjectiveVerdict::Inconclusive);
        assert_eq!(check.reason, Some(InconclusiveObjective::NoInterval));
    }
}

#[test]
fn objective_of_an_excluded_variant_is_not_measured() {
    let mut run = three();
    let reason = run.drop_variant("little");
    let analysis = run.analyse();
    let mut asked = latency(Metric::ResponseP50, 1e12, 400.0);
    let throughput = Objective {
        metric: Metric::Throughput,
        bound: 1.0,
        rate_per_s: None,
        ..asked.objectives[0].clone()
    };
    asked.objectives.push(throughput);
    for answer in advice_on(&analysis, &asked).objectives {
        let (dropped, others): (Vec<_>, Vec<_>) = answer
            .checks
            .iter()
            .partition(|check| check.variant.0 == "little");
        let [dropped] = dropped.as_slice() else {
            panic!("one load point of this kind: {answer:?}");
        };
        assert_eq!(dropped.verdict, ObjectiveVerdict::Inconclusive);
        assert_eq!(dropped.level, None);
        let reason = reason.clone();
        let expected = InconclusiveObjective::NotMeasured { reason };
        assert_eq!(dropped.reason, Some(expected));
        assert_eq!(others.len(), 3, "{answer:?}");
        for check in others {
            assert_eq!(check.verdict, ObjectiveVerdict::Met, "{check:?}");
        }
    }
}

fn ranking(advice: &Advice, priority: Priority, metric: Metric) -> &Ranking {
    let answer = advice.priorities.iter().find(|p| p.priority == priority);
    let mut rankings = answer.expect("the priority").rankings.iter();
    let found = rankings.find(|ranking| ranking.metric == metric);
    found.unwrap_or_else(|| panic!("no ranking by {metric:?}: {answer:?}"))
}

fn places(ranking: &Ranking) -> Vec<(&str, [u32; 2])> {
    let places = ranking.places.iter();
    let range = |p: &'_ PlaceRange| [p.best, p.worst];
    places.map(|p| (p.variant.0.as_str(), range(p))).collect()
}

#[test]
fn known_costs_rank_by_true_cost_and_equal_costs_share_a_rank() {
    let advice = advice_on(analysed(), &AdviceRequest::default());
    for (priority, metric) in [
        (Priority::Performance, Metric::ResponseP50),
        (Priority::Cost, Metric::CpuPerRequest),
    ] {
        let ranking = ranking(&advice, priority, metric);
        assert_eq!(
            places(ranking),
            [("little", [1, 1]), ("much", [2, 3]), ("as-much", [2, 3])],
            "{ranking:?}"
        );
        assert_eq!(ranking.ties.len(), 1, "{ranking:?}");
        assert!(ranking.unranked.is_empty());
    }
}

#[test]
fn delayed_baseline_ranks_after_the_baseline() {
    let mut run = three();
    for variant in &mut run.experiment.variants {
        if variant.id.0 == "little" || variant.id.0 == "much" {
            variant.data_plane = "none".to_owned();
            variant.level = None;
            variant.inject = Some(Inject::DelayNs(80_000));
        }
    }
    let advice = advice_on(&run.analyse(), &AdviceRequest::default());
    let ranking = ranking(&advice, Priority::Performance, Metric::ResponseP50);
    assert_eq!(ranking.level, None);
    assert_eq!(places(ranking), [("little", [1, 1]), ("much", [2, 2])]);
}

#[test]
fn floors_and_emulations_are_not_ranked_among_meshes() {
    let mut run = three();
    for (variant, name) in run.experiment.variants.iter_mut().skip(2).zip([
        "envoy-sidecar",
        "ztunnel-dedicated",
        "limit-mtls",
    ]) {
        variant.data_plane = name.to_owned();
    }
    let advice = advice_on(&run.analyse(), &cluster(10, 100.0));
    let standing: Vec<Standing> = advice.variants.iter().map(|v| v.standing).collect();
    assert_eq!(
        standing,
        [
            Standing::Baseline,
            Standing::Choice,
            Standing::Emulation,
            Standing::Floor
        ]
    );
    assert!(advice.priorities.iter().all(|p| p.rankings.is_empty()));
    assert_eq!(advice.costs.len(), 3, "they are listed on their own");
    let meshes: Vec<Option<&str>> = advice.variants.iter().map(|v| v.mesh.as_deref()).collect();
    assert_eq!(meshes, [None, Some("istio-sidecar"), None, None]);
}

#[test]
fn variant_without_comparisons_has_no_rank() {
    let mut analysis = analysed().clone();
    for comparison in &mut analysis.comparisons {
        if comparison.first.0 == "as-much" || comparison.second.0 == "as-much" {
            comparison.verdict = Verdict::NotEstimable {
                reason: NotEstimable::NoCommonBlock,
            };
        }
    }
    let advice = advice_on(&analysis, &AdviceRequest::default());
    let ranking = ranking(&advice, Priority::Performance, Metric::ResponseP50);
    // What could not be compared could be first, last or between.
    assert_eq!(places(ranking), [("little", [1, 2]), ("much", [2, 3])]);
    assert_eq!(ranking.unranked.len(), 1);
    assert_eq!(ranking.ties.len(), 2);
}

#[test]
fn each_need_lists_its_lowest_level_and_its_variants() {
    let costs = [
        injected("mtls", PolicyLevel::Mtls, 10.0, 5.0),
        injected("l7", PolicyLevel::L7, 20.0, 9.0),
        injected("plain", PolicyLevel::Plaintext, 5.0, 2.0),
    ];
    let mut run = run(5, 7, 1, 0.03, &costs);
    for evidence in &mut run.evidence {
        evidence.features = Some(Features {
            counts_requests: Some(evidence.variant.0 == "l7"),
            tries_again: None,
            balances: Some(Balances::Connections),
            ..Features::default()
        });
    }
    let analysis = run.analyse();
    let needing = |needs: &[Need]| {
        let asked = AdviceRequest {
            needs: needs.to_vec(),
            ..AdviceRequest::default()
        };
        advice_on(&analysis, &asked)
    };
    let sufficient = |needs: &[Need]| -> Vec<String> {
        let ids = needing(needs).sufficient.into_iter();
        ids.map(|id| id.0).collect()
    };
    assert_eq!(sufficient(&[]), [] as [&str; 0]);
    assert_eq!(sufficient(&[Need::Fips]), [] as [&str; 0]);
    assert_eq!(sufficient(&[Need::Mtls]), ["mtls"]);
    assert_eq!(sufficient(&[Need::Mtls, Need::HttpMetrics]), ["l7"]);
    assert_eq!(sufficient(&[Need::IdentityPolicy]), ["l7"]);
    assert_eq!(sufficient(&[Need::Mtls, Need::Retries]), [] as [&str; 0]);
    let advice = needing(&[Need::Fips]);
    let level = |need: Need| {
        let answer = advice.needs.iter().find(|a| a.need == need);
        answer.expect("every need").level
    };
    assert_eq!(level(Need::IdentityPolicy), Some(PolicyLevel::L4));
    assert_eq!(level(Need::HttpMetrics), Some(PolicyLevel::L7));
    assert_eq!(level(Need::RequestBalancing), None);
    let plain = advice.variants.iter().find(|v| v.variant.0 == "plain");
    let gives = &plain.expect("a variant").gives;
    assert_eq!(gives[0].given, Given::No);
    assert_eq!(gives[5].given, Given::NotCovered);
    assert_eq!(advice.questions.len(), 1);
}

#[test]
fn priorities_and_questions_list_their_relevant_features() {
    let asked = AdviceRequest {
        priorities: vec![Priority::EaseOfInstallation],
        cni: Some("cilium".to_owned()),
        managed: Some("eks".to_owned()),
        ..AdviceRequest::default()
    };
    let advice = advice_on(analysed(), &asked);
    assert_eq!(advice.priorities.len(), 1);
    assert_eq!(advice.priorities[0].features[0], "helm-charts");
    let [cni, managed] = advice.questions.as_slice() else {
        panic!("{:?}", advice.questions);
    };
    let name = "cilium".to_owned();
    assert_eq!(cni.topic, Topic::Cni { name });
    assert_eq!(
        cni.features,
        ["cni-needs", "kube-proxy-needs", "encryption"]
    );
    assert_eq!(managed.features, ["managed-offers"]);
}

fn cost<'a>(advice: &'a Advice, variant: &str) -> &'a Cost {
    let mut costs = advice.costs.iter();
    let cost = costs.find(|cost| cost.variant.0 == variant);
    cost.expect("a cost")
}

#[test]
fn monthly_cost_is_the_measured_cost_times_its_frequency() {
    let analysis = analysed();
    let mut asked = cluster(100, 20_000.0);
    asked.hops = 2.0;
    let advice = advice_on(analysis, &asked);
    let much = cost(&advice, "much");
    let cpu = much.cpu.as_ref().expect("CPU");
    // Two proxies a hop: 2 x 20,000 requests/s x 2 hops / 100 pods.
    assert_eq!(cpu.asked_per_proxy_per_s, Some(800.0));
    let cores = cpu.per_request_ns.value * 40_000.0 / 1e9;
    assert!((cpu.cores.value - cores).abs() < 1e-9);
    // The truth is 30 µs for each request: 1.2 cores.
    let interval = cpu.cores.interval.expect("an interval");
    assert!(interval.low < 1.25 && 1.15 < interval.high, "{interval:?}");
    let money = cpu.monthly.expect("a price").value;
    assert!((money - cores * 0.04 * 730.0).abs() < 1e-6);
    let memory = much.memory.as_ref().expect("memory");
    assert_eq!((memory.per, memory.count), (ProxyPlace::Pod, 100));
    // One proxy of 4 MiB among the client's pod and the server's.
    assert!((memory.each_bytes.value - f64::from(2 << 20)).abs() < 1.0);
    assert!((memory.total_bytes.value - f64::from(200 << 20)).abs() < 1.0);
    let both = much.monthly.expect("both").value;
    assert!((both - money - memory.monthly.expect("a price").value).abs() < 1e-9);
}

#[test]
fn monthly_cost_covers_cpu_that_moved_elsewhere() {
    let mut analysis = analysed().clone();
    let mut all = analysis.added_cpu.iter_mut();
    let steady = all.find(|added| added.variant.0 == "much" && added.load_point.0 == "steady");
    let added = Estimate {
        value: 50_000.0,
        interval: Some(Interval {
            low: 45_000.0,
            high: 55_000.0,
        }),
    };
    steady.expect("its CPU").with_elsewhere = Some(WithElsewhere {
        parts: vec![Elsewhere::Unattributed],
        added,
    });
    let per_request = |analysis: &Analysis| {
        let advice = advice_on(analysis, &cluster(100, 20_000.0));
        let cpu = cost(&advice, "much").cpu.clone().expect("CPU");
        (
            cpu.per_request_ns.value,
            cpu.per_request_ns.interval.expect("an interval"),
        )
    };
    let (path, own) = per_request(analysed());
    let (value, interval) = per_request(&analysis);
    assert_eq!((value, interval.low), (path, own.low));
    assert_eq!(interval.high, 55_000.0);
}

/// The cost of a request over a call graph covers all its hops and pods.
#[test]
fn call_graph_run_is_split_by_hop_and_pod() {
    let call = |service: &str| {
        WorkStep::Calls(vec![Call {
            service: service.to_owned(),
            share: 1.0,
        }])
    };
    let service = |name: &str, steps| Service {
        entry_point: name == "front",
        work: Work {
            steps,
            ..Work::default()
        },
        ..Service::new(name)
    };
    let mut analysis = analysed().clone();
    let asked = cluster(100, 20_000.0);
    let pair = advice_on(&analysis, &asked);
    analysis.experiment.topology = Topology {
        name: Some("shop".to_owned()),
        services: vec![
            service("front", vec![call("cart")]),
            service("cart", vec![call("stock")]),
            service("stock", Vec::new()),
        ],
    };
    let graph = advice_on(&analysis, &asked);
    let cpu = |advice: &Advice| cost(advice, "much").cpu.clone().expect("CPU");
    // The client's call and two more; four pods in place of two.
    let ratio = cpu(&graph).per_request_ns.value / cpu(&pair).per_request_ns.value;
    assert!((ratio - 1.0 / 3.0).abs() < 1e-9, "{ratio}");
    let carried = cpu(&graph).measured_per_proxy_per_s / cpu(&pair).measured_per_proxy_per_s;
    assert!((carried - 3.0 / 2.0).abs() < 1e-9, "{carried}");
    let memory = |advice: &Advice| cost(advice, "much").memory.clone().expect("memory");
    let ratio = memory(&graph).each_bytes.value / memory(&pair).each_bytes.value;
    assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
}

#[test]
fn absent_figure_is_missing_and_not_zero() {
    let mut analysis = analysed().clone();
    for variant in &mut analysis.experiment.variants {
        if variant.id.0 == "much" {
            variant.data_plane = "ztunnel".to_owned();
        }
    }
    let mut asked = cluster(100, 100.0);
    asked.nodes = None;
    let advice = advice_on(&analysis, &asked);
    let much = cost(&advice, "much");
    let why = |figure| {
        let mut missing = much.missing.iter();
        let missing = missing.find(|missing| missing.figure == figure);
        missing.map(|missing| &missing.reason)
    };
    assert!(much.memory.is_none() && much.monthly.is_none());
    let per = ProxyPlace::Node;
    assert_eq!(
        why(CostFigure::Memory),
        Some(&MissingReason::NoCount { per })
    );
    assert!(why(CostFigure::IdleCpu).is_some() && why(CostFigure::ControlPlane).is_some());
    asked.nodes = Some(3);
    let advice = advice_on(&analysis, &asked);
    let memory = cost(&advice, "much").memory.as_ref().expect("memory");
    assert_eq!((memory.per, memory.count), (ProxyPlace::Node, 3));
    let advice = advice_on(&analysis, &AdviceRequest::default());
    let much = cost(&advice, "much");
    assert!(much.cpu.is_none() && much.memory.is_none());
    let mut missing = much.missing.iter();
    assert!(missing.any(|m| m.reason == MissingReason::NoRequestRate));
}

/// Whether both exist and the first is not larger; or neither exists.
fn at_most(one: Option<Estimate>, other: Option<Estimate>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.value <= other.value + 1e-9,
        (one, other) => one.is_none() && other.is_none(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn costs_grow_with_pods_requests_and_prices(
        pods in 1_u32..100_000,
        more_pods in 0_u32..100_000,
        requests in 1.0_f64..1e6,
        more in 1.0_f64..10.0,
        price in 0.0_f64..10.0,
    ) {
        let mut small = cluster(pods, requests);
        small.cpu_price = Some(price);
        let mut large = cluster(pods + more_pods, requests * more);
        large.cpu_price = Some(price * more);
        large.hops = more;
        let (small, large) = (advice_on(analysed(), &small), advice_on(analysed(), &large));
        for (small, large) in small.costs.iter().zip(&large.costs) {
            let (Some(one), Some(other)) = (&small.memory, &large.memory) else {
                return Err(TestCaseError::fail("no memory"));
            };
            prop_assert!(at_most(Some(one.total_bytes), Some(other.total_bytes)));
            let (Some(one), Some(other)) = (&small.cpu, &large.cpu) else {
                return Err(TestCaseError::fail("no CPU"));
            };
            // At another rate a request costs another amount: that is measured, not reckoned.
            if one.load_point == other.load_point {
                prop_assert!(at_most(Some(one.cores), Some(other.cores)));
                prop_assert!(at_most(one.monthly, other.monthly));
            }
        }
    }

    #[test]
    fn damaged_analysis_neither_panics_nor_ranks_undetected_differences(
        harms in prop::collection::vec((0_usize..112, harm()), 0..30),
        wild in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..6), 0..12),
        drop in any::<prop::sample::Index>(),
        pods in any::<u32>(),
        requests in prop_oneof![Just(f64::NAN), Just(0.0), Just(f64::INFINITY), 1.0_f64..1e6],
    ) {
        let mut run = small();
        for (index, harm) in &harms {
            apply(&mut run, *index, harm);
        }
        let mut analysis = run.analyse();
        let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 0.0];
        for (pick, how) in wild {
            let value = values[how];
            let wild = Estimate { value, interval: Some(Interval { low: value, high: value }) };
            let effects = analysis.effects.len();
            if effects > 0 {
                analysis.effects[pick.index(effects)].difference = Some(wild);
            }
            let comparisons = analysis.comparisons.len();
            if comparisons > 0 {
                analysis.comparisons[pick.index(comparisons)].relative = Some(wild);
            }
        }
        if !analysis.variants.is_empty() {
            let at = drop.index(analysis.variants.len());
            analysis.variants.remove(at);
        }
        let mut asked = cluster(pods, requests);
        asked.objectives = latency(Metric::ResponseP99, requests, 400.0).objectives;
        let advice = advice_on(&analysis, &asked);
        // The result is finite, and therefore survives JSON unchanged.
        let text = serde_json::to_string(&advice.costs).unwrap();
        let back: Vec<Cost> = serde_json::from_str(&text).expect("no figure is missing");
        prop_assert_eq!(back.len(), advice.costs.len());
        for ranking in advice.priorities.iter().flat_map(|p| &p.rankings) {
            let better = ranking.places.iter().filter(|place| place.best > 1).count();
            prop_assert!(ranking.places.iter().all(|p| 1 <= p.best && p.best <= p.worst));
            let shown = analysis.comparisons.iter().any(|c| c.verdict == Verdict::Different);
            prop_assert!(better == 0 || shown);
        }
    }
}
