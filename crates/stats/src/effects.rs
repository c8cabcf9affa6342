//! The effects of the variants, and what may be said of them.

use meshtax_model::analysis::{Effect, Interval, Metric, NoiseFloor, Verdict};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, LoadPointId, Role, Variant};

use crate::account::cpu_per_request_ns;
use crate::family::{ALPHA, holm};
use crate::interval::{Inference, UNITS_MIN};
use crate::memory::anonymous_bytes;
use crate::pairing::{BlockKey, ByBlock, Paired, infer, pairs};
use crate::tails::{Counts, compare, resolved};
use crate::trials::{Cell, Trial, Trials, too_many_invalid};
use crate::verdict;

/// The primary family: what is adjusted for being looked at together.
pub(crate) fn is_primary(point: &LoadPoint, metric: Metric) -> bool {
    if point.is_steady() {
        matches!(metric, Metric::ResponseP50 | Metric::ResponseP99)
    } else {
        matches!(metric, Metric::Throughput | Metric::CpuPerRequest)
    }
}

/// The tails' names, for reasons.
pub(crate) fn tail_name(metric: Metric) -> Option<&'static str> {
    match metric {
        Metric::ResponseP99 => Some("p99"),
        Metric::ResponseP999 => Some("p99.9"),
        _ => None,
    }
}

/// A trial's own figure; `None` for tails, which a trial cannot have, and without a sample.
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

/// An effect before the family is known. Until then its verdict is not estimable, or not
/// distinguishable.
struct Draft {
    effect: Effect,
    log_ratio: Option<Inference>,
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
        judge(draft, &floors);
    }
    (drafts.into_iter().map(|d| d.effect).collect(), floors)
}

/// The variants that one is compared with: both baselines, or for the control the first.
fn references<'t, 'a>(
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

/// `None`: not worth a line (p99.9 where the baseline itself does not resolve it).
fn draft(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
) -> Option<Draft> {
    let references = references(trials, variant, point);
    if metric == Metric::ResponseP999 {
        resolved("p99.9", 0.999, &arm(references.iter().copied())).ok()?;
    }
    let estimated = estimate(trials, variant, point, metric, &references, "the baselines");
    let (paired, reason) = match estimated {
        Ok(paired) => (Some(paired), None),
        Err(reason) => (None, Some(reason)),
    };
    let paired = paired.as_ref();
    let reason = reason.or_else(|| paired.and_then(too_few));
    Some(Draft {
        effect: Effect {
            variant: variant.id.clone(),
            load_point: point.id.clone(),
            metric,
            difference: paired.map(|p| p.difference.estimate_plain()),
            relative: paired.map(|p| p.log_ratio.estimate_relative()),
            p_value: paired.and_then(|p| p.log_ratio.p_value()),
            p_adjusted: None,
            primary: variant.role == Role::Candidate && is_primary(point, metric),
            verdict: reason.map_or(Verdict::NotDistinguishable, |reason| {
                Verdict::NotEstimable { reason }
            }),
            longer_to_tell: None,
            rounds: paired.map_or(0, |p| p.rounds),
            blocks: paired.map_or(0, |p| p.blocks),
        },
        log_ratio: paired.map(|p| p.log_ratio.clone()),
        role: variant.role,
    })
}

/// Why there is no interval, if there is none.
pub(crate) fn too_few(paired: &Paired) -> Option<String> {
    let blocks = paired.blocks;
    let none = paired.log_ratio.spread.is_none();
    none.then(|| format!("fewer than six blocks with a valid pair ({blocks})"))
}

/// The effect over the run, or why there is none. `against`: whose the references are, in a sentence.
fn estimate(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
    references: &[&Cell<'_>],
    against: &str,
) -> Result<Paired, String> {
    if let Some(reason) = trials.left_out(&variant.id) {
        return Err(format!("left out: {reason}"));
    }
    let cell = trials.cell(&variant.id, &point.id);
    if let Some(reason) = too_many_invalid("its", [cell])
        .or_else(|| too_many_invalid(&format!("{against}'"), references.iter().copied()))
    {
        return Err(reason);
    }
    if cell.valid.is_empty() {
        return Err("no trial of it at this load point".to_owned());
    }
    if references
        .iter()
        .all(|reference| reference.valid.is_empty())
    {
        return Err(format!("no valid trial of {against}"));
    }
    let paired = match tail_name(metric).zip(metric.quantile()) {
        Some((name, quantile)) => {
            let (own, base) = (arm([cell]), arm(references.iter().copied()));
            resolved(name, quantile, &own)?;
            resolved(name, quantile, &base).map_err(|why| format!("in {against}: {why}"))?;
            compare(quantile, &own, &base)
        }
        None => compare_cells(metric, cell, references),
    };
    let paired = paired.map(|paired| as_ended(trials, paired));
    paired.ok_or_else(|| match metric {
        Metric::CpuPerRequest | Metric::AnonymousMemory => {
            "no block with resource samples of both".to_owned()
        }
        _ => "no block with a valid trial of both".to_owned(),
    })
}

/// Wider, if the run was ended because its intervals were narrow.
pub(crate) fn as_ended(trials: &Trials<'_>, paired: Paired) -> Paired {
    match trials.data.run.ending {
        Some(Ending::PrecisionReached) => paired.after_stopping(),
        _ => paired,
    }
}

/// A variant's effect against the baselines of its own run.
pub(crate) fn against_baselines(
    trials: &Trials<'_>,
    variant: &Variant,
    point: &LoadPoint,
    metric: Metric,
) -> Result<Paired, String> {
    let references = references(trials, variant, point);
    let paired = estimate(trials, variant, point, metric, &references, "the baselines")?;
    too_few(&paired).map_or(Ok(paired), Err)
}

/// One variant against others, as an effect is found against the baselines.
pub(crate) fn compare_variants(
    trials: &Trials<'_>,
    variant: &Variant,
    references: &[&Variant],
    point: &LoadPoint,
    metric: Metric,
) -> Result<Paired, String> {
    let cells: Vec<&Cell<'_>> = references
        .iter()
        .map(|reference| trials.cell(&reference.id, &point.id))
        .collect();
    let names: Vec<&str> = references.iter().map(|r| r.id.0.as_str()).collect();
    estimate(trials, variant, point, metric, &cells, &names.join(" and "))
}

/// Paired by block; for metrics that a trial has by itself.
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
    infer(&pairs(&by_block(cell), &levels.iter().collect::<Vec<_>>()))
}

/// The histograms of some cells.
pub(crate) fn arm<'c>(
    cells: impl IntoIterator<Item = &'c Cell<'c>>,
) -> Vec<(BlockKey, &'c Counts)> {
    let valid = cells.into_iter().flat_map(|cell| &cell.valid);
    valid.map(|trial| (trial.key, &trial.response)).collect()
}

