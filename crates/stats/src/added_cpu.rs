//! Added CPU per request: what changes elsewhere, and the throughput that it costs.
//!
//! A figure that counts the components in the path only can be beaten by work that is charged to nobody: softirq
//! time outside any process, or the generator's own system calls. So both are estimated by the same pairs, and
//! where they change by more than a tenth of the effect, the effect is a range. Nor is there *no relevant difference*
//! where CPU elsewhere is known to have changed by more than the margin, or may have done so ([`crate::elsewhere`]).

use meshtax_model::analysis::{
    AddedCpu, Effect, Elsewhere, Estimate, Interval, Metric, ThroughputLoss, Verdict, WithElsewhere,
};
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::trial::{ComponentRole, ResourceSample};

use crate::effects::references;
use crate::elsewhere::{PARTS, difference, parts_ns, path_levels, whole, with_path_ns, withholds};
use crate::interval::mean;
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
    let part = |part: Elsewhere| {
        let parts = [part];
        let figure = move |sample: &ResourceSample, completed| parts_ns(&parts, sample, completed);
        difference(trials, cell, &baselines, figure).map(|fit| fit.estimate_plain())
    };
    let changes: Vec<(Elsewhere, Estimate)> = PARTS
        .into_iter()
        .filter(|of| *of != Elsewhere::ControlPlane || has_control_plane(cell))
        .filter_map(|of| Some((of, part(of)?)))
        .collect();
    let parts = relevant(trials, effect, (cell, baselines.as_slice()), &changes);
    let with_elsewhere = match parts.is_empty() {
        true => None,
        false => {
            let figure =
                |sample: &ResourceSample, completed| with_path_ns(&parts, sample, completed);
            let added = difference(trials, cell, &baselines, figure);
            added.map(|added| WithElsewhere {
                parts: parts.clone(),
                added: added.estimate_plain(),
            })
        }
    };
    let change = |of: Elsewhere| {
        let mut changes = changes.iter();
        changes.find_map(|(part, change)| (*part == of).then_some(*change))
    };
    AddedCpu {
        variant: variant.id.clone(),
        load_point: point.id.clone(),
        unattributed: change(Elsewhere::Unattributed),
        generator: change(Elsewhere::Generator),
        control_plane: change(Elsewhere::ControlPlane),
        with_elsewhere,
        losses: match variant.role == Role::Candidate && !point.is_steady() {
            true => losses(effect, &baselines),
            false => Vec::new(),
        },
    }
}

/// Only a cluster has one.
fn has_control_plane(cell: &Cell<'_>) -> bool {
    let samples = cell.valid.iter().filter_map(|trial| trial.sample);
    let mut components = samples.flat_map(|sample| &sample.components);
    components.any(|component| component.role == ComponentRole::ControlPlane)
}

/// The parts elsewhere that make a difference a range, or take *no relevant difference* back. Each by itself or, of the
/// latter, all together, if they leave open whether the whole is within the margin.
fn relevant(
    trials: &Trials<'_>,
    effect: &Effect,
    (cell, baselines): (&Cell<'_>, &[&Cell<'_>]),
    changes: &[(Elsewhere, Estimate)],
) -> Vec<Elsewhere> {
    let margin = effect.metric.margin(&trials.data.experiment.margins);
    let margin_ns = mean(&path_levels(baselines)).map(|level_ns| level_ns * margin);
    let is_relevant = |change: Estimate| match effect.verdict {
        Verdict::Different => is_relevant(effect, change),
        Verdict::Equivalent => exceeds_margin(change, margin_ns),
        _ => false,
    };
    let of = |is_it: &dyn Fn(Estimate) -> bool| -> Vec<Elsewhere> {
        let changes = changes.iter().filter(|(_, change)| is_it(*change));
        changes.map(|(part, _)| *part).collect()
    };
    let single = of(&is_relevant);
    let is_withheld = effect.verdict == Verdict::Equivalent
        && whole(trials, effect.metric, cell, baselines)
            .is_some_and(|whole| withholds(&effect.verdict, 0.0, &whole, margin));
    match single.is_empty() && is_withheld {
        true => of(&|_| true),
        false => single,
    }
}

/// Whether a change elsewhere makes a declared effect a range.
fn is_relevant(effect: &Effect, change: Estimate) -> bool {
    let added = effect.difference.map_or(0.0, |added| added.value);
    change.value.abs() > SHARE_MAX * added.abs()
}

/// Whether a change is known to be one, and larger than what does not matter.
fn exceeds_margin(change: Estimate, margin_ns: Option<f64>) -> bool {
    let excludes_zero = |interval: Interval| interval.low > 0.0 || interval.high < 0.0;
    change.interval.is_some_and(excludes_zero)
        && margin_ns.is_some_and(|margin_ns| change.value.abs() > margin_ns)
}

/// Takes *no relevant difference* back where CPU elsewhere may have changed by more than the margin: the work may have moved
/// there.
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
    let levels = path_levels(baselines);
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
