//! The analysis of a run's records: validity, paired effects, intervals, tails and CPU accounting.
//!
//! Pure: the same records always give the same [`Analysis`]. The path of a figure is
//!
//! ```text
//! trials -> validity -> outcome -> pairing (per block) -> rounds -> interval -> family (Holm) -> verdict
//!                              \-> tails (merged histograms, rounds left out one at a time) -/
//! ```
//!
//! # What a run can detect
//!
//! A delay of 15 % of the p50 must be detected although it has to exceed the noise floor (the
//! largest end of the A/A pair's interval) and to survive Holm's adjustment. How often it is detected,
//! by the relative standard deviation of one trial's p50, as the only effect of a family of
//! four, with processes that differ by 1 % (`examples/coverage/choices.rs`, 4,000 runs each):
//!
//! | rounds x blocks | 3 %   | 5 %   | 6 %   | 8 %   | 3 %, one round of ten five times as loud |
//! |-----------------|-------|-------|-------|-------|------------------------------------------|
//! | 6 x 1           | 0.999 | 0.863 | 0.668 | 0.360 | 0.778                                    |
//! | 6 x 2           | 1.000 | 0.992 | 0.961 | 0.749 | 0.891                                    |
//! | 8 x 1           | 1.000 | 0.977 | 0.914 | 0.630 | 0.854                                    |
//! | 8 x 2           | 1.000 | 1.000 | 0.997 | 0.936 | 0.955                                    |
//! | 10 x 1          | 1.000 | 0.997 | 0.975 | 0.810 | 0.906                                    |
//! | 10 x 2          | 1.000 | 1.000 | 1.000 | 0.983 | 0.987                                    |
//! | 14 x 1          | 1.000 | 1.000 | 0.999 | 0.956 | 0.978                                    |
//! | 14 x 2          | 1.000 | 1.000 | 1.000 | 1.000 | 0.999                                    |
//!
//! [`analyse`] runs all steps. The modules are public so that the simulations in
//! `examples/coverage/` and the tests exercise exactly the code behind the reports.

#![forbid(unsafe_code)]

pub mod account;
mod added_cpu;
pub mod advise;
mod analyse;
mod attribution;
pub mod between;
mod caveats;
mod cluster;
mod differing;
mod effects;
mod elsewhere;
mod exchange;
mod exclusions;
pub mod family;
pub mod gate;
mod ground_truth;
mod growth;
mod ingress;
pub mod interleaved;
pub mod interval;
pub mod knee;
mod memory;
mod noise;
mod outcome;
pub mod pairing;
mod points;
pub mod power;
mod ranking;
mod run_data;
pub mod saturation;
pub mod scaling;
pub mod shortfall;
mod sides;
pub mod signed_rank;
pub mod stopping;
mod study;
pub mod tails;
mod timeline;
mod trials;
mod truncated;
mod upkeep;
pub mod validity;
mod verdict;

pub use differing::{Conditions, changed_conditions};
pub use run_data::RunData;

use meshtax_model::analysis::Analysis;

/// Computes all figures of a report.
///
/// Never panics: bad or missing records become invalid trials, effects that are not
/// estimable, or caveats.
#[must_use]
pub fn analyse(data: &RunData<'_>) -> Analysis {
    analyse::analyse(data)
}

/// Whether measuring may stop because every primary effect is precise enough.
///
/// Uses only the widths of the intervals, not their positions, and not after every round; [`stopping`]
/// describes the rule and its effect on coverage. At least ten blocks and six rounds are measured in
/// any case, since the width itself is an estimate. A variant that was excluded in all rounds does
/// not delay the end.
#[must_use]
pub fn precision_reached(data: &RunData<'_>, half_width: f64) -> bool {
    stopping::precision_reached(data, half_width)
}
