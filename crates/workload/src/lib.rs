//! What the test application and the load generator do: from an experiment's topology, workload and load points to
//! [`meshtax_app::AppConfig`]s and [`meshtax_load::LoadSpec`]s. Pure, and the same for any engine.

#![forbid(unsafe_code)]

mod application;
mod demand;
mod layout;
mod request;
mod timing;

pub use application::{Application, UnresolvedDelay, applications, wait};
pub use demand::{Demand, NoGateway};
pub use layout::{CLIENT, callees, client_name, pod_name};
pub use request::{gateway_port, load_from_outside, request};
pub use timing::{Timing, bursts};
