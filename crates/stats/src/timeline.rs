//! The timeline of the run: the usage of each trial, in order.

use meshtax_model::analysis::{Moment, RoleMoment};
use meshtax_model::event::active_ns;
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};

use crate::account::IN_PATH;
use crate::memory::held;
use crate::tails::Counts;
use crate::trials::Trials;

/// More moments per variant add no information, and make documents of long runs large.
const MOMENTS_MAX: usize = 600;

/// The measured trials of a variant, including invalid ones: the cause may be visible. Of very many,
/// every second, or third, or n-th.
pub(crate) fn moments(trials: &Trials<'_>, variant: &VariantId) -> Vec<Moment> {
    let records = trials.data.trials.iter().enumerate();
    let of_variant: Vec<_> = records
        .filter(|(_, record)| record.trial.variant == *variant)
        .collect();
    let step = of_variant.len().div_ceil(MOMENTS_MAX).max(1);
    let mut moments: Vec<Moment> = of_variant
        .into_iter()
        .step_by(step)
        .filter_map(|(order, record)| moment(trials, order, record))
        .collect();
    moments.sort_by_key(|moment| moment.at_ns);
    moments
}

fn moment(trials: &Trials<'_>, order: usize, record: &TrialRecord) -> Option<Moment> {
    let TrialOutcome::Measured { load, .. } = &record.outcome else {
        return None;
    };
    let point = trials
        .data
        .experiment
        .load_point(&record.trial.load_point)?;
    let cell = trials.cell(&record.trial.variant, &point.id);
    let run = &trials.data.run;
    let started = record.started_unix_ms;
    let response_p50_ns = if point.is_steady() {
        Counts::from(&load.response).quantile(0.5)
    } else {
        None
    };
    Some(Moment {
        at_ns: active_ns(run.started_unix_ms, &run.resumptions, started),
        load_point: point.id.clone(),
        valid: cell.valid.iter().any(|trial| trial.order == order),
        response_p50_ns,
        roles: trials
            .sample(&record.trial.id)
            .map(roles)
            .unwrap_or_default(),
    })
}

fn roles(sample: &ResourceSample) -> Vec<RoleMoment> {
    let wall_ns = sample.wall_ns().max(1) as f64;
    let of_role = |role| {
        let mut here = sample
            .components
            .iter()
            .filter(|c| c.role == role)
            .peekable();
        here.peek()?;
        let cpu_ns: f64 = here.map(|component| component.cpu_ns as f64).sum();
        Some(RoleMoment {
            role,
            cores: cpu_ns / wall_ns,
            anonymous_bytes: held(sample, role).map(|memory| memory.anonymous_bytes),
        })
    };
    IN_PATH.iter().copied().filter_map(of_role).collect()
}
