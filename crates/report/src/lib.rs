//! An [`Analysis`] as text: terminal tables, HTML, Markdown, JSON and CSV.
//!
//! Everything here is pure: no I/O, no clock, no access to the terminal. The content, its wording
//! and its number of digits are decided once, in `view`; the formats only lay it out.

#![forbid(unsafe_code)]

mod draw;
mod format;
mod html;
mod json;
mod layout;
pub mod load;
mod markdown;
mod markup;
mod openmetrics;
mod pipeline;
mod sheet;
mod terminal;
mod text;
mod view;

use std::collections::BTreeMap;

use meshtax_model::advice::Advice;
use meshtax_model::analysis::{Analysis, Calibration, NotEstimable};
use meshtax_model::comparison::{Differing, GateReport, RunComparison};
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_model::scaling::Scaling;

use meshtax_published::{Mesh, Meshes, ResultSet};

pub use json::{mesh_json, meshes_json, published_json, published_list_json};
pub use terminal::TerminalOptions;

use json::pretty;
use text::slug;

/// The summary on one screen.
#[must_use]
pub fn terminal(analysis: &Analysis, options: TerminalOptions) -> String {
    terminal::render(&view::report(analysis), options)
}

/// What a calibration found, on one screen.
#[must_use]
pub fn calibration_terminal(calibration: &Calibration, options: TerminalOptions) -> String {
    terminal::render(&view::calibration(calibration), options)
}

/// The whole calibration; its analysis is that of [`json`].
#[must_use]
pub fn calibration_json(calibration: &Calibration) -> String {
    pretty(calibration)
}

/// The runs of one spec, on one screen: their combined results.
#[must_use]
pub fn series_terminal(runs: &[Analysis], options: TerminalOptions) -> String {
    terminal::render(&view::series(runs), options)
}

/// The same as a self-contained page.
#[must_use]
pub fn series_html(runs: &[Analysis]) -> String {
    html::render(&view::series(runs), None)
}

/// The same for a comment on a pull request.
#[must_use]
pub fn series_markdown(runs: &[Analysis]) -> String {
    markdown::render(&view::series(runs), None)
}

/// All of the runs, each as in [`json`]. `docs/schema/series-v2.json` describes it.
#[must_use]
pub fn series_json(runs: &[Analysis]) -> String {
    #[derive(serde::Serialize)]
    struct RunSeries<'a> {
        format_version: u32,
        runs: &'a [Analysis],
    }
    pretty(&RunSeries {
        format_version: meshtax_model::FORMAT_VERSION,
        runs,
    })
}

/// What changed between runs, on one screen.
#[must_use]
pub fn comparison_terminal(comparison: &RunComparison, options: TerminalOptions) -> String {
    terminal::render(&view::comparison(comparison), options)
}

/// The same as a self-contained page.
#[must_use]
pub fn comparison_html(comparison: &RunComparison) -> String {
    html::render(&view::comparison(comparison), None)
}

/// The same for a comment on a pull request.
#[must_use]
pub fn comparison_markdown(comparison: &RunComparison) -> String {
    markdown::render(&view::comparison(comparison), None)
}

/// The whole comparison. `docs/schema/compare-v2.json` describes it.
#[must_use]
pub fn comparison_json(comparison: &RunComparison) -> String {
    pretty(comparison)
}

/// A setting that differs between runs, in one line: `kernel: 6.1 in BASE, 6.8 in NEW`.
#[must_use]
pub fn difference(differing: &Differing) -> String {
    text::clean(&view::difference(differing))
}

/// A condition of a run that has changed since, in one line, with what restores it.
#[must_use]
pub fn change(changed: &Differing) -> String {
    text::clean(&view::change(changed))
}

/// A gate: its first line is the whole verdict, however long.
#[must_use]
pub fn gate_terminal(gate: &GateReport, options: TerminalOptions) -> String {
    let mut view = view::gate(gate);
    // Not wrapped, so that the first line contains the whole verdict.
    let line = text::clean(&std::mem::take(&mut view.title));
    format!("{line}\n{}", terminal::render(&view, options))
}

/// The same for a comment on a pull request, or a job's summary.
#[must_use]
pub fn gate_markdown(gate: &GateReport) -> String {
    markdown::render(&view::gate(gate), None)
}

/// The whole gate. `docs/schema/gate-v2.json` describes it.
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

/// The advice from a run, section by section.
#[must_use]
pub fn advice_terminal(advice: &Advice, options: TerminalOptions) -> String {
    terminal::document(&view::advice(advice), options)
}

/// The whole advice, with the published facts about its features. `docs/schema/advise-v2.json`
/// describes it.
#[must_use]
pub fn advice_json(advice: &Advice) -> String {
    #[derive(serde::Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        advice: &'a Advice,
        published: BTreeMap<&'a str, BTreeMap<&'static str, &'static meshtax_published::Fact>>,
    }
    let of_priorities = advice.priorities.iter().flat_map(|p| &p.features);
    let of_questions = advice.questions.iter().flat_map(|q| &q.features);
    let features = of_priorities.chain(of_questions);
    let meshes = &meshtax_published::meshes().meshes;
    let facts_of = |feature: &str| {
        let facts = meshes.iter().filter_map(|mesh| {
            let fact = meshtax_published::fact(&mesh.id, feature)?;
            fact.source.is_some().then_some((mesh.id.as_str(), fact))
        });
        facts.collect()
    };
    pretty(&Document {
        advice,
        published: features.map(|id| (id.as_str(), facts_of(id))).collect(),
    })
}

