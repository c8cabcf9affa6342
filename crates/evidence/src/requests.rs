//! Requests of the probes: through the whole path, and past it.

use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::{AppStats, Echo, STATS_PATH};
use meshtax_dataplane::ECHO_PATH;

use crate::finding::{Finding, ProbeError};
use crate::http::{HttpOutcome, HttpRequest, PATIENCE, failed, send};
use crate::subject::{Client, Subject, Target, canaries};
use crate::vantage::{Connection, Endpoint, Vantage};

/// How long between two attempts while a variant gets ready.
const RETRY: Duration = Duration::from_millis(5);

/// Opens a plaintext connection.
pub(crate) fn connect(
    from: &dyn Vantage,
    to: Endpoint,
) -> Result<Box<dyn Connection>, HttpOutcome> {
    from.connect(to.into(), PATIENCE)
        .map_err(|e| failed("connecting", &e))
}

/// Sends one request on a connection of its own.
pub(crate) fn request(from: &dyn Vantage, to: Endpoint, request: &HttpRequest<'_>) -> HttpOutcome {
    match connect(from, to) {
        Ok(mut stream) => send(&mut *stream, request),
        Err(outcome) => outcome,
    }
}

/// Sends a request of a client to the first service that clients call.
pub(crate) fn through_the_path(
    subject: &Subject<'_>,
    client: Client<'_>,
    what: &HttpRequest<'_>,
) -> HttpOutcome {
    request(client.at, subject.first().to, what)
}

/// Sends a request of each client to each service that clients call: whether all of them succeeded.
#[must_use]
pub fn all_respond(subject: &Subject<'_>) -> bool {
    let targets = subject.targets();
    let of_client = |client: Client<'_>| {
        let respond = |target: &Target<'_>| request(client.at, target.to, &target.permitted());
        // All are requested, even if one fails.
        let all: Vec<HttpOutcome> = targets.iter().map(respond).collect();
        all
    };
    let all: Vec<HttpOutcome> = subject.clients().into_iter().flat_map(of_client).collect();
    all.iter().all(HttpOutcome::is_ok)
}

/// Waits for the first permitted 200 through the whole path: an open port is not readiness.
pub(crate) fn ready(
    subject: &Subject<'_>,
    from: &dyn Vantage,
    target: &Target<'_>,
) -> Result<(), ProbeError> {
    loop {
        let outcome = request(from, target.to, &target.permitted());
        if outcome.is_ok() {
            return Ok(());
        }
        if let Some(ended) = subject.deployment.ended() {
            return Err(ProbeError::Ended(ended));
        }
        if Instant::now() > subject.ready_until {
            let last_output = subject.deployment.last_output();
            return Err(ProbeError::NotReady {
                outcome,
                last_output,
            });
        }
        thread::sleep(RETRY);
    }
}

/// Tries what has to succeed again if there was no response in time: a stall of the machine silences a path that works, and
/// silence passes no probe.
fn again_after_silence<T>(attempt: impl Fn() -> Result<T, ProbeError>) -> Result<T, ProbeError> {
    const TRIES: u32 = 3;
    for _ in 1..TRIES {
        match attempt() {
            Err(ProbeError::Unexpected(HttpOutcome::Silence(_))) => {}
            ended => return ended,
        }
    }
    attempt()
}

/// A connection on which a permitted request succeeded, still open.
pub(crate) fn open_connection(
    from: &dyn Vantage,
    target: &Target<'_>,
) -> Result<Box<dyn Connection>, ProbeError> {
    again_after_silence(|| try_open_connection(from, target))
}

fn try_open_connection(
    from: &dyn Vantage,
    target: &Target<'_>,
) -> Result<Box<dyn Connection>, ProbeError> {
    let mut stream = connect(from, target.to).map_err(ProbeError::Unexpected)?;
    match send(&mut *stream, &target.permitted()) {
        outcome if outcome.is_ok() => Ok(stream),
        outcome => Err(ProbeError::Unexpected(outcome)),
    }
}

