//! Headings and labels of the formats: everything that is not part of one report.

/// Above the tables.
pub(crate) const TABLES: &str = "Results";
/// Above the decision table.
pub(crate) const DECISION: &str = "Decision";
/// Above the tables of checks.
pub(crate) const CHECKS: &str = "Supporting data";
/// Above further tables.
pub(crate) const DETAILS: &str = "Details";
/// Above the evidence.
pub(crate) const EVIDENCE: &str = "Evidence";
/// Above the notes.
pub(crate) const NOTES: &str = "Caveats and notes";
/// Of the page's navigation.
pub(crate) const NAVIGATION: &str = "Sections of this report";
/// Of the page's check boxes.
pub(crate) const TOGGLES: &str = "Variants shown in charts";
/// Before a list of a figure's drawings.
pub(crate) const SHOW: &str = "Show";
/// Of a figure's raw data.
pub(crate) const DATA: &str = "Data";
/// In place of raw data that is too long for the page.
pub(crate) const DATA_AS_FILES: &str =
    "Data: meshtax report RUN --format csv --out DIR (too long for this page)";
/// Of the tables that a comment folds away.
pub(crate) const FOLDED: &str =
    "CPU and memory in full, comparisons between variants, valid trials";
/// Of the gate's annotations.
pub(crate) const GATE_PASSED: &str = "meshtax gate passed";
/// Of a check that failed.
pub(crate) const GATE_FAILED: &str = "meshtax gate failed";
/// Of a check that too little data decides.
pub(crate) const GATE_INCONCLUSIVE: &str = "meshtax gate inconclusive";

/// Of the choice between a figure's drawings.
pub(crate) fn choice(title: &str) -> String {
    format!("What to show: {title}")
}

/// Of a table of a figure's raw data.
pub(crate) fn data_of(title: &str) -> String {
    format!("Data: {title}")
}

/// Of a link to data as CSV.
pub(crate) fn csv_of(title: &str) -> String {
    format!("CSV: {title}")
}

/// Of the list of probes.
pub(crate) fn probes_passed(passed: usize, all: usize) -> String {
    format!("{passed} of {all} probes passed")
}

/// Below a table on a narrow terminal.
pub(crate) fn omitted_columns(heads: &[String]) -> String {
    format!("Columns omitted for lack of width: {}", heads.join(", "))
}

/// Behind a figure's first drawing.
pub(crate) fn also(first: &str, others: &str) -> String {
    format!("{first}; also: {others}")
}
