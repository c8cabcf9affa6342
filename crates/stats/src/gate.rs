//! Limits on changes: pass, fail, or cannot tell; never a pass by silence.
//!
//! A check *passes* if the whole 95 % interval keeps to its limit, and *fails* if the whole interval is beyond it. A
//! gate is the worst of its checks, and that is why the two are not alike:
//!
//! - A gate passes only if every check does. For a false pass, a check that should not have passed must have, and
//!   the chance of that is at most that of one check, however many there are (intersection-union, Berger 1982): 2.5 %.
//! - A gate fails if any check does, and the chance that one does for nothing grows with their number. So
//!   failing is adjusted over the gate's checks (Holm 1979). What is beyond the limit by its own interval and not by the
//!   adjusted one cannot be told.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Interval, Metric, Verdict};
use meshtax_model::comparison::{Allowed, Change, GateCheck, GateReport, GateVerdict, Limit};
use meshtax_model::experiment::{Experiment, LoadPoint, LoadPointId, Role, Variant, VariantId};

use crate::RunData;
use crate::between::{Found, NothingInCommon, Options, Runs, changes, compared};
use crate::differing::{differing, notes};
use crate::effects::{against_baselines, compare_variants, is_primary, too_few};
use crate::family::{ALPHA, holm};
use crate::interval::{CONFIDENCE, Inference};
use crate::points::level_in;
use crate::trials::Trials;

/// Why there is nothing to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateError {
    /// The two sides have nothing in common.
    Apart(NothingInCommon),
    /// A limit is on nothing that was measured.
    Unmatched {
        /// As it was typed.
        limit: String,
        /// Each variant, load point and metric that there is.
        known: Vec<[String; 3]>,
    },
    /// There is no limit.
    NoLimit,
}

/// Holds runs against limits.
///
/// # Errors
/// If the runs have nothing in common, or a limit matches nothing.
pub fn gate_runs(
    runs: Runs<'_>,
    options: &Options,
    limits: &[Limit],
) -> Result<GateReport, GateError> {
    let found = changes(runs, options).map_err(GateError::Apart)?;
    let checks = checks(limits, &found)?;
    Ok(GateReport {
        format_version: FORMAT_VERSION,
        verdict: worst(&checks),
        interleaved: false,
        base: runs.base.iter().map(compared).collect(),
        new: runs.new.iter().map(compared).collect(),
        confidence: CONFIDENCE,
        differing: differing(runs),
        notes: notes(runs, options),
        checks,
    })
}

/// Holds two sides of one run against limits, by their own paired differences. A pair without a first is held
/// against the baselines.
///
/// # Errors
/// If a limit matches nothing.
pub fn gate_sides(
    data: &RunData<'_>,
    pairs: &[(Option<VariantId>, VariantId)],
    limits: &[Limit],
) -> Result<GateReport, GateError> {
    let checks = checks(limits, &sides(data, pairs))?;
    let run = compared(data);
    Ok(GateReport {
        format_version: FORMAT_VERSION,
        verdict: worst(&checks),
        interleaved: true,
        base: vec![run.clone()],
        new: vec![run],
        confidence: CONFIDENCE,
        differing: Vec::new(),
        notes: Vec::new(),
        checks,
    })
}

fn worst(checks: &[GateCheck]) -> GateVerdict {
    let all = checks.iter().map(|check| check.verdict);
    // Nothing that was checked is nothing that passed.
    all.max().unwrap_or(GateVerdict::CannotTell)
}

/// The name of a variant in its own spec: an interleaved run puts `a.` or `b.` before it.
fn bare(id: &VariantId) -> &str {
    let id = id.0.as_str();
    id.strip_prefix("a.")
        .or(id.strip_prefix("b."))
        .unwrap_or(id)
}

/// What is judged against what, at which load point.
struct Pairing<'a> {
    against: Vec<&'a Variant>,
    second: &'a Variant,
    point: &'a LoadPoint,
}

fn pairings<'a>(
    experiment: &'a Experiment,
    pairs: &[(Option<VariantId>, VariantId)],
) -> Vec<Pairing<'a>> {
    let baselines: Vec<&Variant> = [Role::Baseline, Role::Control]
        .into_iter()
        .filter_map(|role| experiment.by_role(role))
        .collect();
    let mut found = Vec::new();
    for point in &experiment.load_points {
        for (first, second) in pairs {
            let Some(second) = experiment.variant(second) else {
                continue;
            };
            let against: Vec<&Variant> = match first {
                Some(id) => experiment.variant(id).into_iter().collect(),
                None => baselines.clone(),
            };
            let mut all = against.iter().copied().chain([second]);
            if !against.is_empty() && all.all(|v| experiment.gap(v, point).is_none()) {
                found.push(Pairing {
                    against,
                    second,
                    point,
                });
            }
        }
    }
    found
}

