//! The knee: the highest rate at which a percentile of latency keeps below a limit.
//!
//! A state machine without clock or I/O: [`Search::next`] says what to offer, [`Search::observe`]
//! hears what came of it, [`Search::done`] has the answer. The rate grows by a factor until it is
//! too high, then the bracket is halved (on a logarithmic scale) until it is narrow.
//!
//! # How noise is kept from deciding
//!
//! A step's percentile is an estimate. Whether it is below the limit is asked of the interval of
//! its order statistics: as many samples as exceed the limit, against how many would if the limit
//! were the percentile (binomial, Clopper and Pearson 1934). Latencies that follow each other are
//! alike, so that they are worth fewer than they are: the counts are divided by how much more
//! they vary between the parts of a step than independent ones would. A rate whose interval lies
//! astride the limit is offered again, and all its steps are judged together. One that is astride
//! still after several belongs to the answer's interval, whose ends are rates that were offered
//! three times at least, the lower found good and the upper too high.
//!
//! How often the interval holds the true knee: `the_knee_is_within_the_interval` in the tests,
//! with a simulated queue whose knee is known.

use std::fmt;
use std::str::FromStr;

use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadResult;
use statrs::distribution::{Beta, ContinuousCDF};

/// Of the interval that decides on a rate. The search asks several times, and each may err.
const CONFIDENCE: f64 = 0.99;

/// Below this share of the offered rate, the system does not keep up.
const MIN_ACHIEVED: f64 = 0.98;

/// Beyond this share of requests that failed, it is not the load that was asked for.
const MAX_ERRORS: f64 = 0.01;

/// By how much the rate grows while there is no upper end.
const GROWTH: f64 = 2.0;

/// Halvings below the first rate before the search gives up to find a good one.
const MAX_SHRINKS: i32 = 10;

/// Samples above the percentile in a step that looks for the bracket, and in one that narrows it.
const ABOVE_WHEN_GROWING: f64 = 10.0;
const ABOVE_WHEN_NARROWING: f64 = 30.0;

/// Of a step's length, for a rate that is offered again.
const MAX_DOUBLINGS: u32 = 4;

/// Parts that are taken together: latencies may be alike for longer than a part.
const BLOCKS: [usize; 3] = [1, 2, 5];

/// Steps at a rate that is astride before others are looked at, which may make it unimportant.
const FIRST_LOOKS: u32 = 2;

/// Steps in a row in which the generator was the limit: one alone may be the machine's mood.
const BOUND_STEPS: u32 = 2;

/// Steps that either end of the answer stands on.
const CONFIRMED: u32 = 3;

/// The least parts from which one can tell how alike neighbouring latencies are.
const MIN_PARTS: usize = 5;

/// What is to hold: so large a share of the answers came within a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Above 0, at most 1 (`p99` is 0.99, `max` is 1).
    pub quantile: f64,
    /// The time, in nanoseconds.
    pub limit_ns: u64,
}

impl FromStr for Goal {
    type Err = String;

    /// `p99 < 5ms`, `p99.9<=800us`, `max < 1s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("`{text}` {what}: write it as in `p99 < 5ms`");
        let (left, right) = text.split_once('<').ok_or_else(|| wrong("has no `<`"))?;
        let right = right.strip_prefix('=').unwrap_or(right);
        let left = left.trim().to_ascii_lowercase();
        let percent = match left.as_str() {
            "max" => 100.0,
            "mean" | "avg" | "average" => return Err(wrong("asks for a mean, not a percentile")),
            other => other
                .strip_prefix('p')
                .and_then(|digits| digits.parse::<f64>().ok())
                .ok_or_else(|| wrong("names no percentile"))?,
        };
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(wrong("is no percentile above 0 and up to 100"));
        }
        let limit_ns =
            duration_ns(right.trim()).ok_or_else(|| wrong("names no time above zero"))?;
        Ok(Self {
            quantile: percent / 100.0,
            limit_ns,
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.quantile >= 1.0 {
            f.write_str("max")?;
        } else {
            // Rid of what the division by a hundred left.
            write!(f, "p{}", (self.quantile * 1e8).round() / 1e6)?;
        }
        let (value, unit) = match self.limit_ns {
            1_000_000_000.. => (1e9, "s"),
            1_000_000.. => (1e6, "ms"),
            1000.. => (1e3, "us"),
            _ => (1.0, "ns"),
        };
        write!(f, " < {}{unit}", self.limit_ns as f64 / value)
    }
}

