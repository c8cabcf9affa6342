//! Added CPU per request: what changes elsewhere, and the throughput that it costs.
//!
//! A figure that counts the components in the path only can be beaten by work that is charged to nobody: softirq
//! time outside any process, or the generator's own system calls. So both are estimated by the same pairs, and
//! where they change by more than a tenth of the effect, the effect is a range. Nor is there *no relevant difference*
//! where CPU elsewhere is known to have changed by more than the margin.

use meshtax_model::analysis::{
    AddedCpu, Effect, Elsewhere, Estimate, Interval, Metric, ThroughputLoss, Verdict, WithElsewhere,
};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::trial::{ComponentRole, ResourceSample};

use crate::account::cpu_per_request_ns;
use crate::effects::references;
use crate::interval::{Inference, mean};
use crate::pairing::{ByBlock, unit_means_of};
use crate::points::level_in;
use crate::trials::{Cell, Trials};

/// Above this share of the effect, CPU elsewhere makes the effect a range.
const SHARE_MAX: f64 = 0.1;

/// An application whose requests take a millisecond, for comparison with the one that was measured.
const USUAL_APP_CPU_NS: f64 = 1e6;

/// For every variant but the baseline at every load point that it supports, the control's first.
pub(crate) fn added_cpu(trials: &Trials<'_>, effects: &[Effect]) -> Vec<AddedCpu> {
    let of_cpu = effects
        .iter()
        .filter(|effect| effect.metric == Metric::CpuPerRequest && effect.difference.is_some());
    of_cpu
        .filter_map(|effect| {
            let experiment = trials.data.experiment;
            let variant = experiment.variant(&effect.variant)?;
            let point = experiment.load_point(&effect.load_point)?;
            Some(of_effect(trials, effect, variant, point))
        })
        .collect()
}

fn of_effect(
    trials: &Trials<'_>,
    effect: &Effect,
    variant: &Variant,
    point: &LoadPoint,
) -> AddedCpu {
    let cell = trials.cell(&variant.id, &point.id);
    let baselines = references(trials, variant, point);
    let difference = |parts: &[Elsewhere], with_path: bool| {
        let cpu = |sample: &ResourceSample, completed| {
            let own = match with_path {
                true => cpu_per_request_ns(sample, completed)?,
                false => 0.0,
            };
            let elsewhere = parts
                .iter()
                .map(|part| elsewhere_ns(*part, sample, completed));
            Some(own + elsewhere.sum::<Option<f64>>()?)
        };
        difference(trials, cell, &baselines, cpu)
    };
    let both = [Elsewhere::Unattributed, Elsewhere::Generator];
    let [unattributed, generator] = both.map(|part| difference(&[part], false));
    let is_relevant = |change| match effect.verdict {
        Verdict::Different => is_relevant(effect, change),
        Verdict::Equivalent => exceeds_margin(change, relevant_ns(trials, &baselines)),
        _ => false,
    };
    let parts: Vec<Elsewhere> = [(both[0], unattributed), (both[1], generator)]
        .into_iter()
        .filter(|(_, change)| change.is_some_and(is_relevant))
        .map(|(part, _)| part)
        .collect();
    let with_elsewhere = match parts.is_empty() {
        true => None,
        false => difference(&parts, true).map(|added| WithElsewhere { parts, added }),
    };
    AddedCpu {
        variant: variant.id.clone(),
        load_point: point.id.clone(),
        unattributed,
        generator,
        with_elsewhere,
        losses: match variant.role == Role::Candidate && !point.is_steady() {
            true => losses(effect, &baselines),
            false => Vec::new(),
        },
    }
}

/// Whether a change elsewhere makes a declared effect a range.
fn is_relevant(effect: &Effect, change: Estimate) -> bool {
    let added = effect.difference.map_or(0.0, |added| added.value);
    change.value.abs() > SHARE_MAX * added.abs()
}

/// The margin for CPU per request, in nanoseconds; `None`: the baselines have no such figure.
fn relevant_ns(trials: &Trials<'_>, baselines: &[&Cell<'_>]) -> Option<f64> {
    let margin = Metric::CpuPerRequest.margin(&trials.data.experiment.margins);
    mean(&cpu_levels(baselines)).map(|level_ns| level_ns * margin)
}

/// Whether a change is known to be one, and larger than what does not matter.
fn exceeds_margin(change: Estimate, margin_ns: Option<f64>) -> bool {
    let excludes_zero = |interval: Interval| interval.low > 0.0 || interval.high < 0.0;
    change.interval.is_some_and(excludes_zero)
        && margin_ns.is_some_and(|margin_ns| change.value.abs() > margin_ns)
}

