//! The summary of one load: throughput and the generator first, then latencies, then the rest.

use crate::view::reasons::generator_bound;
use std::fmt::Write as _;

use meshtax_model::LatencyHistogram;
use meshtax_model::experiment::Arrivals;
use meshtax_model::load::{FinishedLoad, LoadSettings, OfferedLoad, Protocol, Rate};
use meshtax_model::trial::LoadResult;

use super::hints::hints;
use super::numbers::{self, grouped, milliseconds};

/// The summary.
pub(crate) fn summary(load: &FinishedLoad) -> String {
    let mut text = String::new();
    for part in [
        head(load),
        rates(load),
        latencies(load),
        outcomes(load),
        notes(load),
    ] {
        if !text.is_empty() && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(&part);
    }
    text
}

/// What was offered.
fn head(load: &FinishedLoad) -> String {
    let settings = &load.settings;
    let what = match (settings.requests.as_slice(), settings.protocol) {
        (_, Protocol::Tcp) => "bytes to".into(),
        ([one], Protocol::Grpc { .. }) => format!("call {} at", one.path),
        ([one], _) => one.method.clone(),
        (several, _) => format!("{} kinds of requests to", several.len()),
    };
    format!(
        "{what} {} ({}{}) over {}\n{}\n",
        load.url,
        protocol(settings.protocol),
        if settings.tls.is_some() {
            " over TLS"
        } else {
            ""
        },
        connections(settings),
        model(settings)
    )
}

fn protocol(protocol: Protocol) -> String {
    let at_once = |streams| match streams {
        1 => String::new(),
        more => format!(", {more} concurrent requests per connection"),
    };
    match protocol {
        Protocol::Http1 => "HTTP/1.1".into(),
        Protocol::Http2 { streams } => format!("HTTP/2{}", at_once(streams)),
        Protocol::Grpc { streams } => format!("gRPC{}", at_once(streams)),
        Protocol::Tcp => "TCP".into(),
    }
}

fn connections(settings: &LoadSettings) -> String {
    let lifetime = match settings.requests_per_connection {
        None => String::new(),
        Some(1) => ", a new one for each request".into(),
        Some(requests) => format!(", a new one after {requests} requests"),
    };
    let threads = match settings.threads {
        1 => String::new(),
        many => format!(", {many} threads"),
    };
    format!(
        "{}{lifetime}{threads}",
        numbers::connections(settings.connections)
    )
}

fn model(settings: &LoadSettings) -> String {
    let spread = |arrivals| match arrivals {
        Arrivals::Constant => "equal gaps",
        Arrivals::Poisson => "Poisson arrivals",
    };
    match &settings.model {
        OfferedLoad::Open { rate, arrivals } => {
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
                settings.seed
            )
        }
        OfferedLoad::Users {
            rate_per_s,
            arrivals,
        } => format!(
            "open loop of {} users at {rate_per_s}/s each, {} (seed {})",
            settings.connections,
            spread(*arrivals),
            settings.seed
        ),
        OfferedLoad::Replay { times } => {
            format!("open loop, replay of {} send times", grouped(*times))
        }
        OfferedLoad::Closed { think_ns: 0 } => "closed loop".into(),
        OfferedLoad::Closed { think_ns } => {
            format!(
                "closed loop with pauses of {} ms",
                milliseconds(*think_ns as f64)
            )
        }
    }
}

