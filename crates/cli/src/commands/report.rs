//! `meshtax report`.

use std::fs;
use std::path::{Path, PathBuf};

use meshtax_model::analysis::Analysis;

use super::analysis;
use crate::args::{Format, ReportArgs};
use crate::exit::{Failure, Outcome, SUCCESS, UNREADABLE};
use crate::terminal;

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let path = args.run.clone().map_or_else(newest, Ok)?;
    let analysis = analysis::of_directory(&path)?;
    terminal::print(&render(&analysis, args.format));
    Ok(SUCCESS)
}

/// The analysis in one of its forms.
pub(crate) fn render(analysis: &Analysis, format: Format) -> String {
    match format {
        Format::Terminal => meshtax_report::terminal(analysis, terminal::options()),
        Format::Html => meshtax_report::html(analysis),
        Format::Markdown => meshtax_report::markdown(analysis),
        Format::Json => meshtax_report::json(analysis),
        Format::Csv => meshtax_report::csv(analysis),
    }
}

/// The newest run where runs are put by default. Their names begin with their time.
fn newest() -> Result<PathBuf, Failure> {
    let parent = meshtax_store::default_path("x")
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default();
    fs::read_dir(&parent)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(meshtax_store::MANIFEST).is_file())
        .max()
        .ok_or_else(|| {
            let message = format!("there is no run in {}", parent.display());
            Failure::with_fix(
                UNREADABLE,
                message,
                "name a run's directory, or make one with `meshtax run`",
            )
        })
}