fn cpu_levels(cells: &[&Cell<'_>]) -> Vec<f64> {
    let levels = cells.iter();
    levels
        .filter_map(|cell| level_in(Metric::CpuPerRequest, cell))
        .collect()
}

/// Takes *no relevant difference* back where CPU elsewhere changed by more than the margin: the work may have moved there.
pub(crate) fn veto_equivalence(effects: &mut [Effect], added: &[AddedCpu]) {
    let moved = added.iter().filter(|added| added.with_elsewhere.is_some());
    for added in moved {
        let is_it = |effect: &&mut Effect| {
            effect.metric == Metric::CpuPerRequest
                && effect.verdict == Verdict::Equivalent
                && effect.variant == added.variant
                && effect.load_point == added.load_point
        };
        if let Some(effect) = effects.iter_mut().find(is_it) {
            effect.verdict = Verdict::Inconclusive;
        }
    }
}

/// CPU elsewhere per completed request, in nanoseconds; it can be below zero by the kernel's tick.
fn elsewhere_ns(part: Elsewhere, sample: &ResourceSample, completed: u64) -> Option<f64> {
    let of_role = |role: Option<ComponentRole>| -> f64 {
        let components = sample.components.iter();
        components
            .filter(|component| role.is_none_or(|role| component.role == role))
            .map(|component| component.cpu_ns as f64)
            .sum()
    };
    let cpu_ns = match part {
        Elsewhere::Unattributed => sample.busy_ns() as f64 - of_role(None),
        Elsewhere::Generator => of_role(Some(ComponentRole::Generator)),
    };
    (completed > 0).then(|| cpu_ns / completed as f64)
}

/// The paired difference of a figure that may be zero or less, over rounds.
fn difference(
    trials: &Trials<'_>,
    cell: &Cell<'_>,
    baselines: &[&Cell<'_>],
    figure: impl Fn(&ResourceSample, u64) -> Option<f64>,
) -> Option<Estimate> {
    let by_block = |cell: &Cell<'_>| -> ByBlock {
        let valid = cell.valid.iter();
        let figures = valid
            .filter_map(|trial| Some((trial.key, figure(trial.sample?, trial.load.completed)?)));
        figures.collect()
    };
    let references: Vec<ByBlock> = baselines.iter().map(|cell| by_block(cell)).collect();
    let differences = by_block(cell).into_iter().filter_map(|(key, value)| {
        let levels: Vec<f64> = references
            .iter()
            .filter_map(|reference| reference.get(&key).copied())
            .collect();
        Some((key, value - mean(&levels)?))
    });
    let fit = Inference::of_mean(&unit_means_of(differences))?;
    let fit = match trials.data.run.ending {
        Some(Ending::PrecisionReached) => fit.after_stopping(),
        _ => fit,
    };
    Some(fit.estimate_plain())
}

/// For an application of a millisecond and for the measured one.
fn losses(effect: &Effect, baselines: &[&Cell<'_>]) -> Vec<ThroughputLoss> {
    let of = |app_cpu_ns: f64, is_measured: bool, added: Estimate, unit: f64| ThroughputLoss {
        app_cpu_ns,
        is_measured,
        share: lost_share(added, unit),
    };
    let usual = effect
        .difference
        .map(|added| of(USUAL_APP_CPU_NS, false, added, USUAL_APP_CPU_NS));
    let levels = cpu_levels(baselines);
    // The effect relative to the baseline is added CPU in units of the application's own.
    let own = effect
        .relative
        .zip(mean(&levels))
        .map(|(added, app_cpu_ns)| of(app_cpu_ns, true, added, 1.0));
    usual.into_iter().chain(own).collect()
}

/// added / (own + added), which grows with what is added.
fn lost_share(added: Estimate, own: f64) -> Estimate {
    added.mapped(|added| added / (own + added))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_throughput_depends_on_the_application() {
        let added = Estimate {
            value: 93_100.0,
            interval: Some(Interval {
                low: 91_400.0,
                high: 94_900.0,
            }),
        };
        let usual = lost_share(added, USUAL_APP_CPU_NS);
        assert!((usual.value - 0.0852).abs() < 1e-4, "{usual:?}");
        let fast = lost_share(added, 5_031.0);
        let interval = fast.interval.unwrap();
        assert!((fast.value - 0.9487).abs() < 1e-4, "{fast:?}");
        assert!(interval.low < fast.value && fast.value < interval.high);
    }
}
