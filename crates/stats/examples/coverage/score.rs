//! How often the intervals of many experiments hold the truth, and how wide they are.

use std::collections::BTreeMap;

use meshtax_model::analysis::{Analysis, Effect, Estimate, Interval, Metric, Verdict};
use meshtax_model::experiment::Role;
use meshtax_model::trial::TrialOutcome;
use meshtax_stats::account::cpu_per_request_ns;
use meshtax_stats::interval::{CONFIDENCE, Inference, relative};
use meshtax_stats::pairing::{BlockKey, ByBlock, Paired, infer, pairs};
use meshtax_stats::tails::{Counts, compare};

use crate::records::{Records, SATURATED, STEADY, point_id};
use crate::synthetic::Cost;

/// At least this share of the intervals holds the truth ...
pub(crate) const COVERS_MIN: f64 = 0.94;
/// ... and the Wilson interval of that share begins above this.
pub(crate) const WILSON_MIN: f64 = 0.93;
/// Mean width, in units of Student's on the same data.
pub(crate) const WIDTH_MAX: f64 = 1.3;
/// Runs without any effect that declare one, and runs that call an effect of twice the margin irrelevant.
pub(crate) const FALSE_MAX: f64 = 0.05;

/// The largest mean error where trials are excluded, in units of the mean half width.
pub(crate) const BIAS_MAX: f64 = 0.1;
/// Overloaded candidates that are declared so.
pub(crate) const OVERLOADS_MIN: f64 = 0.95;
/// A candidate that loses requests in more trials than this is overloaded.
const SELDOM: f64 = 0.1;

/// So many of so many.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    pub(crate) hits: u32,
    pub(crate) of: u32,
}

impl Share {
    pub(crate) fn count(&mut self, hit: bool) {
        self.hits += u32::from(hit);
        self.of += 1;
    }

    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.of += other.of;
    }

    pub(crate) fn value(self) -> f64 {
        f64::from(self.hits) / f64::from(self.of)
    }

    /// The 95 % interval of Wilson (1927), as if there had been only `trials` of them: figures
    /// of one experiment depend on each other.
    pub(crate) fn wilson(self, trials: u32) -> Interval {
        const Z: f64 = 1.959_964;
        let (n, p) = (f64::from(trials.min(self.of)), self.value());
        let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        Interval {
            low: middle - half,
            high: middle + half,
        }
    }
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    P50Difference,
    P50Relative,
    P99Relative,
    Throughput,
    CpuSteady,
    CpuSaturated,
}

impl Figure {
    pub(crate) const ALL: [Self; 6] = [
        Self::P50Difference,
        Self::P50Relative,
        Self::P99Relative,
        Self::Throughput,
        Self::CpuSteady,
        Self::CpuSaturated,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::P50Difference => "p50 difference",
            Self::P50Relative => "p50 relative",
            Self::P99Relative => "p99 relative",
            Self::Throughput => "throughput",
            Self::CpuSteady => "CPU, steady",
            Self::CpuSaturated => "CPU, saturated",
        }
    }

    fn metric(self) -> Metric {
        match self {
            Self::P50Difference | Self::P50Relative => Metric::ResponseP50,
            Self::P99Relative => Metric::ResponseP99,
            Self::Throughput => Metric::Throughput,
            Self::CpuSteady | Self::CpuSaturated => Metric::CpuPerRequest,
        }
    }

    fn point(self) -> usize {
        match self {
            Self::Throughput | Self::CpuSaturated => SATURATED,
            _ => STEADY,
        }
    }

    fn found(self, effect: &Effect) -> Option<Estimate> {
        match self {
            Self::P50Difference => effect.difference,
            _ => effect.relative,
        }
    }

    fn interval(self, effect: &Effect) -> Option<Interval> {
        self.found(effect)?.interval
    }

    fn estimate(self, effect: &Effect) -> Option<f64> {
        Some(self.found(effect)?.value)
    }

    /// `None`: not known in closed form. A delay is a share that depends on the machine's speed,
    /// and a share is a delay that does. (Of the p99's share, stalls that are short enough to
    /// lie around it take a thousandth of the effect.)
    fn truth(self, cost: &Cost) -> Option<f64> {
        let (scales, delays) = (cost.latency != 1.0, cost.delay_ns != 0.0);
        match self {
            Self::P50Difference => (!scales).then_some(cost.delay_ns),
            Self::P50Relative | Self::P99Relative => (!delays).then_some(cost.latency - 1.0),
            Self::Throughput => Some(1.0 / cost.cpu - 1.0),
            Self::CpuSteady | Self::CpuSaturated => Some(cost.cpu - 1.0),
        }
    }
}

