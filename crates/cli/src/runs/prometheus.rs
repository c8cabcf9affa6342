//! What a Prometheus recorded over a run's time. Read after the run: it costs the measurement nothing, and whatever goes
//! wrong costs the report this context only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use meshtax_model::monitoring::{Monitoring, MonitoringQuery, MonitoringSeries};
use serde::Deserialize;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::args::PrometheusArgs;

/// The environment variable with a bearer token.
const TOKEN: &str = "MESHTAX_PROMETHEUS_TOKEN";

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(20);

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
            _ => true,
        }
    }
}

/// What it recorded from one moment to another, in milliseconds since 1970, and the first error for each query that has no
/// answer. `None`: no Prometheus is named.
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
            Ok(series) => query.series = series,
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
        .timeout_global(Some(PATIENCE));
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
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
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
) -> Result<Vec<MonitoringSeries>, PrometheusError> {
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
    let unreachable = |cause: ureq::Error| PrometheusError::Unreachable {
        url: base.clone(),
        cause: cause.to_string(),
    };
    let mut response = request.call().map_err(unreachable)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MOST_BYTES);
    let text = body.read_to_string().map_err(unreachable)?;
    let answer: Result<Answer, _> = serde_json::from_str(&text);
    match answer {
        Ok(Answer {
            data: Some(data), ..
        }) if status == 200 => Ok(series(data)),
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

/// Values that are not finite mean that there is none.
fn series(data: Data) -> Vec<MonitoringSeries> {
    let value = |(at_s, text): (f64, String)| {
        let value: f64 = text.parse().ok()?;
        (value.is_finite() && at_s.is_finite()).then_some(((at_s * 1e3) as u64, value))
    };
    let one = |series: Series| MonitoringSeries {
        labels: series.metric,
        values: series.values.into_iter().filter_map(value).collect(),
    };
    data.result.into_iter().take(MOST_SERIES).map(one).collect()
}

#[cfg(test)]
mod tests {
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
    fn values_that_are_no_numbers_are_left_out() {
        let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"pod":"a"},"values":[[1.5,"2"],[2,"NaN"],[3,"+Inf"],[4,"x"],[5,"-1e-3"]]}]}}"#;
        let answer: Answer = serde_json::from_str(answer).unwrap();
        let found = series(answer.data.unwrap());
        assert_eq!(found[0].labels["pod"], "a");
        assert_eq!(found[0].values, [(1500, 2.0), (5000, -0.001)]);
    }
}
