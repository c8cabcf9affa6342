//! How many blocks and rounds the time allows, from the durations so far. Pure.

use meshtax_model::event::RoundTotal;
use meshtax_model::experiment::Design;

/// Overhead of a trial beyond its warm-up and window, until the first one is measured.
const OVERHEAD_GUESS_NS: u64 = 100_000_000;

/// With fewer than the minimum number of rounds, intervals are computed over blocks: six are needed, and two more allow for invalid trials.
const BLOCKS_WITHOUT_ROUNDS: u64 = 8;

/// A running mean.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }

    fn or(&self, guess: u64) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(guess)
    }
}

/// An estimate of the remaining work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forecast {
    /// Trials, including the one that starts now.
    pub(crate) trials: u64,
    /// Time until the last of them has ended.
    pub(crate) left_ns: u64,
}

/// The position of a run within a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Counts from 1.
    pub(crate) round: u32,
    /// Blocks of earlier rounds.
    pub(crate) blocks_before: u32,
    /// Blocks that are complete in this round.
    pub(crate) blocks_done: u32,
    /// Trials in a block of this round.
    pub(crate) block_trials: u64,
    /// Trials done in the current block.
    pub(crate) trials_done: u64,
}

/// Running means of set-up, trials and ends of rounds, and the time limit.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    limit_ns: u64,
    min_rounds: u32,
    max_blocks: u32,
    trial_guess_ns: u64,
    setup: Mean,
    trial: Mean,
    end: Mean,
}

impl Pace {
    /// `min_rounds`: the number of the round by which the run may end.
    pub(crate) fn new(design: &Design, min_rounds: u32) -> Self {
        Self {
            limit_ns: design.time_limit_ns,
            min_rounds: min_rounds.max(1),
            max_blocks: design.blocks_per_round.max(1),
            trial_guess_ns: design
                .trial_ns
                .saturating_add(design.warmup_ns)
                .saturating_add(OVERHEAD_GUESS_NS),
            setup: Mean::default(),
            trial: Mean::default(),
            end: Mean::default(),
        }
    }

    pub(crate) fn setup_took(&mut self, ns: u64) {
        self.setup.add(ns);
    }

    pub(crate) fn trial_took(&mut self, ns: u64) {
        self.trial.add(ns);
    }

    pub(crate) fn end_took(&mut self, ns: u64) {
        self.end.add(ns);
    }

    fn trial_ns(&self) -> u64 {
        self.trial.or(self.trial_guess_ns)
    }

    fn block_ns(&self, trials: u64) -> u64 {
        self.trial_ns().saturating_mul(trials).max(1)
    }

    /// Time of a round without its blocks.
    fn round_ns(&self) -> u64 {
        self.setup.or(0).saturating_add(self.end.or(0))
    }

    fn left_ns(&self, elapsed_ns: u64) -> u64 {
        self.limit_ns.saturating_sub(elapsed_ns)
    }

    /// Whether one more block, and the end of its round, fit into the time.
    pub(crate) fn block_fits(&self, elapsed_ns: u64, trials: u64) -> bool {
        self.block_ns(trials).saturating_add(self.end.or(0)) <= self.left_ns(elapsed_ns)
    }

    /// Whether one more round with at least one block fits into the time.
    pub(crate) fn round_fits(&self, elapsed_ns: u64, trials: u64) -> bool {
        self.round_ns().saturating_add(self.block_ns(trials)) <= self.left_ns(elapsed_ns)
    }

