//! Variants in the order that is shown: by their own paired differences, like against like.

use std::collections::BTreeSet;

use meshtax_model::advice::{
    AdvisedVariant, Asked, Facts, Place, Priority, PriorityAnswer, Ranking, Standing, Tie,
};
use meshtax_model::analysis::{Analysis, Comparison, Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, PolicyLevel, VariantId};

use super::facts::side_by_side;
use super::objectives::is_asked;

/// Those that were asked for in their order, or all.
pub(super) fn priorities(
    analysis: &Analysis,
    asked: &Asked,
    variants: &[AdvisedVariant],
    sufficient: &[VariantId],
    facts: &Facts,
) -> Vec<PriorityAnswer> {
    let wanted = match asked.priorities.as_slice() {
        [] => Priority::ALL.as_slice(),
        some => some,
    };
    let groups = groups(asked, variants, sufficient);
    let answer = |priority: &Priority| PriorityAnswer {
        priority: *priority,
        rankings: rankings(analysis, asked, &groups, *priority),
        facts: side_by_side(facts, priority.features()),
    };
    wanted.iter().map(answer).collect()
}

/// Variants that do the same work.
struct Group<'a> {
    level: Option<PolicyLevel>,
    members: Vec<&'a VariantId>,
}

/// What gives all that is needed; or, with no need stated, the choices of each level by themselves. Floors and
/// emulations are no choices.
fn groups<'a>(
    asked: &Asked,
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
        let measured = variants.iter().filter(|v| v.left_out.is_none());
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

fn metrics(priority: Priority) -> &'static [Metric] {
    match priority {
        Priority::Performance => &[Metric::ResponseP50, Metric::ResponseP99, Metric::Throughput],
        Priority::Cost => &[Metric::CpuPerRequest],
        Priority::EaseOfInstallation
        | Priority::EaseOfMaintenance
        | Priority::Compliance
        | Priority::Support => &[],
    }
}

fn rankings(
    analysis: &Analysis,
    asked: &Asked,
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

/// The load points that the objectives are about, or the first of either kind; and the saturated ones, at which
/// CPU is compared.
fn points<'a>(analysis: &'a Analysis, asked: &Asked) -> Vec<&'a LoadPoint> {
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

/// `None` where the run compares nothing.
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
    let shown: Vec<(&VariantId, &VariantId)> = compared.iter().filter_map(|c| better(c)).collect();
    let (ranked, unranked): (Vec<&VariantId>, Vec<&VariantId>) = group
        .members
        .iter()
        .partition(|id| compared.iter().any(|c| tells_of(c, id)));
    let mut places: Vec<Place> = ranked
        .iter()
        .map(|id| Place {
            variant: (*id).clone(),
            place: 1 + shown.iter().filter(|(_, worse)| worse == id).count() as u32,
        })
        .collect();
    // A stable sort: those that share a place stay in the experiment's order.
    places.sort_by_key(|place| place.place);
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
                    Verdict::Different => Verdict::NotDistinguishable,
                    told => told.clone(),
                },
            })
            .collect(),
    })
}

fn tells_of(comparison: &Comparison, id: &VariantId) -> bool {
    let estimable = !matches!(comparison.verdict, Verdict::NotEstimable { .. });
    estimable && (comparison.first == *id || comparison.second == *id)
}

/// The better one and the other, where a difference is shown: the adjusted interval excludes zero, and the
/// difference exceeds the margin.
fn better(comparison: &Comparison) -> Option<(&VariantId, &VariantId)> {
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
