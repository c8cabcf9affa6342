//! Gates: passing, failing and inconclusive.

use meshtax_model::analysis::{Interval, Metric, NotEstimable};
use meshtax_model::comparison::{
    Allowed, GateCheck, GateReport, GateVerdict, InconclusiveCheck, Limit, Setting,
};
use meshtax_model::experiment::{Arrivals, LoadPoint, LoadPointId, Regime, VariantId, Workers};
use meshtax_stats::between::{Options, Runs};
use meshtax_stats::gate::{GateError, gate_runs, gate_sides, limits_match, verdict};
use meshtax_stats::interval::{Inference, Spread, Student};
use proptest::prelude::*;

use crate::between::{candidate, data, one, slow_down};
use crate::common::{Run, run};
use crate::robust::{Harm, apply, harm, small};

fn limit(metric: Metric, share: f64) -> Limit {
    Limit {
        text: format!("{} {share}", metric.name()),
        variant: None,
        metric,
        allowed: Allowed::Relative(share),
        load_point: None,
    }
}

fn gated(base: &[Run], new: &[Run], limits: &[Limit]) -> Result<GateReport, GateError> {
    let (base, new) = (data(base, "base"), data(new, "new"));
    let runs = Runs {
        base: &base,
        new: &new,
    };
    gate_runs(runs, &Options::default(), limits)
}

/// The settings for which a gate refuses a run that was changed like this.
fn refused(change: impl Fn(&mut Run)) -> Vec<Setting> {
    let (base, mut new) = (one(1, 12, 1.2), one(2, 12, 1.2));
    change(&mut new);
    match gated(&[base], &[new], &cost_and_median()) {
        Err(GateError::NotComparable { differing }) => {
            differing.into_iter().map(|one| one.setting).collect()
        }
        Err(error) => panic!("{error:?}"),
        Ok(_) => Vec::new(),
    }
}

#[test]
fn runs_with_another_load_are_refused_whatever_its_name() {
    let steady = || LoadPointId("steady".to_owned());
    let point =
        |change: fn(&mut LoadPoint)| refused(|run| change(&mut run.experiment.load_points[0]));
    let is_steady = [Setting::LoadPoint {
        load_point: steady(),
    }];
    let rate = point(|point| {
        point.load = Regime::Steady {
            rate_per_s: 4_000.0,
            arrivals: Arrivals::Poisson,
        };
    });
    assert_eq!(rate, is_steady);
    assert_eq!(point(|point| point.connections = Some(64)), is_steady);
    assert_eq!(
        point(|point| point.response_bytes = Some(1 << 20)),
        is_steady
    );
    assert_eq!(point(|point| point.cold = true), is_steady);
    let connections = refused(|run| run.experiment.workload.connections = 64);
    assert_eq!(connections, [Setting::Connections]);
    let responses = refused(|run| run.experiment.workload.response_bytes = 1 << 20);
    assert_eq!(responses, [Setting::ResponseBytes]);
    let clients = refused(|run| run.experiment.workload.clients = 4);
    assert_eq!(clients, [Setting::Clients]);
    let workers = refused(|run| run.experiment.workers = Workers::Native);
    assert_eq!(workers, [Setting::ProxyWorkers]);
    let service = refused(|run| run.experiment.topology.services[0].replicas = 3);
    assert_eq!(service, [Setting::Service]);
}

#[test]
fn load_points_of_one_side_and_other_processors_are_no_reason_to_refuse() {
    let further = refused(|run| {
        let mut point = run.experiment.load_points[0].clone();
        point.id.0.push_str("-again");
        run.experiment.load_points.push(point);
    });
    assert_eq!(further, []);
    // It is not compared.
    let regime =
        refused(|run| run.experiment.load_points[1].load = run.experiment.load_points[0].load);
    assert_eq!(regime, []);
    let processor = refused(|run| run.environment.machines[0].cpu_model.push('2'));
    assert_eq!(processor, []);
}

fn cost_and_median() -> [Limit; 2] {
    [
        limit(Metric::ResponseP50, 0.05),
        limit(Metric::CpuPerRequest, 0.05),
    ]
}

#[test]
fn uniformly_slower_run_fails_no_gate() {
    for seed in 0..10 {
        let base = one(seed, 7, 1.15);
        let mut new = one(seed + 50, 7, 1.15);
        slow_down(&mut new, 1.2);
        for (base, new) in [(&base, &new), (&new, &base)] {
            let sides = [base, new].map(std::slice::from_ref);
            let gate = gated(sides[0], sides[1], &cost_and_median()).unwrap();
            assert_ne!(gate.verdict, GateVerdict::Fail, "{gate:?}");
        }
    }
}

