//! What the captured packets between a client and its servers prove.

use std::net::Ipv4Addr;

use meshtax_agent::Captured;
use meshtax_dataplane::Pod;
use meshtax_model::evidence::WireEvidence;

use crate::finding::{Finding, dropped};
use crate::subject::{Subject, canaries};

/// What was captured while the probes ran.
#[derive(Debug, Default)]
pub struct Captures {
    /// On the links between the nodes.
    pub between_nodes: Captured,
    /// On the link of the waypoint's pod; `None`: there is no waypoint, or it could not be captured.
    pub at_waypoint: Option<Captured>,
    /// On the link of the gateway's pod; `None`: there is no gateway, or it could not be captured.
    pub at_gateway: Option<Captured>,
}

/// The captured traffic by hop.
pub(crate) struct Hops<'a> {
    /// Between all clients and the server side that their proxies connect to.
    pub(crate) wire: WireEvidence,
    /// Of each client.
    pub(crate) clients: Vec<ClientHop<'a>>,
    /// Between the waypoint and the servers.
    pub(crate) behind: Option<WireEvidence>,
}

/// The captured traffic of one client.
pub(crate) struct ClientHop<'a> {
    name: &'a str,
    /// Between the client and the server side that its proxy connects to.
    wire: WireEvidence,
    /// With a waypoint: between the client and the servers, past it.
    around: Option<WireEvidence>,
}

impl<'a> Hops<'a> {
    pub(crate) fn of(subject: &Subject<'a>, captures: &Captures) -> Self {
        let site = subject.site;
        let servers = site.entry_point().pod_addresses();
        let waypoint = site.waypoint.address;
        let canary = subject.canary.as_bytes();
        let between_nodes = &captures.between_nodes;
        let at_waypoint = captures.at_waypoint.as_ref();
        let has_waypoint = subject.contract.waypoint;
        // Traffic from a client to a server is included, and is not at the expected port.
        let ends: Vec<Ipv4Addr> = match has_waypoint {
            true => std::iter::once(waypoint).chain(servers.clone()).collect(),
            false => servers.clone(),
        };
        let clients = site.entering_pods();
        let addresses: Vec<Ipv4Addr> = clients.iter().map(|pod| pod.address).collect();
        let of_client = |pod: &'a Pod| ClientHop {
            name: &pod.name,
            wire: between_nodes.between(&[pod.address], &ends, canary),
            around: has_waypoint.then(|| between_nodes.between(&[pod.address], &servers, canary)),
        };
        let behind = at_waypoint.filter(|_| has_waypoint);
        Self {
            wire: between_nodes.between(&addresses, &ends, canary),
            clients: clients.iter().map(of_client).collect(),
            behind: behind.map(|captured| captured.between(&[waypoint], &servers, canary)),
        }
    }

    /// What a check finds in each client's traffic. With several clients, all must pass.
    pub(crate) fn of_each_client(&self, check: impl Fn(&ClientHop<'a>) -> Finding) -> Finding {
        let of_client = |hop: &ClientHop<'a>| (hop.name, check(hop));
        Finding::of_each(self.clients.iter().map(of_client).collect())
    }
}

impl ClientHop<'_> {
    /// Enough frames and bytes in both directions, on the expected ports only, and none past a waypoint.
    pub(crate) fn on_the_wire(&self, subject: &Subject<'_>, ports: &[u16]) -> Finding {
        match &self.around {
            Some(around) if around.connections > 0 => {
                let count = around.connections;
                Finding::failed(format!("{count} connections bypassed the waypoint"))
            }
            _ => enough_on_the_wire(subject, ports, &self.wire),
        }
    }

    /// The canary is readable in both directions, or in neither.
    pub(crate) fn canary(&self, readable: bool) -> Finding {
        canary(readable, &self.wire)
    }

    /// At least one TLS handshake, and all of TLS 1.3.
    pub(crate) fn handshakes(&self) -> Finding {
        handshakes(&self.wire)
    }
}

/// Not vacuous: at least the application's own bytes must have passed, in both directions.
pub(crate) fn enough_on_the_wire(
    subject: &Subject<'_>,
    ports: &[u16],
    wire: &WireEvidence,
) -> Finding {
    let seen = format!(
        "{} + {} frames, {} + {} bytes to server and client, ports {:?}",
        wire.frames_to_server,
        wire.frames_to_client,
        wire.bytes_to_server,
        wire.bytes_to_client,
        wire.ports
    );
    let response_bytes = subject.first().response_bytes;
    let count = canaries(response_bytes);
    let enough = wire.frames_to_server >= count
        && wire.frames_to_client >= count
        && wire.bytes_to_server >= count * subject.canary.len() as u64
        && wire.bytes_to_client >= count * u64::from(response_bytes);
    let only_expected = wire.ports.iter().all(|port| ports.contains(port));
    if let Some(failed) = dropped(wire.dropped) {
        return failed;
    }
    if !enough {
        return Finding::failed(format!("too little to prove anything: {seen}"));
    }
    if !only_expected {
        let expected: Vec<String> = ports.iter().map(u16::to_string).collect();
        let expected = expected.join(", ");
        return Finding::failed(format!("expected port {expected} only: {seen}"));
    }
    Finding::passed(seen)
}