/// Throughput, and whether the generator limited it.
fn rates(load: &FinishedLoad) -> String {
    let result = &load.result;
    let mut text = format!(
        "{} responses/s ({} in {}, {} requests offered)\n",
        rate(result.achieved_per_s()),
        grouped(result.completed),
        length(result.window_ns),
        grouped(result.offered)
    );
    if result.completed == 0 {
        // How busy the generator was means nothing then.
        return text;
    }
    let audit = &result.audit;
    let verdict = match &audit.generator_bound {
        None => "kept up".into(),
        Some(bound) => format!("THE BOTTLENECK: {}", generator_bound(bound)),
    };
    let lag = result
        .generator_lag
        .resolved_quantile_ns(0.99)
        .filter(|_| !load.settings.model.is_closed());
    let lag = lag.map_or(String::new(), |ns| {
        format!(", p99 lag {} ms", milliseconds(ns as f64))
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
fn latencies(load: &FinishedLoad) -> String {
    let result = &load.result;
    let is_closed = load.settings.model.is_closed();
    // In a closed loop nothing is sent late: response and service latency are equal.
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
    for name in LatencyHistogram::PERCENTILES
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
        let _ = writeln!(
            text,
            "(-: fewer than {} values above it)",
            LatencyHistogram::MIN_ABOVE
        );
    }
    text
}

fn cells(histogram: &LatencyHistogram) -> Vec<String> {
    let quantiles = LatencyHistogram::PERCENTILES.iter().map(|(_, quantile)| {
        histogram
            .resolved_quantile_ns(*quantile)
            .map(|ns| ns as f64)
    });
    quantiles
        .chain([histogram.max_ns().map(|ns| ns as f64), histogram.mean_ns()])
        .map(|ns| ns.map_or("-".into(), milliseconds))
        .collect()
}

/// Statuses, errors, bytes, connections.
fn outcomes(load: &FinishedLoad) -> String {
    let result = &load.result;
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<14}{what}");
    };
    if load.settings.protocol == Protocol::Tcp {
        line("echoed", grouped(load.successful()));
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
                "{} requests were due while no connection was free",
                grouped(result.queued)
            ),
        );
    }
    let headers = match load.settings.protocol {
        Protocol::Tcp => "",
        _ => ", headers included",
    };
    line(
        "bytes",
        format!(
            "{} received ({}/s), {} sent{headers}",
            bytes(result.bytes_received as f64),
            bytes(result.bytes_received as f64 / load.seconds()),
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
        .map(|(kind, count)| (kind.to_string(), count))
        .chain([("no response".to_owned(), result.unanswered)])
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{kind} {}", grouped(count)))
        .collect();
    if errors.is_empty() {
        return "none".into();
    }
    if result.failed_attempts > 0 {
        let attempts = grouped(result.failed_attempts);
        errors.push(format!("{attempts} of them while opening connections"));
    }
    errors.join(", ")
}

fn counts<'a>(counts: impl Iterator<Item = (&'a u16, &'a u64)>) -> String {
    let each = counts.map(|(code, count)| format!("{code}: {}", grouped(*count)));
    each.collect::<Vec<_>>().join(", ")
}

/// How to read a closed loop, and what to check.
fn notes(load: &FinishedLoad) -> String {
    let mut text = String::new();
    if load.settings.model.is_closed() && load.result.completed > 0 {
        text.push_str(
            "closed loop: mean latency equals connections / throughput, so neither figure shows how fast the server is\n  \
             at a given rate (-q), nor its capacity\n",
        );
    }
    for hint in hints(load) {
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

/// With decimals where there are few.
fn rate(per_s: f64) -> String {
    if per_s < 100.0 {
        format!("{per_s:.2}")
    } else {
        grouped(per_s.round() as u64)
    }
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
    use meshtax_fixtures::load::{finished, histogram};
    use meshtax_model::load::TlsSettings;
    use meshtax_model::trial::{GeneratorBound, GeneratorLimit};

    use super::*;

    #[test]
    fn open_loop_has_all_latencies() {
        insta::assert_snapshot!(summary(&finished(|_, _| {})));
    }

    #[test]
    fn generator_bound_closed_loop_has_a_note() {
        let shown = summary(&finished(|settings, result| {
            settings.model = OfferedLoad::Closed { think_ns: 0 };
            settings.requests_per_connection = Some(1);
            settings.tls = Some(TlsSettings::default());
            settings.threads = 2;
            result.tls_handshake = histogram(19, 900_000, 10_000);
            result.queued = 0;
            result.errors = Default::default();
            result.unanswered = 0;
            result.audit.busy_share = 0.97;
            result.audit.generator_bound = Some(GeneratorBound {
                worker: None,
                limit: GeneratorLimit::Busy {
                    busy_share: 0.97,
                    max_share: 0.95,
                    closed_loop: true,
                },
            });
        }));
        insta::assert_snapshot!(shown);
        assert!(!shown.contains("saturat"), "{shown}");
    }

    #[test]
    fn grpc_calls_have_their_own_status() {
        insta::assert_snapshot!(summary(&finished(|settings, result| {
            settings.protocol = Protocol::Grpc { streams: 8 };
            settings.requests[0].path = "/a.B/C".into();
            settings.model = OfferedLoad::Users {
                rate_per_s: 0.5,
                arrivals: Arrivals::Poisson,
            };
            result.status = [(200, 1995)].into();
            result.grpc_status = [(0, 1990), (14, 5)].into();
        })));
    }

    #[test]
    fn load_without_responses_has_a_hint() {
        insta::assert_snapshot!(summary(&finished(|_, result| {
            *result = LoadResult::default();
        })));
    }

    #[test]
    fn bytes_and_rates_have_digits_by_their_size() {
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
