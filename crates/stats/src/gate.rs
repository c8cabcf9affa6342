//! Limits on changes: pass, fail, or inconclusive; missing data never passes.
//!
//! A check *passes* if the whole 95 % interval is within its limit, and *fails* if the whole interval is beyond it, or
//! if the variant did not carry the load that its baselines carried: missing requests are never a good result. A
//! gate is the worst of its checks, and therefore the two are treated differently:
//!
//! - A gate passes only if every check does. For a false pass, a check that should not have passed must have, and
//!   the chance of that is at most that of one check, however many there are (intersection-union, Berger 1982): 2.5 %.
//! - A gate fails if any check does, and the chance of a false failure grows with their number. So
//!   failing is adjusted over the gate's checks (Holm 1979). A check that is beyond the limit by its own interval, but
//!   not by the adjusted one, is inconclusive.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Interval, Metric, Verdict};
use meshtax_model::comparison::{
    Allowed, Change, Differing, GateCheck, GateReport, GateVerdict, InconclusiveCheck, Limit,
};
use meshtax_model::experiment::{Experiment, LoadPointId, VariantId};

use crate::between::{Found, NothingInCommon, Options, Runs, changes, compared};
use crate::differing::{differing, notes, prevents_comparison};
use crate::family::{ALPHA, holm};
use crate::interleaved::{bare, pairings, sides};
use crate::interval::{CONFIDENCE, Inference};
use crate::run_data::RunData;

/// Why a gate cannot be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub enum GateError {
    /// The two sides have nothing in common.
    Apart(NothingInCommon),
    /// A limit does not match any measurement.
    Unmatched {
        /// As typed.
        limit: String,
        /// Every available variant, load point and metric.
        known: Vec<[String; 3]>,
    },
    /// The runs were measured under conditions whose effect does not cancel.
    NotComparable {
        /// Which conditions.
        differing: Vec<Differing>,
    },
    /// There is no limit.
    NoLimit,
}

/// Checks runs against limits.
///
/// # Errors
/// If the runs have nothing in common or are not comparable, or a limit matches nothing.
pub fn gate_runs(
    runs: Runs<'_>,
    options: &Options,
    limits: &[Limit],
) -> Result<GateReport, GateError> {
    let found = changes(runs, options).map_err(GateError::Apart)?;
    let all = differing(runs);
    let mut decisive = all.clone();
    decisive.retain(prevents_comparison);
    if !decisive.is_empty() {
        return Err(GateError::NotComparable {
            differing: decisive,
        });
    }
    let checks = checks(limits, &found)?;
    Ok(GateReport {
        format_version: FORMAT_VERSION,
        verdict: worst(&checks),
        interleaved: false,
        base: runs.base.iter().map(compared).collect(),
        new: runs.new.iter().map(compared).collect(),
        confidence: CONFIDENCE,
        differing: all,
        notes: notes(runs, options),
        checks,
    })
}

/// Checks two sides of one run against limits, by their own paired differences. A pair without a first variant is
/// compared with the baselines.
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
    // A gate without checks does not pass.
    all.max().unwrap_or(GateVerdict::Inconclusive)
}

