//! Figures on a page: their drawings, the choice between them, and their data.

use crate::draw;
use crate::markup::escaped;
use crate::view::chart::{Choice, Figure, Sheet};
use crate::view::headings;

/// Longer tables are available as a file only.
const TABLE_ROWS_MAX: usize = 60;
/// More rows are not part of the page, which would take long to load.
const LINK_ROWS_MAX: usize = 30_000;
/// Up to so many drawings have a row of buttons, more have a list.
const BUTTONS_MAX: usize = 5;

pub(super) fn figure(figure: &Figure) -> String {
    let id = figure.id;
    let mut out = format!(
        "<figure id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h3 id=\"{id}-title\">{}</h3>\n",
        escaped(&figure.title)
    );
    if figure.choices.len() > 1 {
        out.push_str(&chooser(figure));
    }
    for (at, choice) in figure.choices.iter().enumerate() {
        out.push_str(&drawing(figure, at, choice));
    }
    if !figure.caption.is_empty() {
        out.push_str(&format!(
            "<figcaption>{}</figcaption>\n",
            escaped(&figure.caption)
        ));
    }
    out + &raw(figure) + "</figure>\n"
}

fn chooser(figure: &Figure) -> String {
    let id = figure.id;
    let title = escaped(&headings::choice(&figure.title));
    let choices = || figure.choices.iter().enumerate();
    if figure.choices.len() > BUTTONS_MAX {
        let mut out = format!(
            "<p class=\"chooser\"><label>{} <select data-choose=\"\" aria-label=\"{title}\">",
            headings::SHOW
        );
        for (at, choice) in choices() {
            out.push_str(&format!(
                "<option value=\"{at}\">{}</option>",
                escaped(&choice.label)
            ));
        }
        return out + "</select></label></p>\n";
    }
    let mut out = format!("<fieldset class=\"chooser\"><legend>{title}</legend>");
    for (at, choice) in choices() {
        let checked = if at == 0 { " checked" } else { "" };
        out.push_str(&format!(
            "<label><input type=\"radio\" name=\"{id}-choice\" data-choose=\"{at}\"{checked}>{}</label>",
            escaped(&choice.label)
        ));
    }
    out + "</fieldset>\n"
}

/// Without JavaScript all drawings are visible, each with its label.
fn drawing(figure: &Figure, at: usize, choice: &Choice) -> String {
    let other = if at > 0 { " class=\"other\"" } else { "" };
    let label = if figure.choices.len() > 1 {
        format!("<p class=\"label\">{}</p>\n", escaped(&choice.label))
    } else {
        String::new()
    };
    format!(
        "<div data-choice=\"{at}\"{other}>\n{label}{}</div>\n",
        draw::inline(&choice.chart, &choice.alt)
    )
}

/// The raw data: as a file, and as a table if it is not too long; of very long data, where to get it.
fn raw(figure: &Figure) -> String {
    if figure.data.rows.len() > LINK_ROWS_MAX {
        let text = escaped(headings::DATA_AS_FILES);
        return format!("<p class=\"raw\">{text}</p>\n");
    }
    let link = csv_link(figure.id, &figure.title, &figure.data);
    if figure.data.rows.len() > TABLE_ROWS_MAX {
        return format!("<p class=\"raw\">{link}</p>\n");
    }
    format!(
        "<details class=\"raw\"><summary>{}</summary>\n<p>{link}</p>\n{}</details>\n",
        headings::DATA,
        sheet(&figure.title, &figure.data)
    )
}

/// A link to a file that is part of the page.
pub(super) fn csv_link(name: &str, title: &str, data: &Sheet) -> String {
    format!(
        "<a class=\"csv\" download=\"{name}.csv\" href=\"data:text/csv;charset=utf-8,{}\" aria-label=\"{}\">CSV</a>",
        percent_encoded(&data.csv()),
        escaped(&headings::csv_of(title))
    )
}

fn sheet(title: &str, data: &Sheet) -> String {
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>",
        escaped(&headings::data_of(title))
    );
    for head in &data.head {
        out.push_str(&format!("<th scope=\"col\">{}</th>", escaped(head)));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &data.rows {
        out.push_str("<tr>");
        for cell in row {
            out.push_str(&format!("<td>{}</td>", escaped(cell)));
        }
        out.push_str("</tr>\n");
    }
    out + "</tbody></table></div>\n"
}

/// For the address of a `data:` link, in quotes.
fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b','
            | b'/'
            | b'('
            | b')' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
