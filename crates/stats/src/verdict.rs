//! The verdict on a difference. The relative one decides: a round in which the whole machine was
//! slow scales every difference in it, and does not change the ratios.

use meshtax_model::analysis::{Interval, Verdict};

use crate::family::ALPHA;
use crate::interval::{CONFIDENCE, CONFIDENCE_TOST, Inference, relative};

/// What a relative difference is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// The run's noise floor: it vetoes verdicts, and supports none.
    pub(crate) floor: f64,
    /// The largest difference that does not matter, fixed before the run.
    pub(crate) margin: f64,
}

/// Whether a difference is declared: its (adjusted) p-value, and its size beyond the noise floor.
pub(crate) fn is_different(fit: &Inference, p_value: f64, floor: f64) -> bool {
    p_value < ALPHA && fit.estimate.exp_m1().abs() > floor
}

/// The verdict on a log ratio, and if it is inconclusive, how many times as long a run needs to be
/// to detect it.
pub(crate) fn of(fit: &Inference, p_value: f64, bounds: Bounds) -> (Verdict, Option<f64>) {
    let Bounds { floor, margin } = bounds;
    if is_different(fit, p_value, floor) {
        return (Verdict::Different, None);
    }
    let inside = fit.interval(CONFIDENCE_TOST).map(relative);
    // Where the baseline may differ from itself by more than the margin, the machine does not resolve the margin.
    let is_resolved = floor <= margin;
    if is_resolved && inside.is_some_and(|interval| interval.largest_absolute_end() < margin) {
        return (Verdict::Equivalent, None);
    }
    let interval = fit.interval(CONFIDENCE).map(relative);
    let longer = longer_to_tell(fit.estimate.exp_m1(), interval, floor);
    (Verdict::Inconclusive, longer)
}

/// How many times as long a run must be so that the interval excludes zero and the noise floor is below the
/// effect. Both shrink with the root of the duration.
fn longer_to_tell(effect: f64, interval: Option<Interval>, floor: f64) -> Option<f64> {
    /// Beyond this factor, a longer run is not practical, and so small an effect may be absent.
    const MOST: f64 = 100.0;
    let interval = interval?;
    let half_width = (interval.high - interval.low) / 2.0;
    let factor = (half_width.max(floor) / effect.abs()).powi(2);
    (factor.is_finite() && factor <= MOST).then(|| factor.max(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interval::{Spread, Student};

    /// A log ratio over ten rounds.
    fn fit(estimate: f64, standard_error: f64) -> Inference {
        let spread = Spread::Student(Student {
            standard_error,
            degrees_of_freedom: 9.0,
        });
        Inference::new(estimate, Some(spread))
    }

    #[test]
    fn noise_floor_above_the_margin_is_inconclusive() {
        let verdict = |floor, margin| of(&fit(0.0, 0.005), 0.8, Bounds { floor, margin }).0;
        assert_eq!(verdict(0.01, 0.02), Verdict::Equivalent);
        assert_eq!(verdict(0.02, 0.02), Verdict::Equivalent);
        assert_eq!(verdict(0.021, 0.02), Verdict::Inconclusive);
        assert_eq!(verdict(0.4, 0.02), Verdict::Inconclusive);
    }

    #[test]
    fn effect_within_the_noise_floor_but_beyond_the_margin_is_inconclusive() {
        let bounds = Bounds {
            floor: 0.2,
            margin: 0.02,
        };
        assert_eq!(of(&fit(0.1, 0.01), 1e-6, bounds).0, Verdict::Inconclusive);
        assert_eq!(of(&fit(0.3, 0.01), 1e-6, bounds).0, Verdict::Different);
    }

    proptest! {
        /// *No relevant difference* never reads the noise floor as a licence: a larger floor takes the verdict away,
        /// and none gives it.
        #[test]
        fn larger_noise_floor_never_supports_equivalence(
            estimate in -0.2..0.2_f64,
            error in 1e-4..0.1_f64,
            p_value in 0.0..1.0_f64,
            margin in 0.001..0.5_f64,
            floor in 0.0..1.0_f64,
            more in 0.0..1.0_f64,
        ) {
            let verdict = |floor| of(&fit(estimate, error), p_value, Bounds { floor, margin }).0;
            let is_equivalent = verdict(floor + more) == Verdict::Equivalent;
            let is_beyond = estimate.exp_m1().abs() >= margin;
            prop_assert!(!(is_equivalent && is_beyond));
            prop_assert!(!is_equivalent || verdict(floor) != Verdict::Inconclusive);
        }
    }

    #[test]
    fn doubling_precision_quadruples_the_required_duration() {
        let interval = |low, high| Some(Interval { low, high });
        let factor = |effect, interval, floor| longer_to_tell(effect, interval, floor);
        assert_eq!(factor(0.01, interval(-0.01, 0.03), 0.005), Some(4.0));
        // The noise floor shrinks at the same rate.
        assert_eq!(factor(-0.01, interval(-0.02, 0.0), 0.03), Some(9.0));
        // It excludes zero already; only the adjustment prevents the verdict.
        assert_eq!(factor(0.01, interval(0.005, 0.015), 0.001), Some(1.0));
        assert_eq!(factor(0.0001, interval(-0.02, 0.02), 0.01), None);
        assert_eq!(factor(0.0, interval(-0.02, 0.02), 0.01), None);
        assert_eq!(factor(0.01, None, 0.01), None);
    }
}
