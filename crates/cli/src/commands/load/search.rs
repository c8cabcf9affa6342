//! Several loads after each other: rates, numbers of connections, and the knee.

use std::fmt::Write as _;

use meshtax_load::{LoadModel, LoadSpec, Rate};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;
use meshtax_stats::knee::{Goal, Knee, Limit, Search, Settings, Step, StepResult, Verdict};
use meshtax_stats::saturation::{Course, Level, course};
use serde_json::{Value, json};

use super::figures::{Finished, resolved};
use super::text::grouped;
use super::{json as documents, offer};
use crate::args::LoadArgs;
use crate::exit::{Failure, NOTHING_MEASURED, Outcome, SUCCESS};
use crate::interrupt::Interrupt;
use crate::terminal::{print, say};

/// Parts of a step, from which one can tell how alike neighbouring latencies are.
const PARTS: u64 = 10;

/// The shortest part that a load can be cut into.
const MIN_PART_NS: u64 = 100_000_000;

/// A rate is kept up with when so large a share of it is answered in the window.
const KEPT_UP: f64 = 0.98;

/// Which levels are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan<'a> {
    Knee(Goal),
    Rates(&'a [f64]),
    Connections(&'a [u32]),
}

impl<'a> Plan<'a> {
    /// `None`: one load is.
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

/// A load of the series, and what came of it.
struct Row {
    spec: LoadSpec,
    started_unix_ms: u64,
    result: LoadResult,
}

impl Row {
    /// Requests per second that were asked for; `None` in a closed loop.
    fn rate_per_s(&self) -> Option<f64> {
        match self.spec.model {
            LoadModel::Open {
                rate: Rate::Constant { per_s },
                ..
            } => Some(per_s),
            _ => None,
        }
    }

    fn kept_up(&self) -> bool {
        // A single answer that came after the window's end is no shortfall, however few there are.
        let missing = self.result.offered.saturating_sub(self.result.completed);
        missing <= 1 || self.result.completed as f64 >= KEPT_UP * self.result.offered as f64
    }
}

/// Offers loads, and keeps what came of them.
struct Series<'a> {
    args: &'a LoadArgs,
    base: LoadSpec,
    interrupt: &'a Interrupt,
    rows: Vec<Row>,
}

/// Offers all levels and prints what they say together.
pub(super) fn run(
    args: &LoadArgs,
    base: LoadSpec,
    plan: Plan<'_>,
    interrupt: &Interrupt,
) -> Outcome {
    let mut series = Series {
        args,
        base,
        interrupt,
        rows: Vec::new(),
    };
    let (text, findings) = match plan {
        Plan::Knee(goal) => series.knee(goal)?,
        Plan::Rates(rates) => series.rates(rates)?,
        Plan::Connections(connections) => series.connections(connections)?,
    };
    if args.output.json {
        print(&format!("{:#}\n", series.document(findings)));
    } else {
        print(&text);
    }
    let nothing = series.rows.iter().all(|row| row.result.completed == 0);
    let code = if nothing { NOTHING_MEASURED } else { SUCCESS };
    Ok(interrupt.exit_code().unwrap_or(code))
}

impl Series<'_> {
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
        // The queue of the level's own rate must be there before it is looked at.
        spec.warmup_ns = self
            .args
            .amount
            .warmup
            .unwrap_or((window_ns / 5).clamp(200_000_000, 5_000_000_000));
        spec
    }

    fn offer(&mut self, mut spec: LoadSpec) -> Result<&LoadResult, Failure> {
        spec.interval_ns = Some((spec.window_ns / PARTS).max(MIN_PART_NS));
        // Each step has arrivals of its own, and a given seed still gives the same search.
        spec.seed = spec.seed.wrapping_add(self.rows.len() as u64);
        let (started_unix_ms, result) = offer(&spec, &self.args.fleet, self.interrupt, false)?;
        self.rows.push(Row {
            spec,
            started_unix_ms,
            result,
        });
        Ok(&self.rows[self.rows.len() - 1].result)
    }

    fn rates(&mut self, rates: &[f64]) -> Result<(String, Value), Failure> {
        let all: Vec<_> = rates
            .iter()
            .map(|rate| self.at_rate(*rate, self.base.window_ns))
            .collect();
        self.levels(all)?;
        let kept = self.rows.iter().filter(|row| row.kept_up());
        let highest = kept.filter_map(Row::rate_per_s).reduce(f64::max);
        let said = match highest {
            Some(rate) => format!("{} was the highest rate that was kept up with", per_s(rate)),
            None => "none of these rates was kept up with".into(),
        };
        let text = format!("{}\n{said}\n", table(&self.rows, None));
        Ok((text, json!({"kind": "rates", "kept_up_to_per_s": highest})))
    }

    fn connections(&mut self, connections: &[u32]) -> Result<(String, Value), Failure> {
        let level = |count: &u32| LoadSpec {
            connections: *count,
            ..self.base.clone()
        };
        let all: Vec<_> = connections.iter().map(level).collect();
        self.levels(all)?;
        let levels: Vec<_> = self
            .rows
            .iter()
            .map(|row| Level {
                connections: row.spec.connections,
                per_s: row.result.achieved_per_s(),
                generator_bound: row.result.audit.generator_bound.is_some(),
            })
            .collect();
        let (course, best) = course(&levels);
        let text = format!("{}\n{}\n", table(&self.rows, None), in_words(course, best));
        Ok((text, saturation(course, best)))
    }

    /// All of these, unless one of them cannot be.
    fn levels(&mut self, all: Vec<LoadSpec>) -> Result<(), Failure> {
        for spec in &all {
            spec.validate().map_err(super::failure)?;
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

    fn knee(&mut self, goal: Goal) -> Result<(String, Value), Failure> {
        let defaults = Settings::new(goal);
        let settings = Settings {
            start_per_s: self.args.amount.rate.unwrap_or(defaults.start_per_s),
            precision: self.args.search.precision.unwrap_or(defaults.precision),
            min_length_ns: self.args.amount.duration.unwrap_or(defaults.min_length_ns),
            ..defaults
        };
        let first = self.at_rate(settings.start_per_s, settings.min_length_ns);
        first.validate().map_err(super::failure)?;
        let mut search = Search::new(settings);
        let mut lost = None;
        while let Some(step) = search.next().filter(|_| !self.is_interrupted()) {
            let observed = match self.step(goal, step) {
                Ok(observed) => observed,
                // Overloaded, it takes no connections any more: that is an answer, too.
                Err(failure) if !self.rows.is_empty() && lost.is_none() => {
                    self.say(&format!("{}: {}", per_s(step.rate_per_s), failure.message));
                    lost = Some(step.rate_per_s);
                    StepResult::default()
                }
                Err(failure) => return Err(failure),
            };
            if self.is_interrupted() {
                // What was measured of this step is not what was asked for.
                break;
            }
            search.observe(step, &observed);
            self.say_last(search.verdict(step.rate_per_s));
        }
        let found = search.done();
        let verdict = |rate| search.verdict(rate);
        let text = format!(
            "{}\n{}\n",
            table(
                &self.rows,
                Some(&Judged {
                    goal,
                    verdict: &verdict
                })
            ),
            found.as_ref().map_or_else(
                || format!("{goal}: the search was ended before there was an answer"),
                |knee| answer(goal, knee)
            )
        );
        Ok((text, found_json(goal, settings.precision, found.as_ref())))
    }

    fn step(&mut self, goal: Goal, step: Step) -> Result<StepResult, Failure> {
        let spec = self.at_rate(step.rate_per_s, step.length_ns);
        let result = self.offer(spec)?;
        Ok(StepResult::of(goal, result))
    }

    /// Tells a person who waits how the last level went.
    fn say_last(&self, verdict: Option<Verdict>) {
        let Some(row) = self.rows.last() else {
            return;
        };
        let result = &row.result;
        let level = match row.rate_per_s() {
            Some(rate) => per_s(rate),
            None => connections(row.spec.connections),
        };
        let verdict = verdict.map_or(String::new(), |v| format!(": {}", word(v)));
        self.say(&format!(
            "{level} for {:.1}s  {} answered  p99 {} ms{verdict}",
            result.window_ns as f64 / 1e9,
            per_s(result.achieved_per_s()),
            ms(resolved(&result.response, 0.99)),
        ));
    }

    fn document(&self, findings: Value) -> Value {
        let levels: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                documents::document(&Finished {
                    url: &self.args.url,
                    started_unix_ms: row.started_unix_ms,
                    spec: &row.spec,
                    result: &row.result,
                })
            })
            .collect();
        json!({
            "format_version": meshtax_model::FORMAT_VERSION,
            "meshtax_version": env!("CARGO_PKG_VERSION"),
            "url": self.args.url,
            "search": findings,
            "levels": levels,
        })
    }
}

