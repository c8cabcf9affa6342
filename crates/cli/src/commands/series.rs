//! The runs of a spec with several topologies: one after the other, told together.

use std::fs;
use std::path::{Path, PathBuf};

use meshtax_model::analysis::Analysis;
use meshtax_model::experiment::Experiment;

use super::run::{Job, random};
use super::{analysis, page};
use crate::args::{Format, RunArgs};
use crate::exit::{Failure, MISSING, NOTHING_MEASURED, Outcome, SUCCESS, TOO_FEW, USAGE};
use crate::terminal;

/// Each run is stored in a directory of its own name below that of the series.
pub(crate) fn run(args: RunArgs, experiments: Vec<Experiment>, format: Format) -> Outcome {
    let directory = directory(&args, &experiments);
    let of = experiments.len();
    let (mut analyses, mut codes) = (Vec::new(), Vec::new());
    for (experiment, number) in experiments.into_iter().zip(1..) {
        terminal::say(&format!("run {number} of {of}: {}", experiment.name));
        let out = Some(directory.join(&experiment.name));
        let measured = Job::of(&args, experiment, out).measured()?;
        codes.push(measured.code);
        let goes_on = !measured.is_interrupted && measured.code != MISSING;
        analyses.extend(measured.analysis);
        if !goes_on {
            break;
        }
    }
    if !analyses.is_empty() {
        terminal::print(&render(&analyses, format)?);
        page::write_series(&analyses, &directory);
        terminal::say(&format!("runs: {}", directory.display()));
    }
    Ok(code(&codes))
}

fn directory(args: &RunArgs, experiments: &[Experiment]) -> PathBuf {
    let name = experiments.iter().find_map(|e| e.series.as_deref());
    let default = || {
        let now = meshtax_observe::unix_ms();
        let id = meshtax_store::run_id(now, name.unwrap_or("series"), random() as u16);
        meshtax_store::default_path(&id)
    };
    args.out.clone().unwrap_or_else(default)
}

/// What broke comes first; of runs that came to their ends, one with an answer is enough.
fn code(codes: &[u8]) -> u8 {
    let ended = |code: &&u8| [SUCCESS, TOO_FEW].contains(code);
    let broken = codes.iter().find(|code| !ended(code));
    let best = codes.iter().min();
    *broken.or(best).unwrap_or(&NOTHING_MEASURED)
}

/// The runs below a directory, in the order in which they were begun, with what a study prints of them if one is named.
/// `None`: it is one run's directory, or nobody's.
pub(crate) fn read(
    directory: &Path,
    study: Option<&str>,
) -> Result<Option<Vec<Analysis>>, Failure> {
    if is_run(directory) {
        return Ok(None);
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let runs = entries
        .map(|entry| entry.path())
        .filter(|path| is_run(path));
    let mut analyses = runs
        .map(|path| analysis::beside(&path, study))
        .collect::<Result<Vec<Analysis>, Failure>>()?;
    // What lies beside each other by chance is no series.
    let series = |analysis: &Analysis| analysis.experiment.series.clone();
    let first = analyses.first().and_then(series);
    analyses.retain(|analysis| series(analysis) == first);
    analyses.sort_by_key(|analysis| analysis.run.started_unix_ms);
    Ok(first.map(|_| analyses))
}

fn is_run(directory: &Path) -> bool {
    directory.join(meshtax_store::MANIFEST).is_file()
}

/// Whether a directory is that of a series, as far as its names tell.
pub(crate) fn is_series(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut below = entries.map(|entry| entry.path());
    !is_run(directory) && below.any(|path| is_run(&path))
}

/// The runs together, in one of the forms that there are of them.
pub(crate) fn render(runs: &[Analysis], format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Terminal => meshtax_report::series_terminal(runs, terminal::options()),
        Format::Html => meshtax_report::series_html(runs),
        Format::Markdown => meshtax_report::series_markdown(runs),
        Format::Json => meshtax_report::series_json(runs),
        Format::Csv => {
            let message = "CSV is of one run, and this directory has several";
            let fix = "name one of the directories in it";
            return Err(Failure::with_fix(USAGE, message, fix));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_broke_decides_and_else_one_answer_is_enough() {
        for (codes, expected) in [
            (&[SUCCESS, SUCCESS][..], SUCCESS),
            (&[TOO_FEW, SUCCESS], SUCCESS),
            (&[TOO_FEW, TOO_FEW], TOO_FEW),
            (&[SUCCESS, MISSING], MISSING),
            (&[SUCCESS, NOTHING_MEASURED, SUCCESS], NOTHING_MEASURED),
            (&[SUCCESS, 130], 130),
            (&[], NOTHING_MEASURED),
        ] {
            assert_eq!(code(codes), expected, "{codes:?}");
        }
    }
}
