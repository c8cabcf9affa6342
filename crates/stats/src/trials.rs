//! The records, judged and sorted by variant and load point.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_model::analysis::{
    Arm, ExclusionReason, InvalidReason, NotEstimable, RoundLog, Shortfall,
};
use meshtax_model::event::active_ns;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{LoadPoint, LoadPointId, Role, Variant, VariantId};
use meshtax_model::failure::VariantFailure;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{
    InjectedTime, LoadResult, ProxyConnections, ResourceSample, TrialOutcome, TrialRecord,
};

use crate::pairing::BlockKey;
use crate::run_data::RunData;
use crate::tails::Counts;
use crate::validity::{self, DISTURBED_SHARE_MAX, INVALID_SHARE_MAX};

/// A valid trial.
pub(crate) struct Trial<'a> {
    pub(crate) key: BlockKey,
    /// Its index among the records.
    pub(crate) order: usize,
    pub(crate) load: &'a LoadResult,
    /// What it lacked of its load; `None`: it carried it.
    pub(crate) short: Option<Shortfall>,
    pub(crate) response: Counts,
    pub(crate) sample: Option<&'a ResourceSample>,
    pub(crate) proxy_connections: Option<ProxyConnections>,
    pub(crate) injected: Option<InjectedTime>,
    pub(crate) replicas: &'a [u64],
}

/// A trial that the machine did not disturb, as far as its outcome is concerned.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) key: BlockKey,
    /// What it lacked of its load; `None`: it carried it.
    pub(crate) short: Option<Shortfall>,
    /// `None`: there was none, because the proxies had ended or took no connections.
    pub(crate) load: Option<&'a LoadResult>,
}

/// The trials of one variant at one load point.
#[derive(Default)]
pub(crate) struct Cell<'a> {
    pub(crate) valid: Vec<Trial<'a>>,
    /// Those without figures because the variant's proxies had ended, or took no connections.
    pub(crate) without_load: Vec<Attempt<'a>>,
    pub(crate) invalid: BTreeMap<InvalidReason, u32>,
    /// Those of rounds in which the variant could not be started: there is no record of them.
    not_started: u32,
}

impl<'a> Cell<'a> {
    pub(crate) fn valid_count(&self) -> u32 {
        u32::try_from(self.valid.len()).unwrap_or(u32::MAX)
    }

    /// Adds a trial as it was judged.
    fn add(
        &mut self,
        order: usize,
        record: &'a TrialRecord,
        sample: Option<&'a ResourceSample>,
        judged: Result<Option<Shortfall>, InvalidReason>,
    ) {
        let key = BlockKey::of_trial(&record.trial);
        match (judged, &record.outcome) {
            (
                Ok(short),
                TrialOutcome::Measured {
                    load,
                    proxy_connections,
                    injected,
                    replicas,
                    ..
                },
            ) => self.valid.push(Trial {
                key,
                order,
                load,
                short,
                response: Counts::from(&load.response),
                // What a process used that has ended is not known.
                sample: sample.filter(|_| !short.is_some_and(Shortfall::is_of_proxies)),
                proxy_connections: *proxy_connections,
                injected: *injected,
                replicas,
            }),
            (Ok(Some(short)), TrialOutcome::Failed { .. }) => self.without_load.push(Attempt {
                key,
                short: Some(short),
                load: None,
            }),
            (judged, _) => {
                let why = judged.err().unwrap_or(InvalidReason::Failed);
                *self.invalid.entry(why).or_default() += 1;
            }
        }
    }

    /// All trials that the machine did not disturb.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = Attempt<'a>> {
        let measured = self.valid.iter().map(|trial| Attempt {
            key: trial.key,
            short: trial.short,
            load: Some(trial.load),
        });
        measured.chain(self.without_load.iter().copied())
    }
}

/// `Some`: the share of invalid trials is so large that the rest may not be representative. `arm`: the side of the
/// cells.
pub(crate) fn too_many_invalid<'a>(
    arm: &Arm,
    cells: impl IntoIterator<Item = &'a Cell<'a>>,
) -> Option<NotEstimable> {
    let (mut invalid, mut disturbed, mut valid) = (0_u32, 0_u32, 0_u32);
    for cell in cells {
        valid = valid.saturating_add(cell.valid_count());
        // Rounds in which a variant happens to start may not be representative of it either.
        invalid = invalid.saturating_add(cell.not_started);
        for (why, count) in &cell.invalid {
            let sum = if why.is_by_hypervisor() {
                &mut disturbed
            } else {
                &mut invalid
            };
            *sum = sum.saturating_add(*count);
        }
    }
    let undisturbed = valid.saturating_add(invalid);
    // Of few trials, a single one is a large share and says nothing about the others.
    if invalid > 1 && f64::from(invalid) > INVALID_SHARE_MAX * f64::from(undisturbed) {
        return Some(NotEstimable::TooManyInvalid {
            arm: arm.clone(),
            invalid,
            trials: undisturbed,
        });
    }
    let all = undisturbed.saturating_add(disturbed);
    (f64::from(disturbed) > DISTURBED_SHARE_MAX * f64::from(all)).then(|| {
        NotEstimable::TooManyDisturbed {
            arm: arm.clone(),
            disturbed,
            trials: all,
        }
    })
}

