//! Comparison of runs.
//!
//! A machine is not the same on two days, and not even in two hours. So levels are never compared between runs:
//! each variant is compared with the baselines of its own run, and the quantity of interest is
//!
//! ```text
//! log(NEW's variant / NEW's baselines) - log(BASE's variant / BASE's baselines)
//! ```
//!
//! in which a uniformly slower machine cancels out. What does not cancel (the link's state, the
//! memory layout of programs, load-dependent scaling of one cost and not another) shifts all rounds of a
//! run together, so that no single run shows it: the *between-run component* τ. With one run per side it is the default
//! ([`default_between`]), which counts as an estimate from [`PRIOR_DF`] + 1 runs. Several runs of
//! a side provide an estimate, and the two are combined by their degrees of freedom (a moderated variance, Smyth 2004):
//!
//! ```text
//! s²  = variance of the runs' log ratios around the mean of their side, d = runs - 2 degrees of freedom
//! τ²  = max(0, (d₀ τ₀² + d (s² - mean within-run variance)) / (d₀ + d))
//! V   = Σ within-run variances / k² of each side + τ² (1/k_BASE + 1/k_NEW)
//! ```
//!
//! The interval is Student's, with the degrees of freedom of Welch and Satterthwaite.

use std::collections::BTreeSet;
use std::fmt;

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    Estimate, LoadOutcome, Metric, NotEstimable, Overload, RunSide, Verdict,
};
use meshtax_model::comparison::{Between, BetweenSource, Change, ComparedRun, RunComparison};
use meshtax_model::environment::NodeRole;
use meshtax_model::experiment::{Experiment, LoadPoint, VariantId};

use crate::differing::{differing, notes};
use crate::effects::{against_baselines, is_primary, references};
use crate::elsewhere;
use crate::family::{ALPHA, holm};
use crate::interval::{CONFIDENCE, Inference, Spread, Student};
use crate::outcome::outcome;
use crate::pairing::count_rounds;
use crate::points::level_in;
use crate::run_data::RunData;
pub use crate::sides::{Options, Runs};
use crate::sides::{candidates, pairs};
use crate::trials::Trials;
use crate::truncated::Truncated;

/// The weight of the default, in degrees of freedom.
pub const PRIOR_DF: f64 = 10.0;

/// The variation of identical runs on the same machine beyond their rounds: standard deviation of the
/// log ratio. In the available runs it was not distinguishable from zero; so these are the total variation of such
/// runs, rounded up, and for throughput and tails a guess. `docs/method.md` has the figures.
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

/// A change with the data needed to check it against a limit.
#[derive(Clone, Debug)]
pub struct Found {
    /// The reported change.
    pub change: Change,
    /// The fit of its log ratio; `None` if not estimable.
    pub fit: Option<Inference>,
    /// BASE's level in the metric's unit.
    pub level: Option<f64>,
    /// Whose latencies lack requests, as seen from the change.
    pub(crate) truncated: Truncated,
    /// The same fit with CPU elsewhere; `None` for other metrics, or not known.
    pub(crate) whole: Option<Inference>,
    /// Why one of several runs of NEW has no figure; `None`: all have one, or the machine alone is the reason.
    pub(crate) missing_run: Option<NotEstimable>,
}

impl Found {
    /// Whether a verdict is not given: because of missing requests, or of CPU elsewhere.
    pub(crate) fn withholds(&self, verdict: &Verdict, margin: f64) -> bool {
        let path = self.fit.as_ref().map_or(0.0, |fit| fit.estimate);
        let whole = self.whole.as_ref();
        self.truncated.withholds(verdict, path)
            || whole.is_some_and(|whole| elsewhere::withholds(verdict, path, whole, margin))
    }
}

/// What two sides of runs must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// A run on each side.
    Run,
    /// A variant.
    Variant,
    /// A load point.
    LoadPoint,
}

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Run => "run",
            Self::Variant => "variant",
            Self::LoadPoint => "load point",
        })
    }
}

/// Why runs cannot be compared: they have no common item of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingInCommon {
    /// The kind.
    pub what: Common,
    /// The items of BASE.
    pub base: Vec<String>,
    /// The items of NEW.
    pub new: Vec<String>,
}

