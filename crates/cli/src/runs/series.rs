//! The stored runs of a spec with several topologies.

use std::fs;
use std::path::{Path, PathBuf};

use meshtax_model::analysis::Analysis;

use super::stored;
use crate::exit::Failure;

/// The runs of the series in a directory, in the order in which they were started, as if their spec had named `study`.
/// `None`: the directory is that of a single run, or has no runs.
pub(crate) fn read(
    directory: &Path,
    study: Option<&str>,
) -> Result<Option<Vec<Analysis>>, Failure> {
    if is_run(directory) {
        return Ok(None);
    }
    let runs = entries(directory).filter(|path| is_run(path));
    let mut analyses = runs
        .map(|path| stored::analysis_with_study(&path, study))
        .collect::<Result<Vec<Analysis>, Failure>>()?;
    // Other runs in the same directory do not belong to the series.
    let series = |analysis: &Analysis| analysis.experiment.series.clone();
    let first = analyses.first().and_then(series);
    analyses.retain(|analysis| series(analysis) == first);
    analyses.sort_by_key(|analysis| analysis.run.started_unix_ms);
    Ok(first.map(|_| analyses))
}

/// Whether a directory contains run directories, and is not one itself.
pub(crate) fn is_series(directory: &Path) -> bool {
    !is_run(directory) && entries(directory).any(|path| is_run(&path))
}

pub(crate) fn is_run(directory: &Path) -> bool {
    directory.join(meshtax_store::MANIFEST).is_file()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
