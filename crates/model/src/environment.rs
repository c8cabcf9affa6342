//! Where it was measured, with what.

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    /// The processor's model name.
    pub cpu_model: String,
    /// Cores that the run was allowed to use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// `tsc`, `kvm-clock`.
    pub clock_source: String,
    /// Whether a hypervisor was seen.
    pub virtual_machine: bool,
    /// How the kernel tells user from system time.
    #[serde(default)]
    pub cpu_split: CpuSplit,
}

/// How the kernel tells a process's user time from its system time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuSplit {
    /// At every entry and exit (`CONFIG_VIRT_CPU_ACCOUNTING_GEN`, in use).
    Exact,
    /// By what runs at each clock tick; the sum of the two is exact all the same.
    Sampled,
    /// The kernel does not show its configuration.
    #[default]
    Unknown,
}

/// Which core does what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLayout {
    /// Of the load generator.
    pub generator: Vec<u32>,
    /// Of what runs on the client's node.
    pub client_node: Vec<u32>,
    /// Of what runs on the server's node.
    pub server_node: Vec<u32>,
}

impl CpuLayout {
    /// Whether both ends and their proxies share cores.
    #[must_use]
    pub fn ends_share_cores(&self) -> bool {
        self.client_node
            .iter()
            .any(|c| self.server_node.contains(c))
    }

    /// Whether the generator shares its core with the system under test.
    #[must_use]
    pub fn generator_shares_core(&self) -> bool {
        self.generator
            .iter()
            .any(|c| self.client_node.contains(c) || self.server_node.contains(c))
    }
}

/// A program that ran as part of a variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The data plane that it belongs to.
    pub data_plane: String,
    /// As the program says it.
    pub version: String,
    /// Of the file, in hexadecimal.
    pub sha256: String,
    /// How it was found: `path given`, `PATH`, `cache`, `built in`.
    pub origin: String,
    /// What to know about it when figures are read.
    pub note: Option<String>,
}

/// Where a run took place, as the engine found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `local` or `kubernetes`.
    pub engine: String,
    /// The machine.
    pub host: Host,
    /// Which core does what.
    pub layout: CpuLayout,
    /// Whether a user namespace was needed.
    pub rootless: bool,
    /// The programs of the data planes.
    pub artifacts: Vec<Artifact>,
}
