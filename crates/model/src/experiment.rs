//! An [`Experiment`] and its factors.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::margins::Margins;
use crate::pods::{PodSettings, ProxyRole, Quantities};
use crate::program::Program;
pub use crate::program::{ProgramBuild, ProgramChoice, Workers, is_runtime_key};
use crate::saturation::Saturation;
use crate::topology::Topology;

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

/// What a mesh configuration guarantees for a request.
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

/// The role of a variant in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The variant without a mesh. There is exactly one.
    Baseline,
    /// The baseline again, in separate processes: the A/A control. Exactly one.
    Control,
    /// A variant that is compared with the baselines.
    Candidate,
}

/// A known cost that is added to a variant to validate the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inject {
    /// The server busy-waits this long for each request before it responds.
    DelayNs(u64),
    /// As [`Inject::DelayNs`], as a share of the baseline's p50 response latency at the
    /// first steady load point, measured before the first round (0.15 is 15 %).
    DelayShareOfP50(f64),
    /// The server delays some responses by this long, at random; the others are unaffected.
    DelaySome {
        /// The minimum delay, in nanoseconds: timers fire late.
        delay_ns: u64,
        /// The share of delayed requests, 0 to 1.
        share: f64,
    },
    /// The server does this many steps of work for each request: a multiplication and an addition
    /// each, every step depending on the previous one. The CPU clock of its thread measures them.
    BurnSteps(u64),
    /// The server holds this much more memory, in bytes, with every page written.
    HoldBytes(u64),
    /// The server sends at most this many responses per second.
    CapPerS(f64),
    /// The server keeps this much more memory for each request, in bytes, and never frees it: a
    /// fault that the validity checks must detect.
    LeakBytes(u64),
}

impl Inject {
    /// The name of the cost: `delay`, `burn`, `memory`, `cap`, `leak`.
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

/// Additional work and configuration of a variant's proxies, beyond its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Endpoints of further services in their configuration; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_endpoints: Option<ExtraEndpoints>,
    /// Whether they write a line for each request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub access_log: bool,
    /// The share of requests for which they send spans to a collector, 0 to 1; `None`: no tracing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<f64>,
    /// Whether they keep every statistic that they know, instead of those that the mesh configures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_stats: bool,
}

/// The kinds of options: not every data plane supports each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// [`Options::extra_endpoints`].
    ExtraEndpoints,
    /// [`ExtraEndpoints::changes_per_s`].
    Changes,
    /// [`Options::access_log`].
    AccessLog,
    /// [`Options::tracing`].
    Tracing,
    /// [`Options::all_stats`].
    AllStats,
}

impl OptionKind {
    /// The key in a variant of a spec, or in `extra-endpoints`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::ExtraEndpoints => "extra-endpoints",
            Self::Changes => "changes",
            Self::AccessLog => "access-log",
            Self::Tracing => "tracing",
            Self::AllStats => "all-stats",
        }
    }
}

impl Options {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The options that are set.
    pub fn kinds(&self) -> impl Iterator<Item = OptionKind> {
        let extra_endpoints = self.extra_endpoints.map(|_| OptionKind::ExtraEndpoints);
        let changes = self.extra_endpoints.and_then(|extra| extra.changes_per_s);
        let changes = changes.map(|_| OptionKind::Changes);
        let log = self.access_log.then_some(OptionKind::AccessLog);
        let tracing = self.tracing.map(|_| OptionKind::Tracing);
        let stats = self.all_stats.then_some(OptionKind::AllStats);
        [extra_endpoints, changes, log, tracing, stats]
            .into_iter()
            .flatten()
    }
}

/// Services in a proxy's configuration that receive no requests: each with its endpoints, all of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtraEndpoints {
    /// Total number of endpoints.
    pub endpoints: u32,
    /// Endpoints per service; the last one has the remainder.
    pub per_service: u32,
    /// While the variant is measured, this many endpoints per second are replaced, one at a time; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<f64>,
}

