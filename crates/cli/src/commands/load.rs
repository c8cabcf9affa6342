//! `meshtax load`: the load generator by itself.

use std::fmt::Write as _;
use std::net::ToSocketAddrs as _;

use meshtax_load::{Hooks, LoadError, LoadModel, LoadSpec, Progress as Count, Rate, Request};
use meshtax_model::LatencyHistogram;
use meshtax_model::trial::LoadResult;
use serde_json::json;

use crate::args::LoadArgs;
use crate::exit::{Failure, MISSING, NOTHING_MEASURED, Outcome, SUCCESS, USAGE};
use crate::interrupt::Interrupt;
use crate::terminal::{print, say};

pub(crate) fn load(args: LoadArgs) -> Outcome {
    let json = args.json;
    let spec = spec(args)?;
    let interrupt = Interrupt::catch();
    let mut on_window = |_| {};
    let mut on_progress = |count: Count<'_>| live(&count);
    let hooks = Hooks {
        on_progress: Some(&mut on_progress),
        abort: Some(&interrupt.flag),
        ..Hooks::new(&mut on_window)
    };
    let outcome = meshtax_load::run_with(&spec, hooks).map_err(failure)?;
    let text = if json {
        as_json(&spec, &outcome)
    } else {
        as_text(&spec, &outcome)
    };
    print(&text);
    let nothing = outcome.completed == 0;
    Ok(interrupt
        .exit_code()
        .unwrap_or(if nothing { NOTHING_MEASURED } else { SUCCESS }))
}

fn failure(error: LoadError) -> Failure {
    let code = match &error {
        LoadError::Invalid { .. } => USAGE,
        LoadError::Connect { .. } => NOTHING_MEASURED,
        _ => MISSING,
    };
    Failure::new(code, error)
}

fn spec(args: LoadArgs) -> Result<LoadSpec, Failure> {
    let url = Url::parse(&args.url).map_err(|why| {
        Failure::with_fix(
            USAGE,
            format!("{}: {why}", args.url),
            "write it as http://HOST[:PORT][/PATH]",
        )
    })?;
    let target = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(|e| Failure::new(USAGE, format!("cannot look up {}: {e}", url.host)))?
        .min_by_key(|address| !address.is_ipv4())
        .ok_or_else(|| Failure::new(USAGE, format!("{} has no address", url.host)))?;
    let seed = args.seed.unwrap_or_else(meshtax_observe::unix_ms);
    Ok(LoadSpec {
        requests: vec![Request {
            weight: 1,
            host: url.authority,
            path: url.path,
            method: args.method,
            headers: args.header,
            body: args.body.into_bytes(),
        }],
        connections: args.connections,
        model: match args.rate {
            Some(rate_per_s) => LoadModel::open(rate_per_s, args.arrivals),
            None => LoadModel::closed(),
        },
        seed,
        warmup_ns: args.warmup,
        window_ns: args.duration,
        cores: args.core.into_iter().collect(),
        spin: !args.no_spin,
        ..LoadSpec::new(target)
    })
}

