//! What a platform engineer asks of a run, and what the run answers: requirements, objectives, costs, priorities.

mod asked;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::{Estimate, Metric, Verdict};
use crate::comparison::ComparedRun;
use crate::environment::Environment;
use crate::experiment::{LoadPointId, PolicyLevel, VariantId};
use crate::trial::ComponentRole;

pub use asked::{Asked, Fact, Facts, Need, Objective, PresetRates, Priority};

/// What a variant is to an advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// No mesh.
    Baseline,
    /// One that could be chosen.
    Choice,
    /// The least that any proxy costs: no mesh is so.
    Floor,
    /// In the shape of a mesh, and not that mesh.
    Emulation,
}

/// Whether a variant gives something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// Seen by this run's probes.
    Yes,
    /// Seen not to, or a lower level.
    No,
    /// This run does not show it.
    NotTold,
}

/// What a variant gives of a need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gives {
    /// Of what.
    pub need: Need,
    /// Whether.
    pub given: Given,
}

/// One variant, as far as it can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvisedVariant {
    /// Which.
    pub variant: VariantId,
    /// Its data plane.
    pub data_plane: String,
    /// Its policy level.
    pub level: Option<PolicyLevel>,
    /// What it is to the advice.
    pub standing: Standing,
    /// The mesh that it stands for, as [`Facts`] call it; `None`: it stands for none.
    pub mesh: Option<String>,
    /// Why it was not measured; `None`: it was.
    pub left_out: Option<String>,
    /// What it gives, need by need.
    pub gives: Vec<Gives>,
}

/// One need, over the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedAnswer {
    /// Which.
    pub need: Need,
    /// Whether it was stated.
    pub asked: bool,
    /// The lowest policy level that gives it: by its promise, or as this run's choices show it.
    pub level: Option<PolicyLevel>,
    /// Those of the choices that give it.
    pub given_by: Vec<VariantId>,
}

/// What an objective comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObjectiveVerdict {
    /// The whole interval keeps to it.
    Met,
    /// Neither is shown.
    CannotTell,
    /// The whole interval is beyond it.
    Missed,
}

impl fmt::Display for ObjectiveVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::CannotTell => "cannot tell",
            Self::Missed => "missed",
        })
    }
}

/// One objective, one variant, one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveCheck {
    /// Of which variant.
    pub variant: VariantId,
    /// Where it was measured.
    pub load_point: LoadPointId,
    /// The level that is held against the bound, in the metric's unit.
    pub level: Option<Estimate>,
    /// What it comes to.
    pub verdict: ObjectiveVerdict,
    /// Why it cannot be told; empty otherwise.
    pub reason: String,
}

/// One objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveAnswer {
    /// Which.
    pub objective: Objective,
    /// For each variant; none: this run did not measure such a load.
    pub checks: Vec<ObjectiveCheck>,
    /// The steady rates that this run did measure.
    pub measured_per_s: Vec<f64>,
    /// Whether it measured a saturated load.
    pub measured_saturated: bool,
    /// The presets that measure what is asked.
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

/// The CPU that a variant adds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    /// Where CPU per request was measured.
    pub load_point: LoadPointId,
    /// Requests per second that each proxy will carry; `None`: not asked for.
    pub asked_per_proxy_per_s: Option<f64>,
    /// Requests per second that each proxy carried there.
    pub measured_per_proxy_per_s: f64,
    /// Added to each request and hop, in nanoseconds.
    pub per_request_ns: Estimate,
    /// Added in the cluster, in cores.
    pub cores: Estimate,
    /// A month of it; `None`: no price.
    pub monthly: Option<Estimate>,
    /// What may be said of the figure per request.
    pub verdict: Verdict,
}

/// What one kind of proxy held in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// Whose.
    pub role: ComponentRole,
    /// Resident anonymous pages, in bytes.
    pub anonymous_bytes: u64,
    /// Resident file pages, in bytes: of these a node has one copy of each program.
    pub file_bytes: u64,
}

