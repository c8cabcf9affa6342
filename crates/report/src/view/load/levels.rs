//! Loads at several levels: a table, and what they show together.

use crate::view::reasons::generator_bound;
use std::fmt::Write as _;

use meshtax_model::load::{
    FinishedLoad, KneeFinding, KneeLimit, LevelsFinding, LoadLevels, RateVerdict, SaturationVerdict,
};

use super::numbers::{connections, grouped, milliseconds_or_dash, per_s};

/// A table with a row for each level, and the finding.
pub(crate) fn levels(levels: &LoadLevels) -> String {
    let finding = match &levels.finding {
        LevelsFinding::Rates { kept_up_to_per_s } => match kept_up_to_per_s {
            Some(rate) => format!("the server kept up with {} at most", per_s(*rate)),
            None => "the server kept up with none of these rates".into(),
        },
        LevelsFinding::Connections {
            verdict,
            from_connections,
            peak_per_s,
            peak_connections,
        } => {
            let from = from_connections.unwrap_or_default();
            let peak = peak_per_s.zip(*peak_connections);
            saturation(*verdict, from, peak, &levels.levels)
        }
        LevelsFinding::Knee(finding) => knee(finding),
    };
    let searched = match &levels.finding {
        LevelsFinding::Knee(finding) => Some(finding),
        LevelsFinding::Rates { .. } | LevelsFinding::Connections { .. } => None,
    };
    format!("{}\n{finding}\n", table(&levels.levels, searched))
}

/// A level that has just been measured, in one line.
pub(crate) fn level_progress(load: &FinishedLoad, verdict: Option<RateVerdict>) -> String {
    let result = &load.result;
    let level = match load.settings.model.constant_rate_per_s() {
        Some(rate) => per_s(rate),
        None => connections(load.settings.connections),
    };
    let verdict = verdict.map_or(String::new(), |verdict| format!(": {}", word(verdict)));
    format!(
        "{level} for {:.1}s  {} responses  p99 {} ms{verdict}",
        result.window_ns as f64 / 1e9,
        per_s(result.achieved_per_s()),
        milliseconds_or_dash(result.response.resolved_quantile_ns(0.99)),
    )
}

/// A row for each level, the lowest first.
fn table(levels: &[FinishedLoad], searched: Option<&KneeFinding>) -> String {
    let mut levels: Vec<_> = levels.iter().collect();
    let rate = |load: &FinishedLoad| load.settings.model.constant_rate_per_s().unwrap_or(0.0);
    levels.sort_by(|a, b| {
        let by_connections = a.settings.connections.cmp(&b.settings.connections);
        rate(a).total_cmp(&rate(b)).then(by_connections)
    });
    let mut text = format!(
        "{:>12}  {:>11}  {:>9}  {:>9}  {:>9}  {:>7}",
        "level", "responses/s", "p50 ms", "p99 ms", "max ms", "errors"
    );
    if let Some(searched) = searched {
        let limit = format!("> {} ms", searched.limit_ns as f64 / 1e6);
        let _ = write!(text, "  {limit:>12}");
    }
    text.push('\n');
    for load in levels {
        text.push_str(&row(load, searched));
        text.push('\n');
    }
    text
}

fn row(load: &FinishedLoad, searched: Option<&KneeFinding>) -> String {
    let result = &load.result;
    let rate = load.settings.model.constant_rate_per_s();
    let level = match rate {
        Some(rate) => per_s(rate),
        None => format!("{} conn.", grouped(u64::from(load.settings.connections))),
    };
    let mut text = format!(
        "{level:>12}  {:>11}  {:>9}  {:>9}  {:>9}  {:>7}",
        grouped(result.achieved_per_s().round() as u64),
        milliseconds_or_dash(result.response.resolved_quantile_ns(0.5)),
        milliseconds_or_dash(result.response.resolved_quantile_ns(0.99)),
        milliseconds_or_dash(result.response.max_ns()),
        grouped(result.errors.total() + result.unanswered),
    );
    if let (Some(searched), Some(rate)) = (searched, rate) {
        let above = result.response.count_above(searched.limit_ns) as f64;
        let share = 100.0 * above / result.response.count().max(1) as f64;
        let mut verdicts = searched.verdicts.iter();
        let verdict = verdicts.find(|(of, _)| of.total_cmp(&rate).is_eq());
        let verdict = verdict.map_or("", |(_, verdict)| word(*verdict));
        let _ = write!(text, "  {:>12}  {verdict}", format!("{share:.3} %"));
    }
    if result.audit.generator_bound.is_some() {
        text.push_str("  generator-bound");
    } else if rate.is_some() && result.queued * 20 > result.offered {
        text.push_str("  waits for connections");
    }
    text
}

fn word(verdict: RateVerdict) -> &'static str {
    match verdict {
        RateVerdict::Met => "met",
        RateVerdict::Missed => "missed",
        RateVerdict::Inconclusive => "inconclusive",
    }
}

