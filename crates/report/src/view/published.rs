//! What others publish: result sets, and facts of the meshes.
//!
//! Environment and caveats precede the figures, so that they are read first.

use meshtax_published::{Answer, Column as Published, Fact, Mesh, Meshes, ResultSet, Row};

use crate::format;
use crate::view::document::Block;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The placeholder for a fact without a source.
const NOT_FOUND: &str = "not found";

/// All result sets: name, year, subject and author.
pub(crate) fn list(sets: &[ResultSet]) -> Vec<Block> {
    let rows = sets.iter().map(|set| {
        vec![
            Cell::text(&set.name).toned(Tone::Strong),
            Cell::text(set.date.as_deref().unwrap_or(format::MISSING)),
            Cell::text(&set.title),
            Cell::text(&set.by),
        ]
    });
    let table = Table {
        title: "Published results".into(),
        detail: "measured by others in different environments: not comparable with each other"
            .into(),
        columns: vec![
            left("name", Keep::Always),
            left("date", Keep::Always),
            left("what", Keep::Always),
            left("by", Keep::Always),
        ],
        rows: rows.collect(),
        footnotes: Vec::new(),
    };
    let hint = "`meshtax published show NAME` prints one, with its environment and caveats";
    vec![
        Block::Table(table),
        Block::Gap,
        Block::Text(hint.into(), Tone::Muted),
    ]
}

/// One result set: source, environment and caveats, then the figures with the digits of the source.
pub(crate) fn result_set(set: &ResultSet) -> Vec<Block> {
    let mut parts = vec![Block::Title(format!("{} ({})", set.title, set.name))];
    let mut source = set.source.clone();
    if let Some(date) = &set.date {
        source.push_str(&format!(", {date}"));
    }
    parts.push(Block::Fact("source".into(), source));
    if let Some(url) = &set.url {
        parts.push(Block::Fact("      ".into(), url.clone()));
    }
    for (name, text) in [
        ("where ", &set.environment),
        ("load  ", &set.workload),
        ("what  ", &set.measures),
    ] {
        parts.push(Block::Fact(name.into(), text.clone()));
    }
    parts.push(Block::Gap);
    parts.push(Block::Text(
        "Before you read the figures".into(),
        Tone::Strong,
    ));
    let caveats = set.caveats.iter();
    parts.extend(caveats.map(|caveat| Block::Item(caveat.words.clone())));
    parts.push(Block::Gap);
    parts.push(Block::Table(figures(set)));
    parts
}

/// The figures as published; a single variant is part of the title.
fn figures(set: &ResultSet) -> Table {
    let alone = match set.variants.as_slice() {
        [variant] => Some(variant.name.as_str()),
        _ => None,
    };
    let mut columns: Vec<Column> = set
        .factors
        .iter()
        .map(|factor| {
            let unit = factor.unit.as_deref().unwrap_or_default();
            right(format!("{} {unit}", factor.name).trim())
        })
        .collect();
    if alone.is_none() {
        columns.push(left("variant", Keep::Always));
    }
    columns.extend(set.columns.iter().map(|column| right(&head(column))));
    let mut footnotes = Vec::new();
    let rows = set.rows.iter();
    let rows = rows.map(|row| cells(set, row, alone.is_none(), &mut footnotes));
    let rows = rows.collect();
    let title = "Figures".to_owned() + &alone.map_or(String::new(), |name| format!(" of {name}"));
    Table {
        title,
        detail: String::new(),
        columns,
        rows,
        footnotes,
    }
}

/// `nginx memory MiB`, `p75 over bare %`.
pub(crate) fn head(column: &Published) -> String {
    let of = column
        .of
        .as_deref()
        .map_or(String::new(), |of| format!("{of} "));
    let over = column.over.as_deref();
    let over = over.map_or(String::new(), |over| format!(" over {over}"));
    let name = column.metric.name();
    format!("{of}{name}{over} {}", column.unit.symbol())
}

