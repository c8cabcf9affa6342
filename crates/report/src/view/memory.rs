//! What a proxy holds in memory.

use meshtax_model::analysis::VariantAnalysis;
use meshtax_model::experiment::Role;
use meshtax_model::trial::ComponentRole;

use super::figures::name_cell;
use super::{Align, Cell, Column, Keep, Source, Table};
use crate::format::{MIB, grouped};

/// One row per measured candidate; `None` if no proxy was seen.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    let rows: Vec<Vec<Cell>> = source
        .measured()
        .filter(|(asked, _)| asked.role == Role::Candidate)
        .filter(|(_, found)| found.memory.iter().any(|m| is_proxy(m.role)))
        .map(|(asked, found)| {
            vec![
                name_cell(asked),
                memory_cell(found, ComponentRole::ClientProxy),
                memory_cell(found, ComponentRole::ServerProxy),
            ]
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let column = |head: &str| Column::new(head, Align::Left, Keep::Always);
    Some(Table {
        title: "Memory per proxy, MiB".to_owned(),
        detail: "anonymous / file / PSS".to_owned(),
        columns: vec![
            column("variant"),
            column("client proxy"),
            column("server proxy"),
        ],
        rows,
        footnotes: Vec::new(),
    })
}

fn is_proxy(role: ComponentRole) -> bool {
    matches!(
        role,
        ComponentRole::ClientProxy | ComponentRole::ServerProxy
    )
}

fn memory_cell(found: &VariantAnalysis, role: ComponentRole) -> Cell {
    let mib = |bytes: u64| {
        let value = bytes as f64 * MIB.factor;
        grouped(value, usize::from(value < 100.0))
    };
    let texts: Vec<String> = found
        .memory
        .iter()
        .filter(|m| m.role == role)
        .map(|m| {
            format!(
                "{} / {} / {}",
                mib(m.anonymous_bytes),
                mib(m.file_bytes),
                mib(m.pss_bytes)
            )
        })
        .collect();
    if texts.is_empty() {
        return Cell::missing();
    }
    Cell::text(texts.join("; "))
}