impl ExtraEndpoints {
    /// Services over which the endpoints are spread.
    #[must_use]
    pub fn services(&self) -> u32 {
        self.endpoints.div_ceil(self.per_service.max(1))
    }

    /// Endpoints of a service; services count from 0.
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
    /// Its role in the comparison.
    pub role: Role,
    /// A known cost, if one is injected.
    pub inject: Option<Inject>,
    /// Additional work and configuration of its proxies.
    #[serde(default, skip_serializing_if = "Options::is_empty")]
    pub options: Options,
    /// The builds of its programs that it names; the others are the run's default ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub builds: BTreeMap<Program, ProgramBuild>,
    /// Runtime switches of its proxies: Envoy's runtime keys, environment variables of the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime: BTreeMap<String, String>,
    /// The most that each proxy of a role may use; roles that are absent have no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<ProxyRole, Quantities>,
}

impl Variant {
    /// A variant without known cost, options, named builds, runtime switches and limits.
    #[must_use]
    pub fn new(id: VariantId, data_plane: &str, level: Option<PolicyLevel>, role: Role) -> Self {
        Self {
            id,
            data_plane: data_plane.to_owned(),
            level,
            role,
            inject: None,
            options: Options::default(),
            builds: BTreeMap::new(),
            runtime: BTreeMap::new(),
            limits: BTreeMap::new(),
        }
    }

    /// Whether it has neither options, nor runtime switches, nor limits, nor an injected cost.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.inject.is_none()
            && self.options.is_empty()
            && self.runtime.is_empty()
            && self.limits.is_empty()
    }

    /// The build of this program that it runs.
    #[must_use]
    pub fn choice(&self, program: Program) -> ProgramChoice {
        ProgramChoice {
            program,
            build: self.builds.get(&program).cloned(),
        }
    }
}

/// When requests are intended to be sent in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Constant gaps.
    Constant,
    /// Exponential gaps: independent users.
    Poisson,
}

/// How load is offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "regime", rename_all = "lowercase")]
pub enum Regime {
    /// Open loop below the knee: arrivals do not wait for responses. Measures latency.
    Steady {
        /// Offered rate in requests per second.
        rate_per_s: f64,
        /// The distribution of the intended send times.
        arrivals: Arrivals,
    },
    /// Closed loop: every connection sends again as soon as it has its response. Measures
    /// throughput and CPU per request; its latency is connections / throughput by identity.
    Saturated,
}

/// One offered load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Unique in the experiment.
    pub id: LoadPointId,
    /// Open or closed loop, with its rate.
    pub load: Regime,
    /// After this many requests a connection is closed and replaced; `None`: connections are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_connection: Option<u32>,
    /// Connections of the generator; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Each connection is a user with an equal share of an open loop's rate and its own schedule, who requests the
    /// pages in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_users: bool,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// Size of the response body in bytes; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
    /// Clients are outside the mesh and enter through its gateway; `None`: they call from a pod in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,
    /// Each trial restarts the variant's processes and has no warm-up: the window begins with their first requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
}

/// The protocol between clients outside the mesh and its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ingress {
    /// Plaintext HTTP.
    Plaintext,
    /// HTTPS, terminated at the gateway. Clients present no certificate.
    Tls,
}

/// The protocol between clients and the service.
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
    /// TCP: bytes that are echoed.
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
    /// Over persistent connections.
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
            cold: false,
        }
    }

    /// Whether this is an open-loop point, whose latency is meaningful.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        matches!(self.load, Regime::Steady { .. })
    }
}

/// The requests and their connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Size of the response body in bytes.
    pub response_bytes: u32,
    /// Keep-alive connections of the generators together.
    pub connections: u32,
    /// Client pods, each with its own proxy and an equal share of the rate; the connections are divided among them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub clients: u32,
}

fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// Ports that proxies or their control planes use in a pod, in any data plane: neither
/// the application nor the user's own program may use them. Istio's are 15000 to 15090.
pub const PROXY_PORTS: &[u16] = &[
    4140, 4143, 4190, 4191, 4317, 8086, 15000, 15001, 15006, 15008, 15012, 15020, 15021, 15053,
    15080, 15088,
];