#[test]
fn ten_percent_increase_never_passes_a_five_percent_limit() {
    for seed in 0..10 {
        let (base, new) = (one(seed, 12, 1.2), one(seed + 50, 12, 1.2 * 1.1));
        let gate = gated(&[base], &[new], &cost_and_median()).unwrap();
        assert_ne!(gate.verdict, GateVerdict::Pass, "{gate:?}");
    }
    let gate = gated(&[one(1, 12, 1.2)], &[one(2, 12, 1.8)], &cost_and_median()).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Fail, "{gate:?}");
    let wide = [limit(Metric::ResponseP50, 0.4)];
    let gate = gated(&[one(1, 12, 1.2)], &[one(2, 12, 1.32)], &wide).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Pass, "{gate:?}");
}

/// Why a side of a check has no estimate.
fn in_side(check: &GateCheck) -> &NotEstimable {
    match &check.reason {
        Some(InconclusiveCheck::NotEstimable {
            reason: NotEstimable::InSide { reason, .. },
        }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn too_few_blocks_are_inconclusive() {
    let gate = gated(&[one(1, 1, 1.2)], &[one(2, 1, 1.2)], &cost_and_median()).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Inconclusive);
    for check in &gate.checks {
        assert!(
            matches!(in_side(check), NotEstimable::FewBlocks { .. }),
            "{check:?}"
        );
    }
    let p99 = [limit(Metric::ResponseP999, 0.5)];
    let gate = gated(&[one(1, 7, 1.2)], &[one(2, 7, 1.2)], &p99).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Inconclusive);
    assert!(
        matches!(in_side(&gate.checks[0]), NotEstimable::Unresolved { .. }),
        "{gate:?}"
    );
}

#[test]
fn throughput_loss_is_compared_with_a_negative_limit() {
    let lose = [limit(Metric::Throughput, -0.05)];
    let gate = gated(&[one(1, 12, 1.2)], &[one(2, 12, 1.8)], &lose).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Fail, "{gate:?}");
    let gate = gated(&[one(1, 12, 1.8)], &[one(2, 12, 1.2)], &lose).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Pass, "{gate:?}");
}

#[test]
fn absolute_limit_is_relative_to_the_base_runs_level() {
    let mut limit = limit(Metric::ResponseP50, 0.0);
    limit.allowed = Allowed::Absolute(24_000.0);
    let gate = gated(&[one(1, 12, 1.2)], &[one(2, 12, 1.2)], &[limit]).unwrap();
    let share = gate.checks[0].allowed.unwrap();
    assert!((share - 0.1).abs() < 0.02, "24 of 240 µs: {share}");
}

#[test]
fn limit_that_matches_nothing_is_an_error() {
    let (base, new) = ([one(1, 6, 1.2)], [one(2, 6, 1.2)]);
    let mut nowhere = limit(Metric::ResponseP50, 0.1);
    nowhere.load_point = Some("saturated".to_owned());
    let mut nobody = limit(Metric::ResponseP50, 0.1);
    nobody.variant = Some("envoy".to_owned());
    for unmatched in [nowhere, nobody] {
        let both = [limit(Metric::ResponseP50, 0.1), unmatched];
        let error = gated(&base, &new, &both).unwrap_err();
        assert!(matches!(error, GateError::Unmatched { .. }), "{error:?}");
    }
    assert_eq!(gated(&base, &new, &[]).unwrap_err(), GateError::NoLimit);
}

/// Two candidates of one run, as `--a` and `--b` make it.
fn side_by_side(seed: u128, first: f64, second: f64, rounds: u32) -> Run {
    let mut costs = [candidate(first), candidate(second)];
    costs[0].name = "a.mesh";
    costs[1].name = "b.mesh";
    run(seed, rounds, 1, 0.03, &costs)
}

