//! Paired effects: per block, then per round.
//!
//! A block holds every variant close together in time, so what the machine does to a block it
//! does to all of them, and the difference cancels it. Restarting a process moves its results
//! (Kalibera and Jones 2013), which blocks of the same processes cannot show: so the blocks
//! of a round are averaged, and the rounds are what is counted.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_model::plan::PlannedTrial;

use crate::interval::{Inference, Method, UNITS_MIN, mean};

/// The position of a trial in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// Counts from 1.
    pub round: u32,
    /// Counts from 1 within its round.
    pub block: u32,
}

impl BlockKey {
    pub(crate) fn of_trial(trial: &PlannedTrial) -> Self {
        Self {
            round: trial.round,
            block: trial.block,
        }
    }
}

/// One figure per block, of one variant at one load point.
pub type ByBlock = BTreeMap<BlockKey, f64>;

/// What inference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Processes differ from round to round: the figures speak of the variant.
    Round,
    /// Fewer than six rounds: the figures speak of these processes only.
    Block,
}

impl Unit {
    /// Rounds where there are six of them, blocks otherwise.
    #[must_use]
    pub fn for_blocks<'a>(blocks: impl IntoIterator<Item = &'a BlockKey>) -> Self {
        let rounds: BTreeSet<u32> = blocks.into_iter().map(|key| key.round).collect();
        if rounds.len() >= UNITS_MIN {
            Self::Round
        } else {
            Self::Block
        }
    }

    /// To which unit a block belongs.
    #[must_use]
    pub fn of(self, key: BlockKey) -> BlockKey {
        match self {
            Self::Round => BlockKey { block: 0, ..key },
            Self::Block => key,
        }
    }
}

/// The effect in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Where.
    pub key: BlockKey,
    /// The arm minus the references' arithmetic mean, in the metric's unit.
    pub difference: f64,
    /// Logarithm of the arm to the references' geometric mean.
    pub log_ratio: f64,
}

/// The effect in each block that has the arm and at least one reference.
///
/// Where both baselines are valid their mean is the reference; where one is, that one is. The
/// log ratio goes to the geometric mean: with the arithmetic one, noise in the references
/// alone would look like a gain. Figures that are not above zero have no logarithm and make
/// no pair; an effect whose valid trials have such figures is not estimated from the others.
#[must_use]
pub fn pairs(arm: &ByBlock, references: &[&ByBlock]) -> Vec<Pair> {
    let usable = |value: &&f64| value.is_finite() && **value > 0.0;
    arm.iter()
        .filter(|(_, value)| usable(value))
        .filter_map(|(key, value)| {
            let levels: Vec<f64> = references
                .iter()
                .filter_map(|reference| reference.get(key).filter(usable).copied())
                .collect();
            let logs: Vec<f64> = levels.iter().map(|level| level.ln()).collect();
            Some(Pair {
                key: *key,
                difference: value - mean(&levels)?,
                log_ratio: value.ln() - mean(&logs)?,
            })
        })
        .collect()
}

/// An effect over the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// In the metric's unit.
    pub difference: Inference,
    /// As a log ratio.
    pub log_ratio: Inference,
    /// Rounds with a pair.
    pub rounds: u32,
    /// Blocks with a pair.
    pub blocks: u32,
}

impl Paired {
    /// The same, of a run that was ended because its intervals were narrow.
    #[must_use]
    pub fn after_stopping(self) -> Self {
        Self {
            difference: self.difference.after_stopping(),
            log_ratio: self.log_ratio.after_stopping(),
            ..self
        }
    }
}

/// Averages blocks within rounds and infers over rounds, each with the same weight.
///
/// `None` if there are no pairs.
#[must_use]
pub fn infer(pairs: &[Pair], inference: Method) -> Option<Paired> {
    let unit = Unit::for_blocks(pairs.iter().map(|pair| &pair.key));
    Some(Paired {
        difference: inference(&unit_means(pairs, unit, |pair| pair.difference))?,
        log_ratio: inference(&unit_means(pairs, unit, |pair| pair.log_ratio))?,
        rounds: count_rounds(pairs.iter().map(|pair| &pair.key)),
        blocks: u32::try_from(pairs.len()).unwrap_or(u32::MAX),
    })
}

