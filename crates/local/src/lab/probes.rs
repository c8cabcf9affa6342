//! The evidence: is a variant what its name says? Every probe is run against real sockets, and what
//! was seen is kept in words.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::Echo;
use meshtax_control_plane::SharedAuthority;
use meshtax_dataplane::{ALLOWED_PATH, Blueprint, DirectTls, ECHO_PATH, Place, Probe, Site};
use meshtax_model::evidence::{Evidence, Features, ProbeResult, WireEvidence, probe as names};
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::ComponentRole;
use meshtax_tls::Credentials;

use super::capture::Captured;
use super::carries;
use super::client_identity::client_identity;
use super::component::Component;
use super::hbone::{Refused, Tunnel};
use super::http::{Ask, Heard, ask, connect, failed, handshake};
use super::netns::NetNs;
use crate::tls::{Expect, client_config, workload_identity};

/// Until when a variant must answer its first permitted request.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(10);
/// Requests that carry the canary: enough for the frames and bytes that the wire must show.
const MOST_CANARIES: u64 = 8;
/// Bytes of answers to one probe: more than the capture takes at a time would prove nothing.
const PROBED_BYTES: u64 = 1 << 20;

/// Requests to ask for answers of this size.
pub(crate) fn canaries(response_bytes: u32) -> u64 {
    (PROBED_BYTES / u64::from(response_bytes).max(1)).clamp(1, MOST_CANARIES)
}

/// One variant as the probes see it.
pub(crate) struct Subject<'a> {
    pub(crate) variant: &'a VariantId,
    pub(crate) site: &'a Site,
    pub(crate) blueprint: &'a Blueprint,
    pub(crate) client: &'a NetNs,
    /// All replicas of the service.
    pub(crate) servers: Vec<&'a NetNs>,
    pub(crate) server_node: &'a NetNs,
    pub(crate) waypoint: &'a NetNs,
    pub(crate) outsider: &'a NetNs,
    pub(crate) components: &'a mut [Component],
    pub(crate) response_bytes: u32,
    pub(crate) canary: &'a str,
}

/// The authorities by which a prober can be somebody.
pub(crate) struct Identities<'a> {
    /// The run's own.
    pub(crate) authority: &'a SharedAuthority,
    /// One that nobody trusts.
    pub(crate) foreign: &'a SharedAuthority,
}

/// What the probes found before the capture is read.
#[derive(Debug)]
pub(crate) struct Active {
    results: Vec<Option<ProbeResult>>,
    features: Option<Features>,
}

/// Runs all probes that send something. Those that read the capture are left open.
pub(crate) fn run_active(subject: &mut Subject<'_>, identities: &Identities<'_>) -> Active {
    let probes = subject.blueprint.probes.clone();
    let results = probes
        .iter()
        .map(|probe| active_probe(subject, identities, probe))
        .collect();
    let features = features(subject);
    Active { results, features }
}

/// What the application received that nobody had sent, and from where; `None` if it cannot be asked.
fn features(subject: &Subject<'_>) -> Option<Features> {
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
    let client = IpAddr::V4(subject.site.client.address);
    Some(Features {
        added_headers,
        keeps_client_address: peer.is_some_and(|peer| peer.ip() == client),
        counts_requests: counts_requests(subject),
        tries_again: carries::tries_again(subject),
        balances: carries::balances(subject),
    })
}

