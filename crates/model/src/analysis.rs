//! What the figures say: the only thing that a report reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::event::Ending;
use crate::evidence::Evidence;
use crate::experiment::{Experiment, LoadPoint, LoadPointId, VariantId};
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
    /// Mean response latency, ns: what adds up over the steps of an [`Attribution`].
    ResponseMean,
    /// Anonymous memory of the test application and of the proxies in the path, bytes.
    AnonymousMemory,
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
            Self::Throughput | Self::CpuPerRequest | Self::ResponseMean | Self::AnonymousMemory => {
                None
            }
        }
    }

    /// What is compared at a load point. The rate of an open loop is given, so its throughput is no
    /// effect; the latency of a closed loop is connections / throughput by identity.
    #[must_use]
    pub fn of(point: &LoadPoint) -> &'static [Self] {
        if point.is_steady() {
            &[
                Self::ResponseP50,
                Self::ResponseP90,
                Self::ResponseP99,
                Self::ResponseP999,
                Self::CpuPerRequest,
                Self::ResponseMean,
                Self::AnonymousMemory,
            ]
        } else {
            &[Self::Throughput, Self::CpuPerRequest, Self::AnonymousMemory]
        }
    }

    /// In words, for sentences: `p50`, `CPU per request`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResponseP50 => "p50",
            Self::ResponseP90 => "p90",
            Self::ResponseP99 => "p99",
            Self::ResponseP999 => "p99.9",
            Self::Throughput => "throughput",
            Self::CpuPerRequest => "CPU per request",
            Self::ResponseMean => "mean latency",
            Self::AnonymousMemory => "memory",
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

/// The paired difference between two candidates: how they are ranked. That the intervals of their
/// effects overlap, or do not, proves nothing either way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The one that comes first in the experiment.
    pub first: VariantId,
    /// Compared with it.
    pub second: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Of what.
    pub metric: Metric,
    /// The second relative to the first: 0.15 is 15 % more.
    pub relative: Option<Estimate>,
    /// Adjusted over all comparisons of the run; `None` without an interval.
    pub p_adjusted: Option<f64>,
    /// [`Verdict::Different`]: the adjusted p-value is below 0.05, and the difference exceeds the noise
    /// floor.
    pub verdict: Verdict,
    /// As [`Effect::longer_to_tell`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longer_to_tell: Option<f64>,
}

/// What a step of an [`Attribution`] adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Two more sockets and processes on the way, whatever they do: `limit-l4` minus `none`.
    Hop,
    /// What the proxy does with the bytes besides: parsing, routing, counting.
    Proxying,
    /// Mutual TLS.
    Encryption,
    /// A policy on the peer's identity.
    IdentityPolicy,
    /// A policy on the request.
    RequestPolicy,
}

/// One step: a paired difference between two variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What it adds; several where this run cannot take them apart.
    pub parts: Vec<Part>,
    /// The variant without it.
    pub from: VariantId,
    /// The variant with it.
    pub to: VariantId,
    /// In the metric's unit; `None` if not estimable.
    pub difference: Option<Estimate>,
}

/// Where what a data plane adds comes from: its steps, from no mesh to its highest level. Estimates of
/// means add up to the whole up to what noise leaves, since each step has its own pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Which data plane.
    pub data_plane: String,
    /// At which load point.
    pub load_point: LoadPointId,
    /// [`Metric::ResponseMean`] or [`Metric::CpuPerRequest`].
    pub metric: Metric,
    /// In their order.
    pub steps: Vec<Step>,
}

/// What the way through a gateway costs a variant: the same load from outside the mesh and from a pod in it, in the
/// same blocks. What the gateway itself used is in the account of [`Self::load_point`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngressCost {
    /// Whose.
    pub variant: VariantId,
    /// The load point by ingress.
    pub load_point: LoadPointId,
    /// The same load from a pod.
    pub from_pod: LoadPointId,
    /// CPU per request by ingress less that from a pod, of all in the path, in nanoseconds; `None`: too few blocks have
    /// a valid trial of both, or too many trials are invalid.
    pub difference: Option<Estimate>,
}

/// A known cost, as it is and as the run found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroundTruth {
    /// The variant that it was added to.
    pub variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// In which metric it shows.
    pub metric: Metric,
    /// What it is, in the metric's unit.
    pub truth: f64,
    /// What was found: the difference from the baselines, or the level itself ([`Self::of_level`]).
    pub found: Estimate,
    /// The truth is a level (a cap on the throughput), not a difference.
    #[serde(default)]
    pub of_level: bool,
}

