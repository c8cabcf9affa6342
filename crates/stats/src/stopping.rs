//! When a run may end because its intervals are narrow enough, and what that does to them.
//!
//! The rule looks at widths only, never at where the intervals lie. Still it costs coverage: the
//! width is an estimate, and a run ends when it happens to be small (Chow and Robbins 1965). So
//!
//! - a run is looked at after growing numbers of rounds ([`GROWTH`]), not after each: fewer
//!   chances to end too early, and less to compute;
//! - a run that ended so spends only a part of the nominal error ([`ERROR_SHARE`]), in its
//!   intervals and in its tests alike. The width that is asked for is that of the wider interval.
//!
//! Simulated as in `examples/coverage/choices.rs`, with looks a fifth apart and the width of the plain
//! interval (20,000 runs per line, ten rounds at least, normal noise; with one round of ten five
//! times as loud, the figures are within 0.005 of these). The half width asked for is 0.5 of
//! the noise:
//!
//! | it ends                                         | covers at 95 % | at 96 % | mean rounds |
//! |-------------------------------------------------|----------------|---------|-------------|
//! | after any round at which it is narrow           | 0.937          | 0.950   | 17.9        |
//! | at a look at which it is narrow                 | 0.940          | 0.952   | 19.7        |
//! | at the look after one at which it was narrow    | 0.939          | 0.952   | 24.1        |
//! | at a look at which it is narrow a second time   | 0.942          | 0.954   | 24.7        |
//!
//! To go on after the width was met takes a quarter more rounds and gives back next to nothing.
//! Widening gives back all of it for about 5 % of width.

use std::collections::BTreeSet;

use meshtax_model::analysis::{Analysis, Effect};
use meshtax_model::event::Ending;

use crate::RunData;
use crate::analyse::analyse;
use crate::interval::UNITS_MIN;

/// Measuring may stop on precision only after this many blocks.
pub const BLOCKS_BEFORE_STOPPING: u32 = 10;

/// The number of rounds grows by at least this from one look at the widths to the next.
pub const GROWTH: f64 = 1.1;

/// The share of the nominal error that intervals and tests of a run use up that ended because it
/// was precise enough: its 95 % intervals are made as 96 % ones.
pub const ERROR_SHARE: f64 = 0.8;

/// Whether a run looks at its widths after so many rounds.
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
    // As wide as they will be if it ends here.
    let mut ended = data.clone();
    ended.run.ending = Some(Ending::PrecisionReached);
    narrow(&analyse(&ended), half_width)
}

/// Whether every primary effect is known well enough.
fn narrow(analysis: &Analysis, half_width: f64) -> bool {
    let left_out = |effect: &Effect| {
        analysis
            .variants
            .iter()
            .any(|v| v.variant == effect.variant && v.left_out.is_some())
    };
    let mut waited_for = analysis
        .effects
        .iter()
        .filter(|effect| effect.primary && !left_out(effect))
        .peekable();
    waited_for.peek().is_some()
        && analysis.blocks >= BLOCKS_BEFORE_STOPPING
        && analysis.rounds as usize >= UNITS_MIN
        && waited_for.all(|effect| narrower(effect, half_width))
}

/// An effect that has no interval yet, such as a p99 that is not resolved, is waited for.
fn narrower(effect: &Effect, half_width: f64) -> bool {
    let interval = effect.relative.and_then(|estimate| estimate.interval);
    effect.rounds as usize >= UNITS_MIN
        && interval.is_some_and(|i| (i.high - i.low) / 2.0 < half_width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_apart() {
        let at: Vec<u32> = (0..=40).filter(|rounds| looks(*rounds)).collect();
        assert_eq!(
            at,
            [6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37]
        );
    }
}
