//! When a run may end because its intervals are narrow enough, and how that affects their coverage.
//!
//! The rule uses only the widths of the intervals, not their positions. It still costs coverage: the
//! width is an estimate, and a run ends when it happens to be small (Chow and Robbins 1965). So
//!
//! - widths are checked after growing numbers of rounds ([`GROWTH`]), not after each: fewer
//!   chances to end too early, and less to compute;
//! - a run that ended this way spends only a part of the nominal error ([`crate::interval::ERROR_SHARE`]), in its
//!   intervals and in its tests alike. The requested width is that of the wider interval.
//!
//! Simulated as in `examples/coverage/choices.rs`, with looks a fifth apart and the width of the plain
//! interval (20,000 runs per line, at least ten rounds, normal noise; with one round of ten five
//! times as noisy, the figures are within 0.005 of these). The requested half width is 0.5 of
//! the noise:
//!
//! | it ends                                         | covers at 95 % | at 96 % | mean rounds |
//! |-------------------------------------------------|----------------|---------|-------------|
//! | after any round at which it is narrow           | 0.937          | 0.950   | 17.9        |
//! | at a look at which it is narrow                 | 0.940          | 0.952   | 19.7        |
//! | at the look after one at which it was narrow    | 0.939          | 0.952   | 24.1        |
//! | at a look at which it is narrow a second time   | 0.942          | 0.954   | 24.7        |
//!
//! Continuing after the width was reached takes a quarter more rounds and restores almost no coverage.
//! Widening restores all of it for about 5 % of width.

use std::collections::BTreeSet;

use meshtax_model::analysis::{Analysis, Effect, NotEstimable, Verdict};
use meshtax_model::event::Ending;

use crate::analyse::analyse;
use crate::interval::UNITS_MIN;
use crate::run_data::RunData;

/// Measuring may stop on precision only after this many blocks.
pub const BLOCKS_BEFORE_STOPPING: u32 = 10;

/// The number of rounds grows by at least this from one look at the widths to the next.
pub const GROWTH: f64 = 1.1;

/// Whether a run checks its widths after this many rounds.
#[must_use]
pub fn looks(rounds: u32) -> bool {
    let mut look = UNITS_MIN as u32;
    while look < rounds {
        look = (f64::from(look) * GROWTH).ceil() as u32;
    }
    look == rounds
}

pub(crate) fn precision_reached(data: &RunData<'_>, half_width: f64) -> bool {
    let rounds: BTreeSet<u32> = data.trials.iter().map(|t| t.trial.round).collect();
    if !looks(u32::try_from(rounds.len()).unwrap_or(u32::MAX)) {
        return false;
    }
    // The width if the run ends here.
    let mut ended = data.clone();
    ended.run.ending = Some(Ending::PrecisionReached);
    narrow(&analyse(&ended), half_width)
}

/// Whether every primary effect is precise enough.
fn narrow(analysis: &Analysis, half_width: f64) -> bool {
    // Neither a variant without trials nor a load that was not carried becomes narrower.
    let is_decided = |effect: &Effect| {
        let is_about_the_load = matches!(
            effect.verdict,
            Verdict::Overloaded(_)
                | Verdict::NotEstimable {
                    reason: NotEstimable::BeyondMachine { .. }
                }
        );
        is_about_the_load
            || analysis
                .variants
                .iter()
                .any(|v| v.variant == effect.variant && v.excluded.is_some())
    };
    let mut waited_for = analysis
        .effects
        .iter()
        .filter(|effect| effect.primary && !is_decided(effect))
        .peekable();
    waited_for.peek().is_some()
        && analysis.blocks >= BLOCKS_BEFORE_STOPPING
        && analysis.rounds as usize >= UNITS_MIN
        && waited_for.all(|effect| narrower(effect, half_width))
}

/// An effect without an interval so far, such as an unresolved p99, keeps the run going.
fn narrower(effect: &Effect, half_width: f64) -> bool {
    let interval = effect.relative.and_then(|estimate| estimate.interval);
    effect.rounds as usize >= UNITS_MIN
        && interval.is_some_and(|i| (i.high - i.low) / 2.0 < half_width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_looks_become_less_frequent() {
        let at: Vec<u32> = (0..=40).filter(|rounds| looks(*rounds)).collect();
        assert_eq!(
            at,
            [6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37]
        );
    }
}
