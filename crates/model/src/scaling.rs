//! Scaling laws: how a cost grows with a number.

use serde::{Deserialize, Serialize};

use crate::analysis::Estimate;
use crate::experiment::VariantId;

/// The number that is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Pods of one service, each with its share of the mesh.
    Pods,
    /// Nodes over which a constant number of pods of one service is spread.
    Nodes,
    /// Services in a chain, each of which calls the next.
    Hops,
    /// Requests of clients per second, to one service.
    Rates,
    /// Client pods that share a constant load to one service.
    Clients,
    /// Endpoints of further services in every proxy's configuration, which receive no requests.
    Endpoints,
    /// Replaced endpoints of such services, per second.
    Churn,
}

/// A figure that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grows {
    /// Anonymous memory of all proxies on the path, bytes.
    ProxyMemory,
    /// File pages of the proxies on the client's node, one copy of each program, bytes.
    NodePrograms,
    /// Anonymous memory of all proxies, and on each node one copy of each of their programs, bytes.
    NodesMemory,
    /// CPU of all proxies while another variant was measured, as a share of one core.
    IdleCpu,
    /// CPU of all proxies at the steady load, as a share of one core.
    ProxyCpu,
    /// Anonymous memory of the server's proxies, bytes.
    ServerProxyMemory,
    /// CPU of the server's proxies at the steady load, as a share of one core.
    ServerProxyCpu,
    /// From the first configuration that was sent until every proxy had acknowledged everything, ns.
    PushTime,
    /// From the start of the first process to the first successful response, minus that of no mesh, ns.
    AddedStart,
    /// Mean response latency added to no mesh, ns.
    AddedMeanLatency,
    /// CPU of applications and proxies added to no mesh, ns per client request.
    AddedCpu,
}

/// Laws of one kind, from one run for each number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// The number that is varied.
    pub over: Over,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// The name of the requested call graph; `None`: a number was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Ids of the runs, in the order of their numbers; the one excluded from the fit last.
    pub runs: Vec<String>,
    /// The builds of the variants' programs, each once; empty: no run recorded any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ScaledProgram>,
    /// One law per variant with a mesh and figure.
    pub laws: Vec<Law>,
}

/// A program of a variant whose costs are fitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaledProgram {
    /// The usual name of its file: `envoy`.
    pub program: String,
    /// As the program reports it.
    pub version: String,
    /// Hash of the file, in hexadecimal.
    pub sha256: String,
}

/// A straight line through the measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// The variant.
    pub variant: VariantId,
    /// The figure.
    pub grows: Grows,
    /// The measurements: number and value.
    pub points: Vec<(u32, f64)>,
    /// The line; `None`: there is none, see `reason`.
    pub line: Option<Line>,
    /// Why there is no line.
    pub reason: Option<NoLine>,
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum NoLine {
    /// Too few runs have a figure.
    FewRuns {
        /// Runs with a figure.
        runs: u32,
        /// All runs.
        of: u32,
        /// How many are needed.
        needed: u32,
    },
    /// All runs have the same number.
    OneNumber,
}

/// Least squares: `fixed + each x n`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The value at zero.
    pub fixed: Estimate,
    /// The increase per unit.
    pub each: Estimate,
    /// p-value of "the relation is a straight line": how often runs on a line would seem as curved. `None`: fewer than four
    /// runs.
    pub lack_of_fit: Option<f64>,
    /// The prediction for the requested number.
    pub predicted: Option<Prediction>,
}

/// Why a prediction has no interval: the residuals of a line describe only what it was fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoInterval {
    /// The number is outside the measured range.
    OutsideRange,
    /// It is for a call graph, and the runs are chains.
    CallGraph,
    /// The runs are not on a line.
    NotALine,
}

/// The prediction of a line for another number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The number; for a call graph it is a mean, which depends on the figure.
    pub at: f64,
    /// The predicted value of a single measurement.
    pub value: Estimate,
    /// Why `value` has no interval; `None`: it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<NoInterval>,
    /// The error of the same kind of extrapolation: the outermost run relative to what the others predict for it (0.05: 5 %
    /// more). `None`: within the measured range, a call graph, or fewer than four runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out_error: Option<f64>,
    /// Extrapolation from the run of one: its figure, multiplied. Only for differences from no mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_one: Option<f64>,
    /// The measurement at this number, which was excluded from the fit.
    pub measured: Option<f64>,
    /// Whether the interval contains that measurement; `None` without one.
    pub holds: Option<bool>,
}
