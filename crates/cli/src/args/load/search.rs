//! Several levels of load, one after the other.

use clap::Args;
use meshtax_stats::knee::Goal;

use super::values;

// Which levels.
#[derive(Debug, Args)]
#[command(next_help_heading = "Several levels")]
pub(crate) struct SearchArgs {
    /// Find the highest rate at which this holds, as in 'p99 < 5ms'; -q is the first rate
    /// [default: 1000], -z the shortest step [default: 1s]
    #[arg(long, value_name = "GOAL", conflicts_with_all = [
        "count", "ramp", "users", "replay", "think_time", "sweep", "sweep_connections", "output",
    ])]
    pub(crate) find_knee: Option<Goal>,
    /// How narrow the knee's interval is to be, in percent of its rate [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "find_knee")]
    pub(crate) precision: Option<f64>,
    /// Open loops with these rates, each for the duration, as in 100,1k,10k
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = values::per_second,
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

/// A share of one.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim().trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if (0.5..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("write percent from 0.5 to 100, as in 5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_a_share() {
        assert_eq!(percent("5"), Ok(0.05));
        assert_eq!(percent("2.5 %"), Ok(0.025));
        assert!(percent("0").is_err() && percent("NaN").is_err() && percent("x").is_err());
    }
}
