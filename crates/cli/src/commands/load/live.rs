//! Shows a running load on standard error: a line that is rewritten on a terminal, a line per interval elsewhere.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};
use meshtax_load::{LoadSpec, Progress};
use meshtax_model::load::{LoadProgress, LoadSettings};

use crate::terminal::say;

/// The display of a running load.
pub(super) struct Live {
    settings: LoadSettings,
    bar: Option<ProgressBar>,
    /// Start of the last interval that was shown.
    shown: Option<u64>,
}

impl Live {
    pub(super) fn new(spec: &LoadSpec) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Self {
            settings: spec.settings(),
            bar,
            shown: None,
        }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        let last = progress.last.map(|last| last.start_ns);
        let is_new = last.is_some() && last != self.shown;
        if is_new {
            self.shown = last;
        }
        let line = || {
            let progress = LoadProgress {
                elapsed_ns: progress.elapsed_ns,
                responses: progress.responses,
                errors: progress.failed,
                connections: progress.connections,
                last: progress.last,
            };
            meshtax_report::load::progress(&self.settings, &progress)
        };
        match &self.bar {
            Some(bar) => bar.set_message(line()),
            None if is_new => say(&line()),
            None => {}
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
