//! A self-contained page.

mod figures;

use crate::draw;
use crate::markup::escaped;
use crate::text::slug;
use crate::view::chart::{Chapter, Sheet};
use crate::view::document::{EvidenceLine, Proof, View};
use crate::view::headings;
use crate::view::table::{Align, Cell, Content, Table, Tone};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Lays a view out as a page. With `refresh_s`, the browser reloads it after so many seconds.
pub(crate) fn render(view: &View, refresh_s: Option<u32>) -> String {
    let refresh = refresh_s.map_or(String::new(), |seconds| {
        format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">\n")
    });
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{refresh}\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{STYLE}\
         </style>\n</head>\n<body>\n<main>\n",
        escaped(&view.title),
        draw::STYLE
    );
    out.push_str(&format!("<h1>{}</h1>\n", escaped(&view.title)));
    if let Some(partial) = &view.partial {
        out.push_str(&format!(
            "<p class=\"partial\" role=\"alert\">{}</p>\n",
            escaped(partial)
        ));
    }
    out.push_str(&headlines(view));
    for text in &view.meaning {
        out.push_str(&format!("<p class=\"meaning\">{}</p>\n", escaped(text)));
    }
    out.push_str(&navigation(view));
    out.push_str(&toggles(view));
    for chapter in Chapter::ALL {
        out.push_str(&pictures(view, chapter));
        if chapter == Chapter::Overheads {
            out.push_str(&tables("tables", headings::TABLES, &view.tables));
            out.push_str(&tables("decision", headings::DECISION, &view.decision));
        }
    }
    out.push_str(&evidence(view));
    out.push_str(&tables("checks", headings::CHECKS, &view.checks));
    out.push_str(&tables("details", headings::DETAILS, &view.details));
    out.push_str(&notes(view));
    out.push_str(&format!(
        "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    ));
    out
}

/// Links to the sections.
fn navigation(view: &View) -> String {
    let has_figures = |chapter: Chapter| view.figures.iter().any(|f| f.chapter == chapter);
    let mut sections: Vec<(&str, &str)> = Vec::new();
    for chapter in Chapter::ALL {
        if has_figures(chapter) {
            sections.push((chapter.id(), chapter.title()));
        }
        if chapter == Chapter::Overheads && !view.tables.is_empty() {
            sections.push(("tables", headings::TABLES));
        }
        if chapter == Chapter::Overheads && !view.decision.is_empty() {
            sections.push(("decision", headings::DECISION));
        }
    }
    for (id, title, is_there) in [
        ("evidence", headings::EVIDENCE, !view.evidence.is_empty()),
        ("checks", headings::CHECKS, !view.checks.is_empty()),
        ("details", headings::DETAILS, !view.details.is_empty()),
        ("notes", headings::NOTES, true),
    ] {
        if is_there {
            sections.push((id, title));
        }
    }
    let mut out = format!("<nav aria-label=\"{}\">", headings::NAVIGATION);
    for (id, title) in sections {
        out.push_str(&format!("<a href=\"#{id}\">{}</a>", escaped(title)));
    }
    out + "</nav>\n"
}

/// Shows and hides variants; visible only with JavaScript.
fn toggles(view: &View) -> String {
    if view.figures.is_empty() || view.drawn.len() < 2 {
        return String::new();
    }
    let mut out = format!(
        "<fieldset class=\"toggles\"><legend>{}</legend>",
        headings::TOGGLES
    );
    for (place, name) in &view.drawn {
        let look = draw::look_class(*place);
        out.push_str(&format!(
            "<label class=\"chart\"><input type=\"checkbox\" data-toggle=\"{place}\" checked>\
             <span class=\"dot {look}\" aria-hidden=\"true\"></span>{}</label>",
            escaped(name)
        ));
    }
    out + "</fieldset>\n"
}

fn pictures(view: &View, chapter: Chapter) -> String {
    let here: Vec<String> = view
        .figures
        .iter()
        .filter(|figure| figure.chapter == chapter)
        .map(figures::figure)
        .collect();
    if here.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<div class=\"pictures\">\n{}</div>\n</section>\n",
        chapter.id(),
        chapter.title(),
        here.concat()
    )
}

fn tables(id: &str, title: &str, tables: &[Table]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let mut out = format!("<section id=\"{id}\">\n<h2>{title}</h2>\n");
    for table in tables {
        out.push_str(&table_text(table));
    }
    out + "</section>\n"
}

fn headlines(view: &View) -> String {
    let mut out = format!(
        "<p class=\"lead\">{}</p>\n<ul class=\"answers\">\n",
        escaped(&view.lead_line())
    );
    for headline in &view.headlines {
        out.push_str(&format!(
            "<li{}><b>{}</b> {}</li>\n",
            class(headline.tone),
            escaped(&headline.variant),
            escaped(&headline.clauses.join("; "))
        ));
    }
    out.push_str("</ul>\n");
    out
}

