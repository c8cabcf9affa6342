//! The summary for people: rate and verdict first, then latencies, then what else there was.

use std::fmt::Write as _;

use meshtax_load::{LoadModel, LoadSpec, Protocol, Rate};
use meshtax_model::LatencyHistogram;
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;

use super::figures::{Finished, LEAST_ABOVE, QUANTILES, resolved};
use super::hints::hints;

/// What a person reads.
pub(crate) fn text(finished: &Finished<'_>) -> String {
    let mut text = String::new();
    for part in [
        head(finished),
        rates(finished),
        latencies(finished),
        outcomes(finished),
        notes(finished),
    ] {
        if !text.is_empty() && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(&part);
    }
    text
}

/// What was offered.
fn head(finished: &Finished<'_>) -> String {
    let spec = finished.spec;
    let what = match (spec.requests.as_slice(), spec.protocol) {
        (_, Protocol::Tcp) => "bytes to".into(),
        ([one], Protocol::Grpc { .. }) => format!("call {} at", one.path),
        ([one], _) => one.method.clone(),
        (several, _) => format!("{} kinds of requests to", several.len()),
    };
    format!(
        "{what} {} ({}{}) over {}\n{}\n",
        finished.url,
        protocol(spec.protocol),
        if spec.tls.is_some() { " over TLS" } else { "" },
        connections(spec),
        model(spec)
    )
}

fn protocol(protocol: Protocol) -> String {
    let at_once = |streams| match streams {
        1 => String::new(),
        more => format!(", {more} requests at a time"),
    };
    match protocol {
        Protocol::Http1 => "HTTP/1.1".into(),
        Protocol::Http2 { streams } => format!("HTTP/2{}", at_once(streams)),
        Protocol::Grpc { streams } => format!("gRPC{}", at_once(streams)),
        Protocol::Tcp => "TCP".into(),
    }
}

fn connections(spec: &LoadSpec) -> String {
    let count = match spec.connections {
        1 => "1 connection".into(),
        many => format!("{} connections", grouped(u64::from(many))),
    };
    let lifetime = match spec.requests_per_connection {
        None => String::new(),
        Some(1) => ", a new one for every request".into(),
        Some(requests) => format!(", a new one after {requests} requests"),
    };
    let threads = match spec.threads {
        1 => String::new(),
        many => format!(", {many} threads"),
    };
    format!("{count}{lifetime}{threads}")
}

fn model(spec: &LoadSpec) -> String {
    let spread = |arrivals| match arrivals {
        Arrivals::Constant => "equal gaps",
        Arrivals::Poisson => "Poisson arrivals",
    };
    match &spec.model {
        LoadModel::Open { rate, arrivals } => {
            let rate = match rate {
                Rate::Constant { per_s } => format!("at {per_s}/s"),
                Rate::Linear {
                    from_per_s,
                    to_per_s,
                } => {
                    format!("from {from_per_s}/s to {to_per_s}/s")
                }
                Rate::Steps {
                    from_per_s,
                    to_per_s,
                    steps,
                } => {
                    format!("from {from_per_s}/s to {to_per_s}/s in {steps} steps")
                }
            };
            format!(
                "open loop {rate}, {} (seed {})",
                spread(*arrivals),
                spec.seed
            )
        }
        LoadModel::Users {
            rate_per_s,
            arrivals,
        } => format!(
            "open loop of {} users at {rate_per_s}/s each, {} (seed {})",
            spec.connections,
            spread(*arrivals),
            spec.seed
        ),
        LoadModel::Replay { times_ns } => {
            format!(
                "open loop, {} times replayed",
                grouped(times_ns.len() as u64)
            )
        }
        LoadModel::Closed { think_ns: 0 } => "closed loop".into(),
        LoadModel::Closed { think_ns } => {
            format!(
                "closed loop with pauses of {} ms",
                milliseconds(*think_ns as f64)
            )
        }
    }
}