/// What a search thinks of its rates.
struct Judged<'a> {
    goal: Goal,
    verdict: &'a dyn Fn(f64) -> Option<Verdict>,
}

/// A row for each level, the lowest first.
fn table(rows: &[Row], judged: Option<&Judged<'_>>) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by(|a, b| {
        let level = |row: &Row| (row.rate_per_s().unwrap_or(0.0), row.spec.connections);
        let ((rate_a, connections_a), (rate_b, connections_b)) = (level(a), level(b));
        rate_a
            .total_cmp(&rate_b)
            .then(connections_a.cmp(&connections_b))
    });
    let mut text = format!(
        "{:>12}  {:>11}  {:>9}  {:>9}  {:>9}  {:>7}",
        "level", "answered/s", "p50 ms", "p99 ms", "max ms", "errors"
    );
    if let Some(judged) = judged {
        let _ = write!(text, "  {:>12}", format!("> {}", limit_ms(judged.goal)));
    }
    text.push('\n');
    for row in rows {
        let result = &row.result;
        let level = match row.rate_per_s() {
            Some(rate) => per_s(rate),
            None => format!("{} conn.", grouped(u64::from(row.spec.connections))),
        };
        let _ = write!(
            text,
            "{level:>12}  {:>11}  {:>9}  {:>9}  {:>9}  {:>7}",
            grouped(result.achieved_per_s().round() as u64),
            ms(resolved(&result.response, 0.5)),
            ms(resolved(&result.response, 0.99)),
            ms(result.response.max_ns()),
            grouped(result.errors.total() + result.unanswered),
        );
        if let (Some(judged), Some(rate)) = (judged, row.rate_per_s()) {
            let above = result.response.count_above(judged.goal.limit_ns) as f64;
            let share = 100.0 * above / result.response.count().max(1) as f64;
            let verdict = (judged.verdict)(rate).map_or("", word);
            let _ = write!(text, "  {:>12}  {verdict}", format!("{share:.3} %"));
        }
        if result.audit.generator_bound.is_some() {
            text.push_str("  generator-bound");
        } else if row.rate_per_s().is_some() && result.queued * 20 > result.offered {
            text.push_str("  waits for connections");
        }
        text.push('\n');
    }
    text
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::TooHigh => "too high",
        Verdict::Astride => "cannot be told",
    }
}

