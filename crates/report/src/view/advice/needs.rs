//! Whether a mesh is needed at all.

use meshtax_model::advice::{Advice, Given, Need, NeedAnswer, Standing};

use super::{Section, left, level_in_words, list, table};
use crate::view::{Align, Cell, Column, Keep, Tone};

/// What it is, in words.
fn what(need: Need) -> &'static str {
    match need {
        Need::Mtls => "encryption with verified identities",
        Need::IdentityPolicy => "policy on the peer's identity",
        Need::HttpPolicy => "policy on HTTP's method and path",
        Need::HttpMetrics => "answers counted by status",
        Need::RequestBalancing => "requests of one connection spread over replicas",
        Need::Retries => "failed requests sent again",
        Need::Fips => "validated cryptography",
    }
}

/// How it may be had without one.
fn without(need: Need) -> &'static str {
    match need {
        Need::Mtls => {
            "encryption between nodes by the network plug-in (WireGuard, IPsec), without an identity of each \
             workload; TLS in the applications"
        }
        Need::IdentityPolicy => {
            "network policies on labels and addresses, without verified identities; TLS in the applications"
        }
        Need::HttpPolicy => "in the applications; at a gateway, for what comes through it",
        Need::HttpMetrics => "applications that count; observers by eBPF",
        Need::RequestBalancing => "clients that balance (gRPC's own); a gateway in between",
        Need::Retries => "the clients' libraries",
        Need::Fips => "validated libraries in the applications",
    }
}

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("1. Is a mesh needed?");
    section.say(answer(advice));
    let asked = &advice.asked.needs;
    if asked
        .iter()
        .all(|need| matches!(need, Need::Mtls | Need::Fips))
        && !asked.is_empty()
    {
        section.say(
            "Encryption alone may come from the network plug-in, between nodes and without an identity of each \
             workload.",
        );
    }
    let columns = vec![
        left("need"),
        Column::new("what", Align::Left, Keep::IfItFits(1)),
        left("lowest level"),
        left("given here by"),
    ];
    let mut told = table("What a mesh gives", "as this run's probes saw it", columns);
    told.rows = advice.needs.iter().map(|need| row(advice, need)).collect();
    section.show(told);
    let relevant = |answer: &&NeedAnswer| answer.asked || asked.is_empty();
    let relevant = advice.needs.iter().filter(relevant);
    let alternatives = relevant.map(|answer| {
        let need = answer.need;
        format!("{} without a mesh: {}.", need.name(), without(need))
    });
    section.notes.extend(alternatives);
    section
}

fn answer(advice: &Advice) -> String {
    let asked: Vec<&str> = advice.asked.needs.iter().map(|need| need.name()).collect();
    if asked.is_empty() {
        return "No need is named (--need). Without one the answer is no mesh: it would cost what stands below, and \
                give what is not asked for."
            .to_owned();
    }
    let asked = asked.join(", ");
    if advice.asked.needs.iter().all(|need| *need == Need::Fips) {
        return format!("For {asked}, which no run shows: see the facts below.");
    }
    if advice.sufficient.is_empty() {
        return format!(
            "For {asked}, a mesh may be what is needed; no variant of this run is shown to give all of it."
        );
    }
    format!(
        "For {asked}: a mesh gives it, unless what stands below will do. The lowest that is shown to give all of it, of \
         each data plane: {}.",
        list(&advice.sufficient)
    )
}

/// Seen not to be given is not the same as not looked at.
fn by_none(advice: &Advice, need: Need) -> &'static str {
    let choices = advice.variants.iter();
    let choices = choices.filter(|v| v.standing == Standing::Choice);
    let mut gives = choices.flat_map(|variant| &variant.gives);
    if gives.any(|gives| gives.need == need && gives.given == Given::No) {
        "none"
    } else {
        "not shown by this run"
    }
}

fn row(advice: &Advice, answer: &NeedAnswer) -> Vec<Cell> {
    let name = Cell::text(answer.need.name());
    let given = match answer.need {
        Need::Fips => Cell::text("no run shows it").toned(Tone::Muted),
        need if answer.given_by.is_empty() => Cell::text(by_none(advice, need)).toned(Tone::Muted),
        _ => Cell::text(list(&answer.given_by)),
    };
    vec![
        if answer.asked {
            name.toned(Tone::Strong).marked(" (asked)")
        } else {
            name
        },
        Cell::text(what(answer.need)),
        Cell::text(level_in_words(answer.level)),
        given,
    ]
}