fn cells(
    set: &ResultSet,
    row: &Row,
    with_variant: bool,
    footnotes: &mut Vec<(String, String)>,
) -> Vec<Cell> {
    let mut cells: Vec<Cell> = row.at.iter().map(Cell::text).collect();
    if with_variant {
        let name = set
            .variant(&row.variant)
            .map_or(row.variant.as_str(), |v| &v.name);
        cells.push(Cell::text(name));
    }
    if let (Some(remark), Some(last)) = (&row.remark, cells.last_mut()) {
        let footnote = footnotes.iter().find(|(_, text)| text == remark);
        let mark = footnote.map_or_else(
            || format!("[{}]", footnotes.len() + 1),
            |(mark, _)| mark.clone(),
        );
        *last = last.clone().marked(&format!(" {mark}"));
        if footnote.is_none() {
            footnotes.push((mark, remark.clone()));
        }
    }
    cells.extend(row.figures.iter().map(|figure| match figure {
        Some(figure) => Cell::text(&figure.published),
        None => Cell::missing(),
    }));
    cells
}

/// A table of features by mesh.
pub(crate) fn meshes(meshes: &Meshes) -> Vec<Block> {
    let mut columns = vec![left("feature", Keep::Always)];
    let names = meshes.meshes.iter();
    columns.extend(names.map(|mesh| left(&mesh.id, Keep::Always)));
    let rows = meshes.features.iter().map(|feature| {
        let mut row = vec![Cell::text(&feature.name)];
        row.extend(feature.facts.iter().map(|fact| answer(&fact.answer)));
        row
    });
    let table = Table {
        title: "Meshes".into(),
        detail: format!(
            "from the projects' documentation and other sources, read on {}",
            meshes.read
        ),
        rows: rows.collect(),
        columns,
        footnotes: Vec::new(),
    };
    let hint = "`meshtax mesh facts NAME` prints the details and the source of each answer. None of this was measured.";
    vec![
        Block::Table(table),
        Block::Gap,
        Block::Text(hint.into(), Tone::Muted),
    ]
}

/// One mesh: each fact with its words and its sources.
pub(crate) fn mesh(meshes: &Meshes, mesh: &Mesh) -> Vec<Block> {
    let title = format!("{}: documented features and operations", mesh.name);
    let mut parts = vec![Block::Title(title), Block::Gap];
    for feature in &meshes.features {
        if let Some(fact) = feature.of(&mesh.id) {
            parts.extend(fact_parts(&feature.name, fact));
        }
    }
    parts.push(Block::Gap);
    let read = format!(
        "Sources were read on {}. None of this was measured.",
        meshes.read
    );
    parts.push(Block::Text(read, Tone::Muted));
    parts
}

fn fact_parts(name: &str, fact: &Fact) -> Vec<Block> {
    let (short, tone) = short_answer(&fact.answer);
    let text = match (short, fact.words.as_str()) {
        (short, "") => format!("{name}: {short}"),
        (short, words) => format!("{name}: {short}. {words}"),
    };
    let mut parts = vec![Block::Text(text, tone)];
    let sources = fact.source.iter().chain(&fact.also);
    parts.extend(sources.map(|source| Block::Aside(source.clone())));
    parts
}

pub(super) fn answer(answer: &Answer) -> Cell {
    let (text, tone) = short_answer(answer);
    Cell::text(text).toned(tone)
}

/// In words, and how it is to be felt.
fn short_answer(answer: &Answer) -> (&str, Tone) {
    match answer {
        Answer::Unknown => (NOT_FOUND, Tone::Muted),
        Answer::Yes | Answer::Partly | Answer::No | Answer::Text(_) => {
            (answer.as_str(), Tone::Plain)
        }
    }
}

fn left(head: &str, keep: Keep) -> Column {
    Column::new(head, Align::Left, keep)
}

fn right(head: &str) -> Column {
    Column::new(head, Align::Right, Keep::Always)
}
