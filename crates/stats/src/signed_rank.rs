//! The exact Wilcoxon signed-rank test and its interval (Hodges and Lehmann 1963).

use meshtax_model::analysis::Interval;

/// Beyond this many units the exact distribution is replaced by the normal one, which is
/// indistinguishable there and needs no large tables.
const EXACT_UP_TO: usize = 200;

/// The averages of all pairs of units, including each with itself ("Walsh averages"), ascending: their
/// positions determine estimate, interval and test.
#[derive(Clone, Debug, PartialEq)]
pub struct SignedRank {
    units: usize,
    averages: Vec<f64>,
}

impl SignedRank {
    /// `None` if there are no units, or some that are not finite.
    #[must_use]
    pub fn of(units: &[f64]) -> Option<Self> {
        if units.is_empty() || !units.iter().all(|unit| unit.is_finite()) {
            return None;
        }
        let mut averages = Vec::with_capacity(units.len() * (units.len() + 1) / 2);
        for (index, first) in units.iter().enumerate() {
            averages.extend(
                units[index..]
                    .iter()
                    .map(|second| f64::midpoint(*first, *second)),
            );
        }
        averages.sort_by(f64::total_cmp);
        Some(Self {
            units: units.len(),
            averages,
        })
    }

    /// The median of the averages.
    #[must_use]
    pub fn hodges_lehmann(&self) -> f64 {
        let (middle, odd) = (self.averages.len() / 2, self.averages.len() % 2 == 1);
        if odd {
            self.averages[middle]
        } else {
            f64::midpoint(self.averages[middle - 1], self.averages[middle])
        }
    }

    /// The two-sided interval, of at least this confidence.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        let skip = self.skip((1.0 - confidence) / 2.0);
        Interval {
            low: self.averages[skip],
            high: self.averages[self.averages.len() - 1 - skip],
        }
    }

    /// The two-sided p-value of "the units are symmetric around zero".
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let positive = self.averages.iter().filter(|a| **a > 0.0).count();
        let zero = self.averages.iter().filter(|a| **a == 0.0).count();
        // Ties with zero are split evenly, which can only raise the p-value.
        let statistic = positive as f64 + zero as f64 / 2.0;
        let smaller = statistic
            .min(self.averages.len() as f64 - statistic)
            .floor() as usize;
        (2.0 * self.tail(smaller)).min(1.0)
    }

    /// The number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// The one-sided p-value of "the units are symmetric around `threshold` or below it".
    #[must_use]
    pub fn p_above(&self, threshold: f64) -> f64 {
        self.tail(self.averages.iter().filter(|a| **a <= threshold).count())
    }

    /// The one-sided p-value of "the units are symmetric around `threshold` or above it".
    #[must_use]
    pub fn p_below(&self, threshold: f64) -> f64 {
        self.tail(self.averages.iter().filter(|a| **a >= threshold).count())
    }

    /// The number of averages that the interval excludes at each end: the largest rank sum that has at most
    /// this probability. The interval then contains zero exactly if the test does not reject it.
    fn skip(&self, tail: f64) -> usize {
        let most = (self.averages.len() / 2).saturating_sub(1);
        let significant = self.tails(most).iter().take_while(|p| **p <= tail).count();
        significant.saturating_sub(1)
    }

    /// The probability of a rank sum of at most `sum`, if there is no effect.
    fn tail(&self, sum: usize) -> f64 {
        self.tails(sum).last().copied().unwrap_or(1.0)
    }

    /// The same for 0, 1, … `most`.
    fn tails(&self, most: usize) -> Vec<f64> {
        if self.units > EXACT_UP_TO {
            return (0..=most).map(|sum| normal_tail(self.units, sum)).collect();
        }
        let total = 2.0_f64.powi(self.units as i32);
        let mut sum = 0.0;
        ways(self.units, most)
            .into_iter()
            .map(|ways| {
                sum += ways;
                sum / total
            })
            .collect()
    }
}

