//! Markdown for code hosts: comments, documents and pages.

pub(crate) mod page;

use crate::draw;
use crate::text::clean;
use crate::view::chart::{Chapter, Choice, Figure};
use crate::view::charts::WITHIN_A_TRIAL;
use crate::view::document::{EvidenceLine, Proof, View};
use crate::view::headings;
use crate::view::table::{Align, Cell, Table, Tone, plain_cell};

/// Of a figure with more drawings, the rest is on the HTML page only, unless all are shown.
const PICTURES_MAX: usize = 6;

/// The pictures of figures, as name and SVG.
pub(crate) fn pictures<'a>(figures: impl Iterator<Item = &'a Figure>) -> Vec<(String, String)> {
    let all = figures.flat_map(|figure| {
        let choices = drawn(figure).iter().enumerate();
        choices.map(|(at, choice)| {
            let title = match figure.choices.len() {
                1 => figure.title.clone(),
                _ => format!("{}: {}", figure.title, choice.label),
            };
            (
                file_name(figure, at),
                draw::alone(&choice.chart, &title, &choice.alt),
            )
        })
    });
    all.collect()
}

/// The drawings that are files.
fn drawn(figure: &Figure) -> &[Choice] {
    let most = match is_all_shown(figure) {
        true => usize::MAX,
        false => PICTURES_MAX,
    };
    &figure.choices[..figure.choices.len().min(most)]
}

/// Studies show the course of the run of each component at each load.
fn is_all_shown(figure: &Figure) -> bool {
    figure.chapter == Chapter::Time && figure.id != WITHIN_A_TRIAL
}

fn file_name(figure: &Figure, at: usize) -> String {
    match at {
        0 => format!("{}.svg", figure.id),
        at => format!("{}-{}.svg", figure.id, at + 1),
    }
}

/// Lays a view out as Markdown. `pictures_in`: the folder that has the pictures, as the text's readers
/// find it.
pub(crate) fn render(view: &View, pictures_in: Option<&str>) -> String {
    let mut out = format!("### {}\n\n", escaped(&view.title));
    if let Some(partial) = &view.partial {
        out.push_str(&format!("> **{}**\n\n", escaped(partial)));
    }
    out.push_str(&format!("{}\n\n", escaped(&view.lead_line())));
    for headline in &view.headlines {
        let clauses = escaped(&headline.clauses.join("; "));
        let name = escaped(&headline.variant);
        out.push_str(&format!("- **{name}**: {clauses}\n"));
    }
    if !view.headlines.is_empty() {
        out.push('\n');
    }
    for text in &view.meaning {
        out.push_str(&format!("{}\n\n", escaped(text)));
    }
    let chapter = |chapters: &[Chapter]| match pictures_in {
        Some(folder) => picture_texts(view, chapters, folder),
        None => String::new(),
    };
    out.push_str(&chapter(&[Chapter::Overheads]));
    for table in view.tables.iter().chain(&view.decision) {
        out.push_str(&table_text(table));
    }
    out.push_str(&chapter(&Chapter::ALL[1..]));
    out.push_str(&evidence(view));
    if !view.details.is_empty() || !view.checks.is_empty() {
        out.push_str(&summary(headings::FOLDED));
        for table in view.details.iter().chain(&view.checks) {
            out.push_str(&table_text(table));
        }
        out.push_str("</details>\n");
    }
    out.push_str(&summary(headings::NOTES));
    for note in &view.notes {
        out.push_str(&format!("- {}\n", escaped(note)));
    }
    for (name, text) in &view.facts {
        out.push_str(&format!("- {name}: {}\n", escaped(text)));
    }
    out.push_str("\n</details>\n");
    out
}

fn summary(title: &str) -> String {
    format!("<details><summary>{title}</summary>\n\n")
}

fn picture_texts(view: &View, chapters: &[Chapter], folder: &str) -> String {
    let here = view.figures.iter();
    let here = here.filter(|f| chapters.contains(&f.chapter));
    here.map(|figure| picture_text(figure, folder)).collect()
}

