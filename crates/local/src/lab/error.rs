//! Why a variant cannot be started in the lab.

use std::io;

use meshtax_control_plane::ContentError;
use meshtax_workload::UnresolvedDelay;

use crate::cgroups::LimitError;

/// Why a variant cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("there is no data plane {0}")]
    UnknownDataPlane(String),
    #[error("cannot create the pods' directories: {0}")]
    Directories(#[source] io::Error),
    #[error("cannot write {path}: {source}")]
    File { path: String, source: io::Error },
    #[error(transparent)]
    Content(#[from] ContentError),
    #[error("cannot redirect into the proxy: {0}")]
    Redirect(#[source] io::Error),
    #[error("cannot serve the proxy's control plane: {0}")]
    ControlPlane(#[source] io::Error),
    #[error("there is no {0} binary")]
    MissingProgram(&'static str),
    #[error("cannot start {name}: {source}")]
    Process { name: String, source: io::Error },
    #[error("cannot limit {name}: {source}")]
    Limits { name: String, source: LimitError },
    #[error("cannot start the service's own program `{program}`: {source}")]
    OwnProgram { program: String, source: io::Error },
    #[error("the service's own program has no name")]
    UnnamedProgram,
    #[error(transparent)]
    UnresolvedDelay(#[from] UnresolvedDelay),
    #[error("the application's configuration: {0}")]
    Configuration(#[from] serde_json::Error),
}
