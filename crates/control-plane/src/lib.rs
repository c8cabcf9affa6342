//! The small control planes that real proxies need, as implemented by meshtax: the run's certificate
//! authority, Istio's certificate service, Envoy's discovery service, ztunnel's workload socket, and Linkerd's
//! identity, destination and policy services; and a collector of traces.
//!
//! The content comes from `dataplane`'s blueprints; this crate only serves it. Each server has
//! its own thread on a socket that the caller has opened, in any network namespace, and
//! stops when its handle is dropped. None of them is in the request path: proxies call them when
//! they start.

#![forbid(unsafe_code)]

mod authority;
mod collector;
mod discovery;
mod istio;
mod linkerd;
mod outbound_policy;
mod server;
mod workload_socket;

pub use authority::{
    Authority, AuthorityError, ContentError, Issuer, Leaf, SharedAuthority, Signed,
};
pub use collector::{TraceCollector, trace_collector};
pub use discovery::{Changed, DiscoveryServer, Pushed, discovery};
pub use istio::istio_ca;
pub use linkerd::linkerd;
pub use server::Server;
pub use workload_socket::WorkloadSocket;
