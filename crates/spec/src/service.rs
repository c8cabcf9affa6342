//! The service of a spec: its pods, its address, and the program that runs in them.

use http::uri::PathAndQuery;
use meshtax_model::catalogue::{self, Family};
use meshtax_model::experiment::{Experiment, PROXY_PORTS, PolicyLevel, Protocol, Variant};
use meshtax_model::topology::{OwnProgram, Service, ServiceAddress, Topology};

use crate::grammar::{ValueError, count, in_range};
use crate::yaml::{Fields, Node, Problem, Value, keyword, scalar, text_of};

const EXAMPLE: &str = "`service: {replicas: 4, nodes: 2}`";
const PROGRAM_EXAMPLE: &str = "`server: {command: [nginx, -g, daemon off;], port: 80}`";

/// More pods on one machine would measure its scheduler.
pub(crate) const MAX_REPLICAS: u32 = 500;

/// Each node is a network with a link to every other node.
const MAX_NODES: u32 = 20;

/// The ports of a node's bridges.
const MAX_PODS: u32 = 4000;

pub(crate) fn read(node: &Node) -> Result<Topology, Problem> {
    let keys = ["replicas", "nodes", "address", "server"];
    let fields = Fields::of(node, "`service`", &keys, EXAMPLE)?;
    let replicas = fields.or("replicas", 1, in_range("a number of pods", 1, MAX_REPLICAS))?;
    let nodes = match fields.get("nodes") {
        Some(node) => {
            let count = scalar(node, "nodes", number_of_nodes)?;
            enough_for(count, replicas).map_err(|e| Problem::at(node.at, e))?;
            count
        }
        None => 1,
    };
    let address = match fields.get("address") {
        Some(node) => {
            const WORDS: [(&str, ServiceAddress); 2] = [
                ("virtual", ServiceAddress::Virtual),
                ("pod", ServiceAddress::Pod),
            ];
            let address = keyword(node, "address", &WORDS)?;
            if replicas > 1 && address == ServiceAddress::Pod {
                return Err(Problem::new(
                    node.at,
                    format!("a pod's address reaches one of {replicas} replicas only"),
                    "omit `address`, or `replicas`",
                ));
            }
            address
        }
        None => ServiceAddress::default(),
    };
    Ok(Topology {
        name: None,
        services: vec![Service {
            replicas,
            nodes,
            address,
            program: fields.get("server").map(program).transpose()?,
            ..Service::new("server")
        }],
    })
}

pub(crate) fn number_of_nodes(text: &str) -> Result<u32, ValueError> {
    count(text, "a number of nodes", 1, MAX_NODES)
}

/// Every node must have a replica.
pub(crate) fn enough_for(nodes: u32, replicas: u32) -> Result<(), ValueError> {
    if nodes <= replicas {
        return Ok(());
    }
    let replicas = match replicas {
        1 => "1 replica".to_owned(),
        more => format!("{more} replicas"),
    };
    Err(ValueError::new(
        format!("{replicas} cannot be distributed over {nodes} nodes: some nodes would have none"),
        format!("use at least {nodes} replicas, or fewer nodes"),
    ))
}

fn program(node: &Node) -> Result<OwnProgram, Problem> {
    let fields = Fields::of(
        node,
        "`server`",
        &["command", "port", "path"],
        PROGRAM_EXAMPLE,
    )?;
    let command_node = fields.need("command", PROGRAM_EXAMPLE)?;
    let port_node = fields.need("port", PROGRAM_EXAMPLE)?;
    Ok(OwnProgram {
        command: command(command_node)?,
        port: scalar(port_node, "port", port)?,
        path: fields.or("path", "/".to_owned(), path)?,
    })
}

fn command(node: &Node) -> Result<Vec<String>, Problem> {
    let Value::List(items) = &node.value else {
        return Err(Problem::new(
            node.at,
            format!("`command` must be a list of words, not {}", node.kind()),
            format!("write it as {PROGRAM_EXAMPLE}; there is no shell"),
        ));
    };
    let words: Vec<String> = items
        .iter()
        .map(|item| text_of(item, "command").map(str::to_owned))
        .collect::<Result<_, _>>()?;
    match words.first().map(String::as_str) {
        None | Some("") => Err(Problem::new(
            node.at,
            "`command` names no program",
            format!("write it as {PROGRAM_EXAMPLE}"),
        )),
        Some(_) => Ok(words),
    }
}