fn duration_ns(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let factor = match &text[digits.len()..] {
        "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" | "μs" => 1e3,
        "ns" => 1.0,
        _ => return None,
    };
    let value: f64 = digits.trim().parse().ok()?;
    let ns = (value * factor).round();
    (ns >= 1.0 && ns <= LatencyHistogram::MAX_NS as f64).then_some(ns as u64)
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What is to hold.
    pub goal: Goal,
    /// The first rate, in requests per second.
    pub start_per_s: f64,
    /// No higher rate is offered.
    pub max_per_s: f64,
    /// The bracket is narrow enough when its ends differ by this share (0.05).
    pub precision: f64,
    /// No step is shorter, in nanoseconds.
    pub min_length_ns: u64,
    /// Steps at one rate, at most.
    pub repeats: u32,
    /// Steps in all, at most.
    pub max_steps: u32,
}

impl Settings {
    /// From 1,000 requests per second, to within 5 %; fields are public.
    #[must_use]
    pub fn new(goal: Goal) -> Self {
        Self {
            goal,
            start_per_s: 1000.0,
            max_per_s: 10_000_000.0,
            precision: 0.05,
            min_length_ns: 1_000_000_000,
            repeats: 5,
            max_steps: 60,
        }
    }
}

/// What to offer next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Requests per second, in an open loop.
    pub rate_per_s: f64,
    /// How long to measure, in nanoseconds; a warm-up comes before it.
    pub length_ns: u64,
}

/// Samples of a part of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// How many.
    pub count: u64,
    /// How many of them were above the limit.
    pub above: u64,
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// Requests offered.
    pub offered: u64,
    /// Answers in the window, per request offered in it (0 to 1 or a little more).
    pub achieved: f64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were not answered in the end.
    pub unanswered: u64,
    /// The answered ones, in equal parts of the step's time.
    pub parts: Vec<Part>,
    /// The generator was the limit, and why.
    pub generator_bound: Option<String>,
}

impl StepResult {
    /// What a load generator measured. It should report intervals: without them neighbouring
    /// latencies are taken to be independent of each other.
    #[must_use]
    pub fn of(goal: Goal, load: &LoadResult) -> Self {
        let part = |histogram: &LatencyHistogram| Part {
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

    /// What fails it, whatever its latencies are.
    fn failure(&self) -> Option<Limit> {
        let share = |count: u64| count as f64 / self.offered.max(1) as f64;
        if self.offered == 0 || share(self.errors) > MAX_ERRORS {
            return Some(Limit::Errors);
        }
        (self.achieved < MIN_ACHIEVED).then_some(Limit::Throughput)
    }
}

/// Why no higher rate is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The percentile exceeds its limit there.
    Latency,
    /// Fewer than 98 % of what is offered are answered there.
    Throughput,
    /// More than 1 % of requests fail there.
    Errors,
    /// The generator could offer no more, for this reason: the knee is at `low` or above.
    Generator(String),
    /// The highest rate that may be offered is good.
    MaxRate,
    /// The steps were used up before the bracket was narrow.
    Steps,
}

/// The answer: the knee lies between two rates, in requests per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The highest rate found good; 0 if none was.
    pub low_per_s: f64,
    /// The lowest found too high; `None` if none was.
    pub high_per_s: Option<f64>,
    /// What keeps it from being higher.
    pub limited_by: Limit,
}