/// Placement of client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On different nodes: the traffic crosses the link between them. A service can run on several server nodes.
    TwoNodes,
    /// All on one node of a cluster.
    OneNode,
}

impl Placement {
    /// The word in a spec.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::TwoNodes => "two-nodes",
            Self::OneNode => "one-node",
        }
    }
}

/// The number and length of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Processes and connections are recreated in each round; inference clusters on rounds.
    pub min_rounds: u32,
    /// Blocks in a round.
    pub blocks_per_round: u32,
    /// The measured part of a trial, in nanoseconds.
    pub trial_ns: u64,
    /// A closed loop's trial ends after this many requests, if its time is not over before; `None`: after its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_trial: Option<u64>,
    /// Warm-up before the window, excluded from every figure, in nanoseconds.
    pub warmup_ns: u64,
    /// The whole run aims to end within this, in nanoseconds; at least one block is measured.
    pub time_limit_ns: u64,
    /// Stop when the half width of all primary intervals is below this (0.02 is ±2 %).
    pub precision: Option<f64>,
}

/// The parts of a long trial, in nanoseconds.
const PART_NS: u64 = 5_000_000_000;

/// A trial with fewer parts than this is short, and is evaluated as a whole.
const PARTS_MIN: u64 = 10;

impl Design {
    /// The parts in which the latencies of long trials are recorded, in nanoseconds, so that a single stall does not
    /// become a tail; `None`: trials are short.
    #[must_use]
    pub fn part_ns(&self) -> Option<u64> {
        (self.trial_ns >= PARTS_MIN * PART_NS).then_some(PART_NS)
    }
}

/// An experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The preset's or the spec's name.
    pub name: String,
    /// The published study that this reproduces, by its name in `meshtax published`: its figures are reported next to
    /// the measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<String>,
    /// The name of the spec with several topologies that this belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<String>,
    /// Placement of client and server.
    pub placement: Placement,
    /// Settings of pods on a cluster; other engines have no use for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<PodSettings>,
    /// The services and their calls.
    #[serde(default)]
    pub topology: Topology,
    /// The rate at which the application is to saturate without a mesh; `None`: the services do what the topology says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// The requests.
    pub workload: Workload,
    /// Worker threads of each proxy.
    pub workers: Workers,
    /// The baseline first, the control second, then the candidates.
    pub variants: Vec<Variant>,
    /// At least one.
    pub load_points: Vec<LoadPoint>,
    /// The largest differences that do not matter.
    #[serde(default)]
    pub margins: Margins,
    /// The number and length of measurements.
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

    /// Duration of one block by its trials' time alone, in nanoseconds: every variant that supports the load, at every
    /// load point.
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

    /// The nodes on which pods run.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        match self.placement {
            Placement::TwoNodes => 1 + self.topology.server_nodes(),
            Placement::OneNode => 1,
        }
    }

    /// Connections of the generator at a load point.
    #[must_use]
    pub fn connections(&self, point: &LoadPoint) -> u32 {
        point.connections.unwrap_or(self.workload.connections)
    }

    /// Whether clients use a gateway at some load point.
    #[must_use]
    pub fn has_ingress(&self) -> bool {
        self.load_points.iter().any(|point| point.ingress.is_some())
    }

    /// Why this variant does not support this load; `None`: it does.
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
    fn endpoints_are_spread_over_services_without_loss() {
        for (endpoints, per_service, services, last) in [
            (1, 10, 1, 1),
            (100, 10, 10, 10),
            (25, 10, 3, 5),
            (7, 1, 7, 1),
        ] {
            let extra = ExtraEndpoints {
                endpoints,
                per_service,
                changes_per_s: None,
            };
            assert_eq!(extra.services(), services);
            assert_eq!(extra.endpoints_of(services - 1), last);
            let all: u32 = (0..services).map(|s| extra.endpoints_of(s)).sum();
            assert_eq!(all, endpoints);
        }
    }
}
