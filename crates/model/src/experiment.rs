//! What is asked: an [`Experiment`] and its factors.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::graph::Graph;

/// The name of a variant, unique in its experiment (`envoy-sidecar-l7`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VariantId(pub String);

/// The name of a load point, unique in its experiment (`steady`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LoadPointId(pub String);

impl fmt::Display for VariantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for LoadPointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a mesh configuration promises to do to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyLevel {
    /// A proxy is in the path and encrypts nothing.
    Plaintext,
    /// Mutual TLS with verified identities, no further policy.
    Mtls,
    /// Mutual TLS and a policy on the peer's identity.
    L4,
    /// Mutual TLS and a policy on the peer's identity, the HTTP method and the path.
    L7,
}

impl fmt::Display for PolicyLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Plaintext => "plaintext",
            Self::Mtls => "mtls",
            Self::L4 => "l4",
            Self::L7 => "l7",
        })
    }
}

/// What a variant is to the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The variant without a mesh. There is exactly one.
    Baseline,
    /// The baseline again, in processes of its own: the A/A control. Exactly one.
    Control,
    /// What is compared with the baselines.
    Candidate,
}

/// A known cost that is added to a variant on purpose, to check the measuring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inject {
    /// The server spins this long for each request before it answers.
    DelayNs(u64),
    /// As [`Inject::DelayNs`], as a share of the baseline's p50 response latency at the
    /// first steady load point, measured before the first round (0.15 is 15 %).
    DelayShareOfP50(f64),
    /// The server waits this long with some answers, at random; the others are as they were.
    DelaySome {
        /// For how long at the least, in nanoseconds: timers wake late.
        delay_ns: u64,
        /// For which share of the requests, 0 to 1.
        share: f64,
    },
    /// The server does this many steps of work for each request: a multiplication and an addition
    /// each, every one waiting for the one before. Its thread's CPU clock counts what they took.
    BurnSteps(u64),
    /// The server holds this much more memory, in bytes, every page of it written.
    HoldBytes(u64),
    /// The server answers no more than this many requests per second.
    CapPerS(f64),
    /// The server keeps this much more memory for each request, in bytes, and never gives it back: a
    /// fault that the checks of validity must see.
    LeakBytes(u64),
}

impl Inject {
    /// What the cost is called: `delay`, `burn`, `memory`, `cap`, `leak`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DelayNs(_) | Self::DelayShareOfP50(_) | Self::DelaySome { .. } => "delay",
            Self::BurnSteps(_) => "burn",
            Self::HoldBytes(_) => "memory",
            Self::CapPerS(_) => "cap",
            Self::LeakBytes(_) => "leak",
        }
    }
}

/// What the proxies of a variant do or hold besides what its level promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// What they know of a cluster besides the services that are measured; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knows: Option<Knows>,
    /// Whether they write a line for each request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub access_log: bool,
    /// Of which share of the requests they send spans to a collector, 0 to 1; `None`: they trace nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<f64>,
}

/// An option by its kind: not every data plane has each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// [`Options::knows`].
    Knows,
    /// [`Knows::changes_per_s`].
    Changes,
    /// [`Options::access_log`].
    AccessLog,
    /// [`Options::tracing`].
    Tracing,
}

impl OptionKind {
    /// The key in a variant of a spec, or in `knows`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Knows => "knows",
            Self::Changes => "changes",
            Self::AccessLog => "access-log",
            Self::Tracing => "tracing",
        }
    }
}

impl Options {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Those that there are.
    pub fn kinds(&self) -> impl Iterator<Item = OptionKind> {
        let knows = self.knows.map(|_| OptionKind::Knows);
        let changes = self.knows.and_then(|knows| knows.changes_per_s);
        let changes = changes.map(|_| OptionKind::Changes);
        let log = self.access_log.then_some(OptionKind::AccessLog);
        let tracing = self.tracing.map(|_| OptionKind::Tracing);
        [knows, changes, log, tracing].into_iter().flatten()
    }
}

/// What a proxy knows of a cluster and is never asked for: services, each with its endpoints, all of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knows {
    /// All of them together.
    pub endpoints: u32,
    /// Of one service; the last one has what is left.
    pub per_service: u32,
    /// While the variant is measured, so many endpoints a second are replaced by others, one at a time; `None`: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<f64>,
}

impl Knows {
    /// Services over which the endpoints are spread.
    #[must_use]
    pub fn services(&self) -> u32 {
        self.endpoints.div_ceil(self.per_service.max(1))
    }

    /// Endpoints of a service, which counts from 0.
    #[must_use]
    pub fn endpoints_of(&self, service: u32) -> u32 {
        let before = service.saturating_mul(self.per_service);
        self.endpoints.saturating_sub(before).min(self.per_service)
    }
}

