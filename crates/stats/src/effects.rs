//! The effects of the variants, and their verdicts.

use meshtax_model::analysis::{
    Arm, Effect, Interval, LoadOutcome, Metric, NoiseFloor, NotEstimable, Verdict,
};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, LoadPointId, Role, Variant};
use meshtax_model::margins::Margins;

use crate::account::cpu_per_request_ns;
use crate::family::{ALPHA, holm};
use crate::interval::{Inference, UNITS_MIN};
use crate::memory::anonymous_bytes;
use crate::outcome::outcome;
use crate::pairing::{BlockKey, ByBlock, Paired, infer, pairs};
use crate::tails::{Counts, compare, resolved};
use crate::trials::{Cell, Trial, Trials, too_many_invalid};
use crate::truncated::Truncated;
use crate::verdict::{self, Bounds};

/// The primary family: metrics that are adjusted for multiple testing. Not throughput: on shared cores it restates CPU
/// per request against an application that needs next to none.
pub(crate) fn is_primary(point: &LoadPoint, metric: Metric) -> bool {
    if point.is_steady() {
        matches!(
            metric,
            Metric::ResponseP50 | Metric::ResponseP99 | Metric::CpuPerRequest
        )
    } else {
        metric == Metric::CpuPerRequest
    }
}

/// Whether a metric is a percentile that only merged histograms resolve.
pub(crate) fn is_tail(metric: Metric) -> bool {
    matches!(metric, Metric::ResponseP99 | Metric::ResponseP999)
}

/// A trial's own figure; `None` for tails, which a single trial cannot resolve, and without a sample.
pub(crate) fn figure(metric: Metric, trial: &Trial<'_>) -> Option<f64> {
    match metric {
        Metric::ResponseP50 | Metric::ResponseP90 => trial.response.quantile(metric.quantile()?),
        Metric::ResponseP99 | Metric::ResponseP999 => None,
        Metric::Throughput => Some(trial.load.goodput_per_s()),
        Metric::CpuPerRequest => cpu_per_request_ns(trial.sample?, trial.load.completed),
        Metric::ResponseMean => trial.response.mean(),
        Metric::AnonymousMemory => anonymous_bytes(trial.sample?),
    }
}

/// An effect before adjustment. Until then its verdict is not estimable or inconclusive.
struct Draft {
    effect: Effect,
    log_ratio: Option<Inference>,
    truncated: Truncated,
    role: Role,
}

/// All effects, the control's first, and the noise floor.
pub(crate) fn effects(trials: &Trials<'_>) -> (Vec<Effect>, Vec<NoiseFloor>) {
    let compared = trials
        .by_role(Role::Control)
        .chain(trials.by_role(Role::Candidate));
    let mut drafts: Vec<Draft> = compared
        .flat_map(|variant| {
            let has =
                move |point: &&LoadPoint| trials.data.experiment.gap(variant, point).is_none();
            trials.points().iter().filter(has).flat_map(move |point| {
                let of = move |metric| draft(trials, variant, point, metric);
                Metric::of(point).iter().copied().filter_map(of)
            })
        })
        .collect();
    let floors = noise_floors(trials, &drafts);
    for draft in &mut drafts {
        require_floor(draft, &floors);
    }
    adjust(&mut drafts);
    for draft in &mut drafts {
        judge(draft, &floors, &trials.data.experiment.margins);
    }
    (drafts.into_iter().map(|d| d.effect).collect(), floors)
}

/// The reference variants: both baselines, or for the control the first.
pub(crate) fn references<'t, 'a>(
    trials: &'t Trials<'a>,
    variant: &Variant,
    point: &LoadPoint,
) -> Vec<&'t Cell<'a>> {
    let mut roles = vec![Role::Baseline];
    if variant.role == Role::Candidate {
        roles.push(Role::Control);
    }
    roles
        .into_iter()
        .flat_map(|role| trials.by_role(role))
        .map(|reference| trials.cell(&reference.id, &point.id))
        .collect()
}