/// What came of it, and whether that can be believed.
fn rates(finished: &Finished<'_>) -> String {
    let result = finished.result;
    let mut text = format!(
        "{} requests/s ({} answered in {}, {} offered)\n",
        rate(result.achieved_per_s()),
        grouped(result.completed),
        length(result.window_ns),
        grouped(result.offered)
    );
    if result.completed == 0 {
        // What the generator did with its time then says nothing.
        return text;
    }
    let audit = &result.audit;
    let verdict = match &audit.generator_bound {
        None => "fine".into(),
        Some(why) => format!("GENERATOR-BOUND: {why}"),
    };
    let lag = resolved(&result.generator_lag, 0.99).filter(|_| !finished.spec.model.is_closed());
    let lag = lag.map_or(String::new(), |ns| {
        format!(", p99 of its own lag {} ms", milliseconds(ns as f64))
    });
    // A hypervisor that takes the cores away makes everything late, server and generator alike.
    let steal = match audit.steal_ns {
        steal_ns if steal_ns * 100 < result.window_ns.max(1) => String::new(),
        steal_ns => format!(
            ", {} ms stolen by the hypervisor",
            milliseconds(steal_ns as f64)
        ),
    };
    let _ = writeln!(
        text,
        "generator: {verdict} ({:.0} % busy{lag}{steal})",
        audit.busy_share * 100.0
    );
    text
}

/// A table with a row for each latency that there is.
fn latencies(finished: &Finished<'_>) -> String {
    let result = finished.result;
    let is_closed = finished.spec.model.is_closed();
    // In a closed loop nothing is sent late: response, service and lag say the same.
    let rows = [
        ("response", &result.response, true),
        ("service", &result.service, !is_closed),
        ("first byte", &result.first_byte, true),
        ("send lag", &result.send_lag, !is_closed),
        ("connect", &result.connect, true),
        ("TLS handshake", &result.tls_handshake, true),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(_, histogram, is_shown)| *is_shown && histogram.count() > 0)
        .map(|(name, histogram, _)| (name, cells(histogram)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("{:<14}", "ms");
    for name in QUANTILES
        .iter()
        .map(|(name, _)| *name)
        .chain(["max", "mean"])
    {
        let _ = write!(text, "{name:>9}");
    }
    text.push('\n');
    for (name, cells) in &rows {
        let _ = write!(text, "{name:<14}");
        for cell in cells {
            let _ = write!(text, "{cell:>9}");
        }
        text.push('\n');
    }
    if rows
        .iter()
        .any(|(_, cells)| cells.iter().any(|cell| cell == "-"))
    {
        let _ = writeln!(text, "(-: fewer than {LEAST_ABOVE} above it)");
    }
    text
}

fn cells(histogram: &LatencyHistogram) -> Vec<String> {
    let quantiles = QUANTILES
        .iter()
        .map(|(_, quantile)| resolved(histogram, *quantile).map(|ns| ns as f64));
    quantiles
        .chain([histogram.max_ns().map(|ns| ns as f64), histogram.mean_ns()])
        .map(|ns| ns.map_or("-".into(), milliseconds))
        .collect()
}

/// Answers, errors, bytes, connections.
fn outcomes(finished: &Finished<'_>) -> String {
    let result = finished.result;
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<14}{what}");
    };
    if finished.spec.protocol == Protocol::Tcp {
        line("echoed", grouped(finished.good()));
    } else if !result.status.is_empty() {
        line("status", counts(result.status.iter()));
    }
    if !result.grpc_status.is_empty() {
        line("gRPC status", counts(result.grpc_status.iter()));
    }
    line("errors", errors(result));
    if result.queued > 0 {
        line(
            "queued",
            format!(
                "{} found no connection free when they were due",
                grouped(result.queued)
            ),
        );
    }
    let headers = match finished.spec.protocol {
        Protocol::Tcp => "",
        _ => ", headers included",
    };
    line(
        "bytes",
        format!(
            "{} received ({}/s), {} sent{headers}",
            bytes(result.bytes_received as f64),
            bytes(result.bytes_received as f64 / finished.seconds()),
            bytes(result.bytes_sent as f64)
        ),
    );
    let names = [&result.congestion_control, &result.socket_io];
    let names: Vec<_> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let control = match names.as_slice() {
        [] => String::new(),
        [name] => format!(" ({name})"),
        [name, other, ..] => format!(" ({name}, {other})"),
    };
    line(
        "connections",
        format!("{} opened{control}", grouped(result.connections_opened)),
    );
    text
}

