//! Data planes as data: from a [`Site`] and a policy level to a [`Blueprint`], which has two halves. The [`Contract`] is what
//! is promised and how that is proven, on any engine; the [`Emulation`] is the processes, files, redirection and control
//! planes that an engine without a cluster uses to fulfil it.
//!
//! Pure: nothing is started here, and no engine is visible, so that a new mesh is an entry of the catalogue
//! ([`meshtax_model::catalogue`]) and a module with golden blueprints. Everything that differs between variants is in the
//! blueprint; engines treat them uniformly.

#![forbid(unsafe_code)]

mod blueprint;
mod contract;
mod control;
mod emulation;
mod envoy;
mod envoy_sidecar;
mod envoy_telemetry;
mod extra;
mod gateway;
mod istio_filters;
mod limit;
mod linkerd;
mod mesh;
mod names;
mod plane;
mod probe;
mod probe_targets;
mod sabotage;
mod scope;
mod site;
#[cfg(test)]
pub(crate) mod tests;
mod traffic;
mod waypoint;
mod ztunnel;
mod ztunnel_state;

pub use blueprint::Blueprint;
pub use contract::{Contract, DirectTls, HttpMetrics, IngressTarget};
pub use control::{
    ControlService, Discovery, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService,
    LinkerdServices, Workload,
};
pub use emulation::{
    Content, Emulation, Fault, PodBlueprint, PodFile, Process, Redirect, RedirectExemption,
};
pub use gateway::{GATEWAY_PORT, GATEWAY_TLS_PORT};
pub use limit::{LimitProxyConfig, LimitSide, LimitTls};
pub use names::{
    ALLOWED_CALL, ALLOWED_PATH, APP_PORT, ECHO_PATH, EMULATED_NAMESPACE, FORBIDDEN_PATH, INTRUDER,
    PORT_INBOUND, PORT_OUTBOUND, PROXY_MARK, TRUST_DOMAIN, dns_name, spiffe_id,
};
pub use plane::blueprint;
pub use probe::{CallIdentity, ClientIdentityFrom, Counter, Probe};
pub use sabotage::Sabotage;
pub use scope::ProcessScope;
pub use site::{AppPort, AppProtocol, Gateway, HttpRule, Pod, PodNode, Site, SiteService};
pub use traffic::TrafficCounter;