/// `9,310/s`.
fn per_s(rate: f64) -> String {
    if rate < 10.0 {
        return format!("{rate:.2}/s");
    }
    format!("{}/s", grouped(rate.round() as u64))
}

/// `1 connection`.
fn connections(count: u32) -> String {
    match count {
        1 => "1 connection".into(),
        many => format!("{} connections", grouped(u64::from(many))),
    }
}

fn ms(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| format!("{:.3}", ns as f64 / 1e6))
}

fn limit_ms(goal: Goal) -> String {
    format!("{} ms", goal.limit_ns as f64 / 1e6)
}

/// The knee in words.
fn answer(goal: Goal, knee: &Knee) -> String {
    let low = per_s(knee.low_per_s);
    let between = match knee.high_per_s {
        Some(high) if knee.low_per_s > 0.0 => {
            format!("{goal} holds at {low} and no longer at {}", per_s(high))
        }
        Some(high) => format!("{goal} does not even hold at {}", per_s(high)),
        None => format!("{goal} holds at {low}"),
    };
    let why = match &knee.limited_by {
        Limit::Latency => "there the percentile is above its limit".into(),
        Limit::Throughput => "there less than 98 % of the rate is answered".into(),
        Limit::Errors => "there more than 1 % of the requests fail".into(),
        Limit::Generator(reason) => format!(
            "beyond that the generator was the limit, so that the knee is at {low} or above ({reason})"
        ),
        Limit::MaxRate => "no higher rate can be offered".into(),
        Limit::Steps => "the steps were used up before the interval was narrow".into(),
    };
    format!("{between}: {why}")
}

fn found_json(goal: Goal, precision: f64, knee: Option<&Knee>) -> Value {
    let (limited_by, reason) = match knee.map(|knee| &knee.limited_by) {
        None => (None, None),
        Some(Limit::Latency) => (Some("latency"), None),
        Some(Limit::Throughput) => (Some("throughput"), None),
        Some(Limit::Errors) => (Some("errors"), None),
        Some(Limit::Generator(reason)) => (Some("generator"), Some(reason)),
        Some(Limit::MaxRate) => (Some("max-rate"), None),
        Some(Limit::Steps) => (Some("steps"), None),
    };
    json!({
        "kind": "knee",
        "goal": goal.to_string(),
        "quantile": goal.quantile,
        "limit_ns": goal.limit_ns,
        "precision": precision,
        "low_per_s": knee.map(|knee| knee.low_per_s),
        "high_per_s": knee.and_then(|knee| knee.high_per_s),
        "limited_by": limited_by,
        "reason": reason,
    })
}

