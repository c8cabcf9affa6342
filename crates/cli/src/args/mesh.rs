//! `meshtax mesh`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use meshtax_kube::install::{Settings, Sources};

use super::kubernetes::AccessArgs;

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    #[command(subcommand)]
    pub(crate) action: MeshAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MeshAction {
    /// List the meshes that can be installed, with the data planes that a run can measure on each
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what `install` would install: charts, versions and values, without contacting a cluster
    Show {
        /// Mesh (see `meshtax mesh list`)
        name: String,
        #[command(flatten)]
        choice: ChoiceArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check whether the cluster meets a mesh's requirements, with a fix for each failure
    Check(ChangeArgs),
    /// Install a mesh with the user's Helm, and time each step
    Install {
        #[command(flatten)]
        change: ChangeArgs,
        /// Print every object instead of installing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the releases and workloads of each mesh on the cluster, however it was installed
    Status {
        /// Mesh [default: all]
        name: Option<String>,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Remove a mesh that `install` installed
    Uninstall {
        /// Mesh (see `meshtax mesh list`)
        name: String,
        /// Also remove the custom resource definitions that Helm keeps (Istio's), and with them all objects of these types
        #[arg(long)]
        crds: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// List facts about the features and operation of the meshes, each with its source
    Facts {
        /// Mesh whose facts and sources to print [default: a table of all meshes]
        name: Option<String>,
        /// Print JSON instead of tables
        #[arg(long)]
        json: bool,
    },
}

/// How the cluster and Helm are reached, and how results are printed.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Helm binary, a path or a name on PATH
    #[arg(long, value_name = "PATH", default_value = "helm")]
    pub(crate) helm: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// The charts to install, and their settings.
#[derive(Debug, Args)]
pub(crate) struct ChoiceArgs {
    /// Settings: one worker thread for each proxy (equal), or the charts' defaults (native)
    #[arg(long, value_enum, default_value = "equal")]
    pub(crate) settings: SettingsName,
    /// Version of the charts [default: the one that `meshtax mesh list` shows]
    #[arg(long, value_name = "VERSION", conflicts_with = "charts")]
    pub(crate) version: Option<String>,
    /// Directory with the charts (a directory or an archive for each), instead of the project's repository
    #[arg(long, value_name = "DIR")]
    pub(crate) charts: Option<PathBuf>,
    /// File with additional values for every chart of the mesh; repeatable, the last one takes precedence
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
}

impl ChoiceArgs {
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            version: self.version.clone(),
            charts: self.charts.clone(),
            values: self.values.clone(),
        }
    }
}

/// A mesh and a cluster.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Mesh (see `meshtax mesh list`)
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SettingsName {
    Equal,
    Native,
}

impl SettingsName {
    pub(crate) fn settings(self) -> Settings {
        match self {
            Self::Equal => Settings::Equal,
            Self::Native => Settings::Native,
        }
    }
}
