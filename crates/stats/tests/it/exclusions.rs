//! Trials and variants that count in no figure.

use meshtax_model::analysis::{
    Arm, Caveat, ExclusionReason, InvalidReason, Metric, NotEstimable, Verdict,
};
use meshtax_model::experiment::VariantId;
use meshtax_model::failure::{TrialFailure, VariantFailure, VariantFailureReason};
use meshtax_model::trial::TrialOutcome;

use crate::analysis::{MESH, has, reason};
use crate::common::{bound_generator, effect, run};

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

/// One of seven is more than a tenth, and any run of a few rounds may have one.
#[test]
fn one_invalid_trial_of_seven_does_not_discard_the_effect() {
    let invalid = |count| {
        let mut run = run(5, 7, 1, 0.02, &[MESH]);
        for load in run.loads("mesh-mtls", "steady").take(count) {
            load.audit.generator_bound = Some(bound_generator());
        }
        let analysis = run.analyse();
        effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50).clone()
    };
    let one = invalid(1);
    assert_eq!((one.blocks, &one.verdict), (6, &Verdict::Different));
    assert!(one.difference.is_some_and(|d| d.interval.is_some()));
    assert_eq!(
        reason(&invalid(2).verdict),
        &NotEstimable::TooManyInvalid {
            arm: Arm::Variant,
            invalid: 2,
            trials: 7,
        }
    );
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
fn trials_of_rounds_in_which_a_variant_did_not_start_count_as_invalid() {
    let failed_in = |rounds: u32| {
        let mut run = run(5, 20, 2, 0.02, &[MESH]);
        let variant = run.experiment.variants[2].id.clone();
        let is_lost = |of: &VariantId, round| *of == variant && round > 20 - rounds;
        run.trials
            .retain(|t| !is_lost(&t.trial.variant, t.trial.round));
        run.evidence.retain(|e| !is_lost(&e.variant, e.round));
        run.failures
            .extend((21 - rounds..=20).map(|round| VariantFailure {
                variant: variant.clone(),
                round,
                reason: VariantFailureReason::NotStarted,
            }));
        let analysis = run.analyse();
        effect(&analysis, "mesh-mtls", "steady", Metric::ResponseP50).clone()
    };
    let two = failed_in(2);
    assert_eq!((two.blocks, &two.verdict), (36, &Verdict::Different));
    assert_eq!(
        reason(&failed_in(14).verdict),
        &NotEstimable::TooManyInvalid {
            arm: Arm::Variant,
            invalid: 28,
            trials: 40,
        }
    );
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
