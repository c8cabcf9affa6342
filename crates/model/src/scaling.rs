//! Scaling laws: how a cost grows with what there is more of.

use serde::{Deserialize, Serialize};

use crate::analysis::Estimate;
use crate::experiment::VariantId;

/// What there is more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Pods of one service, each with its part of the mesh.
    Pods,
    /// Nodes over which the pods of one service are spread, whose number stays.
    Nodes,
    /// Services in a chain, each of which calls the next.
    Hops,
    /// Requests of clients in a second, to one service.
    Rates,
    /// Endpoints of further services, which every proxy knows of and nobody calls.
    Known,
    /// Endpoints of such services that are replaced by others, in a second.
    Churn,
}

/// What grows.
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
    /// From the first of its configuration that was sent to when every proxy held all of it, ns.
    PushTime,
    /// From the start of the first process to the first request that was answered, beyond that of no mesh, ns.
    AddedStart,
    /// Mean response latency that is added to no mesh, ns.
    AddedMeanLatency,
    /// CPU of applications and proxies that is added to no mesh, ns for each request of a client.
    AddedCpu,
}

/// Laws of one kind, from one run for each number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// What there is more of.
    pub over: Over,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// The call graph that was asked about, by its name; `None`: a number was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Ids of the runs, in the order of their numbers; the one that was left out of the fit last.
    pub runs: Vec<String>,
    /// For each variant that was measured with a mesh, each thing that grows.
    pub laws: Vec<Law>,
}

/// A straight line through what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// Whose.
    pub variant: VariantId,
    /// What grows.
    pub grows: Grows,
    /// What was measured: at how many, and how much.
    pub points: Vec<(u32, f64)>,
    /// The line; `None`: no line, for the reason.
    pub line: Option<Line>,
    /// Why there is no line.
    pub reason: Option<String>,
}

/// Least squares: `fixed + each x n`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What there is without any.
    pub fixed: Estimate,
    /// What each more adds.
    pub each: Estimate,
    /// What it says of a number that was asked for.
    pub predicted: Option<Prediction>,
}

/// What a line says of another number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Of how many; of a call graph it is a mean, and not the same for all that grows.
    pub at: f64,
    /// How much one measurement there is expected to be.
    pub value: Estimate,
    /// What the run of one says by itself: its figure, so many times. Of differences from no mesh alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_one: Option<Estimate>,
    /// What was measured there, and left out of the fit.
    pub measured: Option<f64>,
    /// Whether that lies in the interval.
    pub holds: Option<bool>,
}
