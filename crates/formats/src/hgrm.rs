//! HdrHistogram's percentile distribution as text (`.hgrm`), for its plotters and for readers of wrk2's output.

use std::fmt::Write as _;

use meshtax_model::LatencyHistogram;
use meshtax_model::load::FinishedLoad;

use crate::moments::Moments;

/// Rows for each halving of the distance to 100 %: HdrHistogram's own choice.
const TICKS_PER_HALF: f64 = 5.0;

/// The response latency, in milliseconds.
pub(crate) fn write(load: &FinishedLoad) -> String {
    let histogram = &load.result.response;
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for row in rows(histogram) {
        let inverse = match 1.0 - row.share {
            0.0 => "inf".into(),
            rest => format!("{:.2}", 1.0 / rest),
        };
        let _ = writeln!(
            text,
            "{:12.6} {:2.12} {:10} {inverse:>14}",
            row.value_ns as f64 / 1e6,
            row.share,
            row.total
        );
    }
    let moments = Moments::of(histogram);
    let _ = writeln!(
        text,
        "#[Mean    = {:12.6}, StdDeviation   = {:12.6}]\n\
         #[Max     = {:12.6}, Total count    = {:12}]\n\
         #[Buckets = {:12}, SubBuckets     = {:12}]",
        moments.mean / 1e6,
        moments.standard_deviation / 1e6,
        moments.max / 1e6,
        moments.count,
        BUCKETS,
        SUB_BUCKETS
    );
    text
}

/// Of a histogram from 1 ns to an hour with three digits.
const BUCKETS: u32 = 32;
const SUB_BUCKETS: u32 = 2048;

struct Row {
    value_ns: u64,
    /// 0 to 1.
    share: f64,
    /// Latencies up to this value.
    total: u64,
}

/// The levels come closer to 100 % as the distance to it halves; each names the first value at
/// which so many latencies are reached.
fn rows(histogram: &LatencyHistogram) -> Vec<Row> {
    let count = histogram.count() as f64;
    let (mut rows, mut total, mut level) = (Vec::new(), 0, 0.0_f64);
    let mut last_ns = 0;
    for (value_ns, here) in histogram.buckets() {
        total += here;
        last_ns = value_ns;
        while level <= 100.0 * total as f64 / count {
            rows.push(Row {
                value_ns,
                share: level / 100.0,
                total,
            });
            let halvings = (100.0 / (100.0 - level)).log2().floor() + 1.0;
            level += 100.0 / (TICKS_PER_HALF * halvings.exp2());
            if total == histogram.count() {
                break;
            }
        }
    }
    if total > 0 {
        rows.push(Row {
            value_ns: last_ns,
            share: 1.0,
            total,
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;

    use super::*;

    #[test]
    fn output_matches_the_format_of_hdr_histogram() {
        insta::assert_snapshot!(write(&finished(|_, _| {})));
    }

    #[test]
    fn rows_match_the_histogram_and_come_closer_to_100_percent() {
        let histogram = meshtax_fixtures::load::histogram(100_000, 1000, 100);
        let rows = rows(&histogram);
        for row in &rows {
            let below = row.total as f64 / 100_000.0;
            assert!(below >= row.share - 1e-9, "{} {}", row.total, row.share);
        }
        let shares: Vec<_> = rows.iter().map(|row| row.share).collect();
        assert!(shares.is_sorted());
        assert_eq!(&shares[..6], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]);
        assert_eq!(
            rows.last().map(|r| (r.share, r.total)),
            Some((1.0, 100_000))
        );
        assert!(rows.len() < 100, "{}", rows.len());
    }

    #[test]
    fn empty_histogram_has_no_rows() {
        let text = write(&finished(|_, result| {
            result.response = LatencyHistogram::new();
        }));
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}
