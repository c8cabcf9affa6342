//! The evidence that a variant is what its name states: probes over real connections, and captures.
//!
//! Probes act through [`Vantage`] points in the network and a [`Deployment`] of the variant; every engine implements
//! these two traits. A probe fails unless it observes what the contract promises.

#![forbid(unsafe_code)]

mod deployment;
mod features;
mod finding;
mod hbone;
mod held;
mod http;
mod judgement;
mod probes;
mod requests;
mod subject;
mod traffic;
mod trial;
mod vantage;
mod verify;

pub use deployment::{Acknowledged, Deployment, Issuer, NoCertificate};
pub use judgement::judge;
pub use probes::wire::Captures;
pub use requests::{StatsError, all_respond, app_stats, proxy_page};
pub use subject::{OUTSIDER, READY_WITHIN, Subject, canary, ingress_address};
pub use traffic::{LoadPath, Traffic, lost_connections, read_traffic};
pub use trial::{AppCounters, contradictions};
pub use vantage::{Connection, Endpoint, Vantage};
pub use verify::{Active, conclude, failed_again, run_active, run_again};
