//! The log of rounds.

use std::collections::BTreeMap;

use meshtax_model::analysis::InvalidReason;
use meshtax_model::experiment::PolicyLevel;
use meshtax_model::failure::{VariantFailure, VariantFailureReason};

use crate::common::{Cost, bound_generator, run};

const MESH: Cost = Cost {
    name: "mesh-mtls",
    level: PolicyLevel::Mtls,
    delay_ns: 60_000.0,
    cpu_ns: 15_000.0,
};

#[test]
fn invalid_trials_and_failed_variants_are_logged_in_their_round() {
    let mut run = run(5, 3, 1, 0.02, &[MESH]);
    for load in run.loads("mesh-mtls", "steady").skip(1).take(1) {
        load.audit.generator_bound = Some(bound_generator());
    }
    let lost = run.experiment.variants[2].id.clone();
    run.trials
        .retain(|record| record.trial.round != 3 || record.trial.variant != lost);
    run.failures.push(VariantFailure {
        variant: lost.clone(),
        round: 3,
        reason: VariantFailureReason::NotStarted,
    });
    let analysis = run.analyse();
    let log = &analysis.round_log;
    let per_round = run.experiment.variants.len() * run.experiment.load_points.len();
    let lacking = per_round - run.experiment.load_points.len();
    let trials: Vec<(u32, usize)> = log.iter().map(|l| (l.round, l.trials as usize)).collect();
    assert_eq!(trials, [(1, per_round), (2, per_round), (3, lacking)]);
    let bound = BTreeMap::from([(InvalidReason::GeneratorBound, 1)]);
    let invalid: Vec<_> = log.iter().map(|l| l.invalid.clone()).collect();
    assert_eq!(invalid, [BTreeMap::new(), bound, BTreeMap::new()]);
    assert!(log[0].failed.is_empty());
    assert_eq!(log[2].failed, [lost]);
    assert!(log.is_sorted_by_key(|l| l.at_ns));
}
