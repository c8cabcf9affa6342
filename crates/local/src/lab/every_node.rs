//! The evidence of a service on several nodes: each of them is reached, over its own link, as the level promises.

use std::net::Ipv4Addr;
use std::thread;

use meshtax_dataplane::ALLOWED_PATH;
use meshtax_model::evidence::{ProbeResult, WireEvidence, probe as names};

use super::capture::Captured;
use super::features::told;
use super::http::Ask;
use super::probes::{Subject, one_request, result};
use super::wire_probes::{canary, tls_on_the_wire};

/// So many times requests are sent, until each node was reached.
const TURNS: usize = 25;
/// Requests at the same time, on a connection each: who keeps connections has to open further ones for them.
const AT_ONCE: usize = 8;

/// Sends requests with the canary until replicas on every node have answered some. `None`: they have.
pub(crate) fn not_reached(subject: &Subject<'_>) -> Option<ProbeResult> {
    let failed = |seen: String| Some(result(names::EVERY_NODE, false, seen));
    let Some(before) = requests(subject) else {
        return failed("a replica does not say how many requests it got".into());
    };
    let mut missing = Vec::new();
    for _ in 0..TURNS {
        if let Err(heard) = one_turn(subject) {
            return failed(format!("a request: {heard}"));
        }
        let Some(now) = requests(subject) else {
            return failed("a replica does not say how many requests it got".into());
        };
        let all = 0..subject.server_nodes.len();
        missing = all
            .filter(|node| !was_asked(subject, *node, &before, &now))
            .collect();
        if missing.is_empty() {
            return None;
        }
    }
    let missing: Vec<String> = missing.iter().map(|node| (node + 1).to_string()).collect();
    failed(format!(
        "{} requests reached no replica on the servers' node {}",
        TURNS * turn(subject),
        missing.join(", ")
    ))
}

/// Requests of a turn: some for each node.
fn turn(subject: &Subject<'_>) -> usize {
    AT_ONCE.max(2 * subject.server_nodes.len())
}

fn one_turn(subject: &Subject<'_>) -> Result<(), String> {
    let (client, service, canary) = (subject.client, subject.service(), subject.canary);
    let ask = move || {
        let request = Ask {
            canary: Some(canary),
            ..Ask::get(ALLOWED_PATH)
        };
        let heard = one_request(client, service, &request);
        match heard.is_ok() {
            true => Ok(()),
            false => Err(heard.describe()),
        }
    };
    let panicked = |_| Err("its thread panicked".to_owned());
    for _ in 0..turn(subject).div_ceil(AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(ask)).collect();
            let mut heard = asked
                .into_iter()
                .map(|one| one.join().unwrap_or_else(panicked));
            heard.try_for_each(|heard| heard)
        })?;
    }
    Ok(())
}

/// That each replica has got so far.
fn requests(subject: &Subject<'_>) -> Option<Vec<u64>> {
    Some(told(subject)?.iter().map(|stats| stats.requests).collect())
}

fn was_asked(subject: &Subject<'_>, node: usize, before: &[u64], now: &[u64]) -> bool {
    let mut replicas = before.iter().zip(now).enumerate();
    replicas.any(|(replica, (then, now))| subject.site.node_of(replica) == node && now > then)
}

/// What passed between each node and whoever calls the replicas: the client's side, or the waypoint, at whose link it
/// was captured then.
pub(crate) fn on_their_links(
    subject: &Subject<'_>,
    captured: &Captured,
    readable: bool,
    ports: &[u16],
) -> ProbeResult {
    let site = subject.site;
    let caller = match subject.blueprint.waypoint {
        Some(_) => site.waypoint.address,
        None => site.caller().address,
    };
    let wires = (0..subject.server_nodes.len()).map(|node| {
        let pods: Vec<Ipv4Addr> = site.servers_on(node).map(|pod| pod.address).collect();
        captured.between(caller, &pods, subject.canary.as_bytes())
    });
    judged(&wires.collect::<Vec<_>>(), readable, ports)
}

/// `wires`: of each node, in order.
fn judged(wires: &[WireEvidence], readable: bool, ports: &[u16]) -> ProbeResult {
    let mut seen = Vec::new();
    for (wire, number) in wires.iter().zip(1..) {
        let mut parts = vec![canary(readable, wire)];
        if !readable {
            parts.push(tls_on_the_wire(wire));
        }
        if let Some(failed) = parts.iter().find(|part| !part.passed) {
            let seen = format!("node {number}: {}", failed.seen);
            return result(names::EVERY_NODE, false, seen);
        }
        let only_expected = wire.ports.iter().all(|port| ports.contains(port));
        if !only_expected || wire.dropped > 0 {
            let (ports, missed) = (&wire.ports, wire.dropped);
            let seen = format!("node {number}: ports {ports:?}, {missed} packets missed");
            return result(names::EVERY_NODE, false, seen);
        }
        let (to_server, to_client) = (wire.bytes_to_server, wire.bytes_to_client);
        seen.push(format!("node {number}: {to_server} + {to_client} bytes"));
    }
    let how = match readable {
        true => "readable",
        false => "TLS 1.3, the canary not readable",
    };
    let all = seen.join(", ");
    result(
        names::EVERY_NODE,
        true,
        format!("{how}: {all} to server and client"),
    )
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
    fn one_node_that_is_not_as_promised_fails_all() {
        let whole = [encrypted(), encrypted()];
        assert!(judged(&whole, false, &[8080]).passed);
        let silent = WireEvidence::default();
        let in_clear = WireEvidence {
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
        for (other, said) in [
            (silent.clone(), "node 2: nothing passed the link"),
            (in_clear.clone(), "node 2: request and answer readable"),
            (elsewhere, "node 2: ports [8080, 9999]"),
            (with_gaps, "1 packets missed"),
        ] {
            let told = judged(&[encrypted(), other], false, &[8080]);
            assert!(!told.passed && told.seen.contains(said), "{told:?}");
        }
        assert!(judged(&[in_clear.clone(), in_clear.clone()], true, &[8080]).passed);
        for other in [silent, encrypted()] {
            assert!(!judged(&[in_clear.clone(), other], true, &[8080]).passed);
        }
    }
}
