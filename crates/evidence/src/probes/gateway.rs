//! Clients outside the mesh enter through the gateway, by HTTP and HTTPS, and pass the proxies behind it.

use meshtax_dataplane::{GATEWAY_PORT, GATEWAY_TLS_PORT};
use meshtax_model::experiment::Ingress;
use meshtax_workload::load_from_outside;

use crate::finding::{Finding, ProbeError};
use crate::held::{Holder, all_hold};
use crate::probes::additional_port::exchange;
use crate::requests::{open_connection, ready, send_canaries};
use crate::subject::{Subject, canaries};

/// The gateway's ports for HTTP and HTTPS.
pub(crate) const PORTS: [u16; 2] = [GATEWAY_PORT, GATEWAY_TLS_PORT];

/// Requests over both ports succeed, and the gateway and the proxies behind it hold connections meanwhile. The ports
/// are those of the mesh's proxies, in the gateway's pod and in the server's.
pub(crate) fn through(
    subject: &Subject<'_>,
    proxy_port: Option<u16>,
    server_port: Option<u16>,
) -> Finding {
    plaintext(subject, proxy_port, server_port)
        .and_then(|seen| over_tls(subject).map(|()| format!("HTTP and HTTPS succeeded; {seen}")))
        .into()
}

fn plaintext(
    subject: &Subject<'_>,
    proxy_port: Option<u16>,
    server_port: Option<u16>,
) -> Result<String, ProbeError> {
    let site = subject.site;
    let gateway = site.gateway.as_ref().ok_or(ProbeError::NoIngress)?;
    let (address, _) = subject.ingress().ok_or(ProbeError::NoIngress)?;
    let outside = subject.deployment.outsider();
    let service = site.entry_point();
    let target = subject.target(service, (address, GATEWAY_PORT));
    // The gateway starts next to the proxies, which may be ready before it.
    ready(subject, outside, &target)?;
    send_canaries(subject, outside, &target)?;
    let at_gateway = subject.at(&gateway.pod);
    let holder = |name, port| Holder {
        name,
        at: vec![at_gateway],
        port,
    };
    let mut holders = vec![holder("the gateway", GATEWAY_PORT)];
    holders.extend(proxy_port.map(|port| holder("the gateway's proxy", port)));
    holders.extend(server_port.map(|port| Holder {
        name: "the server's proxy",
        at: subject.at_all(&service.pods),
        port,
    }));
    let open = open_connection(outside, &target)?;
    let held = all_hold(&holders);
    drop(open);
    held
}

/// A few requests over TLS, the canary in each.
fn over_tls(subject: &Subject<'_>) -> Result<(), ProbeError> {
    let (address, _) = subject.ingress().ok_or(ProbeError::NoIngress)?;
    let spec = load_from_outside(subject.site, address, Ingress::Tls);
    let count = canaries(subject.first().response_bytes);
    exchange(subject.deployment.outsider(), spec, subject.canary, count).map_err(|source| {
        ProbeError::AtService {
            service: "HTTPS".into(),
            source: Box::new(source),
        }
    })
}
