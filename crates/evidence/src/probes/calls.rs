//! Calls between services pass the proxies, and the wire shows what the level promises.

use meshtax_agent::Captured;
use meshtax_dataplane::{ALLOWED_PATH, Pod, SiteService};
use meshtax_model::evidence::WireEvidence;
use meshtax_model::topology::Topology;

use crate::finding::{Finding, ProbeError};
use crate::held::Holder;
use crate::http::HttpRequest;
use crate::probes::wire::{TLS_1_3, readable_or_encrypted};
use crate::requests::{all_respond, open_connection, refused, request};
use crate::subject::Subject;
use crate::vantage::Connection;

/// A service with fewer expected requests per round of requests may not have been called by any of the probes.
const CALLED: f64 = 0.5;

/// The most rounds of requests to all entry points until every service was called.
const MOST_ROUNDS: u32 = 50;

/// How often a service is called for one request to each entry point, on average: over all, and across the link.
struct Expected<'a> {
    service: &'a SiteService,
    requests: f64,
    across: f64,
}

fn expected<'a>(subject: &Subject<'a>) -> Vec<Expected<'a>> {
    // The probes request no page, and every service that clients call.
    let topology: Topology = subject.topology.without_pages();
    let rounds = f64::from(topology.entry_point_count());
    let services = subject.site.services.iter();
    services
        .map(|service| Expected {
            service,
            requests: rounds * topology.requests_per_request(&service.name),
            across: rounds * topology.requests_across_nodes(&service.name),
        })
        .collect()
}

/// Each service that is called has a connection at the port of a pod's proxy; with identities, each refuses outsiders.
pub(crate) fn in_the_path(
    subject: &Subject<'_>,
    port: Option<u16>,
    refuses_outsiders: bool,
) -> Finding {
    let expected = expected(subject);
    if refuses_outsiders && let Some(open) = open_to_outsiders(subject, &expected) {
        return open;
    }
    let Some(port) = port else {
        return Finding::passed(format!("{} services respond", expected.len()));
    };
    let called: Vec<&Expected<'_>> = expected.iter().filter(|e| e.requests >= CALLED).collect();
    let count = called.len();
    match bypassing(subject, called, port) {
        Ok(names) if names.is_empty() => Finding::passed(format!(
            "connections at the proxies (port {port}) of {count} services"
        )),
        Ok(names) => Finding::failed(format!(
            "no proxy of {} holds a connection at port {port}: calls bypass it",
            names.join(", ")
        )),
        Err(error) => Finding::failed(error.to_string()),
    }
}

/// A service that accepts plain HTTP from a pod without a mesh.
fn open_to_outsiders(subject: &Subject<'_>, services: &[Expected<'_>]) -> Option<Finding> {
    services.iter().find_map(|Expected { service, .. }| {
        let pod: &Pod = service.pods.first()?;
        let plain = HttpRequest::get(&service.name, ALLOWED_PATH);
        let to = (pod.address, service.port());
        let outcome = request(subject.deployment.outsider(), to, &plain);
        let finding = refused(&format!("plain HTTP to {}", service.name), &outcome);
        (!finding.passed).then_some(finding)
    })
}

/// The services whose pods hold no connection at this port. Callers keep their connections; those of clients are kept
/// open here meanwhile.
fn bypassing(
    subject: &Subject<'_>,
    mut missing: Vec<&Expected<'_>>,
    port: u16,
) -> Result<Vec<String>, ProbeError> {
    let targets = subject.targets();
    let open = targets
        .iter()
        .map(|target| open_connection(subject.client().at, target));
    // A service that does not respond fails another probe.
    let _open: Vec<Box<dyn Connection>> = open.filter_map(Result::ok).collect();
    for _ in 0..MOST_ROUNDS {
        let mut still = Vec::new();
        for expected in missing {
            let holder = Holder {
                name: &expected.service.name,
                at: subject.at_all(&expected.service.pods),
                port,
            };
            if holder.connections()? == 0 {
                still.push(expected);
            }
        }
        missing = still;
        if missing.is_empty() {
            break;
        }
        // A failure is another probe's finding: here, the services are to be called.
        let _ = all_respond(subject);
    }
    Ok(missing
        .into_iter()
        .map(|e| e.service.name.clone())
        .collect())
}

/// Calls that cross the links between the nodes.
pub(crate) fn on_the_wire(subject: &Subject<'_>, captured: &Captured, readable: bool) -> Finding {
    let mut seen = Vec::new();
    for Expected {
        service, across, ..
    } in expected(subject)
    {
        let before = seen.len();
        for caller in callers(subject, service) {
            let canary = subject.canary.as_bytes();
            let wire = captured.between(&[caller.address], &service.pod_addresses(), canary);
            if wire.bytes_to_server == 0 && wire.bytes_to_client == 0 {
                continue;
            }
            let call = format!("{} to {}", caller.name, service.name);
            match call_finding(&wire, readable) {
                None => seen.push(call),
                Some(cause) => return Finding::failed(format!("{call}: {cause}")),
            }
        }
        if across >= CALLED && seen.len() == before {
            let name = &service.name;
            return Finding::failed(format!(
                "no call to {name} was captured, which proves nothing"
            ));
        }
    }
    if seen.is_empty() {
        // As the topology demands: otherwise the loop has failed.
        return Finding::passed("all calls stay on one node: none crosses the link");
    }
    let how = match readable {
        true => "readable",
        false => "TLS 1.3, the canary not readable",
    };
    Finding::passed(format!("{how}: {}", seen.join(", ")))
}

/// What is wrong with a captured call. Not every call carries the canary, but each connection begins with a request.
fn call_finding(wire: &WireEvidence, expected_readable: bool) -> Option<String> {
    let to_server = wire.canary_to_server || wire.http_to_server;
    let to_client = wire.canary_to_client || wire.http_to_client;
    if expected_readable {
        let unreadable = "neither HTTP nor the canary is readable in both directions";
        return (!(to_server && to_client)).then(|| unreadable.to_owned());
    }
    if to_server || to_client {
        let cause = "plain HTTP on the wire: calls bypass a proxy, or are not encrypted";
        return Some(cause.to_owned());
    }
    let finding = readable_or_encrypted(false, wire);
    let all_tls = wire.handshakes.iter().all(|h| h.version == TLS_1_3);
    (wire.handshakes.is_empty() || !all_tls).then_some(finding.seen)
}

/// The pods that call a service, the clients' among them.
fn callers<'a>(subject: &Subject<'a>, service: &SiteService) -> Vec<&'a Pod> {
    let site = subject.site;
    let clients = match service.entry_point {
        true => site.entering_pods(),
        false => &[],
    };
    let others = site.calling_services(&service.name);
    let others: Vec<&Pod> = others.flat_map(|caller| &caller.pods).collect();
    clients.iter().chain(others).collect()
}