/// What is known of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The percentile is below the limit.
    Good,
    /// It is above, or the load was not carried.
    TooHigh,
    /// Neither can be said.
    Astride,
}

/// A rate and all that came of it.
#[derive(Clone, Debug)]
struct Rate {
    per_s: f64,
    steps: u32,
    /// Steps that failed whatever their latencies were.
    failures: Vec<Limit>,
    parts: Vec<Part>,
    unanswered: u64,
}

impl Rate {
    fn new(per_s: f64) -> Self {
        Self {
            per_s,
            steps: 0,
            failures: Vec::new(),
            parts: Vec::new(),
            unanswered: 0,
        }
    }

    fn add(&mut self, result: &StepResult) {
        self.steps += 1;
        match result.failure() {
            Some(failure) => self.failures.push(failure),
            None => {
                self.parts.extend_from_slice(&result.parts);
                self.unanswered += result.unanswered;
            }
        }
    }

    fn verdict(&self, goal: Goal) -> Verdict {
        let failed = self.failures.len() as u32;
        if 2 * failed > self.steps {
            return Verdict::TooHigh;
        }
        if 2 * failed == self.steps {
            return Verdict::Astride;
        }
        judge(goal, &self.parts, self.unanswered)
    }

    fn limit(&self) -> Limit {
        match self.failures.last() {
            Some(failure) if 2 * self.failures.len() as u32 > self.steps => failure.clone(),
            _ => Limit::Latency,
        }
    }
}

