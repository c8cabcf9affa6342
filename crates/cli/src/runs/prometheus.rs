//! What a Prometheus recorded over a run's time. Read after the run: it costs the measurement nothing, and whatever goes
//! wrong costs the report this context only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use meshtax_model::monitoring::{Monitoring, MonitoringQuery, MonitoringSeries};
use serde::Deserialize;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Timeout};

use crate::args::PrometheusArgs;

/// The environment variable with a bearer token.
const TOKEN: &str = "MESHTAX_PROMETHEUS_TOKEN";

/// How long a request may take, and the connection that it needs.
const PATIENCE: Duration = Duration::from_secs(20);
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// More is no answer for a report.
const MOST_BYTES: u64 = 32 << 20;
const MOST_SERIES: usize = 200;

/// Values of a series, about.
const POINTS: u64 = 240;
const SHORTEST_STEP_MS: u64 = 5_000;

/// A query that is asked by default.
struct Usual {
    name: &'static str,
    unit: &'static str,
    query: &'static str,
}

/// Of cAdvisor and the node exporter, with the names that Istio and Linkerd give their namespaces and containers.
const USUAL: [Usual; 5] = [
    Usual {
        name: "control plane CPU",
        unit: "cores",
        query: "sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{namespace=~\"istio-system|linkerd.*\", \
                container!=\"\", container!~\"istio-proxy|linkerd-proxy\"}[1m]))",
    },
    Usual {
        name: "control plane memory",
        unit: "bytes",
        query: "sum by (namespace, pod) (container_memory_working_set_bytes{namespace=~\"istio-system|linkerd.*\", \
                container!=\"\", container!~\"istio-proxy|linkerd-proxy\"})",
    },
    Usual {
        name: "proxies CPU",
        unit: "cores",
        query: "sum by (namespace, container) (rate(container_cpu_usage_seconds_total{container=~\"istio-proxy|\
                linkerd-proxy|proxy|proxy-[0-9]+\"}[1m]))",
    },
    Usual {
        name: "proxies memory",
        unit: "bytes",
        query: "sum by (namespace, container) (container_memory_working_set_bytes{container=~\"istio-proxy|\
                linkerd-proxy|proxy|proxy-[0-9]+\"})",
    },
    Usual {
        name: "nodes CPU",
        unit: "cores",
        query: "sum by (instance) (rate(node_cpu_seconds_total{mode!~\"idle|iowait\"}[1m]))",
    },
];

/// Why a Prometheus has not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrometheusError {
    #[error("{url} cannot be reached: {cause}")]
    Unreachable { url: String, cause: String },
    #[error("{url} answered with status {status}: {message}")]
    Refused {
        url: String,
        status: u16,
        message: String,
    },
    #[error("{url} did not answer the query `{query}` within {} s", PATIENCE.as_secs())]
    TimedOut { url: String, query: String },
    #[error("{url} gave more than {} MiB for the query `{query}`", MOST_BYTES >> 20)]
    TooLarge { url: String, query: String },
    #[error(
        "the query `{name}` gave {series} series, of which the first {} are stored",
        MOST_SERIES
    )]
    TooManySeries { name: String, series: usize },
    #[error("{url} did not answer as a Prometheus does: {cause}")]
    NotPrometheus { url: String, cause: String },
    #[error("{url}: this machine has no certificate authorities")]
    NoRoots { url: String },
}

impl PrometheusError {
    /// What the user can do.
    pub(crate) fn fix(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => {
                "check --prometheus; in a cluster, `kubectl port-forward` to its service makes it reachable here"
            }
            Self::Refused {
                status: 401 | 403, ..
            } => "set MESHTAX_PROMETHEUS_TOKEN to a bearer token that may query it",
            Self::TimedOut { .. } | Self::TooLarge { .. } | Self::TooManySeries { .. } => {
                "aggregate the query, as in `sum by (namespace) (...)`"
            }
            Self::Refused { .. } => "check the query (--prometheus-query)",
            Self::NotPrometheus { .. } => {
                "give the URL below which /api/v1/query_range is, without that path"
            }
            Self::NoRoots { .. } => "install the certificates of authorities (ca-certificates)",
        }
    }

    /// Whether every other query would fail the same way.
    fn is_of_all(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 401 | 403 | 404),
            Self::TimedOut { .. } | Self::TooLarge { .. } | Self::TooManySeries { .. } => false,
            Self::Unreachable { .. } | Self::NotPrometheus { .. } | Self::NoRoots { .. } => true,
        }
    }
}