/// The changes between runs. Never panics, for any content of the records.
///
/// # Errors
/// If no candidate or no load point is in both sides.
pub fn compare(runs: Runs<'_>, options: &Options) -> Result<RunComparison, NothingInCommon> {
    let mut found = changes(runs, options)?;
    found.retain(|found| worth_a_line(&found.change));
    adjust(&mut found);
    Ok(RunComparison {
        format_version: FORMAT_VERSION,
        interleaved: false,
        base: runs.base.iter().map(compared).collect(),
        new: runs.new.iter().map(compared).collect(),
        confidence: CONFIDENCE,
        differing: differing(runs),
        notes: notes(runs, options),
        changes: found.into_iter().map(|found| found.change).collect(),
        pairs: Vec::new(),
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
            what: Common::Run,
            base: Vec::new(),
            new: Vec::new(),
        });
    };
    let pairs = pairs(&base, &new, options);
    if pairs.is_empty() {
        return Err(NothingInCommon {
            what: Common::Variant,
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
            what: Common::LoadPoint,
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
                let place = ComparedCell {
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

/// The cell of a change.
#[derive(Clone, Copy)]
struct ComparedCell<'a> {
    variants: [&'a VariantId; 2],
    point: &'a LoadPoint,
    metric: Metric,
}

/// The combined figures of a side's runs, or why there are none.
struct Side {
    fits: Vec<(Inference, Student)>,
    /// The same with CPU elsewhere; of CPU per request.
    whole: Vec<(Inference, Student)>,
    level: Option<f64>,
    reasons: Vec<NotEstimable>,
    /// Of the first run in which the variant did not carry the load.
    overload: Option<Overload>,
    /// In any of its runs.
    truncated: Truncated,
}

impl Side {
    fn of(runs: &[Trials<'_>], place: ComparedCell<'_>, variant: &VariantId) -> Self {
        let mut side = Self {
            fits: Vec::new(),
            whole: Vec::new(),
            level: None,
            reasons: Vec::new(),
            overload: None,
            truncated: Truncated::default(),
        };
        let mut levels = Vec::new();
        for trials in runs {
            let experiment = trials.data.experiment;
            let asked = experiment.variant(variant);
            let point = experiment.load_point(&place.point.id);
            let (Some(asked), Some(point)) = (asked, point) else {
                side.reasons.push(NotEstimable::NotInRun);
                continue;
            };
            if let LoadOutcome::Overloaded(overload) = outcome(trials, asked, point) {
                side.overload.get_or_insert(overload);
            }
            let cell = trials.cell(variant, &point.id);
            let references = references(trials, asked, point);
            let truncated = Truncated::of(place.metric, cell, &references);
            side.truncated.own |= truncated.own;
            side.truncated.reference |= truncated.reference;
            let fit = against_baselines(trials, asked, point, place.metric);
            match fit.map(|paired| (paired.log_ratio.as_student(), paired.log_ratio)) {
                Ok((Some(student), fit)) => {
                    side.fits.push((fit, student));
                    let whole = elsewhere::whole(trials, place.metric, cell, &references);
                    side.whole
                        .extend(whole.and_then(|fit| Some((fit.clone(), fit.as_student()?))));
                }
                Ok((None, _)) => side.reasons.push(NotEstimable::NotFinite),
                Err(reason) => side.reasons.push(reason),
            }
            levels.extend(level_in(place.metric, cell));
        }
        side.level = crate::interval::mean(&levels);
        side
    }

    /// The runs that the hypervisor disturbed are the same for every variant; any other reason may be the variant's.
    fn missing_run(&self) -> Option<NotEstimable> {
        let is_its_own =
            |reason: &&NotEstimable| !matches!(reason, NotEstimable::TooManyDisturbed { .. });
        self.reasons.iter().find(is_its_own).cloned()
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

    /// One run's own interval; for several runs the mean alone.
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

fn change(sides: &[Vec<Trials<'_>>; 2], place: ComparedCell<'_>, given: Option<f64>) -> Found {
    let [base_id, new_id] = place.variants;
    let base = Side::of(&sides[0], place, base_id);
    let new = Side::of(&sides[1], place, new_id);
    let result = match place.metric == Metric::Throughput && is_other_size(sides) {
        true => Err(NotEstimable::DifferentMachineSizes),
        false => difference(&base, &new, place.metric, given),
    };
    let (fit, between, verdict) = match (new.overload, result) {
        // In one run of several is enough: its baselines carried the load.
        (Some(overload), _) => (None, None, Verdict::Overloaded(overload)),
        (None, Ok((fit, between))) => (Some(fit), Some(between), Verdict::Inconclusive),
        (None, Err(reason)) => (None, None, Verdict::NotEstimable { reason }),
    };
    let truncated = Truncated::of_ratio(new.truncated, base.truncated);
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
            lower_bound: truncated.is_lower_bound(),
            between,
            base_runs: runs(&base),
            new_runs: runs(&new),
            p_value: fit.as_ref().and_then(Inference::p_value),
            primary: is_primary(place.point, place.metric),
            verdict,
        },
        level: base.level,
        missing_run: new.missing_run(),
        whole: whole(base, new, place.metric, given),
        fit,
        truncated,
    }
}

/// Whether the runs had different numbers of cores: throughput on shared cores is a property of their number.
fn is_other_size(sides: &[Vec<Trials<'_>>; 2]) -> bool {
    let size = |trials: &Trials<'_>| {
        let environment = trials.data.environment;
        let cores: u32 = environment.machines.iter().map(|host| host.cores).sum();
        let mut tested = environment.tested_cores(NodeRole::Client);
        tested.extend(environment.tested_cores(NodeRole::Server));
        (cores, tested.len())
    };
    let sizes: BTreeSet<_> = sides.iter().flatten().map(size).collect();
    sizes.len() > 1
}

fn difference(
    base: &Side,
    new: &Side,
    metric: Metric,
    given: Option<f64>,
) -> Result<(Inference, Between), NotEstimable> {
    for (found, side) in [(base, RunSide::Base), (new, RunSide::New)] {
        if found.fits.is_empty() {
            let reason = found.reasons.first().cloned();
            let reason = Box::new(reason.unwrap_or(NotEstimable::NotInRun));
            return Err(NotEstimable::InSide { side, reason });
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
        return Err(NotEstimable::NotFinite);
    }
    let all = base.fits.iter().chain(&new.fits);
    let share = all.map(|(fit, _)| fit.error_share).fold(1.0, f64::min);
    let fit = Inference::new(estimate, Some(Spread::Student(student))).within(share);
    Ok((fit, between))
}

/// The difference with CPU elsewhere, by the same rules; `None`: not known in each run of both sides that has a figure.
fn whole(mut base: Side, mut new: Side, metric: Metric, given: Option<f64>) -> Option<Inference> {
    for side in [&mut base, &mut new] {
        if side.whole.len() != side.fits.len() {
            return None;
        }
        side.fits = std::mem::take(&mut side.whole);
    }
    let (fit, _) = difference(&base, &new, metric, given).ok()?;
    Some(fit)
}

/// The between-run component, its contribution to the variance, and its degrees of freedom.
fn component(base: &Side, new: &Side, metric: Metric, given: Option<f64>) -> (Between, (f64, f64)) {
    let of_means = 1.0 / base.count() + 1.0 / new.count();
    if let Some(value) = given {
        let source = BetweenSource::Given;
        // A value given by the user is treated as exact.
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
    // The uncertainty of each component, as variance² times degrees of freedom.
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

/// If neither side resolves a p99.9, it is not reported.
pub(crate) fn worth_a_line(change: &Change) -> bool {
    change.metric != Metric::ResponseP999
        || change.relative.is_some()
        || change.base.is_some()
        || change.new.is_some()
        || matches!(change.verdict, Verdict::Overloaded(_))
}

/// Holm over the primary changes; then the verdicts.
fn adjust(found: &mut [Found]) {
    let is_judged = |change: &&mut Change| change.primary && change.p_value.is_some();
    let changes = found.iter_mut().map(|found| &mut found.change);
    let mut family: Vec<&mut Change> = changes.filter(is_judged).collect();
    let p_values: Vec<f64> = family.iter().filter_map(|change| change.p_value).collect();
    for (change, adjusted) in family.iter_mut().zip(holm(&p_values)) {
        change.p_value = Some(adjusted);
    }
    for found in found {
        // No claim of a change within a margin is made between runs.
        if found.change.p_value.is_some_and(|p| p < ALPHA)
            && !found.withholds(&Verdict::Different, 0.0)
        {
            found.change.verdict = Verdict::Different;
        }
    }
}

/// The reported description of a run.
#[must_use]
pub fn compared(data: &RunData<'_>) -> ComparedRun {
    let blocks = Trials::new(data).blocks();
    ComparedRun {
        run: data.run.clone(),
        rounds: count_rounds(&blocks),
        blocks: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
    }
}
