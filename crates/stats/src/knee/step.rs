//! A step of the search and its result.

use meshtax_model::LatencyGoal;
use meshtax_model::LatencyHistogram;
use meshtax_model::trial::{GeneratorBound, LoadResult};

/// Below this share of the offered rate, the system does not keep up.
const MIN_ACHIEVED: f64 = 0.98;

/// Above this share of failed requests, the load is not the requested one.
const MAX_ERRORS: f64 = 0.01;

/// A step to offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// Requests per second, in an open loop.
    pub rate_per_s: f64,
    /// The measured time, in nanoseconds; a warm-up precedes it.
    pub length_ns: u64,
}

/// Samples of a part of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPart {
    /// How many.
    pub count: u64,
    /// How many of them were above the limit.
    pub above: u64,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// Requests offered.
    pub offered: u64,
    /// Responses in the window, per request offered in it (0 to 1 or slightly more).
    pub achieved: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that never got a response.
    pub unanswered: u64,
    /// Requests with a response, in equal parts of the step's time.
    pub parts: Vec<StepPart>,
    /// `Some`: the generator was the limit.
    pub generator_bound: Option<GeneratorBound>,
}

impl StepResult {
    /// Converts a load generator's result. It should contain intervals: without them neighbouring
    /// latencies are assumed to be independent.
    #[must_use]
    pub fn of(goal: LatencyGoal, load: &LoadResult) -> Self {
        let part = |histogram: &LatencyHistogram| StepPart {
            count: histogram.count(),
            above: histogram.count_above(goal.limit_ns),
        };
        let parts = if load.intervals.is_empty() {
            vec![part(&load.response)]
        } else {
            let intervals = load.intervals.iter();
            intervals.map(|i| part(&i.response.expand())).collect()
        };
        Self {
            offered: load.offered,
            achieved: load.completed as f64 / load.offered.max(1) as f64,
            errors: load.errors.total(),
            unanswered: load.unanswered,
            parts,
            generator_bound: load.audit.generator_bound.clone(),
        }
    }

    /// Why it fails regardless of its latencies.
    pub(super) fn failure(&self) -> Option<Limit> {
        let share = |count: u64| count as f64 / self.offered.max(1) as f64;
        if self.offered == 0 || share(self.errors) > MAX_ERRORS {
            return Some(Limit::Errors);
        }
        (self.achieved < MIN_ACHIEVED).then_some(Limit::Throughput)
    }
}

/// Why no higher rate is the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// The percentile exceeds its limit there.
    Latency,
    /// Less than 98 % of the offered rate is served there.
    Throughput,
    /// More than 1 % of requests fail there.
    Errors,
    /// The generator could offer no more, for this reason: the knee is at `low` or above.
    Generator(GeneratorBound),
    /// The highest rate that may be offered is good.
    MaxRate,
    /// The steps were used up before the bracket was narrow.
    Steps,
}
