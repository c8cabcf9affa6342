//! The workload of a spec: response size, connections, clients, and the default ingress of its load points.

use meshtax_model::experiment::{Ingress, Workload};

use crate::clients::{self, clients};
use crate::grammar::{ValueError, count, response_bytes};
use crate::ingress;
use crate::topology::TopologySpec;
use crate::yaml::{Fields, Node, Problem};

/// The key for the size of responses, of all load points or of one.
pub(crate) const RESPONSE: &str = "response";
/// The key for the number of connections, of all load points or of one.
pub(crate) const CONNECTIONS: &str = "connections";

const DEFAULT_CONNECTIONS: u32 = 32;
const DEFAULT_RESPONSE_BYTES: u32 = 1024;

/// A topology's response size is the default, and so is the next number of connections that can be distributed evenly
/// over the clients and the services that they call.
pub(crate) fn read(
    node: Option<&Node>,
    topology: Option<&TopologySpec>,
) -> Result<(Workload, Option<Ingress>), Problem> {
    let mut workload = Workload {
        response_bytes: topology
            .and_then(|t| t.response_bytes)
            .unwrap_or(DEFAULT_RESPONSE_BYTES),
        connections: DEFAULT_CONNECTIONS,
        clients: 1,
    };
    let default_connections = |clients: u32| {
        let least = DEFAULT_CONNECTIONS.max(clients);
        topology.map_or(least, |topology| topology.evenly(least, clients))
    };
    workload.connections = default_connections(1);
    let Some(node) = node else {
        return Ok((workload, None));
    };
    let keys = [RESPONSE, CONNECTIONS, clients::KEY, ingress::KEY];
    let example = "`workload: {response: 1 KiB, connections: 32}`";
    let fields = Fields::of(node, "`workload`", &keys, example)?;
    workload.response_bytes = fields.or(RESPONSE, workload.response_bytes, response_bytes)?;
    workload.clients = fields.or(clients::KEY, 1, clients)?;
    let default = default_connections(workload.clients);
    workload.connections = fields.or(CONNECTIONS, default, connections)?;
    let ingress = fields.get(ingress::KEY).map(ingress::read).transpose()?;
    Ok((workload, ingress.flatten()))
}

pub(crate) fn connections(text: &str) -> Result<u32, ValueError> {
    count(text, "a number of connections", 1, 10_000)
}
