//! The timeline of the run: what each trial used, in order, in parts of a second.

use std::ops::Range;

use meshtax_model::analysis::{Moment, RoleMoment};
use meshtax_model::event::active_ns;
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ComponentRole, ResourceSample, TrialOutcome, TrialRecord, UsageSeries};

use crate::account::IN_PATH;
use crate::memory::held;
use crate::tails::Counts;
use crate::trials::Trials;

/// Each second of the trials of a variant in five hours; more would make documents of long runs large. Drawings have
/// fewer.
const MOMENTS_MAX: usize = 20_000;

/// A longer trial is several moments, none of them longer than this unless there would be more than [`MOMENTS_MAX`].
const MOMENT_NS: u64 = 1_000_000_000;

/// The measured trials of a variant, including invalid ones: the cause may be visible. Of very many, every second, or
/// third, or n-th; the more trials, the fewer moments of each, so that every moment has the usage of all of its time.
pub(crate) fn moments(trials: &Trials<'_>, variant: &VariantId) -> Vec<Moment> {
    let records = trials.data.trials.iter().enumerate();
    let of_variant: Vec<_> = records
        .filter(|(_, record)| record.trial.variant == *variant)
        .collect();
    let step = of_variant.len().div_ceil(MOMENTS_MAX).max(1);
    let most = MOMENTS_MAX / of_variant.len().max(1);
    let mut moments: Vec<Moment> = of_variant
        .into_iter()
        .step_by(step)
        .flat_map(|(order, record)| of_trial(trials, (order, record), most))
        .collect();
    moments.sort_by_key(|moment| moment.at_ns);
    moments
}

/// The moments of a trial, at least one if it was measured, and at most `most` of its parts.
fn of_trial(
    trials: &Trials<'_>,
    (order, record): (usize, &TrialRecord),
    most: usize,
) -> Vec<Moment> {
    let Some(whole) = moment(trials, order, record) else {
        return Vec::new();
    };
    let warmup_ns = warmup_ns(trials, record);
    let sample = trials.sample(&record.trial.id);
    let parts = sample.map(|sample| parts(&whole, warmup_ns, &sample.series, most));
    let parts = parts.filter(|parts| !parts.is_empty());
    parts.unwrap_or_else(|| vec![whole])
}

/// The load before the window, of which cold starts have none.
fn warmup_ns(trials: &Trials<'_>, record: &TrialRecord) -> u64 {
    let experiment = trials.data.experiment;
    match experiment.load_point(&record.trial.load_point) {
        Some(point) if point.cold => 0,
        _ => experiment.design.warmup_ns,
    }
}

/// A trial's window in equal parts of at most [`MOMENT_NS`], or in `most` of them; empty: it is one. Its median latency is
/// in the first.
fn parts(whole: &Moment, warmup_ns: u64, series: &UsageSeries, most: usize) -> Vec<Moment> {
    let steps = series.ends_ns.len();
    let window_ns = series.ends_ns.last().copied().unwrap_or(0);
    let count = usize::try_from(window_ns.div_ceil(MOMENT_NS)).unwrap_or(usize::MAX);
    let count = count.min(steps).min(most);
    if count < 2 {
        return Vec::new();
    }
    let part = |number: usize| {
        let (from, to) = (steps * number / count, steps * (number + 1) / count);
        let begin_ns = from
            .checked_sub(1)
            .map_or(0, |before| series.ends_ns[before]);
        let took_ns = series.ends_ns[to - 1].saturating_sub(begin_ns).max(1) as f64;
        let of_role = |role: &RoleMoment| part_of_role(role, series, from..to, took_ns);
        Moment {
            at_ns: whole
                .at_ns
                .saturating_add(warmup_ns)
                .saturating_add(begin_ns),
            response_p50_ns: whole.response_p50_ns.filter(|_| number == 0),
            roles: whole.roles.iter().map(of_role).collect(),
            ..whole.clone()
        }
    };
    (0..count).map(part).collect()
}

