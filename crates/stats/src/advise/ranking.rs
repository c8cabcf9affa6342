//! Rankings of comparable variants, by their own paired differences.
//!
//! Places are ranges. All pairs are tested together (Holm, over the whole run), so that with 95 % confidence no difference
//! is shown in the wrong direction, and all ranges contain the true places. What could not be estimated shows nothing:
//! it narrows no range, its own least of all.

use std::collections::BTreeSet;

use meshtax_model::advice::{
    AdviceRequest, AdvisedVariant, PlaceRange, Priority, PriorityAnswer, Ranking, Standing, Tie,
};
use meshtax_model::analysis::{Analysis, Comparison, LoadOutcome, Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, PolicyLevel, VariantId};

use super::measured::measured;
use super::objectives::is_asked;

/// The requested priorities in their order, or all.
pub(super) fn priorities(
    analysis: &Analysis,
    asked: &AdviceRequest,
    variants: &[AdvisedVariant],
    sufficient: &[VariantId],
) -> Vec<PriorityAnswer> {
    let wanted = match asked.priorities.as_slice() {
        [] => Priority::ALL.as_slice(),
        some => some,
    };
    let groups = groups(asked, variants, sufficient);
    let answer = |priority: &Priority| PriorityAnswer {
        priority: *priority,
        rankings: rankings(analysis, asked, &groups, *priority),
        features: priority
            .features()
            .iter()
            .map(|f| (*f).to_owned())
            .collect(),
    };
    wanted.iter().map(answer).collect()
}

/// Variants with comparable work.
pub(super) struct Group<'a> {
    pub(super) level: Option<PolicyLevel>,
    pub(super) members: Vec<&'a VariantId>,
}

/// The variants that meet all needs; or, without needs, the choices of each level separately. Floors and
/// emulations are not choices.
pub(super) fn groups<'a>(
    asked: &AdviceRequest,
    variants: &'a [AdvisedVariant],
    sufficient: &'a [VariantId],
) -> Vec<Group<'a>> {
    if asked.has_needs() {
        return vec![Group {
            level: None,
            members: sufficient.iter().collect(),
        }];
    }
    let choices = || {
        let measured = variants.iter().filter(|v| v.excluded.is_none());
        measured.filter(|v| v.standing == Standing::Choice)
    };
    let levels: BTreeSet<Option<PolicyLevel>> = choices().map(|v| v.level).collect();
    let of_level = |level| Group {
        level,
        members: choices()
            .filter(|v| v.level == level)
            .map(|v| &v.variant)
            .collect(),
    };
    levels.into_iter().map(of_level).collect()
}

pub(super) fn metrics(priority: Priority) -> &'static [Metric] {
    match priority {
        Priority::Performance => &[Metric::ResponseP50, Metric::ResponseP99],
        Priority::Cost => &[Metric::CpuPerRequest],
        Priority::EaseOfInstallation
        | Priority::EaseOfMaintenance
        | Priority::Compliance
        | Priority::Support => &[],
    }
}

fn rankings(
    analysis: &Analysis,
    asked: &AdviceRequest,
    groups: &[Group<'_>],
    priority: Priority,
) -> Vec<Ranking> {
    let points = points(analysis, asked);
    let mut rankings = Vec::new();
    for group in groups.iter().filter(|group| group.members.len() > 1) {
        for metric in metrics(priority) {
            let of_metric = points.iter().map(|p| ranking(analysis, group, p, *metric));
            rankings.extend(of_metric.flatten());
        }
    }
    rankings
}

/// The load points of the objectives, or the first of either kind; and the saturated ones, at which
/// CPU is compared.
pub(super) fn points<'a>(analysis: &'a Analysis, asked: &AdviceRequest) -> Vec<&'a LoadPoint> {
    let all = &analysis.experiment.load_points;
    let about = |point: &&LoadPoint| asked.objectives.iter().any(|o| is_asked(o, point));
    let mut points: Vec<&LoadPoint> = all.iter().filter(about).collect();
    for steady in [true, false] {
        if !points.iter().any(|point| point.is_steady() == steady) {
            points.extend(all.iter().find(|point| point.is_steady() == steady));
        }
    }
    points
}

