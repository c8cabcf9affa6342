//! The result in one sentence per variant.

use crate::view::reasons;
use meshtax_model::analysis::{Effect, Estimate, LoadOutcome, Metric, Overload, Verdict};
use meshtax_model::experiment::{LoadPoint, Role, Variant};

use crate::format::{self, MIB};
use crate::view::document::Headline;
use crate::view::labels::UNADJUSTED;
use crate::view::meaning;
use crate::view::outcome;
use crate::view::source::{Source, at_load, confidence_in_words, point_of};
use crate::view::table::Tone;

const NO_INTERVAL: &str = "(no interval)";
const NOT_ESTIMABLE: &str = "not estimable";

/// What all headlines compare with, and where.
pub(crate) fn lead(source: Source<'_>) -> String {
    if source.analysis.variants.is_empty() {
        return "Nothing was measured".to_owned();
    }
    let mut text = format!(
        "Overhead of each variant against {}",
        source.baseline_name()
    );
    if let Some(point) = source.first_steady().or(source.first_saturated()) {
        text.push_str(&format!(", {}", at_load(point)));
    }
    let effects = &source.analysis.effects;
    let mut estimates = effects.iter().filter_map(|effect| effect.difference);
    if estimates.any(|estimate| estimate.interval.is_some()) {
        let confidence = confidence_in_words(source.analysis);
        text.push_str(&format!(" [{confidence} interval]"));
    }
    text
}

