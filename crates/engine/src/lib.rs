//! Runs an experiment: an [`Engine`] starts variants and measures trials; the runner decides what is
//! measured next, passes every result to a [`Sink`] before the next trial starts, and ends in time.
//!
//! The runner is not aware of meshes, namespaces or clusters. Engines are not aware of the plan or
//! the store.
#![forbid(unsafe_code)]

mod clock;
mod earlier;
mod engine;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod interruption;
mod outcome;
mod pace;
mod pilot;
mod runner;
mod saturation;
mod sink;

pub use clock::{Clock, SystemClock};
pub use earlier::{Earlier, never_started};
pub use engine::{Engine, EngineError, Measured, RoundEnd, VariantStart};
pub use error::{NotComparable, NothingToCompare, PilotError, RunError};
pub use outcome::{Counts, RunOutcome};
pub use runner::{RunOptions, Watch, resume, run};
pub use sink::{Sink, SinkError};
