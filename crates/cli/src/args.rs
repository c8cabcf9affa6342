//! The command line as typed. The commands interpret it.

mod advise;
mod gate;
mod image;
mod kubernetes;
pub(crate) mod load;
mod mesh;
mod prometheus;
mod scale;
mod serve;
mod upgrade;
mod worker;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use meshtax_artifacts::Registries;
use meshtax_dataplane::Sabotage;
use meshtax_model::analysis::Weight;
use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{Ingress, Inject, VariantId};
use meshtax_spec::ValueError;
use serde::Deserialize as _;
use serde::de::value::StrDeserializer;

pub(crate) use advise::{AdviseArgs, last_weights};
pub(crate) use gate::{CompareArgs, CompareFormat, GateArgs, RunsArgs};
pub(crate) use image::{BuildArgs, ImageAction, ImageArgs, PushArgs};
pub(crate) use kubernetes::{CleanupArgs, KubernetesArgs};
pub(crate) use load::LoadArgs;
pub(crate) use mesh::{ChangeArgs, ChoiceArgs, ClusterArgs, MeshAction, MeshArgs};
pub(crate) use prometheus::PrometheusArgs;
pub(crate) use scale::{OverName, ScaleArgs};
pub(crate) use serve::ServeArgs;
pub(crate) use upgrade::UpgradeArgs;
pub(crate) use worker::{FleetArgs, WorkerArgs, Workers};

/// Measures what a service mesh costs your traffic, what it provides, and how certain that is.
#[derive(Debug, Parser)]
#[command(name = "meshtax", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment and report it (the preset `quick` if none is named)
    Run(Box<RunArgs>),
    /// Measure known costs, and report the smallest effect that a run on this machine can detect
    Calibrate(CalibrateArgs),
    /// Report a stored run
    Report(ReportArgs),
    /// Compare two runs: their setups, and their overheads against each run's own baselines
    Compare(CompareArgs),
    /// Check a change against limits, for a pipeline: pass (0), fail (20) or inconclusive (21)
    Gate(Box<GateArgs>),
    /// Advise from a run: which variants meet objectives, what they cost per month, and how they rank
    Advise(Box<AdviseArgs>),
    /// Generate load and report latency
    Load(Box<LoadArgs>),
    /// Run a load generator for `meshtax load --workers` on another machine
    Worker(WorkerArgs),
    /// Serve the test application
    Serve(ServeArgs),
    /// List the presets, or print one
    Presets(PresetsArgs),
    /// Measure how costs scale with pods, nodes, hops, rates, clients or endpoints, with one run for each number
    Scale(Box<ScaleArgs>),
    /// List the topologies (services that call each other), or show one
    Topologies(TopologiesArgs),
    /// List the data planes and their programs, download a program, or print what would run
    Dataplanes(DataplanesArgs),
    /// Build meshtax's own container image without Docker, or push it to a registry
    Image(ImageArgs),
    /// List published results, or show one with its environment and its faults
    Published(PublishedArgs),
    /// Check, install and remove meshes on a cluster, and list facts about each
    Mesh(Box<MeshArgs>),
    /// Check what this machine supports, with a fix for each missing feature
    Doctor(DoctorArgs),
    /// Remove objects that killed runs left on a cluster
    Cleanup(CleanupArgs),
    /// Processes of a run
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        part: InternalPart,
    },
}

