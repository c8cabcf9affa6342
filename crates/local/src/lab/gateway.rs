//! The evidence of a gateway: clients outside the mesh come in through it, over TLS or not, and what goes on from there
//! is what the level promises.

use std::net::Ipv4Addr;

use meshtax_dataplane::{GATEWAY_PORT, GATEWAY_TLS_PORT};
use meshtax_model::evidence::{ProbeResult, probe as names};
use meshtax_model::experiment::Ingress;

use super::apps;
use super::capture::Captured;
use super::carries;
use super::netns::NetNs;
use super::path::{Asked, held_by, holds, ready, send_canaries, through_all};
use super::probes::{Subject, canaries, result};
use super::wire_probes::{canary, on_the_wire, tls_on_the_wire};

/// The gateway's port for what clients speak with it.
pub(crate) fn port(ingress: Ingress) -> u16 {
    match ingress {
        Ingress::Plaintext => GATEWAY_PORT,
        Ingress::Tls => GATEWAY_TLS_PORT,
    }
}

/// A client outside the mesh is answered over both ports, and the gateway and the proxies behind it hold connections
/// meanwhile. The ports are those of the mesh's proxies, in the gateway's pod and in the server's.
pub(crate) fn by_the_gateway(
    subject: &mut Subject<'_>,
    (proxy_port, server_port): (Option<u16>, Option<u16>),
) -> ProbeResult {
    let name = names::BY_THE_GATEWAY;
    let Some(gateway) = subject.gateway else {
        return result(name, false, "there is no gateway");
    };
    match looked_at(subject, gateway, (proxy_port, server_port)) {
        Ok(seen) => result(name, true, seen),
        Err(seen) => result(name, false, seen),
    }
}

fn looked_at(
    subject: &mut Subject<'_>,
    gateway: &NetNs,
    (proxy_port, server_port): (Option<u16>, Option<u16>),
) -> Result<String, String> {
    let outside = subject.outsider;
    let entered_at = subject
        .blueprint
        .entered_at
        .ok_or("nobody knows where to call the gateway")?;
    let in_clear = Asked {
        host: &subject.site.server.service_account,
        to: (entered_at, port(Ingress::Plaintext)),
        response_bytes: subject.response_bytes,
    };
    // It starts beside the proxies, by which others may have come in already.
    ready(subject, outside, &in_clear)?;
    send_canaries(subject, outside, &in_clear)?;
    let held = held_by(outside, &in_clear)?;
    let mut ends = vec![("the gateway", vec![gateway], GATEWAY_PORT)];
    ends.extend(proxy_port.map(|port| ("the gateway's proxy", vec![gateway], port)));
    ends.extend(server_port.map(|port| ("the server's proxy", subject.servers.clone(), port)));
    let counted = holds(ends);
    drop(held);
    let seen = through_all(&counted?)?;
    over_tls(subject, entered_at)?;
    Ok(format!("HTTP and HTTPS answered; {seen}"))
}

/// A few requests over TLS, the canary in each.
fn over_tls(subject: &Subject<'_>, entered_at: Ipv4Addr) -> Result<(), String> {
    let spec = apps::load_from_outside(subject.site, entered_at, Ingress::Tls);
    carries::exchange(
        subject.outsider,
        spec,
        subject.canary,
        canaries(subject.response_bytes),
    )
    .map_err(|why| format!("HTTPS: {why}"))
}

/// Between the client outside and the gateway, as it was captured at the gateway's pod.
pub(crate) fn before_the_gateway(
    subject: &Subject<'_>,
    captured: Option<&Captured>,
) -> ProbeResult {
    let name = names::BEFORE_THE_GATEWAY;
    let (Some(captured), Some(gateway)) = (captured, &subject.site.gateway) else {
        return result(name, false, "no packets could be captured at the gateway");
    };
    let gateway = gateway.pod.address;
    let at = |ingress| {
        let captured = captured.at((gateway, port(ingress)));
        captured.between(
            subject.outsider_address,
            &[gateway],
            subject.canary.as_bytes(),
        )
    };
    let (in_clear, encrypted) = (at(Ingress::Plaintext), at(Ingress::Tls));
    if captured.dropped > 0 {
        let seen = format!(
            "the kernel dropped {} packets of the capture",
            captured.dropped
        );
        return result(name, false, seen);
    }
    let readable = canary(true, &in_clear);
    let (hidden, tls) = (canary(false, &encrypted), tls_on_the_wire(&encrypted));
    let seen = format!(
        "port {GATEWAY_PORT}: {}; port {GATEWAY_TLS_PORT}: {}, {}",
        readable.seen, hidden.seen, tls.seen
    );
    result(name, readable.passed && hidden.passed && tls.passed, seen)
}

/// Between the gateway and the servers, as it was captured on the link between the nodes.
pub(crate) fn behind_the_gateway(
    subject: &Subject<'_>,
    captured: &Captured,
    readable: bool,
    ports: &[u16],
) -> ProbeResult {
    let name = names::BEHIND_THE_GATEWAY;
    let Some(gateway) = &subject.site.gateway else {
        return result(name, false, "there is no gateway");
    };
    let servers: Vec<Ipv4Addr> = subject.site.servers().map(|pod| pod.address).collect();
    let wire = captured.between(gateway.pod.address, &servers, subject.canary.as_bytes());
    let mut parts = vec![on_the_wire(subject, ports, &wire), canary(readable, &wire)];
    if !readable {
        parts.push(tls_on_the_wire(&wire));
    }
    match parts.iter().find(|part| !part.passed) {
        Some(failed) => result(name, false, failed.seen.clone()),
        None => {
            let seen: Vec<&str> = parts.iter().map(|part| part.seen.as_str()).collect();
            result(name, true, seen.join(", "))
        }
    }
}
