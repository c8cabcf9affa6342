//! Errors that show the place: file, line, column, the line itself and a caret.

use std::fmt;

/// Where something stands in a spec. Lines and columns count from 1, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// How many characters to underline, on that line.
    pub(crate) width: u32,
}

/// What is wrong with a spec, before the file and its text are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) at: Option<Place>,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Problem {
    pub(crate) fn new(at: Place, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            at: Some(at),
            message: message.into(),
            help: help.into(),
        }
    }
}

/// A spec that cannot be used: what is wrong, where, and what to do.
///
/// Its text has several lines: the message, the place, the offending line with a caret
/// under the value, and the fix. Exit code 10.
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
    pub help: String,
    /// The offending line, without its end.
    source_line: String,
    /// Characters to underline.
    width: u32,
}

impl SpecError {
    pub(crate) fn new(file: &str, text: &str, problem: Problem) -> Self {
        let line = problem.at.map(|p| p.line);
        Self {
            file: file.to_owned(),
            line,
            column: problem.at.map(|p| p.column),
            message: problem.message,
            help: problem.help,
            source_line: line
                .and_then(|l| text.lines().nth(l.saturating_sub(1) as usize))
                .unwrap_or_default()
                .to_owned(),
            width: problem.at.map_or(1, |p| p.width),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        let (Some(line), Some(column)) = (self.line, self.column) else {
            write!(f, "\n  --> {}", self.file)?;
            return write!(f, "\n  fix: {}", self.help);
        };
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let window = Window::around(&self.source_line, column, self.width);
        write!(f, "\n{margin}--> {}:{line}:{column}", self.file)?;
        write!(f, "\n{margin} |\n{number} | {}", window.text)?;
        write!(f, "\n{margin} | {}{}", window.indent, window.carets)?;
        write!(f, "\n{margin} = fix: {}", self.help)
    }
}

/// The part of a line around the place that is shown, however long the line is.
struct Window {
    text: String,
    indent: String,
    carets: String,
}

impl Window {
    /// Characters shown of one line.
    const MAX: usize = 100;

    fn around(line: &str, column: u32, width: u32) -> Self {
        let characters: Vec<char> = line.chars().collect();
        let at = (column.saturating_sub(1) as usize).min(characters.len());
        let from = if characters.len() <= Self::MAX {
            0
        } else {
            at.saturating_sub(Self::MAX / 2)
        };
        let to = characters.len().min(from + Self::MAX);
        let shown = |c: &char| if c.is_control() { ' ' } else { *c };
        let room = to.saturating_sub(at).max(1);
        Self {
            text: characters[from..to].iter().map(shown).collect(),
            indent: " ".repeat(at - from),
            carets: "^".repeat((width as usize).clamp(1, room)),
        }
    }
}

/// The known word that was probably meant: the one with the fewest letters to change, if they are few.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace('_', "-");
    known
        .into_iter()
        .map(|word| (distance(&typed, word), word))
        .filter(|(distance, word)| *distance <= 1.max(word.chars().count().min(9) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Edit distance in which a swap of neighbours counts once (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j - 1] + changed).min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Words for a message: `` `a`, `b` or `c` ``.
pub(crate) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let known = ["response", "connections"];
        assert_eq!(nearest("conections", known), Some("connections"));
        assert_eq!(nearest("Connections", known), Some("connections"));
        assert_eq!(nearest("repsonse", known), Some("response"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("data_plane", ["data-plane"]), Some("data-plane"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let line = format!("{}HERE{}", "x".repeat(500), "y".repeat(500));
        let window = Window::around(&line, 501, 4);
        assert_eq!(window.text.chars().count(), Window::MAX);
        let start = window.indent.len();
        assert_eq!(&window.text[start..start + 4], "HERE");
    }

    #[test]
    fn a_place_outside_the_line_does_not_panic() {
        let window = Window::around("short", 99, 9);
        assert_eq!(window.carets, "^");
    }
}