fn table_text(table: &Table) -> String {
    let link = figures::csv_link(&slug(&table.title), &table.title, &Sheet::of(table));
    let mut out = format!("<h3>{} {link}</h3>\n", escaped(&table.title));
    if !table.detail.is_empty() {
        out.push_str(&format!(
            "<p class=\"detail\">{}</p>\n",
            escaped(&table.detail)
        ));
    }
    out.push_str(&format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n<thead><tr>",
        escaped(&table.title)
    ));
    for column in &table.columns {
        out.push_str(&format!(
            "<th scope=\"col\"{}>{}</th>",
            align_class(column.align),
            escaped(&column.head)
        ));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            out.push_str(&cell_text(cell, column.align, i == 0));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
    for (mark, text) in &table.footnotes {
        out.push_str(&format!(
            "<p class=\"footnote\">{mark} {}</p>\n",
            escaped(text)
        ));
    }
    out
}

fn cell_text(cell: &Cell, align: Align, is_head: bool) -> String {
    let content = match &cell.content {
        Content::Text(text) => escaped(text),
        Content::Figure { value, .. } if cell.is_bare() => escaped(value),
        Content::Figure { value, beside } => format!(
            "{} <span class=\"beside\">{}</span>",
            escaped(value),
            escaped(beside)
        ),
    };
    let tone = tone_name(cell.tone);
    let side = if align == Align::Right { "number" } else { "" };
    let classes = format!("{side} {tone}");
    let class = match classes.trim() {
        "" => String::new(),
        classes => format!(" class=\"{classes}\""),
    };
    // A name is not repeated in the rows below it, and a heading must not be empty.
    let (open, close) = if is_head && !content.is_empty() {
        ("th scope=\"row\"", "th")
    } else {
        ("td", "td")
    };
    format!("<{open}{class}>{content}{}</{close}>", escaped(&cell.mark))
}

fn evidence(view: &View) -> String {
    if view.evidence.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<section id=\"evidence\">\n<h2>{}</h2>\n<ul class=\"evidence\">\n",
        escaped(&view.evidence_title)
    );
    for line in &view.evidence {
        out.push_str(&evidence_line(line));
    }
    out.push_str("</ul>\n</section>\n");
    out
}

fn evidence_line(line: &EvidenceLine) -> String {
    let (sign, tone, word) = match line.proof {
        Proof::Proven => ("✓", Tone::Good, "proven"),
        Proof::Failed => ("✗", Tone::Bad, "failed"),
        Proof::Unknown => ("?", Tone::Bad, "unknown"),
    };
    let mut out = format!(
        "<li><span{} role=\"img\" aria-label=\"{word}\">{sign}</span> <b>{}</b> {}",
        class(tone),
        escaped(&line.variants.join(", ")),
        escaped(&line.text)
    );
    if !line.probes.is_empty() {
        let judged: Vec<bool> = line.probes.iter().filter_map(|p| p.passed).collect();
        let passed = judged.iter().filter(|passed| **passed).count();
        out.push_str(&format!(
            "\n<details><summary>{}</summary>\n<dl>\n",
            headings::probes_passed(passed, judged.len())
        ));
        for probe in &line.probes {
            let (sign, tone) = match probe.passed {
                Some(true) => ("✓", Tone::Good),
                Some(false) => ("✗", Tone::Bad),
                None => ("·", Tone::Muted),
            };
            out.push_str(&format!(
                "<dt><span{}>{sign}</span> {}</dt><dd>{}</dd>\n",
                class(tone),
                escaped(&probe.name),
                escaped(&probe.seen)
            ));
        }
        out.push_str("</dl></details>");
    }
    out.push_str("</li>\n");
    out
}

fn notes(view: &View) -> String {
    let mut out = format!(
        "<section id=\"notes\">\n<h2>{}</h2>\n<ul>\n",
        headings::NOTES
    );
    for note in &view.notes {
        out.push_str(&format!("<li>{}</li>\n", escaped(note)));
    }
    out.push_str("</ul>\n<dl class=\"facts\">\n");
    for (name, text) in &view.facts {
        out.push_str(&format!("<dt>{name}</dt><dd>{}</dd>\n", escaped(text)));
    }
    out.push_str("</dl>\n</section>\n");
    out
}

fn tone_name(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Strong => "strong",
        Tone::Muted => "muted",
        Tone::Good => "good",
        Tone::Bad => "bad",
    }
}

fn class(tone: Tone) -> String {
    match tone_name(tone) {
        "" => String::new(),
        name => format!(" class=\"{name}\""),
    }
}

fn align_class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    }
}
