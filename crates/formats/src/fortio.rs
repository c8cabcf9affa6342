//! Fortio's result file, as `fortio report` and its plots read it.
//!
//! Times are in seconds, except `ActualDuration`, which is in nanoseconds. Fortio has one latency: here it is the
//! response latency, from the intended send time.

use std::collections::BTreeMap;

use meshtax_model::LatencyHistogram;
use meshtax_model::experiment::Arrivals;
use meshtax_model::load::{FinishedLoad, OfferedLoad, Protocol, Rate};
use serde::Serialize;
use time::OffsetDateTime;

use crate::moments::Moments;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    run_type: &'static str,
    labels: String,
    start_time: String,
    #[serde(rename = "RequestedQPS")]
    requested_qps: String,
    requested_duration: String,
    #[serde(rename = "ActualQPS")]
    actual_qps: f64,
    actual_duration: u64,
    num_threads: u32,
    version: String,
    duration_histogram: Histogram,
    errors_duration_histogram: Histogram,
    exactly: u64,
    jitter: bool,
    uniform: bool,
    no_catch_up: bool,
    #[serde(rename = "RunID")]
    run_id: u32,
    #[serde(rename = "ID")]
    id: String,
    ret_codes: BTreeMap<String, u64>,
    #[serde(rename = "URL")]
    url: String,
    num_connections: u32,
    disable_keep_alive: bool,
    h2: bool,
    socket_count: u64,
    connection_stats: Histogram,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Histogram {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    avg: f64,
    std_dev: f64,
    data: Option<Vec<Bucket>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    percentiles: Vec<Percentile>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    start: f64,
    end: f64,
    /// Up to its end, 0 to 100.
    percent: f64,
    count: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Percentile {
    percentile: f64,
    value: f64,
}

/// The file's content.
pub(crate) fn write(load: &FinishedLoad) -> String {
    let (settings, result) = (&load.settings, &load.result);
    let start_time = rfc3339(load.started_unix_ms);
    let document = Document {
        run_type: match settings.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Grpc { .. } => "GRPC",
            Protocol::Http1 | Protocol::Http2 { .. } => "HTTP",
        },
        labels: "meshtax".into(),
        id: format!("{}_meshtax", start_time[..19].replace(['T', ':'], "-")),
        start_time,
        requested_qps: requested_rate(&settings.model, settings.connections),
        requested_duration: match settings.max_requests {
            Some(count) => format!("exactly {count} calls"),
            None => format!("{}s", load.seconds()),
        },
        actual_qps: result.achieved_per_s(),
        actual_duration: result.window_ns,
        num_threads: settings.connections,
        version: format!("meshtax {}", env!("CARGO_PKG_VERSION")),
        duration_histogram: histogram(&result.response),
        // Fortio plots the share of errors from here. Their durations are not recorded separately.
        errors_duration_histogram: Histogram {
            count: result.offered.saturating_sub(load.successful()),
            ..Histogram::default()
        },
        exactly: settings.max_requests.unwrap_or(0),
        jitter: false,
        uniform: matches!(
            settings.model,
            OfferedLoad::Open {
                arrivals: Arrivals::Constant,
                ..
            }
        ),
        no_catch_up: false,
        run_id: 0,
        ret_codes: ret_codes(load),
        url: load.url.clone(),
        num_connections: 1,
        disable_keep_alive: settings.requests_per_connection == Some(1),
        h2: matches!(
            settings.protocol,
            Protocol::Http2 { .. } | Protocol::Grpc { .. }
        ),
        socket_count: result.connections_opened,
        connection_stats: histogram(&result.connect),
    };
    // Plain numbers and strings always serialize.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Requests without a response have no status: Fortio counts them as -1.
fn ret_codes(load: &FinishedLoad) -> BTreeMap<String, u64> {
    let result = &load.result;
    let mut codes: BTreeMap<_, _> = result
        .status
        .iter()
        .map(|(status, count)| (status.to_string(), *count))
        .collect();
    let without = load.without_response();
    if without > 0 {
        codes.insert("-1".into(), without);
    }
    codes
}

fn requested_rate(model: &OfferedLoad, connections: u32) -> String {
    match model {
        OfferedLoad::Open { rate, .. } => match rate {
            Rate::Constant { per_s } => per_s.to_string(),
            Rate::Linear {
                from_per_s,
                to_per_s,
            }
            | Rate::Steps {
                from_per_s,
                to_per_s,
                ..
            } => ((from_per_s + to_per_s) / 2.0).to_string(),
        },
        OfferedLoad::Users { rate_per_s, .. } => (rate_per_s * f64::from(connections)).to_string(),
        OfferedLoad::Replay { .. } | OfferedLoad::Closed { .. } => "max".into(),
    }
}

/// In seconds, with buckets that a plot can show.
fn histogram(histogram: &LatencyHistogram) -> Histogram {
    let moments = Moments::of(histogram);
    if moments.count == 0 {
        return Histogram::default();
    }
    let seconds = |ns: f64| ns / 1e9;
    let percentiles = LatencyHistogram::PERCENTILES
        .iter()
        .filter_map(|(name, quantile)| {
            Some(Percentile {
                percentile: name.trim_start_matches('p').parse().ok()?,
                value: seconds(histogram.resolved_quantile_ns(*quantile)? as f64),
            })
        });
    Histogram {
        count: moments.count,
        min: seconds(moments.min),
        max: seconds(moments.max),
        sum: seconds(moments.mean * moments.count as f64),
        avg: seconds(moments.mean),
        std_dev: seconds(moments.standard_deviation),
        data: Some(buckets(histogram, &moments)),
        percentiles: percentiles.collect(),
    }
}

/// Like Fortio's: the first begins at the smallest latency, the last ends at the largest, and
/// none is empty.
fn buckets(histogram: &LatencyHistogram, moments: &Moments) -> Vec<Bucket> {
    let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (value_ns, count) in histogram.buckets() {
        let (low, high) = edges(value_ns);
        counts.entry(low).or_insert((high, 0)).1 += count;
    }
    let mut below = 0;
    counts
        .into_iter()
        .map(|(low, (high, count))| {
            below += count;
            Bucket {
                start: (low as f64).max(moments.min) / 1e9,
                end: (high as f64).min(moments.max).max(moments.min) / 1e9,
                percent: 100.0 * below as f64 / moments.count as f64,
                count,
            }
        })
        .collect()
}

/// Steps of a tenth of the decade up to twice its begin, of a fifth up to five times, of a half
/// above: each at most a tenth of the latency, and edges that people can read.
fn edges(value_ns: u64) -> (u64, u64) {
    let decade = 10_u64.pow(value_ns.max(1).ilog10());
    let step = match value_ns / decade {
        0 | 1 => decade / 10,
        2..=4 => decade / 5,
        _ => decade / 2,
    }
    .max(1);
    let low = value_ns / step * step;
    (low, low + step)
}

/// `2026-11-21T09:25:38.086Z`.
fn rfc3339(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        unix_ms % 1000
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use meshtax_fixtures::load::finished;

    use meshtax_model::load::LoadSettings;
    use meshtax_model::trial::LoadResult;

    use super::*;

    fn parsed(change: impl FnOnce(&mut LoadSettings, &mut LoadResult)) -> Value {
        serde_json::from_str(&write(&finished(change))).unwrap()
    }

    #[test]
    fn output_matches_the_format_of_fortio() {
        insta::assert_snapshot!(write(&finished(|_, _| {})));
    }

    #[test]
    fn bucket_counts_add_up_and_cover_minimum_to_maximum() {
        let value = parsed(|_, _| {});
        let histogram = &value["DurationHistogram"];
        let data = histogram["Data"].as_array().unwrap();
        let sum: u64 = data.iter().map(|b| b["Count"].as_u64().unwrap()).sum();
        assert_eq!(sum, 1995);
        assert_eq!(data[0]["Start"], histogram["Min"]);
        assert_eq!(data[data.len() - 1]["End"], histogram["Max"]);
        assert_eq!(data[data.len() - 1]["Percent"], 100.0);
        for two in data.windows(2) {
            assert!(
                two[0]["End"].as_f64() <= two[1]["Start"].as_f64(),
                "{two:?}"
            );
        }
        assert_eq!(value["RetCodes"]["-1"], 5);
        // Five without a response, and five with status 503.
        assert_eq!(value["ErrorsDurationHistogram"]["Count"], 10);
    }

    #[test]
    fn load_without_responses_has_empty_histograms() {
        let value = parsed(|settings, result| {
            *result = LoadResult::default();
            settings.model = OfferedLoad::Closed { think_ns: 0 };
        });
        assert_eq!(value["DurationHistogram"]["Count"], 0);
        assert_eq!(value["DurationHistogram"]["Data"], Value::Null);
        assert_eq!(value["RequestedQPS"], "max");
    }

    #[test]
    fn bucket_edges_are_round_numbers() {
        assert_eq!(edges(123_456), (120_000, 130_000));
        assert_eq!(edges(255_000), (240_000, 260_000));
        assert_eq!(edges(999_999), (950_000, 1_000_000));
        assert_eq!(edges(0), (0, 1));
        assert_eq!(edges(7), (7, 8));
    }
}
