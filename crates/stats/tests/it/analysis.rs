//! Whole runs: detected effects, unsupported claims, and caveats.

use crate::common::{Cost, Run, bound_generator, effect, run};
use meshtax_model::analysis::{
    Analysis, Arm, Caveat, Elsewhere, ExclusionReason, InvalidReason, Metric, NoLevel,
    NotEstimable, Verdict,
};
use meshtax_model::cluster::{ClusterEvent, ClusterRecord, PodGrant, Severity};
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::experiment::{LoadPoint, LoadPointId, PolicyLevel, Role, VariantId};
use meshtax_model::failure::{RunFailure, TrialFailure, VariantFailure, VariantFailureReason};
use meshtax_model::trial::{ComponentRole, ProxyConnections, TrialOutcome};

const MESH: Cost = Cost {
    name: "mesh-mtls",
    level: PolicyLevel::Mtls,
    delay_ns: 60_000.0,
    cpu_ns: 15_000.0,
};

fn reason(verdict: &Verdict) -> &NotEstimable {
    match verdict {
        Verdict::NotEstimable { reason } => reason,
        other => panic!("estimable: {other:?}"),
    }
}

fn has(analysis: &Analysis, is_it: impl Fn(&Caveat) -> bool) -> bool {
    analysis.caveats.iter().any(is_it)
}

/// Whether mesh-l7 is cheaper than mesh-mtls by the steady p50.
fn is_out_of_order(analysis: &Analysis) -> bool {
    has(analysis, |caveat| {
        matches!(
            caveat,
            Caveat::HigherLevelCheaper { higher, lower, metric: Metric::ResponseP50, load_point, change }
                if higher.0 == "mesh-l7" && lower.0 == "mesh-mtls" && load_point.0 == "steady" && *change < 0.0
        )
    })
}

#[test]
fn known_costs_are_detected_and_the_control_is_judged_by_its_own_interval() {
    let analysis = run(7, 8, 3, 0.02, &[MESH]).analyse();
    assert_eq!((analysis.rounds, analysis.blocks), (8, 24));
    for (point, metric) in [
        ("steady", Metric::ResponseP50),
        ("steady", Metric::ResponseP99),
        ("steady", Metric::CpuPerRequest),
        ("saturated", Metric::CpuPerRequest),
    ] {
        let found = effect(&analysis, "mesh-mtls", point, metric);
        assert_eq!(found.verdict, Verdict::Different, "{found:?}");
        assert!(found.primary);
        assert!(found.p_adjusted >= found.p_value, "{found:?}");
        let aa = effect(&analysis, "none-again", point, metric);
        let excludes_zero = aa.relative.unwrap().interval.unwrap().excludes_zero();
        assert_eq!(aa.verdict == Verdict::Different, excludes_zero, "{aa:?}");
        assert!(!aa.primary && aa.p_adjusted.is_none());
    }
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    let interval = p50.difference.unwrap().interval.unwrap();
    assert!(
        interval.low < 60_000.0 && 60_000.0 < interval.high,
        "{p50:?}"
    );
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    let loss = throughput.relative.unwrap().value;
    assert!((loss + 15.0 / 35.0).abs() < 0.03, "{loss}");
    assert!(!throughput.primary && throughput.p_adjusted.is_none());
    assert_eq!(throughput.verdict, Verdict::Different);
    insta::assert_debug_snapshot!("caveats_of_a_good_run", analysis.caveats);
}

#[test]
fn effects_list_meaningful_metrics_with_the_control_first() {
    let analysis = run(7, 6, 1, 0.02, &[MESH]).analyse();
    let rows: Vec<String> = analysis
        .effects
        .iter()
        .map(|e| format!("{} {} {:?}", e.variant, e.load_point, e.metric))
        .collect();
    insta::assert_snapshot!("rows", rows.join("\n"));
}

#[test]
fn mesh_without_cost_is_equivalent_or_inconclusive() {
    let free = Cost {
        delay_ns: 0.0,
        cpu_ns: 0.0,
        ..MESH
    };
    let analysis = run(11, 10, 2, 0.03, &[free]).analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_ne!(p50.verdict, Verdict::Different);
    assert!(!matches!(p50.verdict, Verdict::NotEstimable { .. }));
}

