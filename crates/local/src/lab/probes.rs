//! The evidence: is a variant what its name says? Every probe is run against real sockets, and what
//! was seen is kept in words.

use std::io;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use meshtax_app::Echo;
use meshtax_control_plane::{Pushed, SharedAuthority};
use meshtax_dataplane::{ALLOWED_PATH, Blueprint, ECHO_PATH, Probe, Site};
use meshtax_model::evidence::{
    Evidence, Features, ProbeResult, Start, WireEvidence, probe as names,
};
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::ComponentRole;

use super::calls::{self, Behind};
use super::capture::Captured;
use super::carries;
use super::client_identity::client_identity;
use super::component::Component;
use super::control::Control;
use super::features::features;
use super::http::{Ask, Heard, ask, connect};
use super::netns::NetNs;
use super::options;
use super::past_the_proxy::{around_the_waypoint, direct, server_identity};
use super::wire_probes::{Hops, wire_probe};

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
    /// The services behind it.
    pub(crate) behind: Vec<Behind<'a>>,
    pub(crate) server_node: &'a NetNs,
    pub(crate) waypoint: &'a NetNs,
    pub(crate) outsider: &'a NetNs,
    pub(crate) components: &'a mut [Component],
    /// What meshtax serves to the proxies.
    pub(crate) control: &'a [Control],
    pub(crate) response_bytes: u32,
    /// From the start of its first process to the first request that was answered.
    pub(crate) served_ns: Option<u64>,
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

/// Whether a probe is made again when a round ends. Not those that need new connections between the
/// proxies, which keep theirs, or what a proxy says of new ones, nor those of further ports and of features: what carries and refuses at
/// the first port is the same configuration.
fn is_made_again(probe: &Probe) -> bool {
    !matches!(
        probe,
        Probe::Handshake
            // Who the client is stands in the log of the proxy, which has gone on since.
            | Probe::ClientIdentity { .. }
            | Probe::BehindTheWaypoint { .. }
            // Callers keep their connections.
            | Probe::CallsOnTheWire { .. }
            | Probe::Carries { .. }
            // What a proxy has said that it holds it says once.
            | Probe::Knows { .. }
            // Spans are gathered for seconds before they are sent.
            | Probe::SendsSpans
            | Probe::AroundTheWaypoint { .. }
    )
}

/// As [`run_active`], of what is looked at again when a round ends.
pub(crate) fn run_again(subject: &mut Subject<'_>, identities: &Identities<'_>) -> Active {
    let mut probes = subject.blueprint.probes.clone();
    probes.retain(is_made_again);
    let results = probes
        .iter()
        .map(|probe| active_probe(subject, identities, probe))
        .collect();
    Active {
        results,
        features: None,
    }
}

/// What failed of [`run_again`] and on the wire since.
pub(crate) fn failed_again(
    subject: &Subject<'_>,
    active: Active,
    captured: Option<&Captured>,
) -> Vec<String> {
    let mut probes = subject.blueprint.probes.clone();
    probes.retain(is_made_again);
    let seen = captured.map(|captured| on_all_hops(subject, captured));
    let judged = probes.iter().zip(active.results);
    judged
        .filter_map(|(probe, result)| {
            result.or_else(|| {
                let (wire, around) = seen.as_ref()?;
                let hops = Hops {
                    around: around.clone(),
                    behind: None,
                    wire,
                };
                wire_probe(subject, probe, &hops)
            })
        })
        .filter(|result| !result.passed)
        .map(|result| format!("{}: {}", result.probe, result.seen))
        .collect()
}

/// What passed from the client, and of a variant with a waypoint what went around it.
fn on_all_hops(subject: &Subject<'_>, captured: &Captured) -> (WireEvidence, Option<WireEvidence>) {
    let servers: Vec<Ipv4Addr> = subject.site.servers().map(|pod| pod.address).collect();
    let (client, waypoint) = (subject.site.client.address, subject.site.waypoint.address);
    let canary = subject.canary.as_bytes();
    if subject.blueprint.waypoint.is_none() {
        return (captured.between(client, &servers, canary), None);
    }
    // Whatever goes from the client to a server is seen too, and is not at the expected port.
    let all = [&[waypoint], &servers[..]].concat();
    (
        captured.between(client, &all, canary),
        Some(captured.between(client, &servers, canary)),
    )
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
    let waypoint = subject.site.waypoint.address;
    let canary = subject.canary.as_bytes();
    let (wire, around) = on_all_hops(subject, captured);
    let hops = Hops {
        around,
        behind: behind.map(|captured| captured.between(waypoint, &servers, canary)),
        wire: &wire,
    };
    let probes = subject
        .blueprint
        .probes
        .iter()
        .zip(results)
        .filter_map(|(probe, result)| {
            result.or_else(|| match probe {
                Probe::CallsOnTheWire { readable } => {
                    Some(calls::on_the_wire(subject, captured, *readable))
                }
                _ => wire_probe(subject, probe, &hops),
            })
        })
        .collect();
    Evidence {
        variant: subject.variant.clone(),
        round,
        probes,
        wire,
        features,
        start: Start {
            served_ns: subject.served_ns,
            pushed_ns: subject.pushed_ns(),
        },
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
        Probe::Knows {
            services,
            endpoints,
        } => options::knows(subject, *services, *endpoints),
        Probe::SendsSpans => options::sends_spans(subject),
        Probe::LogsRequests { lines } => options::logs_requests(subject, lines),
        Probe::AroundTheWaypoint { identity, server } => {
            around_the_waypoint(subject, identities, identity, server)
        }
        Probe::CallsInThePath {
            port,
            refuses_outsiders,
        } => calls::in_the_path(subject, *port, *refuses_outsiders),
        Probe::OnTheWire { .. }
        | Probe::CallsOnTheWire { .. }
        | Probe::Canary { .. }
        | Probe::Handshake
        | Probe::BehindTheWaypoint { .. } => return None,
    })
}

impl Subject<'_> {
    /// The longest that a proxy took to hold what it is told of services; `None` if none is, or one does not hold it.
    fn pushed_ns(&self) -> Option<u64> {
        let told = self.control.iter().filter_map(Control::discovery);
        let took = told.map(|proxy| match proxy.pushed() {
            Pushed::Held(took) => u64::try_from(took.as_nanos()).ok(),
            Pushed::Underway { .. } | Pushed::Refused(_) => None,
        });
        took.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// What clients call.
    pub(crate) fn service(&self) -> (Ipv4Addr, u16) {
        (self.site.called, self.site.app_port)
    }

    /// The application in the first replica's pod, for who goes past the client's proxy.
    pub(crate) fn server_pod(&self) -> (Ipv4Addr, u16) {
        (self.site.server.address, self.site.app_port)
    }
}

impl Identities<'_> {
    pub(crate) fn authority_root(&self) -> String {
        self.authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .root_pem()
    }
}

/// Refusal must be heard: silence proves nothing.
pub(crate) fn refused(name: &str, who: &str, heard: &Heard) -> ProbeResult {
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

pub(crate) fn through_the_path(subject: &Subject<'_>, request: &Ask<'_>) -> Heard {
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
pub(crate) fn connections_at(pod: &NetNs, port: u16) -> io::Result<u32> {
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
