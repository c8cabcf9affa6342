//! An [`Experiment`] and its factors.

mod load_point;
mod names;
mod variant;

use serde::{Deserialize, Serialize};

use crate::margins::Margins;
use crate::pods::PodSettings;
pub use crate::program::{ProgramBuild, ProgramChoice, Workers, is_runtime_key};
use crate::saturation::Saturation;
use crate::topology::Topology;

pub use load_point::{Arrivals, Ingress, LoadPoint, Protocol, Regime};
pub use names::{LoadPointId, PolicyLevel, Role, VariantId};
pub use variant::{ExtraEndpoints, Inject, OptionKind, Options, Variant};

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