/// Whether the proxy that judges requests counts them by status. All that were answered have gone
/// through it, so one that counts has counted by now.
fn counts_requests(subject: &Subject<'_>) -> Option<bool> {
    let metrics = subject.blueprint.http_metrics.as_ref()?;
    let namespaces = match (metrics.role, metrics.place) {
        (ComponentRole::Waypoint, _) => vec![subject.waypoint],
        (_, Place::Node) => vec![subject.server_node],
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

/// A request through the whole path, as the application received it.
pub(crate) fn echo(subject: &Subject<'_>) -> Result<Echo, String> {
    let request = Ask::get(ECHO_PATH);
    let heard = through_the_path(subject, &request);
    match &heard {
        Heard::Answer {
            status: 200, body, ..
        } => serde_json::from_slice(body).map_err(|e| format!("the echo: {e}")),
        _ => Err(heard.describe()),
    }
}

/// Judges the capture, and puts all results in the blueprint's order.
pub(crate) fn conclude(
    subject: &Subject<'_>,
    round: u32,
    active: Active,
    captured: &Captured,
    behind: Option<&Captured>,
) -> Evidence {
    let Active { results, features } = active;
    let servers: Vec<Ipv4Addr> = subject.site.servers().map(|pod| pod.address).collect();
    let (client, waypoint) = (subject.site.client.address, subject.site.waypoint.address);
    let canary = subject.canary.as_bytes();
    let has_waypoint = subject.blueprint.waypoint.is_some();
    let wire = match has_waypoint {
        // Whatever goes from the client to a server is seen too, and is not at the expected port.
        true => captured.between(client, &[&[waypoint], &servers[..]].concat(), canary),
        false => captured.between(client, &servers, canary),
    };
    let hops = Hops {
        around: has_waypoint.then(|| captured.between(client, &servers, canary)),
        behind: behind.map(|captured| captured.between(waypoint, &servers, canary)),
        wire: &wire,
    };
    let probes = subject
        .blueprint
        .probes
        .iter()
        .zip(results)
        .filter_map(|(probe, result)| result.or_else(|| wire_probe(subject, probe, &hops)))
        .collect();
    Evidence {
        variant: subject.variant.clone(),
        round,
        probes,
        wire,
        features,
    }
}

pub(crate) fn result(probe: &str, passed: bool, seen: impl Into<String>) -> ProbeResult {
    ProbeResult {
        probe: probe.into(),
        passed,
        seen: seen.into(),
    }
}

fn active_probe(
    subject: &mut Subject<'_>,
    identities: &Identities<'_>,
    probe: &Probe,
) -> Option<ProbeResult> {
    Some(match probe {
        Probe::Permitted => permitted(subject),
        Probe::InThePath {
            client_port,
            server_port,
        } => in_the_path(subject, *client_port, *server_port),
        Probe::ClientIdentity { expected, from } => client_identity(subject, expected, from),
        Probe::ServerIdentity { expected, client } => {
            server_identity(subject, identities, expected, client)
        }
        Probe::ForbiddenIdentity { identity } => {
            let root = identities.authority_root();
            let heard = direct(subject, identities.authority, root, identity);
            refused(names::FORBIDDEN_IDENTITY, identity, &heard.0)
        }
        Probe::ForeignCa { identity } => {
            let root = identities.authority_root();
            let heard = direct(subject, identities.foreign, root, identity);
            refused(
                names::FOREIGN_CA,
                "the right name from another authority",
                &heard.0,
            )
        }
        Probe::ForbiddenMethod { method } => {
            let heard = through_the_path(
                subject,
                &Ask {
                    method,
                    path: ALLOWED_PATH,
                    canary: None,
                    fails: false,
                },
            );
            refused(names::FORBIDDEN_METHOD, method, &heard)
        }
        Probe::ForbiddenPath { path } => {
            let heard = through_the_path(subject, &Ask::get(path));
            refused(names::FORBIDDEN_PATH, path, &heard)
        }
        Probe::PlaintextOutsider => {
            let plain = Ask::get(ALLOWED_PATH);
            let heard = one_request(subject.outsider, subject.server_pod(), &plain);
            refused(
                names::PLAINTEXT_OUTSIDER,
                "plain HTTP from a pod without a mesh",
                &heard,
            )
        }
        Probe::Carries { port } => carries::carries(subject, port),
        Probe::AroundTheWaypoint { identity, server } => {
            around_the_waypoint(subject, identities, identity, server)
        }
        Probe::OnTheWire { .. }
        | Probe::Canary { .. }
        | Probe::Handshake
        | Probe::BehindTheWaypoint { .. } => return None,
    })
}

impl Subject<'_> {
    /// What clients call.
    fn service(&self) -> (Ipv4Addr, u16) {
        (self.site.called, self.site.app_port)
    }

    /// The application in the first replica's pod, for who goes past the client's proxy.
    fn server_pod(&self) -> (Ipv4Addr, u16) {
        (self.site.server.address, self.site.app_port)
    }
}

impl Identities<'_> {
    fn authority_root(&self) -> String {
        self.authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .root_pem()
    }
}