/// What a role used in these steps; where its steps were not read, what it used in the whole trial.
fn part_of_role(
    whole: &RoleMoment,
    series: &UsageSeries,
    steps: Range<usize>,
    took_ns: f64,
) -> RoleMoment {
    let mut components = series.components.iter();
    let Some(found) = components.find(|component| component.role == whole.role) else {
        return *whole;
    };
    let cpu_ns = found.cpu_ns.get(steps.clone());
    let cores = cpu_ns.map(|all| all.iter().sum::<u64>() as f64 / took_ns);
    let held = found.anonymous_bytes.get(steps.end - 1).copied();
    RoleMoment {
        role: whole.role,
        cores: cores.unwrap_or(whole.cores),
        anonymous_bytes: held.or(whole.anonymous_bytes),
    }
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
        trial: record.trial.id.clone(),
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
    // No part of a request's cost, but studies draw it, too. Only clusters have one that is measured.
    let followed = IN_PATH.into_iter().chain([ComponentRole::ControlPlane]);
    followed.filter_map(of_role).collect()
}

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::LoadPointId;
    use meshtax_model::plan::TrialId;
    use meshtax_model::trial::{ComponentSeries, ComponentUsage};

    use super::*;

    const APP: ComponentRole = ComponentRole::App;

    fn whole() -> Moment {
        Moment {
            trial: TrialId::new(1, 1, 1),
            at_ns: 5_000_000_000,
            load_point: LoadPointId("steady".to_owned()),
            valid: true,
            response_p50_ns: Some(1e6),
            roles: vec![RoleMoment {
                role: APP,
                cores: 0.5,
                anonymous_bytes: Some(7),
            }],
        }
    }

    /// Steps of a quarter of a second: one without CPU, then one with a whole core, and so on; memory grows.
    fn series(steps: u64) -> UsageSeries {
        UsageSeries {
            ends_ns: (1..=steps).map(|step| step * 250_000_000).collect(),
            components: vec![ComponentSeries {
                role: APP,
                cpu_ns: (0..steps).map(|step| step % 2 * 250_000_000).collect(),
                anonymous_bytes: (1..=steps).collect(),
            }],
        }
    }

    #[test]
    fn trial_of_three_seconds_is_three_moments_with_their_own_usage() {
        let found = parts(&whole(), 1_000_000_000, &series(12), 600);
        let at: Vec<u64> = found.iter().map(|m| m.at_ns / 1_000_000_000).collect();
        assert_eq!(at, [6, 7, 8]);
        let held: Vec<_> = found.iter().map(|m| m.roles[0].anonymous_bytes).collect();
        assert_eq!(held, [Some(4), Some(8), Some(12)]);
        assert!(found.iter().all(|m| (m.roles[0].cores - 0.5).abs() < 1e-9));
        assert_eq!(found[0].response_p50_ns, Some(1e6));
        assert_eq!(found[1].response_p50_ns, None);
    }

    #[test]
    fn limit_of_moments_makes_them_longer_and_keeps_all_usage() {
        let found = parts(&whole(), 0, &series(12), 2);
        let at: Vec<u64> = found.iter().map(|m| m.at_ns / 100_000_000).collect();
        assert_eq!(at, [50, 65]);
        assert!(found.iter().all(|m| (m.roles[0].cores - 0.5).abs() < 1e-9));
        assert_eq!(parts(&whole(), 0, &series(12), 1), []);
    }

    #[test]
    fn sampled_control_plane_is_in_the_timeline() {
        let mut sample = ResourceSample::new(TrialId::new(1, 1, 1));
        let used = |role| ComponentUsage {
            cpu_ns: 1_000,
            ..ComponentUsage::new("istiod".to_owned(), role)
        };
        sample.components = vec![used(ComponentRole::ControlPlane), used(APP)];
        let found: Vec<_> = roles(&sample).iter().map(|found| found.role).collect();
        assert_eq!(found, [APP, ComponentRole::ControlPlane]);
    }

    #[test]
    fn short_trial_and_one_without_steps_have_no_parts() {
        assert_eq!(parts(&whole(), 0, &series(4), 600), []);
        assert_eq!(parts(&whole(), 0, &UsageSeries::default(), 600), []);
    }

    #[test]
    fn series_with_fewer_values_than_steps_is_no_panic() {
        let mut short = series(12);
        short.components[0].cpu_ns.truncate(5);
        short.components[0].anonymous_bytes.clear();
        let found = parts(&whole(), 0, &short, 600);
        assert_eq!(found[2].roles, whole().roles);
    }
}
