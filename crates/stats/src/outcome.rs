//! Which variants are overloaded.
//!
//! A trial that the machine disturbed is excluded ([`crate::validity`]). One that did not carry its load is a result,
//! and stays in every figure. Whether the variant is the cause is shown by the baselines, which get the same arrivals
//! in the same block: what they carried, the machine can carry.

use std::collections::BTreeSet;

use meshtax_model::analysis::{LoadOutcome, Metric, Overload, Shortfall};
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use meshtax_model::trial::LoadResult;

use crate::exchange::{Counts, p_value};
use crate::family::ALPHA;
use crate::pairing::{BlockKey, Unit};
use crate::shortfall::{FAULTY_SHARE_MAX, Lost, exceeds, sum};
use crate::trials::{Attempt, Cell, Trials};

/// With a larger share of trials that did not carry the load, it was not carried.
const SHORT_SHARE_MAX: f64 = 0.10;

/// Whether a figure of a cell's latencies is a lower bound: so many requests are missing from them, or in so many of them a
/// queue was still growing when the window ended. The higher a percentile, the fewer it takes: a tenth of the requests
/// above it.
pub(crate) fn is_lower_bound(metric: Metric, cell: &Cell<'_>) -> bool {
    let above = match metric {
        Metric::ResponseMean => 1.0,
        _ => match metric.quantile() {
            Some(quantile) => 1.0 - quantile,
            None => return false,
        },
    };
    let offered = sum(cell.valid.iter().map(|trial| trial.load.offered));
    let lost = sum(cell.valid.iter().map(|trial| {
        let queued = match trial.short {
            Some(Shortfall::AchievedBelowOffered) => {
                trial.load.offered.saturating_sub(trial.load.completed)
            }
            _ => 0,
        };
        Lost::of(trial.load).all().saturating_add(queued)
    }));
    exceeds(lost, offered, FAULTY_SHARE_MAX.min(above / 10.0))
}

/// Whether a variant carried the load of a point.
pub(crate) fn outcome(trials: &Trials<'_>, variant: &Variant, point: &LoadPoint) -> LoadOutcome {
    let attempts =
        |of: &Variant| -> Vec<Attempt<'_>> { trials.cell(&of.id, &point.id).attempts().collect() };
    let own = attempts(variant);
    let is_candidate = variant.role == Role::Candidate;
    let baselines: Vec<Vec<Attempt<'_>>> = [Role::Baseline, Role::Control]
        .into_iter()
        .flat_map(|role| trials.by_role(role))
        .map(attempts)
        .collect();
    // First: where the baselines carried the load in some blocks and the variant fell short beyond chance, that is known,
    // even if they did not carry it in others.
    if is_candidate && let Some(overload) = overload(&own, &baselines) {
        return LoadOutcome::Overloaded(overload);
    }
    let [short, of] = counts(baselines.iter().flatten());
    if is_too_many([short, of]) {
        return LoadOutcome::BeyondMachine { trials: short, of };
    }
    match counts(&own) {
        all if is_candidate && is_too_many(all) => LoadOutcome::Uncertain {
            trials: all[0],
            of: all[1],
        },
        _ => LoadOutcome::Carried,
    }
}

/// Trials that did not carry the load, and all.
fn counts<'t, 'a: 't>(trials: impl IntoIterator<Item = &'t Attempt<'a>>) -> [u32; 2] {
    trials.into_iter().fold([0, 0], |[short, of], trial| {
        [short + u32::from(trial.short.is_some()), of + 1]
    })
}

fn is_too_many([short, of]: [u32; 2]) -> bool {
    exceeds(u64::from(short), u64::from(of), SHORT_SHARE_MAX)
}

/// `Some`: the variant fell short in too many of the trials whose baselines carried the load, and in all trials more often
/// than they did, beyond chance. `baselines`: of each.
fn overload(own: &[Attempt<'_>], baselines: &[Vec<Attempt<'_>>]) -> Option<Overload> {
    let all = || baselines.iter().flatten();
    let tested: BTreeSet<BlockKey> = all().map(|trial| trial.key).collect();
    let failed = all().filter(|trial| trial.short.is_some());
    let failed: BTreeSet<BlockKey> = failed.map(|trial| trial.key).collect();
    let judged = || {
        let own = own.iter();
        own.filter(|trial| tested.contains(&trial.key) && !failed.contains(&trial.key))
    };
    let [short, of] = counts(judged());
    if !is_too_many([short, of]) || !is_beyond_chance(own, baselines) {
        return None;
    }
    let fell: Vec<&Attempt<'_>> = judged().filter(|trial| trial.short.is_some()).collect();
    Some(describe(&fell, [short, of]))
}

/// One-sided at 5 %, over rounds, or blocks where there are few rounds.
fn is_beyond_chance(own: &[Attempt<'_>], baselines: &[Vec<Attempt<'_>>]) -> bool {
    let unit = Unit::for_blocks(own.iter().map(|trial| &trial.key));
    let by_unit = |trials: &[Attempt<'_>]| {
        let mut units = Counts::new();
        for trial in trials {
            let [short, of] = units.entry(unit.of(trial.key)).or_default();
            *short += u32::from(trial.short.is_some());
            *of += 1;
        }
        units
    };
    let baselines: Vec<Counts> = baselines.iter().map(|trials| by_unit(trials)).collect();
    p_value(&by_unit(own), &baselines) <= ALPHA
}

fn describe(fell: &[&Attempt<'_>], [trials, of]: [u32; 2]) -> Overload {
    let loads: Vec<&LoadResult> = fell.iter().filter_map(|trial| trial.load).collect();
    let total = |count: fn(&LoadResult) -> u64| sum(loads.iter().map(|load| count(load))) as f64;
    let window_s = total(|load| load.window_ns) / 1e9;
    let offered = total(|load| load.offered);
    // A trial without a window or without requests is invalid.
    let share = |count: fn(&LoadResult) -> u64| total(count) / offered.max(1.0);
    let fell_by = |is: fn(Shortfall) -> bool| {
        let shortfalls = fell.iter().filter_map(|trial| trial.short);
        u32::try_from(shortfalls.filter(|short| is(*short)).count()).unwrap_or(u32::MAX)
    };
    Overload {
        trials,
        of,
        proxies_ended: fell_by(Shortfall::is_of_proxies),
        not_connected: fell_by(|short| short == Shortfall::NotConnected),
        offered_per_s: offered / window_s.max(1e-9),
        achieved_per_s: total(|load| load.completed) / window_s.max(1e-9),
        errors: share(|load| Lost::of(load).errors),
        bad_status: share(|load| Lost::of(load).bad_status),
        unanswered: share(|load| load.unanswered),
    }
}
