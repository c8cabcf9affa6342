//! What an interrupted run had measured, from which the same run is continued.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_model::comparison::Differing;
use meshtax_model::environment::Environment;
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_model::failure::{VariantFailure, VariantFailureReason};
use meshtax_model::trial::TrialRecord;

use crate::error::trial_failure;
use crate::outcome::Counts;

/// The records of a run that was interrupted, and what is required to continue it.
pub struct Earlier<'a> {
    /// Its trials, in the order in which they were measured.
    pub trials: &'a [TrialRecord],
    /// Its variants that could not be measured, by round.
    pub failures: &'a [VariantFailure],
    /// The last round of which there is any record; 0: of none.
    pub last_round: u32,
    /// The part of its time limit that is used, in nanoseconds.
    pub used_ns: u64,
    /// What is different in this environment, so that its trials would not be comparable with the recorded ones.
    pub changed: &'a dyn Fn(&Environment) -> Vec<Differing>,
}

/// Where a run stands when it starts or is continued.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The round that is measured next. An interrupted round is not continued: its processes are gone, and new ones
    /// are another round.
    pub(crate) first_round: u32,
    /// Rounds before it without a complete block: they do not count towards the minimum.
    pub(crate) lost_rounds: u32,
    pub(crate) counts: Counts,
    /// The variants that have trials.
    pub(crate) measured: BTreeSet<VariantId>,
    /// The variants that never started.
    pub(crate) excluded: Vec<VariantFailure>,
    /// The part of the time limit that is used.
    pub(crate) used_ns: u64,
    /// The durations of trials.
    pub(crate) trials_took_ns: Vec<u64>,
}

impl Progress {
    /// Of a new run.
    pub(crate) fn none() -> Self {
        Self {
            first_round: 1,
            lost_rounds: 0,
            counts: Counts::default(),
            measured: BTreeSet::new(),
            excluded: Vec::new(),
            used_ns: 0,
            trials_took_ns: Vec::new(),
        }
    }

    /// Of an interrupted run.
    pub(crate) fn of(experiment: &Experiment, seed: u64, earlier: &Earlier<'_>) -> Self {
        let excluded = never_started(earlier.trials, earlier.failures);
        let blocks = complete_blocks(experiment, seed, earlier, &excluded);
        let rounds: BTreeSet<u32> = blocks.iter().map(|(round, _)| *round).collect();
        let failed = |record: &&TrialRecord| trial_failure(&record.outcome).is_some();
        let rounds = count(rounds.len());
        Self {
            first_round: earlier.last_round + 1,
            lost_rounds: earlier.last_round.saturating_sub(rounds),
            counts: Counts {
                rounds,
                blocks: count(blocks.len()),
                trials: count(earlier.trials.len()),
                failed_trials: count(earlier.trials.iter().filter(failed).count()),
            },
            measured: measured(earlier.trials),
            excluded,
            used_ns: earlier.used_ns,
            trials_took_ns: durations(earlier.trials),
        }
    }
}

/// The variants of a run that failed and have no trials: they are not tried again.
#[must_use]
pub fn never_started(trials: &[TrialRecord], failures: &[VariantFailure]) -> Vec<VariantFailure> {
    let measured = measured(trials);
    let mut first: BTreeMap<&VariantId, &VariantFailure> = BTreeMap::new();
    for failure in failures {
        if !measured.contains(&failure.variant) {
            first.entry(&failure.variant).or_insert(failure);
        }
    }
    first.into_values().cloned().collect()
}

fn measured(trials: &[TrialRecord]) -> BTreeSet<VariantId> {
    trials.iter().map(|t| t.trial.variant.clone()).collect()
}

/// The blocks, as round and number, of which every planned trial is on record.
fn complete_blocks(
    experiment: &Experiment,
    seed: u64,
    earlier: &Earlier<'_>,
    excluded: &[VariantFailure],
) -> Vec<(u32, u32)> {
    let mut measured: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for TrialRecord { trial, .. } in earlier.trials {
        *measured.entry((trial.round, trial.block)).or_default() += 1;
    }
    let is_complete = |((round, block), trials): ((u32, u32), usize)| {
        let failures = earlier.failures.iter();
        let absent = failures.filter(|f| f.round == round && !is_after_trials(&f.reason));
        let absent = absent.chain(excluded).map(|f| f.variant.clone()).collect();
        let planned = meshtax_plan::block(experiment, seed, round, block, &absent);
        (trials >= planned.trials.len()).then_some((round, block))
    };
    measured.into_iter().filter_map(is_complete).collect()
}

/// Whether the failure was found at the end of a round in which the variant was measured.
fn is_after_trials(reason: &VariantFailureReason) -> bool {
    matches!(reason, VariantFailureReason::LostByRoundEnd { .. })
}

/// From the start of each trial to that of the next in its block.
fn durations(trials: &[TrialRecord]) -> Vec<u64> {
    let block = |record: &TrialRecord| (record.trial.round, record.trial.block);
    let pairs = trials.windows(2).filter(|p| block(&p[0]) == block(&p[1]));
    let took = pairs.map(|pair| {
        let took_ms = pair[1].started_unix_ms.checked_sub(pair[0].started_unix_ms);
        took_ms.map(|ms| ms.saturating_mul(1_000_000))
    });
    took.flatten().collect()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
