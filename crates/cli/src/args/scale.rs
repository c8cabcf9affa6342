//! The arguments of `meshtax scale`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use meshtax_model::experiment::PolicyLevel;
use meshtax_model::scaling::Over;
use meshtax_spec::ValueError;

use super::ProgramArgs;

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// Quantity to vary
    #[arg(value_enum)]
    pub(crate) over: OverName,
    /// Numbers to measure, one run each [default: pods 1,10,50,90; nodes 1,2,4,8; hops 1,2,3,5; rates
    /// 50,200,400,800; clients 1,2,3,6; endpoints 1,100,1000,5000; churn 1,20,50,100]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = number)]
    pub(crate) at: Vec<u32>,
    /// Predict this number [default: pods 150, nodes 16, hops 8, rates 600, clients 4, endpoints 2500,
    /// churn 75]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) predict: Option<u32>,
    /// For `hops`: predict a topology from the lines fitted to chains; a name or a file
    #[arg(long = "for", value_name = "TOPOLOGY", conflicts_with = "predict")]
    pub(crate) topology: Option<String>,
    /// Also measure the predicted number or topology, and compare
    #[arg(long)]
    pub(crate) check: bool,
    /// For `nodes`: number of pods in all runs [default: two per node at the largest number]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) pods: Option<u32>,
    /// Data plane (see `meshtax dataplanes`)
    #[arg(long, value_name = "NAME", default_value = "envoy-sidecar")]
    pub(crate) data_plane: String,
    /// Policy level
    #[arg(long, value_name = "LEVEL", default_value = "mtls", value_parser = meshtax_spec::policy_level)]
    pub(crate) level: PolicyLevel,
    /// Offered rate in requests per second, except for `rates` [default: 50]
    #[arg(long, value_parser = meshtax_spec::rate_per_s)]
    pub(crate) rate: Option<f64>,
    /// Extra endpoints per service, for `endpoints` and `churn`
    #[arg(long, value_name = "N", default_value_t = meshtax_spec::PER_SERVICE, value_parser = meshtax_spec::per_service)]
    pub(crate) endpoints_per_service: u32,
    /// Extra endpoints, for `churn`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number)]
    pub(crate) endpoints: u32,
    /// Time limit of each run, e.g. 1m [default: 30s, hops 1m]
    #[arg(long, value_parser = meshtax_spec::time_limit_ns)]
    pub(crate) time: Option<u64>,
    /// Parent directory of the run directories [default: meshtax-runs]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the trial order and the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the fitted lines as JSON (docs/schema/scale-v2.json)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverName {
    /// Pods behind one service: memory of the proxies
    Pods,
    /// Nodes over which the pods of a service are distributed: memory of the proxies
    Nodes,
    /// Services in a chain: added latency and CPU
    Hops,
    /// Offered rates: CPU of the proxies
    Rates,
    /// Client pods, each with its own proxy, that share a load: memory and CPU of the server's proxy
    Clients,
    /// Extra endpoints in the proxies' configuration: memory, CPU, push time, start time
    Endpoints,
    /// Extra endpoints that change per second: CPU of the proxies
    Churn,
}

impl OverName {
    pub(crate) fn over(self) -> Over {
        match self {
            Self::Pods => Over::Pods,
            Self::Nodes => Over::Nodes,
            Self::Hops => Over::Hops,
            Self::Rates => Over::Rates,
            Self::Clients => Over::Clients,
            Self::Endpoints => Over::Endpoints,
            Self::Churn => Over::Churn,
        }
    }
}

fn number(text: &str) -> Result<u32, ValueError> {
    meshtax_spec::count(text, "a number", 1, 100_000)
}
