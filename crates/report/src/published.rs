//! What others publish, as text and JSON: result sets, and facts of the meshes.
//!
//! Environment and caveats come before the figures, so that nobody reads a figure without them.

use meshtax_model::FORMAT_VERSION;
use meshtax_published::{Answer, Column as Published, Fact, Mesh, Meshes, ResultSet, Row};
use serde::Serialize;

use crate::TerminalOptions;
use crate::terminal::document;
use crate::view::Part;
use crate::view::{Align, Cell, Column, Keep, Table, Tone};
use crate::{format, pretty};

/// What stands for an answer that no source was found for.
const NOT_FOUND: &str = "not found";

/// All result sets: name, year, what and by whom.
#[must_use]
pub fn published_list_terminal(sets: &[ResultSet], options: TerminalOptions) -> String {
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
        detail: "measured by others, in other places: not comparable with each other".into(),
        columns: vec![
            left("name", Keep::Always),
            left("date", Keep::Always),
            left("what", Keep::Always),
            left("by", Keep::Always),
        ],
        rows: rows.collect(),
        footnotes: Vec::new(),
    };
    let hint =
        "`meshtax published show NAME` prints one, with its environment and what is wrong with it";
    let parts = [
        Part::Table(table),
        Part::Gap,
        Part::Text(hint.into(), Tone::Muted),
    ];
    document(&parts, options)
}

/// One result set: source, environment and caveats, then the figures with the digits of the source.
#[must_use]
pub fn published_terminal(set: &ResultSet, options: TerminalOptions) -> String {
    let mut parts = vec![Part::Title(format!("{} ({})", set.title, set.name))];
    let mut source = set.source.clone();
    if let Some(date) = &set.date {
        source.push_str(&format!(", {date}"));
    }
    parts.push(Part::Fact("source".into(), source));
    if let Some(url) = &set.url {
        parts.push(Part::Fact("      ".into(), url.clone()));
    }
    for (name, text) in [
        ("where ", &set.environment),
        ("load  ", &set.workload),
        ("what  ", &set.measures),
    ] {
        parts.push(Part::Fact(name.into(), text.clone()));
    }
    parts.push(Part::Gap);
    parts.push(Part::Text(
        "Before you read the figures".into(),
        Tone::Strong,
    ));
    let caveats = set.caveats.iter();
    parts.extend(caveats.map(|caveat| Part::Item(caveat.words.clone())));
    parts.push(Part::Gap);
    parts.push(Part::Table(figures(set)));
    document(&parts, options)
}

/// The figures as they were published; a variant that is alone goes into the title.
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
        let said = footnotes.iter().find(|(_, text)| text == remark);
        let mark = said.map_or_else(
            || format!("[{}]", footnotes.len() + 1),
            |(mark, _)| mark.clone(),
        );
        *last = last.clone().marked(&format!(" {mark}"));
        if said.is_none() {
            footnotes.push((mark, remark.clone()));
        }
    }
    cells.extend(row.figures.iter().map(|figure| match figure {
        Some(figure) => Cell::text(&figure.published),
        None => Cell::missing(),
    }));
    cells
}

/// Features against meshes: an answer each.
#[must_use]
pub fn meshes_terminal(meshes: &Meshes, options: TerminalOptions) -> String {
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
        detail: format!("what their makers and others say, read on {}", meshes.read),
        rows: rows.collect(),
        columns,
        footnotes: Vec::new(),
    };
    let hint = "`meshtax meshes NAME` has the words and the source of each answer. None of this was measured.";
    let parts = [
        Part::Table(table),
        Part::Gap,
        Part::Text(hint.into(), Tone::Muted),
    ];
    document(&parts, options)
}

/// One mesh: each fact with its words and its sources.
#[must_use]
pub fn mesh_terminal(meshes: &Meshes, mesh: &Mesh, options: TerminalOptions) -> String {
    let title = format!("{}: what its makers and others say", mesh.name);
    let mut parts = vec![Part::Title(title), Part::Gap];
    for feature in &meshes.features {
        if let Some(fact) = feature.of(&mesh.id) {
            parts.extend(fact_parts(&feature.name, fact));
        }
    }
    parts.push(Part::Gap);
    let read = format!(
        "Sources were read on {}. None of this was measured.",
        meshes.read
    );
    parts.push(Part::Text(read, Tone::Muted));
    document(&parts, options)
}

fn fact_parts(name: &str, fact: &Fact) -> Vec<Part> {
    let (short, tone) = said(&fact.answer);
    let text = match (short, fact.words.as_str()) {
        (short, "") => format!("{name}: {short}"),
        (short, words) => format!("{name}: {short}. {words}"),
    };
    let mut parts = vec![Part::Text(text, tone)];
    let sources = fact.source.iter().chain(&fact.also);
    parts.extend(sources.map(|source| Part::Aside(source.clone())));
    parts
}

fn answer(answer: &Answer) -> Cell {
    let (text, tone) = said(answer);
    Cell::text(text).toned(tone)
}

/// In words, and how it is to be felt.
fn said(answer: &Answer) -> (&str, Tone) {
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

/// All result sets without their figures.
#[must_use]
pub fn published_list_json(sets: &[ResultSet]) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        name: &'a str,
        title: &'a str,
        by: &'a str,
        source: &'a str,
        url: Option<&'a str>,
        date: Option<&'a str>,
        measures: &'a str,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        results: Vec<Entry<'a>>,
    }
    let results = sets.iter().map(|set| Entry {
        name: &set.name,
        title: &set.title,
        by: &set.by,
        source: &set.source,
        url: set.url.as_deref(),
        date: set.date.as_deref(),
        measures: &set.measures,
    });
    pretty(&Document {
        format_version: FORMAT_VERSION,
        results: results.collect(),
    })
}

/// One result set, whole: each figure with the digits of its source and in base units.
#[must_use]
pub fn published_json(set: &ResultSet) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        result: &'a ResultSet,
        /// The unit of `value` in each column.
        base_units: Vec<meshtax_published::BaseUnit>,
    }
    pretty(&Document {
        format_version: FORMAT_VERSION,
        result: set,
        base_units: set.columns.iter().map(Published::base_unit).collect(),
    })
}

/// All facts of all meshes.
#[must_use]
pub fn meshes_json(meshes: &Meshes) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        read: &'a str,
        meshes: &'a [Mesh],
        features: &'a [meshtax_published::Feature],
    }
    pretty(&Document {
        format_version: FORMAT_VERSION,
        read: &meshes.read,
        meshes: &meshes.meshes,
        features: &meshes.features,
    })
}

/// The facts of one mesh, by the ids of the features.
#[must_use]
pub fn mesh_json(meshes: &Meshes, mesh: &Mesh) -> String {
    #[derive(Serialize)]
    struct Entry<'a> {
        feature: &'a str,
        name: &'a str,
        fact: &'a Fact,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        format_version: u32,
        mesh: &'a Mesh,
        facts: Vec<Entry<'a>>,
    }
    let facts = meshes.features.iter().filter_map(|feature| {
        Some(Entry {
            feature: &feature.id,
            name: &feature.name,
            fact: feature.of(&mesh.id)?,
        })
    });
    pretty(&Document {
        format_version: FORMAT_VERSION,
        mesh,
        facts: facts.collect(),
    })
}