    /// Blocks for the current round, from 1 to the design's number.
    ///
    /// Rounds are the unit of inference, so a round gets only as many blocks as keep set-up
    /// under a quarter of the time, and fewer if the minimum number of rounds would not fit
    /// otherwise. Where that number does not fit at all, as on a cluster in a minute, there are fewer rounds, with as many
    /// blocks as intervals need.
    pub(crate) fn blocks(&self, elapsed_ns: u64, at: Position) -> u32 {
        let block = self.block_ns(at.block_trials);
        let wanted = self.round_ns().saturating_mul(3).div_ceil(block);
        let wanted = wanted.clamp(1, u64::from(self.max_blocks));
        let rounds_after = u64::from(self.min_rounds.saturating_sub(at.round));
        let done = u64::from(at.blocks_done);
        let needed = |blocks: u64, rounds_after: u64| {
            let here = blocks.saturating_sub(done).saturating_mul(block);
            let each = self.round_ns().saturating_add(blocks.saturating_mul(block));
            here.saturating_add(self.end.or(0))
                .saturating_add(each.saturating_mul(rounds_after))
        };
        let left = self.left_ns(elapsed_ns);
        let mut with_all_rounds = (1..=wanted).rev();
        let fitting = with_all_rounds.find(|blocks| needed(*blocks, rounds_after) <= left);
        let blocks = fitting.unwrap_or_else(|| {
            let missing = BLOCKS_WITHOUT_ROUNDS.saturating_sub(u64::from(at.blocks_before));
            let among = |rounds: u64| {
                let blocks = missing.div_ceil(rounds);
                blocks.clamp(1, u64::from(self.max_blocks))
            };
            let mut fewer = (0..rounds_after).rev();
            let after = fewer.find(|after| needed(among(after + 1), *after) <= left);
            among(after.unwrap_or(0) + 1)
        });
        u32::try_from(blocks).unwrap_or(1)
    }

    /// The total number of rounds when the round `next` is about to start, after as many blocks.
    pub(crate) fn rounds(
        &self,
        elapsed_ns: u64,
        next: (u32, u32),
        block_trials: u64,
    ) -> RoundTotal {
        let (round, blocks_before) = next;
        if self.setup.count == 0 {
            return RoundTotal::AtLeast(self.min_rounds.max(round));
        }
        let at = Position {
            round,
            blocks_before,
            blocks_done: 0,
            block_trials,
            trials_done: 0,
        };
        let blocks = u64::from(self.blocks(elapsed_ns.saturating_add(self.setup.or(0)), at));
        let (full, partial) = self.rounds_in(self.left_ns(elapsed_ns), blocks, block_trials);
        let more = full + u64::from(partial > 0);
        let more = u32::try_from(more.max(1)).unwrap_or(u32::MAX);
        RoundTotal::Expected((round - 1).saturating_add(more))
    }

    /// Full rounds that fit into a time, and the blocks of a shorter final one.
    fn rounds_in(&self, ns: u64, blocks: u64, block_trials: u64) -> (u64, u64) {
        let block = self.block_ns(block_trials);
        let each = self.round_ns().saturating_add(blocks.saturating_mul(block));
        let full = ns / each;
        let partial = (ns % each).saturating_sub(self.round_ns()) / block;
        (full, partial)
    }

