//! Whole runs: what is found, what is not claimed, and what is said about it.

use crate::common::{Cost, effect, run};
use meshtax_model::analysis::{Analysis, Metric, Verdict};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, PolicyLevel, Role};
use meshtax_model::trial::{ComponentRole, TrialOutcome};
use meshtax_stats::{VariantFailure, validity};

const MESH: Cost = Cost {
    name: "mesh-mtls",
    level: PolicyLevel::Mtls,
    delay_ns: 60_000.0,
    cpu_ns: 15_000.0,
};

fn reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::NotEstimable { reason } => reason,
        other => panic!("estimable: {other:?}"),
    }
}

fn says(analysis: &Analysis, part: &str) -> bool {
    analysis.caveats.iter().any(|caveat| caveat.contains(part))
}

#[test]
fn known_costs_are_found_and_the_control_is_judged_by_its_own_interval() {
    let analysis = run(7, 8, 3, 0.02, &[MESH]).analyse();
    assert_eq!((analysis.rounds, analysis.blocks), (8, 24));
    for (point, metric) in [
        ("steady", Metric::ResponseP50),
        ("steady", Metric::ResponseP99),
        ("saturated", Metric::Throughput),
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
    let cpu = effect(&analysis, "mesh-mtls", "steady", Metric::CpuPerRequest);
    assert!(!cpu.primary && cpu.p_adjusted.is_none());
    assert_eq!(cpu.verdict, Verdict::Different);
    insta::assert_snapshot!("caveats_of_a_good_run", analysis.caveats.join("\n"));
}

#[test]
fn only_meaningful_effects_are_there_and_the_control_comes_first() {
    let analysis = run(7, 6, 1, 0.02, &[MESH]).analyse();
    let rows: Vec<String> = analysis
        .effects
        .iter()
        .map(|e| format!("{} {} {:?}", e.variant, e.load_point, e.metric))
        .collect();
    insta::assert_snapshot!("rows", rows.join("\n"));
}

#[test]
fn a_mesh_like_none_is_equivalent_or_not_distinguishable() {
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
    assert_eq!(
        reason(&p50.verdict),
        "fewer than six blocks with a valid pair (5)"
    );
    let p99 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP99);
    assert!(p99.difference.is_none());
    assert!(reason(&p99.verdict).starts_with("p99 not resolved: requests above it come from"));
    insta::assert_snapshot!("caveats_of_five_blocks", analysis.caveats.join("\n"));
}

#[test]
fn fewer_than_six_rounds_speak_of_these_processes_only() {
    let analysis = run(3, 2, 6, 0.02, &[MESH]).analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert!(p50.difference.unwrap().interval.is_some());
    assert_eq!((p50.rounds, p50.blocks), (2, 12));
    assert!(says(&analysis, "These processes only"));
}

#[test]
fn what_the_hypervisor_disturbed_costs_an_answer_only_above_three_quarters() {
    let disturb = |count| {
        let mut run = run(5, 12, 1, 0.02, &[MESH]);
        for load in run.loads("mesh-mtls", "steady").take(count) {
            load.audit.generator_bound = Some("late".to_owned());
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
        "fewer than six blocks with a valid pair (4)"
    );
    assert_eq!(
        reason(&disturb(10).verdict),
        "the hypervisor disturbed more than three in four of its trials (10 of 12)"
    );
}

#[test]
fn above_ten_per_cent_invalid_is_not_estimable() {
    let mut run = run(5, 10, 1, 0.02, &[MESH]);
    for load in run.loads("mesh-mtls", "steady").take(1) {
        load.errors.reset = 5;
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(p50.verdict, Verdict::Different, "one of ten is not above");
    assert_eq!(p50.blocks, 9);
    for load in run.loads("mesh-mtls", "steady").take(2) {
        load.errors.reset = 5;
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(
        reason(&p50.verdict),
        "above 10 % of its trials are invalid (2 of 10)"
    );
    assert!(p50.difference.is_none() && p50.p_value.is_none());
    let point = &analysis.variants[2].points[0];
    assert_eq!(
        (point.valid, point.invalid[validity::reason::ERRORS]),
        (8, 2)
    );
    let saturated = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(
        saturated.verdict,
        Verdict::Different,
        "a load point of its own"
    );
    assert!(says(&analysis, "mesh-mtls: 2 of 20 trials are invalid"));
}

#[test]
fn a_variant_that_never_came_up_is_left_out_with_its_reason() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.trials.retain(|t| t.trial.variant.0 != "mesh-mtls");
    run.evidence.retain(|e| e.variant.0 != "mesh-mtls");
    run.failures.push(VariantFailure {
        variant: run.experiment.variants[2].id.clone(),
        round: 1,
        reason: "never became ready".into(),
    });
    let analysis = run.analyse();
    let mesh = &analysis.variants[2];
    assert_eq!(mesh.left_out.as_deref(), Some("never became ready"));
    assert_eq!((mesh.rounds_proven, mesh.rounds_tried), (0, 1));
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(reason(&p50.verdict), "left out: never became ready");
    assert!(says(
        &analysis,
        "mesh-mtls was left out: never became ready."
    ));
}

#[test]
fn trials_without_proof_do_not_count() {
    let mut run = run(5, 10, 1, 0.02, &[MESH]);
    for evidence in &mut run.evidence {
        if evidence.variant.0 == "mesh-mtls" && evidence.round == 3 {
            evidence.probes[0].passed = false;
        }
    }
    let analysis = run.analyse();
    let mesh = &analysis.variants[2];
    assert_eq!(mesh.points[0].invalid[validity::reason::NOT_PROVEN], 1);
    assert_eq!((mesh.rounds_proven, mesh.rounds_tried), (9, 10));
    assert_eq!(mesh.evidence.as_ref().unwrap().round, 3, "the failing one");
}

#[test]
fn faster_than_no_mesh_is_pointed_out_and_kept() {
    let odd = Cost {
        delay_ns: -60_000.0,
        cpu_ns: -8_000.0,
        ..MESH
    };
    let analysis = run(5, 8, 2, 0.02, &[odd]).analyse();
    assert!(says(
        &analysis,
        "mesh-mtls is faster than no mesh at steady (p50 -"
    ));
    assert!(says(
        &analysis,
        "mesh-mtls is faster than no mesh at saturated (throughput +"
    ));
    assert!(says(
        &analysis,
        "mesh-mtls uses less CPU than no mesh at saturated"
    ));
}

#[test]
fn a_higher_level_that_costs_less_is_pointed_out() {
    let l7 = Cost {
        name: "mesh-l7",
        level: PolicyLevel::L7,
        delay_ns: 10_000.0,
        cpu_ns: 2_000.0,
    };
    let analysis = run(5, 8, 2, 0.02, &[MESH, l7]).analyse();
    assert!(says(
        &analysis,
        "mesh-l7 costs less than mesh-mtls at steady (p50 -"
    ));
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
    assert!(!says(&in_order.analyse(), "costs less than"));
}

#[test]
fn a_bound_generator_is_a_caveat_in_a_closed_loop_only() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    for name in ["none", "none-again"] {
        for load in run.loads(name, "saturated") {
            load.audit.generator_bound = Some("busy".into());
        }
    }
    let analysis = run.analyse();
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Different);
    assert!(says(
        &analysis,
        "true throughput cost is at least what is shown"
    ));
    for load in run.loads("none", "steady") {
        load.audit.generator_bound = Some("lag".into());
    }
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert_eq!(
        reason(&p50.verdict),
        "above 10 % of the baselines' trials are invalid (12 of 24)"
    );
}

