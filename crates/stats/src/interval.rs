//! Point estimates with their intervals. Means (mean latency, CPU, throughput, memory) have Student's t at any number
//! of rounds. Medians have Student's t for few rounds, and the exact Wilcoxon signed-rank interval around the
//! Hodges-Lehmann estimate for many.
//!
//! # Which of the two for a median, and why
//!
//! The rule was fixed before any data: choosing the narrower interval per effect does not
//! keep its confidence. Simulated with `examples/coverage/choices.rs` (40,000 runs per line): round
//! means with a standard deviation of 1, "contaminated" meaning five times that in one round
//! of ten; power against an effect of 1.5, "Holm" as the first step of a family of four.
//!
//! | rounds | noise        | t covers | width | power | Holm | Wilcoxon covers | width | power |
//! |--------|--------------|----------|-------|-------|------|-----------------|-------|-------|
//! | 6      | normal       | 0.952    | 2.00  | 0.83  | 0.52 | 0.970           | 2.53  | 0.66  |
//! | 6      | contaminated | 0.962    | 3.18  | 0.62  | 0.36 | 0.969           | 4.10  | 0.54  |
//! | 8      | normal       | 0.950    | 1.61  | 0.95  | 0.78 | 0.961           | 1.77  | 0.92  |
//! | 8      | contaminated | 0.962    | 2.62  | 0.72  | 0.52 | 0.960           | 2.76  | 0.72  |
//! | 10     | normal       | 0.951    | 1.39  | 0.99  | 0.92 | 0.951           | 1.43  | 0.98  |
//! | 10     | contaminated | 0.965    | 2.29  | 0.77  | 0.61 | 0.951           | 2.37  | 0.78  |
//! | 12     | normal       | 0.952    | 1.25  | 1.00  | 0.97 | 0.959           | 1.32  | 0.99  |
//! | 12     | contaminated | 0.964    | 2.06  | 0.80  | 0.67 | 0.958           | 1.79  | 0.88  |
//! | 15     | normal       | 0.949    | 1.09  | 1.00  | 1.00 | 0.952           | 1.12  | 1.00  |
//! | 15     | contaminated | 0.966    | 1.84  | 0.84  | 0.73 | 0.953           | 1.48  | 0.94  |
//!
//! Outlying rounds make t wide, never too narrow; they are typical of shared machines. The
//! signed-rank interval is robust to them from about twelve rounds on, and costs almost
//! nothing without them. With six rounds it can only be the full range of the data,
//! and its smallest p-value, 1/32, does not survive Holm's adjustment for even two tests: nothing
//! would ever be significant. So the number of rounds alone decides ([`SIGNED_RANK_FROM`]).
//!
//! The effect of stopping on width is described in [`crate::stopping`].

use meshtax_model::analysis::{Estimate, Interval, Metric};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::signed_rank::SignedRank;

/// The share of the nominal error available to intervals and tests of a run that ended because it
/// was precise enough: its 95 % intervals are computed as 96 % ones.
pub const ERROR_SHARE: f64 = 0.8;

/// The confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// Two one-sided tests at 5 % are one 90 % interval (Schuirmann 1987).
pub const CONFIDENCE_TOST: f64 = 0.90;

/// With fewer units (rounds, or blocks as a fallback) no interval is given.
pub const UNITS_MIN: usize = 6;

/// From this many units on, the signed-rank interval is used. Its smallest p-value is then 1/2048,
/// which survives Holm's adjustment for a hundred tests.
pub const SIGNED_RANK_FROM: usize = 12;

/// An estimate and its uncertainty.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// The point estimate.
    pub estimate: f64,
    /// `None`: too few units for an interval.
    pub spread: Option<Spread>,
    /// The share of the nominal error available to intervals and tests: 1, except for percentiles
    /// of merged histograms ([`crate::tails`]) and for runs that were ended because their
    /// intervals were narrow ([`crate::stopping`]).
    pub error_share: f64,
}

/// How units are combined to an estimate; `None` if there are no values.
pub type Method = fn(&[f64]) -> Option<Inference>;

/// The uncertainty of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub enum Spread {
    /// Of a mean.
    Student(Student),
    /// Of a Hodges-Lehmann estimate.
    SignedRank(SignedRank),
}

/// A standard error with Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Student {
    /// Of the estimate.
    pub standard_error: f64,
    /// Of the t distribution: units − 1.
    pub degrees_of_freedom: f64,
}