/// Whether each limit is on something that an interleaved run will measure, before it does.
///
/// # Errors
/// The first limit that matches nothing.
pub fn limits_match(
    experiment: &Experiment,
    pairs: &[(Option<VariantId>, VariantId)],
    limits: &[Limit],
) -> Result<(), GateError> {
    let pairings = pairings(experiment, pairs);
    let places: Vec<Place<'_>> = pairings
        .iter()
        .flat_map(|pairing| {
            let of = |metric: &Metric| Place {
                names: names(&pairing.against[0].id, &pairing.second.id),
                point: &pairing.point.id,
                metric: *metric,
            };
            Metric::of(pairing.point).iter().map(of)
        })
        .collect();
    let unmatched = limits
        .iter()
        .find(|limit| !places.iter().any(|place| place.matches(limit)));
    unmatched.map_or(Ok(()), |limit| Err(unmatched_limit(limit, &places)))
}

fn sides(data: &RunData<'_>, pairs: &[(Option<VariantId>, VariantId)]) -> Vec<Found> {
    let trials = Trials::new(data);
    let mut found = Vec::new();
    for pairing in pairings(data.experiment, pairs) {
        let metrics = Metric::of(pairing.point).iter();
        found.extend(metrics.map(|metric| side(&trials, &pairing, *metric)));
    }
    found
}

fn side(trials: &Trials<'_>, pairing: &Pairing<'_>, metric: Metric) -> Found {
    let Pairing {
        against,
        second,
        point,
    } = pairing;
    let left_out = against.iter().find_map(|v| {
        let reason = trials.left_out(&v.id)?;
        Some(format!("{}: left out: {reason}", v.id))
    });
    let fit = left_out.map_or(Ok(()), Err).and_then(|()| {
        let paired = compare_variants(trials, second, against, point, metric)?;
        too_few(&paired).map_or(Ok(paired.log_ratio), Err)
    });
    let overhead = |variant: &Variant| {
        let paired = against_baselines(trials, variant, point, metric).ok()?;
        Some(paired.log_ratio.estimate_relative())
    };
    let first = against.first();
    let (fit, verdict) = match fit {
        Ok(fit) => (Some(fit), Verdict::NotDistinguishable),
        Err(reason) => (None, Verdict::NotEstimable { reason }),
    };
    let level = first.and_then(|v| level_in(metric, trials.cell(&v.id, &point.id)));
    Found {
        change: Change {
            variant: bare(&second.id).to_owned(),
            base_variant: first.map_or_else(|| second.id.clone(), |v| v.id.clone()),
            new_variant: second.id.clone(),
            load_point: point.id.clone(),
            metric,
            base: first
                .filter(|v| v.role == Role::Candidate)
                .and_then(|v| overhead(v)),
            new: overhead(second),
            relative: fit.as_ref().map(Inference::estimate_relative),
            between: None,
            base_runs: 1,
            new_runs: 1,
            p_value: fit.as_ref().and_then(Inference::p_value),
            primary: is_primary(point, metric),
            verdict,
        },
        fit,
        level,
    }
}

/// A check before the others are known.
struct Draft<'a> {
    limit: &'a Limit,
    found: &'a Found,
    /// The limit as a log ratio.
    at: Result<f64, String>,
}

/// Every limit on everything that it matches, judged.
fn checks(limits: &[Limit], found: &[Found]) -> Result<Vec<GateCheck>, GateError> {
    if limits.is_empty() {
        return Err(GateError::NoLimit);
    }
    let mut drafts = Vec::new();
    for limit in limits {
        let before = drafts.len();
        let matching = found
            .iter()
            .filter(|found| Place::of(&found.change).matches(limit));
        drafts.extend(matching.map(|found| Draft {
            limit,
            found,
            at: threshold(limit, found),
        }));
        if drafts.len() == before {
            let places: Vec<Place<'_>> = found.iter().map(|f| Place::of(&f.change)).collect();
            return Err(unmatched_limit(limit, &places));
        }
    }
    let mut checks: Vec<GateCheck> = drafts.iter().map(Draft::check).collect();
    let p_values: Vec<f64> = checks.iter().filter_map(|check| check.p_beyond).collect();
    let mut adjusted = holm(&p_values).into_iter();
    for (check, draft) in checks.iter_mut().zip(&drafts) {
        check.p_beyond = check.p_beyond.and_then(|_| adjusted.next());
        draft.judge(check);
    }
    Ok(checks)
}

/// Something that a limit may be on.
struct Place<'a> {
    /// What its variant may be called; the first name is told.
    names: [&'a str; 4],
    point: &'a LoadPointId,
    metric: Metric,
}

/// By their ids, and in an interleaved run by those of their own specs.
fn names<'a>(base: &'a VariantId, new: &'a VariantId) -> [&'a str; 4] {
    [bare(new), bare(base), &new.0, &base.0]
}

