//! The search for the highest good rate.

use meshtax_model::LatencyGoal;
use meshtax_model::trial::GeneratorBound;

use super::rate::{Rate, Verdict};
use super::step::{Limit, RateStep, StepResult};

/// The growth factor of the rate while there is no upper end.
const GROWTH: f64 = 2.0;

/// Halvings below the first rate before the search gives up.
const MAX_SHRINKS: i32 = 10;

/// Samples above the percentile in a step that searches for the bracket, and in one that narrows it.
const ABOVE_WHEN_GROWING: f64 = 10.0;
const ABOVE_WHEN_NARROWING: f64 = 30.0;

/// Maximum number of times that a step's length is doubled for a rate that is offered again.
const MAX_DOUBLINGS: u32 = 4;

/// Steps at an inconclusive rate before other rates are tried, which may make it irrelevant.
const FIRST_LOOKS: u32 = 2;

/// Consecutive steps in which the generator was the limit: a single one may be noise.
const BOUND_STEPS: u32 = 2;

/// Minimum number of steps at either end of the result.
const CONFIRMED: u32 = 3;

/// The settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The objective.
    pub goal: LatencyGoal,
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
    pub fn new(goal: LatencyGoal) -> Self {
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

/// The result: the knee is between two rates, in requests per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The highest rate found good; 0 if none was.
    pub low_per_s: f64,
    /// The lowest found too high; `None` if none was.
    pub high_per_s: Option<f64>,
    /// What limits the rate.
    pub limited_by: Limit,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    /// Ascending.
    rates: Vec<Rate>,
    steps: u32,
    /// Consecutive steps in which the generator was the limit, and why it was in the last.
    bound_steps: u32,
    bound: Option<GeneratorBound>,
}

/// The combined result of the rates.
#[derive(Clone, Debug, PartialEq)]
struct Bracket {
    /// Index of the highest good rate below `high`.
    low: Option<usize>,
    /// Index of the lowest rate that is too high.
    high: Option<usize>,
}

impl Search {
    /// A search without observations.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            rates: Vec::new(),
            steps: 0,
            bound_steps: 0,
            bound: None,
        }
    }

    /// The next step to offer; `None` when the search is finished.
    #[must_use]
    pub fn next(&self) -> Option<RateStep> {
        if self.bound().is_some() || self.steps >= self.settings.max_steps {
            return None;
        }
        let rate_per_s = self.next_rate()?;
        Some(RateStep {
            rate_per_s,
            length_ns: self.length_ns(rate_per_s),
        })
    }

    /// Records the result of the step that [`Self::next`] returned.
    pub fn observe(&mut self, step: RateStep, result: &StepResult) {
        self.steps += 1;
        if let Some(reason) = &result.generator_bound {
            // It provides no information about the system.
            self.bound_steps += 1;
            self.bound = Some(reason.clone());
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

    /// The verdict on a rate that was offered.
    #[must_use]
    pub fn verdict(&self, rate_per_s: f64) -> Option<Verdict> {
        let rate = self.rates.iter().find(|rate| rate.per_s == rate_per_s)?;
        Some(rate.verdict(self.settings.goal))
    }

    /// The result, once [`Self::next`] has no further step.
    #[must_use]
    pub fn done(&self) -> Option<Knee> {
        if self.next().is_some() {
            return None;
        }
        let Bracket { low, high } = self.bracket();
        let at = |index: Option<usize>| index.map(|index| &self.rates[index]);
        let limited_by = match (at(high), self.bound()) {
            (_, Some(reason)) => Limit::Generator(reason.clone()),
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
    fn bound(&self) -> Option<&GeneratorBound> {
        let bound = self.bound.as_ref();
        bound.filter(|_| self.bound_steps >= BOUND_STEPS)
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
        // The first one with fewer steps.
        let again = |times: u32| astride.iter().find(|r| r.steps < times).map(|r| r.per_s);
        let next = again(FIRST_LOOKS).or_else(|| match (low, high) {
            (_, None) => self.higher(last),
            (None, Some(_)) => self.lower(first),
            (Some(low), Some(high)) => self.narrower(low, high, astride),
        });
        // Rates outside the range that matters are not offered again.
        next.or_else(|| again(self.settings.repeats))
            .or_else(|| self.confirm(low, high))
    }

    /// The middle of the widest relevant gap, if it is too wide.
    fn narrower(&self, low: usize, high: usize, astride: &[Rate]) -> Option<f64> {
        let (low_per_s, high_per_s) = (self.rates[low].per_s, self.rates[high].per_s);
        // Gaps between the ends and the inconclusive rates can be narrowed; those between inconclusive rates cannot.
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

    /// The next rate down, if it is still plausible.
    fn lower(&self, first: &Rate) -> Option<f64> {
        let least_per_s = self.settings.start_per_s * GROWTH.powi(-MAX_SHRINKS);
        (first.per_s > least_per_s).then(|| first.per_s / GROWTH)
    }

    /// An end of the bracket with too few steps.
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
        // Each repetition of an inconclusive rate takes twice as long: latencies that occur in
        // bursts need longer steps.
        let before = self.rates.iter().find(|rate| rate.per_s == rate_per_s);
        let doublings = before.map_or(0, |rate| rate.steps.min(MAX_DOUBLINGS));
        length_ns.max(self.settings.min_length_ns) << doublings
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::trial::GeneratorLimit;
    use proptest::prelude::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    use super::super::rate::share_interval;
    use super::super::step::StepPart;
    use super::*;

    fn busy() -> GeneratorBound {
        GeneratorBound {
            worker: None,
            limit: GeneratorLimit::Busy {
                busy_share: 0.99,
                max_share: 0.9,
                closed_loop: false,
            },
        }
    }

    fn goal(text: &str) -> LatencyGoal {
        meshtax_spec::latency_goal(text).unwrap()
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

        fn knee_per_s(&self, goal: LatencyGoal) -> f64 {
            self.per_s + (1.0 - goal.quantile).ln() / (goal.limit_ns as f64 / 1e9)
        }

        /// Offers a step, after a warm-up of a fifth of its length.
        fn offer(&mut self, goal: LatencyGoal, step: RateStep) -> StepResult {
            const PARTS: usize = 10;
            let length = step.length_ns as f64 / 1e9;
            let limit = goal.limit_ns as f64 / 1e9;
            let mut result = StepResult {
                parts: vec![StepPart::default(); PARTS],
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
    fn interval_contains_the_knee() {
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
            // For any capacity: close to the knee.
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
            parts: vec![StepPart {
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
    fn search_reports_why_it_ended() {
        let goal = goal("p99 < 5ms");
        let good = |offered: u64| StepResult {
            offered,
            achieved: 1.0,
            parts: vec![StepPart {
                count: offered,
                above: 0,
            }],
            ..StepResult::default()
        };
        // No rate is too high.
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
        // The generator reaches its limit at 4,000.
        let mut search = Search::new(settings);
        while let Some(step) = search.next() {
            let generator_bound = (step.rate_per_s > 3000.0).then(busy);
            let result = StepResult {
                generator_bound,
                ..good(5000)
            };
            search.observe(step, &result);
        }
        let knee = search.done().unwrap();
        assert_eq!(
            (knee.low_per_s, knee.limited_by),
            (2000.0, Limit::Generator(busy()))
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
    fn single_bad_step_does_not_reject_a_rate() {
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
                    parts: vec![StepPart {
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
    fn share_interval_matches_clopper_pearson() {
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
        fn search_terminates_with_ordered_bounds(
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
                    parts: vec![StepPart { count: count / 5, above: above.min(count) / 5 }; 5],
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
