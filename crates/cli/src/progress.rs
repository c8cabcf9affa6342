//! Progress of a run, on standard error.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use meshtax_model::event::{Event, Preparation, RoundTotal};
use meshtax_model::failure::VariantFailure;

use crate::terminal::{self, say};

/// Shows a run's events: a bar on a terminal, a line per round elsewhere.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    round: String,
    left_ns: Option<u64>,
    last_interim: Option<Instant>,
}

/// The minimum interval between interim results where there is no bar.
const INTERIM_INTERVAL: Duration = Duration::from_secs(30);

/// How a bar counts trials.
const OF_TRIALS: &str = "{bar:24} {pos}/{len}  {msg}\n  {prefix}";

/// How a bar counts bytes.
const OF_BYTES: &str = "{bar:24} {bytes}/{total_bytes}  {msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            bar.set_style(style(OF_TRIALS));
            bar
        });
        Self {
            bar,
            round: String::new(),
            left_ns: None,
            last_interim: None,
        }
    }

    /// Shows interim results: below the bar, or as lines from time to time.
    pub(crate) fn interim(&mut self, lines: &[String]) {
        if let Some(bar) = &self.bar {
            let room = terminal::width_of_messages().saturating_sub(2).max(20);
            let lines: Vec<String> = lines.iter().map(|line| cut(line, room)).collect();
            bar.set_prefix(lines.join("\n  "));
            return;
        }
        let is_due = self
            .last_interim
            .is_none_or(|shown| shown.elapsed() >= INTERIM_INTERVAL);
        if is_due && !lines.is_empty() {
            self.last_interim = Some(Instant::now());
            say("interim results:");
            for line in lines {
                say(&format!("  {line}"));
            }
        }
    }

    /// Shows the progress of a transfer, in bytes.
    pub(crate) fn transfer(&self, done_bytes: u64, total_bytes: u64, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_style(style(OF_BYTES));
            bar.set_length(total_bytes);
            bar.set_position(done_bytes.min(total_bytes));
            bar.set_message(what.to_owned());
        }
    }

    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Preparing(Preparation::Environment) => {
                self.message("preparing the environment");
            }
            Event::Preparing(Preparation::InjectedDelay) => {
                self.message("preparing the size of the injected delay");
            }
            Event::Preparing(Preparation::Saturation) => {
                self.message("calibrating the application: how much work it needs to saturate at the rate asked for");
            }
            Event::RoundStarted { round, of } => {
                let of = match of {
                    RoundTotal::Expected(rounds) => rounds.to_string(),
                    RoundTotal::AtLeast(rounds) => format!("at least {rounds}"),
                };
                self.round = format!("round {round} of {of}");
                let left = self
                    .left_ns
                    .map_or(String::new(), |ns| format!(", {} left", duration(ns)));
                let line = format!("{}: starting and verifying the variants{left}", self.round);
                self.message(&line);
            }
            Event::VariantFailed(VariantFailure {
                variant,
                round,
                reason,
            }) => {
                self.line(&format!(
                    "{variant} is excluded from round {round}: {reason}"
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
            Event::TrialFailed { trial, failure } => {
                self.line(&format!(
                    "trial {} ({}): {failure}",
                    trial.id, trial.variant
                ));
            }
            Event::ComponentEnded(component) => {
                self.line(&format!("terminated during the round: {component}"));
            }
            Event::Finished => self.clear(),
        }
    }

    pub(crate) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Shows what is being done, without a measure of its progress.
    pub(crate) fn message(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => say(text),
        }
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.set_style(style(OF_TRIALS));
        }
    }
}

/// Truncates a line so that it does not wrap: the lines of a bar are overwritten.
fn cut(line: &str, room: usize) -> String {
    if line.chars().count() <= room {
        return line.to_owned();
    }
    let kept: String = line.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// `1m 05s`, `12s`.
pub(crate) fn duration(ns: u64) -> String {
    let seconds = Duration::from_nanos(ns).as_secs();
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m {:02}s", seconds % 60),
    }
}