fn knee(finding: &KneeFinding) -> String {
    let goal = &finding.goal;
    let (Some(low_per_s), Some(limited_by)) = (finding.low_per_s, finding.limited_by) else {
        return format!("{goal}: the search was interrupted before it had a result");
    };
    let low = per_s(low_per_s);
    let between = match finding.high_per_s {
        Some(high) if low_per_s > 0.0 => {
            format!("{goal} is met at {low} and missed at {}", per_s(high))
        }
        Some(high) => format!("{goal} is missed even at {}", per_s(high)),
        None => format!("{goal} is met at {low}"),
    };
    let why = match limited_by {
        KneeLimit::Latency => "the percentile exceeds its limit there".to_owned(),
        KneeLimit::Throughput => "less than 98 % of the offered rate is served there".to_owned(),
        KneeLimit::Errors => "more than 1 % of the requests fail there".to_owned(),
        KneeLimit::Generator => format!(
            "above it the load generator is the bottleneck, so the knee is at {low} or higher ({})",
            finding
                .reason
                .as_ref()
                .map_or_else(String::new, generator_bound)
        ),
        KneeLimit::MaxRate => "no higher rate can be offered".to_owned(),
        KneeLimit::Steps => {
            "the search ran out of steps before the interval was narrow enough".to_owned()
        }
    };
    format!("{between}: {why}")
}

fn saturation(
    verdict: SaturationVerdict,
    from: u32,
    peak: Option<(f64, u32)>,
    levels: &[FinishedLoad],
) -> String {
    let peak = peak.map_or(String::new(), |(rate, at)| {
        format!("; the peak is {} with {}", per_s(rate), connections(at))
    });
    match verdict {
        SaturationVerdict::TooFewLevels => {
            format!("fewer than three levels do not show saturation{peak}")
        }
        SaturationVerdict::Rising => {
            format!("throughput grows up to the last level: no saturation is visible{peak}")
        }
        SaturationVerdict::Saturated => {
            let mut levels = levels.iter();
            let there = levels.find(|load| load.settings.connections == from);
            let rate = there.map_or(0.0, |load| load.result.achieved_per_s());
            format!(
                "saturated from {} on: {} there, and more connections add nothing{peak}",
                connections(from),
                per_s(rate)
            )
        }
        SaturationVerdict::GeneratorBound => format!(
            "from {} on the load generator is the bottleneck: no conclusion about the system{peak}",
            connections(from)
        ),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;
    use meshtax_model::experiment::Arrivals;
    use meshtax_model::load::{OfferedLoad, Rate};
    use meshtax_model::trial::{GeneratorBound, GeneratorLimit};

    use super::*;

    fn finding() -> KneeFinding {
        KneeFinding {
            goal: "p99 < 5ms".into(),
            quantile: 0.99,
            limit_ns: 5_000_000,
            precision: 0.05,
            low_per_s: Some(9060.0),
            high_per_s: Some(9310.2),
            limited_by: Some(KneeLimit::Latency),
            reason: None,
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn knee_is_stated_with_its_interval_and_limit() {
        assert_eq!(
            knee(&finding()),
            "p99 < 5ms is met at 9,060/s and missed at 9,310/s: \
             the percentile exceeds its limit there"
        );
        let bound = KneeFinding {
            high_per_s: None,
            limited_by: Some(KneeLimit::Generator),
            reason: Some(GeneratorBound {
                worker: None,
                limit: GeneratorLimit::Busy {
                    busy_share: 0.99,
                    max_share: 0.9,
                    closed_loop: false,
                },
            }),
            ..finding()
        };
        assert!(
            knee(&bound)
                .contains("the knee is at 9,060/s or higher (the generator was busy for 99 %")
        );
        let none = KneeFinding {
            low_per_s: Some(0.0),
            ..finding()
        };
        assert!(knee(&none).starts_with("p99 < 5ms is missed even at 9,310/s"));
        let interrupted = KneeFinding {
            low_per_s: None,
            limited_by: None,
            ..finding()
        };
        assert!(knee(&interrupted).contains("interrupted"));
    }

    #[test]
    fn table_has_a_row_for_each_level_in_order() {
        let at = |per_s: f64| {
            finished(|settings, _| {
                settings.model = OfferedLoad::Open {
                    rate: Rate::Constant { per_s },
                    arrivals: Arrivals::Constant,
                };
            })
        };
        let searched = KneeFinding {
            limit_ns: 1_000_000,
            verdicts: vec![(2000.0, RateVerdict::Missed)],
            ..finding()
        };
        let text = table(&[at(2000.0), at(1000.0)], Some(&searched));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].ends_with("> 1 ms"), "{text}");
        assert!(
            lines[1].starts_with("     1,000/s          998      0.7"),
            "{text}"
        );
        assert!(
            lines[2].contains("2,000/s") && lines[2].ends_with("missed"),
            "{text}"
        );
    }

    #[test]
    fn saturation_is_stated_with_its_first_level_and_the_peak() {
        let at = |connections| {
            finished(|settings, result| {
                settings.connections = connections;
                result.completed = 4000;
            })
        };
        assert_eq!(
            saturation(
                SaturationVerdict::Saturated,
                2,
                Some((2001.0, 4)),
                &[at(1), at(2)]
            ),
            "saturated from 2 connections on: 2,000/s there, and more connections add nothing; \
             the peak is 2,001/s with 4 connections"
        );
    }
}
