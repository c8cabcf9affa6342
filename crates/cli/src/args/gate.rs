//! Comparing runs, and holding a change against limits.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use meshtax_model::comparison::Limit;

use super::{ProgramArgs, value};

/// Two sides of runs on disk.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Directory of the run that is compared with
    #[arg(value_name = "BASE")]
    pub(crate) base_run: Option<PathBuf>,
    /// Directory of the run that is compared
    #[arg(value_name = "NEW", requires = "base_run")]
    pub(crate) new_run: Option<PathBuf>,
    /// One more run of BASE; several runs a side show what runs differ by
    #[arg(long, value_name = "DIR")]
    pub(crate) base: Vec<PathBuf>,
    /// One more run of NEW
    #[arg(long, value_name = "DIR")]
    pub(crate) new: Vec<PathBuf>,
    /// What runs differ by without any change, e.g. 3% [default: by metric, 1 to 5%: docs/method.md]
    #[arg(long, value_name = "SHARE", value_parser = |t: &str| value(meshtax_spec::between(t)))]
    pub(crate) between: Option<f64>,
    /// BASE's variant A and NEW's variant B belong together although their ids differ; again for another
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
    /// Form of the comparison
    #[arg(long, value_enum, default_value_t = CompareFormat::Terminal)]
    pub(crate) format: CompareFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// Tables for a terminal
    Terminal,
    /// A self-contained page
    Html,
    /// Tables for a comment
    Markdown,
    /// Everything, with a schema (docs/schema/compare-v1.json)
    Json,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("interleaved").args(["a", "b"]).multiple(true)
    .conflicts_with_all(["base_run", "new_run", "base", "new", "between"]))]
pub(crate) struct GateArgs {
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    /// How much worse a metric may get: '[VARIANT:] METRIC +LIMIT [at LOAD]', as in 'p99 +5%', 'throughput -5%'
    /// or 'envoy-sidecar-l7: cpu +20us at steady'; metrics: p50, p90, p99, p99.9, mean, throughput, cpu, memory;
    /// again for another
    #[arg(long, value_name = "LIMIT", required = true, allow_hyphen_values = true,
        value_parser = |t: &str| value(meshtax_spec::limit(t)))]
    pub(crate) max: Vec<Limit>,
    /// Measure this spec's variants as BASE, interleaved with those of --b in one run
    #[arg(long, value_name = "SPEC", requires = "b")]
    pub(crate) a: Option<PathBuf>,
    /// Measure this spec's variants as NEW
    #[arg(long, value_name = "SPEC", requires = "a")]
    pub(crate) b: Option<PathBuf>,
    /// With --a and --b: time that the run may take, e.g. 5m [default: the specs']
    #[arg(long, requires = "interleaved", value_parser = |t: &str| value(meshtax_spec::time_limit_ns(t)))]
    pub(crate) time: Option<u64>,
    /// With --a and --b: stop when the primary intervals are narrower than this, e.g. 2%
    #[arg(long, requires = "interleaved", value_parser = |t: &str| value(meshtax_spec::precision(t)))]
    pub(crate) precision: Option<f64>,
    /// With --a and --b: seed of the order and of the arrivals [default: random]
    #[arg(long, requires = "interleaved")]
    pub(crate) seed: Option<u64>,
    /// With --a and --b: directory of the run [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR", requires = "interleaved")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the verdict and its figures as JSON (docs/schema/gate-v1.json)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the checks as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write the verdict and its tables as Markdown, for a comment or a job's summary
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Print annotations for GitHub Actions [default: if GITHUB_ACTIONS is true]
    #[arg(long)]
    pub(crate) github: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    match pair.map(|(a, b)| (a.trim(), b.trim())) {
        Some((a, b)) if !a.is_empty() && !b.is_empty() => Ok((a.to_owned(), b.to_owned())),
        _ => Err("write it as BASE-VARIANT=NEW-VARIANT".to_owned()),
    }
}
