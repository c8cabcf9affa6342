//! The moments of a histogram, which Fortio and HdrHistogram write.

use meshtax_model::LatencyHistogram;

/// Moments and extremes, in nanoseconds; zeros for an empty histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) standard_deviation: f64,
}

impl Moments {
    /// To the histogram's three digits.
    pub(crate) fn of(histogram: &LatencyHistogram) -> Self {
        let (Some(mean), Some(max)) = (histogram.mean_ns(), histogram.max_ns()) else {
            return Self::default();
        };
        let count = histogram.count();
        let squares: f64 = histogram
            .buckets()
            .map(|(value, count)| (value as f64 - mean).powi(2) * count as f64)
            .sum();
        let least = histogram.buckets().next();
        Self {
            count,
            min: least.map_or(0.0, |(value, _)| value as f64),
            max: max as f64,
            mean,
            standard_deviation: (squares / count as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::histogram;

    use super::*;

    #[test]
    fn moments_of_a_uniform_distribution_are_the_known_ones() {
        let moments = Moments::of(&histogram(1001, 1_000_000, 1000));
        let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 2e-3;
        assert!(near(moments.mean, 1_500_000.0), "{moments:?}");
        assert!(near(moments.standard_deviation, 288_964.0), "{moments:?}");
        assert!(near(moments.min, 1_000_000.0) && near(moments.max, 2_000_000.0));
        assert_eq!(Moments::of(&LatencyHistogram::new()), Moments::default());
    }
}
