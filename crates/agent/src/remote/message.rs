//! The messages between an engine and an agent in a pod.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use meshtax_dataplane::Redirect;
use meshtax_load::{LoadSpec, Window};
use meshtax_model::environment::Host;
use meshtax_model::experiment::VariantId;
use meshtax_model::trial::{ComponentRole, LoadResult};
use serde::{Deserialize, Serialize};

use crate::captured::Captured;
use crate::trial::NodeUsage;

/// The protocol's version. Both ends are the same binary unless the image is another one.
pub const REMOTE_PROTOCOL: u32 = 4;

/// The port of an agent, on its pod's loopback. No proxy has it, and no port of an application.
pub const AGENT_PORT: u16 = 17_070;

/// The directory that the containers of a pod share: files, and what the containers start.
pub const START_DIRECTORY: &str = "/run/meshtax";

/// The first line of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Opening {
    /// [`REMOTE_PROTOCOL`].
    pub(crate) version: u32,
    /// The run's token.
    pub(crate) token: String,
    pub(crate) request: RemoteRequest,
}

/// From an engine to an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RemoteRequest {
    /// Describe the machine.
    Host,
    /// Read `CLOCK_MONOTONIC`, once for each line that follows.
    Clock,
    /// Write files, redirect the pod's traffic, and let its containers start.
    Configure {
        /// Written to [`START_DIRECTORY`] first.
        files: Vec<DeliveredFile>,
        /// Put in force before the containers start.
        redirect: Redirect,
        /// What they start.
        containers: Vec<ContainerStart>,
    },
    /// Redirect the pod's traffic like this from now on; `None`: not at all.
    Redirect(Option<Redirect>),
    /// Open a TCP connection from here; its bytes follow.
    Connect {
        /// Where to.
        to: SocketAddr,
        /// In milliseconds.
        timeout_ms: u64,
    },
    /// Count the established connections whose local end has this port.
    CountConnections {
        /// The port.
        local_port: u16,
    },
    /// Offer a load, to its end.
    RunLoad(Box<LoadSpec>),
    /// Start a worker of the load generator; the bytes of its standard input and output follow.
    StartWorker,
    /// Capture TCP segments between these addresses, until a line follows.
    Capture {
        /// Both ends of a segment are among them.
        addresses: Vec<Ipv4Addr>,
        /// On the links of the pods of these containers, which run on this node; empty: on the node's uplink.
        within: Vec<String>,
    },
    /// Read the CPUs that containers on this node may use.
    Cpus {
        /// The container runtime's ids.
        containers: Vec<String>,
    },
    /// Read the usage of containers, and the machine, in a window.
    Observe(Box<Observation>),
}

/// What is read in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// On this machine's clock.
    pub window: Window,
    /// The cores whose idle time is read.
    pub cores: Vec<u32>,
    /// The containers on this node.
    pub containers: Vec<Metered>,
}

/// A container whose usage is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// The container runtime's id, without the runtime's name.
    pub id: String,
    /// As it is reported.
    pub name: String,
    /// Its role in the trial.
    pub role: ComponentRole,
    /// Index of its node in the run's environment.
    pub node: u32,
    /// The variant of an idle proxy.
    pub idles_for: Option<VariantId>,
}

/// A file for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredFile {
    /// Its name in [`START_DIRECTORY`].
    pub name: String,
    /// Its content. Readable by its pod only.
    #[serde(with = "base64_bytes")]
    pub content: Vec<u8>,
}

/// What a waiting container executes: this program with other arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStart {
    /// The container's name.
    pub container: String,
    /// Arguments of meshtax.
    pub arguments: Vec<String>,
    /// Environment variables in addition to the container's.
    pub environment: BTreeMap<String, String>,
}

/// From an agent to its engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RemoteReply {
    /// The machine.
    Host(Box<HostFacts>),
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Clock(u64),
    /// Done, or bytes follow.
    Done,
    /// The number of connections.
    Connections(u32),
    /// The load's result.
    Load(Box<LoadResult>),
    /// The CPUs of each container that was asked for, in the same order; `None`: they cannot be read.
    Cpus(Vec<Option<Vec<u32>>>),
    /// What was captured.
    Captured(Box<Captured>),
    /// Nothing: more than a capture may hold.
    CaptureTooLarge {
        /// What it may hold.
        most_bytes: usize,
    },
    /// What was used.
    Used(Box<NodeUsage>),
    /// The request failed.
    Failed(Reached),
    /// The agent speaks another version.
    Version(u32),
    /// The token is not the run's.
    Unauthorized,
}

/// A machine as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Hardware and kernel.
    pub host: Host,
    /// The cores that its processes may run on.
    pub cores: Vec<u32>,
}

/// How a request failed, so that the engine sees the same error as the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The kernel's number.
    pub os_error: Option<i32>,
    /// Whether a time limit passed.
    pub timed_out: bool,
    /// The error in words.
    pub detail: String,
}

impl From<&io::Error> for Reached {
    fn from(error: &io::Error) -> Self {
        Self {
            os_error: error.raw_os_error(),
            timed_out: matches!(
                error.kind(),
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
            ),
            detail: error.to_string(),
        }
    }
}

impl From<Reached> for io::Error {
    fn from(failure: Reached) -> Self {
        match failure.os_error {
            Some(code) => Self::from_raw_os_error(code),
            None if failure.timed_out => Self::new(io::ErrorKind::TimedOut, failure.detail),
            None => Self::other(failure.detail),
        }
    }
}

/// Bytes as base64: a JSON array of numbers is four times as long.
pub(crate) mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
