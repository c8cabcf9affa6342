//! A run in progress: interim results, and whether the requested precision is reached.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meshtax_model::analysis::Analysis;
use meshtax_model::event::Event;

use super::{page, stored};
use crate::progress::Progress;

/// The maximum share of the run's time that interim analyses take. They happen between rounds, when nothing is
/// measured.
const MAX_SHARE: f64 = 0.02;

/// The interim results of a run in progress.
pub(crate) struct Live {
    directory: PathBuf,
    half_width: Option<f64>,
    begin: Instant,
    spent: Duration,
    /// Rounds with trials.
    rounds: BTreeSet<u32>,
    /// Whether there are enough rounds for interim results.
    shows: bool,
    open: bool,
}

impl Live {
    /// Of a run in this directory that stops at this precision, with trials in `rounds` so far; `open`: show the page in a
    /// browser.
    pub(crate) fn new(
        directory: &Path,
        half_width: Option<f64>,
        rounds: BTreeSet<u32>,
        open: bool,
    ) -> Self {
        Self {
            directory: directory.to_path_buf(),
            half_width,
            begin: Instant::now(),
            spent: Duration::ZERO,
            shows: !rounds.is_empty(),
            rounds,
            open,
        }
    }

    /// Between rounds, updates the interim results in the terminal and on the page.
    pub(crate) fn update(&mut self, event: &Event, progress: &mut Progress) {
        if let Event::TrialStarted { trial, .. } = event {
            self.rounds.insert(trial.round);
        }
        if !self.shows || !matches!(event, Event::RoundStarted { .. }) {
            return;
        }
        if let Some(analysis) = self.analyse() {
            progress.interim(&meshtax_report::so_far(&analysis));
            let shown = page::write_interim(&analysis, &self.directory);
            if shown && std::mem::take(&mut self.open) {
                page::open(&self.directory.join(page::REPORT));
            }
        }
    }

    /// `None`: the share of the time is used up, or there is nothing to analyse.
    fn analyse(&mut self) -> Option<Analysis> {
        let elapsed = self.begin.elapsed();
        if self.spent.as_secs_f64() > MAX_SHARE * elapsed.as_secs_f64() {
            return None;
        }
        let started = Instant::now();
        let analysis = stored::analysis_so_far(&self.directory);
        self.spent += started.elapsed();
        analysis
    }

    /// Whether every primary effect has the requested precision. Called after the last block of a round.
    pub(crate) fn is_precise_enough(&mut self) -> bool {
        self.shows = true;
        let Some(half_width) = self.half_width else {
            return false;
        };
        let rounds = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX);
        if !meshtax_stats::stopping::looks(rounds) {
            return false;
        }
        meshtax_store::read(&self.directory)
            .is_ok_and(|run| meshtax_stats::precision_reached(&stored::data(&run), half_width))
    }
}