/// Options that define a new run: `--resume` takes them from the interrupted one.
const OF_A_NEW_RUN: [&str; 19] = [
    "spec",
    "preset",
    "topology",
    "clients",
    "ingress",
    "fast_application",
    "engine",
    "out",
    "time",
    "precision",
    "faithful",
    "seed",
    "inject",
    "workers",
    "from",
    "to",
    "nodes",
    "dry_run",
    "sabotage",
];

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Experiment to run: a YAML file
    #[arg(conflicts_with = "preset")]
    pub(crate) spec: Option<PathBuf>,
    /// Experiment to run: a preset (see `meshtax presets`) [default: quick]
    #[arg(long)]
    pub(crate) preset: Option<String>,
    /// Continue an interrupted run, with its experiment, seed, engine and nodes, for the rest of its time limit
    #[arg(long, value_name = "RUN", conflicts_with_all = OF_A_NEW_RUN)]
    pub(crate) resume: Option<PathBuf>,
    /// Topology, in place of the spec's: a name (see `meshtax topologies`), or a YAML file (meshtax's or isotope's format)
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) topology: Option<String>,
    /// Client pods, each with its own proxy, that share the load [default: the spec's]
    #[arg(long, value_name = "N", value_parser = meshtax_spec::clients)]
    pub(crate) clients: Option<u32>,
    /// Send all requests from outside the mesh through a gateway, with plaintext or tls to the gateway
    #[arg(long, value_name = "plaintext|tls", value_parser = meshtax_spec::ingress)]
    pub(crate) ingress: Option<Ingress>,
    /// Do not slow the application down to the rate at which the study's application saturates (the spec's `saturates-at`)
    #[arg(long)]
    pub(crate) fast_application: bool,
    /// Engine to run on
    #[arg(long, value_enum, default_value_t = EngineName::Local)]
    pub(crate) engine: EngineName,
    /// Run directory [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Time limit of the whole run, e.g. 30s, 2m [default: the spec's]
    #[arg(long, value_parser = meshtax_spec::time_limit_ns)]
    pub(crate) time: Option<u64>,
    /// Stop when all primary intervals are within ± this share, e.g. 2%
    #[arg(long, value_parser = meshtax_spec::precision)]
    pub(crate) precision: Option<f64>,
    /// Measure as long as the published study that the preset reproduces; the duration is printed first
    #[arg(long, conflicts_with_all = ["time", "precision"])]
    pub(crate) faithful: bool,
    /// Seed of the trial order and the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Add a variant without a mesh but with a known cost, to validate the measurement: delay=15% (of the p50), delay=12us,
    /// delay=1ms@1% (of the requests), burn=100k (steps), memory=64MiB, cap=5000/s, leak=4KiB (per request);
    /// repeatable
    #[arg(long, value_name = "COST", value_parser = meshtax_spec::inject)]
    pub(crate) inject: Vec<Inject>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Worker threads of each proxy: a number for all, or native for each mesh's own default [default: the spec's]
    #[arg(long, value_name = "N|native", value_parser = meshtax_spec::workers)]
    pub(crate) workers: Option<meshtax_model::experiment::Workers>,
    /// Print the analysis as JSON (docs/schema/report-v2.json) instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the report in a browser during the run (it is updated between rounds)
    #[arg(long)]
    pub(crate) open: bool,
    #[command(flatten)]
    pub(crate) upgrade: UpgradeArgs,
    #[command(flatten)]
    pub(crate) kubernetes: KubernetesArgs,
    #[command(flatten)]
    pub(crate) prometheus: PrometheusArgs,
    /// Sabotage a variant, for tests: VARIANT=KIND
    #[arg(long, hide = true, value_parser = sabotage)]
    pub(crate) sabotage: Vec<(VariantId, Sabotage)>,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Time limit of the whole run, e.g. 2m [default: 1m]
    #[arg(long, value_parser = meshtax_spec::time_limit_ns)]
    pub(crate) time: Option<u64>,
    /// Run directory [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the trial order and the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Print the results as JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// The proxy programs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProgramArgs {
    /// Envoy binary [default: from PATH or the cache, or downloaded with pip]
    #[arg(long, global = true, value_name = "PATH", env = "MESHTAX_ENVOY")]
    pub(crate) envoy: Option<PathBuf>,
    /// Istio's build of Envoy [default: from PATH (as istio-proxy) or the cache, or downloaded from its image]
    #[arg(long, global = true, value_name = "PATH", env = "MESHTAX_ISTIO_PROXY")]
    pub(crate) istio_proxy: Option<PathBuf>,
    /// ztunnel binary [default: from PATH or the cache, or downloaded from its image]
    #[arg(long, global = true, value_name = "PATH", env = "MESHTAX_ZTUNNEL")]
    pub(crate) ztunnel: Option<PathBuf>,
    /// linkerd2-proxy binary [default: from PATH or the cache, or downloaded from its image]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "MESHTAX_LINKERD_PROXY"
    )]
    pub(crate) linkerd_proxy: Option<PathBuf>,
    /// Try this mirror first for images of REGISTRY: HOST[:PORT][/PATH]; repeatable
    #[arg(long, global = true, value_name = "REGISTRY=HOST", env = "MESHTAX_MIRRORS", value_delimiter = ',', value_parser = mirror)]
    pub(crate) mirror: Vec<(String, String)>,
    /// Download nothing
    #[arg(long, global = true)]
    pub(crate) offline: bool,
}

fn mirror(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((registry, host)) if !registry.is_empty() && !host.is_empty() => {
            Ok((registry.to_owned(), host.to_owned()))
        }
        _ => Err(ValueError::new(
            format!("`{text}` names no mirror"),
            "write it as in docker.io=mirror.example:5000",
        )),
    }
}

