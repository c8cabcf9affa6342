//! Reports of one run or of a run series, in each format.

use meshtax_model::analysis::Analysis;
use meshtax_report::TerminalOptions;

use crate::args::Format;
use crate::exit::{Failure, USAGE};

/// The report of a run; `terminal` is how it is laid out for a terminal.
pub(crate) fn run(analysis: &Analysis, format: Format, terminal: TerminalOptions) -> String {
    match format {
        Format::Terminal => meshtax_report::terminal(analysis, terminal),
        Format::Html => meshtax_report::html(analysis),
        Format::Markdown => meshtax_report::markdown(analysis),
        Format::Json => meshtax_report::json(analysis),
        Format::Csv => meshtax_report::csv(analysis),
        Format::Openmetrics => meshtax_report::openmetrics(analysis),
    }
}

/// The report of a run series.
pub(crate) fn series(
    runs: &[Analysis],
    format: Format,
    terminal: TerminalOptions,
) -> Result<String, Failure> {
    Ok(match format {
        Format::Terminal => meshtax_report::series_terminal(runs, terminal),
        Format::Html => meshtax_report::series_html(runs),
        Format::Markdown => meshtax_report::series_markdown(runs),
        Format::Json => meshtax_report::series_json(runs),
        Format::Csv | Format::Openmetrics => {
            let message = "a report in this format is for one run, and this directory has several";
            let fix = "name one of the directories in it";
            return Err(Failure::with_fix(USAGE, message, fix));
        }
    })
}
