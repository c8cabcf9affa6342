//! What all outputs say of a load, decided once: which figures, and which of them are resolved.

use meshtax_load::LoadSpec;
use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadResult;

/// A load that is over.
pub(crate) struct Finished<'a> {
    /// Where it went, as it was typed.
    pub(crate) url: &'a str,
    /// When its window began, in milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// What was offered.
    pub(crate) spec: &'a LoadSpec,
    /// What came of it.
    pub(crate) result: &'a LoadResult,
}

/// The percentiles that are shown.
pub(super) const QUANTILES: [(&str, f64); 7] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// Requests that must lie above a percentile before it is shown.
pub(super) const LEAST_ABOVE: u64 = 10;

/// The quantile in nanoseconds, if the samples resolve it.
pub(super) fn resolved(histogram: &LatencyHistogram, quantile: f64) -> Option<u64> {
    // 1 - 0.99 is a little less than 0.01: a thousand samples would not do.
    let above = (histogram.count() as f64 * (1.0 - quantile) + 1e-6).floor() as u64;
    histogram
        .quantile_ns(quantile)
        .filter(|_| above >= LEAST_ABOVE)
}

/// The moments and ends of a histogram, in nanoseconds; zeros if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) count: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Moments {
    /// To the histogram's three digits.
    pub(super) fn of(histogram: &LatencyHistogram) -> Self {
        let (Some(mean), Some(max)) = (histogram.mean_ns(), histogram.max_ns()) else {
            return Self::default();
        };
        let count = histogram.count();
        let squares: f64 = histogram
            .buckets()
            .map(|(value, count)| (value as f64 - mean).powi(2) * count as f64)
            .sum();
        Self {
            count,
            min: histogram
                .buckets()
                .next()
                .map_or(0.0, |(value, _)| value as f64),
            max: max as f64,
            mean,
            deviation: (squares / count as f64).sqrt(),
        }
    }
}

impl Finished<'_> {
    /// Requests of the window with a good answer: status 200-399, of gRPC `OK`.
    pub(super) fn good(&self) -> u64 {
        let result = self.result;
        if !result.grpc_status.is_empty() {
            return result.grpc_status.get(&0).copied().unwrap_or(0);
        }
        let good = result
            .status
            .iter()
            .filter(|(s, _)| (200..400).contains(*s));
        good.map(|(_, count)| count).sum()
    }

    /// Requests of the window that have no answer.
    pub(super) fn without_answer(&self) -> u64 {
        let result = self.result;
        let errors = result.errors.total().saturating_sub(result.failed_attempts);
        errors + result.unanswered
    }

    /// The good ones as a share of all requests of the window.
    pub(super) fn success_share(&self) -> f64 {
        self.good() as f64 / self.result.offered.max(1) as f64
    }

    /// The window in seconds; never zero.
    pub(super) fn seconds(&self) -> f64 {
        (self.result.window_ns as f64 / 1e9).max(1e-9)
    }
}

/// A load that never changes, for the tests of all outputs.
#[cfg(test)]
pub(super) mod example {
    use std::collections::BTreeMap;

    use meshtax_load::LoadModel;
    use meshtax_model::HistogramSnapshot;
    use meshtax_model::experiment::Arrivals;
    use meshtax_model::trial::{ErrorCounts, GeneratorAudit, LoadInterval};

    use super::*;

    /// `count` latencies from `from_ns` up in equal steps.
    pub(crate) fn histogram(count: u64, from_ns: u64, step_ns: u64) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for at in 0..count {
            histogram.record(from_ns + at * step_ns);
        }
        histogram
    }

    pub(crate) fn spec() -> LoadSpec {
        let mut spec = LoadSpec::new(([127, 0, 0, 1], 8080).into());
        spec.model = LoadModel::open(1000.0, Arrivals::Constant);
        spec.connections = 16;
        spec.seed = 7;
        spec.warmup_ns = 500_000_000;
        spec.window_ns = 2_000_000_000;
        spec.timeout_ns = Some(30_000_000_000);
        spec.interval_ns = Some(1_000_000_000);
        spec
    }

    fn interval(number: u64, length_ns: u64) -> LoadInterval {
        LoadInterval {
            start_ns: number * 1_000_000_000,
            length_ns,
            sent: 1000,
            answered: 998,
            errors: number,
            response: HistogramSnapshot::from(&histogram(998, 60_000, 200 * (number + 1))),
            send_lag: HistogramSnapshot::from(&histogram(998, 500, 5)),
        }
    }

    pub(crate) fn result() -> LoadResult {
        LoadResult {
            window_ns: 2_000_000_000,
            offered: 2000,
            completed: 1995,
            succeeded: 1990,
            errors: ErrorCounts {
                reset: 3,
                timeout: 1,
                ..ErrorCounts::default()
            },
            unanswered: 1,
            status: BTreeMap::from([(200, 1990), (503, 5)]),
            queued: 12,
            bytes_received: 2_394_000,
            bytes_sent: 80_000,
            connections_opened: 19,
            response: histogram(1995, 60_000, 700),
            service: histogram(1995, 58_000, 690),
            send_lag: histogram(1995, 500, 9),
            generator_lag: histogram(2000, 400, 8),
            first_byte: histogram(1995, 50_000, 650),
            connect: histogram(19, 40_000, 1000),
            intervals: vec![interval(0, 1_000_000_000), interval(1, 1_000_000_000)],
            congestion_control: "cubic".into(),
            socket_io: "epoll".into(),
            audit: GeneratorAudit {
                cpu_ns: 240_000_000,
                busy_share: 0.12,
                longest_loop_ns: 310_000,
                involuntary_switches: 2,
                steal_ns: 30_000_000,
                generator_bound: None,
            },
            ..LoadResult::default()
        }
    }

    /// As `spec` and `result` are changed, what `write` makes of them.
    pub(crate) fn written(
        change: impl FnOnce(&mut LoadSpec, &mut LoadResult),
        write: impl FnOnce(&Finished<'_>) -> String,
    ) -> String {
        let (mut spec, mut result) = (spec(), result());
        change(&mut spec, &mut result);
        write(&Finished {
            url: "http://127.0.0.1:8080/",
            started_unix_ms: 1_795_600_000_123,
            spec: &spec,
            result: &result,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_requests_above_it() {
        let of = |count, quantile| resolved(&example::histogram(count, 1000, 10), quantile);
        assert!(of(1000, 0.99).is_some());
        assert!(of(999, 0.99).is_none());
        assert!(of(20, 0.5).is_some());
        assert!(of(10_000, 0.999).is_some());
        assert!(of(0, 0.5).is_none());
    }

    #[test]
    fn moments_of_a_known_distribution() {
        let moments = Moments::of(&example::histogram(1001, 1_000_000, 1000));
        let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 2e-3;
        assert!(near(moments.mean, 1_500_000.0), "{moments:?}");
        assert!(near(moments.deviation, 288_964.0), "{moments:?}");
        assert!(near(moments.min, 1_000_000.0) && near(moments.max, 2_000_000.0));
        assert_eq!(Moments::of(&LatencyHistogram::new()), Moments::default());
    }
}