impl Inference {
    /// For a run whose length did not depend on its figures.
    #[must_use]
    pub fn new(estimate: f64, spread: Option<Spread>) -> Self {
        Self {
            estimate,
            spread,
            error_share: 1.0,
        }
    }

    /// The same, with intervals and tests limited to this share of their nominal error.
    #[must_use]
    pub fn within(self, share: f64) -> Self {
        Self {
            error_share: self.error_share * share,
            ..self
        }
    }

    /// The same, for a run that ended because its intervals were narrow.
    #[must_use]
    pub fn after_stopping(self) -> Self {
        self.within(ERROR_SHARE)
    }

    /// The mean of the units' values, with Student's t (Kalibera and Jones 2013, with the
    /// round as the highest level). `None` if there are no values.
    #[must_use]
    pub fn of_mean(units: &[f64]) -> Option<Self> {
        let estimate = mean(units)?;
        Some(Self::new(estimate, Spread::of(units, estimate)))
    }

    /// The method for a metric: signed ranks for the median, and the mean for everything else, at any number of units.
    /// What is the mean of eleven rounds must not become something else with the twelfth.
    #[must_use]
    pub fn method(metric: Metric) -> Method {
        match metric {
            Metric::ResponseP50 => Self::of_units,
            _ => Self::of_mean,
        }
    }

    /// Of a median: selected by the number of units, see the module. `None` if there are no values.
    #[must_use]
    pub fn of_units(units: &[f64]) -> Option<Self> {
        if units.len() < SIGNED_RANK_FROM {
            return Self::of_mean(units);
        }
        let ranks = SignedRank::of(units)?;
        let estimate = ranks.hodges_lehmann();
        Some(Self::new(estimate, Some(Spread::SignedRank(ranks))))
    }

    /// The two-sided interval.
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Option<Interval> {
        let confidence = 1.0 - self.error_share * (1.0 - confidence);
        match self.spread.as_ref()? {
            Spread::Student(student) => student.interval(self.estimate, confidence),
            Spread::SignedRank(ranks) => Some(ranks.interval(confidence)),
        }
    }

    /// The two-sided p-value of "it is zero".
    #[must_use]
    pub fn p_value(&self) -> Option<f64> {
        let p_value = match self.spread.as_ref()? {
            Spread::Student(student) => student.p_value(self.estimate)?,
            Spread::SignedRank(ranks) => ranks.p_value(),
        };
        Some((p_value / self.error_share).min(1.0))
    }

    /// The one-sided p-value of "it is at most `threshold`".
    ///
    /// At most 0.025 exactly if the interval at 95 % is above the threshold.
    #[must_use]
    pub fn p_above(&self, threshold: f64) -> Option<f64> {
        let p_value = match self.spread.as_ref()? {
            Spread::Student(student) => student.p_above(self.estimate - threshold)?,
            Spread::SignedRank(ranks) => ranks.p_above(threshold),
        };
        Some((p_value / self.error_share).min(1.0))
    }

    /// The one-sided p-value of "it is at least `threshold`".
    #[must_use]
    pub fn p_below(&self, threshold: f64) -> Option<f64> {
        let p_value = match self.spread.as_ref()? {
            Spread::Student(student) => student.p_above(threshold - self.estimate)?,
            Spread::SignedRank(ranks) => ranks.p_below(threshold),
        };
        Some((p_value / self.error_share).min(1.0))
    }

    /// The uncertainty as a standard error with Student's t, for sums: for
    /// signed ranks, the standard error that gives an equally wide 95 % interval.
    #[must_use]
    pub fn as_student(&self) -> Option<Student> {
        match self.spread.as_ref()? {
            Spread::Student(student) => Some(*student),
            Spread::SignedRank(ranks) => {
                let interval = ranks.interval(CONFIDENCE);
                let degrees_of_freedom = ranks.units() as f64 - 1.0;
                let half = (interval.high - interval.low) / 2.0;
                Some(Student {
                    standard_error: half / critical_t(degrees_of_freedom, CONFIDENCE)?,
                    degrees_of_freedom,
                })
            }
        }
    }

    /// In the unit of the values.
    #[must_use]
    pub fn estimate_plain(&self) -> Estimate {
        Estimate {
            value: self.estimate,
            interval: self.interval(CONFIDENCE),
        }
    }

