//! Where figures go besides the summary.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::figures::Finished;
use super::{csv, fortio, hgrm, json, vegeta};
use crate::args::load::{Export, ExportFormat, OutputArgs};
use crate::exit::{Failure, MISSING, USAGE};
use crate::terminal::print;

/// All exports that are asked for.
///
/// # Errors
/// With [`USAGE`] when two of them go to standard output, or one needs intervals and there are
/// none; with [`MISSING`] when a file cannot be written: better now than after the load.
pub(super) fn wanted(args: &OutputArgs) -> Result<Vec<Export>, Failure> {
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
        let problem = "csv has a row for each interval, and --interval 0 asks for none";
        return Err(Failure::with_fix(USAGE, problem, "leave --interval out"));
    }
    for path in exports.iter().filter_map(|export| export.path.as_deref()) {
        try_out(path).map_err(|e| cannot_write(path, &e))?;
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

/// Opens it as it will be opened, and leaves nothing behind.
fn try_out(path: &Path) -> io::Result<()> {
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
pub(super) fn write(exports: &[Export], finished: &Finished<'_>) -> Result<(), Failure> {
    for export in exports {
        let text = match export.format {
            ExportFormat::Json => json::json(finished),
            ExportFormat::Hgrm => hgrm::hgrm(finished),
            ExportFormat::Fortio => fortio::fortio(finished),
            ExportFormat::Vegeta => vegeta::vegeta(finished),
            ExportFormat::Csv => csv::csv(finished),
        };
        match &export.path {
            None => print(&text),
            Some(path) => fs::write(path, text).map_err(|e| cannot_write(path, &e))?,
        }
    }
    Ok(())
}
