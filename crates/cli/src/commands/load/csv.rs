//! The intervals as CSV, a row each.

use std::fmt::Write as _;

use super::figures::{Finished, resolved};

/// Times in seconds from the window's begin, latencies in milliseconds; what is not resolved is
/// empty.
pub(crate) fn csv(finished: &Finished<'_>) -> String {
    let mut text = String::from(
        "start_s,length_s,sent,answered,errors,answered_per_s,response_p50_ms,response_p90_ms,\
         response_p99_ms,response_max_ms,send_lag_p50_ms,send_lag_p99_ms\n",
    );
    for interval in &finished.result.intervals {
        let (response, lag) = (interval.response.expand(), interval.send_lag.expand());
        let seconds = interval.length_ns as f64 / 1e9;
        let rate = interval.answered as f64 / seconds.max(1e-9);
        let _ = write!(
            text,
            "{:.3},{seconds:.3},{},{},{},{rate:.3}",
            interval.start_ns as f64 / 1e9,
            interval.sent,
            interval.answered,
            interval.errors
        );
        for value_ns in [
            resolved(&response, 0.5),
            resolved(&response, 0.9),
            resolved(&response, 0.99),
            response.max_ns(),
            resolved(&lag, 0.5),
            resolved(&lag, 0.99),
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
    use super::super::figures::example;
    use super::*;

    #[test]
    fn a_row_for_each_interval() {
        let text = example::written(|_, _| {}, csv);
        let columns: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [12, 12, 12]);
        insta::assert_snapshot!(text);
    }
}
