//! A topology, and the experiments that it can be used in.

use std::fmt;

use meshtax_model::catalogue::{self, DATA_PLANES};
use meshtax_model::experiment::{
    Experiment, LoadPoint, LoadPointId, PolicyLevel, Protocol, Variant,
};
use meshtax_model::topology::Topology;

use crate::grammar::ValueError;
use crate::{ingress, service};

/// A topology as a user names or writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologySpec {
    /// `pair`, `chain-3`, `bookinfo`.
    pub name: String,
    /// The services.
    pub topology: Topology,
    /// Size of the first service's responses in bytes, which is the workload's default; `None`: it has none.
    pub response_bytes: Option<u32>,
    /// Features of its source that are not supported.
    pub unsupported: Vec<UnsupportedFeature>,
}

impl TopologySpec {
    /// Replaces the services of an experiment, as `--topology` does. Returns the numbers of connections that were
    /// increased, because they cannot be distributed evenly over the services that clients call.
    ///
    /// # Errors
    /// If the topology does not support the experiment, or the lab does not support that many pods.
    pub fn apply(
        &self,
        experiment: &mut Experiment,
    ) -> Result<Vec<RoundedConnections>, ValueError> {
        if experiment.topology.program().is_some() {
            return Err(ValueError::new(
                "the service of the experiment is the user's own program",
                "omit `server` from the service, or `--topology`",
            ));
        }
        experiment.topology = self.topology.clone();
        if let Some(bytes) = self.response_bytes {
            experiment.workload.response_bytes = bytes;
        }
        let rounded = round_connections(experiment);
        validate(experiment)?;
        Ok(rounded)
    }

    /// The next number of connections that gives each service the same number from each client.
    pub(crate) fn evenly(&self, connections: u32, clients: u32) -> u32 {
        connections.next_multiple_of(shares(&self.topology, clients))
    }
}

/// The number of equal shares into which connections are divided: one for each client at each of several services. A
/// single service gets all of them, however many each client has.
fn shares(topology: &Topology, clients: u32) -> u32 {
    match topology.entry_point_count() {
        0 | 1 => 1,
        called => called.saturating_mul(clients.max(1)),
    }
}

/// Increases the experiment's numbers of connections to ones that can be distributed evenly.
pub(crate) fn round_connections(experiment: &mut Experiment) -> Vec<RoundedConnections> {
    let shares = shares(&experiment.topology, experiment.workload.clients);
    let mut rounded = Vec::new();
    let mut round = |load_point: Option<&LoadPointId>, connections: &mut u32| {
        let from = std::mem::replace(connections, connections.next_multiple_of(shares));
        if from != *connections {
            rounded.push(RoundedConnections {
                load_point: load_point.cloned(),
                from,
                to: *connections,
            });
        }
    };
    round(None, &mut experiment.workload.connections);
    for point in &mut experiment.load_points {
        if let Some(connections) = &mut point.connections {
            round(Some(&point.id), connections);
        }
    }
    rounded
}

/// A number of connections that was increased, so that each service has the same number from each client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundedConnections {
    /// `None`: that of the workload.
    pub load_point: Option<LoadPointId>,
    /// As specified.
    pub from: u32,
    /// As used.
    pub to: u32,
}

impl fmt::Display for RoundedConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        match &self.load_point {
            None => f.write_str("workload")?,
            Some(id) => write!(f, "load point `{id}`")?,
        }
        write!(
            f,
            ": {from} connections increased to {to}, the same number for each service that clients call"
        )
    }
}

/// A feature of isotope's format that is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedFeature {
    /// `type: grpc`.
    #[error("gRPC between services: calls use HTTP/1.1")]
    Grpc,
    /// `requestSize` and the sizes of calls.
    #[error("request bodies: calls have none")]
    RequestBodies,
    /// `numRbacPolicies`.
    #[error("RBAC policies: the policy levels of the variants define what is enforced")]
    RbacPolicies,
    /// A `sleep` among concurrent commands.
    #[error("pauses concurrent with calls")]
    ConcurrentSleep,
}