/// Refusal must be heard: silence proves nothing.
fn refused(name: &str, who: &str, heard: &Heard) -> ProbeResult {
    let (passed, seen) = match heard {
        Heard::Answer {
            status: 401 | 403, ..
        } => (true, format!("{who}: {}", heard.describe())),
        Heard::Answer { .. } => (
            false,
            format!("{who} was let through: {}", heard.describe()),
        ),
        Heard::Refused(_) => (true, format!("{who}: {}", heard.describe())),
        Heard::Silence(_) => (
            false,
            format!("{who}: {}: neither allowed nor refused", heard.describe()),
        ),
    };
    result(name, passed, seen)
}

pub(crate) fn one_request(from: &NetNs, to: (Ipv4Addr, u16), request: &Ask<'_>) -> Heard {
    match connect(from, to) {
        Ok(mut stream) => ask(&mut stream, request),
        Err(heard) => heard,
    }
}

fn through_the_path(subject: &Subject<'_>, request: &Ask<'_>) -> Heard {
    one_request(subject.client, subject.service(), request)
}

/// Readiness is the first permitted 200 through the whole path, not an open port.
fn permitted(subject: &mut Subject<'_>) -> ProbeResult {
    let deadline = Instant::now() + READY_WITHIN;
    let request = Ask::get(ALLOWED_PATH);
    loop {
        let heard = through_the_path(subject, &request);
        if heard.is_ok() {
            break;
        }
        if let Some(dead) = subject.components.iter_mut().find_map(Component::failure) {
            return result(names::PERMITTED, false, dead);
        }
        if Instant::now() > deadline {
            let words: String = subject
                .components
                .iter()
                .map(Component::last_words)
                .collect();
            let seen = format!("no 200: {}{words}", heard.describe());
            return result(names::PERMITTED, false, seen);
        }
        thread::sleep(Duration::from_millis(5));
    }
    send_canaries(subject)
}

/// Redirected, a connection ends at the proxy's port in the pod's own namespace: there it must be seen
/// while it is open.
fn in_the_path(subject: &Subject<'_>, client_port: u16, server_port: u16) -> ProbeResult {
    let request = Ask::get(ALLOWED_PATH);
    let held = connect(subject.client, subject.service()).and_then(|mut stream| {
        let heard = ask(&mut stream, &request);
        if heard.is_ok() {
            Ok(stream)
        } else {
            Err(heard)
        }
    });
    let held = match held {
        Ok(stream) => stream,
        Err(heard) => return result(names::IN_THE_PATH, false, heard.describe()),
    };
    // Which of the replicas has the connection is the mesh's choice.
    let ends = [
        ("client", vec![subject.client], client_port),
        ("server", subject.servers.clone(), server_port),
    ];
    let counted: io::Result<Vec<_>> = ends
        .into_iter()
        .map(|(whose, pods, port)| {
            let counts: io::Result<Vec<u32>> = pods
                .into_iter()
                .map(|pod| connections_at(pod, port))
                .collect();
            Ok((whose, port, counts?.into_iter().sum()))
        })
        .collect();
    drop(held);
    match counted {
        Ok(counted) => through_both(&counted),
        Err(e) => result(
            names::IN_THE_PATH,
            false,
            format!("the pods' sockets cannot be read: {e}"),
        ),
    }
}