impl<'a> Place<'a> {
    fn of(change: &'a Change) -> Self {
        Self {
            names: names(&change.base_variant, &change.new_variant),
            point: &change.load_point,
            metric: change.metric,
        }
    }

    fn matches(&self, limit: &Limit) -> bool {
        let variant = limit.variant.as_deref();
        let point = limit.load_point.as_deref();
        limit.metric == self.metric
            && variant.is_none_or(|name| self.names.contains(&name))
            && point.is_none_or(|name| self.point.0 == name)
    }
}

fn unmatched_limit(limit: &Limit, places: &[Place<'_>]) -> GateError {
    let text = |place: &Place<'_>| {
        let [variant, ..] = place.names;
        [variant, &place.point.0, place.metric.name()].map(str::to_owned)
    };
    GateError::Unmatched {
        limit: limit.text.clone(),
        known: places.iter().map(text).collect(),
    }
}

/// The limit as a log ratio. An absolute one is held against BASE's level, so that a machine that became
/// slower as a whole does not use it up.
fn threshold(limit: &Limit, found: &Found) -> Result<f64, String> {
    let share = match limit.allowed {
        Allowed::Relative(share) => share,
        Allowed::Absolute(value) => {
            let level = found.level.filter(|level| *level > 0.0);
            value / level.ok_or("BASE has no level to hold an absolute limit against")?
        }
    };
    let log = share.ln_1p();
    log.is_finite()
        .then_some(log)
        .ok_or_else(|| "the limit is more than all that there was".to_owned())
}

impl Draft<'_> {
    fn larger_is_worse(&self) -> bool {
        self.limit.metric.larger_is_worse()
    }

    fn check(&self) -> GateCheck {
        let fit = self.found.fit.as_ref();
        let at = self.at.as_ref().ok();
        let p_beyond = fit
            .zip(at)
            .and_then(|(fit, at)| match self.larger_is_worse() {
                true => fit.p_above(*at),
                false => fit.p_below(*at),
            });
        GateCheck {
            limit: self.limit.text.clone(),
            allowed: at.map(|at| at.exp_m1()),
            change: self.found.change.clone(),
            p_beyond,
            verdict: GateVerdict::CannotTell,
            reason: String::new(),
            longer_to_tell: None,
        }
    }

    fn judge(&self, check: &mut GateCheck) {
        let reason = match (&self.at, &self.found.change.verdict) {
            (_, Verdict::NotEstimable { reason }) => Err(reason.clone()),
            (Err(reason), _) => Err(reason.clone()),
            (Ok(at), _) => Ok(*at),
        };
        let fit = self.found.fit.as_ref();
        let interval = fit.and_then(|fit| fit.interval(CONFIDENCE));
        let usable = interval.filter(|i| i.low.is_finite() && i.high.is_finite());
        let (at, interval) = match (reason, usable) {
            (Err(reason), _) => return check.reason = reason,
            (Ok(_), None) => return check.reason = "there is no interval".to_owned(),
            (Ok(at), Some(interval)) => (at, interval),
        };
        check.verdict = verdict(interval, check.p_beyond, at, self.larger_is_worse());
        if check.verdict == GateVerdict::CannotTell {
            let estimate = fit.map_or(f64::NAN, |fit| fit.estimate);
            check.reason = open_reason(interval, at);
            // More time in the same runs does not make runs more alike.
            if self.found.change.between.is_none() {
                check.longer_to_tell = longer(interval, estimate - at);
            }
        }
    }
}

/// The rule. `p_beyond` is adjusted; interval and limit are log ratios.
#[must_use]
pub fn verdict(
    interval: Interval,
    p_beyond: Option<f64>,
    limit: f64,
    larger_is_worse: bool,
) -> GateVerdict {
    let (keeps, is_beyond) = if larger_is_worse {
        (interval.high < limit, interval.low > limit)
    } else {
        (interval.low > limit, interval.high < limit)
    };
    match p_beyond {
        _ if keeps => GateVerdict::Pass,
        Some(p) if is_beyond && p <= ALPHA / 2.0 => GateVerdict::Fail,
        _ => GateVerdict::CannotTell,
    }
}

fn open_reason(interval: Interval, at: f64) -> String {
    if interval.low <= at && at <= interval.high {
        "the interval holds the limit".to_owned()
    } else {
        "beyond the limit by itself, but not adjusted for the number of checks".to_owned()
    }
}

/// What the interval must shrink by to leave the limit out: it does with the root of the time.
fn longer(interval: Interval, distance: f64) -> Option<f64> {
    /// Nobody waits longer.
    const MOST: f64 = 100.0;
    let factor = ((interval.high - interval.low) / 2.0 / distance).powi(2);
    (factor.is_finite() && (1.0..=MOST).contains(&factor)).then_some(factor)
}
