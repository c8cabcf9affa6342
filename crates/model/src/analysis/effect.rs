//! Effects, and what is derived from paired differences.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, Metric};
use super::outcome::Overload;
use super::reason::NotEstimable;
use crate::experiment::{LoadPointId, VariantId};

/// The verdict on an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum Verdict {
    /// The adjusted interval excludes zero and the effect exceeds the noise floor.
    Different,
    /// Inconclusive: neither a difference nor its absence is shown.
    Inconclusive,
    /// No relevant difference: two one-sided tests put it inside the margin, and so is the noise floor.
    Equivalent,
    /// The variant did not carry the load that the baselines carried. Its figures are those of an overload.
    Overloaded(Overload),
    /// No figure can be given.
    NotEstimable {
        /// Why.
        reason: NotEstimable,
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
    /// Whether requests without a good response are missing from the variant's latencies, or a queue was still growing when
    /// windows ended, and the baselines' are complete: then `difference` and `relative` are lower bounds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// Two-sided p-value, unadjusted; `None` without an interval.
    pub p_value: Option<f64>,
    /// Holm-adjusted p-value; `None` outside the primary family.
    pub p_adjusted: Option<f64>,
    /// Whether it belongs to the primary family.
    pub primary: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// How many times as long a run needs to be to detect an effect of this size, if its size and its
    /// spread stay the same; `None`: it is detected already, or too small for any run.
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
    /// The first of the two in the experiment's order.
    pub first: VariantId,
    /// The variant that is compared with it.
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
    /// Why the verdict is less than `relative` suggests: [`Verdict::Inconclusive`] in place of a difference or its absence;
    /// or [`Verdict::Different`], of which it is not claimed that it is within the margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
}

/// Why a verdict that the figures alone support is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Withheld {
    /// Requests are missing from the latencies of the side that looks better, or of one of two that look equal.
    LowerBound,
    /// The difference that includes CPU outside the path has the other sign, or is not shown to be within the margin.
    CpuElsewhere,
}

/// The largest absolute end of the A/A pair's interval: differences below it are not declared.
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

/// What a step of an [`Attribution`] adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttributionPart {
    /// Two more sockets and processes in the path, regardless of what they do: `limit-l4` minus `none`.
    Hop,
    /// Further processing in the proxy: parsing, routing, counting.
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
pub struct AttributionStep {
    /// What it adds; several components if this run cannot separate them.
    pub parts: Vec<AttributionPart>,
    /// The variant without it.
    pub from: VariantId,
    /// The variant with it.
    pub to: VariantId,
    /// In the metric's unit; `None` if not estimable.
    pub difference: Option<Estimate>,
}

/// The components of a data plane's overhead: its steps, from no mesh to its highest level. Estimates of
/// means add up to the whole except for noise, since each step has its own pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Which data plane.
    pub data_plane: String,
    /// At which load point.
    pub load_point: LoadPointId,
    /// [`Metric::ResponseMean`] or [`Metric::CpuPerRequest`].
    pub metric: Metric,
    /// In their order.
    pub steps: Vec<AttributionStep>,
}

/// The cost of ingress through a gateway for a variant: the same load from outside the mesh and from a pod in it, in
/// the same blocks. The gateway's own usage is in the account of [`Self::load_point`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IngressCost {
    /// The variant.
    pub variant: VariantId,
    /// The load point with ingress.
    pub load_point: LoadPointId,
    /// The same load from a pod.
    pub from_pod: LoadPointId,
    /// CPU per request with ingress minus that from a pod, of all processes in the path, in nanoseconds; `None`: too
    /// few blocks have a valid trial of both, or too many trials are invalid.
    pub difference: Option<Estimate>,
}

/// A known cost: injected and measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroundTruth {
    /// The variant that it was added to.
    pub variant: VariantId,
    /// At which load point.
    pub load_point: LoadPointId,
    /// The metric that it affects.
    pub metric: Metric,
    /// The injected value, in the metric's unit.
    pub truth: f64,
    /// The measured value: the difference from the baselines, or the level itself ([`Self::of_level`]).
    pub found: Estimate,
    /// The injected value is a level (a throughput cap), not a difference.
    #[serde(default)]
    pub of_level: bool,
}

impl GroundTruth {
    /// Whether the interval contains the injected value; `None` without an interval.
    #[must_use]
    pub fn is_covered(&self) -> Option<bool> {
        let interval = self.found.interval?;
        Some(interval.low <= self.truth && self.truth <= interval.high)
    }
}
