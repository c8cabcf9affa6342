//! The arguments of `meshtax load` for several levels of load in sequence.

use clap::Args;
use meshtax_model::LatencyGoal;

// Which levels.
#[derive(Debug, Args)]
#[command(next_help_heading = "Several levels")]
pub(crate) struct SearchArgs {
    /// Find the highest rate that meets this goal, as in 'p99 < 5ms'; -q is the first rate
    /// [default: 1000], -z the shortest step [default: 1s]
    #[arg(long, value_name = "GOAL", value_parser = meshtax_spec::latency_goal, conflicts_with_all = [
        "count", "ramp", "users", "replay", "think_time", "sweep", "sweep_connections", "output",
    ])]
    pub(crate) find_knee: Option<LatencyGoal>,
    /// Width of the knee's interval, in percent of its rate [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = meshtax_spec::percent, requires = "find_knee")]
    pub(crate) precision: Option<f64>,
    /// Open loops at these rates, each for the duration, as in 100,1k,10k
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = meshtax_spec::unbounded_rate_per_s,
        conflicts_with_all = [
            "count", "rate", "ramp", "users", "replay", "think_time", "sweep_connections", "output",
        ])]
    pub(crate) sweep: Vec<f64>,
    /// Closed loops with these numbers of connections, each for the duration, as in 1,2,4,8
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with_all = [
        "count", "connections", "rate", "ramp", "users", "replay", "output",
    ])]
    pub(crate) sweep_connections: Vec<u32>,
}

impl SearchArgs {
    /// Whether the levels are open loops.
    pub(crate) fn is_open(&self) -> bool {
        self.find_knee.is_some() || !self.sweep.is_empty()
    }
}
