//! `meshtax report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meshtax_model::analysis::Analysis;

use super::{analysis, page, published, series};
use crate::args::{Format, ReportArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, UNREADABLE, USAGE};
use crate::terminal;

/// How often a run that goes on is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// A run in which nothing was measured for so long was killed: no step of one takes longer.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(180);

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let path = args.run.clone().map_or_else(newest, Ok)?;
    if args.watch {
        return watch(&path, args);
    }
    let study = asked_for(args)?;
    if let Some(mut runs) = series::read(&path, study)? {
        if study.is_some() {
            meshtax_report::asked_for(&mut runs);
        }
        return of_series(&runs, &path, args);
    }
    let mut analysis = analysis::beside(&path, study)?;
    if study.is_some() {
        meshtax_report::asked_for(std::slice::from_mut(&mut analysis));
    }
    match &args.out {
        Some(out) => write(&analysis, args.format, out)?,
        None if args.open => {}
        None => terminal::print(&render(&analysis, args.format)),
    }
    if args.open {
        page::write(&analysis, &path);
        page::open(&path.join(page::REPORT));
    }
    Ok(SUCCESS)
}

/// The published result that is to stand beside what was measured.
fn asked_for(args: &ReportArgs) -> Result<Option<&'static str>, Failure> {
    let Some(name) = &args.published else {
        return Ok(None);
    };
    let set = published::find(name)?;
    let overheads_alone = args.format == Format::Csv && args.out.is_none();
    if args.format == Format::Json || overheads_alone {
        let message =
            "--published: this form has what was measured, and nothing that others published";
        let fix = format!(
            "take terminal, html, markdown or `--format csv --out DIR`, or `meshtax published show {name} --json`"
        );
        return Err(Failure::with_fix(USAGE, message, &fix));
    }
    Ok(Some(&set.name))
}

/// Several runs of one spec.
fn of_series(runs: &[Analysis], path: &Path, args: &ReportArgs) -> Outcome {
    match &args.out {
        Some(out) => {
            // A file is no terminal: no colors.
            let text = match args.format {
                Format::Terminal => {
                    let options = meshtax_report::TerminalOptions::default();
                    meshtax_report::series_terminal(runs, options)
                }
                format => series::render(runs, format)?,
            };
            fs::write(out, text).map_err(|e| unwritable(out, &e))?;
        }
        None if args.open => {}
        None => terminal::print(&series::render(runs, args.format)?),
    }
    if args.open {
        page::write_series(runs, path);
        page::open(&path.join(page::REPORT));
    }
    Ok(SUCCESS)
}

/// Reports again when the trials on disk have become more, until the manifest says how the run ended.
fn watch(path: &Path, args: &ReportArgs) -> Outcome {
    let mut open = args.open;
    let mut seen = None;
    let mut changed = Instant::now();
    loop {
        let now = fs::metadata(path.join(meshtax_store::TRIALS))
            .ok()
            .map(|m| m.len());
        let run = meshtax_store::read(path).map_err(|e| Failure::new(UNREADABLE, e))?;
        let is_over = run.manifest.ending.is_some();
        if now != seen || is_over {
            seen = now;
            changed = Instant::now();
            let analysis = meshtax_stats::analyse(&analysis::data(&run));
            terminal::begin_again();
            terminal::print(&render(&analysis, args.format));
            if is_over {
                page::write(&analysis, path);
            } else {
                page::write_growing(&analysis, path);
            }
            if std::mem::take(&mut open) {
                page::open(&path.join(page::REPORT));
            }
        }
        if is_over {
            return Ok(SUCCESS);
        }
        if changed.elapsed() > GIVEN_UP_AFTER {
            terminal::say(
                "nothing was measured for three minutes, and no end is on record: the run was broken off",
            );
            return Ok(SUCCESS);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A report as files.
fn write(analysis: &Analysis, format: Format, out: &Path) -> Result<(), Failure> {
    match format {
        Format::Csv => write_all(out, &meshtax_report::sheets(analysis)),
        Format::Markdown => {
            let stem = out.file_stem().unwrap_or_default().to_string_lossy();
            let folder = format!("{stem}-pictures");
            let (text, pictures) = meshtax_report::illustrated_markdown(analysis, &folder);
            write_all(&out.with_file_name(folder), &pictures)?;
            fs::write(out, text).map_err(|e| unwritable(out, &e))
        }
        Format::Terminal => {
            // A file is no terminal: no colors.
            let text =
                meshtax_report::terminal(analysis, meshtax_report::TerminalOptions::default());
            fs::write(out, text).map_err(|e| unwritable(out, &e))
        }
        Format::Html | Format::Json => {
            fs::write(out, render(analysis, format)).map_err(|e| unwritable(out, &e))
        }
    }
}

fn write_all(directory: &Path, files: &[meshtax_report::File]) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|e| unwritable(directory, &e))?;
    for file in files {
        let path = directory.join(&file.name);
        fs::write(&path, &file.text).map_err(|e| unwritable(&path, &e))?;
    }
    Ok(())
}

fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    let message = format!("cannot write {}: {why}", path.display());
    Failure::with_fix(
        MISSING,
        message,
        "name a place that you may write to with --out",
    )
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
        .filter(|path| path.join(meshtax_store::MANIFEST).is_file() || series::is_series(path))
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
