//! What an advice says, section by section.

mod costs;
mod needs;
mod objectives;
mod priorities;

use meshtax_model::advice::{Advice, AdvisedVariant, Standing};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, VariantId};

use super::changes::run;
use super::{Align, Cell, Column, Keep, Part, Table, Tone, notes};
use crate::format;

/// Sections of text and tables, in the order in which they are to be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
    /// Name and text.
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) notes: Vec<String>,
}

impl Section {
    fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into(), Tone::Plain));
    }

    /// A table without rows says nothing.
    fn show(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.parts.push(Part::Table(table));
        }
    }
}

impl Document {
    /// All of it, one below the other.
    pub(crate) fn parts(self) -> Vec<Part> {
        let mut parts = vec![Part::Title(self.title)];
        for section in self.sections {
            parts.extend([Part::Gap, Part::Title(section.title)]);
            parts.extend(section.parts);
            parts.extend(section.notes.into_iter().map(Part::Item));
        }
        parts.push(Part::Gap);
        let facts = self.facts.into_iter();
        parts.extend(facts.map(|(name, text)| Part::Text(format!("{name}: {text}"), Tone::Muted)));
        parts
    }

    /// What an advice says.
    pub(crate) fn of_advice(advice: &Advice) -> Self {
        let sections = vec![
            needs::section(advice),
            objectives::section(advice),
            costs::section(advice),
            priorities::section(advice),
            priorities::questions(advice),
            limits(advice),
        ];
        Self {
            title: format!("meshtax advise: what the run {} answers", advice.run.run.id),
            sections,
            facts: vec![
                (
                    "Run",
                    format!("{}: {}", advice.experiment, run(&advice.run)),
                ),
                ("Machine", notes::machine(&advice.environment)),
            ],
        }
    }
}

/// What is not told apart, and what such a machine does not show.
fn limits(advice: &Advice) -> Section {
    let mut section = Section::new("6. What this does not say");
    section.notes = priorities::ties(advice);
    section
        .notes
        .extend(notes::meaning(&advice.environment.layout));
    let local = advice.environment.engine == "local";
    if local {
        section.notes.push(
            "Not covered: other hardware, the network between real nodes, control planes, and what a proxy holds of \
             a large mesh (here it knew one service)."
                .to_owned(),
        );
    } else {
        section
            .notes
            .push("Not covered: other clusters and hardware, and control planes.".to_owned());
    }
    section.notes.push(
        "Levels are those of this run, on this machine: an objective that is met here is not met elsewhere by that."
            .to_owned(),
    );
    section.notes.extend(never_ranked(advice));
    section.notes.extend(advice.caveats.iter().cloned());
    section
}

fn is_apart(variant: &AdvisedVariant) -> bool {
    matches!(variant.standing, Standing::Floor | Standing::Emulation)
}

fn never_ranked(advice: &Advice) -> Option<String> {
    let kinds = [
        (Standing::Floor, "what any proxy costs at the least"),
        (Standing::Emulation, "a mesh's shape, emulated"),
    ];
    let said = kinds.iter().filter_map(|(standing, what)| {
        let of_kind = advice.variants.iter().filter(|v| v.standing == *standing);
        let ids: Vec<VariantId> = of_kind.map(|v| v.variant.clone()).collect();
        (!ids.is_empty()).then(|| format!("{} ({what})", list(&ids)))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("Never ranked among meshes: {}.", said.join("; ")))
}

/// Rows of those that could be chosen, and of the floors and emulations by themselves.
fn apart<T>(advice: &Advice, rows: &[T], id: impl Fn(&T) -> &VariantId) -> [Vec<T>; 2]
where
    T: Clone,
{
    let is_apart = |row: &&T| advice.variant(id(row)).is_some_and(is_apart);
    let (apart, choices): (Vec<&T>, Vec<&T>) = rows.iter().partition(is_apart);
    [choices, apart].map(|rows| rows.into_iter().cloned().collect())
}

/// Behind a table's title, of floors and emulations.
const APART: &str = "floors and emulations, no choice";

fn name_cell(advice: &Advice, id: &VariantId) -> Cell {
    let cell = Cell::text(id.0.clone());
    match advice.variant(id).map(|variant| variant.standing) {
        Some(Standing::Choice) => cell.toned(Tone::Strong),
        Some(Standing::Floor | Standing::Emulation) => cell.toned(Tone::Muted),
        Some(Standing::Baseline) | None => cell,
    }
}

fn level_in_words(level: Option<PolicyLevel>) -> String {
    level.map_or_else(|| format::MISSING.to_owned(), |level| level.to_string())
}

/// `a, b`; a dash where there is none.
fn list(ids: &[VariantId]) -> String {
    match ids {
        [] => format::MISSING.to_owned(),
        ids => {
            let names: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
            names.join(", ")
        }
    }
}

fn table(title: impl Into<String>, detail: impl Into<String>, columns: Vec<Column>) -> Table {
    Table {
        title: title.into(),
        detail: detail.into(),
        columns,
        rows: Vec::new(),
        footnotes: Vec::new(),
    }
}

fn left(head: &str) -> Column {
    Column::new(head, Align::Left, Keep::Always)
}

fn at(point: &LoadPointId) -> Cell {
    Cell::text(point.0.clone())
}

fn interval_of(advice: &Advice) -> String {
    format!(
        "[{} % interval]",
        format::trimmed(advice.confidence * 100.0)
    )
}
