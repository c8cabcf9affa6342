//! Runs against each other.
//!
//! A machine is not the same on two days, and not in two hours. So levels are never compared between runs:
//! each variant is held against the baselines of its own run, and what is compared is
//!
//! ```text
//! log(NEW's variant / NEW's baselines) - log(BASE's variant / BASE's baselines)
//! ```
//!
//! in which a machine that is slower as a whole cancels out. What does not cancel (the link's state, where
//! programs came to lie in memory, how a busy machine scales one cost and not another) moves all rounds of a
//! run alike, so that no run can see it: the *between-run component* τ. With one run a side it is the default
//! ([`default_between`]), which counts as an estimate from [`PRIOR_DF`] + 1 runs. Several runs of
//! a side show it, and the two are put together by their degrees of freedom (a moderated variance, Smyth 2004):
//!
//! ```text
//! s²  = variance of the runs' log ratios around the mean of their side, d = runs - 2 degrees of freedom
//! τ²  = max(0, (d₀ τ₀² + d (s² - mean within-run variance)) / (d₀ + d))
//! V   = Σ within-run variances / k² of each side + τ² (1/k_BASE + 1/k_NEW)
//! ```
//!
//! The interval is Student's, with the degrees of freedom of Welch and Satterthwaite.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Estimate, Metric, Verdict};
use meshtax_model::comparison::{Between, BetweenSource, Change, ComparedRun, RunComparison};
use meshtax_model::experiment::{Experiment, LoadPoint, Role, Variant, VariantId};

use crate::RunData;
use crate::differing::{differing, notes};
use crate::effects::{against_baselines, is_primary};
use crate::family::{ALPHA, holm};
use crate::interval::{CONFIDENCE, Inference, Spread, Student};
use crate::pairing::count_rounds;
use crate::points::level_in;
use crate::trials::Trials;

/// What the default counts as, in degrees of freedom.
pub const PRIOR_DF: f64 = 10.0;

/// What runs of the same thing on the same machine differ by beyond their rounds: standard deviation of the
/// log ratio. In the runs that were at hand it could not be told from zero; so these are what such runs scatter by in
/// all, rounded up, and for throughput and tails a guess. `docs/method.md` has the figures.
#[must_use]
pub fn default_between(metric: Metric) -> f64 {
    match metric {
        Metric::ResponseP50 | Metric::Throughput | Metric::CpuPerRequest => 0.02,
        Metric::ResponseMean => 0.03,
        Metric::ResponseP90 => 0.04,
        Metric::ResponseP99 | Metric::ResponseP999 => 0.05,
        Metric::AnonymousMemory => 0.01,
    }
}

/// How runs are compared.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What runs differ by, given by the user, for all metrics; `None`: by default, and by the runs themselves.
    pub between: Option<f64>,
    /// Variants that belong together although their ids differ: BASE's, NEW's.
    pub pairs: Vec<(String, String)>,
}

/// A change with what is needed to hold it against a limit.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is told of it.
    pub change: Change,
    /// Of its log ratio; `None` if not estimable.
    pub fit: Option<Inference>,
    /// BASE's level in the metric's unit.
    pub level: Option<f64>,
}

/// Why runs cannot be compared: no variant, or no load point, is in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingInCommon {
    /// `variant` or `load point`.
    pub what: &'static str,
    /// What BASE has.
    pub base: Vec<String>,
    /// What NEW has.
    pub new: Vec<String>,
}

/// Two sides of runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// What is compared with.
    pub base: &'a [RunData<'a>],
    /// What is compared.
    pub new: &'a [RunData<'a>],
}

