//! The decision table: what a run suggests for each requirement.
//!
//! A variant is suggested if it is shown to be the only best one: every other one is shown to be worse than some variant,
//! and it is shown to be worse than none. Several best ones are as good as each other if all of them differ by no more than the
//! margin; otherwise it is inconclusive which is the best. What was not measured is never assumed to be good or bad.

use meshtax_model::advice::{AdviceRequest, AdvisedVariant, Priority, Standing};
use meshtax_model::analysis::{
    Analysis, Decision, DecisionCell, DecisionGroup, DecisionReason, DecisionRow, Ground, Opponent,
    Suggestion,
};
use meshtax_model::experiment::VariantId;

use super::ranking::{Group, groups, points};
use super::relation::{Compared, Relation};

/// `None`: no two variants do the same work.
pub(super) fn decision(
    analysis: &Analysis,
    asked: &AdviceRequest,
    variants: &[AdvisedVariant],
    sufficient: &[VariantId],
) -> Option<Decision> {
    let points = points(analysis, asked);
    let mut groups = groups(asked, variants, sufficient);
    for group in &mut groups {
        group.members.retain(|id| is_unmodified(analysis, id));
    }
    let comparable = groups.iter().filter(|group| group.members.len() > 1);
    let groups: Vec<DecisionGroup> = comparable
        .map(|group| {
            let compared = Compared {
                analysis,
                group,
                points: &points,
                variants,
            };
            rows(&compared, asked)
        })
        .collect();
    (!groups.is_empty()).then(|| Decision {
        weights: asked.weights.clone(),
        groups,
    })
}

/// Whether a variant does the work of its data plane alone: what an option, a runtime switch or a limit costs does not decide
/// between meshes.
fn is_unmodified(analysis: &Analysis, id: &VariantId) -> bool {
    let variant = analysis.experiment.variant(id);
    variant.is_some_and(|v| v.options.is_empty() && v.runtime.is_empty() && v.limits.is_empty())
}

fn rows(compared: &Compared<'_>, asked: &AdviceRequest) -> DecisionGroup {
    let weight = |of: Priority| {
        let mut weights = asked.weights.iter();
        Some(weights.find(|w| w.requirement == of)?.weight)
    };
    let of_requirement = |requirement: Priority| {
        let unmeasured = match requirement {
            Priority::Performance | Priority::Cost => DecisionReason::NoComparison,
            Priority::Compliance => DecisionReason::NotProven,
            other => DecisionReason::NoMeasurement {
                features: other.features().iter().map(|&f| f.to_owned()).collect(),
            },
        };
        DecisionRow {
            requirement: Some(requirement),
            weight: weight(requirement),
            cells: Contest::of(compared.group, |one, other| {
                compared.by(requirement, one, other)
            })
            .cells(compared, asked, &unmeasured),
        }
    };
    let mut rows: Vec<DecisionRow> = Priority::ALL.into_iter().map(of_requirement).collect();
    if !asked.weights.is_empty() {
        let contest = Contest::of(compared.group, |one, other| {
            compared.by_weights(&asked.weights, one, other)
        });
        rows.push(DecisionRow {
            requirement: None,
            weight: None,
            cells: contest.cells(compared, asked, &DecisionReason::NothingWeighted),
        });
    }
    DecisionGroup {
        level: compared.group.level,
        rows,
    }
}

/// What is known of each pair of variants, for one requirement.
struct Contest<'a> {
    /// Each measured variant, and what is known of it and others.
    entries: Vec<(&'a VariantId, Vec<(&'a VariantId, Relation)>)>,
}