/// The hop between the waypoint and the servers, which does not leave the waypoint's node.
pub(crate) fn behind_the_waypoint(port: u16, wire: Option<&WireEvidence>) -> Finding {
    let Some(wire) = wire else {
        return Finding::failed("no packets could be captured at the waypoint");
    };
    let tls = handshakes(wire);
    let encrypted = Finding::all(&[canary(false, wire), tls.clone()]);
    if !encrypted.passed {
        return encrypted;
    }
    let seen = format!(
        "{} + {} bytes, ports {:?}, {}",
        wire.bytes_to_server, wire.bytes_to_client, wire.ports, tls.seen
    );
    Finding::new(wire.ports == [port] && wire.dropped == 0, seen)
}

/// The canary is readable in both directions, or in neither.
pub(crate) fn canary(expected_readable: bool, wire: &WireEvidence) -> Finding {
    let readable = match (wire.canary_to_server, wire.canary_to_client) {
        (false, false) => "not readable on the wire",
        (true, false) => "request readable on the wire",
        (false, true) => "response readable on the wire",
        (true, true) => "request and response readable on the wire",
    };
    if expected_readable {
        return Finding::new(wire.canary_to_server && wire.canary_to_client, readable);
    }
    let plaintext = match (wire.http_to_server, wire.http_to_client) {
        (false, false) => "",
        (true, false) => "; plain HTTP left the client's pod: its traffic bypasses its proxy",
        (false, true) => "; plain HTTP left the server's pod: traffic to it bypasses its proxy",
        (true, true) => {
            "; plain HTTP in both directions: the traffic is not encrypted, or bypasses both proxies"
        }
    };
    // Absence of a canary from an empty capture proves nothing.
    let something = wire.bytes_to_server > 0 && wire.bytes_to_client > 0;
    if !something && plaintext.is_empty() {
        return Finding::failed("nothing passed the link, which proves nothing");
    }
    let hidden = !wire.canary_to_server && !wire.canary_to_client && plaintext.is_empty();
    match dropped(wire.dropped) {
        Some(failed) if hidden => failed,
        _ => Finding::new(hidden, format!("{readable}{plaintext}")),
    }
}

/// At least one TLS handshake, and all of TLS 1.3.
pub(crate) fn handshakes(wire: &WireEvidence) -> Finding {
    let handshakes = &wire.handshakes;
    if handshakes.is_empty() {
        return Finding::failed("no ServerHello between the pods");
    }
    let seen: Vec<String> = handshakes
        .iter()
        .map(|h| format!("{}, {}, {}", h.version, h.cipher, h.key_exchange_group))
        .collect();
    let all = handshakes.iter().all(|h| h.version == TLS_1_3);
    Finding::new(all, seen.join("; "))
}

/// As [`meshtax_model::evidence::Handshake`] names it.
pub(crate) const TLS_1_3: &str = "TLS 1.3";

/// One hop: readable or TLS 1.3 with the canary hidden.
pub(crate) fn readable_or_encrypted(readable: bool, wire: &WireEvidence) -> Finding {
    match readable {
        true => canary(true, wire),
        false => Finding::all(&[canary(false, wire), handshakes(wire)]),
    }
}

/// Between a client outside the mesh and the gateway: plaintext at the port for HTTP, TLS at that for HTTPS.
pub(crate) fn before_the_gateway(
    subject: &Subject<'_>,
    captured: Option<&Captured>,
    [plaintext_port, tls_port]: [u16; 2],
) -> Finding {
    let (Some(captured), Some(gateway)) = (captured, &subject.site.gateway) else {
        return Finding::failed("no packets could be captured at the gateway");
    };
    if let Some(failed) = dropped(captured.dropped) {
        return failed;
    }
    let gateway = gateway.pod.address;
    let client = subject.deployment.outsider_address();
    let at = |port| {
        let captured = captured.at((gateway, port));
        captured.between(&[client], &[gateway], subject.canary.as_bytes())
    };
    let plaintext = canary(true, &at(plaintext_port));
    let encrypted = at(tls_port);
    let (hidden, tls) = (canary(false, &encrypted), handshakes(&encrypted));
    let seen = format!(
        "port {plaintext_port}: {}; port {tls_port}: {}, {}",
        plaintext.seen, hidden.seen, tls.seen
    );
    Finding::new(plaintext.passed && hidden.passed && tls.passed, seen)
}

/// Between the gateway and the servers, on the links between the nodes.
pub(crate) fn behind_the_gateway(
    subject: &Subject<'_>,
    captured: &Captured,
    readable: bool,
    ports: &[u16],
) -> Finding {
    let Some(gateway) = &subject.site.gateway else {
        return Finding::failed("there is no gateway");
    };
    let servers = subject.site.entry_point().pod_addresses();
    let wire = captured.between(&[gateway.pod.address], &servers, subject.canary.as_bytes());
    Finding::all(&[
        enough_on_the_wire(subject, ports, &wire),
        readable_or_encrypted(readable, &wire),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(dropped: u64, readable: bool) -> WireEvidence {
        WireEvidence {
            bytes_to_server: 1000,
            bytes_to_client: 1000,
            canary_to_server: readable,
            canary_to_client: readable,
            dropped,
            ..WireEvidence::default()
        }
    }

    #[test]
    fn canary_is_not_hidden_by_a_capture_that_lost_packets() {
        assert!(canary(false, &wire(0, false)).passed);
        let lost = canary(false, &wire(3, false));
        assert!(!lost.passed && lost.seen.contains('3'), "{lost:?}");
        let readable = canary(false, &wire(3, true));
        assert!(readable.seen.contains("readable"), "{readable:?}");
        assert!(canary(true, &wire(3, true)).passed);
    }
}
