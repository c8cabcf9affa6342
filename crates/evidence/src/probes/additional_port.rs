//! An additional port: a few requests in its protocol through the whole path.

use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::CANARY_HEADER;
use meshtax_dataplane::{AppPort, AppProtocol};
use meshtax_load::LoadSpec;
use meshtax_model::experiment::Protocol;
use meshtax_model::trial::LoadResult;

use crate::finding::{Finding, ProbeError};
use crate::subject::{Client, READY_WITHIN, Subject, canaries};
use crate::vantage::Vantage;

/// How long between two attempts at a port of the user's own program.
const RETRY: Duration = Duration::from_millis(100);

/// A few requests of the port's protocol to each service that clients call, the canary in each. A program that is not
/// meshtax's may take its time to listen.
pub(crate) fn responds(subject: &Subject<'_>, port: &AppPort) -> Finding {
    subject.for_each_client(|client| responds_to(subject, client, port))
}

fn responds_to(subject: &Subject<'_>, client: Client<'_>, port: &AppPort) -> Finding {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let finding = attempt(subject, client, port);
        if finding.passed || port.path.is_none() || Instant::now() > deadline {
            return finding;
        }
        if let Some(ended) = subject.deployment.ended() {
            return Finding::failed(ended.to_string());
        }
        thread::sleep(RETRY);
    }
}

fn attempt(subject: &Subject<'_>, client: Client<'_>, port: &AppPort) -> Finding {
    let protocols: &[Protocol] = match port.protocol {
        AppProtocol::Http1 => &[Protocol::Http1],
        AppProtocol::Http2 => &[Protocol::Http2, Protocol::Grpc],
        AppProtocol::Tcp => &[Protocol::Tcp],
    };
    let number = port.number;
    let path = port.path.as_deref();
    let services: Vec<_> = subject.site.entry_points().collect();
    let mut failures = Vec::new();
    for protocol in protocols {
        for service in &services {
            let body = subject.canary.as_bytes().to_vec();
            let to = (service.address, number);
            let spec = meshtax_workload::request(&service.name, to, *protocol, path, body);
            let count = canaries(port.response_bytes);
            if let Err(error) = exchange(client.at, spec, subject.canary, count) {
                let of = match services.len() {
                    1 => String::new(),
                    _ => format!(" of {}", service.name),
                };
                failures.push(format!("{protocol}{of}: {error}"));
            }
        }
    }
    if failures.is_empty() {
        let all: Vec<String> = protocols.iter().map(ToString::to_string).collect();
        let all = all.join(" and ");
        return Finding::passed(format!("port {number}: {all}, all succeeded"));
    }
    let path = path.unwrap_or_default();
    Finding::failed(format!("port {number}{path}: {}", failures.join("; ")))
}

/// A few requests that must all succeed, the canary in each.
pub(crate) fn exchange(
    from: &dyn Vantage,
    spec: LoadSpec,
    canary: &str,
    requests: u64,
) -> Result<(), ProbeError> {
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
    let load = from.run_load(&spec).map_err(ProbeError::Load)?;
    match load.succeeded {
        succeeded if succeeded == requests => Ok(()),
        succeeded => Err(ProbeError::FewSucceeded {
            succeeded,
            requests,
            others: others(&load),
        }),
    }
}

/// What became of the requests, by kind.
fn others(load: &LoadResult) -> String {
    let statuses = load.status.iter();
    let statuses = statuses.map(|(status, count)| format!("{count} x HTTP {status}"));
    let grpc = load.grpc_status.iter().filter(|(status, _)| **status != 0);
    let grpc = grpc.map(|(status, count)| format!("{count} x gRPC status {status}"));
    let errors = load.errors.by_kind().into_iter();
    let errors = errors.map(|(kind, count)| (kind.to_string(), count));
    let errors = errors.chain([("no response".to_owned(), load.unanswered)]);
    let errors = errors.filter(|(_, count)| *count > 0);
    let errors = errors.map(|(kind, count)| format!("{count} x {kind}"));
    let all: Vec<String> = statuses.chain(grpc).chain(errors).collect();
    all.join(", ")
}