/// Of one figure, over experiments and candidates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) covers: Share,
    /// Without an interval.
    pub(crate) missing: u32,
    /// Sums of the estimates' errors, and of the intervals' half widths.
    error: f64,
    half_width: f64,
    width: f64,
    student: f64,
}

impl Line {
    /// The mean error, in units of the mean half width.
    pub(crate) fn bias(&self) -> f64 {
        self.error / self.half_width
    }

    /// Mean width over that of Student's t, where both were computed.
    pub(crate) fn relative_width(&self) -> f64 {
        self.width / self.student
    }
}

/// The combined result of many experiments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Score {
    pub(crate) experiments: u32,
    pub(crate) lines: BTreeMap<Figure, Line>,
    /// Runs in which a primary effect was declared, of those without any true effect.
    pub(crate) false_declarations: Share,
    /// Runs in which an effect of twice its margin or more was called irrelevant, of those with such an effect.
    pub(crate) false_equivalence: Share,
    /// Effects that are truly zero and were called irrelevant.
    pub(crate) true_equivalence: Share,
    pub(crate) rounds: u64,
    /// Runs that ended by precision.
    pub(crate) stopped: u32,
    /// Candidates that seldom or never lose requests, and are declared overloaded.
    pub(crate) false_overloads: Share,
    /// Candidates that mostly lose requests, and are.
    pub(crate) true_overloads: Share,
}

impl Score {
    pub(crate) fn add(&mut self, other: &Self) {
        self.experiments += other.experiments;
        self.false_declarations.add(other.false_declarations);
        self.false_equivalence.add(other.false_equivalence);
        self.true_equivalence.add(other.true_equivalence);
        self.false_overloads.add(other.false_overloads);
        self.true_overloads.add(other.true_overloads);
        self.rounds += other.rounds;
        self.stopped += other.stopped;
        for (figure, line) in &other.lines {
            let mine = self.lines.entry(*figure).or_default();
            mine.covers.add(line.covers);
            mine.missing += line.missing;
            mine.error += line.error;
            mine.half_width += line.half_width;
            mine.width += line.width;
            mine.student += line.student;
        }
    }

    /// Adds one experiment. With `widths`, its intervals are held against Student's.
    pub(crate) fn take(
        &mut self,
        analysis: &Analysis,
        candidates: &[Cost],
        records: &Records,
        widths: bool,
    ) {
        self.experiments += 1;
        self.rounds += u64::from(analysis.rounds);
        let declared = |e: &Effect| e.primary && e.verdict == Verdict::Different;
        let nothing = |cost: &Cost| {
            Figure::ALL
                .iter()
                .all(|figure| figure.truth(cost) == Some(0.0))
        };
        if candidates.iter().all(nothing) {
            let any = analysis.effects.iter().any(declared);
            self.false_declarations.count(any);
        }
        let mut beyond_margin = Vec::new();
        for cost in candidates {
            let mut own = analysis.effects.iter().filter(|e| e.variant.0 == cost.name);
            let is_overloaded = own.any(|e| matches!(e.verdict, Verdict::Overloaded(_)));
            match cost.lossy > SELDOM {
                true => self.true_overloads.count(is_overloaded),
                false => self.false_overloads.count(is_overloaded),
            }
            for effect in &analysis.effects {
                if effect.variant.0 == cost.name {
                    self.take_effect(effect, cost, records, widths);
                    beyond_margin.extend(self.take_equivalence(analysis, effect, cost));
                }
            }
        }
        if !beyond_margin.is_empty() {
            self.false_equivalence.count(beyond_margin.contains(&true));
        }
    }

