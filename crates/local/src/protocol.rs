//! The messages between the engine and the lab's init: JSON lines over one socket, a request and its reply at a time.
//!
//! There are two protocols. The lab's builds the environment; the agent's ([`meshtax_agent::AgentRequest`]) measures in
//! it. Each has its own version.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use meshtax_agent::{AgentReply, AgentRequest};
use meshtax_dataplane::Sabotage;
use meshtax_model::environment::Node;
use meshtax_model::evidence::{Evidence, FailedProbe};
use meshtax_model::experiment::{LoadPoint, ProgramChoice, Variant, VariantId, Workers, Workload};
use meshtax_model::failure::{ComponentFailure, VariantFailureReason};
use meshtax_model::topology::Topology;
use meshtax_workload::{Demand, Timing};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::cgroups::CgroupDirectories;

/// Both ends are the same binary; the version guards against a binary that was replaced during the run.
pub(crate) const LAB_PROTOCOL: u32 = 1;

/// From the engine to the lab's init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Lab(LabRequest),
    Agent(AgentRequest),
}

/// From the lab's init to the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Lab(LabReply),
    Agent(AgentReply),
}

/// The environment's protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LabRequest {
    /// Build nodes and pods.
    Prepare(Box<Setup>),
    /// Set the services' work and the lengths of trials, from the next round on.
    SetWork {
        topology: Box<Topology>,
        timing: Timing,
    },
    /// Start processes for these variants, and verify them.
    StartRound { round: u32, variants: Vec<Variant> },
    /// End the round's processes, after verifying them once more if `prove`.
    EndRound { prove: bool },
}

/// Everything that the lab needs before the first round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// [`LAB_PROTOCOL`].
    pub(crate) version: u32,
    pub(crate) topology: Topology,
    pub(crate) workload: Workload,
    pub(crate) load_points: Vec<LoadPoint>,
    pub(crate) workers: Workers,
    /// Cores that the run may use.
    pub(crate) cores: u32,
    pub(crate) timing: Timing,
    pub(crate) variants: Vec<VariantId>,
    /// The client's node, then the servers'.
    pub(crate) nodes: Vec<Node>,
    /// The programs that the lab has.
    pub(crate) programs: Vec<LabProgram>,
    pub(crate) sabotage: BTreeMap<VariantId, Sabotage>,
    /// The cgroup of the run; `None`: no variant has limits.
    pub(crate) limits: Option<CgroupDirectories>,
}

/// A program in the lab. The lab's own file systems may hide its path, so that it is used by its descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LabProgram {
    /// Who runs it.
    pub(crate) choice: ProgramChoice,
    /// The descriptor of its file.
    pub(crate) file: RawFd,
    /// The descriptors of its dynamic loader and of the directory with its libraries; `None`: this machine's.
    pub(crate) loader: Option<(RawFd, RawFd)>,
}

impl LabProgram {
    /// Starts it, through its own loader if it has one.
    pub(crate) fn command(&self) -> Command {
        let path = |descriptor: RawFd| format!("/proc/self/fd/{descriptor}");
        let mut command = match self.loader {
            None => Command::new(path(self.file)),
            Some((loader, libraries)) => {
                let mut command = Command::new(path(loader));
                // ld.so(8).
                command.arg("--library-path").arg(path(libraries));
                command.arg(path(self.file));
                command
            }
        };
        command.arg0(self.choice.program.name());
        command
    }
}

impl Setup {
    /// Whether clients outside the mesh enter through a gateway at some load point.
    pub(crate) fn has_ingress(&self) -> bool {
        self.load_points.iter().any(|point| point.ingress.is_some())
    }

    /// Whether they do at all load points.
    pub(crate) fn has_ingress_only(&self) -> bool {
        self.load_points.iter().all(|point| point.ingress.is_some())
    }

    /// What applications and loads are made from.
    pub(crate) fn demand(&self) -> Demand<'_> {
        Demand {
            topology: &self.topology,
            workload: &self.workload,
            load_points: &self.load_points,
        }
    }
}

/// The replies to [`LabRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LabReply {
    /// Nodes and pods are there.
    Prepared,
    /// The machine refused a step.
    Refused {
        step: LabStep,
        cause: String,
        not_permitted: bool,
    },
    /// It holds from the next round on.
    WorkSet,
    /// The request does not fit the lab's state.
    OutOfOrder,
    /// The start-up result of each variant.
    RoundStarted(Vec<StartReport>),
    /// All processes of the round have ended.
    RoundEnded {
        /// Those that had ended before.
        ended: Vec<ComponentFailure>,
        /// Variants with probes that fail now.
        lost: Vec<(VariantId, Vec<FailedProbe>)>,
    },
}

/// A step of building the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LabStep {
    CheckVersion,
    KeepHostMounts,
    PrivateMounts,
    MountProc,
    MountTmpfs,
    PinToCores,
    BuildNodes,
    BuildPods,
    BalanceServices,
    BuildOutsider,
    CreateAuthority,
}

impl fmt::Display for LabStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CheckVersion => "speak the run's protocol",
            Self::KeepHostMounts => "keep the host's mounts",
            Self::PrivateMounts => "make mounts private",
            Self::MountProc => "mount a /proc of its own",
            Self::MountTmpfs => "mount a private tmpfs",
            Self::PinToCores => "stay on the cores of the run",
            Self::BuildNodes => "build the nodes and the links between them",
            Self::BuildPods => "build the pods",
            Self::BalanceServices => "balance the connections to service addresses",
            Self::BuildOutsider => "build the outsider's pod",
            Self::CreateAuthority => "create a certificate authority",
        })
    }
}

/// The start-up result of one variant.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartReport {
    pub(crate) variant: VariantId,
    pub(crate) evidence: Option<Evidence>,
    pub(crate) failure: Option<VariantFailureReason>,
}

/// Writes one message and a line end.
pub(crate) fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` at end-of-file.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
