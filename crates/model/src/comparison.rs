//! Comparison of two runs, or of two sides of one run; and limits on changes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::analysis::{Estimate, Metric, NotEstimable, RunFacts, RunSide, Upkeep, Verdict};
use crate::environment::Node;
use crate::event::Ending;
use crate::evidence::{Features, Handshake, ProbeId};
use crate::experiment::{LoadPoint, LoadPointId, Variant, VariantId};
use crate::pods::PodSettings;
use crate::topology::{OwnProgram, ServiceAddress};

/// A run that was compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// The run as a whole.
    pub run: RunFacts,
    /// Rounds with at least one valid trial.
    pub rounds: u32,
    /// Blocks with at least one valid trial.
    pub blocks: u32,
}

/// A setting that differs between the two sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Differing {
    /// The setting.
    pub setting: Setting,
    /// Its values in BASE's runs, without repeats.
    pub base: Vec<SettingValue>,
    /// Its values in NEW's runs, without repeats.
    pub new: Vec<SettingValue>,
}

/// A setting of a run: of its machine, its plan or its programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Setting {
    /// meshtax's version.
    MeshtaxVersion,
    /// The engine.
    Engine,
    /// The processor's model.
    Processor,
    /// Cores that the run may use.
    Cores,
    /// Main memory.
    MainMemory,
    /// The kernel's release.
    Kernel,
    /// The kernel's clock source.
    ClockSource,
    /// Whether the machine is virtual.
    VirtualMachine,
    /// Whether a user namespace was needed.
    Rootless,
    /// The pinning of roles to cores.
    CoreLayout,
    /// How the load generator sends and receives.
    Generator,
    /// The experiment's name.
    Experiment,
    /// The service under test.
    Service,
    /// The work of the application for a request, where a calibration chose it.
    ApplicationWork,
    /// On which nodes clients and servers are.
    Placement,
    /// Resources, scheduling and quality of service of the pods on a cluster.
    PodSettings,
    /// Size of the responses.
    ResponseBytes,
    /// Connections of the generators.
    Connections,
    /// Client pods.
    Clients,
    /// Worker threads of each proxy.
    ProxyWorkers,
    /// Measured window of a trial.
    TrialLength,
    /// Warm-up of a trial.
    WarmUp,
    /// The time budget of the run.
    TimeLimit,
    /// The program of a data plane.
    Program {
        /// The data plane.
        data_plane: String,
    },
    /// A variant's configuration.
    Variant {
        /// The variant.
        variant: VariantId,
    },
    /// A load point.
    LoadPoint {
        /// The load point.
        load_point: LoadPointId,
    },
}

/// A setting's value in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", content = "value", rename_all = "kebab-case")]
pub enum SettingValue {
    /// The run does not have this setting.
    Absent,
    /// A name or a version.
    Text(String),
    /// A count.
    Count(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A time in nanoseconds.
    DurationNs(u64),
    /// Yes or no.
    Flag(bool),
    /// A node, with the pinning of roles to cores.
    Node(Node),
    /// How a load generator sends and receives: its I/O interface and the congestion control of its sockets.
    Generator {
        /// `io_uring` or `epoll`.
        socket_io: String,
        /// `bbr`, `cubic`.
        congestion_control: String,
    },
    /// The service under test.
    Service(ServiceSetting),
    /// A data plane's program.
    Program {
        /// Its version.
        version: String,
        /// Hash of its file, in hexadecimal; empty where there is none.
        sha256: String,
    },
    /// What pods on a cluster request and are limited to, and where they may run.
    Pods(Box<PodSettings>),
    /// A variant.
    Variant(Variant),
    /// A load point.
    LoadPoint(LoadPoint),
}

/// The properties of a service that are compared between runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSetting {
    /// Name and number of services of the call graph; `None`: one service.
    pub topology: Option<(String, u32)>,
    /// Its replicas.
    pub replicas: u32,
    /// Nodes that they are on.
    pub nodes: u32,
    /// What clients connect to.
    pub address: ServiceAddress,
    /// The user's own program; `None`: meshtax's application.
    pub program: Option<OwnProgram>,
}

