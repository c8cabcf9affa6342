//! The evidence of calls between services: they go through the proxies, and the wire shows what the level promises.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpStream};

use meshtax_dataplane::{ALLOWED_PATH, Pod, SiteService};
use meshtax_model::evidence::{ProbeResult, WireEvidence, probe as names};

use super::capture::Captured;
use super::http::Ask;
use super::netns::NetNs;
use super::path::{connections_at, each_answers, held_by};
use super::probes::{Subject, one_request, refused, result};

/// A service that is asked less often, on average, need not have been asked by any of the probes.
const ASKED: f64 = 0.5;

/// So many requests are made to each service that clients call, until every other was asked.
const MOST_REQUESTS: u32 = 50;

/// A service besides the first that clients call, with its pods' namespaces.
pub(crate) struct Behind<'a> {
    pub(crate) service: &'a SiteService,
    pub(crate) pods: Vec<&'a NetNs>,
    /// Size of its answers.
    pub(crate) response_bytes: u32,
    /// How often it is asked for one request to each service that clients call, on average.
    pub(crate) asked: f64,
    /// Likewise by pods of the other node: these calls cross the link between the nodes.
    pub(crate) asked_across: f64,
}

pub(crate) fn in_the_path(
    subject: &Subject<'_>,
    port: Option<u16>,
    refuses_outsiders: bool,
) -> ProbeResult {
    let name = names::CALLS_IN_THE_PATH;
    if refuses_outsiders && let Some(open) = open_to_outsiders(subject) {
        return result(name, false, open);
    }
    let Some(port) = port else {
        let further = subject.behind.iter().filter(|b| b.service.clients).count();
        let front = match further {
            0 => "one".to_owned(),
            further => (further + 1).to_string(),
        };
        let seen = format!(
            "{} services answer for the {front} in front",
            subject.behind.len() - further
        );
        return result(name, true, seen);
    };
    match around_their_proxies(subject, port) {
        Ok(around) if around.is_empty() => {
            let asked = subject.behind.iter().filter(|b| b.asked >= ASKED).count();
            let seen = format!("connections at the proxies (port {port}) of {asked} services");
            result(name, true, seen)
        }
        Ok(around) => {
            let seen = format!(
                "no proxy of {} holds a connection at port {port}: calls go around it",
                around.join(", ")
            );
            result(name, false, seen)
        }
        Err(e) => result(
            name,
            false,
            format!("the pods' sockets cannot be read: {e}"),
        ),
    }
}

/// A service that answers a client without a mesh.
fn open_to_outsiders(subject: &Subject<'_>) -> Option<String> {
    let port = subject.site.app_port;
    subject.behind.iter().find_map(|behind| {
        let pod: &Pod = behind.service.pods.first()?;
        let plain = Ask::get(ALLOWED_PATH);
        let heard = one_request(subject.outsider, (pod.address, port), &plain);
        let who = format!("plain HTTP to {}", behind.service.name);
        let told = refused(names::CALLS_IN_THE_PATH, &who, &heard);
        (!told.passed).then_some(told.seen)
    })
}

/// Services that were asked, and whose pods hold no connection at this port. Callers keep theirs; those of clients last
/// as long as they are held here.
fn around_their_proxies(subject: &Subject<'_>, port: u16) -> std::io::Result<Vec<String>> {
    let services = subject.services();
    let held = services.iter().map(|asked| held_by(subject.client, asked));
    // One that is not answered fails another probe.
    let _held: Vec<TcpStream> = held.filter_map(Result::ok).collect();
    let mut missing: Vec<&Behind<'_>> = subject
        .behind
        .iter()
        .filter(|behind| behind.asked >= ASKED)
        .collect();
    for _ in 0..MOST_REQUESTS {
        let mut still = Vec::new();
        for behind in missing {
            let mut held = 0;
            for pod in &behind.pods {
                held += connections_at(pod, port)?;
            }
            if held == 0 {
                still.push(behind);
            }
        }
        missing = still;
        if missing.is_empty() {
            break;
        }
        // Who is not answered shows elsewhere: here it is to be asked.
        let _ = each_answers(subject);
    }
    Ok(missing
        .into_iter()
        .map(|b| b.service.name.clone())
        .collect())
}

/// Calls that cross the link between the nodes, as it was captured there.
pub(crate) fn on_the_wire(
    subject: &Subject<'_>,
    captured: &Captured,
    expected_readable: bool,
) -> ProbeResult {
    let name = names::CALLS_ON_THE_WIRE;
    let mut seen = Vec::new();
    for behind in &subject.behind {
        let before = seen.len();
        let pods: Vec<Ipv4Addr> = behind.service.pods.iter().map(|pod| pod.address).collect();
        let service = &behind.service.name;
        for caller in callers(subject, behind.service) {
            let wire = captured.between(caller.address, &pods, subject.canary.as_bytes());
            let call = format!("{} to {service}", caller.name);
            match judged(&wire, expected_readable) {
                None => {}
                Some(Ok(())) => seen.push(call),
                Some(Err(words)) => return result(name, false, format!("{call}: {words}")),
            }
        }
        if behind.asked_across >= ASKED && seen.len() == before {
            let seen = format!("no call of {service} was seen on the link, which proves nothing");
            return result(name, false, seen);
        }
    }
    let how = match expected_readable {
        true => "readable",
        false => "TLS 1.3, the canary not readable",
    };
    if seen.is_empty() {
        // By the topology: else it has failed above.
        return result(
            name,
            true,
            "all calls stay on one node: not seen on the link",
        );
    }
    result(name, true, format!("{how}: {}", seen.join(", ")))
}

/// `None`: nothing passed.
fn judged(wire: &WireEvidence, expected_readable: bool) -> Option<Result<(), String>> {
    if wire.bytes_to_server == 0 && wire.bytes_to_client == 0 {
        return None;
    }
    // Not every call carries the canary, and each connection begins with a request.
    let readable = (wire.canary_to_server || wire.http_to_server)
        && (wire.canary_to_client || wire.http_to_client);
    if expected_readable {
        return Some(match readable {
            true => Ok(()),
            false => Err("neither HTTP nor the canary is readable in both directions".into()),
        });
    }
    let in_clear = wire.canary_to_server
        || wire.canary_to_client
        || wire.http_to_server
        || wire.http_to_client;
    if in_clear {
        return Some(Err(
            "plain HTTP on the wire: calls go around a proxy, or are not encrypted".into(),
        ));
    }
    let versions: BTreeSet<&str> = wire.handshakes.iter().map(|h| h.version.as_str()).collect();
    let all = versions.into_iter().collect::<Vec<_>>();
    Some(match all.as_slice() {
        ["TLS 1.3"] => Ok(()),
        [] => Err("no ServerHello".into()),
        other => Err(format!("handshakes of {}", other.join(", "))),
    })
}

/// The pods of those that call a service, clients among them.
fn callers<'a>(subject: &Subject<'a>, service: &SiteService) -> Vec<&'a Pod> {
    let site = subject.site;
    let calls = |calls: &[String]| calls.contains(&service.name);
    let client = service.clients.then(|| site.caller());
    let servers = site.servers().filter(|_| calls(&site.calls));
    let others = site.behind.iter().filter(|service| calls(&service.calls));
    client
        .into_iter()
        .chain(servers)
        .chain(others.flat_map(|service| &service.pods))
        .collect()
}
