//! The pilot: how long a delay is that was asked for as a share of the baseline's median.

use meshtax_model::LatencyHistogram;
use meshtax_model::event::Event;
use meshtax_model::experiment::{Experiment, Inject, LoadPoint, Role, Variant, VariantId};
use meshtax_model::plan::{PlannedTrial, TrialId};
use meshtax_model::trial::TrialOutcome;

use crate::runner::{Run, RunError, Stop, why_failed, why_not_proven};

/// Trials, of whose medians the middle one is taken: a moment in which the machine was taken away may last
/// longer than three trials, and a delay sized by it can be more than the server has time for.
const TRIALS: u32 = 9;

/// The round of the pilot: before the first.
const ROUND: u32 = 0;

fn failed(reason: impl Into<String>) -> Stop {
    Stop::Broken(RunError::Pilot {
        reason: reason.into(),
        fix: "give the delay as a time, as in delay=12us, or repair the baseline".to_owned(),
    })
}

fn is_needed(experiment: &Experiment) -> bool {
    let is_share = |v: &Variant| matches!(v.inject, Some(Inject::DelayShareOfP50(_)));
    experiment.variants.iter().any(is_share)
}

fn steady_point(experiment: &Experiment) -> Option<&LoadPoint> {
    experiment.load_points.iter().find(|p| p.is_steady())
}

/// Refuses, before anything is started, a pilot that cannot be made.
pub(crate) fn check(experiment: &Experiment) -> Result<(), Stop> {
    if is_needed(experiment) && steady_point(experiment).is_none() {
        return Err(Stop::Broken(RunError::Pilot {
            reason: "a delay as a share of the median needs a steady load point, and there is none"
                .to_owned(),
            fix: "add a steady load point, or give the delay as a time, as in delay=12us"
                .to_owned(),
        }));
    }
    Ok(())
}

/// Replaces every share by nanoseconds; measures the baseline if there is a share.
pub(crate) fn resolve(run: &mut Run<'_>) -> Result<(), Stop> {
    if !is_needed(&run.experiment) {
        return Ok(());
    }
    run.say(Event::Preparing {
        what: "the size of the injected delay".to_owned(),
    });
    let p50_ns = baseline_p50_ns(run)?;
    for variant in &mut run.experiment.variants {
        if let Some(Inject::DelayShareOfP50(share)) = variant.inject {
            let ns = (p50_ns * share).round().max(1.0) as u64;
            variant.inject = Some(Inject::DelayNs(ns));
        }
    }
    Ok(())
}

fn baseline_p50_ns(run: &mut Run<'_>) -> Result<f64, Stop> {
    let baseline = run.experiment.by_role(Role::Baseline).cloned();
    let point = steady_point(&run.experiment).cloned();
    let (Some(baseline), Some(point)) = (baseline, point) else {
        return Err(failed("there is no baseline, or no steady load point"));
    };
    run.round_open = true;
    let starts = run
        .engine
        .start_round(ROUND, std::slice::from_ref(&baseline))?;
    let start = starts.iter().find(|s| s.variant == baseline.id);
    if let Some(reason) = why_not_proven(start) {
        return Err(failed(format!(
            "the baseline could not be started: {reason}"
        )));
    }
    let mut medians = Vec::new();
    for number in 1..=TRIALS {
        run.heed_interruption()?;
        let response = trial(run, number, &baseline.id, &point)?;
        medians.extend(response.quantile_interpolated_ns(0.5));
    }
    run.heed_interruption()?;
    run.round_open = false;
    run.engine.end_round(false)?;
    medians.sort_by(f64::total_cmp);
    medians
        .get(medians.len() / 2)
        .copied()
        .ok_or_else(|| failed("no request was answered"))
}

fn trial(
    run: &mut Run<'_>,
    number: u32,
    baseline: &VariantId,
    point: &LoadPoint,
) -> Result<LatencyHistogram, Stop> {
    let planned = PlannedTrial {
        id: TrialId::new(ROUND, 1, number),
        round: ROUND,
        block: 1,
        variant: baseline.clone(),
        load_point: point.id.clone(),
        arrival_seed: meshtax_spec::arrival_seed(run.seed(), ROUND, number, &point.id.0),
    };
    let outcome = run.engine.trial(&planned, point)?.outcome;
    if let Some(reason) = why_failed(&outcome) {
        return Err(failed(format!("a trial of the baseline failed: {reason}")));
    }
    match outcome {
        TrialOutcome::Measured { load, .. } => Ok(load.response),
        TrialOutcome::Failed { reason } => Err(failed(reason)),
    }
}