fn errors(result: &LoadResult) -> String {
    let kinds = result.errors.by_kind().into_iter();
    let mut errors: Vec<_> = kinds
        .chain([("without an answer", result.unanswered)])
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{kind} {}", grouped(count)))
        .collect();
    if errors.is_empty() {
        return "none".into();
    }
    if result.failed_attempts > 0 {
        let attempts = grouped(result.failed_attempts);
        errors.push(format!("{attempts} of them of no request"));
    }
    errors.join(", ")
}

fn counts<'a>(counts: impl Iterator<Item = (&'a u16, &'a u64)>) -> String {
    let each = counts.map(|(code, count)| format!("{code}: {}", grouped(*count)));
    each.collect::<Vec<_>>().join(", ")
}

/// What the figures do not say, and what may be wrong.
fn notes(finished: &Finished<'_>) -> String {
    let mut text = String::new();
    if finished.spec.model.is_closed() && finished.result.completed > 0 {
        text.push_str(
            "closed loop: mean latency is connections / throughput by identity, so neither says how fast the \
             server is\n  at a given rate (-q), nor what it can do at most\n",
        );
    }
    for hint in hints(finished) {
        let _ = writeln!(text, "hint: {hint}");
    }
    text
}

/// `12.35 s`, `412.1 ms`.
fn length(ns: u64) -> String {
    match ns {
        1_000_000_000.. => format!("{:.2} s", ns as f64 / 1e9),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Three decimals, as many as microseconds need.
fn milliseconds(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

/// With decimals where there are few.
fn rate(per_s: f64) -> String {
    if per_s < 100.0 {
        format!("{per_s:.2}")
    } else {
        grouped(per_s.round() as u64)
    }
}

/// `1,234,567`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = count;
    let mut unit = 0;
    while scaled >= 1000.0 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{scaled:.0} B"),
        unit => format!("{scaled:.2} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    #[test]
    fn an_open_loop() {
        insta::assert_snapshot!(example::written(|_, _| {}, text));
    }

    #[test]
    fn a_closed_loop_that_the_generator_bounds() {
        let shown = example::written(
            |spec, result| {
                spec.model = LoadModel::closed();
                spec.requests_per_connection = Some(1);
                spec.tls = Some(meshtax_load::Tls::default());
                spec.threads = 2;
                result.tls_handshake = example::histogram(19, 900_000, 10_000);
                result.queued = 0;
                result.errors = Default::default();
                result.unanswered = 0;
                result.audit.busy_share = 0.97;
                result.audit.generator_bound =
                    Some("the generator worked for 97 % of the window".into());
            },
            text,
        );
        insta::assert_snapshot!(shown);
        assert!(!shown.contains("saturat"), "{shown}");
    }

    #[test]
    fn calls_of_grpc() {
        insta::assert_snapshot!(example::written(
            |spec, result| {
                spec.protocol = Protocol::Grpc { streams: 8 };
                spec.requests[0].path = "/a.B/C".into();
                spec.model = LoadModel::Users {
                    rate_per_s: 0.5,
                    arrivals: Arrivals::Poisson,
                };
                result.status = [(200, 1995)].into();
                result.grpc_status = [(0, 1990), (14, 5)].into();
            },
            text
        ));
    }

    #[test]
    fn nothing_at_all() {
        insta::assert_snapshot!(example::written(
            |_, result| *result = LoadResult::default(),
            text
        ));
    }

    #[test]
    fn numbers() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            (bytes(999.0), bytes(2_394_000.0)),
            ("999 B".into(), "2.39 MB".into())
        );
        assert_eq!(
            (rate(2.5), rate(123_456.4)),
            ("2.50".into(), "123,456".into())
        );
    }
}