    /// The remaining work when a trial starts.
    pub(crate) fn forecast(&self, elapsed_ns: u64, at: Position) -> Forecast {
        let block = self.block_ns(at.block_trials);
        let trials_here = at.block_trials.saturating_sub(at.trials_done);
        let here_ns = trials_here.saturating_mul(self.trial_ns());
        let after_block = elapsed_ns.saturating_add(here_ns);
        let blocks = self.blocks(elapsed_ns, at);
        let more = u64::from(blocks.saturating_sub(at.blocks_done.saturating_add(1)));
        let more = more.min(self.left_ns(after_block.saturating_add(self.end.or(0))) / block);
        let round_ns = here_ns
            .saturating_add(more.saturating_mul(block))
            .saturating_add(self.end.or(0));
        let left = self.left_ns(elapsed_ns.saturating_add(round_ns));
        let (full, partial) = self.rounds_in(left, u64::from(blocks), at.block_trials);
        let rounds = full + u64::from(partial > 0);
        let all_blocks = more
            .saturating_add(full.saturating_mul(u64::from(blocks)))
            .saturating_add(partial);
        let later_blocks = all_blocks - more;
        Forecast {
            trials: trials_here.saturating_add(all_blocks.saturating_mul(at.block_trials)),
            left_ns: round_ns
                .saturating_add(rounds.saturating_mul(self.round_ns()))
                .saturating_add(later_blocks.saturating_mul(block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn design(time_s: u64, min_rounds: u32, blocks: u32) -> Design {
        Design {
            min_rounds,
            blocks_per_round: blocks,
            trial_ns: SECOND / 2,
            warmup_ns: SECOND / 10,
            time_limit_ns: time_s * SECOND,
            requests_per_trial: None,
            precision: None,
        }
    }

    fn seen(design: &Design, setup_ns: u64, trial_ns: u64) -> Pace {
        let mut pace = Pace::new(design, design.min_rounds);
        pace.setup_took(setup_ns);
        pace.trial_took(trial_ns);
        pace
    }

    fn at(round: u32, blocks_done: u32) -> Position {
        Position {
            round,
            blocks_before: round.saturating_sub(1),
            blocks_done,
            block_trials: 10,
            trials_done: 0,
        }
    }

    #[test]
    fn fast_setup_gives_one_block_per_round() {
        let pace = seen(&design(1000, 6, 4), SECOND, SECOND);
        assert_eq!(pace.blocks(11 * SECOND, at(1, 1)), 1);
    }

    #[test]
    fn slow_setup_gives_more_blocks_per_round() {
        let pace = seen(&design(1000, 6, 4), 8 * SECOND, SECOND);
        assert_eq!(pace.blocks(18 * SECOND, at(1, 1)), 3);
        let pace = seen(&design(10_000, 6, 4), 80 * SECOND, SECOND);
        assert_eq!(pace.blocks(90 * SECOND, at(1, 1)), 4);
    }

    #[test]
    fn the_minimum_number_of_rounds_has_priority_over_blocks() {
        // Six rounds of 8 + 3 x 10 s are 228 s, of 8 + 2 x 10 s 168 s.
        let pace = seen(&design(170, 6, 4), 8 * SECOND, SECOND);
        assert_eq!(pace.blocks(18 * SECOND, at(1, 1)), 2);
    }

    #[test]
    fn fewer_rounds_have_the_blocks_that_intervals_need() {
        // Six rounds of 11 + 10 s are 126 s; two rounds of 11 + 4 x 10 s are 102 s, three of 11 + 3 x 10 s 123 s.
        let pace = seen(&design(110, 6, 8), 11 * SECOND, SECOND);
        assert_eq!(pace.blocks(11 * SECOND, at(1, 0)), 4);
        let second = Position {
            blocks_before: 4,
            ..at(2, 1)
        };
        assert_eq!(pace.blocks(72 * SECOND, second), 4);
        // No round ends in time: the time limit ends this one.
        let pace = seen(&design(30, 6, 8), 11 * SECOND, SECOND);
        assert_eq!(pace.blocks(11 * SECOND, at(1, 0)), 8);
    }

    #[test]
    fn number_of_rounds_is_a_minimum_until_one_was_set_up() {
        let mut pace = Pace::new(&design(120, 6, 2), 6);
        assert_eq!(pace.rounds(0, (1, 0), 10), RoundTotal::AtLeast(6));
        // A resumed run.
        assert_eq!(pace.rounds(0, (8, 7), 10), RoundTotal::AtLeast(8));
        pace.setup_took(SECOND / 10);
        pace.trial_took(SECOND / 2);
        // 115 s of rounds of 5.1 s.
        let second = pace.rounds(5 * SECOND, (2, 1), 10);
        assert_eq!(second, RoundTotal::Expected(1 + 22));
    }

    #[test]
    fn the_first_estimate_uses_planned_durations() {
        let mut pace = Pace::new(&design(120, 6, 2), 6);
        pace.setup_took(2 * SECOND);
        let forecast = pace.forecast(2 * SECOND, at(1, 0));
        assert_eq!(forecast.trials, 130);
        assert_eq!(forecast.left_ns, 115 * SECOND);
    }

    proptest! {
        #[test]
        fn no_overflow_and_the_forecast_stays_within_the_time_limit(
            time_s in 1_u64..100_000, rounds in 1_u32..20, blocks in 1_u32..9,
            setup in 0_u64..200 * SECOND, trial in 0_u64..60 * SECOND,
            elapsed in 0_u64..200_000 * SECOND, round in 1_u32..50, done in 0_u32..9,
        ) {
            let pace = seen(&design(time_s, rounds, blocks), setup, trial);
            let k = pace.blocks(elapsed, at(round, done));
            prop_assert!((1..=blocks).contains(&k));
            let RoundTotal::Expected(rounds) = pace.rounds(elapsed, (round, 0), 10) else {
                panic!("a round was set up");
            };
            prop_assert!(rounds >= round);
            let forecast = pace.forecast(elapsed, at(round, done));
            prop_assert!(forecast.trials >= 10);
            let limit = time_s * SECOND;
            let this_block = 10 * pace.trial_ns();
            prop_assert!(forecast.left_ns <= limit.saturating_sub(elapsed).max(this_block));
        }
    }
}
