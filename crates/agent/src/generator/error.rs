//! Why there is no load, or no result of it.

use std::io;
use std::time::Duration;

use meshtax_model::failure::TrialFailure;

/// Why there is no load, or no result of it.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// It was not started.
    #[error("cannot start the load generator: {0}")]
    NotStarted(#[from] io::Error),
    /// Its connections could not be opened, because what accepts them did not: what failed, and the fix.
    #[error("load: {0}")]
    NotConnected(String),
    /// It reported another error instead of a result: what failed, and the fix.
    #[error("load: {0}")]
    Failed(String),
    /// It sent no message in time.
    #[error("the load generator did not respond within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It ended without a result.
    #[error("the load generator {0}")]
    Ended(String),
    /// Its message cannot be parsed.
    #[error("the load generator's message cannot be parsed: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A message of another kind was due.
    #[error("the load generator sent {sent} instead of {expected}")]
    OutOfOrder {
        /// The kind of message that was due.
        expected: &'static str,
        /// The message that came.
        sent: &'static str,
    },
    /// The generators of several clients do not share `CLOCK_MONOTONIC`.
    #[error(
        "the clients' pods have different clocks: they must be on one node, and in one time namespace"
    )]
    DifferentClocks,
    /// The generators of several clients did not start at the same instant: the order reached one too late.
    #[error("the load generators started up to {} ms apart: the machine was too busy to start them together", .apart_ns / 1_000_000)]
    NotTogether {
        /// Between the first and the last start, in nanoseconds.
        apart_ns: u64,
    },
}

impl From<GeneratorError> for TrialFailure {
    fn from(error: GeneratorError) -> Self {
        let detail = error.to_string();
        match error {
            GeneratorError::NotTogether { .. } => Self::NotTogether { detail },
            GeneratorError::NotConnected(_) => Self::NotConnected { detail },
            _ => Self::LoadFailed { detail },
        }
    }
}
