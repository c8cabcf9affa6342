//! One variant at one load point.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cpu::CpuAccount;
use super::estimate::{Interval, Metric};
use super::outcome::{LoadOutcome, Shortfall};
use super::reason::{InvalidReason, NoLevel};
use crate::experiment::LoadPointId;
use crate::trial::ComponentRole;

/// The level of one metric, not a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The metric.
    pub metric: Metric,
    /// In the metric's unit; `None`: not resolved, see `reason`.
    pub value: Option<f64>,
    /// Of percentiles and throughput, over the rounds of this run; `None`: another metric, or fewer than six
    /// blocks. It applies to this run: variation between runs is not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Whether requests without a good response are missing from these latencies, or a queue was still growing when windows
    /// ended: then `value` and `interval` are lower bounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// Why there is no value.
    pub reason: Option<NoLevel>,
}

/// A point of a percentile curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Which quantile (0.99 for the p99).
    pub quantile: f64,
    /// Response latency in nanoseconds.
    pub value_ns: f64,
    /// Interval of the percentiles that studies publish, in nanoseconds, over the rounds of this run; `None`: a point
    /// of a curve, or fewer than six blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// CPU and memory of a group of processes, as studies publish them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The group.
    pub group: UsageGroup,
    /// CPU cores used, over the valid trials; over the steps of their windows if those last a second or more.
    pub cores: Extent,
    /// Anonymous pages of all processes and one copy of each program's file pages, in bytes, over the valid
    /// trials; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Extent>,
}

/// Groups of processes in studies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageGroup {
    /// The services and the proxies on their side: the pods of an application's namespace.
    Application,
    /// The proxy on the clients' side.
    ClientProxy,
    /// All of them.
    Path,
}

/// Minimum, mean and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// The minimum.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub max: f64,
}

/// The distribution of a trial's requests over a service's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of replicas.
    pub replicas: u32,
    /// Replicas that received requests, in the trial with the fewest.
    pub hit_min: u32,
    /// The same in the trial with the most.
    pub hit_max: u32,
    /// The busiest one's share of the requests: median over the trials. 1 / `replicas` if even.
    pub busiest_share: f64,
}

/// CPU and memory of one role over the window, over all valid trials of a load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleSeries {
    /// The role.
    pub role: ComponentRole,
    /// Mean CPU in each step, as a share of one core.
    pub cores: Vec<f64>,
    /// Median anonymous memory at the end of each step, in bytes; empty where it was not read.
    pub anonymous_bytes: Vec<u64>,
}

/// One variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Which load point.
    pub load_point: LoadPointId,
    /// Valid trials.
    pub valid: u32,
    /// Invalid trials by reason. They are recorded and reported, but not used.
    pub invalid: BTreeMap<InvalidReason, u32>,
    /// Valid trials that did not carry the load, by what they lacked. All figures include them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub short: BTreeMap<Shortfall, u32>,
    /// Whether the variant carried the load.
    #[serde(default)]
    pub outcome: LoadOutcome,
    /// Requests in the merged histogram.
    pub requests: u64,
    /// Offered requests per second over the valid trials (closed loop: as achieved).
    pub offered_per_s: f64,
    /// Completed requests per second over the valid trials.
    pub achieved_per_s: f64,
    /// Levels, from merged histograms.
    pub levels: Vec<Level>,
    /// Response latency over its quantiles, from merged histograms, up to where too few requests remain
    /// above; empty in a closed loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// The percentiles of response latency that studies publish, in a closed loop as well, as far as they are resolved;
    /// empty without a study. In a closed loop they contain no more information than the throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<CurvePoint>,
    /// The same percentiles of the time to the response's first byte, from the actual send time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_byte: Vec<CurvePoint>,
    /// The longest response latency in nanoseconds: of one request. `None` without a study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
    /// CPU and memory as studies publish them, by group of processes; empty without a study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
    /// p99 of the send lag, from merged histograms, in nanoseconds.
    pub send_lag_p99_ns: Option<u64>,
    /// Connections between the proxies: median over the valid trials.
    pub proxy_connections: Option<u32>,
    /// The distribution of the load over the service's replicas; `None`: there is one only, or its
    /// program does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Mean of the injected delay by the server's own clock, in nanoseconds.
    pub injected_ns: Option<f64>,
    /// The CPU account of the machine.
    pub cpu: Option<CpuAccount>,
    /// The ends of the window's steps, in nanoseconds; empty where there are no series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series_ends_ns: Vec<u64>,
    /// CPU and memory over the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RoleSeries>,
}
