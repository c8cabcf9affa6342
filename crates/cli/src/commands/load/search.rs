//! Loads at several levels, one after the other: rates, numbers of connections, and the search for the knee.

use meshtax_load::{LoadModel, LoadSpec};
use meshtax_model::LatencyGoal;
use meshtax_model::experiment::Arrivals;
use meshtax_model::load::{
    FinishedLoad, KneeFinding, KneeLimit, LevelsFinding, LoadLevels, RateVerdict, SaturationVerdict,
};
use meshtax_report::load as report;
use meshtax_stats::knee::{Knee, Limit, Search, Settings, StepResult, Verdict};
use meshtax_stats::saturation::{Course, Level, course};

use super::failure::failure;
use super::offer::offer;
use crate::args::LoadArgs;
use crate::exit::{Failure, NOTHING_MEASURED, Outcome, SUCCESS};
use crate::interrupt::Interrupt;
use crate::terminal::{print, say};

/// Intervals of a level: they show how strongly neighbouring latencies are correlated.
const INTERVALS: u64 = 10;

/// The shortest interval of a load.
const MIN_INTERVAL_NS: u64 = 100_000_000;

/// Which levels to measure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan<'a> {
    Knee(LatencyGoal),
    Rates(&'a [f64]),
    Connections(&'a [u32]),
}

impl<'a> Plan<'a> {
    /// `None`: one load alone.
    pub(super) fn of(args: &'a LoadArgs) -> Option<Self> {
        let search = &args.search;
        match (search.find_knee, &*search.sweep, &*search.sweep_connections) {
            (Some(goal), ..) => Some(Self::Knee(goal)),
            (None, [], []) => None,
            (None, [], connections) => Some(Self::Connections(connections)),
            (None, rates, _) => Some(Self::Rates(rates)),
        }
    }
}

/// Measures all levels and prints them with what they show together.
pub(super) fn run(
    args: &LoadArgs,
    base: LoadSpec,
    plan: Plan<'_>,
    interrupt: &Interrupt,
) -> Outcome {
    let mut runner = LevelRunner {
        args,
        base,
        interrupt,
        levels: Vec::new(),
    };
    let finding = match plan {
        Plan::Knee(goal) => runner.knee(goal)?,
        Plan::Rates(rates) => runner.rates(rates)?,
        Plan::Connections(connections) => runner.connections(connections)?,
    };
    let levels = LoadLevels {
        url: args.url.clone(),
        levels: runner.levels,
        finding,
    };
    print(&if args.output.json {
        report::levels_json(&levels)
    } else {
        report::levels_terminal(&levels)
    });
    let mut results = levels.levels.iter().map(|level| &level.result);
    let nothing = results.all(|result| result.completed == 0);
    let code = if nothing { NOTHING_MEASURED } else { SUCCESS };
    Ok(interrupt.exit_code().unwrap_or(code))
}

/// Offers loads, and keeps their results.
struct LevelRunner<'a> {
    args: &'a LoadArgs,
    base: LoadSpec,
    interrupt: &'a Interrupt,
    levels: Vec<FinishedLoad>,
}

