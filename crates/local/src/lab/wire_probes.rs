//! What the captured packets prove.

use meshtax_dataplane::Probe;
use meshtax_model::evidence::{ProbeResult, WireEvidence, probe as names};

use super::probes::{Subject, canaries, result};

/// What was captured, by hop.
pub(crate) struct Hops<'a> {
    /// Between the client and whom its proxy talks to.
    pub(crate) wire: &'a WireEvidence,
    /// Of a variant with a waypoint: between the client and the servers, past it.
    pub(crate) around: Option<WireEvidence>,
    /// Between the waypoint and the servers.
    pub(crate) behind: Option<WireEvidence>,
}

pub(crate) fn wire_probe(
    subject: &Subject<'_>,
    probe: &Probe,
    hops: &Hops<'_>,
) -> Option<ProbeResult> {
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
pub(crate) fn on_the_wire(
    subject: &Subject<'_>,
    ports: &[u16],
    wire: &WireEvidence,
) -> ProbeResult {
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

pub(crate) fn canary(expected_readable: bool, wire: &WireEvidence) -> ProbeResult {
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

pub(crate) fn tls_on_the_wire(wire: &WireEvidence) -> ProbeResult {
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
