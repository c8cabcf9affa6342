//! Whether the proxies do and hold what the variant's options say.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_control_plane::{Pushed, TraceCollector};
use meshtax_dataplane::{ALLOWED_PATH, Counter};
use meshtax_model::evidence::{ProbeResult, probe as names};

use super::control::Control;
use super::http::{Ask, Heard};
use super::netns::NetNs;
use super::path::through_the_path;
use super::probes::{Subject, one_request, result};

/// Until when the proxies must hold what they are told, from when a first request was answered.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// Every proxy that is told of services says that it holds all of them.
pub(crate) fn knows(subject: &Subject<'_>, services: u32, endpoints: u32) -> ProbeResult {
    let deadline = Instant::now() + HELD_WITHIN;
    let told = subject.control.iter().filter_map(Control::discovery);
    let mut proxies = 0;
    for proxy in told {
        proxies += 1;
        loop {
            match proxy.pushed() {
                Pushed::Held(_) => break,
                Pushed::Refused(why) => {
                    let seen = format!("a proxy does not take what it is told: {why}");
                    return result(names::KNOWS, false, seen);
                }
                Pushed::Underway { held, of } if Instant::now() > deadline => {
                    let seen = format!("a proxy holds {held} of {of} resources that it was told");
                    return result(names::KNOWS, false, seen);
                }
                Pushed::Underway { .. } => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
    let seen =
        format!("{proxies} proxies hold {endpoints} further endpoints of {services} services");
    result(names::KNOWS, proxies > 0, seen)
}

/// Requests that are sent to see whether they are logged.
const LOGGED: u64 = 5;

/// Requests through the path, and as many lines more in each proxy at least.
pub(crate) fn logs_requests(subject: &Subject<'_>, lines: &Counter) -> ProbeResult {
    let pods = || std::iter::once(subject.client).chain(subject.servers.iter().copied());
    let told = || -> Result<Vec<u64>, String> { pods().map(|pod| read(pod, lines)).collect() };
    let judged = told().and_then(|before| {
        for _ in 0..LOGGED {
            let heard = through_the_path(subject, &Ask::get(ALLOWED_PATH));
            if !heard.is_ok() {
                return Err(format!("a request: {}", heard.describe()));
            }
        }
        let after = told()?;
        Ok(after
            .iter()
            .zip(&before)
            .map(|(a, b)| a.saturating_sub(*b))
            .collect())
    });
    let more: Vec<u64> = match judged {
        Ok(more) => more,
        Err(why) => return result(names::LOGS_REQUESTS, false, why),
    };
    // Of several replicas only those log that were asked.
    let client = more.first().copied().unwrap_or_default();
    let servers: u64 = more.iter().skip(1).sum();
    let seen = format!(
        "{LOGGED} requests: {client} lines of the client's proxy, {servers} of the server's"
    );
    result(
        names::LOGS_REQUESTS,
        client >= LOGGED && servers >= LOGGED,
        seen,
    )
}

/// Until when both sides must have sent a span. Envoy sends five, or what it has after five seconds.
const SPANS_WITHIN: Duration = Duration::from_secs(12);

/// Requests through the path until the collectors of both sides have got a span, which a share of them makes.
pub(crate) fn sends_spans(subject: &Subject<'_>) -> ProbeResult {
    let deadline = Instant::now() + SPANS_WITHIN;
    let mut requests = 0_u64;
    loop {
        let collectors = subject.control.iter().filter_map(Control::collector);
        let spans: Vec<u64> = collectors.map(TraceCollector::spans).collect();
        // The client's pod comes first.
        let client = spans.first().copied().unwrap_or_default();
        let servers: u64 = spans.iter().skip(1).sum();
        let seen = format!(
            "{requests} requests: {client} spans of the client's proxy, {servers} of the server's"
        );
        if client > 0 && servers > 0 {
            return result(names::SENDS_SPANS, true, seen);
        }
        if Instant::now() > deadline {
            return result(names::SENDS_SPANS, false, seen);
        }
        let heard = through_the_path(subject, &Ask::get(ALLOWED_PATH));
        if !heard.is_ok() {
            let seen = format!("a request: {}", heard.describe());
            return result(names::SENDS_SPANS, false, seen);
        }
        requests += 1;
    }
}

/// A number that a proxy tells in its pod.
fn read(pod: &NetNs, counter: &Counter) -> Result<u64, String> {
    let heard = one_request(
        pod,
        (Ipv4Addr::LOCALHOST, counter.port),
        &Ask::get(&counter.path),
    );
    let Heard::Answer {
        status: 200, body, ..
    } = &heard
    else {
        return Err(format!("a proxy's own page: {}", heard.describe()));
    };
    let text = String::from_utf8_lossy(body);
    let line = text.lines().find(|line| line.starts_with(&counter.series));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    number.ok_or_else(|| format!("a proxy's own page does not tell {}", counter.series))
}
