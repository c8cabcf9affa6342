//! A run while it goes on: what is known so far, and whether that is enough.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meshtax_model::analysis::Analysis;
use meshtax_model::event::Event;

use super::{analysis, page};
use crate::progress::Progress;

/// Looking takes at most this share of the run's time, and only between rounds, when nothing is
/// measured.
const SHARE_MAX: f64 = 0.02;

/// What a browser waits before it asks for the page again, in seconds.
pub(crate) const REFRESH_S: u32 = 5;

/// Looks at a run from within.
pub(crate) struct Live {
    directory: PathBuf,
    half_width: Option<f64>,
    begin: Instant,
    spent: Duration,
    round: u32,
    /// Rounds with measured blocks.
    rounds: BTreeSet<u32>,
    open: bool,
}

impl Live {
    /// Of a run in this directory that stops at this precision; `open`: for a browser, too.
    pub(crate) fn new(directory: &Path, half_width: Option<f64>, open: bool) -> Self {
        Self {
            directory: directory.to_path_buf(),
            half_width,
            begin: Instant::now(),
            spent: Duration::ZERO,
            round: 0,
            rounds: BTreeSet::new(),
            open,
        }
    }

    /// Between rounds: tells what is known, in the terminal and on the page.
    pub(crate) fn hear(&mut self, event: &Event, progress: &mut Progress) {
        let Event::RoundStarted { round, .. } = event else {
            return;
        };
        self.round = *round;
        if self.rounds.is_empty() {
            return;
        }
        if let Some(analysis) = self.look() {
            progress.so_far(&meshtax_report::so_far(&analysis));
            let shown = page::write_growing(&analysis, &self.directory);
            if shown && std::mem::take(&mut self.open) {
                page::open(&self.directory.join(page::REPORT));
            }
        }
    }

    /// `None`: looking has taken its share of the time already, or there is nothing to see.
    fn look(&mut self) -> Option<Analysis> {
        let elapsed = self.begin.elapsed();
        if self.spent.as_secs_f64() > SHARE_MAX * elapsed.as_secs_f64() {
            return None;
        }
        let began = Instant::now();
        let analysis = analysis::quietly(&self.directory);
        self.spent += began.elapsed();
        analysis
    }

    /// Whether every primary effect is known as well as was asked for. Called after each block.
    pub(crate) fn is_enough(&mut self) -> bool {
        self.rounds.insert(self.round);
        let Some(half_width) = self.half_width else {
            return false;
        };
        let rounds = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX);
        if !meshtax_stats::stopping::looks(rounds) {
            return false;
        }
        meshtax_store::read(&self.directory)
            .is_ok_and(|run| meshtax_stats::precision_reached(&analysis::data(&run), half_width))
    }
}
