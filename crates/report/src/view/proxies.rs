//! The usage of each proxy: CPU per request and memory.

use meshtax_model::analysis::VariantAnalysis;
use meshtax_model::experiment::{Role, Variant};
use meshtax_model::trial::ComponentRole;

use crate::format::{CPU_MS_PER_1K, MIB, MISSING, grouped};
use crate::view::labels::name_cell;
use crate::view::limits::{THROTTLED, cpu_text, is_throttled};
use crate::view::source::{Source, load_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table};

const SIDES: [(ComponentRole, &str); 4] = [
    (ComponentRole::ClientProxy, "client proxy"),
    (ComponentRole::ServerProxy, "server proxy"),
    (ComponentRole::Waypoint, "waypoint"),
    (ComponentRole::Gateway, "gateway"),
];

/// One row per measured candidate, and per baseline behind a gateway; `None` without proxies.
pub(crate) fn table(source: Source<'_>) -> Option<Table> {
    // The baseline can have a gateway, too.
    let with_proxies = || {
        let measured = source.measured();
        measured.filter(|(asked, found)| {
            asked.role == Role::Candidate || seen(found, ComponentRole::Gateway)
        })
    };
    // A column for what no variant has would only take room.
    let sides: Vec<(ComponentRole, &str)> = SIDES
        .into_iter()
        .filter(|(role, _)| {
            let is_usual = matches!(
                role,
                ComponentRole::ClientProxy | ComponentRole::ServerProxy
            );
            is_usual || with_proxies().any(|(_, found)| seen(found, *role))
        })
        .collect();
    let rows: Vec<Vec<Cell>> = with_proxies()
        .filter(|(_, found)| sides.iter().any(|(role, _)| seen(found, *role)))
        .map(|(asked, found)| row(source, asked, found, &sides))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut columns = vec![Column::new("variant", Align::Left, Keep::Always)];
    for (_, side) in &sides {
        let cpu = format!("{side} {}", CPU_MS_PER_1K.name);
        columns.push(Column::new(cpu, Align::Right, Keep::Always));
        columns.push(Column::new(MIB.name, Align::Right, Keep::Always));
    }
    let points: Vec<String> = source.points().map(load_in_words).collect();
    Some(Table {
        title: "Proxies".to_owned(),
        detail: format!("CPU: at {}; memory: anonymous/file/PSS", points.join(" / ")),
        columns,
        rows,
        footnotes: with_proxies()
            .any(|(_, found)| is_throttled(found))
            .then(|| (String::new(), THROTTLED.to_owned()))
            .into_iter()
            .collect(),
    })
}

fn seen(found: &VariantAnalysis, role: ComponentRole) -> bool {
    let mut accounts = found.points.iter().filter_map(|p| p.cpu.as_ref());
    found.memory.iter().any(|m| m.role == role)
        || accounts.any(|a| a.components.iter().any(|c| c.role == role))
}

fn row(
    source: Source<'_>,
    asked: &Variant,
    found: &VariantAnalysis,
    sides: &[(ComponentRole, &str)],
) -> Vec<Cell> {
    let mut cells = vec![name_cell(asked)];
    for (role, _) in sides {
        if !seen(found, *role) {
            cells.extend([Cell::empty(), Cell::empty()]);
            continue;
        }
        cells.push(cpu_cell(source, found, *role));
        cells.push(memory_cell(found, *role));
    }
    cells
}

/// In the order of the load points.
fn cpu_cell(source: Source<'_>, found: &VariantAnalysis, role: ComponentRole) -> Cell {
    let figures: Vec<Option<String>> = source
        .points()
        .map(|point| cpu_text(point_of(found, &point.id)?.cpu.as_ref()?, role))
        .collect();
    if figures.iter().all(Option::is_none) {
        return Cell::missing();
    }
    let texts: Vec<&str> = figures
        .iter()
        .map(|f| f.as_deref().unwrap_or(MISSING))
        .collect();
    Cell::text(texts.join(" / "))
}

fn memory_cell(found: &VariantAnalysis, role: ComponentRole) -> Cell {
    let mib = |bytes: u64| {
        let value = bytes as f64 * MIB.factor;
        grouped(value, usize::from(value < 10.0))
    };
    let of_role = found.memory.iter().filter(|m| m.role == role);
    let texts: Vec<String> = of_role
        .map(|m| {
            [m.anonymous_bytes, m.file_bytes, m.pss_bytes]
                .map(mib)
                .join("/")
        })
        .collect();
    if texts.is_empty() {
        return Cell::missing();
    }
    Cell::text(texts.join("; "))
}