/// A caveat of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum ComparisonNote {
    /// One run is on both sides.
    SameRun {
        /// Its id.
        run: String,
    },
    /// Both runs have the same seed.
    SameSeed {
        /// The seed.
        seed: u64,
    },
    /// Variants of one side only.
    UnpairedVariants {
        /// Which side.
        side: RunSide,
        /// Which variants.
        variants: Vec<VariantId>,
    },
    /// Load points of one side only.
    UnpairedLoadPoints {
        /// Which side.
        side: RunSide,
        /// Which load points.
        load_points: Vec<LoadPointId>,
    },
    /// A run that was interrupted or failed, or whose end is not on record.
    IncompleteRun {
        /// On which side.
        side: RunSide,
        /// Its id.
        run: String,
        /// `None`: not on record.
        ending: Option<Ending>,
    },
}

/// Variation between identical runs, beyond what the rounds of each explain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Between {
    /// Standard deviation of a run's log ratio, relative (0.015 is 1.5 %).
    pub value: f64,
    /// Its source.
    pub source: BetweenSource,
}

/// The source of a between-run component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetweenSource {
    /// The built-in default: one run per side cannot provide it.
    Default,
    /// Given by the user.
    Given,
    /// Estimated from the several runs of a side, with the default as prior.
    Runs,
}

/// The change from BASE to NEW in one metric of one variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The variant's name in this comparison.
    pub variant: String,
    /// Its id in BASE; the baseline's id where the baseline is compared with NEW's variant.
    pub base_variant: VariantId,
    /// Its id in NEW.
    pub new_variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// The metric.
    pub metric: Metric,
    /// Overhead against BASE's own baselines, relative; of several runs the geometric mean, with no interval.
    pub base: Option<Estimate>,
    /// Overhead against NEW's own baselines, relative.
    pub new: Option<Estimate>,
    /// NEW relative to BASE: 0.05 is 5 % more, after correction for the baselines. `None` if not estimable.
    pub relative: Option<Estimate>,
    /// Whether `relative` is a lower bound, as in [`Effect::lower_bound`](crate::analysis::Effect::lower_bound): latencies of
    /// NEW's variant or of BASE's baselines lack requests, and those of the other two are complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// The between-run component; `None`: both sides were measured in one run.
    pub between: Option<Between>,
    /// Number of runs of BASE.
    pub base_runs: u32,
    /// Number of runs of NEW.
    pub new_runs: u32,
    /// Two-sided p-value of "no change", adjusted over all primary changes if this is one of them (Holm).
    pub p_value: Option<f64>,
    /// Whether it belongs to the primary metrics, over which p-values are adjusted.
    pub primary: bool,
    /// [`Verdict::Different`]: the p-value is below 0.05.
    pub verdict: Verdict,
}

/// The result of `meshtax compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// Whether both sides were measured in one interleaved run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interleaved: bool,
    /// BASE.
    pub base: Vec<ComparedRun>,
    /// NEW.
    pub new: Vec<ComparedRun>,
    /// Confidence of all intervals (0.95).
    pub confidence: f64,
    /// Settings that differ: plans, machines and programs.
    pub differing: Vec<Differing>,
    /// Caveats: variants and load points of one side only, incomplete runs.
    pub notes: Vec<ComparisonNote>,
    /// Every common variant, load point and metric.
    pub changes: Vec<Change>,
    /// What else differs between the variants of an interleaved run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairDetails>,
}

/// What differs between two variants of one run in addition to their figures under load. Arrays: BASE, NEW.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairDetails {
    /// BASE's variant.
    pub base_variant: VariantId,
    /// NEW's variant.
    pub new_variant: VariantId,
    /// Start-up time and idle CPU.
    pub upkeep: [Upkeep; 2],
    /// Detected features; `None`: not probed.
    pub features: [Option<Features>; 2],
    /// The handshakes on the wire.
    pub handshakes: [Vec<Handshake>; 2],
    /// Probes with different results.
    pub probes: Vec<ProbeChange>,
}