#[test]
fn too_few_blocks_give_values_and_no_intervals() {
    let analysis = run(3, 5, 1, 0.02, &[MESH]).analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert!(p50.difference.unwrap().interval.is_none());
    assert!(p50.p_value.is_none());
    assert_eq!(reason(&p50.verdict), &NotEstimable::FewBlocks { blocks: 5 });
    let p99 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP99);
    assert!(p99.difference.is_none());
    let NotEstimable::Unresolved {
        arm: Arm::Variant,
        unresolved,
    } = reason(&p99.verdict)
    else {
        panic!("{p99:?}");
    };
    assert_eq!(unresolved.metric, Metric::ResponseP99);
    assert!(unresolved.trials < unresolved.needed);
    insta::assert_debug_snapshot!("caveats_of_five_blocks", analysis.caveats);
}

#[test]
fn fewer_than_six_rounds_add_a_caveat() {
    let analysis = run(3, 2, 6, 0.02, &[MESH]).analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert!(p50.difference.unwrap().interval.is_some());
    assert_eq!((p50.rounds, p50.blocks), (2, 12));
    assert!(has(&analysis, |c| *c == Caveat::FewRounds { rounds: 2 }));
}

#[test]
fn hypervisor_disturbance_prevents_an_estimate_only_above_three_quarters() {
    let disturb = |count| {
        let mut run = run(5, 12, 1, 0.02, &[MESH]);
        for load in run.loads("mesh-mtls", "steady").take(count) {
            load.audit.generator_bound = Some(bound_generator());
            load.audit.steal_ns = load.window_ns / 4;
        }
        let analysis = run.analyse();
        effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50).clone()
    };
    let some = disturb(5);
    assert_eq!((some.blocks, &some.verdict), (7, &Verdict::Different));
    let most = disturb(8);
    assert_eq!(
        reason(&most.verdict),
        &NotEstimable::FewBlocks { blocks: 4 }
    );
    assert_eq!(
        reason(&disturb(10).verdict),
        &NotEstimable::TooManyDisturbed {
            arm: Arm::Variant,
            disturbed: 10,
            trials: 12,
        }
    );
}

