//! Arithmetic on estimates, end by end.

use meshtax_model::analysis::{Estimate, Interval};

/// Both ends multiplied; `None` if the result is not finite.
pub(super) fn times(estimate: Estimate, factor: f64) -> Option<Estimate> {
    map(estimate, |value| value * factor)
}

pub(super) fn map(estimate: Estimate, to: impl Fn(f64) -> f64) -> Option<Estimate> {
    let interval = estimate.interval.map(|interval| Interval {
        low: to(interval.low),
        high: to(interval.high),
    });
    let interval = interval.filter(|i| i.low.is_finite() && i.high.is_finite());
    let value = to(estimate.value);
    value.is_finite().then_some(Estimate { value, interval })
}