impl ProgramArgs {
    /// Where images come from.
    pub(crate) fn registries(&self, image: Option<&str>) -> Registries {
        Registries {
            image: image.map(str::to_owned),
            mirrors: self.mirror.clone(),
        }
    }

    /// The path that the user specified for a program.
    pub(crate) fn given(&self, program: Program) -> Option<&Path> {
        match program {
            Program::Envoy => self.envoy.as_deref(),
            Program::IstioProxy => self.istio_proxy.as_deref(),
            Program::Ztunnel => self.ztunnel.as_deref(),
            Program::LinkerdProxy => self.linkerd_proxy.as_deref(),
            Program::LimitProxy => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// This machine
    Local,
    /// A cluster, with the baseline, meshtax's own proxy and installed meshes (see docs/kubernetes.md)
    Kubernetes,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Run directory [default: the newest in meshtax-runs]
    pub(crate) run: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output. Markdown also writes its charts to a directory beside the file; for
    /// CSV, this is a directory for all tables
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Write a page to publish into this directory: report.md, with the structure of published studies, charts (pictures)
    /// and all tables as CSV (data)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["format", "out", "watch"])]
    pub(crate) publish: Option<PathBuf>,
    /// Compare with a published result, for matching variants and loads (see `meshtax published`)
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub(crate) published: Option<String>,
    /// Weight of a requirement in the decision table, e.g. performance=3; repeatable
    #[arg(long, value_name = "REQUIREMENT=WEIGHT", value_parser = meshtax_spec::weight, conflicts_with = "watch")]
    pub(crate) weight: Vec<Weight>,
    /// Report again whenever there are new trials, until the run ends
    #[arg(long, conflicts_with = "out")]
    pub(crate) watch: bool,
    /// Show the HTML report in a browser
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for a terminal
    Terminal,
    /// A self-contained page
    Html,
    /// Markdown tables
    Markdown,
    /// The whole analysis, with a schema
    Json,
    /// One row per variant, load point and metric
    Csv,
    /// Metrics for a monitoring system, with the ends of their intervals
    Openmetrics,
}

#[derive(Debug, Args)]
pub(crate) struct PresetsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PresetsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PresetsAction {
    /// Print the YAML of a preset, as a starting point for a spec
    Show {
        /// Name of the preset
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TopologiesArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TopologiesAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopologiesAction {
    /// Describe a topology, and print its YAML as a starting point
    Show {
        /// Name of the topology, or a YAML file in meshtax's or isotope's format
        topology: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DataplanesArgs {
    #[command(subcommand)]
    pub(crate) action: Option<DataplanesAction>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataplanesAction {
    /// Download a program into the cache, or store a copy of a local binary
    Get {
        /// Name of the data plane or of its program (envoy, ztunnel, linkerd2-proxy, istio-proxy), and the version: ztunnel@1.30.4
        #[arg(value_name = "NAME[@VERSION]")]
        name: String,
        /// Store a copy of this binary instead of downloading one
        #[arg(long, value_name = "PATH", conflicts_with = "image")]
        from: Option<PathBuf>,
        /// Take the program out of this container image instead of the official one, and use it by default
        #[arg(long, value_name = "IMAGE")]
        image: Option<String>,
    },
    /// Print what would run for a data plane: files, processes, redirection, probes (JSON)
    Show {
        /// Name of the data plane
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PublishedArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PublishedAction>,
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PublishedAction {
    /// Print one result: source, environment, faults and figures
    Show {
        /// Name of the result
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only which roles of a run get which cores
    #[arg(long, conflicts_with = "json")]
    pub(crate) layout: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InternalPart {
    /// The init process of the lab
    Lab,
    /// The load generator: a request on standard input, messages on standard output
    Load,
    /// The test application
    App {
        /// Its configuration, JSON
        config: String,
    },
    /// The agent of a pod or a node: listens on this port of the pod's loopback
    Agent {
        /// The port
        port: u16,
    },
    /// A container of a pod: waits for the pod's agent, then executes the program that it names
    Container {
        /// Its name
        name: String,
    },
    /// The minimal proxy
    LimitProxy {
        /// Its configuration file, JSON
        config: PathBuf,
    },
}

fn sabotage(text: &str) -> Result<(VariantId, Sabotage), ValueError> {
    let invalid = |problem: String| ValueError::new(problem, "write it as VARIANT=KIND");
    let (variant, kind) = text
        .split_once('=')
        .ok_or_else(|| invalid("there is no `=`".into()))?;
    let kind = StrDeserializer::<serde::de::value::Error>::new(kind);
    let kind = Sabotage::deserialize(kind).map_err(|e| invalid(e.to_string()))?;
    Ok((VariantId(variant.to_owned()), kind))
}
