//! The histogram of latencies: nanoseconds, three significant digits.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize, de};

/// An HDR histogram of nanoseconds, three significant digits, that grows as needed.
///
/// In JSON it is the base64 text of the HDR "V2" encoding, which any HDR library reads.
#[derive(Clone, PartialEq)]
pub struct LatencyHistogram(Histogram<u64>);

impl LatencyHistogram {
    /// The largest latency that is recorded: one hour. Longer ones count as one hour.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// Values that must be above a percentile before it is reported.
    pub const MIN_ABOVE: u64 = 10;

    /// The percentiles of summaries: name and quantile.
    pub const PERCENTILES: [(&str, f64); 7] = [
        ("p50", 0.5),
        ("p75", 0.75),
        ("p90", 0.9),
        ("p95", 0.95),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
    ];

    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        let mut histogram = Histogram::new_with_bounds(1, Self::MAX_NS, 3)
            .unwrap_or_else(|_| unreachable!("constant bounds are valid"));
        histogram.auto(false);
        Self(histogram)
    }

    /// Counts one latency. Never fails: beyond [`Self::MAX_NS`] it saturates.
    pub fn record(&mut self, value_ns: u64) {
        // The histogram itself would accept values up to the end of its last bucket.
        self.0.saturating_record(value_ns.min(Self::MAX_NS));
    }

    /// Clears it. Its memory is kept for the next values.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Adds another histogram's counts: the only way percentiles of several trials are combined.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            // Adding nothing would still touch all buckets.
            return;
        }
        // Both have the same bounds, so no count can fall outside.
        let _ = self.0.add(&other.0);
    }

    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value at or below which `quantile` (0.99) of the counts are; `None` if empty.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(quantile))
    }

    /// The quantile with the position inside its bucket interpolated.
    ///
    /// Three significant digits are steps of up to 0.2 %: too coarse for the paired
    /// difference of medians, which may be smaller than that.
    #[must_use]
    pub fn quantile_interpolated_ns(&self, quantile: f64) -> Option<f64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = quantile.clamp(0.0, 1.0) * total as f64;
        let mut below = 0_u64;
        for step in self.0.iter_recorded() {
            let here = step.count_at_value();
            if (below + here) as f64 >= rank {
                let high = self.0.highest_equivalent(step.value_iterated_to()) as f64;
                let low = self.0.lowest_equivalent(step.value_iterated_to()) as f64;
                let share = ((rank - below as f64) / here as f64).clamp(0.0, 1.0);
                return Some(low + (high + 1.0 - low) * share);
            }
            below += here;
        }
        Some(self.0.max() as f64)
    }

    /// The quantile, if enough values are above it ([`Self::MIN_ABOVE`]) to resolve it.
    #[must_use]
    pub fn resolved_quantile_ns(&self, quantile: f64) -> Option<u64> {
        // 1 - 0.99 is a little less than 0.01: without the margin a thousand samples would not do.
        let above = (self.count() as f64 * (1.0 - quantile) + 1e-6).floor() as u64;
        self.quantile_ns(quantile)
            .filter(|_| above >= Self::MIN_ABOVE)
    }

    /// The mean; `None` if empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean())
    }

    /// The largest; `None` if empty.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.0.max())
    }

    /// Number of counts strictly above the bucket of this value.
    #[must_use]
    pub fn count_above(&self, value_ns: u64) -> u64 {
        let top = self.0.highest_equivalent(value_ns);
        if top >= Self::MAX_NS {
            return 0;
        }
        self.0.count_between(top + 1, Self::MAX_NS)
    }

    /// The non-empty buckets: (highest value of the bucket in ns, count).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The base64 text of the HDR V2 encoding.
    #[must_use]
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        // Writing into memory cannot fail for counts that fit in an i64.
        let _ = V2Serializer::new().serialize(&self.0, &mut bytes);
        STANDARD.encode(bytes)
    }

    /// Reads what [`Self::to_base64`] wrote.
    ///
    /// # Errors
    /// If the text is no such histogram.
    pub fn from_base64(text: &str) -> Result<Self, HistogramError> {
        let bytes = STANDARD.decode(text)?;
        let foreign: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|cause| HistogramError::NotHdr(Box::new(cause)))?;
        let mut read = Self::new();
        if foreign.high() == Self::MAX_NS && foreign.low() == 1 && foreign.sigfig() == 3 {
            // Taken as it is: adding would touch, and so make resident, all 270 KB of buckets,
            // where a trial's latencies fill a few pages.
            return Ok(Self(foreign));
        }
        read.0
            .add(&foreign)
            .map_err(|_| HistogramError::OutOfRange)?;
        Ok(read)
    }
}

/// A text that is no stored histogram.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// It is not base64.
    #[error("not base64: {0}")]
    NotBase64(#[from] base64::DecodeError),
    /// Its bytes are not HDR V2.
    #[error("not an HDR V2 histogram: {0}")]
    NotHdr(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It holds latencies beyond one hour.
    #[error("latencies beyond one hour")]
    OutOfRange,
}

/// A compact histogram: a few kilobytes at most, where a [`LatencyHistogram`] takes 270.
///
/// In JSON it is the same text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HistogramSnapshot(String);

impl HistogramSnapshot {
    /// The decoded histogram.
    #[must_use]
    pub fn expand(&self) -> LatencyHistogram {
        // Empty, or the text of a histogram: both constructors ensure that.
        LatencyHistogram::from_base64(&self.0).unwrap_or_default()
    }

    /// Adds the counts of another one.
    pub fn merge(&mut self, other: &Self) {
        let mut sum = self.expand();
        sum.merge(&other.expand());
        *self = Self::from(&sum);
    }
}

impl From<&LatencyHistogram> for HistogramSnapshot {
    fn from(histogram: &LatencyHistogram) -> Self {
        Self(histogram.to_base64())
    }
}

impl fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expand().fmt(f)
    }
}

impl Serialize for HistogramSnapshot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.expand().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for HistogramSnapshot {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LatencyHistogram::deserialize(deserializer).map(|histogram| Self::from(&histogram))
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencyHistogram")
            .field("count", &self.count())
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("max_ns", &self.max_ns())
            .finish()
    }
}

impl Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_base64())
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_base64(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_json() {
        let mut h = LatencyHistogram::new();
        for v in [1, 50_000, 51_234, 9_000_000, u64::MAX] {
            h.record(v);
        }
        let text = serde_json::to_string(&h).unwrap();
        let back: LatencyHistogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back, h);
        assert_eq!(back.count(), 5);
    }

    #[test]
    fn malformed_data_is_an_error_without_a_panic() {
        assert!(LatencyHistogram::from_base64("%%%").is_err());
        assert!(LatencyHistogram::from_base64("AAAA").is_err());
    }

    #[test]
    fn interpolation_is_finer_than_a_bucket() {
        // Values within one bucket: the plain quantile cannot separate the arms.
        let mut a = LatencyHistogram::new();
        for _ in 0..90 {
            a.record(100_000);
        }
        for _ in 0..10 {
            a.record(90_000);
        }
        let exact = a.quantile_ns(0.5).unwrap() as f64;
        let fine = a.quantile_interpolated_ns(0.5).unwrap();
        assert!((fine - exact).abs() <= 0.002 * exact, "{fine} {exact}");
    }

    #[test]
    fn counts_above_a_percentile() {
        let mut h = LatencyHistogram::new();
        for v in 1..=1000_u64 {
            h.record(v * 1000);
        }
        let p99 = h.quantile_ns(0.99).unwrap();
        assert_eq!(h.count_above(p99), 10);
        assert_eq!(h.count_above(u64::MAX), 0);
    }
}