/// `None`: not reported (p99.9 where the baseline itself does not resolve it).
fn draft(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
) -> Option<Draft> {
    let references = references(trials, variant, point);
    if metric == Metric::ResponseP999 {
        resolved(metric, &arm(references.iter().copied())).ok()?;
    }
    let against = (&Arm::Baselines, references.as_slice());
    let estimated = estimate(trials, variant, point, metric, against);
    let (paired, reason) = match estimated {
        Ok(paired) => (Some(paired), None),
        Err(reason) => (None, Some(reason)),
    };
    let paired = paired.as_ref();
    let reason = reason.or_else(|| paired.and_then(too_few));
    let verdict = match (outcome(trials, variant, point), reason) {
        (LoadOutcome::Overloaded(overload), _) => Verdict::Overloaded(overload),
        (_, Some(reason)) => Verdict::NotEstimable { reason },
        (_, None) => Verdict::Inconclusive,
    };
    let cell = trials.cell(&variant.id, &point.id);
    let truncated = Truncated::of(metric, cell, &references);
    Some(Draft {
        effect: Effect {
            variant: variant.id.clone(),
            load_point: point.id.clone(),
            metric,
            difference: paired.map(|p| p.difference.estimate_plain()),
            relative: paired.map(|p| p.log_ratio.estimate_relative()),
            lower_bound: truncated.is_lower_bound(),
            p_value: paired.and_then(|p| p.log_ratio.p_value()),
            p_adjusted: None,
            primary: variant.role == Role::Candidate && is_primary(point, metric),
            verdict,
            longer_to_tell: None,
            rounds: paired.map_or(0, |p| p.rounds),
            blocks: paired.map_or(0, |p| p.blocks),
        },
        log_ratio: paired.map(|p| p.log_ratio.clone()),
        truncated,
        role: variant.role,
    })
}

/// Why there is no interval, if there is none.
pub(crate) fn too_few(paired: &Paired) -> Option<NotEstimable> {
    let blocks = paired.blocks;
    let none = paired.log_ratio.spread.is_none();
    none.then_some(NotEstimable::FewBlocks { blocks })
}

