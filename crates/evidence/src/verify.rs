//! Verifies a variant: runs its probes, then judges the captures.

use std::io;

use meshtax_dataplane::Probe;
use meshtax_model::evidence::{Evidence, FailedProbe, Features, ProbeResult, Start};
use meshtax_model::trial::ComponentRole;

use crate::deployment::{Acknowledged, Issuer};
use crate::features::features;
use crate::finding::Finding;
use crate::probes::wire::{self, Captures, ClientHop, Hops};
use crate::probes::{
    additional_port, calls, client_identity, direct, every_node, gateway, options, path, runtime,
};
use crate::subject::Subject;

/// The results before the captures are judged.
#[derive(Debug)]
pub struct Active {
    /// For each probe in order; `None`: its result is in the captures.
    results: Vec<Option<Finding>>,
    features: Option<Features>,
}

/// Runs all probes that send something.
#[must_use]
pub fn run_active(subject: &Subject<'_>) -> Active {
    let probes = subject.contract.probes.iter();
    Active {
        results: probes.map(|probe| active_probe(subject, probe)).collect(),
        features: features(subject),
    }
}

/// Judges the captures, and returns all results in the contract's order.
#[must_use]
pub fn conclude(
    subject: &Subject<'_>,
    round: u32,
    active: Active,
    captures: &Captures,
) -> Evidence {
    let hops = Hops::of(subject, captures);
    let probes = subject.contract.probes.iter().zip(active.results);
    let results = probes.filter_map(|(probe, result)| {
        let finding = result.or_else(|| captured_probe(subject, probe, captures, &hops))?;
        Some(finding.of(probe.id()))
    });
    Evidence {
        variant: subject.variant.clone(),
        round,
        probes: results.collect(),
        wire: hops.wire.clone(),
        features: active.features,
        start: Start {
            served_ns: subject.served_ns,
            pushed_ns: pushed_ns(subject),
        },
    }
}

/// Runs the probes that are repeated at the end of a round.
#[must_use]
pub fn run_again(subject: &Subject<'_>) -> Active {
    let probes = repeated(subject);
    Active {
        results: probes.map(|probe| active_probe(subject, probe)).collect(),
        features: None,
    }
}

/// The probes of [`run_again`] that failed, with those of the wire since; all of those, if nothing could be captured.
#[must_use]
pub fn failed_again(
    subject: &Subject<'_>,
    active: Active,
    captures: Result<&Captures, &io::Error>,
) -> Vec<FailedProbe> {
    let captures = captures.map(|captures| (captures, Hops::of(subject, captures)));
    let wire = |probe: &Probe| match &captures {
        Ok((captures, hops)) => captured_probe(subject, probe, captures, hops),
        Err(error) => Some(Finding::failed(format!(
            "no packets could be captured: {error}"
        ))),
    };
    let judged = repeated(subject).zip(active.results);
    let results = judged.filter_map(|(probe, result)| {
        let finding = result.or_else(|| wire(probe))?;
        Some(finding.of(probe.id()))
    });
    let failed = results.filter(|result: &ProbeResult| !result.passed);
    failed
        .map(|result| FailedProbe {
            probe: result.probe,
            seen: result.seen,
        })
        .collect()
}

fn repeated<'a>(subject: &Subject<'a>) -> impl Iterator<Item = &'a Probe> {
    subject
        .contract
        .probes
        .iter()
        .filter(|probe| is_repeated(probe))
}

/// Whether a probe is repeated at the end of a round. Not those that need new connections between the proxies, which
/// keep theirs, nor those that are read from what a proxy reports of new ones, nor those of additional ports: the first
/// port has the same configuration.
fn is_repeated(probe: &Probe) -> bool {
    !matches!(
        probe,
        Probe::Handshake
            // The client's identity is in the proxy's log, which has grown since.
            | Probe::ClientIdentity { .. }
            | Probe::BehindTheWaypoint { .. }
            | Probe::EveryNode { .. }
            // A gateway keeps its connections as well.
            | Probe::BeforeTheGateway
            | Probe::BehindTheGateway { .. }
            // Callers keep their connections.
            | Probe::CallsOnTheWire { .. }
            | Probe::Carries { .. }
            // A proxy acknowledges a resource once.
            | Probe::ExtraEndpoints { .. }
            // Spans are batched for seconds before they are sent.
            | Probe::SendsSpans
            | Probe::AroundTheWaypoint { .. }
    )
}

