//! Results in files and other formats.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use meshtax_formats::Format;
use meshtax_model::load::FinishedLoad;

use crate::args::load::{Export, ExportFormat, OutputArgs};
use crate::exit::{Failure, MISSING, USAGE};
use crate::terminal::print;

/// All requested exports.
///
/// # Errors
/// With [`USAGE`] when two of them go to standard output, or one needs intervals and there are none; with [`MISSING`]
/// when a file cannot be written: the load should not run in vain.
pub(super) fn requested(args: &OutputArgs) -> Result<Vec<Export>, Failure> {
    let json = args.json.then_some(Export {
        format: ExportFormat::Json,
        path: None,
    });
    let exports: Vec<_> = json
        .into_iter()
        .chain(args.output.iter().cloned())
        .collect();
    if exports
        .iter()
        .filter(|export| export.path.is_none())
        .count()
        > 1
    {
        let problem = "two outputs go to standard output";
        return Err(Failure::with_fix(
            USAGE,
            problem,
            "name a file for all but one: -o FORMAT:FILE",
        ));
    }
    let needs_intervals = exports.iter().any(|e| e.format == ExportFormat::Csv);
    if needs_intervals && args.interval == 0 {
        let problem = "csv has a row for each interval, and --interval 0 disables intervals";
        return Err(Failure::with_fix(USAGE, problem, "remove --interval 0"));
    }
    for path in exports.iter().filter_map(|export| export.path.as_deref()) {
        try_open(path).map_err(|e| cannot_write(path, &e))?;
    }
    Ok(exports)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let problem = format!("cannot write {}: {error}", path.display());
    Failure::with_fix(
        MISSING,
        problem,
        "name a file that you may write with -o FORMAT:FILE",
    )
}

/// Opens it as it will be opened later; leaves no new file behind.
fn try_open(path: &Path) -> io::Result<()> {
    let is_new = !path.exists();
    OpenOptions::new().append(true).create(true).open(path)?;
    if is_new {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes them all.
///
/// # Errors
/// With [`MISSING`] when a file cannot be written after all.
pub(super) fn write(exports: &[Export], finished: &FinishedLoad) -> Result<(), Failure> {
    for export in exports {
        let text = match export.format {
            ExportFormat::Json => meshtax_report::load::json(finished),
            ExportFormat::Hgrm => Format::Hgrm.write(finished),
            ExportFormat::Fortio => Format::Fortio.write(finished),
            ExportFormat::Vegeta => Format::Vegeta.write(finished),
            ExportFormat::Csv => Format::Intervals.write(finished),
        };
        match &export.path {
            None => print(&text),
            Some(path) => fs::write(path, text).map_err(|e| cannot_write(path, &e))?,
        }
    }
    Ok(())
}