/// Whether a variant's trials can be compared with those of `references`; an error says why not.
fn comparable(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    (against, references): (&Arm, &[&Cell<'_>]),
) -> Result<(), NotEstimable> {
    if let Some(reason) = trials.excluded(&variant.id) {
        return Err(NotEstimable::Excluded {
            variant: variant.id.clone(),
            reason,
        });
    }
    let cell = trials.cell(&variant.id, &point.id);
    let invalid = too_many_invalid(&Arm::Variant, [cell])
        .or_else(|| too_many_invalid(against, references.iter().copied()));
    if let Some(reason) = invalid {
        return Err(reason);
    }
    match outcome(trials, variant, point) {
        LoadOutcome::BeyondMachine { trials, of } => {
            return Err(NotEstimable::BeyondMachine { trials, of });
        }
        LoadOutcome::Uncertain { trials, of } => {
            return Err(NotEstimable::LoadNotCarried { trials, of });
        }
        LoadOutcome::Carried | LoadOutcome::Overloaded(_) => {}
    }
    if cell.valid.is_empty() {
        return Err(NotEstimable::NoTrials);
    }
    if references
        .iter()
        .all(|reference| reference.valid.is_empty())
    {
        return Err(NotEstimable::NoValidTrials {
            arm: against.clone(),
        });
    }
    Ok(())
}

/// An error if valid trials of a side served nothing: they are the worst there are, and would be left out of the pairs.
fn served(metric: Metric, arm: &Arm, cells: &[&Cell<'_>]) -> Result<(), NotEstimable> {
    let trials = cells.iter().flat_map(|cell| &cell.valid);
    let served_nothing = trials.filter(|trial| match metric {
        Metric::Throughput => trial.load.succeeded == 0,
        Metric::CpuPerRequest => trial.sample.is_some() && trial.load.completed == 0,
        // Latencies from which requests are missing are lower bounds.
        _ => false,
    });
    match u32::try_from(served_nothing.count()).unwrap_or(u32::MAX) {
        0 => Ok(()),
        trials => Err(NotEstimable::NothingServed {
            arm: arm.clone(),
            trials,
        }),
    }
}

/// The effect over the run, or why there is none. `against`: the reference arm and its cells.
fn estimate(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
    (against, references): (&Arm, &[&Cell<'_>]),
) -> Result<Paired, NotEstimable> {
    comparable(trials, variant, point, (against, references))?;
    let cell = trials.cell(&variant.id, &point.id);
    served(metric, &Arm::Variant, &[cell])?;
    served(metric, against, references)?;
    let paired = match metric.quantile().filter(|_| is_tail(metric)) {
        Some(quantile) => {
            let (own, base) = (arm([cell]), arm(references.iter().copied()));
            let in_arm = |arm: &Arm| {
                let arm = arm.clone();
                move |unresolved| NotEstimable::Unresolved { arm, unresolved }
            };
            resolved(metric, &own).map_err(in_arm(&Arm::Variant))?;
            resolved(metric, &base).map_err(in_arm(against))?;
            compare(quantile, &own, &base)
        }
        None => compare_cells(metric, cell, references),
    };
    let paired = paired.map(|paired| as_ended(trials, paired));
    paired.ok_or(match metric {
        Metric::CpuPerRequest | Metric::AnonymousMemory => NotEstimable::NoCommonSample,
        _ => NotEstimable::NoCommonBlock,
    })
}

/// Wider if the run ended because its intervals were narrow.
pub(crate) fn as_ended(trials: &Trials<'_>, paired: Paired) -> Paired {
    match trials.data.run.ending {
        Some(Ending::PrecisionReached) => paired.after_stopping(),
        _ => paired,
    }
}

/// A variant's effect relative to the baselines of its own run.
pub(crate) fn against_baselines(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
) -> Result<Paired, NotEstimable> {
    let references = references(trials, variant, point);
    let against = (&Arm::Baselines, references.as_slice());
    not_overloaded(trials, [variant], point)?;
    let paired = estimate(trials, variant, point, metric, against)?;
    too_few(&paired).map_or(Ok(paired), Err)
}

/// What an overloaded variant would have cost under this load is unknown.
fn not_overloaded<'v>(
    trials: &Trials<'_>,
    variants: impl IntoIterator<Item = &'v Variant>,
    point: &LoadPoint,
) -> Result<(), NotEstimable> {
    for variant in variants {
        let variant_id = || variant.id.clone();
        match outcome(trials, variant, point) {
            LoadOutcome::Overloaded(_) => {
                return Err(NotEstimable::Overloaded {
                    variant: variant_id(),
                });
            }
            LoadOutcome::Uncertain { trials, of } => {
                return Err(NotEstimable::LoadNotCarried { trials, of });
            }
            LoadOutcome::Carried | LoadOutcome::BeyondMachine { .. } => {}
        }
    }
    Ok(())
}

/// One variant compared with others, with the method for effects.
pub(crate) fn compare_variants(
    trials: &Trials<'_>,
    variant: &Variant,
    references: &[&Variant],
    point: &LoadPoint,
    metric: Metric,
) -> Result<Paired, NotEstimable> {
    let cells: Vec<&Cell<'_>> = references
        .iter()
        .map(|reference| trials.cell(&reference.id, &point.id))
        .collect();
    let against = Arm::Variants {
        variants: references.iter().map(|r| r.id.clone()).collect(),
    };
    not_overloaded(trials, references.iter().copied().chain([variant]), point)?;
    estimate(trials, variant, point, metric, (&against, &cells))
}

/// Paired by block; for metrics with a value per trial.
pub(crate) fn compare_cells(
    metric: Metric,
    cell: &Cell<'_>,
    references: &[&Cell<'_>],
) -> Option<Paired> {
    let by_block = |cell: &Cell<'_>| -> ByBlock {
        let figures = cell.valid.iter();
        figures
            .filter_map(|trial| Some((trial.key, figure(metric, trial)?)))
            .collect()
    };
    let levels: Vec<ByBlock> = references.iter().map(|cell| by_block(cell)).collect();
    let pairs = pairs(&by_block(cell), &levels.iter().collect::<Vec<_>>());
    infer(&pairs, Inference::method(metric))
}

/// The histograms of some cells.
pub(crate) fn arm<'c>(
    cells: impl IntoIterator<Item = &'c Cell<'c>>,
) -> Vec<(BlockKey, &'c Counts)> {
    let valid = cells.into_iter().flat_map(|cell| &cell.valid);
    valid.map(|trial| (trial.key, &trial.response)).collect()
}

/// Without a noise floor, no effect can exceed it.
fn require_floor(draft: &mut Draft, floors: &[NoiseFloor]) {
    let effect = &mut draft.effect;
    if draft.role != Role::Control
        && effect.verdict == Verdict::Inconclusive
        && floor_of(effect, floors).is_none()
    {
        effect.verdict = Verdict::NotEstimable {
            reason: NotEstimable::NoNoiseFloor,
        };
    }
}

fn floor_of(effect: &Effect, floors: &[NoiseFloor]) -> Option<f64> {
    relative_floor(floors, &effect.load_point, effect.metric)
}

/// The noise floor of a metric, relative.
pub(crate) fn relative_floor(
    floors: &[NoiseFloor],
    point: &LoadPointId,
    metric: Metric,
) -> Option<f64> {
    let mut here = floors
        .iter()
        .filter(|f| f.load_point == *point && f.metric == metric);
    here.find_map(|floor| floor.relative)
}

/// Holm over the primary effects that can be judged. Which ones cannot (excluded, too few
/// trials, not resolved) does not depend on their values.
fn adjust(drafts: &mut [Draft]) {
    let mut family: Vec<&mut Effect> = drafts
        .iter_mut()
        .map(|draft| &mut draft.effect)
        .filter(|effect| effect.primary && effect.p_value.is_some())
        .filter(|effect| effect.verdict == Verdict::Inconclusive)
        .collect();
    let p_values: Vec<f64> = family.iter().filter_map(|effect| effect.p_value).collect();
    for (effect, adjusted) in family.iter_mut().zip(holm(&p_values)) {
        effect.p_adjusted = Some(adjusted);
    }
}

fn noise_floors(trials: &Trials<'_>, drafts: &[Draft]) -> Vec<NoiseFloor> {
    let control = |point: &LoadPoint, metric| {
        drafts
            .iter()
            .map(|draft| (draft.role, &draft.effect))
            .find(|(role, effect)| {
                *role == Role::Control && effect.load_point == point.id && effect.metric == metric
            })
    };
    let largest = |interval: Option<Interval>| interval.map(|i| i.largest_absolute_end());
    let mut floors = Vec::new();
    for point in trials.points() {
        for metric in Metric::of(point) {
            let effect = control(point, *metric).map(|(_, effect)| effect);
            if effect.is_none() && *metric == Metric::ResponseP999 {
                continue;
            }
            floors.push(NoiseFloor {
                load_point: point.id.clone(),
                metric: *metric,
                absolute: effect.and_then(|e| largest(e.difference?.interval)),
                relative: effect.and_then(|e| largest(e.relative?.interval)),
            });
        }
    }
    floors
}

/// Sets the verdict.
fn judge(draft: &mut Draft, floors: &[NoiseFloor], margins: &Margins) {
    let effect = &mut draft.effect;
    let (Some(fit), Some(p_value)) = (draft.log_ratio.as_ref(), effect.p_value) else {
        return;
    };
    if effect.verdict != Verdict::Inconclusive {
        return;
    }
    if draft.role == Role::Control {
        // The control determines the noise floor, so it can be neither above nor within it.
        if p_value < ALPHA {
            effect.verdict = Verdict::Different;
        }
        return;
    }
    let Some(floor) = floor_of(effect, floors) else {
        return;
    };
    let p_value = effect.p_adjusted.unwrap_or(p_value);
    let margin = effect.metric.margin(margins);
    (effect.verdict, effect.longer_to_tell) = verdict::of(fit, p_value, Bounds { floor, margin });
    if draft.truncated.withholds(&effect.verdict, fit.estimate) {
        effect.verdict = Verdict::Inconclusive;
    }
}

/// Whether an effect's unit is the block although the run has enough rounds.
pub(crate) fn few_rounds(effect: &Effect) -> bool {
    effect.blocks > 0 && (effect.rounds as usize) < UNITS_MIN
}
