//! The command line as typed. What it means is for the commands.

mod advise;
mod gate;
pub(crate) mod load;
mod scale;
mod worker;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use meshtax_dataplane::Program;
use meshtax_model::experiment::{Ingress, Inject, VariantId};
use meshtax_spec::ValueError;

pub(crate) use advise::AdviseArgs;
pub(crate) use gate::{CompareArgs, CompareFormat, GateArgs, RunsArgs};
pub(crate) use load::LoadArgs;
pub(crate) use scale::{OverName, ScaleArgs};
pub(crate) use worker::{FleetArgs, WorkerArgs, Workers};

/// What a service mesh costs your traffic, what you get for it, and how sure you can be.
#[derive(Debug, Parser)]
#[command(name = "meshtax", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment and report it (the preset `quick` if none is named)
    Run(RunArgs),
    /// Run known costs, and say how small a cost this machine shows
    Calibrate(CalibrateArgs),
    /// Report a run that is on disk
    Report(ReportArgs),
    /// Compare two runs: what differs in them, and what changed against each run's own baselines
    Compare(CompareArgs),
    /// Pass, fail (20) or cannot tell (21): hold a change against limits, for a pipeline
    Gate(Box<GateArgs>),
    /// Say which variants of a run meet objectives, what they cost a month, and what comes first
    Advise(Box<AdviseArgs>),
    /// The load generator by itself
    Load(Box<LoadArgs>),
    /// A load generator that waits for `meshtax load --workers` to use it
    Worker(WorkerArgs),
    /// The test application by itself
    Serve(ServeArgs),
    /// List the experiments that ship with meshtax, or show one
    Presets(PresetsArgs),
    /// Say how costs grow with pods or hops, from a run for each number
    Scale(Box<ScaleArgs>),
    /// List topologies: services that call each other, as shapes of applications
    Topologies(TopologiesArgs),
    /// List the data planes and where their programs are, or bring one
    Dataplanes(DataplanesArgs),
    /// List what others published, or show one result with its environment and its faults
    Published(PublishedArgs),
    /// What each mesh offers and asks for, with a source for each answer
    Meshes(MeshesArgs),
    /// Say what this machine lets meshtax do, and how to mend what it does not
    Doctor(DoctorArgs),
    /// Parts of a run that are processes of their own
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        part: InternalPart,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Experiment to run: a YAML file
    #[arg(conflicts_with = "preset")]
    pub(crate) spec: Option<PathBuf>,
    /// Experiment that ships with meshtax (see `meshtax presets`) [default: quick]
    #[arg(long)]
    pub(crate) preset: Option<String>,
    /// Services in place of the spec's: a name (see `meshtax topologies`), or a YAML file, of meshtax or of isotope
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) topology: Option<String>,
    /// Let all clients stand outside the mesh and come in through its gateway: plaintext, or tls (to the gateway)
    #[arg(long, value_name = "plaintext|tls", value_parser = |t: &str| value(meshtax_spec::ingress(t)))]
    pub(crate) ingress: Option<Ingress>,
    /// Where it runs
    #[arg(long, value_enum, default_value_t = EngineName::Local)]
    pub(crate) engine: EngineName,
    /// Directory of the run [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Time that the whole run may take, e.g. 30s, 2m [default: the spec's]
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::time_limit_ns(t)))]
    pub(crate) time: Option<u64>,
    /// Stop when the primary intervals are narrower than this, e.g. 2%
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::precision(t)))]
    pub(crate) precision: Option<f64>,
    /// As long as the published study measured whose set-up the preset is; it says beforehand how long that takes
    #[arg(long, conflicts_with_all = ["time", "precision"])]
    pub(crate) faithful: bool,
    /// Seed of the order and of the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Add the baseline with a known cost, to check the measuring: delay=15% (of its p50), delay=12us,
    /// delay=1ms@1% (of the requests), burn=100k (steps), memory=64MiB, cap=5000/s, leak=4KiB (for each request);
    /// again for another
    #[arg(long, value_name = "COST", value_parser = |t: &str| value(meshtax_spec::inject(t)))]
    pub(crate) inject: Vec<Inject>,
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the analysis as JSON (docs/schema/report-v1.json) instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the report in a browser while the run goes on (it is rewritten between rounds)
    #[arg(long)]
    pub(crate) open: bool,
    /// Break a variant on purpose, for tests: VARIANT=KIND
    #[arg(long, hide = true, value_parser = sabotage)]
    pub(crate) sabotage: Vec<(VariantId, meshtax_dataplane::Sabotage)>,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Time that the whole run may take, e.g. 2m [default: 1m]
    #[arg(long, value_parser = |t: &str| value(meshtax_spec::time_limit_ns(t)))]
    pub(crate) time: Option<u64>,
    /// Directory of the run [default: meshtax-runs/<id>]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the order and of the arrivals [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Print what was found as JSON instead of the tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// The real proxies' programs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProgramArgs {
    /// Envoy binary to use instead of the one on PATH, in the cache, or brought with pip
    #[arg(long, value_name = "PATH", env = "MESHTAX_ENVOY")]
    pub(crate) envoy: Option<PathBuf>,
    /// ztunnel binary to use instead of the one on PATH or in the cache
    #[arg(long, value_name = "PATH", env = "MESHTAX_ZTUNNEL")]
    pub(crate) ztunnel: Option<PathBuf>,
    /// linkerd2-proxy binary to use instead of the one on PATH or in the cache
    #[arg(long, value_name = "PATH", env = "MESHTAX_LINKERD_PROXY")]
    pub(crate) linkerd_proxy: Option<PathBuf>,
    /// Bring nothing from the network
    #[arg(long)]
    pub(crate) offline: bool,
}