/// The memory that a variant adds: anonymous pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryCost {
    /// Where it was measured.
    pub load_point: LoadPointId,
    /// What has a proxy.
    pub per: ProxyPlace,
    /// How many of them.
    pub count: u32,
    /// Added to each, in bytes.
    pub each_bytes: Estimate,
    /// Of the waypoint, counted once, in bytes; `None`: there is none.
    pub waypoint_bytes: Option<u64>,
    /// Added in the cluster, in bytes.
    pub total_bytes: Estimate,
    /// A month of it; `None`: no price.
    pub monthly: Option<Estimate>,
}

/// A figure that is wanted and not there. It is never zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Which figure.
    pub what: String,
    /// Why it is not there.
    pub why: String,
}

/// What a variant costs beyond no mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Of which variant.
    pub variant: VariantId,
    /// CPU.
    pub cpu: Option<CpuCost>,
    /// Memory.
    pub memory: Option<MemoryCost>,
    /// What each kind of its proxies held, as medians.
    pub parts: Vec<MemoryPart>,
    /// A month of CPU and memory together, the intervals' ends added up; `None` unless both are there.
    pub monthly: Option<Estimate>,
    /// What is not in it.
    pub missing: Vec<Missing>,
}

/// A place in a ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Whose.
    pub variant: VariantId,
    /// One more than those that are shown to be better.
    pub place: u32,
}

/// Two that a ranking leaves side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tie {
    /// One.
    pub first: VariantId,
    /// The other.
    pub second: VariantId,
    /// Why: not distinguishable, equivalent, or not estimable.
    pub verdict: Verdict,
}

/// Like against like, in one metric at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    /// The level that all of them have; `None`: none, or with needs each is its data plane's lowest that gives all of
    /// them.
    pub level: Option<PolicyLevel>,
    /// By what.
    pub metric: Metric,
    /// Where.
    pub load_point: LoadPointId,
    /// The best first. One place may be held by several.
    pub places: Vec<Place>,
    /// Pairs without a shown difference.
    pub ties: Vec<Tie>,
    /// Those that could be compared with none of the others.
    pub unranked: Vec<VariantId>,
}

/// A fact of one mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshFact {
    /// Of which.
    pub mesh: String,
    /// `None`: nothing is known.
    pub fact: Option<Fact>,
}

/// A feature, mesh by mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureFacts {
    /// Its id.
    pub feature: String,
    /// Side by side; none: no facts were given.
    pub meshes: Vec<MeshFact>,
}

/// One priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PriorityAnswer {
    /// Which.
    pub priority: Priority,
    /// What this run says.
    pub rankings: Vec<Ranking>,
    /// What is known besides.
    pub facts: Vec<FeatureFacts>,
}

/// Something about the cluster that changes the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// As it was put (`--cni cilium`).
    pub asked: String,
    /// What is known of it.
    pub facts: Vec<FeatureFacts>,
}

/// What `meshtax advise` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The run that it is from.
    pub run: ComparedRun,
    /// The experiment's name.
    pub experiment: String,
    /// Where it was measured.
    pub environment: Environment,
    /// Of every interval (0.95).
    pub confidence: f64,
    /// What was asked.
    pub asked: Asked,
    /// In the experiment's order, without the control.
    pub variants: Vec<AdvisedVariant>,
    /// Each need, stated or not.
    pub needs: Vec<NeedAnswer>,
    /// Of each data plane the lowest level that gives all that is needed; none if nothing is.
    pub sufficient: Vec<VariantId>,
    /// In the order in which they were asked.
    pub objectives: Vec<ObjectiveAnswer>,
    /// Each candidate's.
    pub costs: Vec<Cost>,
    /// Those asked for, or all.
    pub priorities: Vec<PriorityAnswer>,
    /// What the cluster's own ways change.
    pub questions: Vec<Question>,
    /// The run's caveats.
    pub caveats: Vec<String>,
}

impl Advice {
    /// One of its variants.
    #[must_use]
    pub fn variant(&self, id: &VariantId) -> Option<&AdvisedVariant> {
        self.variants.iter().find(|v| v.variant == *id)
    }
}
