//! What a data plane does to requests besides carrying them, as far as a probe can tell.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use meshtax_app::AppStats;
use meshtax_dataplane::{ALLOWED_PATH, ECHO_PATH, Place};
use meshtax_model::evidence::{Balances, Features};
use meshtax_model::trial::ComponentRole;

use super::apps;
use super::http::{Ask, Heard, ask, connect};
use super::path::through_the_path;
use super::probes::{Subject, echo, one_request};

/// Requests on one connection that show what is balanced. With them all on one of two replicas by
/// chance, which happens once in 2^23, requests would be taken for connections.
const BALANCED: u32 = 24;

/// What the application received that nobody had sent, and from where; `None` if it cannot be asked.
pub(crate) fn features(subject: &Subject<'_>) -> Option<Features> {
    const SENT: [&str; 2] = ["host", "content-length"];
    let echo = echo(subject).ok()?;
    let mut added_headers: Vec<String> = echo
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase())
        .filter(|name| !SENT.contains(&name.as_str()))
        .collect();
    added_headers.sort();
    added_headers.dedup();
    let peer: Option<SocketAddr> = echo.peer.parse().ok();
    let client = IpAddr::V4(match subject.site.has_outside_clients_only() {
        true => subject.outsider_address,
        false => subject.site.client.address,
    });
    Some(Features {
        added_headers,
        keeps_client_address: peer.is_some_and(|peer| peer.ip() == client),
        counts_requests: counts_requests(subject),
        tries_again: tries_again(subject),
        balances: balances(subject),
    })
}

/// Whether the proxy that judges requests counts them by status. All that were answered have gone
/// through it, so one that counts has counted by now.
fn counts_requests(subject: &Subject<'_>) -> Option<bool> {
    let metrics = subject.blueprint.http_metrics.as_ref()?;
    let namespaces = match (metrics.role, metrics.place) {
        (ComponentRole::Waypoint, _) => vec![subject.waypoint],
        (_, Place::Node) => subject.server_nodes.clone(),
        (_, Place::Pod) => subject.servers.clone(),
    };
    let counted = |line: &str| {
        let number = line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok());
        line.starts_with(&metrics.series) && number.is_some_and(|n| n > 0.0)
    };
    let mut any = false;
    for namespace in namespaces {
        let request = Ask::get(&metrics.path);
        let heard = one_request(namespace, (Ipv4Addr::LOCALHOST, metrics.port), &request);
        let Heard::Answer {
            status: 200, body, ..
        } = &heard
        else {
            return None;
        };
        any |= String::from_utf8_lossy(body).lines().any(counted);
    }
    Some(any)
}

/// Whether requests of one connection go to several replicas; `None` with one replica.
fn balances(subject: &Subject<'_>) -> Option<Balances> {
    if subject.servers.len() < 2 {
        return None;
    }
    let before = asked(subject)?;
    let mut stream = connect(subject.client, subject.service()).ok()?;
    for _ in 0..BALANCED {
        if !ask(&mut stream, &Ask::get(ALLOWED_PATH)).is_ok() {
            return None;
        }
    }
    let after = asked(subject)?;
    let hit = after.iter().zip(&before).filter(|(a, b)| a > b).count();
    match hit {
        0 => None,
        1 => Some(Balances::Connections),
        _ => Some(Balances::Requests),
    }
}

/// Whether a request that is answered with 503 reaches the application more than once.
fn tries_again(subject: &Subject<'_>) -> Option<bool> {
    let failed = |stats: &AppStats| stats.failed_as_asked;
    let before: u64 = told(subject)?.iter().map(failed).sum();
    let request = Ask {
        fails: true,
        ..Ask::get(ECHO_PATH)
    };
    let heard = through_the_path(subject, &request);
    let after: u64 = told(subject)?.iter().map(failed).sum();
    match (heard, after - before) {
        (Heard::Answer { status: 503, .. }, 1) => Some(false),
        (_, 2..) => Some(true),
        _ => None,
    }
}

/// Requests that each replica has answered.
fn asked(subject: &Subject<'_>) -> Option<Vec<u64>> {
    Some(told(subject)?.iter().map(|stats| stats.requests).collect())
}

/// What each replica says it did.
pub(crate) fn told(subject: &Subject<'_>) -> Option<Vec<AppStats>> {
    let port = subject.site.app_port;
    let pods = subject.servers.iter();
    pods.map(|pod| apps::stats(pod, port).ok()).collect()
}
