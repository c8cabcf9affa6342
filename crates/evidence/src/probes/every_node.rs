//! A service on several nodes: each node is reached, over its own link, as the level promises.

use std::net::Ipv4Addr;
use std::thread;

use meshtax_agent::Captured;
use meshtax_dataplane::PodNode;
use meshtax_model::evidence::WireEvidence;

use crate::finding::{Finding, ProbeError, dropped};
use crate::http::HttpRequest;
use crate::probes::wire::{Captures, canary, handshakes};
use crate::requests::{replica_stats, request};
use crate::subject::Subject;

/// How often requests are sent, until each node was reached.
const TURNS: usize = 25;
/// Concurrent requests on a connection each: a proxy that pools connections has to open more for them.
const AT_ONCE: usize = 8;

/// Sends requests with the canary until replicas on every node have handled some. `None`: they have.
pub(crate) fn not_reached(subject: &Subject<'_>) -> Option<Finding> {
    let unknown = || Finding::failed("a replica does not report how many requests it received");
    let nodes = subject.site.entry_point().server_nodes();
    let Some(before) = requests(subject) else {
        return Some(unknown());
    };
    let mut missing = Vec::new();
    for _ in 0..TURNS {
        if let Err(error) = one_turn(subject, nodes) {
            return Some(Finding::failed(format!("a request: {error}")));
        }
        let Some(now) = requests(subject) else {
            return Some(unknown());
        };
        let reached = |node: &usize| was_reached(subject, *node, &before, &now);
        missing = (0..nodes).filter(|node| !reached(node)).collect();
        if missing.is_empty() {
            return None;
        }
    }
    let missing: Vec<String> = missing.iter().map(|node| (node + 1).to_string()).collect();
    Some(Finding::failed(format!(
        "{} requests reached no replica on server node {}",
        TURNS * turn(nodes),
        missing.join(", ")
    )))
}

/// Requests of a turn: some for each node.
fn turn(nodes: usize) -> usize {
    AT_ONCE.max(2 * nodes)
}

fn one_turn(subject: &Subject<'_>, nodes: usize) -> Result<(), ProbeError> {
    let (client, target, canary) = (subject.client().at, subject.first(), subject.canary);
    let send = move || {
        let with_canary = HttpRequest {
            canary: Some(canary),
            ..target.permitted()
        };
        let outcome = request(client, target.to, &with_canary);
        match outcome.is_ok() {
            true => Ok(()),
            false => Err(ProbeError::Unexpected(outcome)),
        }
    };
    for _ in 0..turn(nodes).div_ceil(AT_ONCE) {
        thread::scope(|scope| {
            let sent: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(send)).collect();
            sent.into_iter().try_for_each(|one| match one.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
    }
    Ok(())
}

/// The requests that each replica has received so far.
fn requests(subject: &Subject<'_>) -> Option<Vec<u64>> {
    let stats = replica_stats(subject)?;
    Some(stats.iter().map(|stats| stats.requests).collect())
}

fn was_reached(subject: &Subject<'_>, node: usize, before: &[u64], now: &[u64]) -> bool {
    let pods = subject.site.entry_point().pods.iter();
    let mut counts = pods.zip(before.iter().zip(now));
    counts.any(|(pod, (then, now))| pod.node.server_index() == node && now > then)
}

/// What passed between each node and the replicas' callers: the clients' side, or the waypoint, at whose link it was
/// captured then.
pub(crate) fn on_their_links(
    subject: &Subject<'_>,
    captures: &Captures,
    readable: bool,
    ports: &[u16],
) -> Finding {
    let site = subject.site;
    let callers: Vec<Ipv4Addr> = match subject.contract.waypoint {
        true => vec![site.waypoint.address],
        false => site.entering_pods().iter().map(|pod| pod.address).collect(),
    };
    let at_waypoint = captures.at_waypoint.as_ref();
    let captured: &Captured = at_waypoint.unwrap_or(&captures.between_nodes);
    let service = site.entry_point();
    let wires = (0..service.server_nodes() as u32).map(|node| {
        let here = service
            .pods
            .iter()
            .filter(|pod| pod.node == PodNode::Server(node));
        let pods: Vec<Ipv4Addr> = here.map(|pod| pod.address).collect();
        captured.between(&callers, &pods, subject.canary.as_bytes())
    });
    judged(&wires.collect::<Vec<_>>(), readable, ports)
}

/// `wires`: of each node, in order.
fn judged(wires: &[WireEvidence], readable: bool, ports: &[u16]) -> Finding {
    let mut seen = Vec::new();
    for (wire, number) in wires.iter().zip(1..) {
        let mut findings = vec![canary(readable, wire)];
        findings.extend(dropped(wire.dropped));
        if !readable {
            findings.push(handshakes(wire));
        }
        if let Some(failed) = findings.iter().find(|finding| !finding.passed) {
            return Finding::failed(format!("node {number}: {}", failed.seen));
        }
        let only_expected = wire.ports.iter().all(|port| ports.contains(port));
        if !only_expected {
            let ports = &wire.ports;
            return Finding::failed(format!("node {number}: ports {ports:?}"));
        }
        let (to_server, to_client) = (wire.bytes_to_server, wire.bytes_to_client);
        seen.push(format!("node {number}: {to_server} + {to_client} bytes"));
    }
    let how = match readable {
        true => "readable",
        false => "TLS 1.3, the canary not readable",
    };
    let all = seen.join(", ");
    Finding::passed(format!("{how}: {all} to server and client"))
}

#[cfg(test)]
mod tests {
    use meshtax_model::evidence::Handshake;

    use super::*;

    fn encrypted() -> WireEvidence {
        WireEvidence {
            bytes_to_server: 100,
            bytes_to_client: 2000,
            ports: vec![8080],
            handshakes: vec![Handshake {
                version: "TLS 1.3".into(),
                cipher: "any".into(),
                key_exchange_group: "any".into(),
            }],
            ..WireEvidence::default()
        }
    }

    #[test]
    fn one_unproven_node_fails_the_probe() {
        let whole = [encrypted(), encrypted()];
        assert!(judged(&whole, false, &[8080]).passed);
        let silent = WireEvidence::default();
        let plaintext = WireEvidence {
            canary_to_server: true,
            canary_to_client: true,
            http_to_server: true,
            http_to_client: true,
            handshakes: Vec::new(),
            ..encrypted()
        };
        let elsewhere = WireEvidence {
            ports: vec![8080, 9999],
            ..encrypted()
        };
        let with_gaps = WireEvidence {
            dropped: 1,
            ..encrypted()
        };
        for (other, expected) in [
            (silent.clone(), "node 2: nothing passed the link"),
            (plaintext.clone(), "node 2: request and response readable"),
            (elsewhere, "node 2: ports [8080, 9999]"),
            (with_gaps, "dropped by the kernel: 1"),
        ] {
            let finding = judged(&[encrypted(), other], false, &[8080]);
            assert!(
                !finding.passed && finding.seen.contains(expected),
                "{finding:?}"
            );
        }
        assert!(judged(&[plaintext.clone(), plaintext.clone()], true, &[8080]).passed);
        for other in [silent, encrypted()] {
            assert!(!judged(&[plaintext.clone(), other], true, &[8080]).passed);
        }
    }
}
