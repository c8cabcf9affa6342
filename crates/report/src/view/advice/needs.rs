//! Whether a mesh is needed at all.

use meshtax_model::advice::{Advice, Given, Need, NeedAnswer, Standing};

use super::section::{Section, left, level_in_words, list, table};
use crate::view::table::{Align, Cell, Column, Keep, Tone};

/// A description of the need.
fn what(need: Need) -> &'static str {
    match need {
        Need::Mtls => "encryption with verified identities",
        Need::IdentityPolicy => "authorization by peer identity",
        Need::HttpPolicy => "authorization by HTTP method and path",
        Need::HttpMetrics => "responses counted by status",
        Need::RequestBalancing => "per-request load balancing",
        Need::Retries => "retries",
        Need::Fips => "validated cryptography",
    }
}

/// The alternative without a mesh.
fn without(need: Need) -> &'static str {
    match need {
        Need::Mtls => {
            "encryption between nodes by the CNI plug-in (WireGuard, IPsec), without workload identities; TLS in \
             the applications"
        }
        Need::IdentityPolicy => {
            "network policies on labels and addresses, without verified identities; TLS in the applications"
        }
        Need::HttpPolicy => "in the applications; at a gateway, for ingress traffic",
        Need::HttpMetrics => "metrics in the applications; eBPF observability",
        Need::RequestBalancing => "client-side load balancing (as in gRPC); a gateway in between",
        Need::Retries => "client libraries",
        Need::Fips => "validated cryptographic libraries in the applications",
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
            "Encryption alone is also available from the CNI plug-in, between nodes and without workload \
             identities.",
        );
    }
    let columns = vec![
        left("need"),
        Column::new("what", Align::Left, Keep::IfItFits(1)),
        left("lowest level"),
        left("provided by"),
    ];
    let mut needs = table(
        "What a mesh provides",
        "as proven by this run's probes",
        columns,
    );
    needs.rows = advice.needs.iter().map(|need| row(advice, need)).collect();
    section.show(needs);
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
        return "No requirement is given (--need). Without one, no mesh is needed: it would cost what is listed below \
         and provide nothing that is required."
            .to_owned();
    }
    let asked = asked.join(", ");
    if advice.asked.needs.iter().all(|need| *need == Need::Fips) {
        return format!("For {asked}, which a run cannot show: see the facts below.");
    }
    if advice.sufficient.is_empty() {
        return format!(
            "For {asked}, a mesh may be needed; no variant of this run is proven to provide all of it."
        );
    }
    format!(
        "For {asked}, a mesh provides it, unless one of the alternatives below is sufficient. Lowest level \
         proven to provide all of it, per data plane: {}.",
        list(&advice.sufficient)
    )
}

/// A need that was observed to be unmet differs from one that was not probed.
fn by_none(advice: &Advice, need: Need) -> &'static str {
    let choices = advice.variants.iter();
    let choices = choices.filter(|v| v.standing == Standing::Choice);
    let mut gives = choices.flat_map(|variant| &variant.gives);
    if gives.any(|gives| gives.need == need && gives.given == Given::No) {
        "none"
    } else {
        "not proven by this run"
    }
}

fn row(advice: &Advice, answer: &NeedAnswer) -> Vec<Cell> {
    let name = Cell::text(answer.need.name());
    let given = match answer.need {
        Need::Fips => Cell::text("a run cannot show it").toned(Tone::Muted),
        need if answer.given_by.is_empty() => Cell::text(by_none(advice, need)).toned(Tone::Muted),
        _ => Cell::text(list(&answer.given_by)),
    };
    vec![
        if answer.asked {
            name.toned(Tone::Strong).marked(" (required)")
        } else {
            name
        },
        Cell::text(what(answer.need)),
        Cell::text(level_in_words(answer.level)),
        given,
    ]
}
