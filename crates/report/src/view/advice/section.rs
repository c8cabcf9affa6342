//! What all sections of advice are made of.

use meshtax_model::advice::{Advice, AdvisedVariant, Standing};
use meshtax_model::experiment::{LoadPointId, PolicyLevel, VariantId};

use crate::format;
use crate::view::document::Block;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// A part of advice with its own heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) parts: Vec<Block>,
    pub(super) notes: Vec<String>,
}

impl Section {
    pub(super) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.parts.push(Block::Text(text.into(), Tone::Plain));
    }

    /// A table without rows is left out.
    pub(super) fn show(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.parts.push(Block::Table(table));
        }
    }
}

pub(super) fn is_apart(variant: &AdvisedVariant) -> bool {
    matches!(variant.standing, Standing::Floor | Standing::Emulation)
}

/// Rows of those that could be chosen, and of the floors and emulations by themselves.
pub(super) fn apart<T>(advice: &Advice, rows: &[T], id: impl Fn(&T) -> &VariantId) -> [Vec<T>; 2]
where
    T: Clone,
{
    let is_apart = |row: &&T| advice.variant(id(row)).is_some_and(is_apart);
    let (apart, choices): (Vec<&T>, Vec<&T>) = rows.iter().partition(is_apart);
    [choices, apart].map(|rows| rows.into_iter().cloned().collect())
}

/// Behind a table's title, of floors and emulations.
pub(super) const APART: &str = "floors and emulations, for reference";

pub(super) fn name_cell(advice: &Advice, id: &VariantId) -> Cell {
    let cell = Cell::text(id.0.clone());
    match advice.variant(id).map(|variant| variant.standing) {
        Some(Standing::Choice) => cell.toned(Tone::Strong),
        Some(Standing::Floor | Standing::Emulation) => cell.toned(Tone::Muted),
        Some(Standing::Baseline) | None => cell,
    }
}

pub(super) fn level_in_words(level: Option<PolicyLevel>) -> String {
    level.map_or_else(|| format::MISSING.to_owned(), |level| level.to_string())
}

/// `a, b`; a dash where there is none.
pub(super) fn list(ids: &[VariantId]) -> String {
    match ids {
        [] => format::MISSING.to_owned(),
        ids => {
            let names: Vec<&str> = ids.iter().map(|id| id.0.as_str()).collect();
            names.join(", ")
        }
    }
}

pub(super) fn table(
    title: impl Into<String>,
    detail: impl Into<String>,
    columns: Vec<Column>,
) -> Table {
    Table {
        title: title.into(),
        detail: detail.into(),
        columns,
        rows: Vec::new(),
        footnotes: Vec::new(),
    }
}

pub(super) fn left(head: &str) -> Column {
    Column::new(head, Align::Left, Keep::Always)
}

pub(super) fn at(point: &LoadPointId) -> Cell {
    Cell::text(point.0.clone())
}

pub(super) fn interval_of(advice: &Advice) -> String {
    format!(
        "[{} % interval]",
        format::trimmed(advice.confidence * 100.0)
    )
}
