//! A spec that cannot be used, rendered with the offending line.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use crate::yaml::Problem;

/// A spec that cannot be used: what is wrong, where, and how to fix it. Exit code 10.
///
/// Its text has several lines: the message, the location, the offending line with the value
/// underlined, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SpecError {
    /// The file's name as the user gave it.
    pub file: String,
    /// Counts from 1; `None` if the whole file is meant.
    pub line: Option<u32>,
    /// Counts from 1, in characters; `None` if the whole file is meant.
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What is allowed, and the fix.
    pub fix: String,
    /// The offending line, without its end.
    source_line: String,
    /// Characters to underline.
    width: u32,
}

impl SpecError {
    pub(crate) fn new(file: &str, text: &str, problem: Problem) -> Self {
        let line = problem.at.map(|span| span.line);
        let source_line = line.and_then(|line| text.lines().nth(line.saturating_sub(1) as usize));
        Self {
            file: file.to_owned(),
            line,
            column: problem.at.map(|span| span.column),
            message: problem.message,
            fix: problem.fix,
            source_line: source_line.unwrap_or_default().to_owned(),
            width: problem.at.map_or(1, |span| span.width),
        }
    }

    /// The bytes to underline.
    fn underlined(&self) -> std::ops::Range<usize> {
        let byte = |characters: u32| {
            let mut at = self.source_line.char_indices();
            let at = at.nth(characters as usize).map(|(at, _)| at);
            at.unwrap_or(self.source_line.len())
        };
        let start = self.column.unwrap_or(1).saturating_sub(1);
        byte(start)..byte(start.saturating_add(self.width))
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = Level::ERROR.no_name().primary_title(self.message.as_str());
        let located = match self.line {
            None => title.element(Origin::path(self.file.as_str())),
            Some(line) => title.element(
                Snippet::source(self.source_line.as_str())
                    .path(self.file.as_str())
                    .line_start(line as usize)
                    .annotation(AnnotationKind::Primary.span(self.underlined())),
            ),
        };
        let report = [located.element(Level::HELP.with_name("fix").message(self.fix.as_str()))];
        f.write_str(&Renderer::plain().render(&report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Span;

    fn rendered(text: &str, column: u32, width: u32) -> String {
        let at = Span {
            line: 1,
            column,
            width,
        };
        SpecError::new("spec.yaml", text, Problem::new(at, "wrong", "change it")).to_string()
    }

    #[test]
    fn a_long_line_is_trimmed_around_the_location() {
        let line = format!("{}HERE{}", "x".repeat(500), "y".repeat(500));
        let text = rendered(&line, 501, 4);
        assert!(text.contains("xHEREy") && text.contains("^^^^"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() < 200),
            "{text}"
        );
    }

    #[test]
    fn a_location_outside_the_line_is_marked_at_its_end() {
        let text = rendered("short", 99, 9);
        assert!(text.contains("short") && text.contains('^'), "{text}");
    }

    #[test]
    fn control_characters_are_not_printed() {
        let text = rendered("name: \u{1b}[2Jevil", 7, 4);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
