//! An [`Analysis`] as text: terminal tables, HTML, Markdown, JSON and CSV.
//!
//! Everything here is pure: no I/O, no clock, no look at the terminal. What is said, in which
//! words and with how many digits, is decided once, in `view`; the formats only lay it out.

#![forbid(unsafe_code)]

mod draw;
mod figure;
mod format;
mod html;
mod layout;
mod markdown;
mod pipeline;
mod published;
mod sheet;
mod terminal;
mod view;

use meshtax_model::advice::Advice;
use meshtax_model::analysis::{Analysis, Calibration};
use meshtax_model::comparison::{GateReport, RunComparison};
use meshtax_model::experiment::Experiment;
use meshtax_model::scaling::Scaling;

pub use published::{
    mesh_json, mesh_terminal, meshes_json, meshes_terminal, published_json, published_list_json,
    published_list_terminal, published_terminal,
};

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

/// The runs of one spec, on one screen: what they say together.
#[must_use]
pub fn series_terminal(runs: &[Analysis], options: TerminalOptions) -> String {
    terminal::render(&view::View::of_series(runs), options)
}

/// The same as a self-contained page.
#[must_use]
pub fn series_html(runs: &[Analysis]) -> String {
    html::render(&view::View::of_series(runs), None)
}

/// The same for a comment on a pull request.
#[must_use]
pub fn series_markdown(runs: &[Analysis]) -> String {
    markdown::render(&view::View::of_series(runs), None)
}

/// All of the runs, each as in [`json`]. `docs/schema/series-v1.json` describes it.
#[must_use]
pub fn series_json(runs: &[Analysis]) -> String {
    #[derive(serde::Serialize)]
    struct Series<'a> {
        format_version: u32,
        runs: &'a [Analysis],
    }
    pretty(&Series {
        format_version: meshtax_model::FORMAT_VERSION,
        runs,
    })
}

/// What changed between runs, on one screen.
#[must_use]
pub fn comparison_terminal(comparison: &RunComparison, options: TerminalOptions) -> String {
    terminal::render(&view::View::of_comparison(comparison), options)
}

/// The same as a self-contained page.
#[must_use]
pub fn comparison_html(comparison: &RunComparison) -> String {
    html::render(&view::View::of_comparison(comparison), None)
}

/// The same for a comment on a pull request.
#[must_use]
pub fn comparison_markdown(comparison: &RunComparison) -> String {
    markdown::render(&view::View::of_comparison(comparison), None)
}

/// The whole comparison. `docs/schema/compare-v1.json` describes it.
#[must_use]
pub fn comparison_json(comparison: &RunComparison) -> String {
    pretty(comparison)
}

/// A gate: its first line is the whole verdict, however long.
#[must_use]
pub fn gate_terminal(gate: &GateReport, options: TerminalOptions) -> String {
    let mut view = view::View::of_gate(gate);
    // Not wrapped, so that whoever reads the first line has the whole verdict.
    let line = layout::clean(&std::mem::take(&mut view.title));
    format!("{line}\n{}", terminal::render(&view, options))
}

/// The same for a comment on a pull request, or a job's summary.
#[must_use]
pub fn gate_markdown(gate: &GateReport) -> String {
    markdown::render(&view::View::of_gate(gate), None)
}

/// The whole gate. `docs/schema/gate-v1.json` describes it.
#[must_use]
pub fn gate_json(gate: &GateReport) -> String {
    pretty(gate)
}

/// The gate as JUnit's XML, with a test case for each check.
#[must_use]
pub fn gate_junit(gate: &GateReport) -> String {
    pipeline::junit(gate)
}

/// The gate as annotations of GitHub Actions.
#[must_use]
pub fn gate_annotations(gate: &GateReport) -> String {
    pipeline::annotations(gate)
}

/// What a run says to somebody who has to choose, section by section.
#[must_use]
pub fn advice_terminal(advice: &Advice, options: TerminalOptions) -> String {
    terminal::document(&view::Document::of_advice(advice).parts(), options)
}

/// The whole advice. `docs/schema/advise-v1.json` describes it.
#[must_use]
pub fn advice_json(advice: &Advice) -> String {
    pretty(advice)
}

/// Scaling laws, each with what was measured.
#[must_use]
pub fn scaling_terminal(scaling: &Scaling, options: TerminalOptions) -> String {
    terminal::document(&view::of_scaling(scaling), options)
}

/// All of the laws. `docs/schema/scale-v1.json` describes it.
#[must_use]
pub fn scaling_json(scaling: &Scaling) -> String {
    pretty(scaling)
}

/// A self-contained page: nothing from elsewhere.
#[must_use]
pub fn html(analysis: &Analysis) -> String {
    html::render(&view::View::of(analysis), None)
}

/// The same page of a run that goes on: the browser asks for it again after so many seconds.
#[must_use]
pub fn growing_html(analysis: &Analysis, refresh_s: u32) -> String {
    html::render(&view::View::of(analysis), Some(refresh_s))
}

/// Compact tables for a comment on a pull request.
#[must_use]
pub fn markdown(analysis: &Analysis) -> String {
    markdown::render(&view::View::of(analysis), None)
}

/// A file that belongs to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, without a folder.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// A document for a repository or a wiki, and its pictures (SVG), which it looks for in `pictures_in`.
#[must_use]
pub fn illustrated_markdown(analysis: &Analysis, pictures_in: &str) -> (String, Vec<File>) {
    let view = view::View::of(analysis);
    let pictures = markdown::pictures(&view).into_iter();
    (
        markdown::render(&view, Some(pictures_in)),
        pictures.map(|(name, text)| File { name, text }).collect(),
    )
}

/// Everything as CSV: the overheads as in [`csv`], what each picture draws, and the other tables.
#[must_use]
pub fn sheets(analysis: &Analysis) -> Vec<File> {
    let view = view::View::of(analysis);
    let file = |name: &str, text: String| File {
        name: format!("{name}.csv"),
        text,
    };
    let mut files = vec![file("overheads", csv(analysis))];
    files.extend(
        view.figures
            .iter()
            .map(|figure| file(figure.id, figure.data.csv())),
    );
    let tables = [&view.tables, &view.details, &view.checks];
    for (at, table) in tables.into_iter().flatten().enumerate() {
        let name = format!("table-{:02}-{}", at + 1, slug(&table.title));
        files.push(file(&name, figure::Sheet::of(table).csv()));
    }
    files
}

/// A title as part of a file's name: `steady-1-000-requests-s`.
fn slug(title: &str) -> String {
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

/// How long a run at a study's own lengths takes, before it begins.
#[must_use]
pub fn how_long(experiments: &[Experiment]) -> String {
    view::how_long(experiments)
}

/// Says in the reports of these runs of one spec that the figures of their study stand there because somebody asked for
/// them, and what of them has nothing measured beside it. Nothing, if they name no study.
pub fn asked_for(runs: &mut [Analysis]) {
    let said = view::asked_for(runs);
    for run in runs {
        run.caveats.extend(said.clone());
    }
}

/// What is known so far of a run that goes on: a line per candidate.
#[must_use]
pub fn so_far(analysis: &Analysis) -> Vec<String> {
    view::so_far(analysis)
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