/// Why nothing is judged where the A/A pair could not be.
pub(crate) const NO_FLOOR: &str = "no noise floor: the A/A pair has no interval here";

/// Without a noise floor nothing can be said to exceed it.
fn require_floor(draft: &mut Draft, floors: &[NoiseFloor]) {
    let effect = &mut draft.effect;
    if draft.role != Role::Control
        && effect.verdict == Verdict::NotDistinguishable
        && floor_of(effect, floors).is_none()
    {
        effect.verdict = Verdict::NotEstimable {
            reason: NO_FLOOR.to_owned(),
        };
    }
}

fn floor_of(effect: &Effect, floors: &[NoiseFloor]) -> Option<f64> {
    relative_floor(floors, &effect.load_point, effect.metric)
}

/// The margin within which a difference is none, relative.
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

/// Holm over the primary effects that can be judged. Which ones cannot (left out, too few
/// trials, not resolved) does not depend on how they came out.
fn adjust(drafts: &mut [Draft]) {
    let mut family: Vec<&mut Effect> = drafts
        .iter_mut()
        .map(|draft| &mut draft.effect)
        .filter(|effect| effect.primary && effect.p_value.is_some())
        .filter(|effect| effect.verdict == Verdict::NotDistinguishable)
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

/// Gives the verdict.
fn judge(draft: &mut Draft, floors: &[NoiseFloor]) {
    let effect = &mut draft.effect;
    let (Some(fit), Some(p_value)) = (draft.log_ratio.as_ref(), effect.p_value) else {
        return;
    };
    if effect.verdict != Verdict::NotDistinguishable {
        return;
    }
    if draft.role == Role::Control {
        // It makes the noise floor, so it cannot be held against it, nor be inside it.
        if p_value < ALPHA {
            effect.verdict = Verdict::Different;
        }
        return;
    }
    let Some(floor) = floor_of(effect, floors) else {
        return;
    };
    let p_value = effect.p_adjusted.unwrap_or(p_value);
    (effect.verdict, effect.longer_to_tell) = verdict::of(fit, p_value, floor);
}

/// Whether an effect's unit is the block although the run has enough rounds.
pub(crate) fn few_rounds(effect: &Effect) -> bool {
    effect.blocks > 0 && (effect.rounds as usize) < UNITS_MIN
}