/// What it recorded from one moment to another, in milliseconds since 1970, and the first error for each query that has no
/// answer or a part of it only. `None`: no Prometheus is named.
pub(crate) fn read(
    args: &PrometheusArgs,
    (from_unix_ms, until_unix_ms): (u64, u64),
) -> Option<(Monitoring, Vec<PrometheusError>)> {
    let server = args.prometheus.as_ref()?;
    let took_ms = until_unix_ms.saturating_sub(from_unix_ms);
    let mut monitoring = Monitoring {
        url: server.to_string(),
        from_unix_ms,
        until_unix_ms,
        step_ms: (took_ms / POINTS).max(SHORTEST_STEP_MS),
        queries: queries(&args.prometheus_query),
    };
    let mut errors = Vec::new();
    let agent = agent(server);
    let mut lost = None;
    let times = (from_unix_ms, until_unix_ms, monitoring.step_ms);
    for query in &mut monitoring.queries {
        if let Some(problem) = &lost {
            query.problem = Some(String::clone(problem));
            continue;
        }
        let answer = match &agent {
            Ok(agent) => ask(agent, server, &query.query, times),
            Err(NoRoots) => Err(PrometheusError::NoRoots {
                url: server.to_string(),
            }),
        };
        match answer {
            Ok(data) => {
                let found = data.result.len();
                query.series = series(data);
                query.omitted_series = (found - query.series.len()) as u64;
                if query.omitted_series > 0 {
                    errors.push(PrometheusError::TooManySeries {
                        name: query.name.clone(),
                        series: found,
                    });
                }
            }
            Err(error) => {
                query.problem = Some(error.to_string());
                lost = error.is_of_all().then(|| error.to_string());
                errors.push(error);
            }
        }
    }
    Some((monitoring, errors))
}

/// The usual queries, and those that were given.
fn queries(given: &[(String, String)]) -> Vec<MonitoringQuery> {
    let query = |name: &str, text: &str, unit: &str| MonitoringQuery {
        name: name.to_owned(),
        query: text.to_owned(),
        unit: unit.to_owned(),
        series: Vec::new(),
        omitted_series: 0,
        problem: None,
    };
    let usual = USUAL
        .iter()
        .filter(|usual| given.iter().all(|(name, _)| name != usual.name));
    let usual = usual.map(|usual| query(usual.name, usual.query, usual.unit));
    let own = given.iter().map(|(name, text)| query(name, text, ""));
    usual.chain(own).collect()
}

/// This machine knows no certificate authority.
struct NoRoots;

fn agent(server: &Uri) -> Result<Agent, NoRoots> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("meshtax/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(PATIENCE))
        .timeout_connect(Some(CONNECTED_WITHIN));
    if server.scheme_str() == Some("https") {
        let found = rustls_native_certs::load_native_certs().certs;
        if found.is_empty() {
            return Err(NoRoots);
        }
        let roots = found
            .iter()
            .map(|der| Certificate::from_der(der).to_owned());
        let provider = rustls::crypto::ring::default_provider();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(Arc::new(provider))
            .build();
        config = config.tls_config(tls);
    }
    Ok(config.build().new_agent())
}

/// The answer of the HTTP API, as far as it is used.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<RangeVector>,
}

#[derive(Deserialize)]
struct RangeVector {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Seconds since 1970, and the value as text.
    values: Vec<(f64, String)>,
}

fn ask(
    agent: &Agent,
    server: &Uri,
    query: &str,
    (from_ms, until_ms, step_ms): (u64, u64, u64),
) -> Result<Data, PrometheusError> {
    let base = server.to_string();
    let url = format!("{}/api/v1/query_range", base.trim_end_matches('/'));
    let seconds = |ms: u64| format!("{:.3}", ms as f64 / 1e3);
    let mut request = agent
        .get(&url)
        .query("query", query)
        .query("start", seconds(from_ms))
        .query("end", seconds(until_ms))
        .query("step", seconds(step_ms));
    if let Ok(token) = std::env::var(TOKEN) {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let failed = |cause| failed(&base, query, cause);
    let mut response = request.call().map_err(failed)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MOST_BYTES);
    let text = body.read_to_string().map_err(failed)?;
    let answer: Result<Answer, _> = serde_json::from_str(&text);
    match answer {
        Ok(Answer {
            data: Some(data), ..
        }) if status == 200 => Ok(data),
        Ok(Answer {
            error: Some(message),
            ..
        }) => Err(PrometheusError::Refused {
            url: base,
            status,
            message,
        }),
        _ if status != 200 => Err(PrometheusError::Refused {
            url: base,
            status,
            message: text
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(200)
                .collect(),
        }),
        Ok(_) => Err(PrometheusError::NotPrometheus {
            url: base,
            cause: "no data".to_owned(),
        }),
        Err(cause) => Err(PrometheusError::NotPrometheus {
            url: base,
            cause: cause.to_string(),
        }),
    }
}

