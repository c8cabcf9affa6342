//! The evidence: is a variant what its name says? Every probe is run against real sockets, and what
//! was seen is kept in words.

use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use meshtax_app::Echo;
use meshtax_control_plane::{Pushed, SharedAuthority};
use meshtax_dataplane::{ALLOWED_PATH, Blueprint, ECHO_PATH, GATEWAY_PORT, Probe, Site};
use meshtax_model::evidence::{
    Evidence, Features, ProbeResult, Start, WireEvidence, probe as names,
};
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::ComponentRole;

use super::calls::{self, Behind};
use super::capture::{Captured, OfPods};
use super::carries;
use super::client_identity::client_identity;
use super::component::Component;
use super::control::Control;
use super::every_node;
use super::features::features;
use super::gateway;
use super::http::{Ask, Heard, ask, connect};
use super::netns::NetNs;
use super::options;
use super::past_the_proxy::{around_the_waypoint, direct, server_identity};
use super::path::{Asked, in_the_path, permitted, refused_by_each, through_the_path};
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
    /// From where the probes' requests come.
    pub(crate) client: &'a NetNs,
    /// The pod from which they come into the mesh: the client's, or the gateway's if that is the only way in.
    pub(crate) caller: &'a NetNs,
    /// The gateway's, if there is one.
    pub(crate) gateway: Option<&'a NetNs>,
    /// All replicas of the service.
    pub(crate) servers: Vec<&'a NetNs>,
    /// All other services.
    pub(crate) behind: Vec<Behind<'a>>,
    /// What serves each of the servers' nodes.
    pub(crate) server_nodes: Vec<&'a NetNs>,
    pub(crate) waypoint: &'a NetNs,
    /// A pod without a mesh.
    pub(crate) outsider: &'a NetNs,
    pub(crate) outsider_address: Ipv4Addr,
    pub(crate) components: &'a mut [Component],
    /// What meshtax serves to the proxies.
    pub(crate) control: &'a [Control],
    pub(crate) response_bytes: u32,
    /// From the start of its first process to the first request that was answered.
    pub(crate) served_ns: Option<u64>,
    /// It has until then to answer; whoever asks first waits.
    pub(crate) ready_until: Instant,
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
            | Probe::EveryNode { .. }
            // A gateway keeps its connections as well, and its clients are not listened to again.
            | Probe::BeforeTheGateway
            | Probe::BehindTheGateway { .. }
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
    let (client, waypoint) = (subject.site.caller().address, subject.site.waypoint.address);
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
    of_pods: &OfPods<Captured>,
) -> Evidence {
    let Active { results, features } = active;
    let servers: Vec<Ipv4Addr> = subject.site.servers().map(|pod| pod.address).collect();
    let waypoint = subject.site.waypoint.address;
    let canary = subject.canary.as_bytes();
    let (wire, around) = on_all_hops(subject, captured);
    let hops = Hops {
        around,
        behind: of_pods
            .waypoint
            .as_ref()
            .map(|captured| captured.between(waypoint, &servers, canary)),
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
                Probe::EveryNode { readable, ports } => {
                    let captured = of_pods.waypoint.as_ref().unwrap_or(captured);
                    let seen = every_node::on_their_links(subject, captured, *readable, ports);
                    Some(seen)
                }
                Probe::BeforeTheGateway => {
                    let captured = of_pods.gateway.as_ref();
                    Some(gateway::before_the_gateway(subject, captured))
                }
                Probe::BehindTheGateway { readable, ports } => Some(gateway::behind_the_gateway(
                    subject, captured, *readable, ports,
                )),
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
            let request = Ask {
                method,
                ..Ask::get(ALLOWED_PATH)
            };
            refused_by_each(subject, names::FORBIDDEN_METHOD, method, &request)
        }
        Probe::ForbiddenPath { path } => {
            refused_by_each(subject, names::FORBIDDEN_PATH, path, &Ask::get(path))
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
        Probe::ByTheGateway {
            proxy_port,
            server_port,
        } => gateway::by_the_gateway(subject, (*proxy_port, *server_port)),
        // What has passed then is looked at when the capture is read.
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

impl<'a> Subject<'a> {
    /// All services that clients call, the first in front: or the gateway, if that is the only way in.
    pub(crate) fn services(&self) -> Vec<Asked<'a>> {
        let (site, response_bytes) = (self.site, self.response_bytes);
        let first = Asked {
            host: &site.server.service_account,
            to: self.service(),
            response_bytes,
        };
        let others = self.behind.iter().filter(|behind| behind.service.clients);
        let others = others.map(|behind| Asked {
            host: &behind.service.name,
            to: (behind.service.called, site.app_port),
            response_bytes: behind.response_bytes,
        });
        std::iter::once(first).chain(others).collect()
    }

    /// The service of this name, if it is not the first that clients call.
    pub(crate) fn further(&self, name: &str) -> Option<&Behind<'a>> {
        self.behind
            .iter()
            .find(|behind| behind.service.name == name)
    }

    /// The longest that a proxy took to hold what it is told of services; `None` if none is, or one does not hold it.
    fn pushed_ns(&self) -> Option<u64> {
        let told = self.control.iter().filter_map(Control::discovery);
        let took = told.map(|proxy| match proxy.pushed() {
            Pushed::Held(took) => u64::try_from(took.as_nanos()).ok(),
            Pushed::Underway { .. } | Pushed::Refused(_) => None,
        });
        took.collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    /// What clients call first: the service, or the gateway if that is the only way in.
    pub(crate) fn service(&self) -> (Ipv4Addr, u16) {
        match self.blueprint.entered_at {
            Some(entered_at) if self.site.has_outside_clients_only() => (entered_at, GATEWAY_PORT),
            _ => (self.site.called, self.site.app_port),
        }
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

/// A data plane without a process cannot answer, whatever else the probes met: the thing to name.
pub(crate) fn absent_proxy(subject: &Subject<'_>) -> Option<&'static str> {
    let runs = |role| subject.components.iter().any(|c| c.role == role);
    let needed = subject.blueprint.proxy_port.is_some();
    // A gateway can be the mesh's proxy itself.
    let near = runs(ComponentRole::ClientProxy)
        || (subject.site.has_outside_clients_only() && runs(ComponentRole::Gateway));
    let absent = match (near, runs(ComponentRole::ServerProxy)) {
        (true, true) => None,
        (false, false) => Some("no proxy was started"),
        (false, true) => Some("no proxy was started in the client's pod"),
        (true, false) => Some("no proxy was started in the server's pod"),
    };
    absent.filter(|_| needed)
}