#[test]
fn more_than_ten_percent_invalid_trials_are_not_estimable() {
    let mut run = run(5, 10, 1, 0.02, &[MESH]);
    for load in run.loads("mesh-mtls", "steady").take(1) {
        load.audit.generator_bound = Some(bound_generator());
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(p50.verdict, Verdict::Different, "one of ten is not above");
    assert_eq!(p50.blocks, 9);
    for load in run.loads("mesh-mtls", "steady").take(2) {
        load.audit.generator_bound = Some(bound_generator());
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(
        reason(&p50.verdict),
        &NotEstimable::TooManyInvalid {
            arm: Arm::Variant,
            invalid: 2,
            trials: 10,
        }
    );
    assert!(p50.difference.is_none() && p50.p_value.is_none());
    let point = &analysis.variants[2].points[0];
    assert_eq!(
        (point.valid, point.invalid[&InvalidReason::GeneratorBound]),
        (8, 2)
    );
    let saturated = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(
        saturated.verdict,
        Verdict::Different,
        "a load point of its own"
    );
    assert!(has(&analysis, |caveat| matches!(
        caveat,
        Caveat::InvalidTrials { variant, invalid: 2, of: 20, reasons }
            if variant.0 == "mesh-mtls" && reasons == &[InvalidReason::GeneratorBound]
    )));
}

#[test]
fn exclusions_that_differ_between_arms_beyond_chance_add_a_caveat() {
    let excluded = |own: usize, base: usize| {
        let mut run = run(5, 20, 1, 0.02, &[MESH]);
        for (variant, count) in [("mesh-mtls", own), ("none", base), ("none-again", base)] {
            for load in run.loads(variant, "steady").take(count) {
                load.audit.generator_bound = Some(bound_generator());
            }
        }
        let analysis = run.analyse();
        has(&analysis, |c| matches!(c, Caveat::UnequalExclusion { .. }))
    };
    assert!(excluded(8, 1));
    assert!(excluded(0, 10), "fewer are as suspicious as more");
    assert!(!excluded(5, 5));
    assert!(!excluded(2, 1));
}

#[test]
fn variant_that_never_starts_is_excluded_with_its_reason() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.trials.retain(|t| t.trial.variant.0 != "mesh-mtls");
    run.evidence.retain(|e| e.variant.0 != "mesh-mtls");
    let failure = VariantFailureReason::StartFailed {
        detail: "never became ready".to_owned(),
    };
    run.failures.push(VariantFailure {
        variant: run.experiment.variants[2].id.clone(),
        round: 1,
        reason: failure.clone(),
    });
    let analysis = run.analyse();
    let mesh = &analysis.variants[2];
    let excluded = ExclusionReason::Failed { round: 1, failure };
    assert_eq!(mesh.excluded.as_ref(), Some(&excluded));
    assert_eq!((mesh.rounds_proven, mesh.rounds_tried), (0, 1));
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    let variant = mesh.variant.clone();
    assert_eq!(
        reason(&p50.verdict),
        &NotEstimable::Excluded {
            variant: variant.clone(),
            reason: excluded.clone(),
        }
    );
    let caveat = Caveat::Excluded {
        variant,
        reason: excluded,
    };
    assert!(analysis.caveats.contains(&caveat));
}

#[test]
fn trials_without_evidence_are_excluded() {
    let mut run = run(5, 10, 1, 0.02, &[MESH]);
    for evidence in &mut run.evidence {
        if evidence.variant.0 == "mesh-mtls" && evidence.round == 3 {
            evidence.probes[0].passed = false;
        }
    }
    let analysis = run.analyse();
    let mesh = &analysis.variants[2];
    assert_eq!(mesh.points[0].invalid[&InvalidReason::NotProven], 1);
    assert_eq!((mesh.rounds_proven, mesh.rounds_tried), (9, 10));
    assert_eq!(mesh.evidence.as_ref().unwrap().round, 3, "the failing one");
}

#[test]
fn result_faster_than_no_mesh_is_kept_with_a_caveat() {
    let odd = Cost {
        delay_ns: -60_000.0,
        cpu_ns: -8_000.0,
        ..MESH
    };
    let analysis = run(5, 8, 2, 0.02, &[odd]).analyse();
    for (at, of) in [
        ("steady", Metric::ResponseP50),
        ("saturated", Metric::Throughput),
        ("saturated", Metric::CpuPerRequest),
    ] {
        assert!(has(&analysis, |caveat| matches!(
            caveat,
            Caveat::CheaperThanNoMesh { variant, metric, load_point, change }
                if variant.0 == "mesh-mtls"
                    && *metric == of
                    && load_point.0 == at
                    && (*change < 0.0) == of.larger_is_worse()
        )));
    }
}

#[test]
fn cheaper_higher_level_adds_a_caveat() {
    let l7 = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let analysis = run(5, 8, 2, 0.02, &[MESH, l7]).analyse();
    assert!(is_out_of_order(&analysis));
    let in_order = run(
        5,
        8,
        2,
        0.02,
        &[
            Cost {
                delay_ns: 9e4,
                cpu_ns: 3e4,
                ..l7
            },
            MESH,
        ],
    );
    assert!(!is_out_of_order(&in_order.analyse()));
}

#[test]
fn proxy_that_costs_less_than_the_minimal_one_makes_that_a_reference() {
    let cheap = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let mut run = run(5, 8, 2, 0.02, &[MESH, cheap]);
    let is_below = |analysis: &Analysis| {
        has(analysis, |caveat| {
            matches!(
                caveat,
                Caveat::BelowFloor { floor, variant, metric: Metric::ResponseP50, change, .. }
                    if floor.0 == "mesh-mtls" && variant.0 == "mesh-l7" && *change < 0.0
            )
        })
    };
    assert!(!is_below(&run.analyse()));
    let planes = ["none", "none", "limit-mtls", "linkerd"];
    for (variant, plane) in run.experiment.variants.iter_mut().zip(planes) {
        variant.data_plane = plane.into();
    }
    assert!(is_below(&run.analyse()));
    // The other way round it is what a floor is for.
    for (variant, plane) in
        run.experiment
            .variants
            .iter_mut()
            .zip(["none", "none", "linkerd", "limit-mtls"])
    {
        variant.data_plane = plane.into();
    }
    let below = |caveat: &Caveat| matches!(caveat, Caveat::BelowFloor { .. });
    assert!(!has(&run.analyse(), below));
}

#[test]
fn connections_opened_within_the_window_add_a_caveat_unless_they_are_the_load() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    let not_warm = |run: &Run| {
        let caveats = run.analyse().caveats.into_iter();
        let found = caveats.filter(|caveat| matches!(caveat, Caveat::NotWarm { .. }));
        found.collect::<Vec<_>>()
    };
    assert_eq!(not_warm(&run), []);
    let mut of_mesh = run.trials.iter_mut().filter(|record| {
        record.trial.variant.0 == "mesh-mtls" && record.trial.load_point.0 == "steady"
    });
    let Some(TrialOutcome::Measured {
        proxy_connections, ..
    }) = of_mesh.next().map(|record| &mut record.outcome)
    else {
        panic!("no trial");
    };
    *proxy_connections = Some(ProxyConnections {
        before: Some(4),
        after: 7,
    });
    let expected = Caveat::NotWarm {
        variant: VariantId("mesh-mtls".into()),
        load_point: LoadPointId("steady".into()),
        trials: 1,
        of: 12,
        most: 3,
    };
    assert_eq!(not_warm(&run), [expected]);
    // The trial counts.
    let analysis = run.analyse();
    assert!(!has(&analysis, |caveat| matches!(
        caveat,
        Caveat::InvalidTrials { .. }
    )));
    run.experiment.load_points[0].requests_per_connection = Some(1);
    assert_eq!(not_warm(&run), []);
    run.experiment.load_points[0].requests_per_connection = None;
    run.experiment.load_points[0].cold = true;
    assert_eq!(not_warm(&run), []);
}