    /// For a log ratio: the relative change, `exp(x) − 1`, with the ends of its interval converted likewise.
    #[must_use]
    pub fn estimate_relative(&self) -> Estimate {
        Estimate {
            value: self.estimate.exp_m1(),
            interval: self.interval(CONFIDENCE).map(relative),
        }
    }
}

impl Spread {
    /// Student's, of the mean of `units`; `None` below [`UNITS_MIN`].
    #[must_use]
    pub fn of(units: &[f64], mean: f64) -> Option<Self> {
        Student::of(units, mean).map(Self::Student)
    }
}

impl Student {
    /// Of the mean of `units`; `None` below [`UNITS_MIN`].
    #[must_use]
    pub fn of(units: &[f64], mean: f64) -> Option<Self> {
        if units.len() < UNITS_MIN {
            return None;
        }
        let n = units.len() as f64;
        let squares: f64 = units.iter().map(|x| (x - mean).powi(2)).sum();
        let standard_error = (squares / (n - 1.0) / n).sqrt();
        standard_error.is_finite().then_some(Self {
            standard_error,
            degrees_of_freedom: n - 1.0,
        })
    }

    pub(crate) fn interval(&self, estimate: f64, confidence: f64) -> Option<Interval> {
        let half = critical_t(self.degrees_of_freedom, confidence)? * self.standard_error;
        Some(Interval {
            low: estimate - half,
            high: estimate + half,
        })
    }

    /// `None`: the figures are too large for an error that is a number.
    fn t(&self, estimate: f64) -> Option<f64> {
        let t = estimate / self.standard_error;
        (!t.is_nan()).then_some(t)
    }

    /// The probability of an estimate at least as far above, without an effect.
    fn p_above(&self, estimate: f64) -> Option<f64> {
        if self.standard_error <= 0.0 {
            return Some(if estimate > 0.0 { 0.0 } else { 1.0 });
        }
        let t = self.t(estimate)?;
        let student = StudentsT::new(0.0, 1.0, self.degrees_of_freedom).ok()?;
        Some(student.sf(t).clamp(0.0, 1.0))
    }

    fn p_value(&self, estimate: f64) -> Option<f64> {
        if self.standard_error <= 0.0 {
            // All units are equal: no uncertainty.
            return Some(if estimate == 0.0 { 1.0 } else { 0.0 });
        }
        let t = self.t(estimate)?.abs();
        let student = StudentsT::new(0.0, 1.0, self.degrees_of_freedom).ok()?;
        Some((2.0 * student.sf(t)).clamp(0.0, 1.0))
    }
}

/// An interval of log ratios as relative changes.
#[must_use]
pub fn relative(logs: Interval) -> Interval {
    Interval {
        low: logs.low.exp_m1(),
        high: logs.high.exp_m1(),
    }
}

/// The interval of a non-negative quantity. `stopped`: because the run's intervals were narrow.
pub(crate) fn above_zero(fit: Inference, stopped: bool) -> Option<Interval> {
    let fit = if stopped { fit.after_stopping() } else { fit };
    let Interval { low, high } = fit.interval(CONFIDENCE)?;
    let is_finite = low.is_finite() && high.is_finite();
    // Durations are not negative.
    is_finite.then(|| Interval {
        low: low.max(0.0),
        high,
    })
}

/// The median, the mean of the two middle values for an even number; `None` if empty.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

/// The arithmetic mean; `None` if empty or not finite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    mean.is_finite().then_some(mean)
}

