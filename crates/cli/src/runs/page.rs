//! The HTML page in a run directory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use meshtax_model::analysis::Analysis;

use crate::terminal::say;

/// The interval at which a browser reloads the page of a run in progress, in seconds.
const REFRESH_S: u32 = 5;

/// The file name of the page.
pub(crate) const REPORT: &str = "report.html";

/// Writes the page of a completed run; a failure is reported and not fatal.
pub(crate) fn write(analysis: &Analysis, directory: &Path) {
    replace(directory, &meshtax_report::html(analysis));
}

/// Writes the page of a run series, in its directory.
pub(crate) fn write_series(runs: &[Analysis], directory: &Path) {
    replace(directory, &meshtax_report::series_html(runs));
}

/// Writes the page of a run in progress, which browsers reload. Returns whether it was written.
pub(crate) fn write_interim(analysis: &Analysis, directory: &Path) -> bool {
    replace(
        directory,
        &meshtax_report::growing_html(analysis, REFRESH_S),
    )
}

/// Replaces the page atomically: a concurrent reader gets the old or the new one.
fn replace(directory: &Path, text: &str) -> bool {
    let path = directory.join(REPORT);
    let beside = directory.join(".report.html.new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if let Err(e) = &written {
        say(&format!("cannot write {}: {e}", path.display()));
    }
    written.is_ok()
}

/// Shows a page in the desktop's browser; without one, prints its path.
pub(crate) fn open(path: &Path) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let started = Command::new(opener)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // Reaped on a thread, so that no zombie process remains.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(_) => say(&format!(
            "no browser could be opened ({opener} is missing); the page is {}",
            path.display()
        )),
    }
}
