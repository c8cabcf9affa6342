//! CPU outside the path of a request: paired differences of it, and of the path together with it.
//!
//! CPU per request counts the components in the path. A variant that moves work out of it, to softirq time that belongs to
//! no process or to the generator, looks cheaper and is not. So wherever CPU per request decides, the difference that
//! includes CPU elsewhere must not contradict it.

use meshtax_model::analysis::{Elsewhere, Metric, Verdict};
use meshtax_model::event::Ending;
use meshtax_model::trial::{ComponentRole, ResourceSample};

use crate::account::cpu_per_request_ns;
use crate::interval::{CONFIDENCE_TOST, Inference, Spread, Student, mean, relative};
use crate::pairing::{ByBlock, unit_means_of};
use crate::points::level_in;
use crate::trials::{Cell, Trials};

/// All that there is.
pub(crate) const PARTS: [Elsewhere; 3] = [
    Elsewhere::Unattributed,
    Elsewhere::Generator,
    Elsewhere::ControlPlane,
];

/// Parts of the CPU elsewhere per completed request, in nanoseconds; below zero by the kernel's tick, if at all. `None`:
/// no request, or no machine was read.
pub(crate) fn parts_ns(
    parts: &[Elsewhere],
    sample: &ResourceSample,
    completed: u64,
) -> Option<f64> {
    let all = parts.iter().map(|part| part_ns(*part, sample));
    let is_known = completed > 0 && !sample.machines.is_empty();
    is_known.then(|| all.sum::<f64>() / completed as f64)
}

/// The same, with the CPU of the path.
pub(crate) fn with_path_ns(
    parts: &[Elsewhere],
    sample: &ResourceSample,
    completed: u64,
) -> Option<f64> {
    Some(cpu_per_request_ns(sample, completed)? + parts_ns(parts, sample, completed)?)
}

fn part_ns(part: Elsewhere, sample: &ResourceSample) -> f64 {
    let of = |role: ComponentRole| -> f64 {
        let components = sample.components.iter();
        components
            .filter(|component| component.role == role)
            .map(|component| component.cpu_ns as f64)
            .sum()
    };
    match part {
        Elsewhere::Unattributed => sample.busy_ns() as f64 - sample.attributed_ns() as f64,
        Elsewhere::Generator => of(ComponentRole::Generator),
        Elsewhere::ControlPlane => of(ComponentRole::ControlPlane),
    }
}

/// The paired difference of a figure that may be zero or less, over rounds.
pub(crate) fn difference(
    trials: &Trials<'_>,
    cell: &Cell<'_>,
    references: &[&Cell<'_>],
    figure: impl Fn(&ResourceSample, u64) -> Option<f64>,
) -> Option<Inference> {
    let by_block = |cell: &Cell<'_>| -> ByBlock {
        let valid = cell.valid.iter();
        let figures = valid
            .filter_map(|trial| Some((trial.key, figure(trial.sample?, trial.load.completed)?)));
        figures.collect()
    };
    let references: Vec<ByBlock> = references.iter().map(|cell| by_block(cell)).collect();
    let differences = by_block(cell).into_iter().filter_map(|(key, value)| {
        let levels: Vec<f64> = references
            .iter()
            .filter_map(|reference| reference.get(&key).copied())
            .collect();
        Some((key, value - mean(&levels)?))
    });
    let fit = Inference::of_mean(&unit_means_of(differences))?;
    Some(match trials.data.run.ending {
        Some(Ending::PrecisionReached) => fit.after_stopping(),
        _ => fit,
    })
}

/// The levels of CPU per request, in the path.
pub(crate) fn path_levels(cells: &[&Cell<'_>]) -> Vec<f64> {
    let levels = cells.iter();
    levels
        .filter_map(|cell| level_in(Metric::CpuPerRequest, cell))
        .collect()
}

/// The difference of the path and all CPU elsewhere, as a share of the references' path and as a log ratio: what the
/// relative difference would be if all of the work had stayed in the path. `None`: it is not known, or of another metric.
pub(crate) fn whole(
    trials: &Trials<'_>,
    metric: Metric,
    cell: &Cell<'_>,
    references: &[&Cell<'_>],
) -> Option<Inference> {
    if metric != Metric::CpuPerRequest {
        return None;
    }
    let level_ns = mean(&path_levels(references)).filter(|level| *level > 0.0)?;
    let share = difference(trials, cell, references, |sample, completed| {
        Some(with_path_ns(&PARTS, sample, completed)? / level_ns)
    })?;
    let ratio = 1.0 + share.estimate;
    let student = share.as_student().filter(|_| ratio > 0.0)?;
    let spread = Spread::Student(Student {
        standard_error: student.standard_error / ratio,
        ..student
    });
    Some(Inference::new(ratio.ln(), Some(spread)).within(share.error_share))
}

/// Whether the difference with CPU elsewhere contradicts a verdict on the path: a difference has the other sign, or one
/// within the margin is not shown to be within it. `path`: the estimate of the path; only its sign counts.
pub(crate) fn withholds(verdict: &Verdict, path: f64, whole: &Inference, margin: f64) -> bool {
    match verdict {
        Verdict::Different => path * whole.estimate <= 0.0,
        Verdict::Equivalent => {
            let interval = whole.interval(CONFIDENCE_TOST).map(relative);
            !interval.is_some_and(|interval| interval.largest_absolute_end() < margin)
        }
        _ => false,
    }
}