/// How many rounds these blocks are in.
#[must_use]
pub fn count_rounds<'a>(blocks: impl IntoIterator<Item = &'a BlockKey>) -> u32 {
    let rounds: BTreeSet<u32> = blocks.into_iter().map(|key| key.round).collect();
    u32::try_from(rounds.len()).unwrap_or(u32::MAX)
}

fn unit_means(pairs: &[Pair], unit: Unit, figure: impl Fn(&Pair) -> f64) -> Vec<f64> {
    means_by(unit, pairs.iter().map(|pair| (pair.key, figure(pair))))
}

/// The means of figures over their rounds, or over their blocks where there are fewer than six rounds.
pub(crate) fn unit_means_of(figures: impl Iterator<Item = (BlockKey, f64)>) -> Vec<f64> {
    let figures: Vec<(BlockKey, f64)> = figures.collect();
    let unit = Unit::for_blocks(figures.iter().map(|(key, _)| key));
    means_by(unit, figures.into_iter())
}

fn means_by(unit: Unit, figures: impl Iterator<Item = (BlockKey, f64)>) -> Vec<f64> {
    let mut units: BTreeMap<BlockKey, Vec<f64>> = BTreeMap::new();
    for (key, figure) in figures {
        units.entry(unit.of(key)).or_default().push(figure);
    }
    units.values().filter_map(|values| mean(values)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::Spread;

    fn key(round: u32, block: u32) -> BlockKey {
        BlockKey { round, block }
    }

    #[test]
    fn reference_is_the_mean_of_the_valid_baselines() {
        let arm = ByBlock::from([(key(1, 1), 120.0), (key(1, 2), 120.0), (key(1, 3), 120.0)]);
        let one = ByBlock::from([(key(1, 1), 90.0), (key(1, 2), 100.0)]);
        let two = ByBlock::from([(key(1, 1), 110.0)]);
        let pairs = pairs(&arm, &[&one, &two]);
        assert_eq!(pairs.len(), 2, "the third block has no baseline");
        assert_eq!(pairs[0].difference, 20.0);
        let geometric = (90.0_f64 * 110.0).sqrt();
        assert!((pairs[0].log_ratio - (120.0 / geometric).ln()).abs() < 1e-12);
        assert_eq!(pairs[1].difference, 20.0);
    }

    #[test]
    fn figures_without_a_logarithm_are_not_paired() {
        let arm = ByBlock::from([(key(1, 1), 0.0), (key(1, 2), f64::NAN), (key(1, 3), 5.0)]);
        let base = ByBlock::from([(key(1, 1), 5.0), (key(1, 2), 5.0), (key(1, 3), -1.0)]);
        assert!(pairs(&arm, &[&base]).is_empty());
        assert_eq!(infer(&[], Inference::of_mean), None);
    }

    fn degrees_of_freedom(paired: &Paired) -> f64 {
        match paired.difference.spread {
            Some(Spread::Student(student)) => student.degrees_of_freedom,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rounds_have_equal_weight_regardless_of_block_count() {
        let mut pairs = Vec::new();
        for round in 1..=6 {
            // Round 1 has ten blocks with the value 7; the others have one with the value 1.
            let blocks = if round == 1 { 10 } else { 1 };
            for block in 1..=blocks {
                let difference = if round == 1 { 7.0 } else { 1.0 };
                pairs.push(Pair {
                    key: key(round, block),
                    difference,
                    log_ratio: 0.0,
                });
            }
        }
        let paired = infer(&pairs, Inference::of_mean).unwrap();
        assert_eq!(paired.difference.estimate, 2.0);
        assert_eq!((paired.rounds, paired.blocks), (6, 15));
        assert_eq!(degrees_of_freedom(&paired), 5.0, "rounds count, not blocks");
    }

    #[test]
    fn below_six_rounds_blocks_are_the_units_and_below_six_blocks_there_is_no_interval() {
        let pair = |round, block| Pair {
            key: key(round, block),
            difference: f64::from(block),
            log_ratio: 0.0,
        };
        let blocks: Vec<Pair> = (1..=5).flat_map(|r| [pair(r, 1), pair(r, 2)]).collect();
        let paired = infer(&blocks, Inference::of_mean).unwrap();
        assert_eq!(degrees_of_freedom(&paired), 9.0);
        assert_eq!(paired.rounds, 5);
        assert_eq!(
            infer(&blocks[..5], Inference::of_mean)
                .unwrap()
                .difference
                .spread,
            None
        );
    }
}
