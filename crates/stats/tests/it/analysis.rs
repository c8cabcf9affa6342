//! Whole runs: detected effects and unsupported claims.

use meshtax_model::analysis::{
    Analysis, Arm, Caveat, Elsewhere, Metric, NoLevel, NotEstimable, Verdict,
};
use meshtax_model::experiment::{LoadPoint, PolicyLevel, Role};
use meshtax_model::trial::{ComponentRole, TrialOutcome};

use crate::common::{Cost, effect, run};

pub(crate) const MESH: Cost = Cost {
    name: "mesh-mtls",
    level: PolicyLevel::Mtls,
    delay_ns: 60_000.0,
    cpu_ns: 15_000.0,
};

pub(crate) fn reason(verdict: &Verdict) -> &NotEstimable {
    match verdict {
        Verdict::NotEstimable { reason } => reason,
        other => panic!("estimable: {other:?}"),
    }
}

pub(crate) fn has(analysis: &Analysis, is_it: impl Fn(&Caveat) -> bool) -> bool {
    analysis.caveats.iter().any(is_it)
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