#[test]
fn bound_generator_adds_a_caveat_in_closed_loops_only() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    for name in ["none", "none-again"] {
        for load in run.loads(name, "saturated") {
            load.audit.generator_bound = Some(bound_generator());
        }
    }
    let analysis = run.analyse();
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Different);
    assert!(has(&analysis, |caveat| matches!(
        caveat,
        Caveat::GeneratorBoundBaselines { trials: 24, .. }
    )));
    for load in run.loads("none", "steady") {
        load.audit.generator_bound = Some(bound_generator());
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(
        reason(&p50.verdict),
        &NotEstimable::TooManyInvalid {
            arm: Arm::Baselines,
            invalid: 12,
            trials: 24,
        }
    );
}

#[test]
fn cpu_account_adds_up() {
    let analysis = run(5, 6, 2, 0.02, &[MESH]).analyse();
    let point = &analysis.variants[2].points[1];
    let cpu = point.cpu.as_ref().unwrap();
    let rest = cpu.unattributed_ns.unwrap();
    // 20 ms in each of twelve trials are unattributed.
    assert!(rest.abs_diff(240_000_000) < 1_000_000, "{rest}");
    assert_eq!(cpu.busy_ns as u64, cpu.attributed_ns + rest);
    let roles: Vec<ComponentRole> = cpu.components.iter().map(|c| c.role).collect();
    assert_eq!(
        roles,
        [
            ComponentRole::Generator,
            ComponentRole::App,
            ComponentRole::ServerProxy
        ]
    );
    assert_eq!(point.proxy_connections, Some(4));
    assert_eq!(analysis.variants[2].memory.len(), 2);
    assert_eq!(analysis.variants[0].memory[0].anonymous_bytes, 4 << 20);
}