/// The parts of a URL that a request needs.
struct Url {
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Url {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = match text.split_once("://") {
            None => text,
            Some(("http", rest)) => rest,
            Some(("https", _)) => return Err("https is not spoken yet"),
            Some(_) => return Err("only http is spoken"),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || authority.contains('@') {
            return Err("no host is named");
        }
        let path = match path {
            "" => "/".into(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (
                host,
                port.parse()
                    .map_err(|_| "the port is no number from 1 to 65535")?,
            ),
            _ => (authority, 80),
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(Self {
            authority: authority.to_owned(),
            host,
            port,
            path,
        })
    }
}

fn live(count: &Count<'_>) {
    if !(count.elapsed_ns / 250_000_000).is_multiple_of(4) {
        return;
    }
    let seconds = count.elapsed_ns as f64 / 1e9;
    say(&format!(
        "{seconds:6.1}s  {} answered, {} errors, {} connections",
        count.answered, count.failed, count.connections
    ));
}

fn as_json(spec: &LoadSpec, result: &LoadResult) -> String {
    let document = json!({
        "format_version": meshtax_model::FORMAT_VERSION,
        "spec": spec,
        "achieved_per_s": result.achieved_per_s(),
        "goodput_per_s": result.goodput_per_s(),
        "queued": result.queued,
        "response_ns": quantiles(&result.response),
        "service_ns": quantiles(&result.service),
        "send_lag_ns": quantiles(&result.send_lag),
        "generator_lag_ns": quantiles(&result.generator_lag),
        "result": result,
    });
    format!("{document:#}\n")
}

const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// Requests that must lie above a percentile before it is printed.
const LEAST_ABOVE: u64 = 10;

/// The percentiles that the samples resolve, and mean and maximum.
fn quantiles(histogram: &LatencyHistogram) -> serde_json::Value {
    let mut values = serde_json::Map::new();
    values.insert("count".into(), histogram.count().into());
    values.insert("mean".into(), histogram.mean_ns().into());
    for (name, quantile) in QUANTILES {
        values.insert(name.into(), resolved(histogram, quantile).into());
    }
    values.insert("max".into(), histogram.max_ns().into());
    values.into()
}

fn resolved(histogram: &LatencyHistogram, quantile: f64) -> Option<u64> {
    let above = (histogram.count() as f64 * (1.0 - quantile)).floor() as u64;
    histogram
        .quantile_ns(quantile)
        .filter(|_| above >= LEAST_ABOVE)
}

fn as_text(spec: &LoadSpec, result: &LoadResult) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} {} over {} connections, {}",
        spec.requests[0].method,
        spec.target,
        spec.connections,
        model(spec, result)
    );
    let _ = writeln!(
        text,
        "{:.0} requests/s completed ({} of {} offered in {:.2} s), {} with status 200-399",
        result.achieved_per_s(),
        result.completed,
        result.offered,
        result.window_ns as f64 / 1e9,
        result.succeeded
    );
    for (status, count) in &result.status {
        let _ = writeln!(text, "  status {status}: {count}");
    }
    for (kind, count) in result
        .errors
        .by_kind()
        .iter()
        .filter(|(_, count)| *count > 0)
    {
        let _ = writeln!(text, "  {kind} errors: {count}");
    }
    if result.unanswered > 0 {
        let _ = writeln!(text, "  without an answer: {}", result.unanswered);
    }
    let _ = writeln!(
        text,
        "\n{:<10}{:>12}{:>12}{:>12}",
        "ms", "response", "service", "send lag"
    );
    let cell = |value: Option<f64>| value.map_or("-".into(), |ns| format!("{:.3}", ns / 1e6));
    let histograms = [&result.response, &result.service, &result.send_lag];
    for (name, quantile) in QUANTILES {
        let cells = histograms.map(|h| cell(resolved(h, quantile).map(|ns| ns as f64)));
        let _ = writeln!(
            text,
            "{name:<10}{:>12}{:>12}{:>12}",
            cells[0], cells[1], cells[2]
        );
    }
    let means = histograms.map(|h| cell(h.mean_ns()));
    let _ = writeln!(
        text,
        "{:<10}{:>12}{:>12}{:>12}",
        "mean", means[0], means[1], means[2]
    );
    let largest = histograms.map(|h| cell(h.max_ns().map(|ns| ns as f64)));
    let _ = writeln!(
        text,
        "{:<10}{:>12}{:>12}{:>12}",
        "max", largest[0], largest[1], largest[2]
    );
    let _ = writeln!(text, "(-: fewer than {LEAST_ABOVE} requests above it)\n");
    if spec.model.is_closed() {
        let _ = writeln!(
            text,
            "closed loop: mean latency is connections / throughput, not the server's speed under a given load; use -q for that"
        );
    }
    let verdict = result
        .audit
        .generator_bound
        .as_deref()
        .map_or("fine".into(), |why| format!("generator-bound: {why}"));
    let _ = writeln!(
        text,
        "generator: {verdict} ({:.0} % busy, {})",
        result.audit.busy_share * 100.0,
        result.congestion_control
    );
    text
}

fn model(spec: &LoadSpec, result: &LoadResult) -> String {
    match &spec.model {
        LoadModel::Open {
            rate: Rate::Constant { per_s },
            arrivals,
        } => format!(
            "open loop at {per_s}/s ({arrivals:?} arrivals, seed {}), {} connections opened",
            spec.seed, result.connections_opened
        ),
        _ => "closed loop".into(),
    }
}
