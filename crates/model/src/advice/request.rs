//! The request of `meshtax advise`.

use serde::{Deserialize, Serialize};

use crate::analysis::{Metric, Weight};
use crate::requirement::{Need, Priority};

/// An objective at some load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// As typed.
    pub text: String,
    /// The metric: a percentile, or the throughput.
    pub metric: Metric,
    /// In the metric's unit (ns, or requests per second): upper bound for latency, lower bound for throughput.
    pub bound: f64,
    /// Offered requests per second, open loop; `None`: saturated.
    pub rate_per_s: Option<f64>,
}

/// The request of `meshtax advise`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdviceRequest {
    /// The objectives.
    pub objectives: Vec<Objective>,
    /// Pods in the mesh.
    pub pods: Option<u32>,
    /// Nodes, for data planes with one proxy per node.
    pub nodes: Option<u32>,
    /// Requests of users per second, over the whole cluster.
    pub requests_per_s: Option<f64>,
    /// Mean number of hops between services in the mesh per user request.
    pub hops: f64,
    /// The call graph from which the hops were derived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// Price of a core-hour, in a currency of the user's choice.
    pub cpu_price: Option<f64>,
    /// Price of a GiB-hour.
    pub memory_price: Option<f64>,
    /// The priorities, most important first; empty: all are reported.
    pub priorities: Vec<Priority>,
    /// How much each requirement counts in the decision table; empty: no row is weighted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<Weight>,
    /// The needs.
    pub needs: Vec<Need>,
    /// The cluster's network plug-in.
    pub cni: Option<String>,
    /// The operator of the cluster.
    pub managed: Option<String>,
}

impl Default for AdviceRequest {
    /// A request without details.
    fn default() -> Self {
        Self {
            objectives: Vec::new(),
            pods: None,
            nodes: None,
            requests_per_s: None,
            hops: 1.0,
            topology: None,
            cpu_price: None,
            memory_price: None,
            priorities: Vec::new(),
            weights: Vec::new(),
            needs: Vec::new(),
            cni: None,
            managed: None,
        }
    }
}

impl AdviceRequest {
    /// Whether there is a need that a run can measure.
    #[must_use]
    pub fn has_needs(&self) -> bool {
        self.needs.iter().any(|need| *need != Need::Fips)
    }
}

/// A preset and the steady rates that it measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PresetRates {
    /// Its name.
    pub name: String,
    /// Offered requests per second of its open loops.
    pub rates_per_s: Vec<f64>,
}
