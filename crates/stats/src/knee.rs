//! The knee: the highest rate at which a percentile of latency stays below a limit.
//!
//! A state machine without clock or I/O: [`Search::next`] returns the next step, [`Search::observe`]
//! records its result, and [`Search::done`] returns the final result. The rate grows by a factor until it is
//! too high, then the bracket is halved (on a logarithmic scale) until it is narrow.
//!
//! # Robustness against noise
//!
//! A step's percentile is an estimate. Whether it is below the limit is decided by an interval on
//! order statistics: the number of samples above the limit, compared with the number expected if the limit
//! were the percentile (binomial, Clopper and Pearson 1934). Successive latencies are
//! correlated, so their effective number is lower: the counts are divided by how much more
//! they vary between the parts of a step than independent ones would. A rate whose interval contains
//! the limit is offered again, and all its steps are judged together. If that is inconclusive
//! after several steps, the rate is inside the resulting interval, whose ends are rates that were offered
//! at least three times, the lower found good and the upper too high.
//!
//! Coverage of the true knee: `interval_contains_the_knee` in the tests,
//! with a simulated queue whose knee is known.

mod rate;
mod search;
mod step;

pub use rate::Verdict;
pub use search::{Knee, Search, Settings};
pub use step::{Limit, RateStep, StepPart, StepResult};
