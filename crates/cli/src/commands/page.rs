//! The page of a run, in its directory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use meshtax_model::analysis::Analysis;

use super::live::REFRESH_S;
use crate::terminal::say;

/// Its name.
pub(crate) const REPORT: &str = "report.html";

/// Writes the page of a run that is over; says so if that cannot be.
pub(crate) fn write(analysis: &Analysis, directory: &Path) {
    replace(directory, &meshtax_report::html(analysis));
}

/// Writes the page of several runs of one spec, in their common directory.
pub(crate) fn write_series(runs: &[Analysis], directory: &Path) {
    replace(directory, &meshtax_report::series_html(runs));
}

/// Writes the page of a run that goes on: browsers ask for it again. Whether it is there.
pub(crate) fn write_growing(analysis: &Analysis, directory: &Path) -> bool {
    replace(
        directory,
        &meshtax_report::growing_html(analysis, REFRESH_S),
    )
}

/// As a whole: whoever reads it meanwhile gets the old one or the new one.
fn replace(directory: &Path, text: &str) -> bool {
    let path = directory.join(REPORT);
    let beside = directory.join(".report.html.new");
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if let Err(e) = &written {
        say(&format!("cannot write {}: {e}", path.display()));
    }
    written.is_ok()
}

/// Asks the desktop to show a page, and says where it is if there is none.
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
        // It ends by itself; somebody must take note of it.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(_) => say(&format!(
            "no browser could be opened ({opener} is missing); the page is {}",
            path.display()
        )),
    }
}
