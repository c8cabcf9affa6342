//! Whether a variant fell short more often than the baselines, beyond chance: an exact permutation test.
//!
//! The null hypothesis: without a difference, it does not matter which of the processes that were measured in a unit
//! (a round, or a block where there are few rounds) is the variant's. Given what all of them did in the unit, each is
//! equally likely to be it, independently of the other units. The statistic is the sum of the variant's shares of short
//! trials over the units; its distribution under the null hypothesis is enumerated, and the p-value is the probability of a
//! sum at least as large as the one that was seen.
//!
//! With one trial for each process, the variant's trial is a draw from the unit's: if `k` of its `n` trials fell short, so did
//! the variant's with probability `k / n`. This is Fisher's exact test (one-sided), stratified by unit. A lone short trial among
//! three is the variant's with probability 1/3, not 1/2: there are two baselines. Where one of them has no undisturbed
//! trial, there are two processes, and it is 1/2; a unit without a baseline, or in which all did the same, decides nothing.
//! In units of several trials for each process, whole processes are exchanged, not trials: one that was started badly
//! falls short again and again.

use std::collections::BTreeMap;

use crate::pairing::BlockKey;

/// One process in each unit: its short trials, and all, which is at least one.
pub(crate) type Counts = BTreeMap<BlockKey, [u32; 2]>;

/// Shares are multiples of its reciprocal. It is divisible by every number up to 16: shares of so many trials add up
/// without rounding.
const SCALE: u64 = 720_720;

fn score([short, of]: [u32; 2]) -> u64 {
    u64::from(short) * SCALE / u64::from(of.max(1))
}

/// One-sided: of "the variant falls short no more often than the baselines".
pub(crate) fn p_value(own: &Counts, baselines: &[Counts]) -> f64 {
    // The probability of each sum of shares.
    let mut chances = BTreeMap::from([(0, 1.0)]);
    let (mut seen, mut units) = (0, 0);
    for (key, counts) in own {
        let of_variant = score(*counts);
        let theirs = baselines.iter().filter_map(|counts| counts.get(key));
        let theirs: Vec<u64> = theirs.map(|counts| score(*counts)).collect();
        if theirs.iter().all(|theirs| *theirs == of_variant) {
            continue;
        }
        let processes = theirs.len() as f64 + 1.0;
        let mut next = BTreeMap::new();
        for (sum, chance) in &chances {
            for score in theirs.iter().chain([&of_variant]) {
                *next.entry(sum + score).or_default() += chance / processes;
            }
        }
        chances = next;
        seen += of_variant;
        units += 1;
    }
    // Each share may have been rounded down.
    let as_large = chances.range(seen.saturating_sub(units)..);
    as_large.map(|(_, chance)| chance).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Short trials and all of the variant and its baselines, by unit.
    fn p(units: &[&[[u32; 2]]]) -> f64 {
        let of_process = |process: usize| -> Counts {
            let rounds = (1..).zip(units);
            let counts = rounds.filter_map(|(round, unit)| {
                Some((BlockKey { round, block: 0 }, *unit.get(process)?))
            });
            counts.collect()
        };
        p_value(&of_process(0), &[of_process(1), of_process(2)])
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    const GOOD: [u32; 2] = [0, 1];
    const SHORT: [u32; 2] = [1, 1];

    #[test]
    fn lone_short_trial_is_the_variants_with_the_probability_of_its_share_of_trials() {
        let lone: &[[u32; 2]] = &[SHORT, GOOD, GOOD];
        assert_near(p(&[lone]), 1.0 / 3.0);
        assert_near(p(&[lone; 4]), 3.0_f64.powi(-4));
        // With one baseline, it is one of two.
        assert_near(p(&[&[SHORT, GOOD], lone]), 1.0 / 6.0);
        // Two of three: the variant is one of them with probability 2/3.
        assert_near(p(&[&[SHORT, SHORT, GOOD], lone]), 2.0 / 9.0);
    }

    #[test]
    fn units_in_which_all_did_the_same_decide_nothing() {
        assert_near(p(&[]), 1.0);
        assert_near(p(&[&[SHORT]]), 1.0);
        assert_near(p(&[&[SHORT; 3], &[GOOD; 3]]), 1.0);
        assert_near(p(&[&[GOOD, SHORT, GOOD]]), 1.0);
    }

    #[test]
    fn p_value_is_the_tail_of_a_stratified_hypergeometric_distribution() {
        // Three lone short trials, two of them the variant's: binomial with 1/3, at least two of three.
        let other: &[[u32; 2]] = &[GOOD, SHORT, GOOD];
        let lone: &[[u32; 2]] = &[SHORT, GOOD, GOOD];
        assert_near(p(&[lone, lone, other]), 7.0 / 27.0);
    }

    #[test]
    fn processes_are_exchanged_as_a_whole() {
        // One bad process among three in one unit, however often it fell short.
        assert_near(p(&[&[[8, 8], [0, 8], [0, 8]]]), 1.0 / 3.0);
        // Shares count where trials are missing: 1/2 is more than 3/8.
        assert_near(p(&[&[[1, 2], [3, 8], [0, 8]]]), 1.0 / 3.0);
        assert_near(p(&[&[[3, 8], [1, 2], [0, 8]]]), 2.0 / 3.0);
    }
}
