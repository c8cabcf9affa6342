//! What comes first by each priority, and what the cluster's own ways change.

use meshtax_model::advice::{Advice, FeatureFacts, Priority, PriorityAnswer, Ranking};
use meshtax_model::analysis::Verdict;

use super::{Section, left, level_in_words, table};
use crate::format::MISSING;
use crate::view::{Cell, Table, Tone};

/// Said over every table of facts.
const FACTS: &str = "facts side by side, no score; words and sources: meshtax meshes NAME";

/// What stands where a merge of sources has nothing.
const NO_FACTS: &str = "no facts given";

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("4. What comes first by each priority?");
    let stands: Vec<String> = advice
        .variants
        .iter()
        .filter_map(|v| Some(format!("{} for {}", v.variant, v.mesh.as_ref()?)))
        .collect();
    if !stands.is_empty() {
        section.say(format!("Here stands {}.", stands.join(", ")));
    }
    for answer in &advice.priorities {
        let name = answer.priority.name();
        if answer.priority.features().is_empty() {
            let told = ranked(advice, answer);
            if told.rows.is_empty() {
                section.say(nothing(advice, answer));
            }
            section.show(told);
        } else if known(&answer.facts) {
            section.show(facts(name, &answer.facts));
        } else {
            section.say(format!("{name}: {NO_FACTS}."));
        }
    }
    if advice.priorities.iter().any(|p| !p.rankings.is_empty()) {
        section.notes.push(
            "A place is one more than those shown to be better, by paired differences adjusted over the whole run that \
             exclude zero and exceed the noise floor. Those that share a place are not ranked among each other."
                .to_owned(),
        );
    }
    if advice
        .priorities
        .iter()
        .any(|p| p.priority == Priority::Cost)
    {
        section.notes.push(
            "Memory is not compared variant by variant in a run: its figures stand side by side in 3.".to_owned(),
        );
    }
    section
}

fn nothing(advice: &Advice, answer: &PriorityAnswer) -> String {
    let name = answer.priority.name();
    if !answer.rankings.is_empty() {
        return format!(
            "{name}: nothing to rank, no comparison in this run could be estimated (see 6)."
        );
    }
    let among = if advice.asked.has_needs() {
        "that give what is needed"
    } else {
        "of one level"
    };
    format!("{name}: nothing to rank, no two choices {among} were compared in this run.")
}

fn ranked(advice: &Advice, answer: &PriorityAnswer) -> Table {
    let columns = vec![left("by"), left("at"), left("level"), left("order")];
    let mut told = table(answer.priority.name(), "the best first", columns);
    let row = |ranking: &Ranking| {
        vec![
            Cell::text(ranking.metric.name()),
            Cell::text(ranking.load_point.0.clone()),
            match ranking.level {
                None if advice.asked.has_needs() => Cell::text("as needed").toned(Tone::Muted),
                level => Cell::text(level_in_words(level)),
            },
            Cell::text(order(ranking)),
        ]
    };
    let with_places = answer.rankings.iter().filter(|r| !r.places.is_empty());
    told.rows = with_places.map(row).collect();
    told
}

/// `1. a, b; 3. c`: who shares a place stands together, in no order.
fn order(ranking: &Ranking) -> String {
    let mut places: Vec<(u32, Vec<&str>)> = Vec::new();
    for place in &ranking.places {
        let name = place.variant.0.as_str();
        match places.last_mut() {
            Some((number, names)) if *number == place.place => names.push(name),
            _ => places.push((place.place, vec![name])),
        }
    }
    let mut parts: Vec<String> = places
        .into_iter()
        .map(|(number, names)| format!("{number}. {}", names.join(", ")))
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

fn known(features: &[FeatureFacts]) -> bool {
    let mut meshes = features.iter().flat_map(|feature| &feature.meshes);
    meshes.any(|mesh| mesh.fact.is_some())
}

/// Side by side; nothing is added up. Each answer's words and source are many lines: they are told elsewhere.
fn facts(title: &str, features: &[FeatureFacts]) -> Table {
    let mut meshes: Vec<&str> = Vec::new();
    for mesh in features.iter().flat_map(|feature| &feature.meshes) {
        if !meshes.contains(&mesh.mesh.as_str()) {
            meshes.push(&mesh.mesh);
        }
    }
    let columns = std::iter::once(left("feature")).chain(meshes.iter().map(|mesh| left(mesh)));
    let mut told = table(title, FACTS, columns.collect());
    for feature in features {
        let answer = |mesh: &&str| {
            let of_mesh = feature.meshes.iter().find(|known| known.mesh == **mesh);
            match of_mesh.and_then(|known| known.fact.as_ref()) {
                None => Cell::missing(),
                Some(fact) => Cell::text(fact.answer.clone()),
            }
        };
        let name = Cell::text(feature.feature.clone());
        let row = std::iter::once(name).chain(meshes.iter().map(answer));
        told.rows.push(row.collect());
    }
    told
}

pub(super) fn questions(advice: &Advice) -> Section {
    let mut section = Section::new("5. What does your cluster change?");
    if advice.questions.is_empty() {
        let none = "Nothing is said of it: --cni, --managed, --need fips.";
        section.say(none);
    }
    for question in &advice.questions {
        if known(&question.facts) {
            section.show(facts(&question.asked, &question.facts));
        } else {
            section.say(format!("{}: {NO_FACTS}.", question.asked));
        }
    }
    section
}

/// Pairs that a ranking leaves side by side: those that are not told apart, then those that were not compared.
pub(super) fn ties(advice: &Advice) -> Vec<String> {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    let mut not_compared = Vec::new();
    for ranking in advice.priorities.iter().flat_map(|p| &p.rankings) {
        let place = format!("{} at {}", ranking.metric.name(), ranking.load_point);
        let mut reasons = Vec::new();
        for tie in &ranking.ties {
            let pair = format!("{} and {}", tie.first, tie.second);
            let text = match &tie.verdict {
                Verdict::NotEstimable { reason } => {
                    reasons.push(format!("{pair}: {reason}"));
                    continue;
                }
                Verdict::Equivalent => format!("{pair} do not differ by more than the noise floor"),
                Verdict::Different | Verdict::NotDistinguishable => {
                    format!("{pair} are not distinguishable")
                }
            };
            match told.iter_mut().find(|(known, _)| *known == text) {
                Some((_, places)) => places.push(place.clone()),
                None => told.push((text, vec![place.clone()])),
            }
        }
        not_compared.extend(without_comparison(&place, &reasons));
    }
    let told = told.into_iter();
    let told = told.map(|(text, places)| format!("{text} ({}).", places.join(", ")));
    told.chain(not_compared).collect()
}

/// How many pairs, and why the first; the document has all.
fn without_comparison(place: &str, reasons: &[String]) -> Option<String> {
    let first = reasons.first()?;
    Some(match reasons.len() {
        1 => format!("{place} could not be compared for {first}."),
        count => format!("{place} could not be compared for {count} pairs, such as {first}."),
    })
}
