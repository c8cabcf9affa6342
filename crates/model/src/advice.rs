//! The questions of a platform engineer to a run, and the results: requirements, objectives, costs, priorities.

mod request;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::{
    Caveat, Decision, Estimate, ExclusionReason, InvalidReason, Metric, NoLevel, NotEstimable,
    Overload, Verdict,
};
use crate::comparison::ComparedRun;
use crate::environment::Environment;
use crate::experiment::{LoadPointId, PolicyLevel, VariantId};
use crate::trial::ComponentRole;

pub use crate::requirement::{Need, Priority};
pub use request::{AdviceRequest, Objective, PresetRates};

/// The role of a variant in advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No mesh.
    Baseline,
    /// A variant that can be chosen.
    Choice,
    /// The lower bound that any proxy costs.
    Floor,
    /// An emulation: shaped like a mesh, but not a mesh that can be deployed.
    Emulation,
}

/// Whether a variant provides a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Given {
    /// Observed by this run's probes.
    Yes,
    /// Observed to be absent, or the level is lower.
    No,
    /// Not covered by this run.
    NotCovered,
}

/// Whether a variant provides a needed feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gives {
    /// The need.
    pub need: Need,
    /// Whether it is provided.
    pub given: Given,
}

/// One variant as a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvisedVariant {
    /// The variant.
    pub variant: VariantId,
    /// Its data plane.
    pub data_plane: String,
    /// Its policy level.
    pub level: Option<PolicyLevel>,
    /// Its role in the advice.
    pub standing: Standing,
    /// The mesh that it represents, by its id in `meshtax published`; `None`: it represents none.
    pub mesh: Option<String>,
    /// Why it was not measured; `None`: it was.
    pub excluded: Option<ExclusionReason>,
    /// What it provides, need by need.
    pub gives: Vec<Gives>,
}

/// One need, across the variants of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedAnswer {
    /// The need.
    pub need: Need,
    /// Whether it was stated.
    pub asked: bool,
    /// The lowest policy level that provides it: by definition, or according to this run's choices.
    pub level: Option<PolicyLevel>,
    /// The choices that provide it.
    pub given_by: Vec<VariantId>,
}

/// The result of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveVerdict {
    /// The whole interval meets the bound.
    Met,
    /// Inconclusive.
    Inconclusive,
    /// The whole interval misses the bound.
    Missed,
}

impl fmt::Display for ObjectiveVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Inconclusive => "inconclusive",
            Self::Missed => "missed",
        })
    }
}

/// The result of one objective for one variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveCheck {
    /// The variant.
    pub variant: VariantId,
    /// The load point.
    pub load_point: LoadPointId,
    /// The level that is compared with the bound, in the metric's unit.
    pub level: Option<Estimate>,
    /// The result.
    pub verdict: ObjectiveVerdict,
    /// Why it is inconclusive; `None`: it is conclusive.
    pub reason: Option<InconclusiveObjective>,
    /// What the variant did of the load, if it was overloaded: then the objective is missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
}

/// Why an objective is inconclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum InconclusiveObjective {
    /// The variant was excluded: nothing of it was measured.
    NotMeasured {
        /// Why.
        reason: ExclusionReason,
    },
    /// The variant has no trial at this load point.
    NoTrials,
    /// The metric was not recorded.
    NotOnRecord,
    /// The metric has no value.
    NoLevel {
        /// Why.
        reason: NoLevel,
        /// Why its trials are invalid, if all of them are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        invalid: Vec<InvalidReason>,
    },
    /// The level has no interval.
    NoInterval,
    /// The interval contains the bound.
    IntervalContainsBound,
    /// Within the bound, but the level is a lower bound: requests are missing from it.
    LowerBound,
    /// Too many trials did not carry the load, and too few to show that the variant is the cause.
    LoadNotCarried {
        /// Trials that did not.
        trials: u32,
        /// All its valid trials.
        of: u32,
    },
    /// The baselines did not carry the load either: it is beyond this machine.
    BeyondMachine,
}

/// One objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveAnswer {
    /// The objective.
    pub objective: Objective,
    /// One check per variant; empty: this run did not measure such a load.
    pub checks: Vec<ObjectiveCheck>,
    /// The steady rates that this run measured.
    pub measured_per_s: Vec<f64>,
    /// Whether it measured a saturated load.
    pub measured_saturated: bool,
    /// The presets that measure the requested load.
    pub presets: Vec<String>,
}

/// Where a data plane has its proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyPlace {
    /// One in each pod.
    Pod,
    /// One on each node.
    Node,
}

/// The CPU cost that a variant adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    /// The load point at which CPU per request was measured.
    pub load_point: LoadPointId,
    /// Planned requests per second for each proxy; `None`: not given.
    pub asked_per_proxy_per_s: Option<f64>,
    /// Requests per second of each proxy in the measurement.
    pub measured_per_proxy_per_s: f64,
    /// CPU added per request and hop, in nanoseconds.
    pub per_request_ns: Estimate,
    /// CPU added in the cluster, in cores.
    pub cores: Estimate,
    /// Its cost per month; `None`: no price given.
    pub monthly: Option<Estimate>,
    /// The verdict on the figure per request.
    pub verdict: Verdict,
}

/// The measured memory of one kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// The role of the proxy.
    pub role: ComponentRole,
    /// Resident anonymous pages, in bytes.
    pub anonymous_bytes: u64,
    /// Resident file pages, in bytes: each node has one copy per program.
    pub file_bytes: u64,
}

