//! A running load in one line.

use meshtax_model::LatencyHistogram;
use meshtax_model::load::{LoadProgress, LoadSettings};
use meshtax_model::trial::LoadInterval;

use super::numbers::{grouped, milliseconds, milliseconds_or_dash};

/// `12.3s of 60s  1,003/s  p50 0.123 ms  p99 0.456 ms  lag p99 0.051 ms  0 errors  64 connections`.
pub(crate) fn progress(settings: &LoadSettings, progress: &LoadProgress<'_>) -> String {
    let seconds = progress.elapsed_ns as f64 / 1e9;
    let done = match settings.max_requests {
        Some(all) => format!(
            "{seconds:.1}s  {} of {}",
            grouped(progress.responses),
            grouped(all)
        ),
        None => {
            let whole_ns = settings.warmup_ns + settings.window_ns + settings.cooldown_ns;
            format!("{seconds:.1}s of {:.1}s", whole_ns as f64 / 1e9)
        }
    };
    let is_warm = progress.elapsed_ns >= settings.warmup_ns;
    let figures = match (is_warm, progress.last) {
        (false, _) => "warming up".to_owned(),
        (true, None) => "first interval".to_owned(),
        (true, Some(last)) => figures(last),
    };
    format!(
        "{done}  {figures}  {} errors  {} connections",
        grouped(progress.errors),
        grouped(u64::from(progress.connections))
    )
}

fn figures(last: &LoadInterval) -> String {
    let seconds = (last.length_ns as f64 / 1e9).max(1e-9);
    let (response, lag) = (last.response.expand(), last.send_lag.expand());
    format!(
        "{}/s  p50 {} ms  {} ms  lag {} ms",
        grouped((last.responses as f64 / seconds).round() as u64),
        milliseconds_or_dash(response.resolved_quantile_ns(0.5)),
        highest(&response),
        highest(&lag)
    )
}

/// The highest percentile up to p99 that the interval resolves (`p99 0.456`), or else the maximum.
fn highest(histogram: &LatencyHistogram) -> String {
    let percentiles = [("p99", 0.99), ("p95", 0.95), ("p90", 0.9)];
    let found = percentiles
        .iter()
        .find_map(|(name, quantile)| Some((*name, histogram.resolved_quantile_ns(*quantile)?)));
    match found.or_else(|| Some(("max", histogram.max_ns()?))) {
        Some((name, ns)) => format!("{name} {}", milliseconds(ns as f64)),
        None => "max -".into(),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load;

    use super::*;

    #[test]
    fn line_has_rate_latency_lag_and_errors() {
        let (mut settings, result) = (load::settings(), load::result());
        let now = LoadProgress {
            elapsed_ns: 1_750_000_000,
            responses: 1249,
            errors: 1,
            connections: 16,
            last: result.intervals.first(),
        };
        assert_eq!(
            progress(&settings, &now),
            "1.8s of 2.5s  998/s  p50 0.160 ms  p95 0.250 ms  lag p95 0.005 ms  1 errors  16 connections"
        );
        let early = LoadProgress {
            elapsed_ns: 100_000_000,
            ..now
        };
        assert!(progress(&settings, &early).contains("warming up"));
        settings.max_requests = Some(300_000);
        assert!(progress(&settings, &now).starts_with("1.8s  1,249 of 300,000  "));
    }
}
