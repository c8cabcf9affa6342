//! An estimate, and the metrics that are estimated.

use serde::{Deserialize, Serialize};

use crate::experiment::LoadPoint;
use crate::margins::Margins;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether zero is strictly outside.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// The larger absolute end.
    #[must_use]
    pub fn largest_absolute_end(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// A point estimate, with an interval if there is enough data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// At the confidence of [`Analysis::confidence`]; `None` with fewer than six blocks.
    pub interval: Option<Interval>,
}

impl Estimate {
    /// A function that grows with the figure, of the value and of both ends of the interval.
    #[must_use]
    pub fn mapped(self, function: impl Fn(f64) -> f64) -> Self {
        Self {
            value: function(self.value),
            interval: self.interval.map(|interval| Interval {
                low: function(interval.low),
                high: function(interval.high),
            }),
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Median response latency, ns.
    ResponseP50,
    /// 90th percentile of response latency, ns.
    ResponseP90,
    /// 99th percentile of response latency, ns.
    ResponseP99,
    /// 99.9th percentile of response latency, ns.
    ResponseP999,
    /// Successful requests per second.
    Throughput,
    /// CPU of the test application and of the proxies in the path, ns per request.
    CpuPerRequest,
    /// Mean response latency, ns: what adds up over the steps of an [`Attribution`].
    ResponseMean,
    /// Anonymous memory of the test application and of the proxies in the path, bytes.
    AnonymousMemory,
}

impl Metric {
    /// A percentile's quantile.
    #[must_use]
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::ResponseP50 => Some(0.5),
            Self::ResponseP90 => Some(0.9),
            Self::ResponseP99 => Some(0.99),
            Self::ResponseP999 => Some(0.999),
            Self::Throughput | Self::CpuPerRequest | Self::ResponseMean | Self::AnonymousMemory => {
                None
            }
        }
    }

    /// The metrics that are compared at a load point. The rate of an open loop is given, so its throughput is not an
    /// effect; the latency of a closed loop is connections / throughput by identity.
    #[must_use]
    pub fn of(point: &LoadPoint) -> &'static [Self] {
        if point.is_steady() {
            &[
                Self::ResponseP50,
                Self::ResponseP90,
                Self::ResponseP99,
                Self::ResponseP999,
                Self::CpuPerRequest,
                Self::ResponseMean,
                Self::AnonymousMemory,
            ]
        } else {
            &[Self::Throughput, Self::CpuPerRequest, Self::AnonymousMemory]
        }
    }

    /// In words, for sentences: `p50`, `CPU per request`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResponseP50 => "p50",
            Self::ResponseP90 => "p90",
            Self::ResponseP99 => "p99",
            Self::ResponseP999 => "p99.9",
            Self::Throughput => "throughput",
            Self::CpuPerRequest => "CPU per request",
            Self::ResponseMean => "mean latency",
            Self::AnonymousMemory => "memory",
        }
    }

    /// The largest difference that does not matter, as a share of the baseline.
    #[must_use]
    pub fn margin(self, margins: &Margins) -> f64 {
        match self {
            Self::ResponseP50 => margins.p50,
            Self::ResponseP90 => margins.p90,
            Self::ResponseP99 => margins.p99,
            Self::ResponseP999 => margins.p999,
            Self::ResponseMean => margins.mean,
            Self::Throughput => margins.throughput,
            Self::CpuPerRequest => margins.cpu,
            Self::AnonymousMemory => margins.memory,
        }
    }

    /// Whether a larger value is worse.
    #[must_use]
    pub fn larger_is_worse(self) -> bool {
        !matches!(self, Self::Throughput)
    }
}