#[test]
fn two_sides_of_one_run_are_judged_by_their_direct_difference() {
    let pairs = [(
        Some(VariantId("a.mesh".to_owned())),
        VariantId("b.mesh".to_owned()),
    )];
    let judged = |run: &Run, limits: &[Limit]| {
        let checked = limits_match(&run.experiment, &pairs, limits);
        let gate = gate_sides(&run.data(), &pairs, limits);
        assert_eq!(checked.is_ok(), gate.is_ok());
        gate
    };
    let mut named = limit(Metric::ResponseP50, 0.05);
    named.variant = Some("mesh".to_owned());
    let limits = [named, limit(Metric::Throughput, -0.05)];
    let slower = judged(&side_by_side(1, 1.2, 1.4, 12), &limits).unwrap();
    assert_eq!(slower.verdict, GateVerdict::Fail, "{slower:?}");
    assert_eq!(slower.checks.len(), 2);
    assert!(slower.checks.iter().all(|c| c.change.between.is_none()));
    let equal = judged(&side_by_side(2, 1.2, 1.2, 24), &limits).unwrap();
    assert_eq!(equal.verdict, GateVerdict::Pass, "{equal:?}");
    let mut nobody = limit(Metric::ResponseP50, 0.1);
    nobody.variant = Some("other".to_owned());
    assert!(judged(&side_by_side(3, 1.2, 1.2, 6), &[nobody]).is_err());
    let baseline = [(None, VariantId("b.mesh".to_owned()))];
    let run = side_by_side(4, 1.0, 1.5, 12);
    let gate = gate_sides(&run.data(), &baseline, &[limit(Metric::ResponseP50, 0.05)]).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Fail, "{gate:?}");
    assert_eq!(gate.checks[0].change.base_variant.0, "none");
}

#[test]
fn gates_with_many_checks_rarely_fail_by_chance() {
    // Equal sides, eight checks each at a limit of nothing: unadjusted, about one in six would fail.
    let pairs = [(
        Some(VariantId("a.mesh".to_owned())),
        VariantId("b.mesh".to_owned()),
    )];
    let metrics = [
        Metric::ResponseP50,
        Metric::ResponseP90,
        Metric::ResponseMean,
        Metric::CpuPerRequest,
        Metric::Throughput,
    ];
    let limits = metrics.map(|metric| limit(metric, 0.0));
    let failed = (0..100).filter(|seed| {
        let run = side_by_side(*seed, 1.2, 1.2, 7);
        gate_sides(&run.data(), &pairs, &limits).unwrap().verdict == GateVerdict::Fail
    });
    assert!(failed.count() <= 8);
}

fn fits() -> impl Strategy<Value = Inference> {
    (-1.0..1.0_f64, 0.0..0.5_f64, 1.0..60.0_f64, 0.3..1.0_f64).prop_map(|(at, se, df, share)| {
        let student = Student {
            standard_error: se,
            degrees_of_freedom: df,
        };
        Inference::new(at, Some(Spread::Student(student))).within(share)
    })
}