impl<'a> Contest<'a> {
    fn of(
        group: &Group<'a>,
        relation: impl Fn(&VariantId, &VariantId) -> Option<Relation>,
    ) -> Self {
        let members = || group.members.iter().copied();
        let entry = |one: &'a VariantId| {
            let others = members().filter(|other| *other != one);
            let known = others.filter_map(|other| Some((other, relation(one, other)?)));
            (one, known.collect())
        };
        Self {
            entries: members().map(entry).collect(),
        }
    }

    /// Those that could be the best ones: shown to be worse than none.
    fn leaders(&self) -> Vec<&'a VariantId> {
        let is_worse = |known: &[(&VariantId, Relation)]| {
            known.iter().any(|(_, r)| matches!(r, Relation::Worse(_)))
        };
        let leaders = self.entries.iter();
        leaders
            .filter(|(_, known)| !known.is_empty() && !is_worse(known))
            .map(|(id, _)| *id)
            .collect()
    }

    /// A cell for each choice of the group, in the experiment's order.
    fn cells(
        &self,
        compared: &Compared<'_>,
        asked: &AdviceRequest,
        unmeasured: &DecisionReason,
    ) -> Vec<DecisionCell> {
        let leaders = self.leaders();
        let cell = |variant: &AdvisedVariant| {
            let (suggestion, reason) = match &variant.excluded {
                Some(reason) => {
                    let reason = reason.clone();
                    let reason = DecisionReason::Excluded { reason };
                    (Suggestion::NotMeasuredHere, reason)
                }
                None => self.cell(&variant.variant, &leaders, unmeasured),
            };
            DecisionCell {
                variant: variant.variant.clone(),
                suggestion,
                reason,
            }
        };
        let is_here = |variant: &&AdvisedVariant| match &variant.excluded {
            // With needs, only what was proven to meet them is a choice.
            Some(_) => {
                let is_choice = variant.standing == Standing::Choice;
                is_choice && variant.level == compared.group.level && !asked.has_needs()
            }
            None => compared.group.members.contains(&&variant.variant),
        };
        let variants = compared.variants.iter();
        variants.filter(is_here).map(cell).collect()
    }

    fn cell(
        &self,
        id: &VariantId,
        leaders: &[&VariantId],
        unmeasured: &DecisionReason,
    ) -> (Suggestion, DecisionReason) {
        let known = self.known(id);
        if known.is_empty() {
            return (Suggestion::NotMeasuredHere, unmeasured.clone());
        }
        let better = opponents(known, |r| match r {
            Relation::Better(ground) => Some(ground),
            _ => None,
        });
        let worse = opponents(known, |r| match r {
            Relation::Worse(ground) => Some(ground),
            _ => None,
        });
        if !worse.is_empty() {
            return match leaders.is_empty() {
                // Each is worse than another one: no order.
                true => (
                    Suggestion::Inconclusive,
                    DecisionReason::NotSeparated { from: worse },
                ),
                false => (
                    Suggestion::NotSuggested,
                    DecisionReason::Worse { than: worse },
                ),
            };
        }
        if leaders == [id] && !better.is_empty() {
            let reason = DecisionReason::Better { than: better };
            return (Suggestion::Suggested, reason);
        }
        self.one_of_several(known, leaders)
    }

    /// One of several that could be the best one.
    fn one_of_several(
        &self,
        known: &[(&VariantId, Relation)],
        leaders: &[&VariantId],
    ) -> (Suggestion, DecisionReason) {
        if leaders.len() > 1 && self.all_equivalent(leaders) {
            let to = opponents(known, |r| match r {
                Relation::Equivalent(ground) => Some(ground),
                _ => None,
            });
            return (Suggestion::AsGoodAs, DecisionReason::Equivalent { to });
        }
        let mut from = opponents(known, |r| match r {
            Relation::Open(ground) | Relation::Equivalent(ground) => Some(ground),
            _ => None,
        });
        if leaders.len() > 1 {
            from.retain(|opponent| leaders.contains(&&opponent.variant));
        }
        let reason = DecisionReason::NotSeparated { from };
        (Suggestion::Inconclusive, reason)
    }

    fn all_equivalent(&self, leaders: &[&VariantId]) -> bool {
        leaders.iter().all(|one| {
            let mut others = leaders.iter().filter(|other| *other != one);
            others.all(|other| {
                let mut known = self.known(one).iter();
                known.any(|(id, r)| id == other && matches!(r, Relation::Equivalent(_)))
            })
        })
    }

    fn known(&self, id: &VariantId) -> &[(&'a VariantId, Relation)] {
        let mut entries = self.entries.iter();
        let entry = entries.find(|(of, _)| *of == id);
        entry.map_or(&[], |(_, known)| known)
    }
}

fn opponents(
    known: &[(&VariantId, Relation)],
    ground: impl Fn(&Relation) -> Option<&Ground>,
) -> Vec<Opponent> {
    let of = |(id, relation): &(&VariantId, Relation)| {
        Some(Opponent {
            variant: (*id).clone(),
            ground: ground(relation)?.clone(),
        })
    };
    known.iter().filter_map(of).collect()
}