fn port(text: &str) -> Result<u16, ValueError> {
    let port = count(text, "a port", 1, u32::from(u16::MAX))? as u16;
    if PROXY_PORTS.contains(&port) {
        return Err(ValueError::new(
            format!("port {port} is used by the proxies of a data plane"),
            "let the program listen on another port, such as 9000",
        ));
    }
    Ok(port)
}

fn path(text: &str) -> Result<String, ValueError> {
    let parsed = text.parse::<PathAndQuery>();
    // The parser drops a fragment.
    let is_valid = parsed.is_ok_and(|path| path.as_str() == text);
    if is_valid && text.starts_with('/') && text.is_ascii() && text.len() <= 1024 {
        return Ok(text.to_owned());
    }
    let fix = "a path begins with / and has no spaces, as in /index.html";
    Err(ValueError::not(text, "the path of a request", fix))
}

/// Rejects an experiment that the service does not support.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), ValueError> {
    room_for_all(experiment)?;
    reached_by_sidecars(experiment)?;
    match experiment.topology.program() {
        Some(_) => supported_by_program(experiment),
        None => Ok(()),
    }
}

/// Istio's sidecars know services, not their pods: to a pod's address they send plaintext, which a server with STRICT mTLS
/// refuses.
fn reached_by_sidecars(experiment: &Experiment) -> Result<(), ValueError> {
    let mut services = experiment.topology.services.iter();
    if services.all(|service| service.address == ServiceAddress::Virtual) {
        return Ok(());
    }
    let is_refused = |variant: &&Variant| {
        let plane = catalogue::find(&variant.data_plane);
        let is_sidecar = plane.is_some_and(|plane| plane.family == Family::IstioSidecar);
        is_sidecar && variant.level >= Some(PolicyLevel::Mtls)
    };
    match experiment.variants.iter().find(is_refused) {
        None => Ok(()),
        Some(variant) => Err(ValueError::new(
            format!(
                "`{}` has no path to a pod's address: Istio's sidecars send plaintext there, and STRICT mTLS refuses it",
                variant.id
            ),
            "omit `address: pod`: clients then call the service's address, as they do in a cluster",
        )),
    }
}

/// All variants run at the same time, each with its replicas, the services that they call, its clients, and possibly a
/// pod for a gateway.
pub(crate) fn room_for_all(experiment: &Experiment) -> Result<(), ValueError> {
    let variants = experiment.variants.len() as u32;
    let own = experiment.workload.clients + u32::from(experiment.has_ingress());
    let max = (MAX_PODS / variants.max(1)).saturating_sub(own);
    let pods = experiment.topology.pods();
    if pods <= max {
        return Ok(());
    }
    let (what, fix) = match experiment.topology.services.len() {
        1 => ("replicas", format!("use at most `replicas: {max}`")),
        _ => ("pods", "use a smaller topology".to_owned()),
    };
    Err(ValueError::new(
        format!(
            "{pods} {what} for each of {variants} variants (including the two baselines) are more pods than \
             the lab supports"
        ),
        format!("{fix}, or remove variants"),
    ))
}

/// The user's own program receives plain HTTP/1.1, and returns whatever it likes.
fn supported_by_program(experiment: &Experiment) -> Result<(), ValueError> {
    for point in &experiment.load_points {
        if point.protocol != Protocol::Http1 || point.response_bytes.is_some() {
            return Err(ValueError::new(
                format!(
                    "the load point `{}` has a protocol or a response size that meshtax cannot request from the \
                     service's own program",
                    point.id
                ),
                "omit `protocol` and `response` from the load points, or `server` from the service",
            ));
        }
    }
    match experiment.variants.iter().find(|v| v.inject.is_some()) {
        Some(variant) => Err(ValueError::new(
            format!(
                "`{}` injects a known cost, which the service's own program does not support",
                variant.id
            ),
            "omit `inject`, or `server` from the service",
        )),
        None => Ok(()),
    }
}
