//! Equivalence margins: the largest differences that do not matter, fixed before a run.

use serde::{Deserialize, Serialize};

/// The margin of each metric, as a share of the baseline (0.02 is 2 %).
///
/// A run cannot change them: a margin derived from the run's own noise would accept any cost that the noise hides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Margins {
    /// Of the median response latency.
    pub p50: f64,
    /// Of the mean response latency.
    pub mean: f64,
    /// Of the 90th percentile.
    pub p90: f64,
    /// Of the 99th percentile.
    pub p99: f64,
    /// Of the 99.9th percentile.
    pub p999: f64,
    /// Of the throughput.
    pub throughput: f64,
    /// Of CPU per request.
    pub cpu: f64,
    /// Of memory.
    pub memory: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            p50: 0.02,
            mean: 0.02,
            p90: 0.05,
            p99: 0.1,
            p999: 0.1,
            throughput: 0.02,
            cpu: 0.02,
            memory: 0.05,
        }
    }
}