/// Sends requests that carry the canary, for the capture. Returns how many: all have succeeded.
pub(crate) fn send_canaries(
    subject: &Subject<'_>,
    from: &dyn Vantage,
    target: &Target<'_>,
) -> Result<u64, ProbeError> {
    again_after_silence(|| try_send_canaries(subject, from, target))
}

fn try_send_canaries(
    subject: &Subject<'_>,
    from: &dyn Vantage,
    target: &Target<'_>,
) -> Result<u64, ProbeError> {
    let request = HttpRequest {
        canary: Some(subject.canary),
        ..target.permitted()
    };
    let mut stream = connect(from, target.to).map_err(ProbeError::Unexpected)?;
    let response_bytes = target.response_bytes;
    let count = canaries(response_bytes);
    for _ in 0..count {
        match send(&mut *stream, &request) {
            HttpOutcome::Response {
                status: 200,
                body,
                echoed_canary,
            } => {
                let echoed = echoed_canary.as_deref() == Some(subject.canary);
                if body.len() != response_bytes as usize || !echoed {
                    return Err(ProbeError::ForeignResponse(body.len()));
                }
            }
            outcome => return Err(ProbeError::Unexpected(outcome)),
        }
    }
    Ok(count)
}

/// Refusal must be explicit: no response in time proves nothing.
pub(crate) fn refused(who: &str, outcome: &HttpOutcome) -> Finding {
    match outcome {
        HttpOutcome::Response {
            status: 401 | 403, ..
        }
        | HttpOutcome::Refused(_) => Finding::passed(format!("{who}: {outcome}")),
        HttpOutcome::Response { .. } => Finding::failed(format!("{who} was accepted: {outcome}")),
        HttpOutcome::Silence(_) => {
            Finding::failed(format!("{who}: {outcome}: neither accepted nor refused"))
        }
    }
}

/// A request of a client through the whole path, as the application received it.
pub(crate) fn echo(subject: &Subject<'_>, client: Client<'_>) -> Result<Echo, ProbeError> {
    let first = subject.first();
    let outcome = through_the_path(subject, client, &HttpRequest::get(first.host(), ECHO_PATH));
    match outcome.body() {
        Some(body) => Ok(serde_json::from_slice(body)?),
        None => Err(ProbeError::Unexpected(outcome)),
    }
}

/// A page that a process serves at 127.0.0.1 in its pod or on its node.
pub(crate) fn local_page(at: &dyn Vantage, port: u16, path: &str) -> Result<String, ProbeError> {
    let to = (std::net::Ipv4Addr::LOCALHOST, port);
    let outcome = request(at, to, &HttpRequest::get("server", path));
    match outcome.body() {
        Some(body) => Ok(String::from_utf8_lossy(body).into_owned()),
        None => Err(ProbeError::ProxyPage(outcome)),
    }
}

/// A page that a proxy serves at 127.0.0.1 in its pod; `None`: it does not respond with one.
#[must_use]
pub fn proxy_page(at: &dyn Vantage, port: u16, path: &str) -> Option<String> {
    local_page(at, port, path).ok()
}

/// Why the application's counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// It did not respond with them.
    #[error("the test application does not report its counters: {outcome}")]
    NoResponse {
        /// What came of the request.
        outcome: String,
    },
    /// They cannot be parsed.
    #[error("the test application's counters cannot be parsed: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// The counters of the application at a port of this pod, read past any proxy.
///
/// # Errors
/// If it does not respond with them.
pub fn app_stats(pod: &dyn Vantage, port: u16) -> Result<AppStats, StatsError> {
    let to = (std::net::Ipv4Addr::LOCALHOST, port);
    let outcome = request(pod, to, &HttpRequest::get("server", STATS_PATH));
    match outcome.body() {
        Some(body) => Ok(serde_json::from_slice(body)?),
        None => Err(StatsError::NoResponse {
            outcome: outcome.to_string(),
        }),
    }
}

/// The counters of all pods of the first service that clients call.
pub(crate) fn replica_stats(subject: &Subject<'_>) -> Option<Vec<AppStats>> {
    let service = subject.site.entry_point();
    let pods = service.pods.iter();
    pods.map(|pod| app_stats(subject.at(pod), service.port()).ok())
        .collect()
}
