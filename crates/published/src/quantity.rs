//! Metrics, the units in which they were published, and base units.

use serde::{Deserialize, Serialize};

/// The metric of a column of published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Duration of the whole run.
    Duration,
    /// Requests (or round trips) per second.
    Throughput,
    /// Bits per second.
    Bandwidth,
    /// Mean latency.
    LatencyMean,
    /// Median latency.
    LatencyP50,
    /// 75th percentile of latency.
    LatencyP75,
    /// 90th percentile of latency.
    LatencyP90,
    /// 95th percentile of latency.
    LatencyP95,
    /// 99th percentile of latency.
    LatencyP99,
    /// 99.9th percentile of latency.
    LatencyP999,
    /// The longest latency.
    LatencyMax,
    /// 75th percentile of the time to the first byte of the response.
    FirstByteP75,
    /// CPUs in use.
    Cpu,
    /// CPU time, where the period is not published.
    CpuTime,
    /// Memory in use.
    Memory,
}

impl Metric {
    /// In words, for the head of a column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Duration => "time",
            Self::Throughput => "requests",
            Self::Bandwidth => "throughput",
            Self::LatencyMean => "mean",
            Self::LatencyP50 => "p50",
            Self::LatencyP75 => "p75",
            Self::LatencyP90 => "p90",
            Self::LatencyP95 => "p95",
            Self::LatencyP99 => "p99",
            Self::LatencyP999 => "p99.9",
            Self::LatencyMax => "max",
            Self::FirstByteP75 => "first byte p75",
            Self::Cpu => "CPU",
            Self::CpuTime => "CPU time",
            Self::Memory => "memory",
        }
    }

    /// The unit of its normalised values.
    #[must_use]
    pub fn base_unit(self) -> BaseUnit {
        match self {
            Self::Throughput => BaseUnit::PerSecond,
            Self::Bandwidth => BaseUnit::BitsPerSecond,
            Self::Cpu => BaseUnit::Cores,
            Self::Memory => BaseUnit::Bytes,
            Self::Duration
            | Self::CpuTime
            | Self::LatencyMean
            | Self::LatencyP50
            | Self::LatencyP75
            | Self::LatencyP90
            | Self::LatencyP95
            | Self::LatencyP99
            | Self::LatencyP999
            | Self::LatencyMax
            | Self::FirstByteP75 => BaseUnit::Nanoseconds,
        }
    }
}

/// The unit of normalised values: those of meshtax's own reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum BaseUnit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Whole CPUs.
    #[serde(rename = "cores")]
    Cores,
    /// Bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A share of something else: 0.5 is half of it, or half as much more.
    #[serde(rename = "ratio")]
    Ratio,
}

/// The unit in which a figure was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Thousandths of a CPU.
    #[serde(rename = "millicores")]
    Millicores,
    /// Whole CPUs.
    #[serde(rename = "cores")]
    Cores,
    /// 2^20 bytes.
    #[serde(rename = "MiB")]
    Mebibytes,
    /// 10^6 bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// Hundredths.
    #[serde(rename = "%")]
    Percent,
}

impl Unit {
    /// As it is printed.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::PerSecond => "1/s",
            Self::Millicores => "m",
            Self::Cores => "cores",
            Self::Mebibytes => "MiB",
            Self::Megabytes => "MB",
            Self::Percent => "%",
        }
    }

    /// The unit of its normalised values.
    pub(crate) fn base(self) -> BaseUnit {
        match self {
            Self::Microseconds | Self::Milliseconds | Self::Seconds => BaseUnit::Nanoseconds,
            Self::PerSecond => BaseUnit::PerSecond,
            Self::Millicores | Self::Cores => BaseUnit::Cores,
            Self::Mebibytes | Self::Megabytes => BaseUnit::Bytes,
            Self::Percent => BaseUnit::Ratio,
        }
    }

    /// A published figure in base units; `None` if it is no decimal number.
    ///
    /// A whole number of digits is scaled and divided once, so that no figure picks up an error of its own:
    /// 0.3872 s are 387,200,000 ns.
    pub(crate) fn normalise(self, figure: &str) -> Option<f64> {
        let figure = figure.strip_prefix('~').unwrap_or(figure);
        let (whole, fraction) = figure.split_once('.').unwrap_or((figure, ""));
        let digits = format!("{whole}{fraction}");
        if whole.is_empty() || digits.len() > 15 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let mantissa: f64 = digits.parse().ok()?;
        let (times, over) = self.scale();
        let decimals = i32::try_from(fraction.len()).ok()?;
        Some(mantissa * times / (over * 10f64.powi(decimals)))
    }

    /// A value in base units, in this one.
    #[must_use]
    pub fn of_base(self, value: f64) -> f64 {
        let (times, over) = self.scale();
        value * over / times
    }

    /// What a figure is multiplied with and divided by.
    fn scale(self) -> (f64, f64) {
        match self {
            Self::Microseconds => (1e3, 1.0),
            Self::Milliseconds | Self::Megabytes => (1e6, 1.0),
            Self::Seconds => (1e9, 1.0),
            Self::PerSecond | Self::Cores => (1.0, 1.0),
            Self::Millicores => (1.0, 1e3),
            Self::Mebibytes => (1_048_576.0, 1.0),
            Self::Percent => (1.0, 1e2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_convert_to_base_units_exactly() {
        for (unit, figure, value) in [
            (Unit::Seconds, "0.3872", 387_200_000.0),
            (Unit::Milliseconds, "0.455", 455_000.0),
            (Unit::Microseconds, "453.79", 453_790.0),
            (Unit::PerSecond, "120.2747", 120.2747),
            (Unit::Millicores, "2226", 2.226),
            (Unit::Mebibytes, "1.00", 1_048_576.0),
            (Unit::Megabytes, "9749", 9_749_000_000.0),
            (Unit::Percent, "133", 1.33),
            (Unit::Milliseconds, "~240", 240_000_000.0),
        ] {
            assert_eq!(unit.normalise(figure), Some(value), "{figure} {unit:?}");
        }
    }

    #[test]
    fn malformed_figures_are_rejected() {
        for figure in ["", ".", "-1", "1e3", "1.2.3", "1,000", "~", "nan", "1 ms"] {
            assert_eq!(Unit::Seconds.normalise(figure), None, "{figure:?}");
        }
    }
}
