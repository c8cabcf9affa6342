//! A page to publish.

use super::{drawn, escaped, evidence_lines, is_all_shown, picture, picture_text, table_text};
use crate::view::chart::{Choice, Figure};
use crate::view::publication::{Publication, Section, SectionContent};

/// Lays a page out as Markdown. `pictures_in`: the folder that has its pictures, as its readers find it; `data_in`: that
/// of its data as CSV.
pub(crate) fn render(page: &Publication, pictures_in: &str, data_in: &str) -> String {
    let mut out = format!("# {}\n\n", escaped(&page.title));
    for section in &page.sections {
        let heading = section.heading;
        out.push_str(&format!("- [{heading}](#{})\n", anchor(heading)));
    }
    out.push_str(&format!(
        "\nThe data of all tables and charts: [{data_in}](<{data_in}>)\n\n"
    ));
    for section in &page.sections {
        out.push_str(&section_text(section, pictures_in));
    }
    out
}

/// As code hosts derive it from a heading.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
    let lower: String = kept.flat_map(char::to_lowercase).collect();
    lower.replace(' ', "-")
}

fn section_text(section: &Section, pictures_in: &str) -> String {
    let parts = section
        .parts
        .iter()
        .map(|part| part_text(part, pictures_in));
    format!("## {}\n\n{}", section.heading, parts.collect::<String>())
}

fn part_text(part: &SectionContent, pictures_in: &str) -> String {
    match part {
        SectionContent::Text(text) => format!("{}\n\n", escaped(text)),
        SectionContent::Items(items) => {
            let lines = items.iter().map(|item| format!("- {}\n", escaped(item)));
            format!("{}\n", lines.collect::<String>())
        }
        SectionContent::Evidence(lines) => evidence_lines(lines),
        SectionContent::Table(table) => table_text(table),
        SectionContent::Figure(figure) => figure_text(figure, pictures_in),
    }
}

fn figure_text(figure: &Figure, pictures_in: &str) -> String {
    let drawings = match is_all_shown(figure) {
        false => picture_text(figure, pictures_in),
        true => {
            let all = drawn(figure).iter().enumerate();
            // A picture has no room for a whole title.
            let text = |(at, choice): (usize, &Choice)| {
                let label = escaped(&choice.label);
                format!(
                    "**{label}**\n\n{}",
                    picture(figure, (at, choice), pictures_in)
                )
            };
            all.map(text).collect()
        }
    };
    let (title, caption) = (escaped(&figure.title), escaped(&figure.caption));
    format!("### {title}\n\n{caption}\n\n{drawings}")
}

#[cfg(test)]
mod tests {
    use super::anchor;

    #[test]
    fn anchor_of_a_heading_has_no_punctuation() {
        assert_eq!(
            anchor("Iterations, and what was invalid"),
            "iterations-and-what-was-invalid"
        );
    }
}
