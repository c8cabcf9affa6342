//! The figures of a run: the only thing that a report reads.

mod added_cpu;
mod caveat;
mod cpu;
mod decision;
mod effect;
mod estimate;
mod log;
mod machine;
mod memory;
mod outcome;
mod point;
mod reason;
mod variant;

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterEvent;
use crate::environment::Environment;
use crate::event::{Ending, Resumption};
use crate::experiment::{Experiment, LoadPointId, VariantId};
use crate::monitoring::Monitoring;

pub use added_cpu::{AddedCpu, Elsewhere, ThroughputLoss, WithElsewhere};
pub use caveat::{Caveat, ProgramShare, VariantTrials};
pub use cpu::{ComponentCpu, CpuAccount, LinkPerRequest};
pub use decision::{
    Decision, DecisionCell, DecisionGroup, DecisionReason, DecisionRow, Ground, Opponent,
    Suggestion, Weight,
};
pub use effect::{
    Attribution, AttributionPart, AttributionStep, Comparison, Effect, GroundTruth, IngressCost,
    NoiseFloor, Verdict, Withheld,
};
pub use estimate::{Estimate, Interval, Metric};
pub use log::RoundLog;
pub use machine::{InstanceSpread, NoiseFacts, Speed};
pub use memory::{ComponentMemory, NodeMemory};
pub use outcome::{LoadOutcome, Overload, Shortfall};
pub use point::{CurvePoint, Extent, Level, Point, RoleSeries, Spread, Usage, UsageGroup};
pub use reason::{Arm, ExclusionReason, InvalidReason, NoLevel, NotEstimable, RunSide, Unresolved};
pub use variant::{Moment, RoleMoment, Upkeep, VariantAnalysis};

/// The run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The run's id, as in its manifest.
    pub id: String,
    /// meshtax's version.
    pub meshtax_version: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long it took, in nanoseconds, up to the last record and without the pauses before it was resumed.
    pub took_ns: u64,
    /// The plan's seed.
    pub seed: u64,
    /// Why it ended; `None`: not in the manifest (killed, or still running).
    pub ending: Option<Ending>,
    /// How often it was interrupted and continued, the first time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumptions: Vec<Resumption>,
}

/// The analysis of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The run as a whole.
    pub run: RunFacts,
    /// The experiment.
    pub experiment: Experiment,
    /// The environment.
    pub environment: Environment,
    /// Confidence of all intervals (0.95).
    pub confidence: f64,
    /// Rounds with at least one valid trial.
    pub rounds: u32,
    /// Blocks with at least one valid trial.
    pub blocks: u32,
    /// In the experiment's order.
    pub variants: Vec<VariantAnalysis>,
    /// Control first, then the candidates.
    pub effects: Vec<Effect>,
    /// What else changes with the added CPU per request, and what it means: an item for each effect on it.
    #[serde(default)]
    pub added_cpu: Vec<AddedCpu>,
    /// One per load point and metric.
    pub noise_floor: Vec<NoiseFloor>,
    /// Every pair of candidates, of the primary metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// The components of each data plane's overhead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribution: Vec<Attribution>,
    /// The cost of ingress through a gateway, where the run has the same load from a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<IngressCost>,
    /// What it suggests for each requirement; `None`: no two variants do the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Known costs that were injected, with the measured values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ground_truth: Vec<GroundTruth>,
    /// What was measured in each round, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_log: Vec<RoundLog>,
    /// What the cluster reported while the run went on, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ClusterEvent>,
    /// What a monitoring system recorded meanwhile: context, which no figure depends on. The analysis leaves it out; who
    /// has it adds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,
    /// Disturbances on the machine.
    #[serde(default)]
    pub noise: NoiseFacts,
    /// Caveats, the most general first.
    pub caveats: Vec<Caveat>,
}

impl Analysis {
    /// The effect of a variant on a metric at a load point.
    #[must_use]
    pub fn effect(
        &self,
        variant: &VariantId,
        point: &LoadPointId,
        metric: Metric,
    ) -> Option<&Effect> {
        self.effects
            .iter()
            .find(|e| e.variant == *variant && e.load_point == *point && e.metric == metric)
    }

    /// What else changes with a variant's added CPU at a load point.
    #[must_use]
    pub fn added_cpu(&self, variant: &VariantId, point: &LoadPointId) -> Option<&AddedCpu> {
        let mut all = self.added_cpu.iter();
        all.find(|added| added.variant == *variant && added.load_point == *point)
    }
}

/// The smallest effect that a run of a given length detects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolvable {
    /// At which load point.
    pub load_point: LoadPointId,
    /// The metric.
    pub metric: Metric,
    /// The length of such a run, in nanoseconds.
    pub time_ns: u64,
    /// Its number of rounds.
    pub rounds: u32,
    /// Relative: 0.03 is 3 %.
    pub effect: f64,
}

/// The result of `meshtax calibrate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The probability with which an effect of [`Self::resolvable`]'s size is detected (0.9).
    pub power: f64,
    /// The smallest effects that runs with one candidate detect on this machine.
    pub resolvable: Vec<Resolvable>,
    /// The run that it is based on; its [`Analysis::ground_truth`] has the known costs.
    pub analysis: Analysis,
}
