//! What the figures say: the only thing that a report reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::event::Ending;
use crate::evidence::Evidence;
use crate::experiment::{Experiment, LoadPointId, VariantId};
use crate::trial::ComponentRole;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether zero lies strictly outside.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// The larger absolute end.
    #[must_use]
    pub fn largest_absolute_end(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// A point estimate, with its interval where there is enough to give one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// At the confidence of [`Analysis::confidence`]; `None` with fewer than six blocks.
    pub interval: Option<Interval>,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Median response latency, ns.
    ResponseP50,
    /// 90th percentile of response latency, ns.
    ResponseP90,
    /// 99th percentile of response latency, ns.
    ResponseP99,
    /// 99.9th percentile of response latency, ns.
    ResponseP999,
    /// Successful requests per second.
    Throughput,
    /// CPU of the test application and of the proxies in the path, ns per request.
    CpuPerRequest,
}

impl Metric {
    /// A percentile's quantile.
    #[must_use]
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::ResponseP50 => Some(0.5),
            Self::ResponseP90 => Some(0.9),
            Self::ResponseP99 => Some(0.99),
            Self::ResponseP999 => Some(0.999),
            Self::Throughput | Self::CpuPerRequest => None,
        }
    }

    /// Whether a larger value is worse.
    #[must_use]
    pub fn larger_is_worse(self) -> bool {
        !matches!(self, Self::Throughput)
    }
}

/// What may be said of an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// The adjusted interval excludes zero and the effect exceeds the noise floor.
    Different,
    /// Inside the noise floor, or the interval holds zero.
    NotDistinguishable,
    /// Two one-sided tests put it inside the noise floor.
    Equivalent,
    /// No figure can be given.
    NotEstimable {
        /// Why, for a person.
        reason: String,
    },
}

/// The paired difference of one variant from the mean of the two baselines.
///
/// For the control variant it is the A/A difference: control minus baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Of which variant.
    pub variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Of what.
    pub metric: Metric,
    /// In the metric's unit; `None` if not estimable.
    pub difference: Option<Estimate>,
    /// Relative: 0.15 is 15 % more than the baseline (from the log ratio); `None` if not estimable.
    pub relative: Option<Estimate>,
    /// Two-sided p-value, unadjusted; `None` without an interval.
    pub p_value: Option<f64>,
    /// Holm-adjusted p-value; `None` outside the primary family.
    pub p_adjusted: Option<f64>,
    /// Whether it belongs to the primary family.
    pub primary: bool,
    /// What may be said.
    pub verdict: Verdict,
    /// How many times as long a run would tell an effect of this size from none, if its size and its
    /// spread stay; `None`: it is told apart, or too small for any run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_to_tell: Option<f64>,
    /// Rounds with a valid pair.
    pub rounds: u32,
    /// Blocks with a valid pair.
    pub blocks: u32,
}

/// The level of one metric, not a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Of what.
    pub metric: Metric,
    /// In the metric's unit; `None`: not resolved, see `reason`.
    pub value: Option<f64>,
    /// Why there is no value (too few requests above the percentile).
    pub reason: Option<String>,
}

/// CPU per request of one component, mean over the valid trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentCpu {
    /// What it is to the traffic.
    pub role: ComponentRole,
    /// In nanoseconds per completed request.
    pub cpu_per_request_ns: f64,
    /// As a share of the machine's busy time.
    pub share_of_busy: Option<f64>,
}

/// The whole machine's time at one variant and load point, summed over the valid trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuAccount {
    /// Busy time of the machine in nanoseconds.
    pub busy_ns: i64,
    /// Of it, what components used.
    pub attributed_ns: u64,
    /// The rest: interrupts, softirq outside any component, other processes.
    /// `None`: smaller than what the kernel's clock tick can resolve.
    pub unattributed_ns: Option<u64>,
    /// Steps of the kernel's tick, summed: what `busy_ns` can be wrong by (two standard deviations).
    pub resolution_ns: u64,
    /// Time that the hypervisor gave to others, in nanoseconds.
    pub steal_ns: u64,
    /// Completed requests.
    pub requests: u64,
    /// By component, generator and meshtax itself included.
    pub components: Vec<ComponentCpu>,
}