/// Connections whose own end in this pod has this port.
fn connections_at(pod: &NetNs, port: u16) -> io::Result<u32> {
    pod.run(|| meshtax_observe::established_connections_here(port).map_err(io::Error::other))
}

fn through_both(counted: &[(&str, u16, u32)]) -> ProbeResult {
    let around: Vec<String> = counted
        .iter()
        .filter(|(_, _, count)| *count == 0)
        .map(|(whose, port, _)| {
            format!(
                "the {whose}'s proxy holds no connection at port {port}: traffic goes around it"
            )
        })
        .collect();
    if !around.is_empty() {
        return result(names::IN_THE_PATH, false, around.join("; "));
    }
    let seen: Vec<String> = counted
        .iter()
        .map(|(whose, port, count)| format!("{count} at the {whose}'s proxy (port {port})"))
        .collect();
    result(
        names::IN_THE_PATH,
        true,
        format!("connections: {}", seen.join(", ")),
    )
}

/// A data plane without a process cannot answer, whatever else the probes met: the thing to name.
pub(crate) fn absent_proxy(subject: &Subject<'_>) -> Option<&'static str> {
    let runs = |role| subject.components.iter().any(|c| c.role == role);
    let needed = subject.blueprint.proxy_port.is_some();
    let absent = match (
        runs(ComponentRole::ClientProxy),
        runs(ComponentRole::ServerProxy),
    ) {
        (true, true) => None,
        (false, false) => Some("no proxy was started"),
        (false, true) => Some("no proxy was started in the client's pod"),
        (true, false) => Some("no proxy was started in the server's pod"),
    };
    absent.filter(|_| needed)
}

fn send_canaries(subject: &Subject<'_>) -> ProbeResult {
    let request = Ask {
        method: "GET",
        path: ALLOWED_PATH,
        canary: Some(subject.canary),
        fails: false,
    };
    let mut stream = match connect(subject.client, subject.service()) {
        Ok(stream) => stream,
        Err(heard) => return result(names::PERMITTED, false, heard.describe()),
    };
    let count = canaries(subject.response_bytes);
    for _ in 0..count {
        let heard = ask(&mut stream, &request);
        let Heard::Answer {
            status: 200,
            body,
            echoed_canary,
        } = &heard
        else {
            return result(names::PERMITTED, false, heard.describe());
        };
        if body.len() != subject.response_bytes as usize
            || echoed_canary.as_deref() != Some(subject.canary)
        {
            let seen = format!("the answer is not the application's: {} bytes", body.len());
            return result(names::PERMITTED, false, seen);
        }
    }
    result(
        names::PERMITTED,
        true,
        format!("HTTP 200, {count} of {count}"),
    )
}

/// A TLS connection past the client's proxy, as somebody; what a GET gets, and the server's identity.
fn direct(
    subject: &Subject<'_>,
    issuer: &SharedAuthority,
    root_pem: String,
    identity: &str,
) -> (Heard, Option<String>) {
    let how = &subject.blueprint.direct_tls;
    direct_by(subject, how, issuer, root_pem, identity)
}

fn direct_by(
    subject: &Subject<'_>,
    how: &DirectTls,
    issuer: &SharedAuthority,
    root_pem: String,
    identity: &str,
) -> (Heard, Option<String>) {
    let leaf = issuer
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .leaf(identity);
    let leaf = match leaf {
        Ok(leaf) => leaf,
        Err(e) => return (Heard::Silence(e.to_string()), None),
    };
    let credentials = Credentials {
        chain_pem: leaf.chain_pem,
        key_pem: leaf.key_pem,
        root_pem,
    };
    let names_server = how.server_name.is_some();
    let config = match client_config(&credentials, Expect::Anyone, &how.alpn, names_server) {
        Ok(config) => config,
        Err(e) => return (Heard::Silence(format!("cannot speak TLS: {e}")), None),
    };
    // A waypoint is asked for the service as clients call it; a server for itself.
    let (address, wanted) = match how.at_waypoint {
        true => (subject.site.waypoint.address, subject.service()),
        false => (subject.site.server.address, subject.server_pod()),
    };
    let connected = connect(subject.outsider, (address, how.port.unwrap_or(wanted.1)))
        .and_then(|stream| handshake(stream, config, how.server_name.as_deref()));
    let (mut tls, certificate) = match connected {
        Ok(connected) => connected,
        Err(heard) => return (heard, None),
    };
    let shown = certificate.as_ref().and_then(workload_identity);
    let request = Ask::get(ALLOWED_PATH);
    if !how.hbone {
        return (ask(&mut tls, &request), shown);
    }
    let heard = match Tunnel::open(tls, wanted) {
        Ok(mut tunnel) => ask(&mut tunnel, &request),
        Err(Refused::Status(status)) => Heard::Answer {
            status,
            body: Vec::new(),
            echoed_canary: None,
        },
        Err(Refused::Broken(e)) => failed("opening a tunnel", &e),
    };
    (heard, shown)
}

/// The permitted identity gets an answer past the client's proxy (without which a refusal of others
/// would prove nothing), and the server shows who it is.
fn server_identity(
    subject: &Subject<'_>,
    identities: &Identities<'_>,
    expected: &str,
    client: &str,
) -> ProbeResult {
    let root = identities.authority_root();
    let (heard, shown) = direct(subject, identities.authority, root, client);
    match shown {
        Some(shown) if shown != expected => result(
            names::SERVER_IDENTITY,
            false,
            format!("the server is {shown}, expected {expected}"),
        ),
        Some(shown) if heard.is_ok() => result(names::SERVER_IDENTITY, true, shown),
        _ => {
            let seen = format!(
                "a direct mutual-TLS request as {client}: {}",
                heard.describe()
            );
            result(names::SERVER_IDENTITY, false, seen)
        }
    }
}

/// What was captured, by hop.
struct Hops<'a> {
    /// Between the client and whom its proxy talks to.
    wire: &'a WireEvidence,
    /// Of a variant with a waypoint: between the client and the servers, past it.
    around: Option<WireEvidence>,
    /// Between the waypoint and the servers.
    behind: Option<WireEvidence>,
}

