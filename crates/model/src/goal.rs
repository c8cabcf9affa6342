//! The goal of a search for the knee.

use std::fmt;

/// An upper bound on a percentile of response latency: `p99 < 5ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyGoal {
    /// Above 0, at most 1 (`p99` is 0.99, `max` is 1).
    pub quantile: f64,
    /// The bound, in nanoseconds.
    pub limit_ns: u64,
}

impl fmt::Display for LatencyGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quantile >= 1.0 {
            f.write_str("max")?;
        } else {
            // Rounded: the division by a hundred left a remainder.
            write!(f, "p{}", (self.quantile * 1e8).round() / 1e6)?;
        }
        let (unit_ns, unit) = match self.limit_ns {
            1_000_000_000.. => (1e9, "s"),
            1_000_000.. => (1e6, "ms"),
            1000.. => (1e3, "us"),
            _ => (1.0, "ns"),
        };
        write!(f, " < {}{unit}", self.limit_ns as f64 / unit_ns)
    }
}
