//! The grammars of single values, one module each: as they are written in a spec and on the command line.

mod cost;
mod count;
mod distribution;
mod duration;
mod error;
mod limit;
mod name;
mod number;
mod objective;
mod quantity;
mod rate;
mod share;
mod size;
mod suggestion;

pub use cost::inject;
pub(crate) use cost::{COSTS, burn_steps, known_cost};
pub(crate) use count::in_range;
pub use count::{count, requests, workers};
pub use distribution::service_time;
pub(crate) use duration::pause_ns;
pub use duration::{duration_ns, seconds_ns, time_limit_ns, trial_ns, warmup_ns};
pub use error::ValueError;
pub(crate) use error::quoted;
pub use limit::{between, limit};
pub(crate) use name::{MAX_LENGTH as MAX_NAME_LENGTH, safe_name};
pub(crate) use number::within;
pub use objective::{hops, hourly_price, latency_goal, need, objective, priority, weight};
pub(crate) use quantity::{cpu_millis, memory_bytes};
pub use rate::{rate_per_s, unbounded_rate_per_s};
pub(crate) use share::isotope_share;
pub use share::{percent, percentage, precision, share};
pub use size::size_bytes;
pub(crate) use size::{isotope_response_bytes, response_bytes};
pub use suggestion::nearest;
pub(crate) use suggestion::{one_of, with_suggestion};
