//! What a run shows of two variants, for one requirement.
//!
//! Only paired differences and proofs of the run count. Differences are adjusted over the whole run
//! ([`super::ranking`]), so that with 95 % confidence none of all that are shown is in the wrong direction.

use meshtax_model::advice::{AdvisedVariant, Given, Need, Priority};
use meshtax_model::analysis::{
    Analysis, Comparison, Estimate, Ground, Interval, Metric, Verdict, Weight,
};
use meshtax_model::experiment::{LoadPoint, LoadPointId, VariantId};

use super::ranking::{Group, better, carrying_and_overloaded, metrics};

/// What is known of one variant and another one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Relation {
    /// The first one is shown to be better.
    Better(Ground),
    /// The first one is shown to be worse.
    Worse(Ground),
    /// They differ by no more than the margin.
    Equivalent(Ground),
    /// Neither is shown.
    Open(Ground),
}

impl Relation {
    /// The same, where these other metrics do not decide.
    fn beside(mut self, metrics: Vec<Metric>) -> Self {
        let (Self::Better(ground)
        | Self::Worse(ground)
        | Self::Equivalent(ground)
        | Self::Open(ground)) = &mut self;
        if let Ground::Difference { open, .. } = ground {
            *open = metrics;
        }
        self
    }
}

/// Metrics other than the one that is shown, of which something is open and nothing is shown.
fn open_metrics(found: &[(Metric, Relation)], shown: Metric) -> Vec<Metric> {
    let of = |metric: Metric, is: fn(&Relation) -> bool| {
        found.iter().any(|(other, r)| *other == metric && is(r))
    };
    let mut metrics: Vec<Metric> = found.iter().map(|(metric, _)| *metric).collect();
    metrics.dedup();
    metrics.retain(|metric| {
        let is_shown = of(*metric, |r| {
            matches!(r, Relation::Better(_) | Relation::Worse(_))
        });
        *metric != shown && !is_shown && of(*metric, |r| matches!(r, Relation::Open(_)))
    });
    metrics
}

/// The variants of a group, and what is compared of them.
pub(super) struct Compared<'a> {
    pub(super) analysis: &'a Analysis,
    pub(super) group: &'a Group<'a>,
    pub(super) points: &'a [&'a LoadPoint],
    pub(super) variants: &'a [AdvisedVariant],
}

impl Compared<'_> {
    /// `None`: this run compares them by nothing that the requirement is decided by.
    pub(super) fn by(
        &self,
        requirement: Priority,
        one: &VariantId,
        other: &VariantId,
    ) -> Option<Relation> {
        match requirement {
            Priority::Performance | Priority::Cost => self.by_metrics(requirement, one, other),
            Priority::Compliance => self.by_proof(one, other),
            Priority::EaseOfInstallation | Priority::EaseOfMaintenance | Priority::Support => None,
        }
    }

    /// By the weights of the requirements in which one is shown to be better. What is open, or not measured, counts
    /// for whichever it would change the result.
    pub(super) fn by_weights(
        &self,
        weights: &[Weight],
        one: &VariantId,
        other: &VariantId,
    ) -> Option<Relation> {
        let (mut better, mut worse, mut equivalent, mut open) = (0.0, 0.0, 0.0, 0.0);
        let mut is_compared = false;
        for Weight {
            requirement,
            weight,
        } in weights
        {
            let relation = self.by(*requirement, one, other);
            is_compared |= relation.is_some();
            *match relation {
                Some(Relation::Better(_)) => &mut better,
                Some(Relation::Worse(_)) => &mut worse,
                Some(Relation::Equivalent(_)) => &mut equivalent,
                Some(Relation::Open(_)) | None => &mut open,
            } += weight;
        }
        let ground = Ground::Weights {
            better,
            worse,
            equivalent,
            open,
        };
        // Sums of decimal fractions are not exact: 0.1 + 0.2 does not outweigh 0.3.
        const TOLERANCE: f64 = 1e-9;
        is_compared.then_some(match (better, worse) {
            (better, worse) if better > worse + open + TOLERANCE => Relation::Better(ground),
            (better, worse) if worse > better + open + TOLERANCE => Relation::Worse(ground),
            // Advantages that outweigh each other are no equivalence.
            _ if better + worse + open == 0.0 => Relation::Equivalent(ground),
            _ => Relation::Open(ground),
        })
    }

    /// Better by one metric, and worse by none. Equivalent only by all that are compared: one that could not be estimated,
    /// or is inconclusive, leaves it open.
    fn by_metrics(
        &self,
        requirement: Priority,
        one: &VariantId,
        other: &VariantId,
    ) -> Option<Relation> {
        let of_metric = |metric: &Metric| {
            let at = |point: &&LoadPoint| Some((*metric, self.at(point, *metric, one, other)?));
            self.points.iter().filter_map(at).collect::<Vec<_>>()
        };
        let found: Vec<(Metric, Relation)> =
            metrics(requirement).iter().flat_map(of_metric).collect();
        let better = found.iter().find(|(_, r)| matches!(r, Relation::Better(_)));
        let worse = found.iter().find(|(_, r)| matches!(r, Relation::Worse(_)));
        match (better, worse) {
            (Some((better, _)), Some((worse, _))) => Some(Relation::Open(Ground::Conflict {
                better: *better,
                worse: *worse,
            })),
            (Some((metric, shown)), None) | (None, Some((metric, shown))) => {
                Some(shown.clone().beside(open_metrics(&found, *metric)))
            }
            (None, None) => {
                let is_open = |r: &Relation| matches!(r, Relation::Open(_));
                let open = found.iter().find(|(_, r)| is_open(r));
                Some(open.or_else(|| found.first())?.1.clone())
            }
        }
    }

    fn at(
        &self,
        point: &LoadPoint,
        metric: Metric,
        one: &VariantId,
        other: &VariantId,
    ) -> Option<Relation> {
        let of_pair = |c: &&Comparison| {
            (c.first == *one && c.second == *other) || (c.first == *other && c.second == *one)
        };
        let mut compared = self.analysis.comparisons.iter();
        let compared =
            compared.find(|c| c.metric == metric && c.load_point == point.id && of_pair(c))?;
        let overloaded = carrying_and_overloaded(self.analysis, self.group, point);
        let by_load = |pair: (&VariantId, &VariantId)| overloaded.contains(&pair);
        let ground = |carried| Ground::Overload {
            load_point: point.id.clone(),
            carried,
        };
        if by_load((one, other)) {
            return Some(Relation::Better(ground(true)));
        }
        if by_load((other, one)) {
            return Some(Relation::Worse(ground(false)));
        }
        let margin = metric.margin(&self.analysis.experiment.margins);
        Some(relation(compared, one, margin))
    }

    fn by_proof(&self, one: &VariantId, other: &VariantId) -> Option<Relation> {
        let (ours, theirs) = (self.proven(one)?, self.proven(other)?);
        let has_all = |of: &[Need], all: &[Need]| all.iter().all(|need| of.contains(need));
        let relation = match (has_all(&ours, &theirs), has_all(&theirs, &ours)) {
            (true, true) => Relation::Equivalent,
            (true, false) => Relation::Better,
            (false, true) => Relation::Worse,
            (false, false) => Relation::Open,
        };
        Some(relation(Ground::Proof { needs: ours }))
    }

    /// What the probes proved of a variant; `None`: nothing.
    fn proven(&self, id: &VariantId) -> Option<Vec<Need>> {
        let variant = self.variants.iter().find(|v| v.variant == *id)?;
        let gives = variant.gives.iter();
        let proven = gives.filter(|g| g.need.level().is_some() && g.given == Given::Yes);
        let proven: Vec<Need> = proven.map(|g| g.need).collect();
        (!proven.is_empty()).then_some(proven)
    }
}