/// What changed between runs. Never panics, whatever the records hold.
///
/// # Errors
/// If no candidate or no load point is in both sides.
pub fn compare(runs: Runs<'_>, options: &Options) -> Result<RunComparison, NothingInCommon> {
    let mut changes: Vec<Change> = changes(runs, options)?
        .into_iter()
        .map(|found| found.change)
        .filter(worth_a_line)
        .collect();
    adjust(&mut changes);
    Ok(RunComparison {
        format_version: FORMAT_VERSION,
        base: runs.base.iter().map(compared).collect(),
        new: runs.new.iter().map(compared).collect(),
        confidence: CONFIDENCE,
        differing: differing(runs),
        notes: notes(runs, options),
        changes,
    })
}

/// Every change of the common variants, as a gate needs it.
///
/// # Errors
/// If no candidate or no load point is in both sides.
pub fn changes(runs: Runs<'_>, options: &Options) -> Result<Vec<Found>, NothingInCommon> {
    let first = |side: &'_ [RunData<'_>]| side.first().map(|data| data.experiment.clone());
    let (base, new) = (first(runs.base), first(runs.new));
    let (Some(base), Some(new)) = (base, new) else {
        return Err(NothingInCommon {
            what: "run",
            base: Vec::new(),
            new: Vec::new(),
        });
    };
    let pairs = pairs(&base, &new, options);
    if pairs.is_empty() {
        return Err(NothingInCommon {
            what: "variant",
            base: candidate_names(&base),
            new: candidate_names(&new),
        });
    }
    let has = |point: &&LoadPoint| {
        base.load_point(&point.id)
            .is_some_and(|other| other.is_steady() == point.is_steady())
    };
    let points: Vec<&LoadPoint> = new.load_points.iter().filter(has).collect();
    if points.is_empty() {
        let ids = |side: &Experiment| side.load_points.iter().map(|p| p.id.0.clone()).collect();
        return Err(NothingInCommon {
            what: "load point",
            base: ids(&base),
            new: ids(&new),
        });
    }
    let sides = [runs.base, runs.new].map(|side| side.iter().map(Trials::new).collect());
    let mut found = Vec::new();
    for point in points {
        for (one, two) in &pairs {
            if base.gap(one, point).is_some() || new.gap(two, point).is_some() {
                continue;
            }
            let metrics = Metric::of(point).iter();
            found.extend(metrics.map(|metric| {
                let place = Place {
                    variants: [&one.id, &two.id],
                    point,
                    metric: *metric,
                };
                change(&sides, place, options.between)
            }));
        }
    }
    Ok(found)
}

fn candidate_names(experiment: &Experiment) -> Vec<String> {
    candidates(experiment).map(|v| v.id.0.clone()).collect()
}

pub(crate) fn candidates(experiment: &Experiment) -> impl Iterator<Item = &Variant> {
    experiment
        .variants
        .iter()
        .filter(|v| v.role == Role::Candidate)
}

/// BASE's variant and NEW's: of one id, or named as belonging together.
pub(crate) fn pairs<'a>(
    base: &'a Experiment,
    new: &'a Experiment,
    options: &Options,
) -> Vec<(&'a Variant, &'a Variant)> {
    let named = |two: &Variant| {
        let mut pairs = options.pairs.iter();
        pairs
            .find(|(_, new)| *new == two.id.0)
            .map(|(base, _)| base)
    };
    candidates(new)
        .filter_map(|two| {
            let wanted = named(two).unwrap_or(&two.id.0);
            let one = candidates(base).find(|one| one.id.0 == *wanted)?;
            Some((one, two))
        })
        .collect()
}

/// Where a change is looked for.
#[derive(Clone, Copy)]
struct Place<'a> {
    variants: [&'a VariantId; 2],
    point: &'a LoadPoint,
    metric: Metric,
}

/// What a side's runs say, or why they say nothing.
struct Side {
    fits: Vec<(Inference, Student)>,
    level: Option<f64>,
    reasons: Vec<String>,
}