#[test]
fn the_account_adds_up() {
    let analysis = run(5, 6, 2, 0.02, &[MESH]).analyse();
    let point = &analysis.variants[2].points[1];
    let cpu = point.cpu.as_ref().unwrap();
    let rest = cpu.unattributed_ns.unwrap();
    // 20 ms in each of twelve trials belong to nobody.
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

#[test]
fn missing_samples_take_only_the_cpu_figures_away() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.samples.clear();
    let analysis = run.analyse();
    let cpu = effect(&analysis, "mesh-mtls", "saturated", Metric::CpuPerRequest);
    assert_eq!(
        reason(&cpu.verdict),
        "no block with resource samples of both"
    );
    let throughput = effect(&analysis, "mesh-mtls", "saturated", Metric::Throughput);
    assert_eq!(throughput.verdict, Verdict::Different);
    assert!(analysis.variants[0].points[0].cpu.is_none());
    assert!(says(&analysis, "have no resource sample"));
}

#[test]
fn a_repeated_record_counts_once() {
    let mut run = run(5, 12, 1, 0.02, &[]);
    let copy = run.trials[0].clone();
    run.trials.push(copy);
    let analysis = run.analyse();
    let point = &analysis.variants[0].points[0];
    assert_eq!(
        (point.valid, point.invalid[validity::reason::REPEATED]),
        (12, 1)
    );
}

#[test]
fn without_a_control_nothing_is_claimed() {
    let mut run = run(5, 6, 2, 0.02, &[MESH]);
    run.experiment.variants.retain(|v| v.role != Role::Control);
    let analysis = run.analyse();
    let p50 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50);
    assert!(reason(&p50.verdict).starts_with("no noise floor"));
    assert!(says(&analysis, "belong to no variant"));
}

#[test]
fn a_tail_without_a_noise_floor_is_shown_and_not_judged() {
    // Both baselines together resolve the p99, one by itself does not.
    let analysis = run(7, 6, 2, 0.02, &[MESH]).analyse();
    let aa = effect(&analysis, "none-again", "steady", Metric::ResponseP99);
    assert!(reason(&aa.verdict).contains("p99 not resolved"));
    let p99 = effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP99);
    assert!(reason(&p99.verdict).starts_with("no noise floor"));
    assert!(p99.difference.unwrap().interval.is_some());
    assert!(p99.p_adjusted.is_none(), "not one of the family");
}

#[test]
fn precision_looks_at_widths_after_enough_rounds_and_blocks() {
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
fn what_happened_to_the_run_is_said() {
    let mut run = run(5, 6, 1, 0.02, &[]);
    run.ending = Some(Ending::Failed {
        reason: "the link went away".into(),
    });
    assert!(says(&run.analyse(), "The run failed: the link went away."));
    run.ending = None;
    assert!(says(&run.analyse(), "not on record"));
    for sample in &mut run.samples {
        sample.machine.steal_ns = 50_000_000;
    }
    assert!(says(&run.analyse(), "The hypervisor gave 5.0 %"));
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
    assert!(
        p999.reason
            .as_ref()
            .unwrap()
            .starts_with("p99.9 not resolved")
    );
}

#[test]
fn any_mix_of_load_points_will_do() {
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
        reason: "connection refused by trial 17".into(),
    };
    let analysis = run.analyse();
    assert_eq!(
        analysis.variants[0].points[0].invalid["the trial failed"],
        1
    );
}