/// What closed loops say of saturation, in words.
fn in_words(course: Course, best: Option<Level>) -> String {
    let peak = best.map_or(String::new(), |best| {
        format!(
            "; the peak is {} with {}",
            per_s(best.per_s),
            connections(best.connections)
        )
    });
    match course {
        Course::TooFew => format!("fewer than three levels say nothing of saturation{peak}"),
        Course::Rising => {
            format!("throughput rises up to the last level: no saturation is seen{peak}")
        }
        Course::Saturated {
            connections: from,
            per_s: rate,
        } => format!(
            "saturated from {} on: {} there, and more connections bring no more{peak}",
            connections(from),
            per_s(rate)
        ),
        Course::GeneratorBound { connections: from } => format!(
            "from {} on the generator was the limit: nothing can be said of the system{peak}",
            connections(from)
        ),
    }
}

fn saturation(course: Course, best: Option<Level>) -> Value {
    let (verdict, connections) = match course {
        Course::TooFew => ("too-few-levels", None),
        Course::Rising => ("rising", None),
        Course::Saturated { connections, .. } => ("saturated", Some(connections)),
        Course::GeneratorBound { connections } => ("generator-bound", Some(connections)),
    };
    json!({
        "kind": "connections",
        "verdict": verdict,
        "from_connections": connections,
        "peak_per_s": best.map(|best| best.per_s),
        "peak_connections": best.map(|best| best.connections),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    #[test]
    fn a_knee_in_words_and_as_json() {
        let goal: Goal = "p99 < 5ms".parse().unwrap();
        let knee = Knee {
            low_per_s: 9060.0,
            high_per_s: Some(9310.2),
            limited_by: Limit::Latency,
        };
        assert_eq!(
            answer(goal, &knee),
            "p99 < 5ms holds at 9,060/s and no longer at 9,310/s: \
             there the percentile is above its limit"
        );
        let value = found_json(goal, 0.05, Some(&knee));
        assert_eq!(
            (&value["low_per_s"], &value["limited_by"]),
            (&json!(9060.0), &json!("latency"))
        );
        let bound = Knee {
            high_per_s: None,
            limited_by: Limit::Generator("busy".into()),
            ..knee.clone()
        };
        assert!(answer(goal, &bound).contains("the knee is at 9,060/s or above (busy)"));
        let none = Knee {
            low_per_s: 0.0,
            ..knee
        };
        assert!(answer(goal, &none).starts_with("p99 < 5ms does not even hold at 9,310/s"));
        assert_eq!(found_json(goal, 0.05, None)["limited_by"], Value::Null);
    }

    #[test]
    fn a_table_has_a_row_for_each_level_in_order() {
        let row = |per_s: f64| {
            let mut spec = example::spec();
            spec.model = LoadModel::open(per_s, Arrivals::Constant);
            Row {
                spec,
                started_unix_ms: 0,
                result: example::result(),
            }
        };
        let rows = [row(2000.0), row(1000.0)];
        let verdict = |rate: f64| (rate > 1500.0).then_some(Verdict::TooHigh);
        let judged = Judged {
            goal: "p99 < 1ms".parse().unwrap(),
            verdict: &verdict,
        };
        let text = table(&rows, Some(&judged));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].ends_with("> 1 ms"), "{text}");
        assert!(
            lines[1].starts_with("     1,000/s          998      0.7"),
            "{text}"
        );
        assert!(
            lines[2].contains("2,000/s") && lines[2].ends_with("too high"),
            "{text}"
        );
    }

    #[test]
    fn saturation_in_words() {
        let levels: Vec<_> = [(1, 1000.0), (2, 2000.0), (4, 2001.0), (8, 1990.0)]
            .into_iter()
            .map(|(connections, per_s)| Level {
                connections,
                per_s,
                generator_bound: false,
            })
            .collect();
        let (course, best) = course(&levels);
        assert_eq!(
            in_words(course, best),
            "saturated from 2 connections on: 2,000/s there, and more connections bring no more; \
             the peak is 2,001/s with 4 connections"
        );
        assert_eq!(saturation(course, best)["from_connections"], 2);
    }
}
