//! An [`Analysis`] as text: terminal tables, HTML, Markdown, JSON and CSV.
//!
//! Everything here is pure: no I/O, no clock, no look at the terminal. What is said, in which
//! words and with how many digits, is decided once, in `view`; the formats only lay it out.

#![forbid(unsafe_code)]

mod chart;
mod format;
mod html;
mod layout;
mod markdown;
mod sheet;
mod terminal;
mod view;

use meshtax_model::analysis::{Analysis, Calibration};

/// How a terminal is written to. The caller finds out; this crate never looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns. Below [`TerminalOptions::MIN_WIDTH`] lines may be longer than asked.
    pub width: usize,
    /// Whether colors (SGR codes) may be used.
    pub color: bool,
}

impl TerminalOptions {
    /// The narrowest width that is laid out for.
    pub const MIN_WIDTH: usize = 40;
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self {
            width: 100,
            color: false,
        }
    }
}

/// The answer on one screen.
#[must_use]
pub fn terminal(analysis: &Analysis, options: TerminalOptions) -> String {
    terminal::render(&view::View::of(analysis), options)
}

/// What a calibration found, on one screen.
#[must_use]
pub fn calibration_terminal(calibration: &Calibration, options: TerminalOptions) -> String {
    terminal::render(&view::View::of_calibration(calibration), options)
}

/// The whole calibration; its analysis is that of [`json`].
#[must_use]
pub fn calibration_json(calibration: &Calibration) -> String {
    pretty(calibration)
}

/// A self-contained page: no script, nothing from elsewhere.
#[must_use]
pub fn html(analysis: &Analysis) -> String {
    html::render(&view::View::of(analysis))
}

/// Compact tables for a comment on a pull request.
#[must_use]
pub fn markdown(analysis: &Analysis) -> String {
    markdown::render(&view::View::of(analysis))
}

/// The whole analysis. `docs/schema/report-v1.json` describes it.
///
/// Figures that are not finite become `null`, as JSON has no others; the analysis makes none.
#[must_use]
pub fn json(analysis: &Analysis) -> String {
    pretty(analysis)
}

fn pretty(what: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(what)
        .unwrap_or_else(|_| unreachable!("plain data with text keys is always JSON"));
    text.push('\n');
    text
}

/// One row per variant, load point and metric, in the metric's own unit (`ns`, `1/s`).
#[must_use]
pub fn csv(analysis: &Analysis) -> String {
    sheet::render(analysis)
}