/// Scaling laws, each with what was measured.
#[must_use]
pub fn scaling_terminal(scaling: &Scaling, options: TerminalOptions) -> String {
    terminal::document(&view::scaling(scaling), options)
}

/// All of the laws. `docs/schema/scale-v2.json` describes it.
#[must_use]
pub fn scaling_json(scaling: &Scaling) -> String {
    pretty(scaling)
}

/// All published result sets: name, date, subject and author.
#[must_use]
pub fn published_list_terminal(sets: &[ResultSet], options: TerminalOptions) -> String {
    terminal::document(&view::published_list(sets), options)
}

/// One published result set: source, environment and caveats, then the figures with the digits of the source.
#[must_use]
pub fn published_terminal(set: &ResultSet, options: TerminalOptions) -> String {
    terminal::document(&view::result_set(set), options)
}

/// Features of meshes in a table.
#[must_use]
pub fn meshes_terminal(meshes: &Meshes, options: TerminalOptions) -> String {
    terminal::document(&view::meshes(meshes), options)
}

/// One mesh: each fact with its text and its sources.
#[must_use]
pub fn mesh_terminal(meshes: &Meshes, mesh: &Mesh, options: TerminalOptions) -> String {
    terminal::document(&view::mesh(meshes, mesh), options)
}

/// A self-contained page: nothing from elsewhere.
#[must_use]
pub fn html(analysis: &Analysis) -> String {
    html::render(&view::report(analysis), None)
}

/// The same page for a run in progress: the browser reloads it after this many seconds.
#[must_use]
pub fn growing_html(analysis: &Analysis, refresh_s: u32) -> String {
    html::render(&view::report(analysis), Some(refresh_s))
}

/// Compact tables for a comment on a pull request.
#[must_use]
pub fn markdown(analysis: &Analysis) -> String {
    markdown::render(&view::report(analysis), None)
}

/// A file that belongs to a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, without a folder.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// A document for a repository or a wiki, and its pictures (SVG), which it expects in `pictures_in`.
#[must_use]
pub fn illustrated_markdown(analysis: &Analysis, pictures_in: &str) -> (String, Vec<File>) {
    let view = view::report(analysis);
    (
        markdown::render(&view, Some(pictures_in)),
        svg_files(view.figures.iter()),
    )
}

fn svg_files<'a>(figures: impl Iterator<Item = &'a view::chart::Figure>) -> Vec<File> {
    let pictures = markdown::pictures(figures).into_iter();
    pictures.map(|(name, text)| File { name, text }).collect()
}

/// A page to publish, structured as studies are, and its pictures (SVG), which it expects in `pictures_in`; it refers to
/// [`sheets`] in `data_in`.
#[must_use]
pub fn publication(analysis: &Analysis, pictures_in: &str, data_in: &str) -> (String, Vec<File>) {
    let page = view::publication(analysis);
    (
        markdown::page::render(&page, pictures_in, data_in),
        svg_files(page.figures()),
    )
}

/// Everything as CSV: the overheads as in [`csv`], the data of each picture, and the other tables.
#[must_use]
pub fn sheets(analysis: &Analysis) -> Vec<File> {
    let view = view::report(analysis);
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
    let tables = [&view.tables, &view.decision, &view.details, &view.checks];
    for (at, table) in tables.into_iter().flatten().enumerate() {
        let name = format!("table-{:02}-{}", at + 1, slug(&table.title));
        files.push(file(&name, view::chart::Sheet::of(table).csv()));
    }
    files
}

/// How long a run at a study's own lengths takes, before it begins.
#[must_use]
pub fn how_long(experiments: &[Experiment]) -> String {
    view::how_long(experiments)
}

/// Why an effect of a variant has no estimate, in words.
#[must_use]
pub fn not_estimable(reason: &NotEstimable, of: &VariantId) -> String {
    view::not_estimable(reason, Some(of))
}

/// The interim results of a run in progress: a line per candidate.
#[must_use]
pub fn so_far(analysis: &Analysis) -> Vec<String> {
    view::so_far(analysis)
}

/// The whole analysis. `docs/schema/report-v2.json` describes it.
///
/// Figures that are not finite become `null`, as JSON has no others; the analysis makes none.
#[must_use]
pub fn json(analysis: &Analysis) -> String {
    pretty(analysis)
}

/// The run's results as OpenMetrics text, for a monitoring system.
#[must_use]
pub fn openmetrics(analysis: &Analysis) -> String {
    openmetrics::render(analysis)
}

/// One row per variant, load point and metric, in the metric's own unit (`ns`, `1/s`).
#[must_use]
pub fn csv(analysis: &Analysis) -> String {
    sheet::render(analysis)
}