/// The memory cost that a variant adds: anonymous pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryCost {
    /// The load point at which it was measured.
    pub load_point: LoadPointId,
    /// The unit with one proxy each: pod or node.
    pub per: ProxyPlace,
    /// The number of these units.
    pub count: u32,
    /// Memory added per unit, in bytes.
    pub each_bytes: Estimate,
    /// Memory of the waypoint, counted once, in bytes; `None`: there is none.
    pub waypoint_bytes: Option<u64>,
    /// Memory added in the cluster, in bytes.
    pub total_bytes: Estimate,
    /// Its cost per month; `None`: no price given.
    pub monthly: Option<Estimate>,
}

/// A component of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostFigure {
    /// CPU under load.
    Cpu,
    /// Anonymous memory.
    Memory,
    /// CPU without requests.
    IdleCpu,
    /// File pages of the proxies' programs.
    ProgramPages,
    /// CPU and memory of a control plane.
    ControlPlane,
}

/// A figure that is missing from a cost. It is never assumed to be zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which figure.
    pub figure: CostFigure,
    /// Why it is missing.
    pub reason: MissingReason,
}

/// Why a figure of a cost is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum MissingReason {
    /// The number of pods or nodes is not given.
    NoCount {
        /// The unit with one proxy each.
        per: ProxyPlace,
    },
    /// The requests per second are not given.
    NoRequestRate,
    /// All clients of the run used the gateway.
    GatewayOnly,
    /// There is no measurement for it.
    NotMeasured,
    /// The metric was not recorded.
    NotOnRecord {
        /// The metric.
        metric: Metric,
    },
    /// The difference from no mesh is not estimable.
    NotEstimable {
        /// Why.
        reason: NotEstimable,
    },
    /// The figure is not finite.
    OutOfRange,
    /// It is in the run's own report, and included in the CPU under load.
    InRunReport,
    /// The run has no reading of it.
    NotRead,
    /// It does not depend on the number of pods: each node has one copy per program.
    SharedByNode,
    /// It exists only in a cluster.
    ClusterOnly,
}

/// The cost of a variant beyond no mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The variant.
    pub variant: VariantId,
    /// CPU.
    pub cpu: Option<CpuCost>,
    /// Memory.
    pub memory: Option<MemoryCost>,
    /// The memory of each kind of its proxies, as medians.
    pub parts: Vec<MemoryPart>,
    /// CPU and memory per month, with the ends of the intervals added; `None` unless both are available.
    pub monthly: Option<Estimate>,
    /// The figures that are not included.
    pub missing: Vec<Missing>,
}

/// The places that a variant may have in a ranking: all that the differences shown leave open, whatever could not be
/// estimated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRange {
    /// The variant.
    pub variant: VariantId,
    /// One plus the number of variants that are shown to be better.
    pub best: u32,
    /// The number of variants less those that are shown to be worse.
    pub worst: u32,
}

/// Two variants that a ranking does not separate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tie {
    /// One.
    pub first: VariantId,
    /// The second one.
    pub second: VariantId,
    /// Why: inconclusive, equivalent, or not estimable.
    pub verdict: Verdict,
}

/// A ranking of comparable variants, by one metric at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// The common policy level; `None`: there is none, or with needs each variant is its data plane's lowest level that
    /// meets all of them.
    pub level: Option<PolicyLevel>,
    /// The metric.
    pub metric: Metric,
    /// The load point.
    pub load_point: LoadPointId,
    /// By the worst place, then by the best. Ranges overlap where no difference is shown.
    pub places: Vec<PlaceRange>,
    /// Pairs without a shown difference.
    pub ties: Vec<Tie>,
    /// Variants that could not be compared with any other, and could have any place: the ranges of the others leave room
    /// for them.
    pub unranked: Vec<VariantId>,
}

/// One priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityAnswer {
    /// The priority.
    pub priority: Priority,
    /// What this run shows about it.
    pub rankings: Vec<Ranking>,
    /// Relevant features of meshes that no run measures, by their ids in `meshtax published`.
    pub features: Vec<String>,
}

/// A property of the cluster that affects the choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The property.
    pub topic: Topic,
    /// Features of meshes to consider, by their ids in `meshtax published`.
    pub features: Vec<String>,
}

/// What a [`Question`] is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Topic {
    /// The cluster's network plug-in.
    Cni {
        /// Its name.
        name: String,
    },
    /// Who runs the cluster.
    Managed {
        /// Its name.
        name: String,
    },
    /// Validated cryptography.
    Fips,
}

/// The result of `meshtax advise`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The analysed run.
    pub run: ComparedRun,
    /// The experiment's name.
    pub experiment: String,
    /// The environment of the measurement.
    pub environment: Environment,
    /// Confidence of all intervals (0.95).
    pub confidence: f64,
    /// The request.
    pub asked: AdviceRequest,
    /// In the experiment's order, without the control.
    pub variants: Vec<AdvisedVariant>,
    /// Each need, stated or not.
    pub needs: Vec<NeedAnswer>,
    /// For each data plane, the lowest level that meets all needs; empty if none does.
    pub sufficient: Vec<VariantId>,
    /// In the order of the request.
    pub objectives: Vec<ObjectiveAnswer>,
    /// One per candidate.
    pub costs: Vec<Cost>,
    /// The requested priorities, or all.
    pub priorities: Vec<PriorityAnswer>,
    /// The decision table; `None`: no two variants do the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Properties of the cluster that affect the choice.
    pub questions: Vec<Question>,
    /// The run's caveats.
    pub caveats: Vec<Caveat>,
}

impl Advice {
    /// One of its variants.
    #[must_use]
    pub fn variant(&self, id: &VariantId) -> Option<&AdvisedVariant> {
        self.variants.iter().find(|v| v.variant == *id)
    }
}