impl GroundTruth {
    /// Whether the interval holds the truth; `None` without an interval.
    #[must_use]
    pub fn is_covered(&self) -> Option<bool> {
        let interval = self.found.interval?;
        Some(interval.low <= self.truth && self.truth <= interval.high)
    }
}

/// The smallest effect that a run of some length finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolvable {
    /// At which load point.
    pub load_point: LoadPointId,
    /// In what.
    pub metric: Metric,
    /// How long such a run takes, in nanoseconds.
    pub time_ns: u64,
    /// Rounds that it has.
    pub rounds: u32,
    /// Relative: 0.03 is 3 %.
    pub effect: f64,
}

/// What `meshtax calibrate` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// How often an effect of [`Self::resolvable`]'s size is found (0.9).
    pub power: f64,
    /// The smallest effects that runs of one candidate find on this machine.
    pub resolvable: Vec<Resolvable>,
    /// The run that it comes from; its [`Analysis::ground_truth`] has the known costs.
    pub analysis: Analysis,
}

/// How fast the machine was, by the speed probes around all trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Median of the probes, in nanoseconds.
    pub median_ns: f64,
    /// From the 5th to the 95th percentile of the probes, relative to the median (0.1 is 10 %).
    pub spread: f64,
    /// Median of the last third of the run against the first: 0.05 is 5 % slower.
    pub drift: f64,
}

/// How much instances differ, by the logarithm of a metric of the baseline and its control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpread {
    /// At which load point.
    pub load_point: LoadPointId,
    /// Of what.
    pub metric: Metric,
    /// Standard deviation between rounds, beyond what blocks of one round explain, relative; 0: none
    /// is seen. Without `within` the two cannot be told apart, and this is both.
    pub between: f64,
    /// Standard deviation between blocks of one round, relative; `None`: no round has two blocks.
    pub within: Option<f64>,
}

/// What else happened on the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NoiseFacts {
    /// Time that the hypervisor gave to others, as a share of the machine's.
    pub steal_share: Option<f64>,
    /// Time for which a limit on CPU kept our processes waiting, as a share of the trials' time.
    pub throttled_share: Option<f64>,
    /// Time in which something waited for memory, as a share of the windows.
    pub memory_pressure_share: Option<f64>,
    /// Processes that had no part in the run, with what they used as a share of one core over the
    /// trials; the busiest first, at most five. `None`: they could not be seen.
    pub others: Option<Vec<(String, f64)>>,
    /// How fast the machine was.
    pub speed: Option<Speed>,
    /// The lowest and the highest frequency seen, in kHz.
    pub frequency_khz: Option<[u64; 2]>,
    /// How much instances differ.
    pub instances: Vec<InstanceSpread>,
}

/// The level of one metric, not a difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Of what.
    pub metric: Metric,
    /// In the metric's unit; `None`: not resolved, see `reason`.
    pub value: Option<f64>,
    /// Of percentiles and throughput, over the rounds of this run; `None`: another metric, or fewer than six
    /// blocks. It speaks of this run: what moves a machine between runs is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
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
    /// The kernel's part of it, in nanoseconds per completed request: *sampled* on many kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_per_request_ns: Option<f64>,
    /// Times per completed request that its threads left a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches_per_request: Option<f64>,
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
    /// Interrupts, hard and soft, of the whole machine: *sampled* by the clock tick on many kernels, and
    /// there also in the account of whom they interrupted.
    #[serde(default)]
    pub interrupts_ns: u64,
    /// What the kernel's own threads used; `None` where they cannot be seen. Part of `unattributed_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_threads_ns: Option<u64>,
    /// Time in eBPF programs; `None` where the kernel does not tell. In the account of whoever ran them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bpf_ns: Option<u64>,
    /// What passed the pods' links, per completed request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkPerRequest>,
    /// Completed requests.
    pub requests: u64,
    /// By component, generator and meshtax itself included.
    pub components: Vec<ComponentCpu>,
}

/// Bytes per completed request on the links of one side's pods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkPerRequest {
    /// Whose pods.
    pub role: ComponentRole,
    /// Came in.
    pub received_bytes: f64,
    /// Went out.
    pub sent_bytes: f64,
}

/// CPU and memory of one role over the window, over all valid trials of a load point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleSeries {
    /// Whose.
    pub role: ComponentRole,
    /// Mean CPU in each step, as a share of one core.
    pub cores: Vec<f64>,
    /// Median anonymous memory at the end of each step, in bytes; empty where it was not read.
    pub anonymous_bytes: Vec<u64>,
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
    /// The most that was ever resident, file pages included.
    #[serde(default)]
    pub peak_bytes: u64,
    /// Anonymous pages once settled: the median over the second half of each round's trials.
    #[serde(default)]
    pub settled_bytes: u64,
    /// How fast anonymous pages grew within the windows, in bytes per second: median over the trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_s: Option<f64>,
}