/// One mesh configuration: a data plane, its policy level and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Unique in the experiment.
    pub id: VariantId,
    /// The data plane's name, as `meshtax dataplanes` lists it (`none`, `envoy-sidecar`).
    pub data_plane: String,
    /// `None` for the data plane `none`.
    pub level: Option<PolicyLevel>,
    /// What it is to the comparison.
    pub role: Role,
    /// A known cost, if one is injected.
    pub inject: Option<Inject>,
    /// What its proxies do or hold besides.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub options: Options,
}

impl Variant {
    /// Whether it is what its data plane and level say, and nothing besides.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.inject.is_none() && self.options.is_empty()
    }
}

/// When requests are intended to be sent in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Equal gaps.
    Constant,
    /// Exponential gaps: independent users.
    Poisson,
}

/// How load is offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "regime", rename_all = "lowercase")]
pub enum Regime {
    /// Open loop below the knee: arrivals do not wait for answers. Measures latency.
    Steady {
        /// Offered rate in requests per second.
        rate_per_s: f64,
        /// How the intended send times are spread.
        arrivals: Arrivals,
    },
    /// Closed loop: every connection sends again as soon as it has its answer. Measures
    /// throughput and CPU per request; its latency is connections / throughput by identity.
    Saturated,
}

/// One offered load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Unique in the experiment.
    pub id: LoadPointId,
    /// Open or closed loop, and how much.
    pub load: Regime,
    /// After so many requests a connection is closed, and a new one made; `None`: connections stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<u32>,
    /// Connections of the generator; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Each connection is a user, with an even part of an open loop's rate and a schedule of its own, who asks for the
    /// pages in their order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_users: bool,
    /// What is spoken.
    #[serde(default)]
    pub protocol: Protocol,
    /// Size of the answer's body in bytes; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
    /// Clients stand outside the mesh and come in through its gateway; `None`: they call from a pod in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,
}

/// What clients outside the mesh speak with its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingress {
    /// HTTP in clear.
    Plaintext,
    /// HTTP over TLS, which ends at the gateway. Clients show no certificate.
    Tls,
}

/// What clients speak with the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, one request on a connection at a time.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge, one request on a connection at a time.
    Http2,
    /// gRPC, unary calls, one on a connection at a time.
    Grpc,
    /// TCP: bytes that are sent back.
    Tcp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC",
            Self::Tcp => "TCP",
        })
    }
}

impl LoadPoint {
    /// Over connections that stay.
    #[must_use]
    pub fn new(id: &str, load: Regime) -> Self {
        Self {
            id: LoadPointId(id.to_owned()),
            load,
            requests_per_connection: None,
            connections: None,
            by_users: false,
            protocol: Protocol::Http1,
            response_bytes: None,
            ingress: None,
        }
    }

    /// Whether this is an open-loop point, whose latency is meaningful.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        matches!(self.load, Regime::Steady { .. })
    }
}

/// What is sent over which connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Size of the answer's body in bytes.
    pub response_bytes: u32,
    /// Keep-alive connections of the generator.
    pub connections: u32,
}

/// The service that clients call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Pods that it stands on, all equal.
    pub replicas: u32,
    /// Nodes over which the pods are dealt out in turn: see [`node_of`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// What clients call.
    pub address: ServiceAddress,
    /// The user's own program in place of meshtax's application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<OwnProgram>,
    /// The services that it calls for each request, and those that they call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Graph>,
}

impl Default for Service {
    /// One pod, called by its own address.
    fn default() -> Self {
        Self {
            replicas: 1,
            nodes: 1,
            address: ServiceAddress::Pod,
            program: None,
            graph: None,
        }
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// On which of the servers' nodes a replica of the service stands, both counted from 0: they are dealt out in turn.
#[must_use]
pub fn node_of(replica: u32, nodes: u32) -> u32 {
    replica % nodes.max(1)
}

/// What clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceAddress {
    /// The address of the one pod there is.
    Pod,
    /// An address of the service's own, as a Kubernetes service's cluster address. A mesh balances
    /// over the replicas; without one, the client's node does, at random for each connection.
    Virtual,
}

/// Ports that proxies, or what serves them, take for themselves in a pod, in whatever data plane: neither
/// the application nor the user's own program may have them. Istio's are 15000 to 15090.
pub const PROXY_PORTS: &[u16] = &[
    4140, 4143, 4190, 4191, 4317, 8086, 15000, 15001, 15006, 15008, 15012, 15020, 15021, 15053,
    15080, 15088,
];

/// A user's own program as the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it listens, on all addresses or on the pod's.
    pub port: u16,
    /// What is asked of it, and must be answered with 200.
    pub path: String,
}

/// Where client and server stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On different nodes: the traffic crosses the link between them. A service can stand on several.
    TwoNodes,
}