/// As if the mesh moved work to where no component is charged for it.
#[test]
fn effect_is_a_range_where_unattributed_cpu_grows_with_it() {
    let found = |run: &crate::common::Run| {
        let analysis = run.analyse();
        let effect = effect(&analysis, "mesh-mtls", "saturated", Metric::CpuPerRequest);
        let components = effect.difference.unwrap().value;
        let (variant, point) = (&effect.variant, &effect.load_point);
        let added = analysis.added_cpu(variant, point).unwrap().clone();
        (components, added)
    };
    let mut run = run(5, 8, 2, 0.02, &[MESH]);
    // The same for all variants: otherwise it is a tenth of the window, over fewer requests with the mesh.
    for (trial, sample) in run.trials.iter().zip(&mut run.samples) {
        if let TrialOutcome::Measured { load, .. } = &trial.outcome {
            let generator = &mut sample.components[0];
            let per_request_ns = 4_000 * load.completed;
            sample.machines[0].idle_ns =
                (sample.machines[0].idle_ns + generator.cpu_ns) - per_request_ns;
            generator.cpu_ns = per_request_ns;
        }
    }
    let (components, added) = found(&run);
    let unattributed = added.unattributed.unwrap();
    assert!(unattributed.value.abs() < 0.1 * components, "{added:?}");
    assert_eq!(added.with_elsewhere, None);
    assert_eq!(added.losses.len(), 2);
    let moved_ns = components / 2.0;
    for (trial, sample) in run.trials.iter().zip(&mut run.samples) {
        let is_mesh = trial.trial.variant.0 == "mesh-mtls";
        if let (true, TrialOutcome::Measured { load, .. }) = (is_mesh, &trial.outcome) {
            sample.machines[0].idle_ns -= (moved_ns * load.completed as f64) as u64;
        }
    }
    let (same, added) = found(&run);
    assert!((same - components).abs() < 1e-6, "components only");
    let end = added.with_elsewhere.unwrap();
    assert_eq!(end.parts, [Elsewhere::Unattributed]);
    let grown = added.unattributed.unwrap().value - unattributed.value;
    assert!((grown / moved_ns - 1.0).abs() < 0.01, "{grown} {moved_ns}");
    let whole = components + added.unattributed.unwrap().value;
    assert!(
        (end.added.value / whole - 1.0).abs() < 0.05,
        "{end:?} {whole}"
    );
    assert!(end.added.interval.is_some());
}

#[test]
fn no_relevant_difference_is_withheld_where_cpu_moved_elsewhere() {
    const FREE: Cost = Cost {
        delay_ns: 0.0,
        cpu_ns: 0.0,
        ..MESH
    };
    let mut run = run(5, 60, 1, 0.005, &[FREE]);
    let verdict = |run: &crate::common::Run| {
        let analysis = run.analyse();
        let effect = effect(&analysis, "mesh-mtls", "saturated", Metric::CpuPerRequest);
        let added = analysis.added_cpu(&effect.variant, &effect.load_point);
        let parts = added.and_then(|added| added.with_elsewhere.clone());
        (effect.verdict.clone(), parts.map(|end| end.parts))
    };
    assert_eq!(verdict(&run), (Verdict::Equivalent, None));
    // As much as a fifth of the application's CPU, charged to nobody.
    for (trial, sample) in run.trials.iter().zip(&mut run.samples) {
        let is_mesh = trial.trial.variant.0 == "mesh-mtls";
        if let (true, TrialOutcome::Measured { load, .. }) = (is_mesh, &trial.outcome) {
            sample.machines[0].idle_ns -= 1_000 * load.completed;
        }
    }
    let moved = Some(vec![Elsewhere::Unattributed]);
    assert_eq!(verdict(&run), (Verdict::Inconclusive, moved));
}

#[test]
fn missing_samples_remove_only_the_cpu_figures() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.samples.clear();
    let analysis = run.analyse();
    let cpu = effect(&analysis, "mesh-mtls", "saturated", Metric::CpuPerRequest);
    assert_eq!(reason(&cpu.verdict), &NotEstimable::NoCommonSample);
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Different);
    assert!(analysis.variants[0].points[0].cpu.is_none());
    assert!(has(&analysis, |caveat| matches!(
        caveat,
        Caveat::NoResourceSample { .. }
    )));
}

