//! The arguments of `meshtax run --preset upgrade`.

use clap::Args;
use meshtax_model::catalogue::Program;
use meshtax_model::comparison::Limit;
use meshtax_model::experiment::{PolicyLevel, ProgramBuild, Protocol};
use meshtax_spec::ValueError;

/// Two builds of one data plane, for `--preset upgrade` only.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "With --preset upgrade")]
pub(crate) struct UpgradeArgs {
    /// Data plane whose builds are compared [default: envoy-sidecar]
    #[arg(long, value_name = "NAME", requires = "from")]
    pub(crate) data_plane: Option<String>,
    /// Current build: a version to download, or the path of a binary
    #[arg(long, value_name = "VERSION|PATH", requires = "to", value_parser = meshtax_spec::build)]
    pub(crate) from: Option<ProgramBuild>,
    /// New build
    #[arg(long, value_name = "VERSION|PATH", requires = "from", value_parser = meshtax_spec::build)]
    pub(crate) to: Option<ProgramBuild>,
    /// Program that differs, if the data plane runs several (envoy, ztunnel)
    #[arg(long, value_name = "NAME", requires = "from", value_parser = program)]
    pub(crate) program: Option<Program>,
    /// Policy level of both builds [default: mtls]
    #[arg(long, requires = "from", value_parser = meshtax_spec::policy_level)]
    pub(crate) level: Option<PolicyLevel>,
    /// Protocol: http1, http2, grpc, tcp [default: http1]
    #[arg(long, requires = "from", value_parser = meshtax_spec::protocol)]
    pub(crate) protocol: Option<Protocol>,
    /// Rate of the steady load, e.g. 1000/s
    #[arg(long, requires = "from", value_parser = meshtax_spec::rate_per_s)]
    pub(crate) rate: Option<f64>,
    /// Size of responses, e.g. 16KiB
    #[arg(long, requires = "from", value_parser = meshtax_spec::size_bytes)]
    pub(crate) response: Option<u32>,
    /// Limit on the change, for a pipeline: 'p99 +5%' (see `meshtax gate --help`); repeatable. The exit code is the gate's
    #[arg(long, value_name = "LIMIT", requires = "from", allow_hyphen_values = true,
        value_parser = meshtax_spec::limit)]
    pub(crate) max: Vec<Limit>,
}

fn program(text: &str) -> Result<Program, ValueError> {
    let found = Program::FOREIGN
        .iter()
        .find(|program| program.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Program::FOREIGN
            .iter()
            .map(|program| program.name())
            .collect();
        ValueError::new(
            format!("`{text}` is not a program of a data plane"),
            format!("use one of: {}", names.join(", ")),
        )
    })
}