/// How often and how long is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Processes and connections are recreated in each; inference clusters on them.
    pub min_rounds: u32,
    /// Blocks in a round.
    pub blocks_per_round: u32,
    /// The measured part of a trial, in nanoseconds.
    pub trial_ns: u64,
    /// A closed loop's trial is over after so many requests, if its time is not over before; `None`: after its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_trial: Option<u64>,
    /// The part before it, left out of every figure, in nanoseconds.
    pub warmup_ns: u64,
    /// The whole run aims to end within this, in nanoseconds; one block is measured in any case.
    pub time_limit_ns: u64,
    /// Stop when the primary intervals are narrower than this half width (0.02 is ±2 %).
    pub precision: Option<f64>,
}

/// The parts of a long trial, in nanoseconds.
const PART_NS: u64 = 5_000_000_000;

/// A trial of fewer parts than this is short, and is told as a whole.
const PARTS_MIN: u64 = 10;

impl Design {
    /// The parts in which the latencies of long trials are told, in nanoseconds, so that one bad moment is no tail;
    /// `None`: trials are short.
    #[must_use]
    pub fn part_ns(&self) -> Option<u64> {
        (self.trial_ns >= PARTS_MIN * PART_NS).then_some(PART_NS)
    }
}

/// What every data plane is given alike, so that equal work is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EqualWork {
    /// Worker threads of each proxy.
    pub workers: u32,
}

/// A question with its factors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The preset's or the spec's name.
    pub name: String,
    /// The published study whose set-up this is, by its name in `meshtax published`: its figures stand beside those that
    /// are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<String>,
    /// The spec of several topologies that this is one of, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Where client and server stand.
    pub placement: Placement,
    /// What is called.
    #[serde(default)]
    pub service: Service,
    /// What is sent.
    pub workload: Workload,
    /// What is given to all alike.
    pub equal_work: EqualWork,
    /// The baseline first, the control second, then the candidates.
    pub variants: Vec<Variant>,
    /// At least one.
    pub load_points: Vec<LoadPoint>,
    /// How often and how long.
    pub design: Design,
}

impl Experiment {
    /// The variant of this name.
    #[must_use]
    pub fn variant(&self, id: &VariantId) -> Option<&Variant> {
        self.variants.iter().find(|v| v.id == *id)
    }

    /// The load point of this name.
    #[must_use]
    pub fn load_point(&self, id: &LoadPointId) -> Option<&LoadPoint> {
        self.load_points.iter().find(|p| p.id == *id)
    }

    /// How long one block takes by its trials' time alone, in nanoseconds: every variant that has an answer, at every load
    /// point.
    #[must_use]
    pub fn block_ns(&self) -> u64 {
        let trial_ns = self.design.trial_ns.saturating_add(self.design.warmup_ns);
        trial_ns.saturating_mul(self.block_trials())
    }

    /// The trials of a block.
    #[must_use]
    pub fn block_trials(&self) -> u64 {
        let points = || self.load_points.iter();
        let of_variant = |variant| points().filter(|p| self.gap(variant, p).is_none()).count();
        self.variants.iter().map(of_variant).sum::<usize>() as u64
    }

    /// Connections of the generator at a load point.
    #[must_use]
    pub fn connections(&self, point: &LoadPoint) -> u32 {
        point.connections.unwrap_or(self.workload.connections)
    }

    /// Whether clients come in through a gateway at some load point.
    #[must_use]
    pub fn has_ingress(&self) -> bool {
        self.load_points.iter().any(|point| point.ingress.is_some())
    }

    /// Why this variant has no answer to this load; `None`: it has one.
    #[must_use]
    pub fn gap(&self, variant: &Variant, point: &LoadPoint) -> Option<&'static str> {
        if point.protocol != Protocol::Tcp {
            return None;
        }
        if variant.inject.is_some() {
            return Some("over TCP bytes come back at once, whatever cost is asked for");
        }
        let judges_requests = variant.level == Some(PolicyLevel::L7);
        judges_requests.then_some("an l7 policy judges requests, and TCP has none")
    }

    /// The variant with this role; for [`Role::Candidate`] the first.
    #[must_use]
    pub fn by_role(&self, role: Role) -> Option<&Variant> {
        self.variants.iter().find(|v| v.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_spread_over_services_and_none_is_lost() {
        for (endpoints, per_service, services, last) in [
            (1, 10, 1, 1),
            (100, 10, 10, 10),
            (25, 10, 3, 5),
            (7, 1, 7, 1),
        ] {
            let knows = Knows {
                endpoints,
                per_service,
                changes_per_s: None,
            };
            assert_eq!(knows.services(), services);
            assert_eq!(knows.endpoints_of(services - 1), last);
            let all: u32 = (0..services).map(|s| knows.endpoints_of(s)).sum();
            assert_eq!(all, endpoints);
        }
    }
}