#[test]
fn repeated_record_counts_once() {
    let mut run = run(5, 12, 1, 0.02, &[]);
    let copy = run.trials[0].clone();
    run.trials.push(copy);
    let analysis = run.analyse();
    let point = &analysis.variants[0].points[0];
    assert_eq!(
        (point.valid, point.invalid[&InvalidReason::Repeated]),
        (12, 1)
    );
}

#[test]
fn run_without_a_control_has_no_verdicts() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.experiment.variants.retain(|v| v.role != Role::Control);
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(reason(&p50.verdict), &NotEstimable::NoNoiseFloor);
    assert!(has(&analysis, |caveat| matches!(
        caveat,
        Caveat::UnknownTrials { .. }
    )));
}

#[test]
fn tail_without_a_noise_floor_is_shown_without_a_verdict() {
    // Both baselines together resolve the p99, a single one does not.
    let analysis = run(7, 6, 2, 0.02, &[MESH]).analyse();
    let aa = effect(&analysis, "none-again", "steady", Metric::ResponseP99);
    assert!(matches!(
        reason(&aa.verdict),
        NotEstimable::Unresolved { .. }
    ));
    let p99 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP99);
    assert_eq!(reason(&p99.verdict), &NotEstimable::NoNoiseFloor);
    assert!(p99.difference.unwrap().interval.is_some());
    assert!(p99.p_adjusted.is_none(), "not one of the family");
}

#[test]
fn precision_is_checked_after_enough_rounds_and_blocks() {
    let good = run(5, 10, 2, 0.01, &[MESH]);
    assert!(good.precise(0.5));
    assert!(!good.precise(1e-6));
    let few_blocks = run(5, 8, 1, 0.01, &[MESH]);
    assert!(!few_blocks.precise(0.5));
    let few_rounds = run(5, 5, 3, 0.01, &[MESH]);
    assert!(!few_rounds.precise(0.5));
    assert!(!run(5, 10, 2, 0.01, &[]).precise(0.5), "nothing to know");
    assert!(!good.precise(f64::NAN));
}

#[test]
fn incomplete_run_adds_caveats() {
    let mut run = run(5, 6, 1, 0.02, &[]);
    run.ending = Some(Ending::Failed {
        failure: RunFailure::EngineLost,
        detail: "the link went away".to_owned(),
    });
    for ending in [run.ending.clone(), None] {
        run.ending.clone_from(&ending);
        let caveat = Caveat::Incomplete { ending };
        assert!(run.analyse().caveats.contains(&caveat));
    }
    for sample in &mut run.samples {
        sample.machines[0].steal_ns = 50_000_000;
    }
    assert!(has(&run.analyse(), |caveat| matches!(
        caveat,
        Caveat::Steal { share } if (share - 0.05).abs() < 1e-3
    )));
}

#[test]
fn resumed_run_has_a_caveat_and_its_timeline_no_pause() {
    let mut run = run(5, 6, 1, 0.02, &[MESH]);
    let end = |run: &Run| {
        let timelines = run.analyse().variants.into_iter().map(|v| v.timeline);
        timelines.flatten().map(|moment| moment.at_ns).max()
    };
    let whole = end(&run);
    let first = run.trials.iter().filter(|t| t.trial.round > 3);
    let at_unix_ms = first.map(|t| t.started_unix_ms).min().unwrap();
    for record in run.trials.iter_mut().filter(|t| t.trial.round > 3) {
        record.started_unix_ms += 60_000;
    }
    run.resumptions = vec![Resumption {
        at_unix_ms: at_unix_ms + 60_000,
        after_round: 3,
        paused_ns: 60_000_000_000,
        restarted: false,
    }];
    let resumptions = run.resumptions.clone();
    assert!(
        run.analyse()
            .caveats
            .contains(&Caveat::Resumed { resumptions })
    );
    assert_eq!(end(&run), whole);
}

