//! The arguments of `meshtax advise`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use meshtax_model::advice::{AdviceRequest, Need, Objective, Priority};
use meshtax_model::analysis::Weight;
use meshtax_spec::ValueError;

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Run directory
    pub(crate) run: PathBuf,
    /// Objective: 'p99<5ms@2000/s' (p50, p90, p99 or p99.9 of response latency at an offered rate), or
    /// 'throughput>5000/s' (saturated); repeatable
    #[arg(long, value_name = "OBJECTIVE", value_parser = meshtax_spec::objective)]
    pub(crate) slo: Vec<Objective>,
    /// Pods in the mesh
    #[arg(long, value_parser = |t: &str| counted("a number of pods", t))]
    pub(crate) pods: Option<u32>,
    /// Nodes, for meshes with a proxy on each node
    #[arg(long, value_parser = |t: &str| counted("a number of nodes", t))]
    pub(crate) nodes: Option<u32>,
    /// User requests per second in the whole cluster, e.g. 20000/s
    #[arg(long, value_name = "RATE", value_parser = meshtax_spec::rate_per_s)]
    pub(crate) requests: Option<f64>,
    /// Mean number of service-to-service hops through the mesh per user request
    #[arg(long, default_value = "1", allow_negative_numbers = true, value_parser = meshtax_spec::hops)]
    pub(crate) hops: f64,
    /// Topology whose number of calls is used instead of --hops: a name or a file (see `meshtax topologies`)
    #[arg(long, value_name = "TOPOLOGY", conflicts_with = "hops")]
    pub(crate) topology: Option<String>,
    /// Price of a core per hour
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = meshtax_spec::hourly_price)]
    pub(crate) cpu_price: Option<f64>,
    /// Price of a GiB of memory per hour
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = meshtax_spec::hourly_price)]
    pub(crate) memory_price: Option<f64>,
    /// Priority: performance, ease-of-installation, ease-of-maintenance, compliance, cost or support; repeatable
    /// [default: all]
    #[arg(long, value_parser = meshtax_spec::priority)]
    pub(crate) priority: Vec<Priority>,
    /// Weight of a requirement in the decision table, e.g. performance=3; repeatable
    #[arg(long, value_name = "REQUIREMENT=WEIGHT", value_parser = meshtax_spec::weight)]
    pub(crate) weight: Vec<Weight>,
    /// Feature that the mesh must provide: mtls, identity-policy, http-policy, http-metrics, request-balancing, retries or
    /// fips; repeatable
    #[arg(long, value_parser = meshtax_spec::need)]
    pub(crate) need: Vec<Need>,
    /// CNI plugin of the cluster
    #[arg(long, value_enum)]
    pub(crate) cni: Option<Cni>,
    /// Provider of the managed cluster
    #[arg(long, value_enum)]
    pub(crate) managed: Option<Managed>,
    /// Print the advice as JSON (docs/schema/advise-v2.json)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cni {
    /// Cilium
    Cilium,
    /// Any other
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Managed {
    /// Amazon
    Eks,
    /// Google
    Gke,
    /// Microsoft
    Aks,
    /// Red Hat
    Openshift,
    /// Any other, or self-managed
    Other,
}

/// The last weight of each requirement.
pub(crate) fn last_weights(typed: &[Weight]) -> Vec<Weight> {
    let mut weights: Vec<Weight> = Vec::new();
    for weight in typed {
        weights.retain(|known| known.requirement != weight.requirement);
        weights.push(*weight);
    }
    weights
}

/// The name as typed.
fn name(typed: impl ValueEnum) -> Option<String> {
    let value = typed.to_possible_value()?;
    Some(value.get_name().to_owned())
}

fn counted(what: &str, text: &str) -> Result<u32, ValueError> {
    const MAX: u32 = 10_000_000;
    meshtax_spec::count(text, what, 1, MAX)
}

impl AdviseArgs {
    /// The question; a need or a priority that is given twice counts once.
    pub(crate) fn asked(&self) -> AdviceRequest {
        let mut asked = AdviceRequest {
            objectives: self.slo.clone(),
            pods: self.pods,
            nodes: self.nodes,
            requests_per_s: self.requests,
            hops: self.hops,
            topology: None,
            cpu_price: self.cpu_price,
            memory_price: self.memory_price,
            priorities: Vec::new(),
            weights: last_weights(&self.weight),
            needs: Vec::new(),
            cni: self.cni.and_then(name),
            managed: self.managed.and_then(name),
        };
        for priority in &self.priority {
            if !asked.priorities.contains(priority) {
                asked.priorities.push(*priority);
            }
        }
        for need in &self.need {
            if !asked.needs.contains(need) {
                asked.needs.push(*need);
            }
        }
        asked
    }
}