/// Whether the percentile is below the limit. What was never answered was above it.
fn judge(goal: Goal, parts: &[Part], unanswered: u64) -> Verdict {
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
fn blocks(parts: &[Part], length: usize) -> Vec<Part> {
    parts
        .chunks(length)
        .map(|chunk| Part {
            count: chunk.iter().map(|part| part.count).sum(),
            above: chunk.iter().map(|part| part.above).sum(),
        })
        .collect()
}

/// How much more the parts' shares above the limit vary than those of independent samples; at
/// least 1.
fn overdispersion(parts: &[Part]) -> f64 {
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

/// Clopper and Pearson's interval of a share, also for counts that are no whole numbers.
fn share_interval(above: f64, count: f64) -> (f64, f64) {
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

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    /// Ascending.
    rates: Vec<Rate>,
    steps: u32,
    /// Steps in a row in which the generator was the limit, and why it was in the last.
    bound_steps: u32,
    bound: String,
}

/// What the rates say together.
#[derive(Clone, Debug, PartialEq)]
struct Bracket {
    /// Index of the highest good rate below `high`.
    low: Option<usize>,
    /// Index of the lowest rate that is too high.
    high: Option<usize>,
}

impl Search {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            rates: Vec::new(),
            steps: 0,
            bound_steps: 0,
            bound: String::new(),
        }
    }

    /// What to offer next; `None` when there is an answer.
    #[must_use]
    pub fn next(&self) -> Option<Step> {
        if self.bound().is_some() || self.steps >= self.settings.max_steps {
            return None;
        }
        let rate_per_s = self.next_rate()?;
        Some(Step {
            rate_per_s,
            length_ns: self.length_ns(rate_per_s),
        })
    }

    /// Takes note of what came of the step that [`Self::next`] asked for.
    pub fn observe(&mut self, step: Step, result: &StepResult) {
        self.steps += 1;
        if let Some(reason) = &result.generator_bound {
            // It says nothing of the system.
            self.bound_steps += 1;
            self.bound.clone_from(reason);
            return;
        }
        self.bound_steps = 0;
        let at = self
            .rates
            .binary_search_by(|rate| rate.per_s.total_cmp(&step.rate_per_s));
        let at = at.unwrap_or_else(|at| {
            self.rates.insert(at, Rate::new(step.rate_per_s));
            at
        });
        self.rates[at].add(result);
    }

    /// What is known of a rate that was offered.
    #[must_use]
    pub fn verdict(&self, rate_per_s: f64) -> Option<Verdict> {
        let rate = self.rates.iter().find(|rate| rate.per_s == rate_per_s)?;
        Some(rate.verdict(self.settings.goal))
    }

    /// The answer, when [`Self::next`] has nothing to offer any more.
    #[must_use]
    pub fn done(&self) -> Option<Knee> {
        if self.next().is_some() {
            return None;
        }
        let Bracket { low, high } = self.bracket();
        let at = |index: Option<usize>| index.map(|index| &self.rates[index]);
        let limited_by = match (at(high), self.bound()) {
            (_, Some(reason)) => Limit::Generator(reason.to_owned()),
            (_, None) if self.next_rate().is_some() => Limit::Steps,
            (Some(rate), None) => rate.limit(),
            (None, None) => Limit::MaxRate,
        };
        Some(Knee {
            low_per_s: at(low).map_or(0.0, |rate| rate.per_s),
            high_per_s: at(high).map(|rate| rate.per_s),
            limited_by,
        })
    }

    /// Why the generator was the limit, if that has ended the search.
    fn bound(&self) -> Option<&str> {
        (self.bound_steps >= BOUND_STEPS).then_some(self.bound.as_str())
    }

    fn bracket(&self) -> Bracket {
        let is = |rate: &Rate, verdict| rate.verdict(self.settings.goal) == verdict;
        let high = self.rates.iter().position(|r| is(r, Verdict::TooHigh));
        let below = &self.rates[..high.unwrap_or(self.rates.len())];
        let low = below.iter().rposition(|r| is(r, Verdict::Good));
        Bracket { low, high }
    }

    fn next_rate(&self) -> Option<f64> {
        let Some((first, last)) = self.rates.first().zip(self.rates.last()) else {
            return Some(self.settings.start_per_s.min(self.settings.max_per_s));
        };
        let Bracket { low, high } = self.bracket();
        let from = low.map_or(0, |low| low + 1);
        let astride = &self.rates[from..high.unwrap_or(self.rates.len())];
        // The first one that was offered fewer times than that.
        let again = |times: u32| astride.iter().find(|r| r.steps < times).map(|r| r.per_s);
        let next = again(FIRST_LOOKS).or_else(|| match (low, high) {
            (_, None) => self.higher(last),
            (None, Some(_)) => self.lower(first),
            (Some(low), Some(high)) => self.narrower(low, high, astride),
        });
        // What lies outside the rates that matter is never looked at again.
        next.or_else(|| again(self.settings.repeats))
            .or_else(|| self.confirm(low, high))
    }

    /// The middle of the widest gap that matters, if it is too wide.
    fn narrower(&self, low: usize, high: usize, astride: &[Rate]) -> Option<f64> {
        let (low_per_s, high_per_s) = (self.rates[low].per_s, self.rates[high].per_s);
        // Between the ends and what is astride there may be more to know; within that there is not.
        let (first, last) = match (astride.first(), astride.last()) {
            (Some(first), Some(last)) => (first.per_s, last.per_s),
            _ => (high_per_s, high_per_s),
        };
        let gaps = [(low_per_s, first), (last, high_per_s)];
        let widest = gaps
            .into_iter()
            .max_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)))?;
        let is_wide = widest.1 / widest.0 > 1.0 + self.settings.precision;
        is_wide.then(|| (widest.0 * widest.1).sqrt())
    }

    /// The next rate up, if there may be one.
    fn higher(&self, last: &Rate) -> Option<f64> {
        let max_per_s = self.settings.max_per_s;
        (last.per_s < max_per_s).then(|| (last.per_s * GROWTH).min(max_per_s))
    }

    /// The next rate down, if that is worth while.
    fn lower(&self, first: &Rate) -> Option<f64> {
        let least_per_s = self.settings.start_per_s * GROWTH.powi(-MAX_SHRINKS);
        (first.per_s > least_per_s).then(|| first.per_s / GROWTH)
    }

    /// An end of the bracket that stands on too few steps.
    fn confirm(&self, low: Option<usize>, high: Option<usize>) -> Option<f64> {
        let ends = [low, high].into_iter().flatten();
        let weak = ends
            .map(|index| &self.rates[index])
            .find(|r| r.steps < CONFIRMED);
        weak.map(|rate| rate.per_s)
    }

    fn length_ns(&self, rate_per_s: f64) -> u64 {
        let Bracket { low, high } = self.bracket();
        let narrowing = low.is_some() && high.is_some();
        let above = if narrowing {
            ABOVE_WHEN_NARROWING
        } else {
            ABOVE_WHEN_GROWING
        };
        let allowed = 1.0 - self.settings.goal.quantile;
        let samples = if allowed > 0.0 { above / allowed } else { 0.0 };
        let length_ns = (samples / rate_per_s * 1e9).round() as u64;
        // What could not be told is looked at twice as long each time: latencies that come in
        // bursts take many of them.
        let before = self.rates.iter().find(|rate| rate.per_s == rate_per_s);
        let doublings = before.map_or(0, |rate| rate.steps.min(MAX_DOUBLINGS));
        length_ns.max(self.settings.min_length_ns) << doublings
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::*;

    fn goal(text: &str) -> Goal {
        text.parse().unwrap()
    }

    /// A server with one queue and exponential service (M/M/1): its response time is exponential
    /// with rate (capacity - offered), so that its knee is known.
    struct Queue {
        random: Pcg64,
        per_s: f64,
    }

    impl Queue {
        fn exponential(&mut self, per_s: f64) -> f64 {
            let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            -(1.0 - uniform).ln() / per_s
        }

        fn knee_per_s(&self, goal: Goal) -> f64 {
            self.per_s + (1.0 - goal.quantile).ln() / (goal.limit_ns as f64 / 1e9)
        }

        /// Offers a step, after a warm-up of a fifth of its length.
        fn offer(&mut self, goal: Goal, step: Step) -> StepResult {
            const PARTS: usize = 10;
            let length = step.length_ns as f64 / 1e9;
            let limit = goal.limit_ns as f64 / 1e9;
            let mut result = StepResult {
                parts: vec![Part::default(); PARTS],
                ..StepResult::default()
            };
            let (mut at, mut free_at, mut completed) = (-length / 5.0, f64::NEG_INFINITY, 0_u64);
            loop {
                at += self.exponential(step.rate_per_s);
                if at >= length {
                    break;
                }
                free_at = at.max(free_at) + self.exponential(self.per_s);
                completed += u64::from((0.0..length).contains(&free_at));
                if at < 0.0 {
                    continue;
                }
                result.offered += 1;
                let part = &mut result.parts[(at / length * PARTS as f64) as usize];
                part.count += 1;
                part.above += u64::from(free_at - at > limit);
            }
            result.achieved = completed as f64 / result.offered.max(1) as f64;
            result
        }
    }

    fn find(settings: Settings, queue: &mut Queue) -> (Knee, u32) {
        let mut search = Search::new(settings);
        let mut steps = 0;
        while let Some(step) = search.next() {
            assert!(search.done().is_none());
            let result = queue.offer(settings.goal, step);
            search.observe(step, &result);
            steps += 1;
            assert!(steps <= settings.max_steps);
        }
        (search.done().unwrap(), steps)
    }

    #[test]
    fn goals_are_read_and_written() {
        for (text, quantile, limit_ns, written) in [
            ("p99 < 5ms", 0.99, 5_000_000, "p99 < 5ms"),
            ("P99.9<=800us", 0.999, 800_000, "p99.9 < 800us"),
            (" p50 < 1.5 ms ", 0.5, 1_500_000, "p50 < 1.5ms"),
            ("max<2s", 1.0, 2_000_000_000, "max < 2s"),
            ("p100 < 1µs", 1.0, 1000, "max < 1us"),
        ] {
            let read = goal(text);
            assert_eq!(
                (read.limit_ns, read.to_string().as_str()),
                (limit_ns, written)
            );
            assert!((read.quantile - quantile).abs() < 1e-12);
        }
        for text in [
            "p99",
            "p99 < 5",
            "mean < 5ms",
            "p0 < 1ms",
            "p101 < 1ms",
            "p99 < 0ms",
            "q < 1s",
        ] {
            let error = text.parse::<Goal>().unwrap_err();
            assert!(error.contains("write it as in `p99 < 5ms`"), "{error}");
        }
    }

    #[test]
    fn the_knee_is_within_the_interval() {
        const SEEDS: u64 = 120;
        let mut within = 0;
        let (mut steps, mut ratio) = (0, 0.0);
        for seed in 0..SEEDS {
            let goal = goal(["p99 < 5ms", "p99 < 20ms", "p90 < 2ms"][seed as usize % 3]);
            let mut queue = Queue {
                random: Pcg64::seed_from_u64(seed),
                per_s: 4000.0 + 125.0 * seed as f64,
            };
            let truth = queue.knee_per_s(goal);
            let settings = Settings::new(goal);
            let (knee, took) = find(settings, &mut queue);
            let high_per_s = knee.high_per_s.unwrap();
            within += u64::from((knee.low_per_s..=high_per_s).contains(&truth));
            steps += took;
            ratio += high_per_s / knee.low_per_s / SEEDS as f64;
            // Wherever it lies: not far off.
            let (low, high) = (knee.low_per_s / truth, high_per_s / truth);
            assert!(low > 0.85 && low < 1.05, "{knee:?} {truth}");
            assert!(high > 0.95 && high < 1.15, "{knee:?} {truth}");
        }
        assert!(within * 10 >= SEEDS * 9, "{within} of {SEEDS}");
        assert!(ratio < 1.12, "{ratio}");
        assert!(steps < 25 * SEEDS as u32, "{steps}");
    }

    #[test]
    fn steps_are_long_enough_for_their_percentile() {
        let mut search = Search::new(Settings {
            start_per_s: 500.0,
            ..Settings::new(goal("p99.9 < 1s"))
        });
        let first = search.next().unwrap();
        assert_eq!((first.rate_per_s, first.length_ns), (500.0, 20_000_000_000));
        let good = StepResult {
            offered: 10_000,
            achieved: 1.0,
            parts: vec![Part {
                count: 10_000,
                above: 0,
            }],
            ..StepResult::default()
        };
        search.observe(first, &good);
        let second = search.next().unwrap();
        assert_eq!(
            (second.rate_per_s, second.length_ns),
            (1000.0, 10_000_000_000)
        );
        let bad = StepResult {
            achieved: 0.5,
            ..good.clone()
        };
        search.observe(second, &bad);
        assert_eq!(search.verdict(1000.0), Some(Verdict::TooHigh));
        let third = search.next().unwrap();
        // Thirty above the percentile between the two.
        assert!((third.rate_per_s - 707.1).abs() < 0.1);
        assert!(third.length_ns.abs_diff(42_426_406_872) < 1000);
    }

    #[test]
    fn what_ends_a_search_is_told() {
        let goal = goal("p99 < 5ms");
        let good = |offered: u64| StepResult {
            offered,
            achieved: 1.0,
            parts: vec![Part {
                count: offered,
                above: 0,
            }],
            ..StepResult::default()
        };
        // Nothing is ever too high.
        let settings = Settings {
            max_per_s: 6000.0,
            ..Settings::new(goal)
        };
        let mut search = Search::new(settings);
        while let Some(step) = search.next() {
            search.observe(step, &good(5000));
        }
        let knee = search.done().unwrap();
        assert_eq!(
            (knee.low_per_s, knee.high_per_s, knee.limited_by),
            (6000.0, None, Limit::MaxRate)
        );
        // The generator gives out at 4,000.
        let mut search = Search::new(settings);
        while let Some(step) = search.next() {
            let generator_bound = (step.rate_per_s > 3000.0).then(|| "busy".to_owned());
            let result = StepResult {
                generator_bound,
                ..good(5000)
            };
            search.observe(step, &result);
        }
        let knee = search.done().unwrap();
        assert_eq!(
            (knee.low_per_s, knee.limited_by),
            (2000.0, Limit::Generator("busy".into()))
        );
        // Everything fails.
        let mut search = Search::new(settings);
        while let Some(step) = search.next() {
            search.observe(
                step,
                &StepResult {
                    errors: 500,
                    ..good(5000)
                },
            );
        }
        let knee = search.done().unwrap();
        assert_eq!((knee.low_per_s, knee.limited_by), (0.0, Limit::Errors));
        assert!(knee.high_per_s.unwrap() < 1.0);
    }

    #[test]
    fn one_bad_step_does_not_decide() {
        // Good up to 5,000; the first step at 2,000 fell into a pause of the machine.
        let settings = Settings::new(goal("p99 < 5ms"));
        let mut search = Search::new(settings);
        let mut hiccup = true;
        while let Some(step) = search.next() {
            let paused = step.rate_per_s == 2000.0 && std::mem::take(&mut hiccup);
            let achieved = if step.rate_per_s > 5000.0 || paused {
                0.9
            } else {
                1.0
            };
            search.observe(
                step,
                &StepResult {
                    offered: 5000,
                    achieved,
                    parts: vec![Part {
                        count: 5000,
                        above: 0,
                    }],
                    ..StepResult::default()
                },
            );
        }
        let knee = search.done().unwrap();
        assert!(knee.low_per_s > 4700.0, "{knee:?}");
        assert!(knee.high_per_s.unwrap() < 5300.0, "{knee:?}");
        assert_eq!(knee.limited_by, Limit::Throughput);
    }

    #[test]
    fn the_interval_of_a_share_is_clopper_and_pearsons() {
        // From tables: 5 of 100 at 99 %.
        let (low, high) = share_interval(5.0, 100.0);
        assert!(
            (low - 0.0109).abs() < 0.0005 && (high - 0.1355).abs() < 0.001,
            "{low} {high}"
        );
        assert_eq!(share_interval(0.0, 100.0).0, 0.0);
        assert_eq!(share_interval(100.0, 100.0).1, 1.0);
    }

    proptest! {
        #[test]
        fn it_always_ends_and_its_ends_are_in_order(
            start in 1.0_f64..1e5,
            answers in proptest::collection::vec((0_u64..2000, 0_u64..60, 0.9_f64..1.1, any::<bool>()), 70),
        ) {
            let mut search = Search::new(Settings {
                start_per_s: start,
                ..Settings::new(goal("p99 < 5ms"))
            });
            let mut answers = answers.into_iter();
            while let Some(step) = search.next() {
                prop_assert!(step.rate_per_s > 0.0 && step.rate_per_s.is_finite());
                prop_assert!(step.length_ns >= 1_000_000_000);
                let (count, above, achieved, fails) = answers.next().unwrap();
                search.observe(step, &StepResult {
                    offered: count,
                    achieved,
                    errors: if fails { above } else { 0 },
                    unanswered: above / 50,
                    parts: vec![Part { count: count / 5, above: above.min(count) / 5 }; 5],
                    generator_bound: None,
                });
            }
            let knee = search.done().unwrap();
            if let Some(high_per_s) = knee.high_per_s {
                prop_assert!(knee.low_per_s < high_per_s, "{knee:?}");
            }
        }
    }
}
