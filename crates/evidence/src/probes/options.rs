//! The proxies do and hold what the variant's options configure.

use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::Counter;

use crate::deployment::Acknowledged;
use crate::finding::{Finding, ProbeError};
use crate::requests::{local_page, through_the_path};
use crate::subject::Subject;
use crate::vantage::Vantage;

/// When the proxies must hold the extra endpoints, counted from the start of the probe.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// Every proxy that is sent extra endpoints has acknowledged all of them.
pub(crate) fn extra_endpoints(subject: &Subject<'_>, services: u32, endpoints: u32) -> Finding {
    let deadline = Instant::now() + HELD_WITHIN;
    loop {
        let proxies = subject.deployment.extra_endpoints();
        let mut outstanding = None;
        for proxy in &proxies {
            match proxy {
                Acknowledged::All(_) => {}
                Acknowledged::Rejected(cause) => {
                    return Finding::failed(format!("a proxy rejects the resources: {cause}"));
                }
                Acknowledged::Some { held, of } => outstanding = Some((held, of)),
            }
        }
        match outstanding {
            None => {
                let count = proxies.len();
                let seen = format!(
                    "{count} proxies hold {endpoints} extra endpoints of {services} services"
                );
                return Finding::new(count > 0, seen);
            }
            Some((held, of)) if Instant::now() > deadline => {
                return Finding::failed(format!("a proxy holds {held} of {of} resources"));
            }
            Some(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Requests that are sent to see whether they are logged.
const LOGGED: u64 = 5;

/// Requests through the path, and at least as many more log lines on each side.
pub(crate) fn access_log(subject: &Subject<'_>, lines: &Counter) -> Finding {
    let more = match more_lines(subject, lines) {
        Ok(more) => more,
        Err(error) => return Finding::failed(error.to_string()),
    };
    // Of several replicas only those log that were called.
    let (client, servers) = sides(subject, &more);
    let seen = format!(
        "{LOGGED} requests: {client} lines of the client's proxy, {servers} of the server's"
    );
    let all = LOGGED * subject.site.clients.len() as u64;
    Finding::new(client >= LOGGED && servers >= all, seen)
}

/// The least of the counts of the clients' proxies, which come first, and the sum of the servers'.
fn sides(subject: &Subject<'_>, counts: &[u64]) -> (u64, u64) {
    let (clients, servers) = counts.split_at(subject.site.clients.len().min(counts.len()));
    let least = clients.iter().copied().min();
    (least.unwrap_or_default(), servers.iter().sum())
}

/// Every proxy has this statistic.
pub(crate) fn all_stats(subject: &Subject<'_>, statistic: &Counter) -> Finding {
    match counts(subject, statistic) {
        Ok(counts) => {
            let (count, series) = (counts.len(), &statistic.series);
            Finding::new(count > 0, format!("{series} of {count} proxies"))
        }
        Err(error) => Finding::failed(error.to_string()),
    }
}

/// The same counter of each proxy, the clients' first.
fn counts(subject: &Subject<'_>, of: &Counter) -> Result<Vec<u64>, ProbeError> {
    let clients = subject.site.clients.iter();
    let pods = clients.chain(&subject.site.entry_point().pods);
    pods.map(|pod| counter(subject.at(pod), of)).collect()
}

/// The lines that each proxy has added for [`LOGGED`] requests of each client, the clients' first.
fn more_lines(subject: &Subject<'_>, lines: &Counter) -> Result<Vec<u64>, ProbeError> {
    let before = counts(subject, lines)?;
    for _ in 0..LOGGED {
        permitted(subject)?;
    }
    let after = counts(subject, lines)?;
    let pairs = after.iter().zip(&before);
    Ok(pairs.map(|(a, b)| a.saturating_sub(*b)).collect())
}

/// A request of each client through the whole path.
fn permitted(subject: &Subject<'_>) -> Result<(), ProbeError> {
    subject.clients().into_iter().try_for_each(|client| {
        match through_the_path(subject, client, &subject.first().permitted()) {
            outcome if outcome.is_ok() => Ok(()),
            outcome => Err(ProbeError::Unexpected(outcome)),
        }
    })
}

/// When both sides must have sent a span. Envoy sends five, or what it has after five seconds.
const SPANS_WITHIN: Duration = Duration::from_secs(12);

/// Requests through the path until the collectors of both sides have received a span; a share of requests is sampled.
pub(crate) fn tracing(subject: &Subject<'_>) -> Finding {
    let deadline = Instant::now() + SPANS_WITHIN;
    let mut requests = 0_u64;
    loop {
        let spans = subject.deployment.spans();
        let (client, servers) = sides(subject, &spans);
        let seen = format!(
            "{requests} requests: {client} spans of the client's proxy, {servers} of the server's"
        );
        if client > 0 && servers > 0 {
            return Finding::passed(seen);
        }
        if Instant::now() > deadline {
            return Finding::failed(seen);
        }
        if let Err(error) = permitted(subject) {
            return Finding::failed(format!("a request: {error}"));
        }
        requests += 1;
    }
}

/// A counter on a proxy's own page.
fn counter(pod: &dyn Vantage, counter: &Counter) -> Result<u64, ProbeError> {
    let page = local_page(pod, counter.port, &counter.path)?;
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with(&counter.series));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .ok_or_else(|| ProbeError::NoCounter(counter.series.clone()))
}
