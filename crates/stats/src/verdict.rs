//! What may be said of a difference. The relative one decides: a round in which the whole machine was
//! slow scales every difference in it, and leaves the ratios as they are.

use meshtax_model::analysis::{Interval, Verdict};

use crate::family::ALPHA;
use crate::interval::{CONFIDENCE, CONFIDENCE_TOST, Inference, relative};

/// A noise floor beyond this is no margin: where the baseline differs from itself by half, that something lies within
/// does not say that it costs nothing.
const WIDEST_MARGIN: f64 = 0.5;

/// Whether a difference is declared: its (adjusted) p-value, and its size beyond the noise floor.
pub(crate) fn is_different(fit: &Inference, p_value: f64, floor: f64) -> bool {
    p_value < ALPHA && fit.estimate.exp_m1().abs() > floor
}

/// The verdict on a log ratio, and how many times as long a run would tell it from none, where it is
/// not told apart.
pub(crate) fn of(fit: &Inference, p_value: f64, floor: f64) -> (Verdict, Option<f64>) {
    if is_different(fit, p_value, floor) {
        return (Verdict::Different, None);
    }
    let inside = fit.interval(CONFIDENCE_TOST).map(relative);
    let is_margin = floor <= WIDEST_MARGIN;
    if is_margin && inside.is_some_and(|interval| interval.largest_absolute_end() < floor) {
        return (Verdict::Equivalent, None);
    }
    let interval = fit.interval(CONFIDENCE).map(relative);
    let longer = longer_to_tell(fit.estimate.exp_m1(), interval, floor);
    (Verdict::NotDistinguishable, longer)
}

/// What a run must be longer by, so that the interval leaves zero out and the noise floor is below the
/// effect. Both shrink with the root of the time.
fn longer_to_tell(effect: f64, interval: Option<Interval>, floor: f64) -> Option<f64> {
    /// Nobody waits longer, and so small an effect may as well be none.
    const MOST: f64 = 100.0;
    let interval = interval?;
    let half_width = (interval.high - interval.low) / 2.0;
    let factor = (half_width.max(floor) / effect.abs()).powi(2);
    (factor.is_finite() && factor <= MOST).then(|| factor.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::{Spread, Student};

    #[test]
    fn a_wide_noise_floor_is_no_margin() {
        // A difference of a tenth, give or take some hundredths, of ten rounds.
        let spread = Spread::Student(Student {
            standard_error: 0.02,
            degrees_of_freedom: 9.0,
        });
        let fit = Inference::new(0.1, Some(spread));
        assert_eq!(of(&fit, 0.8, 0.4).0, Verdict::Equivalent);
        assert_eq!(of(&fit, 0.8, 2.5).0, Verdict::NotDistinguishable);
    }

    #[test]
    fn twice_the_precision_takes_four_times_as_long() {
        let interval = |low, high| Some(Interval { low, high });
        let factor = |effect, interval, floor| longer_to_tell(effect, interval, floor);
        assert_eq!(factor(0.01, interval(-0.01, 0.03), 0.005), Some(4.0));
        // The noise floor shrinks as slowly.
        assert_eq!(factor(-0.01, interval(-0.02, 0.0), 0.03), Some(9.0));
        // It leaves zero out already, and only the adjustment holds it back.
        assert_eq!(factor(0.01, interval(0.005, 0.015), 0.001), Some(1.0));
        assert_eq!(factor(0.0001, interval(-0.02, 0.02), 0.01), None);
        assert_eq!(factor(0.0, interval(-0.02, 0.02), 0.01), None);
        assert_eq!(factor(0.01, None, 0.01), None);
    }
}