    /// Whether an effect of twice its margin or more is called irrelevant; `None`: it is smaller, or not known.
    fn take_equivalence(
        &mut self,
        analysis: &Analysis,
        effect: &Effect,
        cost: &Cost,
    ) -> Option<bool> {
        let relative = [
            Figure::P50Relative,
            Figure::P99Relative,
            Figure::Throughput,
            Figure::CpuSteady,
        ];
        let figure = relative
            .into_iter()
            .find(|figure| figure.metric() == effect.metric)?;
        let truth = figure.truth(cost)?;
        let is_equivalent = effect.verdict == Verdict::Equivalent;
        if truth == 0.0 {
            self.true_equivalence.count(is_equivalent);
        }
        let twice = 2.0 * effect.metric.margin(&analysis.experiment.margins);
        (truth.abs() >= twice - 1e-9).then_some(is_equivalent)
    }

    fn take_effect(&mut self, effect: &Effect, cost: &Cost, records: &Records, widths: bool) {
        let at = |figure: &&Figure| {
            figure.metric() == effect.metric && point_id(figure.point()) == effect.load_point
        };
        for figure in Figure::ALL.iter().filter(at) {
            let Some(truth) = figure.truth(cost) else {
                continue;
            };
            let line = self.lines.entry(*figure).or_default();
            let Some(interval) = figure.interval(effect) else {
                line.missing += 1;
                continue;
            };
            line.covers
                .count(interval.low <= truth && truth <= interval.high);
            line.error += figure.estimate(effect).map_or(0.0, |value| value - truth);
            line.half_width += (interval.high - interval.low) / 2.0;
            let student = widths.then(|| student(*figure, effect, records));
            if let Some(student) = student.flatten() {
                line.width += interval.high - interval.low;
                line.student += student.high - student.low;
            }
        }
    }
}

/// Student's t over the rounds' means of the same records; of a percentile that no trial has by
/// itself, over the rounds' pseudo-values, as of a run whose length was fixed.
fn student(figure: Figure, effect: &Effect, records: &Records) -> Option<Interval> {
    let mut levels: [ByBlock; 3] = Default::default();
    let mut tails: [Vec<(BlockKey, Counts)>; 3] = Default::default();
    for (record, sample) in records.trials.iter().zip(&records.samples) {
        let planned = &record.trial;
        let arm = match records.experiment.variant(&planned.variant)?.role {
            Role::Baseline => 0,
            Role::Control => 1,
            Role::Candidate => 2,
        };
        let other = arm == 2 && planned.variant != effect.variant;
        let TrialOutcome::Measured { load, .. } = &record.outcome else {
            continue;
        };
        if other || planned.load_point != effect.load_point {
            continue;
        }
        let key = BlockKey {
            round: planned.round,
            block: planned.block,
        };
        let level = match figure.metric() {
            Metric::Throughput => load.goodput_per_s(),
            Metric::CpuPerRequest => cpu_per_request_ns(sample, load.completed)?,
            Metric::ResponseP99 => {
                tails[arm].push((key, Counts::from(&load.response)));
                continue;
            }
            _ => Counts::from(&load.response).quantile(0.5)?,
        };
        levels[arm].insert(key, level);
    }
    let paired = if figure == Figure::P99Relative {
        let [one, two, own] = tails.each_ref().map(|arm| {
            let all = arm.iter().map(|(key, counts)| (*key, counts));
            all.collect::<Vec<_>>()
        });
        // Without what tails are widened by.
        let paired = compare(0.99, &own, &[one, two].concat())?;
        Paired {
            log_ratio: Inference::new(paired.log_ratio.estimate, paired.log_ratio.spread),
            ..paired
        }
    } else {
        let [one, two, own] = &levels;
        infer(&pairs(own, &[one, two]), Inference::of_mean)?
    };
    match figure {
        Figure::P50Difference => paired.difference.interval(CONFIDENCE),
        _ => paired.log_ratio.interval(CONFIDENCE).map(relative),
    }
}
