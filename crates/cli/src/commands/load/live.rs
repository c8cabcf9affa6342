//! What a person who waits sees, on standard error: a line that is rewritten on a terminal, a line
//! per interval elsewhere.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressStyle};
use meshtax_load::{LoadSpec, Progress};
use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadInterval;

use super::figures::resolved;
use super::text::grouped;
use crate::terminal::say;

/// Shows a load while it goes on.
pub(super) struct Live<'a> {
    spec: &'a LoadSpec,
    bar: Option<ProgressBar>,
    /// Where the last interval that was shown begins.
    shown: Option<u64>,
    /// The last interval, in words.
    figures: String,
}

impl<'a> Live<'a> {
    pub(super) fn new(spec: &'a LoadSpec) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Self {
            spec,
            bar,
            shown: None,
            figures: String::new(),
        }
    }

    pub(super) fn show(&mut self, progress: &Progress<'_>) {
        let news = progress
            .last
            .filter(|last| self.shown != Some(last.start_ns));
        if let Some(last) = news {
            self.shown = Some(last.start_ns);
            self.figures = figures(last);
        }
        match &self.bar {
            Some(bar) => bar.set_message(line(self.spec, progress, &self.figures)),
            None if news.is_some() => say(&line(self.spec, progress, &self.figures)),
            None => {}
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `12.3s of 60s  1,003/s  p50 0.123 ms  p99 0.456 ms  lag p99 0.051 ms  0 errors  64 connections`.
fn line(spec: &LoadSpec, progress: &Progress<'_>, figures: &str) -> String {
    let seconds = progress.elapsed_ns as f64 / 1e9;
    let is_warm = progress.elapsed_ns >= spec.warmup_ns;
    let done = match spec.max_requests {
        Some(count) => format!(
            "{seconds:.1}s  {} of {}",
            grouped(progress.answered),
            grouped(count)
        ),
        None => {
            let whole_ns = spec.warmup_ns + spec.window_ns + spec.cooldown_ns;
            format!("{seconds:.1}s of {:.1}s", whole_ns as f64 / 1e9)
        }
    };
    let figures = match (is_warm, figures) {
        (false, _) => "warming up",
        (true, "") => "no interval is over yet",
        (true, figures) => figures,
    };
    format!(
        "{done}  {figures}  {} errors  {} connections",
        grouped(progress.failed),
        grouped(u64::from(progress.connections))
    )
}

fn figures(last: &LoadInterval) -> String {
    let seconds = (last.length_ns as f64 / 1e9).max(1e-9);
    let (response, lag) = (last.response.expand(), last.send_lag.expand());
    let median = resolved(&response, 0.5);
    format!(
        "{}/s  p50 {} ms  {} ms  lag {} ms",
        grouped((last.answered as f64 / seconds).round() as u64),
        median.map_or("-".into(), |ns| format!("{:.3}", ns as f64 / 1e6)),
        high(&response),
        high(&lag)
    )
}

/// The highest percentile up to p99 that the interval resolves: `p99 0.456`; few requests have
/// their largest instead.
fn high(histogram: &LatencyHistogram) -> String {
    let percentiles = [("p99", 0.99), ("p95", 0.95), ("p90", 0.9)];
    let found = percentiles
        .iter()
        .find_map(|(name, quantile)| Some((*name, resolved(histogram, *quantile)?)));
    match found.or_else(|| Some(("max", histogram.max_ns()?))) {
        Some((name, ns)) => format!("{name} {:.3}", ns as f64 / 1e6),
        None => "max -".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    #[test]
    fn a_line_says_rate_latency_lag_and_errors() {
        let (spec, result) = (example::spec(), example::result());
        let progress = Progress {
            elapsed_ns: 1_750_000_000,
            sent: 1250,
            answered: 1249,
            failed: 1,
            connections: 16,
            last: result.intervals.first(),
        };
        let figures = figures(&result.intervals[0]);
        assert_eq!(
            line(&spec, &progress, &figures),
            "1.8s of 2.5s  998/s  p50 0.160 ms  p95 0.250 ms  lag p95 0.005 ms  1 errors  16 connections"
        );
        let early = Progress {
            elapsed_ns: 100_000_000,
            ..progress
        };
        assert!(line(&spec, &early, "").contains("warming up"));
        let counted = LoadSpec {
            max_requests: Some(300_000),
            ..spec
        };
        assert!(line(&counted, &progress, &figures).starts_with("1.8s  1,249 of 300,000  "));
    }
}
