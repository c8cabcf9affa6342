//! What somebody who has to choose asks of a run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use meshtax_model::advice::{Asked, Need, Objective, Priority};

use super::value;

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Directory of the run
    pub(crate) run: PathBuf,
    /// What must hold: 'p99<5ms@2000/s' (p50, p90, p99 or p99.9 of response latency at an offered rate), or
    /// 'throughput>5000/s' (saturated); again for another
    #[arg(long, value_name = "OBJECTIVE", value_parser = |t: &str| value(meshtax_spec::objective(t)))]
    pub(crate) slo: Vec<Objective>,
    /// Pods in the mesh
    #[arg(long, value_parser = |t: &str| counted("a number of pods", t))]
    pub(crate) pods: Option<u32>,
    /// Nodes, for proxies of which each node has one
    #[arg(long, value_parser = |t: &str| counted("a number of nodes", t))]
    pub(crate) nodes: Option<u32>,
    /// Requests of users per second over the whole cluster, e.g. 20000/s
    #[arg(long, value_name = "RATE", value_parser = |t: &str| value(meshtax_spec::rate_per_s(t)))]
    pub(crate) requests: Option<f64>,
    /// How often a user's request passes the mesh from one service to another, on average
    #[arg(long, default_value = "1", allow_negative_numbers = true, value_parser = |t: &str| value(meshtax_spec::hops(t)))]
    pub(crate) hops: f64,
    /// Or the services that call each other: a topology's name or file, whose calls are counted (see `meshtax
    /// topologies`)
    #[arg(long, value_name = "TOPOLOGY", conflicts_with = "hops")]
    pub(crate) topology: Option<String>,
    /// Price of a core for an hour
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = |t: &str| value(meshtax_spec::hourly_price(t)))]
    pub(crate) cpu_price: Option<f64>,
    /// Price of a GiB of memory for an hour
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true, value_parser = |t: &str| value(meshtax_spec::hourly_price(t)))]
    pub(crate) memory_price: Option<f64>,
    /// What matters most: performance, ease-of-installation, ease-of-maintenance, compliance, cost or support; again
    /// for another [default: all]
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::priority(t)))]
    pub(crate) priority: Vec<Priority>,
    /// What a mesh is wanted for: mtls, identity-policy, http-policy, http-metrics, request-balancing, retries or fips;
    /// again for another
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::need(t)))]
    pub(crate) need: Vec<Need>,
    /// The cluster's network plug-in
    #[arg(long, value_enum)]
    pub(crate) cni: Option<Cni>,
    /// Who runs the cluster
    #[arg(long, value_enum)]
    pub(crate) managed: Option<Managed>,
    /// Print the advice as JSON (docs/schema/advise-v1.json)
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
    /// Anybody else
    Other,
}

/// As it is typed.
fn name(typed: impl ValueEnum) -> Option<String> {
    let value = typed.to_possible_value()?;
    Some(value.get_name().to_owned())
}

fn counted(what: &str, text: &str) -> Result<u32, String> {
    const MOST: u32 = 10_000_000;
    value(meshtax_spec::count(text, what, 1, MOST))
}

impl AdviseArgs {
    /// What was asked; a need or a priority that was named twice counts once.
    pub(crate) fn asked(&self) -> Asked {
        let mut asked = Asked {
            objectives: self.slo.clone(),
            pods: self.pods,
            nodes: self.nodes,
            requests_per_s: self.requests,
            hops: self.hops,
            topology: None,
            cpu_price: self.cpu_price,
            memory_price: self.memory_price,
            priorities: Vec::new(),
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
