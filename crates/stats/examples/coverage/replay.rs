//! Real trials of four identical servers as experiments in which the truth is zero.
//!
//! An experiment is a stretch of neighbouring rounds. In each round the four instances are dealt
//! out to the two baselines and two candidates anew, so whatever the machine did, and however
//! the instances of a round differed, there is no effect.

use meshtax_stats::pairing::BlockKey;

use crate::noise::Noise;
use crate::pool::PoolTrial;
use crate::records::{Figures, Records};
use crate::synthetic::Cost;

/// The candidates' names.
pub(crate) const CANDIDATES: [Cost; 2] = [Cost::none("aa-3"), Cost::none("aa-4")];

const VARIANTS: usize = 4;

/// The trials by round. The run that they are of had rounds of one block.
pub(crate) struct Pool {
    rounds: Vec<Vec<PoolTrial>>,
}

impl Pool {
    /// The rounds whose only block is complete.
    pub(crate) fn new(trials: Vec<PoolTrial>) -> Self {
        let mut rounds: Vec<Vec<PoolTrial>> = Vec::new();
        for trial in trials {
            match rounds.last_mut() {
                Some(round) if round[0].round == trial.round => round.push(trial),
                _ => rounds.push(vec![trial]),
            }
        }
        let one_block = |round: &[PoolTrial]| round.iter().all(|trial| trial.block == 1);
        rounds.retain(|round| round.len() == 2 * VARIANTS && one_block(round));
        Self { rounds }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.len()
    }
}

/// A contiguous part of the pool, block by block.
pub(crate) struct Replay<'a> {
    pool: &'a Pool,
    noise: Noise,
    from: usize,
    dealt: (u32, [usize; VARIANTS]),
}

impl<'a> Replay<'a> {
    /// A stretch of at most so many rounds.
    pub(crate) fn new(pool: &'a Pool, mut noise: Noise, rounds: u32) -> Self {
        let starts = (pool.rounds.len() + 1).saturating_sub(rounds as usize);
        Self {
            pool,
            from: noise.index(starts),
            noise,
            dealt: (0, [0, 1, 2, 3]),
        }
    }

    pub(crate) fn block(&mut self, key: BlockKey, into: &mut Records) {
        if self.dealt.0 != key.round {
            self.dealt.0 = key.round;
            self.noise.shuffle(&mut self.dealt.1);
        }
        let round = &self.pool.rounds[self.from + key.round as usize - 1];
        for (trial, position) in round.iter().zip(1..) {
            into.push(&Figures {
                key,
                position,
                variant: self.dealt.1[trial.variant],
                point: trial.point,
                window_ns: trial.window_ns,
                completed: trial.completed,
                unanswered: 0,
                cpu_ns: trial.cpu_ns,
                steal_ns: 0,
                latencies_ns: if trial.latencies_ns.is_empty() {
                    &[1_000_000]
                } else {
                    &trial.latencies_ns
                },
                speed_probe_ns: trial.speed_probe_ns,
            });
        }
    }
}