/// The run's records, indexed.
pub(crate) struct Trials<'a> {
    pub(crate) data: &'a RunData<'a>,
    cells: BTreeMap<&'a VariantId, BTreeMap<&'a LoadPointId, Cell<'a>>>,
    empty: Cell<'a>,
    evidence: BTreeMap<(&'a VariantId, u32), &'a Evidence>,
    samples: BTreeMap<&'a TrialId, &'a ResourceSample>,
    /// Blocks that the machine disturbed, by load point.
    disturbed: BTreeMap<(BlockKey, &'a LoadPointId), InvalidReason>,
    /// What became of each trial, by round.
    rounds: BTreeMap<u32, RoundLog>,
    /// Records of variants or load points that the experiment does not have.
    pub(crate) unknown: u32,
}

impl<'a> Trials<'a> {
    pub(crate) fn new(data: &'a RunData<'a>) -> Self {
        let mut trials = Self {
            data,
            cells: BTreeMap::new(),
            empty: Cell::default(),
            // Of two probe runs in one round the later one is kept: the variant was retried.
            evidence: data
                .evidence
                .iter()
                .map(|seen| ((&seen.variant, seen.round), seen))
                .collect(),
            samples: data.samples.iter().map(|s| (&s.trial, s)).collect(),
            disturbed: BTreeMap::new(),
            rounds: BTreeMap::new(),
            unknown: 0,
        };
        trials.disturbed = trials.disturbed_blocks();
        let mut taken = BTreeSet::new();
        for (order, record) in data.trials.iter().enumerate() {
            trials.add(order, record, &mut taken);
        }
        trials.count_not_started();
        trials
    }

    /// Counts the trials that variants would have had in the rounds in which they could not be started: those of the other
    /// variants show how many.
    fn count_not_started(&mut self) {
        let failures = self.data.failures.iter();
        let failed: BTreeSet<_> = failures.map(|f| (&f.variant, f.round)).collect();
        for (variant, round) in failed {
            let of_round = || self.data.trials.iter().filter(|t| t.trial.round == round);
            if of_round().any(|record| record.trial.variant == *variant) {
                continue;
            }
            let mut blocks: BTreeMap<&LoadPointId, BTreeSet<u32>> = BTreeMap::new();
            for record in of_round() {
                let planned = &record.trial;
                let of_point = blocks.entry(&planned.load_point).or_default();
                of_point.insert(planned.block);
            }
            let points = self.cells.entry(variant).or_default();
            for (point, blocks) in blocks {
                let cell = points.entry(point).or_default();
                let blocks = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
                cell.not_started = cell.not_started.saturating_add(blocks);
            }
        }
    }

    fn disturbed_blocks(&self) -> BTreeMap<(BlockKey, &'a LoadPointId), InvalidReason> {
        let mut blocks: BTreeMap<(BlockKey, &LoadPointId), Vec<&ResourceSample>> = BTreeMap::new();
        for record in self.data.trials {
            let of_block = (BlockKey::of_trial(&record.trial), &record.trial.load_point);
            let sample = self.sample(&record.trial.id);
            blocks.entry(of_block).or_default().extend(sample);
        }
        let disturbed = blocks.into_iter();
        disturbed
            .filter_map(|(block, samples)| Some((block, validity::disturbed(&samples)?)))
            .collect()
    }

    fn add(
        &mut self,
        order: usize,
        record: &'a TrialRecord,
        taken: &mut BTreeSet<(&'a VariantId, &'a LoadPointId, BlockKey)>,
    ) {
        let planned = &record.trial;
        let experiment = self.data.experiment;
        let (Some(_), Some(point)) = (
            experiment.variant(&planned.variant),
            experiment.load_point(&planned.load_point),
        ) else {
            self.unknown = self.unknown.saturating_add(1);
            return;
        };
        let key = BlockKey::of_trial(planned);
        let sample = self.sample(&planned.id);
        let judged = if taken.insert((&planned.variant, &planned.load_point, key)) {
            self.judge(record, sample, point)
        } else {
            Err(InvalidReason::Repeated)
        };
        self.log(record, judged.as_ref().err().copied());
        let points = self.cells.entry(&planned.variant).or_default();
        let cell = points.entry(&planned.load_point).or_default();
        cell.add(order, record, sample, judged);
    }

    /// What a trial lacked of its load, or why it is not valid.
    fn judge(
        &self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
        point: &LoadPoint,
    ) -> Result<Option<Shortfall>, InvalidReason> {
        let planned = &record.trial;
        let evidence = self.evidence.get(&(&planned.variant, planned.round));
        if evidence.is_some_and(|seen| !seen.passed()) {
            return Err(InvalidReason::NotProven);
        }
        if self.was_lost(&planned.variant, planned.round) {
            return Err(InvalidReason::EvidenceLost);
        }
        let short = validity::judge(record, sample, point)?;
        let block = (BlockKey::of_trial(planned), &planned.load_point);
        match self.disturbed.get(&block) {
            Some(reason) => Err(*reason),
            None => Ok(short),
        }
    }

    /// Enters a trial into the log of its round. `invalid`: why it is not valid.
    fn log(&mut self, record: &TrialRecord, invalid: Option<InvalidReason>) {
        let run = &self.data.run;
        let at_ns = active_ns(
            run.started_unix_ms,
            &run.resumptions,
            record.started_unix_ms,
        );
        let round = record.trial.round;
        let log = self.rounds.entry(round).or_insert_with(|| RoundLog {
            round,
            at_ns,
            trials: 0,
            invalid: BTreeMap::new(),
            failed: Vec::new(),
        });
        log.at_ns = log.at_ns.min(at_ns);
        log.trials = log.trials.saturating_add(1);
        if let Some(why) = invalid {
            *log.invalid.entry(why).or_default() += 1;
        }
    }

    /// The course of the run. A round in which every variant failed has an entry without trials.
    pub(crate) fn round_log(&self) -> Vec<RoundLog> {
        let failed = self.data.failures.iter().map(|failure| failure.round);
        let numbers: BTreeSet<u32> = self.rounds.keys().copied().chain(failed).collect();
        // Nothing records when a round without trials began: not before the one that was measured last.
        let mut at_ns = 0;
        let rounds = numbers.into_iter().map(|round| {
            let mut log = self.rounds.get(&round).cloned().unwrap_or(RoundLog {
                round,
                at_ns,
                trials: 0,
                invalid: BTreeMap::new(),
                failed: Vec::new(),
            });
            at_ns = log.at_ns;
            let of_round = self.data.failures.iter().filter(|f| f.round == log.round);
            let failed: BTreeSet<&VariantId> = of_round.map(|failure| &failure.variant).collect();
            log.failed = failed.into_iter().cloned().collect();
            log
        });
        rounds.collect()
    }

    /// The resource sample of a trial, if there is one.
    pub(crate) fn sample(&self, trial: &TrialId) -> Option<&'a ResourceSample> {
        self.samples.get(trial).copied()
    }

    /// A round in which a variant was measured has a failure record only if its evidence was contradicted in it.
    pub(crate) fn was_lost(&self, variant: &VariantId, round: u32) -> bool {
        let mut failures = self.data.failures.iter();
        failures.any(|failure| failure.variant == *variant && failure.round == round)
    }

    pub(crate) fn cell(&self, variant: &VariantId, point: &LoadPointId) -> &Cell<'a> {
        self.cells
            .get(variant)
            .and_then(|points| points.get(point))
            .unwrap_or(&self.empty)
    }

    pub(crate) fn variants(&self) -> &'a [Variant] {
        &self.data.experiment.variants
    }

    pub(crate) fn points(&self) -> &'a [LoadPoint] {
        &self.data.experiment.load_points
    }

    pub(crate) fn by_role(&self, role: Role) -> impl Iterator<Item = &'a Variant> {
        self.variants().iter().filter(move |v| v.role == role)
    }

    pub(crate) fn evidence_of(&self, variant: &VariantId) -> impl Iterator<Item = &'a Evidence> {
        self.evidence
            .iter()
            .filter(move |((of, _), _)| *of == variant)
            .map(|(_, seen)| *seen)
    }

    pub(crate) fn failures_of(
        &self,
        variant: &VariantId,
    ) -> impl Iterator<Item = &'a VariantFailure> {
        self.data
            .failures
            .iter()
            .filter(move |failure| failure.variant == *variant)
    }

    /// Rounds in which a variant was measured, with valid or invalid trials.
    pub(crate) fn rounds_measured(&self, variant: &VariantId) -> BTreeSet<u32> {
        self.data
            .trials
            .iter()
            .filter(|record| record.trial.variant == *variant)
            .map(|record| record.trial.round)
            .collect()
    }

    /// Why a variant has no trials; `None`: it has some.
    pub(crate) fn excluded(&self, variant: &VariantId) -> Option<ExclusionReason> {
        if !self.rounds_measured(variant).is_empty() {
            return None;
        }
        let last = self.failures_of(variant).max_by_key(|f| f.round);
        Some(
            last.map_or(ExclusionReason::NoTrials, |last| ExclusionReason::Failed {
                round: last.round,
                failure: last.reason.clone(),
            }),
        )
    }

    /// Blocks with at least one valid trial.
    pub(crate) fn blocks(&self) -> BTreeSet<BlockKey> {
        self.all_valid().map(|trial| trial.key).collect()
    }

    /// Every valid trial of a variant, at any load point.
    pub(crate) fn valid_of<'s>(
        &'s self,
        variant: &VariantId,
    ) -> impl Iterator<Item = &'s Trial<'a>> {
        let cells = self.cells.get(variant);
        let cells = cells.into_iter().flat_map(BTreeMap::values);
        cells.flat_map(|cell| &cell.valid)
    }

    /// Every valid trial of the run.
    pub(crate) fn all_valid(&self) -> impl Iterator<Item = &Trial<'a>> {
        let cells = self.cells.values().flat_map(BTreeMap::values);
        cells.flat_map(|cell| &cell.valid)
    }
}