/// A policy at `l7` allows GET only, so that what it denies can be probed.
fn forms_are_allowed(experiment: &Experiment) -> Result<(), ValueError> {
    let mut pages = experiment.topology.services.iter().flat_map(|s| &s.pages);
    let mut variants = experiment.variants.iter();
    let l7 = variants.find(|variant| variant.level == Some(PolicyLevel::L7));
    match (pages.find(|page| page.post.is_some()), l7) {
        (Some(page), Some(variant)) => Err(ValueError::new(
            format!(
                "the page `{}` is posted, and the policy of `{}` allows GET only",
                page.name, variant.id
            ),
            "use `mtls` or `l4`, or omit `post`",
        )),
        _ => Ok(()),
    }
}

/// Rejects an experiment that its services do not support.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), ValueError> {
    service::room_for_all(experiment)?;
    let topology = &experiment.topology;
    if topology.name.is_none() {
        return Ok(());
    }
    supported_by_data_planes(experiment)?;
    ingress::routes_to_one_service(experiment)?;
    connections_are_even(experiment)?;
    let points = &experiment.load_points;
    let has_pages = topology.services.iter().any(|s| !s.pages.is_empty());
    let other = |point: &&LoadPoint| point.protocol != Protocol::Http1;
    if let Some(point) = points.iter().filter(|_| has_pages).find(other) {
        return Err(ValueError::new(
            format!(
                "the load point `{}` uses {}, and the pages of this topology are requested over HTTP/1.1",
                point.id, point.protocol
            ),
            "omit `protocol`, or the pages",
        ));
    }
    forms_are_allowed(experiment)?;
    match points.iter().find(|p| p.protocol == Protocol::Tcp) {
        Some(point) => Err(ValueError::new(
            format!(
                "the load point `{}` uses TCP, over which bytes are echoed and no other service is called",
                point.id
            ),
            "remove it, or use the topology `pair`",
        )),
        None => Ok(()),
    }
}

/// Rejects variants whose data planes do not support services that call each other.
fn supported_by_data_planes(experiment: &Experiment) -> Result<(), ValueError> {
    let is_unsupported = |variant: &&Variant| {
        catalogue::find(&variant.data_plane).is_some_and(|plane| !plane.call_graphs)
    };
    let Some(variant) = experiment.variants.iter().find(is_unsupported) else {
        return Ok(());
    };
    let able = DATA_PLANES.iter().filter(|plane| plane.call_graphs);
    let able: Vec<&str> = able.map(|plane| plane.name).collect();
    Err(ValueError::new(
        format!(
            "the data plane `{}` does not support services that call each other yet",
            variant.data_plane
        ),
        format!(
            "these do: {}; every data plane supports the topologies `pair` and `replicas-N`",
            able.join(", ")
        ),
    ))
}

/// Rejects numbers of connections that cannot be distributed evenly over the services that clients call.
fn connections_are_even(experiment: &Experiment) -> Result<(), ValueError> {
    let called = experiment.topology.entry_point_count();
    let clients = experiment.workload.clients;
    let shares = shares(&experiment.topology, clients);
    let uneven = |point: &&LoadPoint| !experiment.connections(point).is_multiple_of(shares);
    let Some(point) = experiment.load_points.iter().find(uneven) else {
        return Ok(());
    };
    let connections = experiment.connections(point);
    Err(ValueError::new(
        format!(
            "the load point `{}` has {connections} connections, which cannot be distributed evenly over the \
             {called} services that clients call{}",
            point.id,
            match clients {
                1 => String::new(),
                _ => format!(" from {clients} clients"),
            }
        ),
        format!(
            "write `{}: {}`, or another multiple of {shares}",
            match point.by_users {
                true => "users",
                false => "connections",
            },
            connections.next_multiple_of(shares)
        ),
    ))
}
