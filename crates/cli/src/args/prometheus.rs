//! The options of `meshtax run` for a Prometheus that monitors the same machines.

use clap::Args;
use http::Uri;
use meshtax_spec::ValueError;

/// The address of a Prometheus, and additional queries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PrometheusArgs {
    /// After the run, query this Prometheus for CPU and memory of proxies, control planes and nodes during the run, as
    /// context in the report, e.g. http://127.0.0.1:9090 (with the bearer token MESHTAX_PROMETHEUS_TOKEN, if set)
    #[arg(long, value_name = "URL", value_parser = server, help_heading = "Monitoring")]
    pub(crate) prometheus: Option<Uri>,
    /// Add this query, or replace the one of the same name: NAME=PROMQL; repeatable
    #[arg(long, value_name = "NAME=PROMQL", value_parser = query, requires = "prometheus", help_heading = "Monitoring")]
    pub(crate) prometheus_query: Vec<(String, String)>,
}

fn server(text: &str) -> Result<Uri, ValueError> {
    let invalid = |problem: &str| {
        let fix = "give the address of its web interface, as in http://127.0.0.1:9090";
        ValueError::new(format!("`{text}` {problem}"), fix)
    };
    let uri: Uri = text.parse().map_err(|_| invalid("is not a URL"))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().filter(|_| is_http);
    let authority = authority.ok_or_else(|| invalid("is not an HTTP URL"))?;
    if authority.as_str().contains('@') {
        return Err(ValueError::new(
            "the password in the URL would be stored with the run",
            "omit it, and set MESHTAX_PROMETHEUS_TOKEN to a bearer token, or use a port-forward",
        ));
    }
    match uri.query() {
        None => Ok(uri),
        Some(_) => Err(invalid("has a query")),
    }
}

fn query(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, query)) if !name.trim().is_empty() && !query.trim().is_empty() => {
            Ok((name.trim().to_owned(), query.trim().to_owned()))
        }
        _ => Err(ValueError::new(
            format!("`{text}` is not a query with a name"),
            "write it as NAME=PROMQL, as in retries=sum(rate(envoy_cluster_upstream_rq_retry[1m]))",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_urls_of_http_without_a_password() {
        for text in ["http://127.0.0.1:9090", "https://prometheus.example/base/"] {
            assert!(server(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "prometheus:9090",
            "ftp://a",
            "http://u:p@a",
            "http://a?b=c",
        ] {
            assert!(server(text).is_err(), "{text}");
        }
        assert!(
            !server("http://u:secret@a")
                .unwrap_err()
                .to_string()
                .contains("secret")
        );
    }

    #[test]
    fn query_may_contain_equal_signs() {
        let expected = ("a".to_owned(), "up{job=\"b\"}".to_owned());
        assert_eq!(query("a=up{job=\"b\"}"), Ok(expected));
        assert!(query("=up").is_err() && query("up").is_err() && query("a=").is_err());
    }
}