/// The sides of the path that should have a proxy and have none.
#[must_use]
pub(crate) fn missing_proxies(subject: &Subject<'_>) -> Vec<ComponentRole> {
    if subject.contract.proxy_port.is_none() {
        return Vec::new();
    }
    let has = |role| subject.deployment.has(role);
    // A gateway can be the mesh's proxy itself.
    let gateway = subject.site.has_outside_clients_only() && has(ComponentRole::Gateway);
    let client = has(ComponentRole::ClientProxy) || gateway;
    let sides = [
        (ComponentRole::ClientProxy, client),
        (ComponentRole::ServerProxy, has(ComponentRole::ServerProxy)),
    ];
    let missing = sides.into_iter().filter(|(_, is_there)| !is_there);
    missing.map(|(role, _)| role).collect()
}

/// The longest that a proxy took to acknowledge its extra endpoints; `None`: there are none, or some are outstanding.
fn pushed_ns(subject: &Subject<'_>) -> Option<u64> {
    let proxies = subject.deployment.extra_endpoints().into_iter();
    let took = proxies.map(|proxy| match proxy {
        Acknowledged::All(took_ns) => Some(took_ns),
        Acknowledged::Some { .. } | Acknowledged::Rejected(_) => None,
    });
    took.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

fn active_probe(subject: &Subject<'_>, probe: &Probe) -> Option<Finding> {
    Some(match probe {
        Probe::Permitted => path::permitted(subject),
        Probe::InThePath {
            client_port,
            server_port,
        } => path::in_the_path(subject, *client_port, *server_port),
        Probe::ClientIdentity { expected, from } => {
            client_identity::client_identity(subject, expected, from)
        }
        Probe::ServerIdentity { expected, client } => {
            direct::server_identity(subject, expected, client)
        }
        Probe::ForbiddenIdentity { identity } => {
            direct::refused_identity(subject, Issuer::Mesh, identity, identity)
        }
        Probe::ForeignCa { identity } => {
            let who = "the permitted identity from another authority";
            direct::refused_identity(subject, Issuer::Foreign, identity, who)
        }
        Probe::ForbiddenMethod { method } => path::refused_method(subject, method),
        Probe::ForbiddenPath { path } => path::refused_path(subject, path),
        Probe::PlaintextOutsider => path::refused_outsider(subject),
        Probe::Carries { port } => additional_port::responds(subject, port),
        Probe::ExtraEndpoints {
            services,
            endpoints,
        } => options::extra_endpoints(subject, *services, *endpoints),
        Probe::SendsSpans => options::tracing(subject),
        Probe::LogsRequests { lines } => options::access_log(subject, lines),
        Probe::KeepsAllStats { counter } => options::all_stats(subject, counter),
        Probe::RuntimeSwitches {
            switches,
            admin_port,
        } => runtime::switches(subject, switches, *admin_port),
        Probe::AroundTheWaypoint { identity, server } => {
            direct::waypoint_bypass(subject, identity, server)
        }
        Probe::CallsInThePath {
            port,
            refuses_outsiders,
        } => calls::in_the_path(subject, *port, *refuses_outsiders),
        Probe::CallIdentities { services } => direct::call_identities(subject, services),
        Probe::ByTheGateway {
            proxy_port,
            server_port,
        } => gateway::through(subject, *proxy_port, *server_port),
        // Where all nodes are reached, the captures have the result.
        Probe::EveryNode { .. } => return every_node::not_reached(subject),
        Probe::OnTheWire { .. }
        | Probe::BeforeTheGateway
        | Probe::BehindTheGateway { .. }
        | Probe::CallsOnTheWire { .. }
        | Probe::Canary { .. }
        | Probe::Handshake
        | Probe::BehindTheWaypoint { .. } => return None,
    })
}

fn captured_probe(
    subject: &Subject<'_>,
    probe: &Probe,
    captures: &Captures,
    hops: &Hops<'_>,
) -> Option<Finding> {
    let between_nodes = &captures.between_nodes;
    Some(match probe {
        Probe::OnTheWire { ports } => hops.of_each_client(|hop| hop.on_the_wire(subject, ports)),
        Probe::Canary { readable } => hops.of_each_client(|hop| hop.canary(*readable)),
        Probe::Handshake => hops.of_each_client(ClientHop::handshakes),
        Probe::BehindTheWaypoint { port } => wire::behind_the_waypoint(*port, hops.behind.as_ref()),
        Probe::BeforeTheGateway => {
            let captured = captures.at_gateway.as_ref();
            wire::before_the_gateway(subject, captured, gateway::PORTS)
        }
        Probe::BehindTheGateway { readable, ports } => {
            wire::behind_the_gateway(subject, between_nodes, *readable, ports)
        }
        Probe::CallsOnTheWire { readable } => calls::on_the_wire(subject, between_nodes, *readable),
        Probe::EveryNode { readable, ports } => {
            every_node::on_their_links(subject, captures, *readable, ports)
        }
        _ => return None,
    })
}
