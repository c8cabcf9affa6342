//! The intervals as CSV, a row each.

use std::fmt::Write as _;

use meshtax_model::load::FinishedLoad;

/// Times in seconds from the start of the window, latencies in milliseconds. A percentile with too few requests above
/// it is empty.
pub(crate) fn write(load: &FinishedLoad) -> String {
    let mut text = String::from(
        "start_s,length_s,sent,responses,errors,responses_per_s,response_p50_ms,response_p90_ms,\
         response_p99_ms,response_max_ms,send_lag_p50_ms,send_lag_p99_ms\n",
    );
    for interval in &load.result.intervals {
        let (response, lag) = (interval.response.expand(), interval.send_lag.expand());
        let seconds = interval.length_ns as f64 / 1e9;
        let rate = interval.responses as f64 / seconds.max(1e-9);
        let _ = write!(
            text,
            "{:.3},{seconds:.3},{},{},{},{rate:.3}",
            interval.start_ns as f64 / 1e9,
            interval.sent,
            interval.responses,
            interval.errors
        );
        for value_ns in [
            response.resolved_quantile_ns(0.5),
            response.resolved_quantile_ns(0.9),
            response.resolved_quantile_ns(0.99),
            response.max_ns(),
            lag.resolved_quantile_ns(0.5),
            lag.resolved_quantile_ns(0.99),
        ] {
            let cell = value_ns.map_or(String::new(), |ns| format!("{:.6}", ns as f64 / 1e6));
            let _ = write!(text, ",{cell}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;

    use super::*;

    #[test]
    fn every_interval_has_a_row() {
        let text = write(&finished(|_, _| {}));
        let columns: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [12, 12, 12]);
        insta::assert_snapshot!(text);
    }
}
