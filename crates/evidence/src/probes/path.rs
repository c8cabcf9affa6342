//! The path of clients' requests: they succeed or are refused, and they pass the proxies.

use meshtax_dataplane::ALLOWED_PATH;

use crate::finding::{Finding, ProbeError};
use crate::held::{Holder, all_hold};
use crate::http::HttpRequest;
use crate::requests::{open_connection, ready, refused, request, send_canaries};
use crate::subject::{Client, Subject, Target};

/// Requests to each service that clients call succeed, each with the application's whole response.
pub(crate) fn permitted(subject: &Subject<'_>) -> Finding {
    subject.for_each_client(|client| permitted_from(subject, client))
}

fn permitted_from(subject: &Subject<'_>, client: Client<'_>) -> Finding {
    let targets = subject.targets();
    let (mut sent, mut failed) = (0, Vec::new());
    for target in &targets {
        let checked = ready(subject, client.at, target)
            .and_then(|()| send_canaries(subject, client.at, target));
        match checked {
            Ok(count) => sent += count,
            Err(error) => failed.push(at_service(error, target, targets.len()).to_string()),
        }
    }
    if !failed.is_empty() {
        return Finding::failed(failed.join("; "));
    }
    Finding::passed(match targets.len() {
        1 => format!("HTTP 200, {sent} of {sent}"),
        services => format!("HTTP 200, {sent} of {sent}, from {services} services"),
    })
}

/// An error with the name of the service, where there are several.
pub(crate) fn at_service(source: ProbeError, target: &Target<'_>, services: usize) -> ProbeError {
    match services {
        1 => source,
        _ => ProbeError::AtService {
            service: target.host().to_owned(),
            source: Box::new(source),
        },
    }
}

/// Each service that clients call refuses this method.
pub(crate) fn refused_method(subject: &Subject<'_>, method: &str) -> Finding {
    let request = HttpRequest {
        method,
        ..HttpRequest::get("", ALLOWED_PATH)
    };
    refused_by_all(subject, method, &request)
}

/// Each service that clients call refuses this path.
pub(crate) fn refused_path(subject: &Subject<'_>, path: &str) -> Finding {
    refused_by_all(subject, path, &HttpRequest::get("", path))
}

/// The server's proxy refuses a request without TLS.
pub(crate) fn refused_outsider(subject: &Subject<'_>) -> Finding {
    let plain = HttpRequest::get(subject.first().host(), ALLOWED_PATH);
    let outcome = request(subject.deployment.outsider(), subject.server_pod(), &plain);
    refused("plain HTTP from a pod without a mesh", &outcome)
}

/// Each service that clients call refuses this request through the whole path, whatever its host.
fn refused_by_all(subject: &Subject<'_>, what: &str, template: &HttpRequest<'_>) -> Finding {
    subject.for_each_client(|client| refused_by_all_from(subject, client, what, template))
}

fn refused_by_all_from(
    subject: &Subject<'_>,
    client: Client<'_>,
    what: &str,
    template: &HttpRequest<'_>,
) -> Finding {
    let targets = subject.targets();
    let findings: Vec<Finding> = targets
        .iter()
        .map(|target| {
            let who = match targets.len() {
                1 => what.to_owned(),
                _ => format!("{what} at {}", target.host()),
            };
            let addressed = HttpRequest {
                host: target.host(),
                ..template.clone()
            };
            let outcome = request(client.at, target.to, &addressed);
            refused(&who, &outcome)
        })
        .collect();
    Finding::all(&findings)
}

/// While a client's connection to each service is open, the proxies of both sides hold one.
pub(crate) fn in_the_path(subject: &Subject<'_>, client_port: u16, server_port: u16) -> Finding {
    subject.for_each_client(|client| path_of(subject, client, [client_port, server_port]))
}

fn path_of(
    subject: &Subject<'_>,
    client: Client<'_>,
    [client_port, server_port]: [u16; 2],
) -> Finding {
    let near = match subject.site.has_outside_clients_only() {
        true => "the gateway's proxy",
        false => "the client's proxy",
    };
    let targets = subject.targets();
    let holding = targets.iter().map(|target| {
        // Which replica has the connection is the mesh's choice.
        let holders = [
            Holder {
                name: near,
                at: vec![subject.at(client.enters)],
                port: client_port,
            },
            Holder {
                name: match targets.len() {
                    1 => "the server's proxy",
                    _ => target.host(),
                },
                at: subject.at_all(&target.service.pods),
                port: server_port,
            },
        ];
        let open = open_connection(client.at, target)?;
        let held = all_hold(&holders);
        drop(open);
        held
    });
    let seen: Result<Vec<String>, ProbeError> = holding.collect();
    seen.map(|seen| seen.join("; ")).into()
}
