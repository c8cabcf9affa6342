//! Differences of latencies from which requests are missing.

use meshtax_model::analysis::{Metric, Verdict};

use crate::outcome::is_lower_bound;
use crate::trials::Cell;

/// Which sides of a difference are lower bounds, so that the true difference lies on one side of the estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// What is compared: the true difference is at least the estimate.
    pub(crate) own: bool,
    /// What it is compared with: the true difference is at most the estimate.
    pub(crate) reference: bool,
}

impl Truncated {
    pub(crate) fn of(metric: Metric, cell: &Cell<'_>, references: &[&Cell<'_>]) -> Self {
        let mut references = references.iter();
        Self {
            own: is_lower_bound(metric, cell),
            reference: references.any(|cell| is_lower_bound(metric, cell)),
        }
    }

    /// Of the ratio of two such differences: what is missing below the line acts the other way.
    pub(crate) fn of_ratio(new: Self, base: Self) -> Self {
        Self {
            own: new.own || base.reference,
            reference: new.reference || base.own,
        }
    }

    /// Whether the difference is a lower bound itself.
    pub(crate) fn is_lower_bound(self) -> bool {
        self.own && !self.reference
    }

    /// Whether a verdict would rest on what is missing: the side that looks better may only look so, and of two that look
    /// equal, the one that lacks requests may be worse. `estimate`: of the difference; only its sign counts.
    pub(crate) fn withholds(self, verdict: &Verdict, estimate: f64) -> bool {
        match verdict {
            Verdict::Different if estimate < 0.0 => self.own,
            Verdict::Different => self.reference,
            Verdict::Equivalent => self.own || self.reference,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_is_withheld_where_the_better_side_or_either_of_equal_ones_is_truncated() {
        let sides = |own, reference| Truncated { own, reference };
        for (verdict, estimate, expected) in [
            // None, the own side, the reference, both.
            (Verdict::Different, -0.1, [false, true, false, true]),
            (Verdict::Different, 0.1, [false, false, true, true]),
            (Verdict::Equivalent, 0.001, [false, true, true, true]),
            (Verdict::Inconclusive, 0.1, [false; 4]),
        ] {
            let all = [(false, false), (true, false), (false, true), (true, true)];
            let found =
                all.map(|(own, reference)| sides(own, reference).withholds(&verdict, estimate));
            assert_eq!(found, expected, "{verdict:?} {estimate}");
        }
        let ratio = Truncated::of_ratio(sides(false, false), sides(false, true));
        assert!(ratio.is_lower_bound());
    }
}