/// What a query asks for may be too much for a server that answers others.
fn failed(url: &str, query: &str, cause: ureq::Error) -> PrometheusError {
    let (url, query) = (url.to_owned(), query.to_owned());
    match cause {
        ureq::Error::BodyExceedsLimit(_) => PrometheusError::TooLarge { url, query },
        ureq::Error::Timeout(timeout) if timeout != Timeout::Connect => {
            PrometheusError::TimedOut { url, query }
        }
        cause => PrometheusError::Unreachable {
            url,
            cause: cause.to_string(),
        },
    }
}

/// Values that are not finite mean that there is none.
fn series(data: Data) -> Vec<MonitoringSeries> {
    let value = |(at_s, text): (f64, String)| {
        let value: f64 = text.parse().ok()?;
        (value.is_finite() && at_s.is_finite()).then_some(((at_s * 1e3) as u64, value))
    };
    let one = |series: RangeVector| MonitoringSeries {
        labels: series.metric,
        values: series.values.into_iter().filter_map(value).collect(),
    };
    data.result.into_iter().take(MOST_SERIES).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn given_query_replaces_the_usual_one_of_its_name() {
        let given = [
            ("nodes CPU".to_owned(), "up".to_owned()),
            ("own".to_owned(), "up".to_owned()),
        ];
        let all = queries(&given);
        assert_eq!(all.len(), USUAL.len() + 1);
        let of = |name: &str| {
            let mut found = all.iter().filter(|query| query.name == name);
            (found.next().unwrap().query.clone(), found.count())
        };
        assert_eq!(of("nodes CPU"), ("up".to_owned(), 0));
        assert_eq!(of("own"), ("up".to_owned(), 0));
    }

    #[test]
    fn query_that_asks_for_too_much_costs_itself_only() {
        let of = |cause| failed("http://p/", "up", cause);
        for (cause, expected) in [
            (ureq::Error::BodyExceedsLimit(1), "more than 32 MiB"),
            (ureq::Error::Timeout(Timeout::Global), "within 20 s"),
        ] {
            let error = of(cause);
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.fix().contains("aggregate"), "{error}");
            assert!(!error.is_of_all(), "{error}");
        }
        for cause in [
            ureq::Error::Timeout(Timeout::Connect),
            ureq::Error::ConnectionFailed,
        ] {
            assert!(of(cause).is_of_all());
        }
    }

    #[test]
    fn body_that_is_too_large_is_recognised() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                MOST_BYTES + 1
            );
            let _ = stream.write_all(head.as_bytes());
            // Until the client has read enough.
            while stream.write_all(&[b' '; 1 << 16]).is_ok() {}
        });
        let url: Uri = format!("http://{at}").parse().unwrap();
        let Ok(agent) = agent(&url) else {
            panic!("plain HTTP needs no certificates");
        };
        let answer = ask(&agent, &url, "up", (0, 1000, 1000)).err();
        assert!(
            matches!(answer, Some(PrometheusError::TooLarge { .. })),
            "{answer:?}"
        );
        drop(agent);
        server.join().unwrap();
    }

    #[test]
    fn series_beyond_the_most_are_counted() {
        let one = || RangeVector {
            metric: BTreeMap::new(),
            values: Vec::new(),
        };
        let data = Data {
            result: (0..=MOST_SERIES).map(|_| one()).collect(),
        };
        assert_eq!(series(data).len(), MOST_SERIES);
        let error = PrometheusError::TooManySeries {
            name: "own".to_owned(),
            series: MOST_SERIES + 1,
        };
        let expected = "the query `own` gave 201 series, of which the first 200 are stored";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"pod":"a"},"values":[[1.5,"2"],[2,"NaN"],[3,"+Inf"],[4,"x"],[5,"-1e-3"]]}]}}"#;
        let answer: Answer = serde_json::from_str(answer).unwrap();
        let found = series(answer.data.unwrap());
        assert_eq!(found[0].labels["pod"], "a");
        assert_eq!(found[0].values, [(1500, 2.0), (5000, -0.001)]);
    }
}