/// `None` if the run has no comparisons.
fn ranking(
    analysis: &Analysis,
    group: &Group<'_>,
    point: &LoadPoint,
    metric: Metric,
) -> Option<Ranking> {
    let holds = |id: &VariantId| group.members.contains(&id);
    let compared: Vec<&Comparison> = analysis
        .comparisons
        .iter()
        .filter(|c| c.metric == metric && c.load_point == point.id)
        .filter(|c| holds(&c.first) && holds(&c.second))
        .collect();
    if compared.is_empty() {
        return None;
    }
    let shown: BTreeSet<(&VariantId, &VariantId)> = compared
        .iter()
        .filter_map(|c| better(c))
        .chain(carrying_and_overloaded(analysis, group, point))
        .collect();
    let (ranked, unranked): (Vec<&VariantId>, Vec<&VariantId>) =
        group.members.iter().copied().partition(|id| {
            compared.iter().any(|c| tells_of(c, id))
                || shown.iter().any(|(one, two)| one == id || two == id)
        });
    let count = |is: &dyn Fn(&(&VariantId, &VariantId)) -> bool| {
        shown.iter().filter(|pair| is(pair)).count() as u32
    };
    let all = group.members.len() as u32;
    let mut places: Vec<PlaceRange> = ranked
        .iter()
        .map(|id| PlaceRange {
            variant: (*id).clone(),
            best: 1 + count(&|(_, worse)| worse == id),
            worst: all - count(&|(better, _)| better == id),
        })
        .collect();
    // A stable sort: variants with equal places stay in the experiment's order.
    places.sort_by_key(|place| (place.worst, place.best));
    let ties = compared.iter().filter(|c| better(c).is_none());
    Some(Ranking {
        level: group.level,
        metric,
        load_point: point.id.clone(),
        places,
        unranked: unranked.into_iter().cloned().collect(),
        ties: ties
            .map(|c| Tie {
                first: c.first.clone(),
                second: c.second.clone(),
                verdict: match &c.verdict {
                    Verdict::Different => Verdict::Inconclusive,
                    other => other.clone(),
                },
            })
            .collect(),
    })
}

/// A variant that did not carry the load is worse than each that did, in any metric: pairs of the better one and the
/// other.
pub(super) fn carrying_and_overloaded<'a>(
    analysis: &Analysis,
    group: &Group<'a>,
    point: &LoadPoint,
) -> Vec<(&'a VariantId, &'a VariantId)> {
    let outcome = |id: &VariantId| {
        let mut points = measured(analysis, id)?.points.iter();
        Some(points.find(|p| p.load_point == point.id)?.outcome)
    };
    let is_overloaded = |id: &VariantId| matches!(outcome(id), Some(LoadOutcome::Overloaded(_)));
    let carried = |id: &VariantId| outcome(id) == Some(LoadOutcome::Carried);
    let members = || group.members.iter().copied();
    members()
        .filter(|id| carried(id))
        .flat_map(|one| {
            let overloaded = members().filter(|id| is_overloaded(id));
            overloaded.map(move |other| (one, other))
        })
        .collect()
}

fn tells_of(comparison: &Comparison, id: &VariantId) -> bool {
    let estimable = !matches!(comparison.verdict, Verdict::NotEstimable { .. });
    estimable && (comparison.first == *id || comparison.second == *id)
}

/// The better one and the other, if a difference is shown: the adjusted interval excludes zero, and the
/// difference exceeds the noise floor.
pub(super) fn better(comparison: &Comparison) -> Option<(&VariantId, &VariantId)> {
    if comparison.verdict != Verdict::Different {
        return None;
    }
    let second_has_more = match comparison.relative?.value {
        more if more > 0.0 => true,
        less if less < 0.0 => false,
        _ => return None,
    };
    let pair = (&comparison.first, &comparison.second);
    Some(if second_has_more == comparison.metric.larger_is_worse() {
        pair
    } else {
        (pair.1, pair.0)
    })
}
