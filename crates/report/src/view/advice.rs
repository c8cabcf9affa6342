//! The content of advice, section by section.

mod costs;
mod needs;
mod objectives;
mod priorities;
mod section;

use meshtax_model::advice::{Advice, Standing};
use meshtax_model::analysis::Caveat;
use meshtax_model::experiment::VariantId;

use self::section::{Section, list};
use super::changes::run;
use super::{caveats, notes};
use crate::view::document::Block;
use crate::view::source::Loads;
use crate::view::table::Tone;

/// All sections, in order.
pub(crate) fn advice(advice: &Advice) -> Vec<Block> {
    let sections = [
        needs::section(advice),
        objectives::section(advice),
        costs::section(advice),
        priorities::section(advice),
        priorities::questions(advice),
        limits(advice),
    ];
    let mut blocks = vec![Block::Title(format!(
        "meshtax advise: conclusions from run {}",
        advice.run.run.id
    ))];
    for section in sections {
        blocks.extend([Block::Gap, Block::Title(section.title)]);
        blocks.extend(section.parts);
        blocks.extend(section.notes.into_iter().map(Block::Item));
    }
    blocks.push(Block::Gap);
    let facts = [
        (
            "Run",
            format!("{}: {}", advice.experiment, run(&advice.run)),
        ),
        ("Machine", notes::machine(&advice.environment)),
    ];
    let facts = facts.into_iter();
    blocks.extend(facts.map(|(name, text)| Block::Text(format!("{name}: {text}"), Tone::Muted)));
    blocks
}

/// Inconclusive comparisons, and what such a machine cannot show.
fn limits(advice: &Advice) -> Section {
    let mut section = Section::new("6. Limitations");
    section.notes = priorities::ties(advice);
    section.notes.extend(notes::meaning(&advice.environment));
    let local = advice.environment.is_local();
    if local {
        section.notes.push(
            "Not covered: other hardware, the network between real nodes, control planes, and proxy memory in a \
             large mesh (here each proxy was configured with one service)."
                .to_owned(),
        );
    } else {
        section
            .notes
            .push("Not covered: other clusters and hardware, and control planes.".to_owned());
    }
    section.notes.push(
        "Absolute figures apply to this run on this machine: an objective that is met here may be missed \
         elsewhere."
            .to_owned(),
    );
    section.notes.extend(never_ranked(advice));
    let caveats = advice.caveats.iter();
    section
        .notes
        .extend(caveats.map(|caveat| caveats::sentence(caveat, Loads::BY_ID)));
    section
}

fn never_ranked(advice: &Advice) -> Option<String> {
    let of_kind = |standing| {
        let variants = advice
            .variants
            .iter()
            .filter(move |v| v.standing == standing);
        variants.map(|v| v.variant.clone())
    };
    let (references, floors): (Vec<VariantId>, Vec<VariantId>) =
        of_kind(Standing::Floor).partition(|id| costs_more_than_a_mesh(advice, id));
    let kinds = [
        (floors, "floor of user-space proxies"),
        (references, "reference: a mesh that does more costs less"),
        (
            of_kind(Standing::Emulation).collect(),
            "emulation of a mesh's architecture",
        ),
    ];
    let excluded: Vec<String> = kinds
        .iter()
        .filter(|(ids, _)| !ids.is_empty())
        .map(|(ids, what)| format!("{} ({what})", list(ids)))
        .collect();
    (!excluded.is_empty()).then(|| format!("Excluded from rankings: {}.", excluded.join("; ")))
}

/// Whether the run measured a mesh that costs less than this floor.
fn costs_more_than_a_mesh(advice: &Advice, id: &VariantId) -> bool {
    let mut caveats = advice.caveats.iter();
    caveats.any(|caveat| matches!(caveat, Caveat::BelowFloor { floor, .. } if floor == id))
}