impl Side {
    fn of(runs: &[Trials<'_>], place: Place<'_>, variant: &VariantId) -> Self {
        let mut side = Self {
            fits: Vec::new(),
            level: None,
            reasons: Vec::new(),
        };
        let mut levels = Vec::new();
        for trials in runs {
            let experiment = trials.data.experiment;
            let asked = experiment.variant(variant);
            let point = experiment.load_point(&place.point.id);
            let (Some(asked), Some(point)) = (asked, point) else {
                side.reasons
                    .push("one of its runs does not have it".to_owned());
                continue;
            };
            let fit = against_baselines(trials, asked, point, place.metric);
            match fit.map(|paired| (paired.log_ratio.as_student(), paired.log_ratio)) {
                Ok((Some(student), fit)) => side.fits.push((fit, student)),
                Ok((None, _)) => side.reasons.push("no interval".to_owned()),
                Err(reason) => side.reasons.push(reason),
            }
            levels.extend(level_in(place.metric, trials.cell(variant, &point.id)));
        }
        side.level = crate::interval::mean(&levels);
        side
    }

    fn count(&self) -> f64 {
        self.fits.len() as f64
    }

    fn mean(&self) -> f64 {
        let sum: f64 = self.fits.iter().map(|(fit, _)| fit.estimate).sum();
        sum / self.count()
    }

    /// Within-run variances of the side's mean, each with its degrees of freedom.
    fn parts(&self) -> impl Iterator<Item = (f64, f64)> {
        let share = self.count().powi(-2);
        let students = self.fits.iter().map(|(_, student)| student);
        students.map(move |s| (s.standard_error.powi(2) * share, s.degrees_of_freedom))
    }

    /// One run's own interval; of several the mean alone.
    fn overhead(&self) -> Option<Estimate> {
        match self.fits.as_slice() {
            [] => None,
            [(fit, _)] => Some(fit.estimate_relative()),
            _ => Some(Estimate {
                value: self.mean().exp_m1(),
                interval: None,
            }),
        }
    }
}

fn change(sides: &[Vec<Trials<'_>>; 2], place: Place<'_>, given: Option<f64>) -> Found {
    let [base_id, new_id] = place.variants;
    let base = Side::of(&sides[0], place, base_id);
    let new = Side::of(&sides[1], place, new_id);
    let result = difference(&base, &new, place.metric, given);
    let (fit, between, reason) = match result {
        Ok((fit, between)) => (Some(fit), Some(between), None),
        Err(reason) => (None, None, Some(reason)),
    };
    let runs = |side: &Side| u32::try_from(side.fits.len()).unwrap_or(u32::MAX);
    Found {
        change: Change {
            variant: new_id.0.clone(),
            base_variant: base_id.clone(),
            new_variant: new_id.clone(),
            load_point: place.point.id.clone(),
            metric: place.metric,
            base: base.overhead(),
            new: new.overhead(),
            relative: fit.as_ref().map(Inference::estimate_relative),
            between,
            base_runs: runs(&base),
            new_runs: runs(&new),
            p_value: fit.as_ref().and_then(Inference::p_value),
            primary: is_primary(place.point, place.metric),
            verdict: reason.map_or(Verdict::NotDistinguishable, |reason| {
                Verdict::NotEstimable { reason }
            }),
        },
        level: base.level,
        fit,
    }
}

fn difference(
    base: &Side,
    new: &Side,
    metric: Metric,
    given: Option<f64>,
) -> Result<(Inference, Between), String> {
    for (side, name) in [(base, "BASE"), (new, "NEW")] {
        if side.fits.is_empty() {
            let reason = side.reasons.first().map_or("no run", String::as_str);
            return Err(format!("in {name}: {reason}"));
        }
    }
    let (between, tau) = component(base, new, metric, given);
    let parts: Vec<(f64, f64)> = base.parts().chain(new.parts()).chain([tau]).collect();
    let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let student = Student {
        standard_error: variance.sqrt(),
        degrees_of_freedom: satterthwaite(&parts),
    };
    let estimate = new.mean() - base.mean();
    if !estimate.is_finite() || !variance.is_finite() {
        return Err("its figures are none".to_owned());
    }
    let all = base.fits.iter().chain(&new.fits);
    let share = all.map(|(fit, _)| fit.error_share).fold(1.0, f64::min);
    let fit = Inference::new(estimate, Some(Spread::Student(student))).within(share);
    Ok((fit, between))
}

/// The between-run component, and what it adds to the variance, with its degrees of freedom.
fn component(base: &Side, new: &Side, metric: Metric, given: Option<f64>) -> (Between, (f64, f64)) {
    let of_means = 1.0 / base.count() + 1.0 / new.count();
    if let Some(value) = given {
        let source = BetweenSource::Given;
        // Whoever gives it is taken to know it.
        let known = (value.ln_1p().powi(2) * of_means, f64::INFINITY);
        return (Between { value, source }, known);
    }
    let prior = default_between(metric).ln_1p().powi(2);
    let runs = base.count() + new.count();
    let df = runs - 2.0;
    let squares = |side: &Side| {
        let mean = side.mean();
        let fits = side.fits.iter();
        fits.map(|(fit, _)| (fit.estimate - mean).powi(2))
            .sum::<f64>()
    };
    let seen = if df > 0.0 {
        (squares(base) + squares(new)) / df
    } else {
        0.0
    };
    let within = base.fits.iter().chain(&new.fits);
    let within: f64 = within.map(|(_, s)| s.standard_error.powi(2)).sum::<f64>() / runs;
    let pooled = (PRIOR_DF * prior + df * (seen - within)) / (PRIOR_DF + df);
    let variance = pooled.max(0.0);
    // Of each part: variance² times degrees of freedom is what its own uncertainty comes to.
    let uncertain = (PRIOR_DF * prior.powi(2) + df * seen.powi(2)) / (PRIOR_DF + df).powi(2);
    let between = Between {
        value: variance.sqrt().exp_m1(),
        source: if df > 0.0 {
            BetweenSource::Runs
        } else {
            BetweenSource::Default
        },
    };
    (between, (variance * of_means, variance.powi(2) / uncertain))
}

/// The degrees of freedom of a sum of variances (Welch 1947, Satterthwaite 1946); at least one.
fn satterthwaite(parts: &[(f64, f64)]) -> f64 {
    let sum: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let uncertain = parts.iter().filter(|(variance, _)| *variance > 0.0);
    let uncertain: f64 = uncertain.map(|(v, df)| v.powi(2) / df).sum();
    let df = sum.powi(2) / uncertain;
    // Beyond this, Student's t is the normal distribution.
    if df.is_finite() {
        df.clamp(1.0, 1e6)
    } else {
        1e6
    }
}

/// Where neither side resolves a p99.9, there is no use in saying so.
fn worth_a_line(change: &Change) -> bool {
    change.metric != Metric::ResponseP999
        || change.relative.is_some()
        || change.base.is_some()
        || change.new.is_some()
}

/// Holm over the primary changes; then the verdicts.
fn adjust(changes: &mut [Change]) {
    let is_judged = |change: &&mut Change| change.primary && change.p_value.is_some();
    let mut family: Vec<&mut Change> = changes.iter_mut().filter(is_judged).collect();
    let p_values: Vec<f64> = family.iter().filter_map(|change| change.p_value).collect();
    for (change, adjusted) in family.iter_mut().zip(holm(&p_values)) {
        change.p_value = Some(adjusted);
    }
    for change in changes {
        if change.p_value.is_some_and(|p| p < ALPHA) {
            change.verdict = Verdict::Different;
        }
    }
}

/// What is told of a run.
#[must_use]
pub fn compared(data: &RunData<'_>) -> ComparedRun {
    let blocks = Trials::new(data).blocks();
    ComparedRun {
        run: data.run.clone(),
        rounds: count_rounds(&blocks),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
    }
}