impl ProgramArgs {
    /// The path that the user gave for a program.
    pub(crate) fn given(&self, program: Program) -> Option<&Path> {
        match program {
            Program::Envoy => self.envoy.as_deref(),
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
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory of the run [default: the newest in meshtax-runs]
    pub(crate) run: Option<PathBuf>,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub(crate) format: Format,
    /// Write it to this file instead of standard output; Markdown puts its pictures beside it, and CSV fills this
    /// directory with everything
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// Put a published result beside what was measured, as far as variants and loads are alike (see `meshtax published`)
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    pub(crate) published: Option<String>,
    /// Report again whenever there is more, until the run is over
    #[arg(long, conflicts_with = "out")]
    pub(crate) watch: bool,
    /// Show the page of the run in a browser
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for a terminal
    Terminal,
    /// A self-contained page
    Html,
    /// Tables for a comment
    Markdown,
    /// Everything, with a schema
    Json,
    /// A row per variant, load point and metric
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen, again for another: IP:PORT, or http://, https://, tcp:// (echo) or tls:// (echo) before it
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = crate::commands::serve::listen)]
    pub(crate) listen: Vec<crate::commands::serve::Listen>,
    /// Where TCP is echoed: the same as --listen tcp://ADDR
    #[arg(long, value_name = "ADDR")]
    pub(crate) tcp_echo: Vec<SocketAddr>,
    /// Listen within TLS where --listen names no protocol
    #[arg(long)]
    pub(crate) tls: bool,
    /// Certificate chain of the listeners within TLS, PEM [default: one is made that nobody vouches for]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Demand certificates of clients, issued by these authorities, PEM (mutual TLS)
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Size of each answer's body, or of its gRPC message
    #[arg(long, default_value = "1KiB", value_parser = |t: &str| value(meshtax_spec::size_bytes(t)))]
    pub(crate) body: u64,
    /// Answer gRPC calls with their own message (at most 4 MiB)
    #[arg(long)]
    pub(crate) grpc_echo: bool,
    /// Spin this long before each answer, e.g. 50us
    #[arg(long, default_value = "0s", value_parser = |t: &str| value(meshtax_spec::duration_ns(t)))]
    pub(crate) delay: u64,
    /// Wait before each answer, without holding up others: exp:2ms (mean), uniform:1ms-5ms, lognormal:2ms,0.5
    /// (median, sigma)
    #[arg(long, value_name = "DIST", value_parser = |t: &str| value(meshtax_spec::service_time(t)))]
    pub(crate) delay_dist: Option<meshtax_model::graph::ServiceTime>,
    /// Call these services before each answer, at once: http://HOST:PORT/PATH, with @20% behind it for a share of the
    /// requests, several with commas between them; again for calls that come after
    #[arg(long, value_name = "URLS", value_parser = crate::commands::serve::calls)]
    pub(crate) call: Vec<meshtax_app::Step>,
    /// Steps of work before each answer, about a nanosecond each
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub(crate) burn: u64,
    /// Share of requests answered with an error (503; gRPC: UNAVAILABLE), e.g. 1%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = |t: &str| value(meshtax_spec::share(t)))]
    pub(crate) errors: f64,
    /// Seed of the errors and of the waits
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads, each with listeners of its own on the same ports
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
}

#[derive(Debug, Args)]
pub(crate) struct PresetsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<PresetsAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PresetsAction {
    /// Print a preset's YAML, to start a spec of your own from
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
    /// Say what a topology is made of, and print its YAML, to start one of your own from
    Show {
        /// Name of the topology, or a YAML file of one, of meshtax or of isotope
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
    /// Bring a data plane's program into the cache
    Get {
        /// Name of the data plane or of its program (envoy, ztunnel, linkerd2-proxy)
        name: String,
        /// Keep a copy of this binary instead of bringing one
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
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
    /// Print one result: source, environment, what is wrong with it, and the figures
    Show {
        /// Name of the result
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MeshesArgs {
    /// Mesh to tell all facts of, with their sources [default: a table of all]
    pub(crate) name: Option<String>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InternalPart {
    /// The lab's init
    Lab,
    /// The load generator: a request on standard input, messages on standard output
    Load,
    /// The test application
    App {
        /// Its configuration, JSON
        config: String,
    },
    /// The minimal proxy
    LimitProxy {
        /// Its configuration file, JSON
        config: PathBuf,
    },
}

fn value<T>(parsed: Result<T, ValueError>) -> Result<T, String> {
    parsed.map_err(|e| format!("{}: {}", e.problem, e.fix))
}

fn sabotage(text: &str) -> Result<(VariantId, meshtax_dataplane::Sabotage), String> {
    let (variant, kind) = text.split_once('=').ok_or("write it as VARIANT=KIND")?;
    let kind = serde_json::from_value(serde_json::Value::String(kind.to_owned()))
        .map_err(|e| e.to_string())?;
    Ok((VariantId(variant.to_owned()), kind))
}
