//! What a data plane does to requests in addition to carrying them, as far as probes can observe it.

use std::net::{IpAddr, SocketAddr};

use meshtax_app::AppStats;
use meshtax_dataplane::{ECHO_PATH, ProcessScope};
use meshtax_model::evidence::{Balances, Features};
use meshtax_model::trial::ComponentRole;

use crate::http::{HttpOutcome, HttpRequest, send};
use crate::requests::{connect, echo, local_page, replica_stats, through_the_path};
use crate::subject::Subject;

/// Requests on one connection that show what is balanced. All of them reach one of two replicas by chance once in 2^23
/// times; request balancing would be taken for connection balancing then.
const BALANCED: u32 = 24;

/// Headers that the application received and that nobody sent, and from where; `None`: its echo failed.
pub(crate) fn features(subject: &Subject<'_>) -> Option<Features> {
    const SENT: [&str; 2] = ["host", "content-length"];
    let echo = echo(subject, subject.client()).ok()?;
    let names = echo
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase());
    let mut added_headers: Vec<String> = names
        .filter(|name| !SENT.contains(&name.as_str()))
        .collect();
    added_headers.sort();
    added_headers.dedup();
    let peer: Option<SocketAddr> = echo.peer.parse().ok();
    let client = IpAddr::V4(subject.client().address);
    Some(Features {
        added_headers,
        keeps_client_address: peer.is_some_and(|peer| peer.ip() == client),
        counts_requests: counts_requests(subject),
        tries_again: retries(subject),
        balances: balances(subject),
    })
}

/// Whether the proxy that judges requests counts them by status. It has counted all requests so far, if any.
fn counts_requests(subject: &Subject<'_>) -> Option<bool> {
    let metrics = subject.contract.http_metrics.as_ref()?;
    let at = match (metrics.role, metrics.scope) {
        (ComponentRole::Waypoint, _) => vec![subject.at(&subject.site.waypoint)],
        (_, ProcessScope::Node) => subject.at_server_nodes(),
        (_, ProcessScope::Pod) => subject.at_all(&subject.site.entry_point().pods),
    };
    let counted = |line: &str| {
        let number = line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok());
        line.starts_with(&metrics.series) && number.is_some_and(|n| n > 0.0)
    };
    let mut any = false;
    for at in at {
        let page = local_page(at, metrics.port, &metrics.path).ok()?;
        any |= page.lines().any(counted);
    }
    Some(any)
}

/// Whether requests of one connection reach several replicas; `None` with one replica.
fn balances(subject: &Subject<'_>) -> Option<Balances> {
    let requests = |stats: Vec<AppStats>| stats.into_iter().map(|s| s.requests);
    if subject.site.entry_point().pods.len() < 2 {
        return None;
    }
    let first = subject.first();
    let before = requests(replica_stats(subject)?);
    let mut stream = connect(subject.client().at, first.to).ok()?;
    for _ in 0..BALANCED {
        if !send(&mut *stream, &first.permitted()).is_ok() {
            return None;
        }
    }
    let after = requests(replica_stats(subject)?);
    match after.zip(before).filter(|(a, b)| a > b).count() {
        0 => None,
        1 => Some(Balances::Connections),
        _ => Some(Balances::Requests),
    }
}

/// Whether a request with response 503 reaches the application more than once.
fn retries(subject: &Subject<'_>) -> Option<bool> {
    let failed = |stats: Vec<AppStats>| stats.iter().map(|s| s.failed_on_request).sum::<u64>();
    let before = failed(replica_stats(subject)?);
    let request = HttpRequest {
        fails: true,
        ..HttpRequest::get(subject.first().host(), ECHO_PATH)
    };
    let outcome = through_the_path(subject, subject.client(), &request);
    let after = failed(replica_stats(subject)?);
    match (outcome, after - before) {
        (HttpOutcome::Response { status: 503, .. }, 1) => Some(false),
        (_, 2..) => Some(true),
        _ => None,
    }
}
