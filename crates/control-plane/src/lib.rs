//! The small control planes that real proxies need, played by meshtax: the run's certificate
//! authority, Istio's certificate service, Envoy's discovery service, ztunnel's workload socket, and Linkerd's
//! identity, destination and policy services; and a collector of traces.
//!
//! What they say is decided by `dataplane`'s blueprints; here is only how it is said. A server is a
//! thread of its own on a socket that somebody else has opened, in whatever network namespace, and
//! ends when its handle is dropped. None of them is in the path of a request: proxies ask them at
//! their start.

#![forbid(unsafe_code)]

mod authority;
mod collector;
mod discovery;
mod istio;
mod linkerd;
mod outbound_policy;
mod server;
mod workload_socket;

pub use authority::{Authority, AuthorityError, Leaf, SharedAuthority, Signed};
pub use collector::{TraceCollector, trace_collector};
pub use discovery::{Changed, DiscoveryServer, Pushed, discovery};
pub use istio::istio_ca;
pub use linkerd::linkerd;
pub use server::Server;
pub use workload_socket::WorkloadSocket;
