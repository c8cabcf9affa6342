//! An agent in a pod, and its client: how an engine acts where it has no namespaces and no processes of its own.
//!
//! Every connection carries one request: a line of JSON with the protocol's version and the run's token, a line with the
//! reply, and for some requests bytes in both directions after that. Agents listen on their pod's loopback: they are
//! reached through the API server's port-forward only.

mod client;
mod message;
mod relay;
mod server;

pub use client::{AgentClient, AgentError, Clock, RemoteCapture, RemoteWorker};
pub(crate) use message::base64_bytes;
pub use message::{
    AGENT_PORT, ContainerStart, DeliveredFile, HostFacts, Metered, Observation, REMOTE_PROTOCOL,
    Reached, RemoteReply, RemoteRequest, START_DIRECTORY,
};
pub use server::{Agent, ServeError, Token, await_start};
