//! What a person who waits sees, on standard error.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use meshtax_model::event::Event;

use crate::terminal::{self, say};

/// Shows a run's events: a bar on a terminal, a line per round elsewhere.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    round: String,
    left_ns: Option<u64>,
    told: Option<Instant>,
}

/// Where there is no bar, what is known so far is told no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(30);

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}\n  {prefix}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self {
            bar,
            round: String::new(),
            left_ns: None,
            told: None,
        }
    }

    /// What is known of a run that goes on: below the bar, or as lines from time to time.
    pub(crate) fn so_far(&mut self, lines: &[String]) {
        if let Some(bar) = &self.bar {
            let room = terminal::width_of_messages().saturating_sub(2).max(20);
            let lines: Vec<String> = lines.iter().map(|line| cut(line, room)).collect();
            bar.set_prefix(lines.join("\n  "));
            return;
        }
        let is_new = self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if is_new && !lines.is_empty() {
            self.told = Some(Instant::now());
            say("so far:");
            for line in lines {
                say(&format!("  {line}"));
            }
        }
    }

    /// Whether there is a bar that moves.
    pub(crate) fn is_bar(&self) -> bool {
        self.bar.is_some()
    }

    /// Progress of something that is not the run itself, as a share of the whole (0 to 1).
    pub(crate) fn share(&self, share: f64, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(100);
            bar.set_position((share.clamp(0.0, 1.0) * 100.0) as u64);
            bar.set_message(what.to_owned());
        }
    }

    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Preparing { what } => self.message(&format!("preparing {what}")),
            Event::RoundStarted { round, of } => {
                self.round = format!("round {round} of {of}");
                let left = self
                    .left_ns
                    .map_or(String::new(), |ns| format!(", {} left", duration(ns)));
                let line = format!("{}: starting and proving the variants{left}", self.round);
                self.message(&line);
            }
            Event::VariantFailed {
                variant,
                round,
                reason,
            } => {
                self.line(&format!(
                    "{variant} cannot be measured in round {round}: {reason}"
                ));
            }
            Event::TrialStarted {
                trial,
                done,
                of,
                left_ns,
            } => {
                self.left_ns = Some(*left_ns);
                if let Some(bar) = &self.bar {
                    bar.set_length(u64::from(*of));
                    bar.set_position(u64::from(*done));
                    let left = duration(*left_ns);
                    let (variant, point) = (&trial.variant, &trial.load_point);
                    bar.set_message(format!("{left} left  {}  {variant}, {point}", self.round));
                }
            }
            Event::TrialFailed { trial, reason } => {
                self.line(&format!("trial {} ({}): {reason}", trial.id, trial.variant));
            }
            Event::ComponentDied { what } => self.line(&format!("dead by the round's end: {what}")),
            Event::Finished => self.clear(),
        }
    }

    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    fn message(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => say(text),
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line that does not wrap: a bar's lines are drawn over.
fn cut(line: &str, room: usize) -> String {
    if line.chars().count() <= room {
        return line.to_owned();
    }
    let kept: String = line.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// `1m 05s`, `12s`.
fn duration(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs();
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m {:02}s", seconds % 60),
    }
}