#[test]
fn p999_is_omitted_where_the_baseline_does_not_resolve_it() {
    let analysis = run(5, 6, 2, 0.02, &[MESH]).analyse();
    assert!(
        analysis
            .effects
            .iter()
            .all(|e| e.metric != Metric::ResponseP999)
    );
    let levels = &analysis.variants[0].points[0].levels;
    let p999 = levels
        .iter()
        .find(|l| l.metric == Metric::ResponseP999)
        .unwrap();
    assert!(p999.value.is_none());
    assert!(matches!(p999.reason, Some(NoLevel::Unresolved(_))));
}

#[test]
fn run_with_one_kind_of_load_point_is_analysed() {
    for keep_steady in [true, false] {
        let mut run = run(5, 6, 2, 0.02, &[MESH]);
        let keep = |point: &LoadPoint| point.is_steady() == keep_steady;
        run.experiment.load_points.retain(keep);
        let analysis = run.analyse();
        assert_eq!(analysis.variants[0].points.len(), 1);
        assert!(
            analysis
                .effects
                .iter()
                .any(|e| e.verdict == Verdict::Different)
        );
    }
}

#[test]
fn failed_trials_are_counted() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.trials[0].outcome = TrialOutcome::Failed {
        failure: TrialFailure::LoadFailed {
            detail: "connection refused by trial 17".to_owned(),
        },
    };
    let analysis = run.analyse();
    assert_eq!(
        analysis.variants[0].points[0].invalid[&InvalidReason::Failed],
        1
    );
}

#[test]
fn cluster_is_reported_and_changes_no_figure() {
    let mut run = run(5, 6, 1, 0.02, &[MESH]);
    let before = run.analyse();
    let grant = PodGrant {
        variant: VariantId("none".to_owned()),
        pod: "server".to_owned(),
        node: "node1".to_owned(),
        qos: "Guaranteed".to_owned(),
        containers: Vec::new(),
    };
    let event = |severity, reason: &str| {
        ClusterRecord::Event(ClusterEvent {
            at_unix_ms: 1,
            severity,
            variant: None,
            object: "Pod/server".to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            count: 4,
        })
    };
    run.cluster = vec![
        ClusterRecord::Granted(grant.clone()),
        event(Severity::Normal, "Pulling"),
        event(Severity::Warning, "Evicted"),
        // As a run that was resumed has it.
        ClusterRecord::Granted(grant.clone()),
    ];
    let mut after = run.analyse();
    assert_eq!(after.environment.pods, [grant]);
    assert_eq!(after.events.len(), 2);
    let warning = Caveat::ClusterWarnings {
        reasons: vec!["Evicted".to_owned()],
        events: 4,
    };
    assert_eq!(after.caveats.last(), Some(&warning));
    after.caveats.pop();
    after.events.clear();
    after.environment.pods.clear();
    assert_eq!(after, before);
}

#[test]
fn floors_add_the_hop_and_encryption_but_no_parsing() {
    use meshtax_model::analysis::AttributionPart::{Encryption, Hop, Proxying};
    let at = |name, level| Cost {
        name,
        level,
        ..MESH
    };
    let planes = [
        at("limit-l4", PolicyLevel::Plaintext),
        at("limit-mtls", PolicyLevel::Mtls),
        at("mesh", PolicyLevel::Mtls),
    ];
    let mut run = run(5, 8, 1, 0.02, &planes);
    for variant in &mut run.experiment.variants {
        if variant.role == Role::Candidate {
            variant.data_plane = variant.id.0.clone();
        }
    }
    let analysis = run.analyse();
    let steps = |data_plane: &str| -> Vec<Vec<_>> {
        let mut all = analysis.attribution.iter();
        let found = all.find(|attribution| attribution.data_plane == data_plane);
        let steps = &found.expect("its steps").steps;
        steps.iter().map(|step| step.parts.clone()).collect()
    };
    assert_eq!(steps("limit-l4"), [vec![Hop]]);
    assert_eq!(steps("limit-mtls"), [vec![Hop], vec![Encryption]]);
    assert_eq!(steps("mesh"), [vec![Hop], vec![Proxying, Encryption]]);
}