impl LevelRunner<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupt.exit_code().is_some()
    }

    fn say(&self, text: &str) {
        if !self.args.output.no_tui {
            say(text);
        }
    }

    /// The base with a rate.
    fn at_rate(&self, rate_per_s: f64, window_ns: u64) -> LoadSpec {
        let arrivals = self.args.amount.arrivals.unwrap_or(Arrivals::Poisson);
        let mut spec = self.base.clone();
        spec.model = LoadModel::open(rate_per_s, arrivals);
        spec.window_ns = window_ns;
        // The queue must have reached the level of the new rate before the window begins.
        spec.warmup_ns = self
            .args
            .amount
            .warmup
            .unwrap_or((window_ns / 5).clamp(200_000_000, 5_000_000_000));
        spec
    }

    fn offer(&mut self, mut spec: LoadSpec) -> Result<(), Failure> {
        spec.interval_ns = Some((spec.window_ns / INTERVALS).max(MIN_INTERVAL_NS));
        // Each level has its own arrivals, and a seed still gives the same search.
        spec.seed = spec.seed.wrapping_add(self.levels.len() as u64);
        let args = self.args;
        let level = offer(&args.url, &spec, &args.fleet, self.interrupt, false)?;
        self.levels.push(level);
        Ok(())
    }

    fn rates(&mut self, rates: &[f64]) -> Result<LevelsFinding, Failure> {
        let window_ns = self.base.window_ns;
        let all = rates.iter().map(|rate| self.at_rate(*rate, window_ns));
        self.offer_all(all.collect())?;
        let kept = self.levels.iter().filter(|level| level.kept_up());
        let rates = kept.filter_map(|level| level.settings.model.constant_rate_per_s());
        Ok(LevelsFinding::Rates {
            kept_up_to_per_s: rates.reduce(f64::max),
        })
    }

    fn connections(&mut self, connections: &[u32]) -> Result<LevelsFinding, Failure> {
        let level = |count: &u32| LoadSpec {
            connections: *count,
            ..self.base.clone()
        };
        self.offer_all(connections.iter().map(level).collect())?;
        let levels: Vec<_> = self
            .levels
            .iter()
            .map(|level| Level {
                connections: level.settings.connections,
                per_s: level.result.achieved_per_s(),
                generator_bound: level.result.audit.generator_bound.is_some(),
            })
            .collect();
        let (course, best) = course(&levels);
        let (verdict, from_connections) = match course {
            Course::TooFew => (SaturationVerdict::TooFewLevels, None),
            Course::Rising => (SaturationVerdict::Rising, None),
            Course::Saturated { connections, .. } => {
                (SaturationVerdict::Saturated, Some(connections))
            }
            Course::GeneratorBound { connections } => {
                (SaturationVerdict::GeneratorBound, Some(connections))
            }
        };
        Ok(LevelsFinding::Connections {
            verdict,
            from_connections,
            peak_per_s: best.map(|best| best.per_s),
            peak_connections: best.map(|best| best.connections),
        })
    }

    /// Offers all of these, unless one of them is invalid.
    fn offer_all(&mut self, all: Vec<LoadSpec>) -> Result<(), Failure> {
        for spec in &all {
            spec.validate().map_err(failure)?;
        }
        for spec in all {
            if self.is_interrupted() {
                break;
            }
            self.offer(spec)?;
            self.say_last(None);
        }
        Ok(())
    }

    fn knee(&mut self, goal: LatencyGoal) -> Result<LevelsFinding, Failure> {
        let settings = self.search_settings(goal);
        let first = self.at_rate(settings.start_per_s, settings.min_length_ns);
        first.validate().map_err(failure)?;
        let mut search = Search::new(settings);
        let mut has_failed = false;
        while let Some(step) = search.next().filter(|_| !self.is_interrupted()) {
            let spec = self.at_rate(step.rate_per_s, step.length_ns);
            let is_first = self.levels.is_empty();
            let observed = match self.offer(spec) {
                Ok(()) => self
                    .levels
                    .last()
                    .map_or_else(StepResult::default, |level| {
                        StepResult::of(goal, &level.result)
                    }),
                // An overloaded server may refuse connections: that decides on the rate, too.
                Err(failure) if !is_first && !has_failed => {
                    self.say(&failure.to_string());
                    has_failed = true;
                    StepResult::default()
                }
                Err(failure) => return Err(failure),
            };
            if self.is_interrupted() {
                // The step was cut short.
                break;
            }
            search.observe(step, &observed);
            self.say_last(search.verdict(step.rate_per_s).map(rate_verdict));
        }
        let rates = self.levels.iter();
        let rates = rates.filter_map(|level| level.settings.model.constant_rate_per_s());
        let verdicts = rates.filter_map(|rate| Some((rate, rate_verdict(search.verdict(rate)?))));
        let verdicts = verdicts.collect();
        let found = search.done();
        Ok(LevelsFinding::Knee(finding(
            goal,
            settings.precision,
            found.as_ref(),
            verdicts,
        )))
    }

    fn search_settings(&self, goal: LatencyGoal) -> Settings {
        let amount = &self.args.amount;
        let defaults = Settings::new(goal);
        Settings {
            start_per_s: amount.rate.unwrap_or(defaults.start_per_s),
            precision: self.args.search.precision.unwrap_or(defaults.precision),
            min_length_ns: amount.duration.unwrap_or(defaults.min_length_ns),
            ..defaults
        }
    }

    /// Prints how the last level went.
    fn say_last(&self, verdict: Option<RateVerdict>) {
        if let Some(level) = self.levels.last() {
            self.say(&report::level_progress(level, verdict));
        }
    }
}

fn rate_verdict(verdict: Verdict) -> RateVerdict {
    match verdict {
        Verdict::Good => RateVerdict::Met,
        Verdict::TooHigh => RateVerdict::Missed,
        Verdict::Astride => RateVerdict::Inconclusive,
    }
}

fn finding(
    goal: LatencyGoal,
    precision: f64,
    knee: Option<&Knee>,
    verdicts: Vec<(f64, RateVerdict)>,
) -> KneeFinding {
    let limit = knee.map(|knee| &knee.limited_by);
    KneeFinding {
        goal: goal.to_string(),
        quantile: goal.quantile,
        limit_ns: goal.limit_ns,
        precision,
        low_per_s: knee.map(|knee| knee.low_per_s),
        high_per_s: knee.and_then(|knee| knee.high_per_s),
        limited_by: limit.map(|limit| match limit {
            Limit::Latency => KneeLimit::Latency,
            Limit::Throughput => KneeLimit::Throughput,
            Limit::Errors => KneeLimit::Errors,
            Limit::Generator(_) => KneeLimit::Generator,
            Limit::MaxRate => KneeLimit::MaxRate,
            Limit::Steps => KneeLimit::Steps,
        }),
        reason: match limit {
            Some(Limit::Generator(reason)) => Some(reason.clone()),
            _ => None,
        },
        verdicts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshtax_model::trial::{GeneratorBound, GeneratorLimit};

    #[test]
    fn finding_has_the_limit_and_the_generators_reason() {
        let goal: LatencyGoal = meshtax_spec::latency_goal("p99 < 5ms").unwrap();
        let bound = GeneratorBound {
            worker: None,
            limit: GeneratorLimit::Busy {
                busy_share: 0.99,
                max_share: 0.9,
                closed_loop: false,
            },
        };
        let knee = Knee {
            low_per_s: 9060.0,
            high_per_s: None,
            limited_by: Limit::Generator(bound.clone()),
        };
        let found = finding(goal, 0.05, Some(&knee), Vec::new());
        assert_eq!(
            (found.goal.as_str(), found.limit_ns),
            ("p99 < 5ms", 5_000_000)
        );
        assert_eq!(found.low_per_s, Some(9060.0));
        assert_eq!(found.limited_by, Some(KneeLimit::Generator));
        assert_eq!(found.reason, Some(bound));
        let none = finding(goal, 0.05, None, Vec::new());
        assert_eq!((none.low_per_s, none.limited_by), (None, None));
    }
}