/// Memory of a node: anonymous pages of all that stands on it, and one copy of each program's file pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// The client's node, with the proxies only, or one of the servers', with the application.
    pub node: Node,
    /// Which of the servers' nodes, counted from 0; 0 for the client's.
    #[serde(default, skip_serializing_if = "crate::trial::is_zero")]
    pub number: u32,
    /// Anonymous pages, in bytes.
    pub anonymous_bytes: u64,
    /// One copy of each program, in bytes.
    pub file_bytes: u64,
    /// Of them, those of the proxies' programs; `None`: it has no proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_file_bytes: Option<u64>,
}

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Node {
    /// Where the client stands.
    Client,
    /// Where the service stands; the waypoint stands on the first of these.
    Server,
}

/// A point of a percentile curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Which quantile (0.99 for the p99).
    pub quantile: f64,
    /// Response latency in nanoseconds.
    pub value_ns: f64,
    /// Of the percentiles that studies print, in nanoseconds, over the rounds of this run; `None`: a point of a curve,
    /// or fewer than six blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// One measured trial as a moment of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// When the trial began, counted from the run's begin, in nanoseconds.
    pub at_ns: u64,
    /// At which load point.
    pub load_point: LoadPointId,
    /// Whether it counts.
    pub valid: bool,
    /// Median response latency in nanoseconds; `None` in a closed loop, or without requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_p50_ns: Option<f64>,
    /// By role: the application and the proxies in the path.
    pub roles: Vec<RoleMoment>,
}

/// What the processes of one role used in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMoment {
    /// Whose.
    pub role: ComponentRole,
    /// CPU as a share of one core.
    pub cores: f64,
    /// Resident anonymous memory at the window's end, in bytes; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
}

/// What a group of processes used, as studies print it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Which processes.
    pub group: UsageGroup,
    /// CPUs in use, over the valid trials; over the steps of their windows where those last a second or more.
    pub cores: Extent,
    /// Anonymous pages of all processes and one copy of each program's file pages, in bytes, over the valid
    /// trials; `None` where it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<Extent>,
}

/// Processes that studies take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageGroup {
    /// The services and the proxies on their side: what stands in an application's namespace.
    Application,
    /// The proxy on the clients' side.
    ClientProxy,
    /// All of it.
    Path,
}

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub max: f64,
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
    /// Response latency over its quantiles, from merged histograms, up to where too few requests lie
    /// above; empty in a closed loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// The percentiles of response latency that studies print, in a closed loop as well, as far as they are resolved;
    /// empty where no study is followed. In a closed loop they say no more than the throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<CurvePoint>,
    /// The same percentiles of the time to the answer's first byte, from when the request was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_byte: Vec<CurvePoint>,
    /// The longest response latency in nanoseconds: of one request. `None` where no study is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
    /// CPU and memory as studies print them, by group of processes; empty where no study is followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
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
    /// The ends of the window's steps, in nanoseconds; empty where there are no series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series_ends_ns: Vec<u64>,
    /// CPU and memory over the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RoleSeries>,
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
    /// By node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeMemory>,
    /// Its trials in the order of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Moment>,
    /// Before its first request, and between requests.
    #[serde(default, skip_serializing_if = "Upkeep::is_empty")]
    pub upkeep: Upkeep,
}

/// What a variant takes before its first request and between requests: means over the rounds in which it was proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Upkeep {
    /// CPU of all its proxies together while another variant was measured, as a share of one core; `None`: it has none,
    /// or no other was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_cores: Option<Estimate>,
    /// From the start of its first process to the first request that was answered, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<Estimate>,
    /// The same beyond the mean of the baselines in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_start_ns: Option<Estimate>,
    /// From the first of its configuration that the control plane sent to when all of its proxies held all of it, in
    /// nanoseconds; `None`: they are not told of services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_ns: Option<Estimate>,
}

impl Upkeep {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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
    /// Every pair of candidates, of the primary metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// Where what each data plane adds comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribution: Vec<Attribution>,
    /// What the way through a gateway costs, where the run has the same load from a pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<IngressCost>,
    /// Known costs that were injected, and what was found of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ground_truth: Vec<GroundTruth>,
    /// What else happened on the machine.
    #[serde(default)]
    pub noise: NoiseFacts,
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
