//! How costs grow.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use meshtax_model::experiment::PolicyLevel;
use meshtax_model::scaling::Over;

use super::{ProgramArgs, value};

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// What there is more of
    #[arg(value_enum)]
    pub(crate) over: OverName,
    /// How many, one run for each [default: pods 1,10,50,90; nodes 1,2,4,8; hops 1,2,3,5; rates
    /// 50,200,400,800; known 1,100,1000,5000; churn 1,20,50,100]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = number)]
    pub(crate) at: Vec<u32>,
    /// Say what the law expects of so many [default: pods 150, nodes 16, hops 8, rates 600, known 2500, churn
    /// 75]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) predict: Option<u32>,
    /// Say what the laws over hops expect of services that call each other: a topology's name or file
    #[arg(long = "for", value_name = "TOPOLOGY", conflicts_with = "predict")]
    pub(crate) topology: Option<String>,
    /// Measure that number or topology, too, and hold the prediction against it
    #[arg(long)]
    pub(crate) check: bool,
    /// Pods that are spread, for `nodes` [default: two for each node of the largest number measured]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) pods: Option<u32>,
    /// What the proxies are (see `meshtax dataplanes`)
    #[arg(long, value_name = "NAME", default_value = "envoy-sidecar")]
    pub(crate) data_plane: String,
    /// Its policy level
    #[arg(long, value_name = "LEVEL", default_value = "mtls", value_parser = |t: &str| value(meshtax_spec::policy_level(t)))]
    pub(crate) level: PolicyLevel,
    /// Requests of clients in a second, not for `rates` [default: 50]
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::rate_per_s(t)))]
    pub(crate) rate: Option<f64>,
    /// Endpoints of each service that proxies know, for `known` and `churn`
    #[arg(long, value_name = "N", default_value_t = meshtax_spec::PER_SERVICE, value_parser = |t: &str| value(meshtax_spec::per_service(t)))]
    pub(crate) endpoints_per_service: u32,
    /// Endpoints that proxies know, for `churn`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = number)]
    pub(crate) endpoints: u32,
    /// Time that each run may take, e.g. 1m [default: 30s, hops 1m]
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::time_limit_ns(t)))]
    pub(crate) time: Option<u64>,
    /// Directory of the runs, a directory each [default: meshtax-runs/<id> each]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the order and of the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the laws as JSON (docs/schema/scale-v1.json)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverName {
    /// Pods behind one service: memory of the proxies
    Pods,
    /// Nodes over which a service's pods are spread: memory of the proxies and their programs
    Nodes,
    /// Services in a chain: added latency and CPU
    Hops,
    /// Requests of clients in a second: CPU of the proxies
    Rates,
    /// Endpoints that proxies know and nobody calls: memory, CPU, time to tell them
    Known,
    /// Such endpoints that change in a second: CPU of the proxies
    Churn,
}

impl OverName {
    pub(crate) fn over(self) -> Over {
        match self {
            Self::Pods => Over::Pods,
            Self::Nodes => Over::Nodes,
            Self::Hops => Over::Hops,
            Self::Rates => Over::Rates,
            Self::Known => Over::Known,
            Self::Churn => Over::Churn,
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    value(meshtax_spec::count(text, "a number", 1, 100_000))
}