/// Memory of one component: the median over the valid trials of all load points, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentMemory {
    /// What it is to the traffic.
    pub role: ComponentRole,
    /// Resident anonymous pages.
    pub anonymous_bytes: u64,
    /// Resident file pages: mostly the program's text.
    pub file_bytes: u64,
    /// Proportional set size.
    pub pss_bytes: u64,
}

/// How the requests of a trial were spread over a service's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many there are.
    pub replicas: u32,
    /// Those that had requests, in the trial where that were the fewest.
    pub hit_min: u32,
    /// And where that were the most.
    pub hit_max: u32,
    /// The busiest one's share of the requests: median over the trials. 1 / `replicas` if even.
    pub busiest_share: f64,
}

/// One variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Which load point.
    pub load_point: LoadPointId,
    /// Valid trials.
    pub valid: u32,
    /// Invalid trials by reason. They are kept, shown and left out.
    pub invalid: BTreeMap<String, u32>,
    /// Requests in the merged histogram.
    pub requests: u64,
    /// Offered requests per second over the valid trials (closed loop: as achieved).
    pub offered_per_s: f64,
    /// Completed requests per second over the valid trials.
    pub achieved_per_s: f64,
    /// Levels, from merged histograms.
    pub levels: Vec<Level>,
    /// p99 of the send lag, from merged histograms, in nanoseconds.
    pub send_lag_p99_ns: Option<u64>,
    /// Connections between the proxies: median over the valid trials.
    pub proxy_connections: Option<u32>,
    /// How the load was spread over the service's replicas; `None`: there is one only, or its
    /// program does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Mean of the injected delay by the server's own clock, in nanoseconds.
    pub injected_ns: Option<f64>,
    /// Where the machine's time went.
    pub cpu: Option<CpuAccount>,
}

/// All about one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantAnalysis {
    /// Which.
    pub variant: VariantId,
    /// `None`: measured. Otherwise why it was left out.
    pub left_out: Option<String>,
    /// What the probes saw in its last round (its failing one, if one failed).
    pub evidence: Option<Evidence>,
    /// Rounds in which all probes passed.
    pub rounds_proven: u32,
    /// Rounds in which it was brought up.
    pub rounds_tried: u32,
    /// In the experiment's order.
    pub points: Vec<Point>,
    /// By component.
    pub memory: Vec<ComponentMemory>,
}

/// The largest absolute end of the A/A pair's interval: the margin for "no relevant difference".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseFloor {
    /// At which load point.
    pub load_point: LoadPointId,
    /// Of what.
    pub metric: Metric,
    /// In the metric's unit; `None` if not estimable.
    pub absolute: Option<f64>,
    /// Relative (0.02 is 2 %); `None` if not estimable.
    pub relative: Option<f64>,
}

/// How the run went as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// The run's id, as in its manifest.
    pub id: String,
    /// meshtax's version.
    pub meshtax_version: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long it took, in nanoseconds, up to the last record.
    pub took_ns: u64,
    /// The plan's seed.
    pub seed: u64,
    /// Why it ended; `None`: the manifest does not say (killed, or still running).
    pub ending: Option<Ending>,
}

/// A run, understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// How the run went.
    pub run: RunFacts,
    /// What was asked.
    pub experiment: Experiment,
    /// Where.
    pub environment: Environment,
    /// Of every interval (0.95).
    pub confidence: f64,
    /// Rounds with at least one valid trial.
    pub rounds: u32,
    /// Blocks with at least one valid trial.
    pub blocks: u32,
    /// In the experiment's order.
    pub variants: Vec<VariantAnalysis>,
    /// Control first, then the candidates.
    pub effects: Vec<Effect>,
    /// One per load point and metric.
    pub noise_floor: Vec<NoiseFloor>,
    /// What a reader must know: "these processes only", unexpected orderings, noise.
    pub caveats: Vec<String>,
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
}