/// Past the waypoint, straight to the server: refused by whoever is the right one.
fn around_the_waypoint(
    subject: &Subject<'_>,
    identities: &Identities<'_>,
    identity: &str,
    server: &str,
) -> ProbeResult {
    let root = identities.authority_root();
    let at_server = DirectTls {
        at_waypoint: false,
        ..subject.blueprint.direct_tls.clone()
    };
    let (heard, shown) = direct_by(subject, &at_server, identities.authority, root, identity);
    let name = names::AROUND_THE_WAYPOINT;
    match shown {
        Some(shown) if shown != server => result(
            name,
            false,
            format!("the server is {shown}, expected {server}"),
        ),
        _ => refused(name, &format!("{identity}, straight to the server"), &heard),
    }
}

fn wire_probe(subject: &Subject<'_>, probe: &Probe, hops: &Hops<'_>) -> Option<ProbeResult> {
    let wire = hops.wire;
    match probe {
        Probe::OnTheWire { ports } => Some(match &hops.around {
            Some(around) if around.connections > 0 => result(
                names::ON_THE_WIRE,
                false,
                format!(
                    "{} connections went around the waypoint",
                    around.connections
                ),
            ),
            _ => on_the_wire(subject, ports, wire),
        }),
        Probe::BehindTheWaypoint { port } => Some(behind_the_waypoint(*port, hops.behind.as_ref())),
        Probe::Canary { readable } => Some(canary(*readable, wire)),
        Probe::Handshake => Some(tls_on_the_wire(wire)),
        _ => None,
    }
}