/// One per candidate, in the experiment's order.
pub(crate) fn headlines(source: Source<'_>) -> Vec<Headline> {
    source
        .variants()
        .filter(|(asked, _)| asked.role == Role::Candidate)
        .map(|(asked, found)| match &found.excluded {
            Some(_) => Headline {
                variant: asked.id.0.clone(),
                clauses: vec!["excluded, not measured: see the evidence".to_owned()],
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
    let (steady, saturated) = (source.first_steady(), source.first_saturated());
    let overloads = overloads(source, variant);
    let leading = [steady, saturated].into_iter().flatten();
    if leading
        .clone()
        .any(|point| overloads.iter().any(|(at, _)| *at == point))
    {
        return Headline {
            variant: variant.id.0.clone(),
            clauses: overloaded(&overloads),
            tone: Tone::Bad,
        };
    }
    let cpu = [steady, saturated].map(|point| at(point, Metric::CpuPerRequest));
    let p50 = at(steady, Metric::ResponseP50);
    let memory = at(steady.or(saturated), Metric::AnonymousMemory);
    let effects = || cpu.into_iter().chain([p50, memory]).flatten();
    let known = effects().find(|effect| sayable(effect, effect.difference).is_some());
    if known.is_none() {
        let reason = effects().find_map(not_estimable);
        let nothing = match reason {
            Some(reason) => format!("not estimable: {reason}"),
            None => "nothing measured".to_owned(),
        };
        return behind(&overloads, variant, vec![nothing], Tone::Muted);
    }
    let clauses = [
        cpu_clause(source, cpu),
        p50.map(latency_clause),
        memory.and_then(memory_clause),
        meaning::cores(source, cpu),
        cpu[1].and_then(|effect| meaning::losses(source, effect)),
    ];
    let clauses = clauses.into_iter().flatten().collect();
    behind(&overloads, variant, clauses, Tone::Plain)
}

/// The load points at which a variant is overloaded.
fn overloads<'a>(source: Source<'a>, variant: &Variant) -> Vec<(&'a LoadPoint, &'a Overload)> {
    let mut variants = source.variants();
    let found = variants.find(|(asked, _)| asked.id == variant.id);
    let outcome = |point: &'a LoadPoint| {
        let (_, found) = found?;
        match &point_of(found, &point.id)?.outcome {
            LoadOutcome::Overloaded(overload) => Some((point, overload)),
            _ => None,
        }
    };
    source.points().filter_map(outcome).collect()
}

/// What was not carried: all loads, and how the first of them ended.
fn overloaded(overloads: &[(&LoadPoint, &Overload)]) -> Vec<String> {
    let Some((_, first)) = overloads.first() else {
        return Vec::new();
    };
    let loads: Vec<String> = overloads.iter().map(|(point, _)| at_load(point)).collect();
    let how = outcome::overload(first);
    vec![
        format!("overloaded {}", loads.join(" and ")),
        match overloads.len() {
            1 => how,
            _ => format!("{}: {how}", loads[0]),
        },
    ]
}

/// Figures, behind the other loads that were not carried.
fn behind(
    overloads: &[(&LoadPoint, &Overload)],
    variant: &Variant,
    figures: Vec<String>,
    tone: Tone,
) -> Headline {
    let mut clauses = overloaded(overloads);
    clauses.truncate(1);
    Headline {
        variant: variant.id.0.clone(),
        tone: match clauses.is_empty() {
            true => tone,
            false => Tone::Bad,
        },
        clauses: clauses.into_iter().chain(figures).collect(),
    }
}

fn not_estimable(effect: &Effect) -> Option<String> {
    match &effect.verdict {
        Verdict::NotEstimable { reason } => {
            Some(reasons::not_estimable(reason, Some(&effect.variant)))
        }
        _ => None,
    }
}

/// The wording for an effect, by its verdict.
enum Sayable {
    Figure(Estimate),
    Words(&'static str),
}

fn sayable(effect: &Effect, estimate: Option<Estimate>) -> Option<Sayable> {
    let estimate = estimate.filter(|e| e.value.is_finite());
    match effect.verdict {
        Verdict::Overloaded(_) => None,
        Verdict::NotEstimable { .. } => estimate
            .filter(|e| e.interval.is_none())
            .map(Sayable::Figure),
        Verdict::Different => estimate.map(Sayable::Figure),
        Verdict::Inconclusive => Some(match estimate {
            Some(e) if e.interval.is_none() => Sayable::Figure(e),
            _ => Sayable::Words("inconclusive"),
        }),
        Verdict::Equivalent => Some(Sayable::Words("no relevant difference")),
    }
}

fn latency_clause(effect: &Effect) -> String {
    match sayable(effect, effect.difference) {
        None => format!("p50: {NOT_ESTIMABLE}"),
        Some(Sayable::Words(words)) => format!("p50: {words}"),
        Some(Sayable::Figure(estimate)) => {
            let added = outcome::at_least(added_time(estimate), effect.lower_bound);
            format!("p50 {added}")
        }
    }
}

/// CPU per request in both regimes. Where the first is a figure, the interval of the second is in its table.
fn cpu_clause(source: Source<'_>, [steady, saturated]: [Option<&Effect>; 2]) -> Option<String> {
    let figure = |effect: &Effect, text: fn(Estimate) -> String| {
        Some(match sayable(effect, effect.difference)? {
            Sayable::Words(words) => words.to_owned(),
            Sayable::Figure(components) => match meaning::with_elsewhere(source, effect) {
                None => text(components),
                // The footnote of its table says what the other end contains.
                Some((added, _)) => format!("{} to {}", text(components), text(added)),
            },
        })
    };
    let is_figure = |effect: &Effect| {
        let said = sayable(effect, effect.difference);
        matches!(said, Some(Sayable::Figure(_)))
    };
    let Some(steady) = steady else {
        return Some(format!(
            "CPU per request {}",
            figure(saturated?, added_time)?
        ));
    };
    let text: fn(Estimate) -> String = match is_figure(steady) {
        true => |estimate| {
            let bare = Estimate {
                interval: None,
                ..estimate
            };
            signed_time(bare).0
        },
        false => added_time,
    };
    let first = figure(steady, added_time).unwrap_or_else(|| NOT_ESTIMABLE.to_owned());
    let second = saturated.and_then(|effect| figure(effect, text));
    let second = second.map_or_else(String::new, |text| format!(", at saturation {text}"));
    Some(format!("CPU per request {first}{second}"))
}

/// Memory is not in the adjusted family.
fn memory_clause(effect: &Effect) -> Option<String> {
    Some(match sayable(effect, effect.difference)? {
        Sayable::Words(words) => format!("memory: {words}"),
        Sayable::Figure(estimate) => {
            let mib = format::scale(estimate, MIB);
            let value = format::signed(mib.value, 1);
            format!("memory {value} MiB{UNADJUSTED}")
        }
    })
}

/// `+0.32 ms [0.31, 0.33]`.
fn added_time(estimate: Estimate) -> String {
    let (value, interval) = signed_time(estimate);
    let interval = interval.unwrap_or_else(|| NO_INTERVAL.to_owned());
    format!("{value} {interval}")
}

fn signed_time(estimate: Estimate) -> (String, Option<String>) {
    let (value, interval) = format::time_in_words(estimate, false);
    let sign = if estimate.value > 0.0 { "+" } else { "" };
    (format!("{sign}{value}"), interval)
}
