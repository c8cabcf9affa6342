//! Reads what people write: YAML specs, presets, topologies and values with units.
//!
//! Pure: the text is passed in by the caller.
#![forbid(unsafe_code)]

mod builds;
mod clients;
mod design;
mod error;
mod grammar;
mod ingress;
mod kubernetes;
mod limits;
mod load_points;
mod margins;
mod options;
mod parse;
mod presets;
mod saturation;
mod service;
mod sides;
mod topology;
mod upgrade;
mod variants;
mod workload;
mod yaml;

pub use builds::build;
pub use clients::{clients, set_clients};
pub use design::{Lengths, fit_trials_to_time};
pub use error::SpecError;
pub use grammar::{
    ValueError, between, count, duration_ns, hops, hourly_price, inject, latency_goal, limit,
    nearest, need, objective, percent, percentage, precision, priority, rate_per_s, requests,
    seconds_ns, service_time, share, size_bytes, time_limit_ns, trial_ns, unbounded_rate_per_s,
    warmup_ns, weight, workers,
};
pub use ingress::{ingress, route_through_gateway};
pub use load_points::{arrivals, enough_requests, protocol};
pub use options::{PER_SERVICE, changes_per_s, per_service};
pub use parse::{error_at, parse, parse_all};
pub use presets::{Preset, UPGRADE, preset, presets};
pub use sides::{SideError, Sides, interleave};
pub use topology::{
    RoundedConnections, Shipped, TopologySpec, UnsupportedFeature, named as named_topology,
    shipped as topologies, topology,
};
pub use upgrade::{Upgrade, upgrade};
pub use variants::{add_injected, baselines, candidate, policy_level};