/// A probe that does not have the same result on both sides; `None`: it did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeChange {
    /// Which.
    pub probe: ProbeId,
    /// Whether it passed for BASE.
    pub base: Option<bool>,
    /// Whether it passed for NEW.
    pub new: Option<bool>,
}

/// The permitted change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Allowed {
    /// Relative: 0.05 is 5 % more, -0.05 is 5 % less.
    Relative(f64),
    /// In the metric's unit, relative to the level in BASE.
    Absolute(f64),
}

/// A limit on a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// As typed.
    pub text: String,
    /// The variant; `None`: every variant.
    pub variant: Option<String>,
    /// The metric.
    pub metric: Metric,
    /// The permitted change.
    pub allowed: Allowed,
    /// The load point; `None`: every load point that has the metric.
    pub load_point: Option<String>,
}

/// The verdict of a gate or of one check. Ordered: the worst of several is the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The whole interval is within the limit.
    Pass,
    /// Inconclusive: neither is shown.
    Inconclusive,
    /// The whole interval, adjusted for the number of checks, is beyond the limit.
    Fail,
}

impl fmt::Display for GateVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "passed",
            Self::Inconclusive => "inconclusive",
            Self::Fail => "failed",
        })
    }
}

/// Why a check is inconclusive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum InconclusiveCheck {
    /// The change is not estimable.
    NotEstimable {
        /// Why.
        reason: NotEstimable,
    },
    /// BASE has no level that an absolute limit could be related to.
    NoBaseLevel,
    /// The limit allows a decrease larger than the level.
    LimitOutOfRange,
    /// The change has no interval.
    NoInterval,
    /// The interval contains the limit.
    IntervalContainsLimit,
    /// Beyond the limit, but not after adjustment for the number of checks.
    NotAfterAdjustment,
    /// Within the limit, but the change is a lower bound: requests are missing from the latencies of NEW's variant, or of
    /// BASE's baselines.
    LowerBound,
    /// Beyond the limit, but the change is an upper bound: requests are missing from the latencies of BASE's variant, or of
    /// NEW's baselines.
    UpperBound,
    /// The change of CPU that includes CPU outside the path does not support it.
    CpuElsewhere,
    /// Within the limit, but one of several runs of NEW has no estimate.
    MissingRun {
        /// Why.
        reason: NotEstimable,
    },
}

/// The check of one limit for one variant at one load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateCheck {
    /// As typed.
    pub limit: String,
    /// The limit as a relative change; `None`: it is absolute, and there is no level to relate it to.
    pub allowed: Option<f64>,
    /// The measured change.
    pub change: Change,
    /// One-sided p-value of "within the limit", adjusted over the gate's checks (Holm).
    pub p_beyond: Option<f64>,
    /// The verdict.
    pub verdict: GateVerdict,
    /// Why it is inconclusive; `None`: it is conclusive.
    pub reason: Option<InconclusiveCheck>,
    /// How many times as long a run needs to be for a verdict, if estimate and spread stay the same; `None`: no
    /// estimate.
    pub longer_to_tell: Option<f64>,
}

/// The result of `meshtax gate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateReport {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The worst of all checks.
    pub verdict: GateVerdict,
    /// Whether both sides were measured in one interleaved run.
    pub interleaved: bool,
    /// BASE; for an interleaved run, the run itself.
    pub base: Vec<ComparedRun>,
    /// NEW; for an interleaved run, the run itself.
    pub new: Vec<ComparedRun>,
    /// Confidence of all intervals (0.95).
    pub confidence: f64,
    /// Settings that differ: plans, machines and programs.
    pub differing: Vec<Differing>,
    /// Caveats: variants and load points of one side only, incomplete runs.
    pub notes: Vec<ComparisonNote>,
    /// At least one.
    pub checks: Vec<GateCheck>,
}

impl GateReport {
    /// The number of checks with this verdict.
    #[must_use]
    pub fn count(&self, verdict: GateVerdict) -> usize {
        self.checks.iter().filter(|c| c.verdict == verdict).count()
    }
}
