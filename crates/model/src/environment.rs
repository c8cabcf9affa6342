//! The machines, nodes and programs of a measurement.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::cluster::PodGrant;
use crate::experiment::VariantId;
use crate::trial::ComponentRole;

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
    /// Whether a hypervisor was detected.
    pub virtual_machine: bool,
    /// How the kernel divides CPU time into user and system time.
    #[serde(default)]
    pub cpu_split: CpuSplit,
    /// The kernel's random id of this boot: another one after a restart. `None`: it is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}

/// How the kernel divides a process's CPU time into user and system time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuSplit {
    /// At every entry and exit (`CONFIG_VIRT_CPU_ACCOUNTING_GEN`, in use).
    Exact,
    /// Sampled at each clock tick; the sum of the two is still exact.
    Sampled,
    /// The kernel does not show its configuration.
    #[default]
    Unknown,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRole {
    /// Clients run on it.
    Client,
    /// Pods of services run on it.
    Server,
}

/// A node on which pods ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `client` and `server-1` on the local engine; the name of the Kubernetes node.
    pub name: String,
    /// What it is for.
    pub role: NodeRole,
    /// Index of its machine in [`Environment::machines`]. The local engine's nodes share one.
    pub machine: u32,
    /// The cores to which processes are pinned, by role; a role that is missing is not pinned.
    pub cores: BTreeMap<ComponentRole, Vec<u32>>,
}

impl Node {
    /// The cores of a role; empty: not pinned.
    #[must_use]
    pub fn cores_of(&self, role: ComponentRole) -> &[u32] {
        self.cores.get(&role).map_or(&[], Vec::as_slice)
    }

    /// The cores of all roles but the generator, ascending: where the system under test runs.
    #[must_use]
    pub fn tested_cores(&self) -> BTreeSet<u32> {
        let tested = self.cores.iter();
        let tested = tested.filter(|(role, _)| **role != ComponentRole::Generator);
        tested.flat_map(|(_, cores)| cores).copied().collect()
    }
}

/// A program that ran as part of a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The data plane that it belongs to; `gateways` for the gateways' program.
    pub data_plane: String,
    /// The usual name of its file: `envoy`.
    pub program: String,
    /// The variants that ran it.
    pub variants: Vec<VariantId>,
    /// As the program reports it.
    pub version: String,
    /// Hash of the file, in hexadecimal.
    pub sha256: String,
    /// How it was found: `path given`, `PATH`, `cache`, `built in`.
    pub origin: String,
    /// Worker threads of each of its processes; `None`: unknown.
    pub workers: Option<u32>,
    /// How it was built, as far as the file shows it.
    pub build: Build,
    /// A note on its figures.
    pub note: Option<String>,
}

/// How a program was built. `None`: it cannot be read from the file or from what the program reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The build profile: `release`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Link-time optimisation: `thin`, `fat`, `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lto: Option<String>,
    /// The memory allocator: `tcmalloc`, `jemalloc`, `mimalloc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// The crypto provider: `BoringSSL`, `AWS-LC`, `ring`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crypto: Option<String>,
    /// The compiler, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<String>,
}

/// The build of meshtax that generates the load and responds to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnBuild {
    /// Hash of its file, or digest of its image, in hexadecimal.
    pub sha256: String,
    /// The image that pods run, as it was given; `None`: no image is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Where a run took place, as the engine detected it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// `local` or `kubernetes`.
    pub engine: String,
    /// The machines, each once.
    pub machines: Vec<Host>,
    /// The nodes, client nodes first.
    pub nodes: Vec<Node>,
    /// The version of the cluster's API server (`v1.34.4`); `None`: there is no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The run's name on the cluster, a part of the names of its namespaces; `None`: there is no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_run: Option<String>,
    /// Whether a user namespace was needed.
    pub rootless: bool,
    /// meshtax itself; `None`: not on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meshtax: Option<OwnBuild>,
    /// The programs of the data planes.
    pub artifacts: Vec<Artifact>,
    /// What the cluster granted the variants' pods, as the run's records have it; empty without a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodGrant>,
}

impl Environment {
    /// Whether everything runs on the machine of meshtax itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.engine == "local"
    }

    /// The nodes of one role.
    pub fn nodes_of(&self, role: NodeRole) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.role == role)
    }

    /// The cores of the system under test on nodes of one role, each with the index of its machine.
    #[must_use]
    pub fn tested_cores(&self, role: NodeRole) -> BTreeSet<(u32, u32)> {
        let nodes = self.nodes_of(role);
        nodes
            .flat_map(|node| on_machine(node, node.tested_cores()))
            .collect()
    }

    /// The generator's cores, each with the index of its machine.
    #[must_use]
    pub fn generator_cores(&self) -> BTreeSet<(u32, u32)> {
        let nodes = self.nodes.iter();
        nodes
            .flat_map(|node| on_machine(node, node.cores_of(ComponentRole::Generator).to_vec()))
            .collect()
    }

    /// Whether both ends and their proxies share cores.
    #[must_use]
    pub fn ends_share_cores(&self) -> bool {
        let client = self.tested_cores(NodeRole::Client);
        !client.is_disjoint(&self.tested_cores(NodeRole::Server))
    }

    /// Whether the generator shares a core with the system under test.
    #[must_use]
    pub fn generator_shares_core(&self) -> bool {
        let generator = self.generator_cores();
        [NodeRole::Client, NodeRole::Server]
            .into_iter()
            .any(|role| !generator.is_disjoint(&self.tested_cores(role)))
    }
}

fn on_machine(
    node: &Node,
    cores: impl IntoIterator<Item = u32>,
) -> impl Iterator<Item = (u32, u32)> {
    let machine = node.machine;
    cores.into_iter().map(move |core| (machine, core))
}