/// The two-sided critical value of Student's t.
#[must_use]
pub fn critical_t(degrees_of_freedom: f64, confidence: f64) -> Option<f64> {
    let student = StudentsT::new(0.0, 1.0, degrees_of_freedom).ok()?;
    (0.0..1.0)
        .contains(&confidence)
        .then(|| student.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_match_published_tables() {
        for (df, confidence, expected) in [
            (5.0, 0.95, 2.5706),
            (5.0, 0.90, 2.0150),
            (9.0, 0.95, 2.2622),
            (14.0, 0.95, 2.1448),
            (5.0, 0.9875, 3.8100),
        ] {
            let t = critical_t(df, confidence).unwrap();
            assert!((t - expected).abs() < 2e-3, "{df} {confidence}: {t}");
        }
        assert_eq!(critical_t(0.0, 0.95), None);
        assert_eq!(critical_t(5.0, 1.0), None);
    }

    #[test]
    fn t_interval_matches_a_reference_computation() {
        let fit = Inference::of_mean(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let interval = fit.interval(CONFIDENCE).unwrap();
        // R: t.test(1:6)
        assert!((interval.low - 1.5367).abs() < 1e-3, "{interval:?}");
        assert!((interval.high - 5.4633).abs() < 1e-3, "{interval:?}");
        assert!((fit.p_value().unwrap() - 0.005_9).abs() < 1e-3);
    }

    #[test]
    fn p_value_and_interval_agree_at_the_boundary() {
        let units = [0.5, 1.5, -0.7, 2.2, 0.9, -0.1];
        let fit = Inference::of_mean(&units).unwrap();
        let p = fit.p_value().unwrap();
        assert!(fit.interval(1.0 - p - 1e-4).unwrap().excludes_zero());
        assert!(!fit.interval(1.0 - p + 1e-4).unwrap().excludes_zero());
    }

    #[test]
    fn test_and_interval_agree_after_stopping() {
        let units: Vec<f64> = (0..14)
            .map(|i| f64::from(i * 37 % 14) / 4.0 - 0.68)
            .collect();
        for fit in [
            Inference::of_mean(&units[..9]).unwrap(),
            Inference::of_units(&units).unwrap(),
        ] {
            let plain = (fit.interval(0.95).unwrap(), fit.p_value().unwrap());
            let fit = fit.after_stopping();
            let (interval, p) = (fit.interval(0.95).unwrap(), fit.p_value().unwrap());
            assert!(interval.low < plain.0.low && interval.high > plain.0.high);
            assert!(p > plain.1);
            for step in 1..200 {
                let confidence = f64::from(step) / 200.0;
                let outside = fit.interval(confidence).unwrap().excludes_zero();
                assert_eq!(outside, p < 1.0 - confidence, "{confidence} {p}");
            }
        }
    }

    #[test]
    fn one_sided_tests_agree_with_the_interval() {
        let units: Vec<f64> = (0..14)
            .map(|i| f64::from(i * 37 % 14) / 4.0 - 0.68)
            .collect();
        let fits = [
            Inference::of_mean(&units[..9]).unwrap(),
            Inference::of_units(&units).unwrap(),
        ];
        for fit in fits
            .into_iter()
            .flat_map(|fit| [fit.clone(), fit.within(0.5)])
        {
            let interval = fit.interval(0.95).unwrap();
            for step in -300..300 {
                let threshold = f64::from(step) / 100.0 + 0.001_3;
                let (above, below) = (
                    fit.p_above(threshold).unwrap(),
                    fit.p_below(threshold).unwrap(),
                );
                assert_eq!(
                    interval.low > threshold,
                    above <= 0.025,
                    "{threshold} {above}"
                );
                assert_eq!(
                    interval.high < threshold,
                    below <= 0.025,
                    "{threshold} {below}"
                );
            }
        }
    }

    #[test]
    fn signed_ranks_have_an_equivalent_standard_error() {
        let units: Vec<f64> = (0..40).map(|i| f64::from(i * 37 % 40) / 10.0).collect();
        let ranks = Inference::of_units(&units).unwrap();
        let student = ranks.as_student().unwrap();
        let mean = Inference::of_mean(&units).unwrap().as_student().unwrap();
        assert_eq!(student.degrees_of_freedom, 39.0);
        let ratio = student.standard_error / mean.standard_error;
        assert!((0.9..1.15).contains(&ratio), "{ratio}");
    }

    #[test]
    fn five_units_give_a_value_without_an_interval() {
        let fit = Inference::of_mean(&[1.0; 5]).unwrap();
        assert_eq!(fit.estimate_plain().value, 1.0);
        assert_eq!(fit.estimate_plain().interval, None);
        assert_eq!(fit.p_value(), None);
        assert_eq!(Inference::of_mean(&[]), None);
        assert_eq!(Inference::of_mean(&[f64::NAN; 9]), None);
    }

    #[test]
    fn identical_units_have_a_zero_width_interval() {
        let fit = Inference::of_mean(&[0.25; 6]).unwrap();
        assert_eq!(fit.p_value(), Some(0.0));
        let none = Inference::of_mean(&[0.0; 6]).unwrap();
        assert_eq!(none.p_value(), Some(1.0));
    }

    #[test]
    fn relative_changes_are_derived_from_log_ratios() {
        let fit = Inference::of_mean(&[2.0_f64.ln(); 6]).unwrap();
        assert!((fit.estimate_relative().value - 1.0).abs() < 1e-12);
    }
}