fn judge(fit: &Inference, limit: f64, larger_is_worse: bool) -> GateVerdict {
    let interval: Interval = fit.interval(0.95).unwrap();
    let p = if larger_is_worse {
        fit.p_above(limit)
    } else {
        fit.p_below(limit)
    };
    verdict(interval, p, limit, larger_is_worse)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wider_limit_never_worsens_the_verdict(fit in fits(), limit in -0.9..2.0_f64, more in 0.0..1.0_f64) {
        prop_assert!(judge(&fit, limit + more, true) <= judge(&fit, limit, true));
        prop_assert!(judge(&fit, limit - more, false) <= judge(&fit, limit, false));
    }

    #[test]
    fn single_check_is_judged_by_its_interval(fit in fits(), limit in -0.9..2.0_f64) {
        let interval = fit.interval(0.95).unwrap();
        let expected = if interval.high < limit {
            GateVerdict::Pass
        } else if interval.low > limit {
            GateVerdict::Fail
        } else {
            GateVerdict::Inconclusive
        };
        prop_assert_eq!(judge(&fit, limit, true), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_runs_do_not_panic_and_a_run_never_fails_against_itself(
        harms in prop::collection::vec((0_usize..112, harm()), 0..40),
        share in 0.000_1..3.0_f64,
    ) {
        let mut hurt = small();
        for (index, harm) in &harms {
            apply(&mut hurt, *index, harm);
        }
        let limits = [
            limit(Metric::ResponseP50, share),
            limit(Metric::ResponseP99, share),
            limit(Metric::CpuPerRequest, share),
            limit(Metric::AnonymousMemory, share),
            limit(Metric::Throughput, -share.min(0.99)),
        ];
        let whole = small();
        prop_assert!(gated(&[whole], std::slice::from_ref(&hurt), &limits).is_ok());
        let sides = [std::slice::from_ref(&hurt); 2];
        let gate = gated(sides[0], sides[1], &limits).unwrap();
        prop_assert_ne!(gate.verdict, GateVerdict::Fail);
        for check in &gate.checks {
            if let Some(relative) = check.change.relative {
                prop_assert_eq!(relative.value, 0.0);
            }
            prop_assert!(check.verdict != GateVerdict::Pass || check.change.relative.is_some());
        }
    }
}

#[test]
fn failed_variant_does_not_pass() {
    let base = one(1, 7, 1.2);
    let mut new = one(2, 7, 1.2);
    let of_mesh = |run: &Run| -> Vec<usize> {
        let all = run.trials.iter().enumerate();
        let mesh = all.filter(|(_, record)| record.trial.variant.0 == "mesh");
        mesh.map(|(index, _)| index).collect()
    };
    for index in of_mesh(&new) {
        apply(&mut new, index, &Harm::Fail);
    }
    let gate = gated(&[base], &[new], &cost_and_median()).unwrap();
    assert_eq!(gate.verdict, GateVerdict::Inconclusive);
    assert!(
        matches!(
            in_side(&gate.checks[0]),
            NotEstimable::TooManyInvalid { .. }
        ),
        "{gate:?}"
    );
}

#[test]
fn excluded_variant_does_not_pass() {
    let base = one(1, 7, 1.2);
    let mut new = one(2, 7, 1.2);
    let excluded = NotEstimable::Excluded {
        variant: VariantId("mesh".to_owned()),
        reason: new.drop_variant("mesh"),
    };
    let mut named = limit(Metric::ResponseP50, 10.0);
    named.variant = Some("mesh".to_owned());
    let limits = [named, limit(Metric::CpuPerRequest, 10.0)];
    for (base, new) in [(&base, &new), (&new, &base)] {
        let [base, new] = [base, new].map(std::slice::from_ref);
        let gate = gated(base, new, &limits).unwrap();
        assert_eq!(gate.verdict, GateVerdict::Inconclusive, "{gate:?}");
        assert_eq!(gate.checks.len(), 3, "{gate:?}");
        for check in &gate.checks {
            assert_eq!(*in_side(check), excluded);
        }
    }
}

#[test]
fn gate_does_not_pass_on_some_of_several_runs() {
    let wide = [limit(Metric::ResponseP50, 0.5)];
    let gate = |first: &dyn Fn(&mut Run)| {
        let mut new = [one(2, 12, 1.2), one(3, 12, 1.2), one(4, 12, 1.2)];
        first(&mut new[0]);
        let mut gate = gated(&[one(1, 12, 1.2)], &new, &wide).unwrap();
        gate.checks.remove(0)
    };
    let whole = gate(&|_| {});
    assert_eq!(
        (whole.verdict, whole.change.new_runs),
        (GateVerdict::Pass, 3)
    );
    let excluded = gate(&|run| {
        run.drop_variant("mesh");
    });
    assert_eq!(excluded.verdict, GateVerdict::Inconclusive);
    let Some(InconclusiveCheck::MissingRun { reason }) = &excluded.reason else {
        panic!("{excluded:?}");
    };
    assert!(
        matches!(reason, NotEstimable::Excluded { .. }),
        "{reason:?}"
    );
    assert_eq!(excluded.change.new_runs, 2);
    // Two of twelve: too many to have been carried, too few to be an overload.
    let uncertain = gate(&|run| {
        for load in run.loads("mesh", "steady").take(2) {
            load.errors.timeout = load.offered / 2;
        }
    });
    assert_eq!(
        uncertain.verdict,
        GateVerdict::Inconclusive,
        "{uncertain:?}"
    );
    // What the hypervisor took from a run says nothing about the variant.
    let disturbed = gate(&|run| {
        for sample in &mut run.samples {
            sample.machines[0].idle_ns -= 100_000_000;
            sample.machines[0].steal_ns = 100_000_000;
        }
    });
    assert_eq!(disturbed.change.new_runs, 2, "{disturbed:?}");
    assert_eq!(disturbed.verdict, GateVerdict::Pass, "{disturbed:?}");
}

#[test]
fn excluded_variant_of_an_interleaved_run_does_not_pass() {
    let id = |name: &str| VariantId(name.to_owned());
    let pairs = [(Some(id("a.mesh")), id("b.mesh")), (None, id("b.mesh"))];
    let mut limit = limit(Metric::ResponseP50, 10.0);
    limit.variant = Some("mesh".to_owned());
    for (dropped, excluded_pairs) in [("a.mesh", 1), ("b.mesh", 2)] {
        let mut run = side_by_side(1, 1.2, 1.2, 12);
        let reason = run.drop_variant(dropped);
        let pairs = &pairs[..excluded_pairs];
        let gate = gate_sides(&run.data(), pairs, std::slice::from_ref(&limit)).unwrap();
        assert_eq!(gate.verdict, GateVerdict::Inconclusive, "{gate:?}");
        assert_eq!(gate.checks.len(), excluded_pairs);
        let expected = Some(InconclusiveCheck::NotEstimable {
            reason: NotEstimable::Excluded {
                variant: id(dropped),
                reason,
            },
        });
        for check in gate.checks {
            assert_eq!(check.reason, expected, "{dropped}");
        }
    }
}
