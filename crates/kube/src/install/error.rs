//! Why a mesh is not installed or removed.

use meshtax_control_plane::AuthorityError;

use crate::error::ClusterError;
use crate::install::helm::HelmError;
use crate::install::prerequisites::Check;

/// Why a mesh was not installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Helm failed.
    #[error(transparent)]
    Helm(#[from] HelmError),
    /// No key could be made.
    #[error(transparent)]
    Issuer(#[from] AuthorityError),
    /// Prerequisites are missing.
    #[error("{mesh} cannot be installed: {}", list(.checks))]
    Prerequisites {
        /// Its name.
        mesh: &'static str,
        /// Those that failed.
        checks: Vec<Check>,
    },
    /// Nothing of it was installed by meshtax.
    #[error("meshtax did not install {mesh} on this cluster{}", others(.releases))]
    NotOurs {
        /// Its name.
        mesh: &'static str,
        /// Releases in its namespace that belong to another mesh or were not installed by meshtax.
        releases: Vec<String>,
    },
}

fn list(checks: &[Check]) -> String {
    let each: Vec<&str> = checks.iter().map(|check| check.found.as_str()).collect();
    each.join("; ")
}

fn others(releases: &[String]) -> String {
    match releases {
        [] => String::new(),
        releases => format!("; releases in its namespace: {}", releases.join(", ")),
    }
}

impl InstallError {
    /// What the user can do.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Cluster(error) => error.fix().to_owned(),
            Self::Helm(error) => error.fix().to_owned(),
            Self::Issuer(_) => "check that the system's random number generator works".to_owned(),
            Self::Prerequisites { checks, .. } => {
                let each: Vec<&str> = checks.iter().map(|check| check.fix.as_str()).collect();
                each.join("; ")
            }
            Self::NotOurs { .. } => {
                "remove it with the tool that installed it (`helm uninstall`, `istioctl uninstall`, `linkerd uninstall`)".to_owned()
            }
        }
    }
}
