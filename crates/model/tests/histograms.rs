//! Histograms against the samples themselves: what several workers counted is what one would
//! have counted, and percentiles are those of the sorted samples, to three significant digits.

use meshtax_model::trial::{ErrorCounts, LoadInterval, LoadResult};
use meshtax_model::{HistogramSnapshot, LatencyHistogram};
use proptest::prelude::*;

const WORKERS: usize = 4;

const INTERVAL_NS: u64 = 100_000_000;

/// One answered request: who sent it, in which interval, and its latency.
#[derive(Clone, Copy, Debug)]
struct Sample {
    worker: usize,
    interval: u64,
    latency_ns: u64,
}

/// Uniform in magnitude, from a nanosecond to more than the maximum of one hour.
fn latency() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0_u32..43, any::<u64>()).prop_map(|(bits, noise)| noise & ((1 << bits) - 1)),
        // Many equal and neighbouring ones, as a fast server gives.
        8 => 50_000_u64..50_200,
        1 => Just(LatencyHistogram::MAX_NS),
        1 => Just(u64::MAX),
    ]
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let one = (0..WORKERS, 0_u64..3, latency()).prop_map(|(worker, interval, latency_ns)| Sample {
        worker,
        interval,
        latency_ns,
    });
    proptest::collection::vec(one, 1..400)
}

fn histogram<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    for sample in samples {
        histogram.record(sample.latency_ns);
    }
    histogram
}

/// What a load generator that saw these samples reports. Response and service latency differ,
/// so that a merge of one into the other shows.
fn result(samples: &[Sample]) -> LoadResult {
    let mut result = LoadResult {
        window_ns: 3 * INTERVAL_NS,
        response: histogram(samples),
        ..LoadResult::default()
    };
    for sample in samples {
        let halved = sample.latency_ns / 2;
        result.offered += 1;
        result.completed += 1;
        result.bytes_received += sample.latency_ns % 1000;
        *result
            .status
            .entry(200 + sample.interval as u16)
            .or_insert(0) += 1;
        result.errors = ErrorCounts {
            reset: result.errors.reset + sample.latency_ns % 2,
            timeout: result.errors.timeout + sample.latency_ns % 3,
            ..ErrorCounts::default()
        };
        result.service.record(halved);
        result.connect.record(halved / 2);
    }
    for interval in 0..3 {
        let mine: Vec<_> = samples.iter().filter(|s| s.interval == interval).collect();
        if !mine.is_empty() {
            let latencies = histogram(mine.iter().copied());
            result.intervals.push(LoadInterval {
                start_ns: interval * INTERVAL_NS,
                length_ns: INTERVAL_NS,
                sent: mine.len() as u64,
                responses: mine.len() as u64,
                errors: 0,
                response: HistogramSnapshot::from(&latencies),
                send_lag: HistogramSnapshot::from(&LatencyHistogram::new()),
            });
        }
    }
    result
}

fn by_worker(samples: &[Sample]) -> Vec<Vec<Sample>> {
    (0..WORKERS)
        .map(|worker| {
            let of_worker = samples.iter().filter(|s| s.worker == worker);
            of_worker.copied().collect()
        })
        .collect()
}

/// The sample at or below which that share of all samples is.
fn exact(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1]
}

/// Three significant digits.
fn is_near(value: f64, exact: u64) -> bool {
    (value - exact as f64).abs() <= exact as f64 / 1000.0 + 1.0
}

proptest! {
    // Each histogram is a quarter of a megabyte, which debug builds walk slowly.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(40)
    })]

    #[test]
    fn four_workers_count_the_same_as_one(samples in samples()) {
        let whole = histogram(&samples);
        let mut merged = LatencyHistogram::new();
        let mut stored = HistogramSnapshot::default();
        for part in by_worker(&samples) {
            let part = histogram(&part);
            merged.merge(&part);
            stored.merge(&HistogramSnapshot::from(&part));
        }
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(stored.expand(), whole);
    }

    #[test]
    fn results_of_four_workers_add_up_in_any_order(
        samples in samples(),
        order in Just([0, 1, 2, 3]).prop_shuffle(),
    ) {
        let whole = result(&samples);
        let parts: Vec<_> = by_worker(&samples).iter().map(|part| result(part)).collect();
        let mut in_turn = LoadResult::default();
        for worker in order {
            // As received from another machine.
            let text = serde_json::to_string(&parts[worker]).unwrap();
            in_turn.merge(&serde_json::from_str(&text).unwrap());
        }
        prop_assert_eq!(&in_turn, &whole);
        let mut in_pairs = parts[order[0]].clone();
        in_pairs.merge(&parts[order[1]]);
        let mut others = parts[order[2]].clone();
        others.merge(&parts[order[3]]);
        in_pairs.merge(&others);
        prop_assert_eq!(&in_pairs, &whole);
    }

    #[test]
    fn percentiles_match_the_sorted_samples(samples in samples()) {
        let mut merged = LatencyHistogram::new();
        for part in by_worker(&samples) {
            merged.merge(&histogram(&part));
        }
        let told_apart = |s: &Sample| s.latency_ns.min(LatencyHistogram::MAX_NS);
        let mut sorted: Vec<_> = samples.iter().map(told_apart).collect();
        sorted.sort_unstable();
        for quantile in [0.0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0] {
            let exact = exact(&sorted, quantile);
            let found = merged.quantile_ns(quantile).unwrap();
            prop_assert!(is_near(found as f64, exact), "{quantile}: {found} for {exact}");
            let fine = merged.quantile_interpolated_ns(quantile).unwrap();
            prop_assert!(is_near(fine, exact), "{quantile}: {fine} for {exact}");
        }
        let largest = *sorted.last().unwrap();
        prop_assert!(is_near(merged.max_ns().unwrap() as f64, largest));
        let sum: f64 = sorted.iter().map(|s| *s as f64).sum();
        let mean = sum / sorted.len() as f64;
        let found = merged.mean_ns().unwrap();
        prop_assert!((found - mean).abs() <= mean / 1000.0 + 1.0, "{found} for {mean}");
    }

    #[test]
    fn values_above_a_threshold_are_counted(samples in samples(), at in latency()) {
        let at = at.min(LatencyHistogram::MAX_NS);
        let above = histogram(&samples).count_above(at);
        let beyond = |value: u64| samples.iter().filter(|s| s.latency_ns > value).count() as u64;
        // Those in the same bucket are not above.
        prop_assert!(above <= beyond(at));
        let told_apart = beyond(at + at / 1000 + 1);
        prop_assert!(above >= told_apart || at + at / 1000 >= LatencyHistogram::MAX_NS);
    }
}
