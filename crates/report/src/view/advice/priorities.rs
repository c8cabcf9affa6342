//! The rankings by each priority, and the effects of the cluster's properties.

use crate::view::decision;
use crate::view::reasons::{not_estimable, topic};
use crate::view::source::Loads;
use meshtax_model::advice::{Advice, Priority, PriorityAnswer, Ranking};
use meshtax_model::analysis::Verdict;
use meshtax_published::Mesh;

use super::section::{Section, left, level_in_words, table};
use crate::format::MISSING;
use crate::view::table::{Cell, Table, Tone};

/// The detail of every table of facts.
const FACTS: &str = "published facts, no score; details and sources: meshtax mesh facts NAME";

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("4. Rankings by priority");
    let stands: Vec<String> = advice
        .variants
        .iter()
        .filter_map(|v| Some(format!("{} for {}", v.variant, v.mesh.as_ref()?)))
        .collect();
    if !stands.is_empty() {
        section.say(format!("Ranked: {}.", stands.join(", ")));
    }
    for answer in &advice.priorities {
        let name = answer.priority.name();
        if answer.priority.features().is_empty() {
            let ranking = ranked(advice, answer);
            if ranking.rows.is_empty() {
                section.say(nothing(advice, answer));
            }
            section.show(ranking);
        } else {
            section.show(facts(name, &answer.features));
        }
    }
    for table in decision::tables(advice.decision.as_ref(), Loads::BY_ID) {
        section.show(table);
    }
    if advice.priorities.iter().any(|p| !p.rankings.is_empty()) {
        section.notes.push(
            "Places are ranges: from one more than the number of variants shown to be better, to the number of \
             variants less those shown to be worse. Shown: their paired difference, adjusted over the whole run, \
             excludes zero and exceeds the noise floor; or one carried the load and the other did not. What cannot be \
             compared could have any place, and the ranges leave room for it."
                .to_owned(),
        );
    }
    if advice
        .priorities
        .iter()
        .any(|p| p.priority == Priority::Cost)
    {
        section.notes.push(
            "Memory is not compared between variants: its figures are listed in section 3."
                .to_owned(),
        );
    }
    section
}

fn nothing(advice: &Advice, answer: &PriorityAnswer) -> String {
    let name = answer.priority.name();
    if !answer.rankings.is_empty() {
        return format!(
            "{name}: no ranking, no comparison in this run could be estimated (see section 6)."
        );
    }
    let among = if advice.asked.has_needs() {
        "that provide what is required"
    } else {
        "at one level"
    };
    format!("{name}: no ranking, no two variants {among} were compared in this run.")
}

fn ranked(advice: &Advice, answer: &PriorityAnswer) -> Table {
    let columns = vec![left("by"), left("at"), left("level"), left("places")];
    let mut ranks = table(answer.priority.name(), "best first", columns);
    let row = |ranking: &Ranking| {
        vec![
            Cell::text(ranking.metric.name()),
            Cell::text(ranking.load_point.0.clone()),
            match ranking.level {
                None if advice.asked.has_needs() => Cell::text("as required").toned(Tone::Muted),
                level => Cell::text(level_in_words(level)),
            },
            Cell::text(order(ranking)),
        ]
    };
    let with_places = answer.rankings.iter().filter(|r| !r.places.is_empty());
    ranks.rows = with_places.map(row).collect();
    ranks
}

/// `1. a; 2 to 3. b, c`: variants with the same places are listed together, in no order.
fn order(ranking: &Ranking) -> String {
    let mut places: Vec<((u32, u32), Vec<&str>)> = Vec::new();
    for place in &ranking.places {
        let (name, range) = (place.variant.0.as_str(), (place.best, place.worst));
        match places.last_mut() {
            Some((known, names)) if *known == range => names.push(name),
            _ => places.push((range, vec![name])),
        }
    }
    let mut parts: Vec<String> = places
        .into_iter()
        .map(|((best, worst), names)| {
            let names = names.join(", ");
            match best == worst {
                true => format!("{best}. {names}"),
                false => format!("{best} to {worst}. {names}"),
            }
        })
        .collect();
    if !ranking.unranked.is_empty() {
        let names: Vec<&str> = ranking.unranked.iter().map(|id| id.0.as_str()).collect();
        parts.push(format!("not ranked: {}", names.join(", ")));
    }
    match parts.as_slice() {
        [] => MISSING.to_owned(),
        parts => parts.join("; "),
    }
}

/// The published facts about features, mesh by mesh. They are not combined. Texts and sources are long:
/// `meshtax mesh facts` prints them.
fn facts(title: &str, features: &[String]) -> Table {
    let published = meshtax_published::meshes();
    let meshes = published.meshes.iter();
    let columns = std::iter::once(left("feature")).chain(meshes.map(|mesh| left(&mesh.id)));
    let mut facts = table(title, FACTS, columns.collect());
    for id in features {
        let answer = |mesh: &Mesh| match meshtax_published::fact(&mesh.id, id) {
            Some(fact) if fact.source.is_some() => Cell::text(fact.answer.as_str()),
            _ => Cell::missing(),
        };
        let name = Cell::text(id.clone());
        let row = std::iter::once(name).chain(published.meshes.iter().map(answer));
        facts.rows.push(row.collect());
    }
    facts
}

pub(super) fn questions(advice: &Advice) -> Section {
    let mut section = Section::new("5. What changes in your cluster?");
    if advice.questions.is_empty() {
        let none = "It is not described: use --cni, --managed, --need fips.";
        section.say(none);
    }
    for question in &advice.questions {
        section.show(facts(&topic(&question.topic), &question.features));
    }
    section
}

/// Pairs without a ranking: those without a shown difference, then those that were not compared.
pub(super) fn ties(advice: &Advice) -> Vec<String> {
    let mut undecided: Vec<(String, Vec<String>)> = Vec::new();
    let mut not_compared = Vec::new();
    for ranking in advice.priorities.iter().flat_map(|p| &p.rankings) {
        let place = format!("{} at {}", ranking.metric.name(), ranking.load_point);
        let mut reasons = Vec::new();
        for tie in &ranking.ties {
            let pair = format!("{} and {}", tie.first, tie.second);
            let text = match &tie.verdict {
                Verdict::NotEstimable { reason } => {
                    let why = not_estimable(reason, Some(&tie.second));
                    reasons.push(format!("{pair}: {why}"));
                    continue;
                }
                Verdict::Equivalent => format!("{pair} do not differ by more than the noise floor"),
                Verdict::Different | Verdict::Inconclusive | Verdict::Overloaded(_) => {
                    format!("{pair}: inconclusive which is better")
                }
            };
            match undecided.iter_mut().find(|(known, _)| *known == text) {
                Some((_, places)) => places.push(place.clone()),
                None => undecided.push((text, vec![place.clone()])),
            }
        }
        not_compared.extend(without_comparison(&place, &reasons));
    }
    let undecided = undecided.into_iter();
    let undecided = undecided.map(|(text, places)| format!("{text} ({}).", places.join(", ")));
    undecided.chain(not_compared).collect()
}

/// How many pairs, and why the first; the document has all.
fn without_comparison(place: &str, reasons: &[String]) -> Option<String> {
    let first = reasons.first()?;
    Some(match reasons.len() {
        1 => format!("{place} is inconclusive for {first}."),
        count => format!("{place} is inconclusive for {count} pairs, such as {first}."),
    })
}
