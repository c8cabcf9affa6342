//! The programs that proxies run: their builds, switches and worker threads.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A program that a proxy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Envoy, as its project builds it.
    Envoy,
    /// Istio's own build of Envoy, with Istio's filters: the proxy of its image `proxyv2`.
    IstioProxy,
    /// meshtax itself, as the minimal proxy.
    LimitProxy,
    /// ztunnel.
    Ztunnel,
    /// linkerd2-proxy.
    LinkerdProxy,
}

impl Program {
    /// The programs that are not meshtax itself.
    pub const FOREIGN: &[Self] = &[
        Self::Envoy,
        Self::IstioProxy,
        Self::Ztunnel,
        Self::LinkerdProxy,
    ];

    /// All programs.
    pub const ALL: &[Self] = &[
        Self::Envoy,
        Self::IstioProxy,
        Self::LimitProxy,
        Self::Ztunnel,
        Self::LinkerdProxy,
    ];

    /// The worker threads that its mesh sets by default on a machine with that many cores. Envoy: `concurrency` of
    /// Istio's `ProxyConfig`, 2. ztunnel: a quarter of the cores, at least 2 (`default_worker_threads` in its
    /// `src/config.rs`). Linkerd: 1 (`proxy.cores` and `LINKERD2_PROXY_CORES_MIN` of its chart). The minimal proxy has no
    /// default: as many as an Envoy.
    #[must_use]
    pub fn native_workers(self, cores: u32) -> u32 {
        match self {
            Self::Envoy | Self::IstioProxy | Self::LimitProxy => 2,
            Self::Ztunnel => cores.div_ceil(4).max(2),
            Self::LinkerdProxy => 1,
        }
    }

    /// Whether it is a build of Envoy: it has Envoy's runtime, and describes itself as Envoy does.
    #[must_use]
    pub fn is_envoy(self) -> bool {
        matches!(self, Self::Envoy | Self::IstioProxy)
    }

    /// Its name, which is the usual one of its file. Istio's build of Envoy is called `envoy` in its image, too: as
    /// everywhere in Istio, its name is that of its container.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::IstioProxy => "istio-proxy",
            Self::LimitProxy => "meshtax",
            Self::Ztunnel => "ztunnel",
            Self::LinkerdProxy => "linkerd2-proxy",
        }
    }
}

/// Whether a runtime switch is a key of Envoy's runtime (`envoy.reloadable_features.x`), and not an environment variable
/// (`ZTUNNEL_WORKER_THREADS`).
#[must_use]
pub fn is_runtime_key(switch: &str) -> bool {
    switch.contains('.')
}

/// A build of a program that a variant names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramBuild {
    /// A version to download: `1.36.4`.
    Version(String),
    /// The path of a binary.
    Path(PathBuf),
}

impl fmt::Display for ProgramBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => f.write_str(version),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// A program and its build; `None`: the run's default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProgramChoice {
    /// The program.
    pub program: Program,
    /// The build that a variant names.
    pub build: Option<ProgramBuild>,
}

impl ProgramChoice {
    /// The run's default build of a program.
    #[must_use]
    pub fn default_of(program: Program) -> Self {
        Self {
            program,
            build: None,
        }
    }
}

/// Worker threads of each proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workers {
    /// The same number for every proxy, for equal work.
    Equal(u32),
    /// What each mesh sets by default ([`Program::native_workers`]).
    Native,
}

impl Workers {
    /// The number for a program on a machine with that many cores.
    #[must_use]
    pub fn of(self, program: Program, cores: u32) -> u32 {
        match self {
            Self::Equal(workers) => workers,
            Self::Native => program.native_workers(cores),
        }
    }

    /// The most that any program has on a machine with that many cores.
    #[must_use]
    pub fn most(self, cores: u32) -> u32 {
        let all = Program::ALL.iter();
        let most = all.map(|program| self.of(*program, cores)).max();
        most.unwrap_or(1)
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(workers) => workers.fmt(f),
            Self::Native => f.write_str("native"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_workers_follow_the_meshes_defaults() {
        let of = |program: Program| [2, 8, 64].map(|cores| program.native_workers(cores));
        assert_eq!(of(Program::Envoy), [2, 2, 2]);
        assert_eq!(of(Program::IstioProxy), of(Program::Envoy));
        assert_eq!(of(Program::Ztunnel), [2, 2, 16]);
        assert_eq!(of(Program::LinkerdProxy), [1, 1, 1]);
    }
}
