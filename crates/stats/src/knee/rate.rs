//! A rate, and whether it is good.

use meshtax_model::LatencyGoal;
use statrs::distribution::{Beta, ContinuousCDF};

use super::step::{Limit, StepPart, StepResult};

/// Confidence of the interval that decides on a rate. The search makes several decisions, and each can be wrong.
const CONFIDENCE: f64 = 0.99;

/// Number of parts that are combined: latencies may be correlated for longer than a part.
const BLOCKS: [usize; 3] = [1, 2, 5];

/// The minimum number of parts to estimate the correlation of neighbouring latencies.
const MIN_PARTS: usize = 5;

/// The verdict on a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The percentile is below the limit.
    Good,
    /// It is above, or the load was not served.
    TooHigh,
    /// Inconclusive.
    Astride,
}

/// A rate and the results of all its steps.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    pub(super) per_s: f64,
    pub(super) steps: u32,
    /// Steps that failed regardless of their latencies.
    pub(super) failures: Vec<Limit>,
    pub(super) parts: Vec<StepPart>,
    pub(super) unanswered: u64,
}

impl Rate {
    pub(super) fn new(per_s: f64) -> Self {
        Self {
            per_s,
            steps: 0,
            failures: Vec::new(),
            parts: Vec::new(),
            unanswered: 0,
        }
    }

    pub(super) fn add(&mut self, result: &StepResult) {
        self.steps += 1;
        match result.failure() {
            Some(failure) => self.failures.push(failure),
            None => {
                self.parts.extend_from_slice(&result.parts);
                self.unanswered += result.unanswered;
            }
        }
    }

    pub(super) fn verdict(&self, goal: LatencyGoal) -> Verdict {
        let failed = self.failures.len() as u32;
        if 2 * failed > self.steps {
            return Verdict::TooHigh;
        }
        if 2 * failed == self.steps {
            return Verdict::Astride;
        }
        judge(goal, &self.parts, self.unanswered)
    }

    pub(super) fn limit(&self) -> Limit {
        match self.failures.last() {
            Some(failure) if 2 * self.failures.len() as u32 > self.steps => failure.clone(),
            _ => Limit::Latency,
        }
    }
}

/// Whether the percentile is below the limit. Requests without a response count as above it.
fn judge(goal: LatencyGoal, parts: &[StepPart], unanswered: u64) -> Verdict {
    let count: u64 = parts.iter().map(|part| part.count).sum::<u64>() + unanswered;
    let above: u64 = parts.iter().map(|part| part.above).sum::<u64>() + unanswered;
    if count == 0 {
        return Verdict::Astride;
    }
    let allowed = 1.0 - goal.quantile;
    if allowed <= 0.0 {
        return if above == 0 {
            Verdict::Good
        } else {
            Verdict::TooHigh
        };
    }
    let worth = BLOCKS
        .iter()
        .map(|length| overdispersion(&blocks(parts, *length)))
        .fold(1.0, f64::max);
    let (count, above) = (count as f64 / worth, above as f64 / worth);
    let (low, high) = share_interval(above, count);
    if high < allowed {
        Verdict::Good
    } else if low > allowed {
        Verdict::TooHigh
    } else {
        Verdict::Astride
    }
}

/// Neighbouring parts together.
fn blocks(parts: &[StepPart], length: usize) -> Vec<StepPart> {
    parts
        .chunks(length)
        .map(|chunk| StepPart {
            count: chunk.iter().map(|part| part.count).sum(),
            above: chunk.iter().map(|part| part.above).sum(),
        })
        .collect()
}

/// The variance of the parts' shares above the limit, relative to that of independent samples; at
/// least 1.
fn overdispersion(parts: &[StepPart]) -> f64 {
    let filled: Vec<_> = parts.iter().filter(|part| part.count > 0).collect();
    let count: u64 = filled.iter().map(|part| part.count).sum();
    let above: u64 = filled.iter().map(|part| part.above).sum();
    if filled.len() < MIN_PARTS || above == 0 || above == count {
        return 1.0;
    }
    let share = above as f64 / count as f64;
    // Pearson's chi-squared over its degrees of freedom.
    let squares = filled.iter().map(|part| {
        let expected = share * part.count as f64;
        (part.above as f64 - expected).powi(2) / (expected * (1.0 - share))
    });
    (squares.sum::<f64>() / (filled.len() - 1) as f64).max(1.0)
}

/// Clopper and Pearson's interval of a share, also for non-integer counts.
pub(super) fn share_interval(above: f64, count: f64) -> (f64, f64) {
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(p, |beta| beta.inverse_cdf(p));
    let low = if above <= 0.0 {
        0.0
    } else {
        quantile(above, count - above + 1.0, tail)
    };
    let high = if above >= count {
        1.0
    } else {
        quantile(above + 1.0, count - above, 1.0 - tail)
    };
    (low, high)
}
