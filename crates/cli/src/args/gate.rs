//! The arguments of `meshtax compare` and `meshtax gate`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use meshtax_model::comparison::Limit;
use meshtax_spec::ValueError;

use super::ProgramArgs;

/// The stored runs of both sides.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Run directory of the reference
    #[arg(value_name = "BASE")]
    pub(crate) base_run: Option<PathBuf>,
    /// Run directory of the change
    #[arg(value_name = "NEW", requires = "base_run")]
    pub(crate) new_run: Option<PathBuf>,
    /// Additional run of BASE; several runs per side measure the variation between runs
    #[arg(long, value_name = "DIR")]
    pub(crate) base: Vec<PathBuf>,
    /// Additional run of NEW
    #[arg(long, value_name = "DIR")]
    pub(crate) new: Vec<PathBuf>,
    /// Variation to expect between runs without any change, e.g. 3% [default: 1 to 5% by metric, see docs/method.md]
    #[arg(long, value_name = "SHARE", value_parser = meshtax_spec::between)]
    pub(crate) between: Option<f64>,
    /// Compare BASE's variant A with NEW's variant B, whose ids differ; repeatable
    #[arg(long, value_name = "A=B", value_parser = pair)]
    pub(crate) pair: Vec<(String, String)>,
}

impl RunsArgs {
    /// The directories of both sides, the positional ones first.
    pub(crate) fn sides(&self) -> [Vec<PathBuf>; 2] {
        let side =
            |first: &Option<PathBuf>, more: &[PathBuf]| first.iter().chain(more).cloned().collect();
        [
            side(&self.base_run, &self.base),
            side(&self.new_run, &self.new),
        ]
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Format of the comparison
    #[arg(long, value_enum, default_value_t = CompareFormat::Terminal)]
    pub(crate) format: CompareFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Tables for a terminal
    Terminal,
    /// A self-contained page
    Html,
    /// Markdown tables
    Markdown,
    /// The whole comparison, with a schema (docs/schema/compare-v2.json)
    Json,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("interleaved").args(["a", "b"]).multiple(true)
    .conflicts_with_all(["base_run", "new_run", "base", "new", "between"]))]
pub(crate) struct GateArgs {
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// Limit on a change: '[VARIANT:] METRIC +LIMIT [at LOAD]', as in 'p99 +5%', 'throughput -5%' or
    /// 'envoy-sidecar-l7: cpu +20us at steady'; metrics: p50, p90, p99, p99.9, mean, throughput, cpu, memory;
    /// repeatable
    #[arg(long, value_name = "LIMIT", required = true, allow_hyphen_values = true,
        value_parser = meshtax_spec::limit)]
    pub(crate) max: Vec<Limit>,
    /// Measure this spec's variants as BASE, interleaved with those of --b in one run
    #[arg(long, value_name = "SPEC", requires = "b")]
    pub(crate) a: Option<PathBuf>,
    /// Measure this spec's variants as NEW
    #[arg(long, value_name = "SPEC", requires = "a")]
    pub(crate) b: Option<PathBuf>,
    /// With --a and --b: time limit of the run, e.g. 5m [default: the specs']
    #[arg(long, requires = "interleaved", value_parser = meshtax_spec::time_limit_ns)]
    pub(crate) time: Option<u64>,
    /// With --a and --b: stop when all primary intervals are within ± this share, e.g. 2%
    #[arg(long, requires = "interleaved", value_parser = meshtax_spec::precision)]
    pub(crate) precision: Option<f64>,
    /// With --a and --b: seed of the trial order and the arrivals [default: random]
    #[arg(long, requires = "interleaved")]
    pub(crate) seed: Option<u64>,
    /// With --a and --b: run directory [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR", requires = "interleaved")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the verdict and its figures as JSON (docs/schema/gate-v2.json)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the checks as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write the verdict and its tables as Markdown, for a pull request comment or a job summary
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Print GitHub Actions annotations [default: if GITHUB_ACTIONS is true]
    #[arg(long)]
    pub(crate) github: bool,
}

fn pair(text: &str) -> Result<(String, String), ValueError> {
    let pair = text.split_once('=');
    match pair.map(|(a, b)| (a.trim(), b.trim())) {
        Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.to_owned(), b.to_owned())),
        _ => Err(ValueError::new(
            format!("`{text}` is not a pair"),
            "write it as BASE-VARIANT=NEW-VARIANT",
        )),
    }
}