/// The number of ways in which ranks 1 to `units` can be chosen so that they sum to 0, 1, … `most`.
fn ways(units: usize, most: usize) -> Vec<f64> {
    let mut ways = vec![0.0_f64; most + 1];
    ways[0] = 1.0;
    for rank in 1..=units.min(most) {
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

fn normal_tail(units: usize, sum: usize) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    let n = units as f64;
    let mean = n * (n + 1.0) / 4.0;
    let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    Normal::new(mean, deviation).map_or(1.0, |normal| normal.cdf(sum as f64 + 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_rank_interval_matches_a_reference_computation() {
        // R: wilcox.test(c(1.1,2.2,-0.3,3.1,0.8,1.9,2.5,-1.2,0.4,1.6,2.8,0.9), conf.int = TRUE)
        let units = [1.1, 2.2, -0.3, 3.1, 0.8, 1.9, 2.5, -1.2, 0.4, 1.6, 2.8, 0.9];
        let ranks = SignedRank::of(&units).unwrap();
        // Ranks of the negative units: 0.3 is the 1st and 1.2 the 6th, so V = 78 - 7 = 71.
        // 19 sets of distinct ranks sum to at most 7: p = 2 * 19 / 4096.
        assert!(
            (ranks.p_value() - 38.0 / 4096.0).abs() < 1e-12,
            "{}",
            ranks.p_value()
        );
        let interval = ranks.interval(0.95);
        assert!(interval.low > 0.0 && interval.low < ranks.hodges_lehmann());
        assert!(interval.high > ranks.hodges_lehmann() && interval.high < 3.1);
    }

    #[test]
    fn critical_ranks_match_published_tables() {
        // Two-sided 5 %: the largest rank sum that is significant.
        for (n, critical) in [
            (6, 0),
            (8, 3),
            (10, 8),
            (12, 13),
            (15, 25),
            (20, 52),
            (25, 89),
        ] {
            let units: Vec<f64> = (1..=n).map(|i| f64::from(i) + 0.1).collect();
            let ranks = SignedRank::of(&units).unwrap();
            assert!(ranks.tail(critical) <= 0.025, "{n}");
            assert!(ranks.tail(critical + 1) > 0.025, "{n}");
            assert_eq!(ranks.skip(0.025), critical, "{n}");
        }
    }

    #[test]
    fn test_and_interval_agree() {
        for step in -300..300 {
            let shift = f64::from(step) / 100.0 + 0.001;
            let units: Vec<f64> = (0..14)
                .map(|i| f64::from(i * 37 % 14) / 4.0 - 1.6 + shift)
                .collect();
            let ranks = SignedRank::of(&units).unwrap();
            let outside = ranks.interval(0.95).excludes_zero();
            assert_eq!(outside, ranks.p_value() <= 0.05, "{shift}");
        }
    }

    #[test]
    fn many_units_approach_the_normal_distribution() {
        let units: Vec<f64> = (0..150).map(|i| f64::from(i * 71 % 150) - 70.0).collect();
        let exact = SignedRank::of(&units).unwrap().p_value();
        let all = SignedRank::of(&units).unwrap().averages;
        let positive = all.iter().filter(|a| **a > 0.0).count();
        let zero = all.iter().filter(|a| **a == 0.0).count();
        let smaller = (positive + zero / 2).min(all.len() - positive - zero / 2);
        let normal = 2.0 * normal_tail(150, smaller);
        assert!((exact - normal).abs() < 0.01, "{exact} {normal}");
    }

    #[test]
    fn single_outlier_barely_moves_the_estimate() {
        let mut units: Vec<f64> = (0..15).map(|i| 1.0 + f64::from(i) / 100.0).collect();
        units[7] = 1e9;
        let ranks = SignedRank::of(&units).unwrap();
        assert!(ranks.hodges_lehmann() < 1.2 && ranks.interval(0.95).high < 1.2);
        assert_eq!(SignedRank::of(&[]), None);
        assert_eq!(SignedRank::of(&[f64::NAN]), None);
    }
}