/// The first drawing, and links to the others.
fn picture_text(figure: &Figure, folder: &str) -> String {
    let mut out = String::new();
    if let Some(first) = figure.choices.first() {
        out.push_str(&picture(figure, (0, first), folder));
        let others: Vec<String> = drawn(figure)
            .iter()
            .enumerate()
            .skip(1)
            .map(|(at, other)| {
                let (label, file) = (escaped(&other.label), file_name(figure, at));
                format!("[{label}](<{folder}/{file}>)")
            })
            .collect();
        if !others.is_empty() {
            let first = escaped(&first.label);
            let line = headings::also(&first, &others.join(", "));
            out.push_str(&format!("{line}\n\n"));
        }
    }
    out
}

fn picture(figure: &Figure, (at, choice): (usize, &Choice), folder: &str) -> String {
    // A bracket would end the picture's alternative text.
    let alt = escaped(&choice.alt).replace('[', "(").replace(']', ")");
    format!("![{alt}](<{folder}/{}>)\n\n", file_name(figure, at))
}

fn table_text(table: &Table) -> String {
    let mut out = format!("**{}**", escaped(&table.title));
    if !table.detail.is_empty() {
        out.push_str(&format!(" ({})", escaped(&table.detail)));
    }
    out.push_str("\n\n|");
    for column in &table.columns {
        out.push_str(&format!(" {} |", escaped(&column.head)));
    }
    out.push_str("\n|");
    for column in &table.columns {
        out.push_str(match column.align {
            Align::Left => " :-- |",
            Align::Right => " --: |",
        });
    }
    out.push('\n');
    for row in &table.rows {
        out.push('|');
        for cell in row {
            out.push_str(&format!(" {} |", cell_text(cell)));
        }
        out.push('\n');
    }
    out.push('\n');
    for (mark, text) in &table.footnotes {
        out.push_str(&format!("{mark} {}  \n", escaped(text)));
    }
    if !table.footnotes.is_empty() {
        out.push('\n');
    }
    out
}

fn cell_text(cell: &Cell) -> String {
    let text = escaped(&plain_cell(cell));
    if cell.tone == Tone::Strong {
        format!("**{text}**")
    } else {
        text
    }
}

fn evidence(view: &View) -> String {
    if view.evidence.is_empty() {
        return String::new();
    }
    let title = escaped(&view.evidence_title);
    format!("**{title}**\n\n{}", evidence_lines(&view.evidence))
}

fn evidence_lines(lines: &[EvidenceLine]) -> String {
    let mut out = String::new();
    for EvidenceLine {
        variants,
        proof,
        text,
        ..
    } in lines
    {
        let sign = match proof {
            Proof::Proven => "✅",
            Proof::Failed => "❌",
            Proof::Unknown => "❔",
        };
        let names = escaped(&variants.join(", "));
        out.push_str(&format!("- {sign} **{names}**: {}\n", escaped(text)));
    }
    out.push('\n');
    out
}

/// Escapes Markdown: text from probes and errors may contain anything.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        // Code hosts link addresses, and would show an escape as part of them.
        let word = || out.rsplit(' ').next().unwrap_or_default();
        match c {
            '_' | '*' | '~' | '#' if word().starts_with("https://") => out.push(c),
            '\\' | '`' | '*' | '_' | '|' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A bracket that begins a link's address or a mention of a person.
            '(' if out.ends_with(']') => out.push_str("\\("),
            '@' => out.push_str("&#64;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {

    use super::escaped;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(escaped("a|b\nc"), "a\\|b c");
        assert_eq!(escaped("[x](http://y)"), "[x]\\(http://y)");
        assert_eq!(
            escaped("a_b https://c/d_e#f g_h"),
            "a\\_b https://c/d_e#f g\\_h"
        );
        assert_eq!(escaped("<img> @all"), "&lt;img&gt; &#64;all");
        assert_eq!(escaped("+495 [480, 510]"), "+495 [480, 510]");
    }
}
