//! The state of the machine during the run.

use serde::{Deserialize, Serialize};

use super::estimate::Metric;
use crate::experiment::LoadPointId;

/// The machine's speed, from the speed probes around all trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Median of the probes, in nanoseconds.
    pub median_ns: f64,
    /// From the 5th to the 95th percentile of the probes, relative to the median (0.1 is 10 %).
    pub spread: f64,
    /// Median of the last third of the run against the first: 0.05 is 5 % slower.
    pub drift: f64,
}

/// Variation between instances, from the logarithm of a metric of the baseline and its control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpread {
    /// At which load point.
    pub load_point: LoadPointId,
    /// The metric.
    pub metric: Metric,
    /// Standard deviation between rounds, beyond what blocks of one round explain, relative; 0: none
    /// detected. Without `within` the two cannot be separated, and this is both.
    pub between: f64,
    /// Standard deviation between blocks of one round, relative; `None`: no round has two blocks.
    pub within: Option<f64>,
}

/// Disturbances on the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseFacts {
    /// Steal time of the hypervisor, as a share of the machine's time.
    pub steal_share: Option<f64>,
    /// Time for which a CPU limit throttled the run's processes, as a share of the trials' time.
    pub throttled_share: Option<f64>,
    /// Time in which a task waited for memory, as a share of the windows.
    pub memory_pressure_share: Option<f64>,
    /// Processes outside the run, with their CPU as a share of one core over the
    /// trials; the busiest first, at most five. `None`: they were not visible.
    pub others: Option<Vec<(String, f64)>>,
    /// The machine's speed.
    pub speed: Option<Speed>,
    /// The lowest and the highest observed frequency, in kHz.
    pub frequency_khz: Option<[u64; 2]>,
    /// Variation between instances.
    pub instances: Vec<InstanceSpread>,
}