/// The other hop, which does not leave the waypoint's node.
fn behind_the_waypoint(port: u16, wire: Option<&WireEvidence>) -> ProbeResult {
    let name = names::BEHIND_THE_WAYPOINT;
    let Some(wire) = wire else {
        return result(name, false, "no packets could be captured at the waypoint");
    };
    let parts = [canary(false, wire), tls_on_the_wire(wire)];
    if let Some(failed) = parts.iter().find(|part| !part.passed) {
        return result(name, false, failed.seen.clone());
    }
    let only_expected = wire.ports == [port] && wire.dropped == 0;
    let seen = format!(
        "{} + {} bytes, ports {:?}, {}",
        wire.bytes_to_server, wire.bytes_to_client, wire.ports, parts[1].seen
    );
    result(name, only_expected, seen)
}

/// Not vacuous: at least the application's own bytes must have passed, both ways.
fn on_the_wire(subject: &Subject<'_>, ports: &[u16], wire: &WireEvidence) -> ProbeResult {
    let seen = format!(
        "{} + {} frames, {} + {} bytes to server and client, ports {:?}",
        wire.frames_to_server,
        wire.frames_to_client,
        wire.bytes_to_server,
        wire.bytes_to_client,
        wire.ports
    );
    let count = canaries(subject.response_bytes);
    let least_to_client = count * u64::from(subject.response_bytes);
    let least_to_server = count * subject.canary.len() as u64;
    let enough = wire.frames_to_server >= count
        && wire.frames_to_client >= count
        && wire.bytes_to_server >= least_to_server
        && wire.bytes_to_client >= least_to_client;
    let only_expected = wire.ports.iter().all(|port| ports.contains(port));
    result(
        names::ON_THE_WIRE,
        enough && only_expected && wire.dropped == 0,
        match wire.dropped {
            0 if !enough => format!("too little to prove anything: {seen}"),
            0 if !only_expected => {
                let expected: Vec<String> = ports.iter().map(u16::to_string).collect();
                format!("expected port {} only: {seen}", expected.join(", "))
            }
            0 => seen,
            dropped => format!("the kernel dropped {dropped} packets of the capture: {seen}"),
        },
    )
}

fn canary(expected_readable: bool, wire: &WireEvidence) -> ProbeResult {
    let readable = match (wire.canary_to_server, wire.canary_to_client) {
        (false, false) => "not readable on the wire",
        (true, false) => "request readable on the wire",
        (false, true) => "answer readable on the wire",
        (true, true) => "request and answer readable on the wire",
    };
    if expected_readable {
        let passed = wire.canary_to_server && wire.canary_to_client;
        return result(names::CANARY, passed, readable);
    }
    let around = match (wire.http_to_server, wire.http_to_client) {
        (false, false) => "",
        (true, false) => "; plain HTTP left the client's pod: its traffic goes around its proxy",
        (false, true) => "; plain HTTP left the server's pod: traffic to it goes around its proxy",
        (true, true) => {
            "; plain HTTP both ways: the traffic is not encrypted, or goes around both proxies"
        }
    };
    // Absence of a canary from an empty capture proves nothing.
    let something = wire.bytes_to_server > 0 && wire.bytes_to_client > 0;
    if !something && around.is_empty() {
        return result(
            names::CANARY,
            false,
            "nothing passed the link, which proves nothing",
        );
    }
    let hidden = !wire.canary_to_server && !wire.canary_to_client && around.is_empty();
    result(names::CANARY, hidden, format!("{readable}{around}"))
}

fn tls_on_the_wire(wire: &WireEvidence) -> ProbeResult {
    let seen: Vec<String> = wire
        .handshakes
        .iter()
        .map(|h| format!("{}, {}, {}", h.version, h.cipher, h.key_exchange_group))
        .collect();
    let passed =
        !wire.handshakes.is_empty() && wire.handshakes.iter().all(|h| h.version == "TLS 1.3");
    let seen = if seen.is_empty() {
        "no ServerHello between the pods".into()
    } else {
        seen.join("; ")
    };
    result(names::HANDSHAKE, passed, seen)
}
