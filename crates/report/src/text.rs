//! Text as it is written anywhere.

use unicode_width::UnicodeWidthStr;

/// The width on a terminal.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Text from outside (a probe's words, an error's) without anything a terminal would obey:
/// control characters and those that turn the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            c if c.is_control() => ' ',
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => ' ',
            c => c,
        })
        .collect()
}

/// A title as part of a file's name: `steady-1-000-requests-s`.
pub(crate) fn slug(title: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::new();
    for c in title.chars().take(LONGEST) {
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c.to_ascii_lowercase()),
            _ if !out.is_empty() && !out.ends_with('-') => out.push('-'),
            _ => {}
        }
    }
    out.trim_end_matches('-').to_owned()
}