/// Checks before an interleaved run that each limit matches something that it will measure.
///
/// # Errors
/// The first limit that matches nothing.
pub fn limits_match(
    experiment: &Experiment,
    pairs: &[(Option<VariantId>, VariantId)],
    limits: &[Limit],
) -> Result<(), GateError> {
    let pairings = pairings(experiment, pairs);
    let places: Vec<LimitTarget<'_>> = pairings
        .iter()
        .flat_map(|pairing| {
            let of = |metric: &Metric| LimitTarget {
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

/// A check before adjustment.
struct Draft<'a> {
    limit: &'a Limit,
    found: &'a Found,
    /// The limit as a log ratio.
    at: Result<f64, InconclusiveCheck>,
}

/// The verdicts on every limit and everything that it matches.
fn checks(limits: &[Limit], found: &[Found]) -> Result<Vec<GateCheck>, GateError> {
    if limits.is_empty() {
        return Err(GateError::NoLimit);
    }
    let mut drafts = Vec::new();
    for limit in limits {
        let before = drafts.len();
        let matching = found
            .iter()
            .filter(|found| LimitTarget::of(&found.change).matches(limit));
        drafts.extend(matching.map(|found| Draft {
            limit,
            found,
            at: threshold(limit, found),
        }));
        if drafts.len() == before {
            let places: Vec<LimitTarget<'_>> =
                found.iter().map(|f| LimitTarget::of(&f.change)).collect();
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

/// A possible target of a limit.
struct LimitTarget<'a> {
    /// The names that match its variant; the first one is reported.
    names: [&'a str; 4],
    point: &'a LoadPointId,
    metric: Metric,
}

/// By their ids, and in an interleaved run by the ids in their own specs.
fn names<'a>(base: &'a VariantId, new: &'a VariantId) -> [&'a str; 4] {
    [bare(new), bare(base), &new.0, &base.0]
}

impl<'a> LimitTarget<'a> {
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

fn unmatched_limit(limit: &Limit, places: &[LimitTarget<'_>]) -> GateError {
    let text = |place: &LimitTarget<'_>| {
        let [variant, ..] = place.names;
        [variant, &place.point.0, place.metric.name()].map(str::to_owned)
    };
    GateError::Unmatched {
        limit: limit.text.clone(),
        known: places.iter().map(text).collect(),
    }
}

/// The limit as a log ratio. An absolute one is related to BASE's level, so that a machine that became
/// slower as a whole does not consume it.
fn threshold(limit: &Limit, found: &Found) -> Result<f64, InconclusiveCheck> {
    let share = match limit.allowed {
        Allowed::Relative(share) => share,
        Allowed::Absolute(value) => {
            let level = found.level.filter(|level| *level > 0.0);
            value / level.ok_or(InconclusiveCheck::NoBaseLevel)?
        }
    };
    let log = share.ln_1p();
    log.is_finite()
        .then_some(log)
        .ok_or(InconclusiveCheck::LimitOutOfRange)
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
            verdict: GateVerdict::Inconclusive,
            reason: None,
            longer_to_tell: None,
        }
    }

    fn judge(&self, check: &mut GateCheck) {
        let at = match (&self.at, &self.found.change.verdict) {
            // Whatever the limit: a load that was not carried is beyond it.
            (_, Verdict::Overloaded(_)) => return check.verdict = GateVerdict::Fail,
            (_, Verdict::NotEstimable { reason }) => Err(InconclusiveCheck::NotEstimable {
                reason: reason.clone(),
            }),
            (Err(reason), _) => Err(reason.clone()),
            (Ok(at), _) => Ok(*at),
        };
        let fit = self.found.fit.as_ref();
        let interval = fit.and_then(|fit| fit.interval(CONFIDENCE));
        let usable = interval.filter(|i| i.low.is_finite() && i.high.is_finite());
        let (at, interval) = match (at, usable) {
            (Err(reason), _) => return check.reason = Some(reason),
            (Ok(_), None) => return check.reason = Some(InconclusiveCheck::NoInterval),
            (Ok(at), Some(interval)) => (at, interval),
        };
        check.verdict = verdict(interval, check.p_beyond, at, self.larger_is_worse());
        if let Some(reason) = self.withheld(check.verdict, at) {
            check.verdict = GateVerdict::Inconclusive;
            return check.reason = Some(reason);
        }
        if check.verdict == GateVerdict::Inconclusive {
            let estimate = fit.map_or(f64::NAN, |fit| fit.estimate);
            check.reason = Some(inconclusive(interval, at));
            // A longer run does not reduce the variation between runs.
            if self.found.change.between.is_none() {
                check.longer_to_tell = longer(interval, estimate - at);
            }
        }
    }
}

impl Draft<'_> {
    /// Why a verdict that the interval supports is not given. Only latencies can lack requests, and CPU alone can be
    /// elsewhere; of both, more is worse.
    fn withheld(&self, verdict: GateVerdict, at: f64) -> Option<InconclusiveCheck> {
        let Found {
            truncated,
            whole,
            missing_run,
            ..
        } = self.found;
        if let (GateVerdict::Pass, Some(reason)) = (verdict, missing_run) {
            let reason = reason.clone();
            return Some(InconclusiveCheck::MissingRun { reason });
        }
        let whole = whole.as_ref();
        let is_kept = |whole: &Inference| {
            let interval = whole.interval(CONFIDENCE);
            interval.is_some_and(|interval| interval.high < at)
        };
        match verdict {
            GateVerdict::Pass if truncated.own => Some(InconclusiveCheck::LowerBound),
            GateVerdict::Fail if truncated.reference => Some(InconclusiveCheck::UpperBound),
            // To pass is to show that something is absent, so the interval counts, and not only the estimate.
            GateVerdict::Pass if whole.is_some_and(|whole| !is_kept(whole)) => {
                Some(InconclusiveCheck::CpuElsewhere)
            }
            GateVerdict::Fail if whole.is_some_and(|whole| whole.estimate <= at) => {
                Some(InconclusiveCheck::CpuElsewhere)
            }
            _ => None,
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
        _ => GateVerdict::Inconclusive,
    }
}

fn inconclusive(interval: Interval, at: f64) -> InconclusiveCheck {
    if interval.low <= at && at <= interval.high {
        InconclusiveCheck::IntervalContainsLimit
    } else {
        InconclusiveCheck::NotAfterAdjustment
    }
}

/// How many times as long a run must be for the interval to exclude the limit: its width shrinks with the root of
/// the duration.
fn longer(interval: Interval, distance: f64) -> Option<f64> {
    /// Beyond this factor, a longer run is not practical.
    const MOST: f64 = 100.0;
    let factor = ((interval.high - interval.low) / 2.0 / distance).powi(2);
    (factor.is_finite() && (1.0..=MOST).contains(&factor)).then_some(factor)
}
