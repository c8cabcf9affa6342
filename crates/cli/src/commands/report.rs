//! `meshtax report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meshtax_model::analysis::Analysis;
use meshtax_report::TerminalOptions;

use super::published;
use crate::args::{Format, ReportArgs, last_weights};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, UNREADABLE, USAGE};
use crate::runs::{page, render, series, stored};
use crate::terminal;

/// The interval at which a run in progress is read.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// A run without a new trial for this long was killed: no step takes longer.
const ABORTED_AFTER: Duration = Duration::from_secs(180);

pub(crate) fn report(args: &ReportArgs) -> Outcome {
    let path = args.run.clone().map_or_else(newest, Ok)?;
    if args.watch {
        return watch(&path, args);
    }
    let study = requested_study(args)?;
    if let Some(runs) = series::read(&path, study)? {
        weights_apply(args, true)?;
        is_one_run(args)?;
        return report_series(&runs, &path, args);
    }
    weights_apply(args, false)?;
    let mut analysis = stored::analysis_with_study(&path, study)?;
    let weights = last_weights(&args.weight);
    analysis.decision = meshtax_stats::advise::decide(&analysis, &weights);
    match (&args.publish, &args.out) {
        (Some(directory), _) => publish(&analysis, directory)?,
        (None, Some(out)) => write(&analysis, args.format, out)?,
        (None, None) if args.open => {}
        (None, None) => {
            terminal::print(&render::run(&analysis, args.format, terminal::options()));
        }
    }
    if args.open {
        page::write(&analysis, &path);
        page::open(&path.join(page::REPORT));
    }
    Ok(SUCCESS)
}

/// The published result that is to be reported beside the measured ones.
fn requested_study(args: &ReportArgs) -> Result<Option<&'static str>, Failure> {
    let Some(name) = &args.published else {
        return Ok(None);
    };
    let set = published::find(name)?;
    let overheads_alone = args.format == Format::Csv && args.out.is_none();
    if matches!(args.format, Format::Json | Format::Openmetrics) || overheads_alone {
        let message = "--published: this format contains measured figures only";
        let fix = format!(
            "use terminal, html, markdown or `--format csv --out DIR`, or `meshtax published show {name} --json`"
        );
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    Ok(Some(&set.name))
}

/// Weights that would change nothing are refused.
fn weights_apply(args: &ReportArgs, is_series: bool) -> Result<(), Failure> {
    let (message, fix) = match args.format {
        _ if args.weight.is_empty() => return Ok(()),
        _ if is_series => (
            "--weight: several runs have no common decision table",
            "name the directory of one of the runs",
        ),
        Format::Csv | Format::Openmetrics if args.out.is_none() => (
            "--weight: this format has no decision table",
            "use terminal, html, markdown, json or `--format csv --out DIR`",
        ),
        _ => return Ok(()),
    };
    Err(Failure::with_fix(USAGE, message, fix))
}

/// A page to publish is of one run.
fn is_one_run(args: &ReportArgs) -> Result<(), Failure> {
    if args.publish.is_none() {
        return Ok(());
    }
    let message = "--publish: a page has one run, and this directory has several";
    let fix = "name one of the directories in it";
    Err(Failure::with_fix(USAGE, message, fix))
}

/// The report of a run series.
fn report_series(runs: &[Analysis], path: &Path, args: &ReportArgs) -> Outcome {
    match &args.out {
        Some(out) => {
            // A file is no terminal: no colors.
            let text = render::series(runs, args.format, TerminalOptions::default())?;
            fs::write(out, text).map_err(|e| not_writable(out, &e))?;
        }
        None if args.open => {}
        None => terminal::print(&render::series(runs, args.format, terminal::options())?),
    }
    if args.open {
        page::write_series(runs, path);
        page::open(&path.join(page::REPORT));
    }
    Ok(SUCCESS)
}

/// Reports again whenever there are new trials, until the manifest records the end of the run.
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
            let analysis = stored::analyse(&run);
            terminal::begin_again();
            terminal::print(&render::run(&analysis, args.format, terminal::options()));
            if is_over {
                page::write(&analysis, path);
            } else {
                page::write_interim(&analysis, path);
            }
            if std::mem::take(&mut open) {
                page::open(&path.join(page::REPORT));
            }
        }
        if is_over {
            return Ok(SUCCESS);
        }
        if changed.elapsed() > ABORTED_AFTER {
            terminal::say(
                "no trial was stored for three minutes, and no end is recorded: the run was aborted",
            );
            return Ok(SUCCESS);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Writes a report to files.
fn write(analysis: &Analysis, format: Format, out: &Path) -> Result<(), Failure> {
    match format {
        Format::Csv => write_all(out, &meshtax_report::sheets(analysis)),
        Format::Markdown => {
            let stem = out.file_stem().unwrap_or_default().to_string_lossy();
            let folder = format!("{stem}-pictures");
            let (text, pictures) = meshtax_report::illustrated_markdown(analysis, &folder);
            write_all(&out.with_file_name(folder), &pictures)?;
            fs::write(out, text).map_err(|e| not_writable(out, &e))
        }
        Format::Terminal | Format::Html | Format::Json | Format::Openmetrics => {
            // A file is no terminal: no colors.
            let text = render::run(analysis, format, TerminalOptions::default());
            fs::write(out, text).map_err(|e| not_writable(out, &e))
        }
    }
}

/// The page of a published run.
const PUBLISHED: &str = "report.md";

/// The directories beside it.
const PICTURES: &str = "pictures";
const DATA: &str = "data";

/// Writes a page to publish. Other files in the directory stay as they are.
fn publish(analysis: &Analysis, directory: &Path) -> Result<(), Failure> {
    let (text, pictures) = meshtax_report::publication(analysis, PICTURES, DATA);
    write_all(&directory.join(PICTURES), &pictures)?;
    write_all(&directory.join(DATA), &meshtax_report::sheets(analysis))?;
    let page = directory.join(PUBLISHED);
    fs::write(&page, text).map_err(|e| not_writable(&page, &e))?;
    terminal::say(&format!("page: {}", page.display()));
    Ok(())
}

fn write_all(directory: &Path, files: &[meshtax_report::File]) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|e| not_writable(directory, &e))?;
    for file in files {
        let path = directory.join(&file.name);
        fs::write(&path, &file.text).map_err(|e| not_writable(&path, &e))?;
    }
    Ok(())
}

fn not_writable(path: &Path, why: &std::io::Error) -> Failure {
    let message = format!("cannot write {}: {why}", path.display());
    Failure::with_fix(
        MISSING,
        message,
        "name a writable path with --out or --publish",
    )
}

/// The newest run in the default directory. Run names begin with their start time.
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
        .filter(|path| series::is_run(path) || series::is_series(path))
        .max()
        .ok_or_else(|| {
            let message = format!("there is no run in {}", parent.display());
            Failure::with_fix(
                UNREADABLE,
                message,
                "name a run directory, or create one with `meshtax run`",
            )
        })
}