/// As seen from `one` of the two. A difference that is shown, and shown to be within the margin, does not matter.
fn relation(compared: &Comparison, one: &VariantId, margin: f64) -> Relation {
    let load_point: LoadPointId = compared.load_point.clone();
    let metric = compared.metric;
    if let Verdict::NotEstimable { reason } = &compared.verdict {
        return Relation::Open(Ground::NotEstimable {
            metric,
            load_point,
            reason: reason.clone(),
        });
    }
    let relative = match compared.second == *one {
        true => compared.relative,
        false => compared.relative.and_then(inverse),
    };
    let ground = Ground::Difference {
        metric,
        load_point,
        relative,
        withheld: compared.withheld,
        open: Vec::new(),
    };
    let within = |interval: Interval| interval.largest_absolute_end() < margin;
    let interval = compared.relative.and_then(|relative| relative.interval);
    let is_small = interval.is_some_and(within) && compared.withheld.is_none();
    if compared.verdict == Verdict::Different && is_small {
        return Relation::Equivalent(ground);
    }
    match (better(compared), &compared.verdict) {
        (Some((better, _)), _) if better == one => Relation::Better(ground),
        (Some(_), _) => Relation::Worse(ground),
        (None, Verdict::Equivalent) => Relation::Equivalent(ground),
        (None, _) => Relation::Open(ground),
    }
}

/// A relative difference as seen from the other side; `None`: not finite.
fn inverse(relative: Estimate) -> Option<Estimate> {
    let of = |more: f64| Some(1.0 / (1.0 + more) - 1.0).filter(|less| less.is_finite());
    Some(Estimate {
        value: of(relative.value)?,
        interval: relative.interval.and_then(|interval| {
            Some(Interval {
                low: of(interval.high)?,
                high: of(interval.low)?,
            })
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverse_of_a_difference_is_that_of_the_ratio() {
        let interval = |low, high| Some(Interval { low, high });
        let more = Estimate {
            value: 1.0,
            interval: interval(0.6, 3.0),
        };
        let less = inverse(more).expect("finite");
        assert_eq!(less.value, -0.5);
        let ends = less.interval.expect("an interval");
        assert!((ends.low + 0.75).abs() < 1e-12 && (ends.high + 0.375).abs() < 1e-12);
        let nothing_left = Estimate {
            value: -1.0,
            interval: None,
        };
        assert_eq!(inverse(nothing_left), None);
    }
}
