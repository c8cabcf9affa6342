//! The answer in one sentence per variant.

use meshtax_model::analysis::{Effect, Estimate, Metric, Verdict};
use meshtax_model::experiment::{LoadPoint, Role, Variant};

use super::{Headline, Source, Tone, load_in_words};
use crate::format;

/// What all headlines compare with, and where.
pub(crate) fn lead(source: Source<'_>) -> String {
    if source.analysis.variants.is_empty() {
        return "Nothing was measured".to_owned();
    }
    let mut text = format!("Cost against {}", source.baseline_name());
    if let Some(point) = source.first_steady() {
        text.push_str(&format!(", at {}", load_in_words(point)));
        if source.first_saturated().is_some() {
            text.push_str(" (throughput: saturated)");
        }
    } else if source.first_saturated().is_some() {
        text.push_str(", saturated");
    }
    text
}

/// One per candidate, in the experiment's order.
pub(crate) fn headlines(source: Source<'_>) -> Vec<Headline> {
    source
        .variants()
        .filter(|(asked, _)| asked.role == Role::Candidate)
        .map(|(asked, found)| match &found.left_out {
            Some(_) => Headline {
                variant: asked.id.0.clone(),
                clauses: vec!["left out, not measured: see the evidence".to_owned()],
                tone: Tone::Bad,
            },
            None => measured(source, asked),
        })
        .collect()
}

fn measured(source: Source<'_>, variant: &Variant) -> Headline {
    let at = |point: Option<&LoadPoint>, metric| {
        point.and_then(|p| source.effect(&variant.id, &p.id, metric))
    };
    let steady = source.first_steady();
    let saturated = source.first_saturated();
    let p50 = at(steady, Metric::ResponseP50);
    let throughput = at(saturated, Metric::Throughput);
    let cpu = at(steady.or(saturated), Metric::CpuPerRequest);
    let clauses: Vec<String> = [
        p50.and_then(latency_clause),
        throughput.and_then(throughput_clause),
        cpu.and_then(cpu_clause),
    ]
    .into_iter()
    .flatten()
    .collect();
    if clauses.is_empty() {
        let reason = [p50, throughput, cpu]
            .into_iter()
            .flatten()
            .find_map(not_estimable);
        return Headline {
            variant: variant.id.0.clone(),
            clauses: vec![match reason {
                Some(reason) => format!("not estimable: {reason}"),
                None => "nothing measured".to_owned(),
            }],
            tone: Tone::Muted,
        };
    }
    Headline {
        variant: variant.id.0.clone(),
        clauses,
        tone: Tone::Plain,
    }
}

fn not_estimable(effect: &Effect) -> Option<String> {
    match &effect.verdict {
        Verdict::NotEstimable { reason } => Some(reason.clone()),
        _ => None,
    }
}

/// What a sentence may say of an effect.
enum Sayable {
    Figure(Estimate),
    Words(&'static str),
}

fn sayable(effect: &Effect, estimate: Option<Estimate>) -> Option<Sayable> {
    let estimate = estimate.filter(|e| e.value.is_finite());
    match effect.verdict {
        Verdict::NotEstimable { .. } => estimate
            .filter(|e| e.interval.is_none())
            .map(Sayable::Figure),
        Verdict::Different => estimate.map(Sayable::Figure),
        Verdict::NotDistinguishable => Some(match estimate {
            Some(e) if e.interval.is_none() => Sayable::Figure(e),
            _ => Sayable::Words("not distinguishable"),
        }),
        Verdict::Equivalent => Some(Sayable::Words("no relevant difference")),
    }
}

fn latency_clause(effect: &Effect) -> Option<String> {
    let estimate = match sayable(effect, effect.difference)? {
        Sayable::Words(words) => return Some(format!("p50 {words}")),
        Sayable::Figure(estimate) => estimate,
    };
    let saves = estimate.value < 0.0;
    let (value, interval) = format::time_in_words(estimate, saves);
    let interval = interval.unwrap_or_else(|| "(no interval)".to_owned());
    Some(if saves {
        format!("takes {value} off p50 {interval}")
    } else {
        format!("adds {value} to p50 {interval}")
    })
}

fn throughput_clause(effect: &Effect) -> Option<String> {
    let estimate = match sayable(effect, effect.relative)? {
        Sayable::Words(words) => return Some(format!("throughput {words}")),
        Sayable::Figure(estimate) => estimate,
    };
    let percent = estimate.value * 100.0;
    // 99.7 % of the throughput gone is not 100 %.
    let decimals = usize::from(percent.abs() < 10.0 || percent < -99.0);
    Some(format!(
        "throughput {} %",
        format::signed(percent, decimals)
    ))
}

fn cpu_clause(effect: &Effect) -> Option<String> {
    let estimate = match sayable(effect, effect.difference)? {
        Sayable::Words(words) => return Some(format!("CPU {words}")),
        Sayable::Figure(estimate) => estimate,
    };
    let point_only = Estimate {
        value: estimate.value,
        interval: None,
    };
    let (value, _) = format::time_in_words(point_only, false);
    let sign = if estimate.value > 0.0 { "+" } else { "" };
    Some(format!("CPU {sign}{value} per request"))
}
