//! The probe of a further port: a few requests of its protocol through the whole path.

use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::CANARY_HEADER;
use meshtax_dataplane::{AppPort, Called, Speaks};
use meshtax_load::LoadSpec;
use meshtax_model::evidence::{ProbeResult, probe as names};
use meshtax_model::experiment::Protocol;
use meshtax_model::trial::LoadResult;

use super::apps;
use super::component::Component;
use super::netns::NetNs;
use super::probes::{READY_WITHIN, Subject, canaries, result};

/// A few requests of the port's protocol through the whole path, the canary in each. A program that is
/// not meshtax's may take its time to listen.
pub(crate) fn carries(subject: &mut Subject<'_>, port: &AppPort) -> ProbeResult {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let seen = try_carries(subject, port);
        if seen.passed || port.path.is_none() || Instant::now() > deadline {
            return seen;
        }
        if let Some(dead) = subject.components.iter_mut().find_map(Component::failure) {
            return result(names::CARRIES, false, dead);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn try_carries(subject: &Subject<'_>, port: &AppPort) -> ProbeResult {
    let mut failures = Vec::new();
    let protocols: &[Protocol] = match port.speaks {
        Speaks::Http1 => &[Protocol::Http1],
        Speaks::Http2 => &[Protocol::Http2, Protocol::Grpc],
        Speaks::Tcp => &[Protocol::Tcp],
    };
    let called: Vec<Called<'_>> = subject.site.called_by_clients().collect();
    for protocol in protocols {
        for service in &called {
            let canary = subject.canary;
            let body = canary.as_bytes().to_vec();
            let spec = apps::request(*service, port.number, *protocol, port.path.as_deref(), body);
            let count = canaries(port.response_bytes);
            if let Err(why) = exchange(subject.client, spec, canary, count) {
                let whose = match called.len() {
                    1 => String::new(),
                    _ => format!(" of {}", service.host),
                };
                failures.push(format!("{protocol}{whose}: {why}"));
            }
        }
    }
    let spoken: Vec<String> = protocols.iter().map(ToString::to_string).collect();
    let spoken = spoken.join(" and ");
    match failures.is_empty() {
        true => result(
            names::CARRIES,
            true,
            format!("port {}: {spoken}, answered as they should be", port.number),
        ),
        false => result(
            names::CARRIES,
            false,
            format!(
                "port {}{}: {}",
                port.number,
                port.path.as_deref().unwrap_or_default(),
                failures.join("; ")
            ),
        ),
    }
}

/// A few requests of a protocol that must all be answered, the canary in each.
///
/// # Errors
/// In words: how many were answered, and what became of the others.
pub(crate) fn exchange(
    from: &NetNs,
    spec: LoadSpec,
    canary: &str,
    requests: u64,
) -> Result<(), String> {
    let mut spec = LoadSpec {
        max_requests: Some(requests),
        window_ns: 3_000_000_000,
        timeout_ns: Some(2_000_000_000),
        connect_timeout_ns: 1_000_000_000,
        ..spec
    };
    for request in &mut spec.requests {
        request.headers.push((CANARY_HEADER.into(), canary.into()));
    }
    let load = from
        .run(|| meshtax_load::run(&spec, &mut |_| {}).map_err(std::io::Error::other))
        .map_err(|e| e.to_string())?;
    judge(&load, requests)
}

fn judge(load: &LoadResult, requests: u64) -> Result<(), String> {
    if load.succeeded == requests {
        return Ok(());
    }
    let mut seen: Vec<String> = load
        .status
        .iter()
        .map(|(status, count)| format!("{count} x HTTP {status}"))
        .chain(
            load.grpc_status
                .iter()
                .filter(|(status, _)| **status != 0)
                .map(|(status, count)| format!("{count} x gRPC status {status}")),
        )
        .collect();
    let errors = load.errors.by_kind().into_iter();
    seen.extend(
        errors
            .chain([("without an answer", load.unanswered)])
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{count} x {kind}")),
    );
    let (got, seen) = (load.succeeded, seen.join(", "));
    Err(format!(
        "{got} of {requests} answered as they should be: {seen}"
    ))
}
