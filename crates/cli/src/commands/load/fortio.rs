//! Fortio's result file, as `fortio report` and its plots read it.
//!
//! Times are seconds, but `ActualDuration` is nanoseconds. Fortio knows one latency: here it is the
//! response latency, from the intended send time.

use std::collections::BTreeMap;

use meshtax_load::{LoadModel, Protocol, Rate};
use meshtax_model::LatencyHistogram;
use meshtax_model::experiment::Arrivals;
use serde::Serialize;
use time::OffsetDateTime;

use super::figures::{Finished, Moments, QUANTILES, resolved};

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
pub(crate) fn fortio(finished: &Finished<'_>) -> String {
    let (spec, result) = (finished.spec, finished.result);
    let start_time = rfc3339(finished.started_unix_ms);
    let document = Document {
        run_type: match spec.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Grpc { .. } => "GRPC",
            Protocol::Http1 | Protocol::Http2 { .. } => "HTTP",
        },
        labels: "meshtax".into(),
        id: format!("{}_meshtax", start_time[..19].replace(['T', ':'], "-")),
        start_time,
        requested_qps: requested_rate(&spec.model, spec.connections),
        requested_duration: match spec.max_requests {
            Some(count) => format!("exactly {count} calls"),
            None => format!("{}s", finished.seconds()),
        },
        actual_qps: result.achieved_per_s(),
        actual_duration: result.window_ns,
        num_threads: spec.connections,
        version: format!("meshtax {}", env!("CARGO_PKG_VERSION")),
        duration_histogram: histogram(&result.response),
        // Its plots take the share of errors from here. How long those took is not kept apart.
        errors_duration_histogram: Histogram {
            count: result.offered.saturating_sub(finished.good()),
            ..Histogram::default()
        },
        exactly: spec.max_requests.unwrap_or(0),
        jitter: false,
        uniform: matches!(
            spec.model,
            LoadModel::Open {
                arrivals: Arrivals::Constant,
                ..
            }
        ),
        no_catch_up: false,
        run_id: 0,
        ret_codes: ret_codes(finished),
        url: finished.url.to_owned(),
        num_connections: 1,
        disable_keep_alive: spec.requests_per_connection == Some(1),
        h2: matches!(
            spec.protocol,
            Protocol::Http2 { .. } | Protocol::Grpc { .. }
        ),
        socket_count: result.connections_opened,
        connection_stats: histogram(&result.connect),
    };
    // Plain numbers and texts always have a JSON form.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Requests without an answer have no status: Fortio counts them as -1.
fn ret_codes(finished: &Finished<'_>) -> BTreeMap<String, u64> {
    let result = finished.result;
    let mut codes: BTreeMap<_, _> = result
        .status
        .iter()
        .map(|(status, count)| (status.to_string(), *count))
        .collect();
    let without = finished.without_answer();
    if without > 0 {
        codes.insert("-1".into(), without);
    }
    codes
}

fn requested_rate(model: &LoadModel, connections: u32) -> String {
    match model {
        LoadModel::Open { rate, .. } => match rate {
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
        LoadModel::Users { rate_per_s, .. } => (rate_per_s * f64::from(connections)).to_string(),
        LoadModel::Replay { .. } | LoadModel::Closed { .. } => "max".into(),
    }
}

/// In seconds, with buckets that a plot can show.
fn histogram(histogram: &LatencyHistogram) -> Histogram {
    let moments = Moments::of(histogram);
    if moments.count == 0 {
        return Histogram::default();
    }
    let seconds = |ns: f64| ns / 1e9;
    let percentiles = QUANTILES.iter().filter_map(|(name, quantile)| {
        Some(Percentile {
            percentile: name.trim_start_matches('p').parse().ok()?,
            value: seconds(resolved(histogram, *quantile)? as f64),
        })
    });
    Histogram {
        count: moments.count,
        min: seconds(moments.min),
        max: seconds(moments.max),
        sum: seconds(moments.mean * moments.count as f64),
        avg: seconds(moments.mean),
        std_dev: seconds(moments.deviation),
        data: Some(buckets(histogram, &moments)),
        percentiles: percentiles.collect(),
    }
}

/// As Fortio has them: the first begins at the smallest latency, the last ends at the largest, and
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

    use super::super::figures::example;
    use super::*;

    fn parsed(
        change: impl FnOnce(&mut meshtax_load::LoadSpec, &mut meshtax_model::trial::LoadResult),
    ) -> Value {
        serde_json::from_str(&example::written(change, fortio)).unwrap()
    }

    #[test]
    fn the_form_of_fortio() {
        insta::assert_snapshot!(example::written(|_, _| {}, fortio));
    }

    #[test]
    fn counts_add_up_and_buckets_touch_the_ends() {
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
        // Five without an answer, and five with status 503.
        assert_eq!(value["ErrorsDurationHistogram"]["Count"], 10);
    }

    #[test]
    fn a_load_without_answers_has_a_form_too() {
        let value = parsed(|spec, result| {
            *result = meshtax_model::trial::LoadResult::default();
            spec.model = LoadModel::closed();
        });
        assert_eq!(value["DurationHistogram"]["Count"], 0);
        assert_eq!(value["DurationHistogram"]["Data"], Value::Null);
        assert_eq!(value["RequestedQPS"], "max");
    }

    #[test]
    fn edges_are_readable() {
        assert_eq!(edges(123_456), (120_000, 130_000));
        assert_eq!(edges(255_000), (240_000, 260_000));
        assert_eq!(edges(999_999), (950_000, 1_000_000));
        assert_eq!(edges(0), (0, 1));
        assert_eq!(edges(7), (7, 8));
    }
}
