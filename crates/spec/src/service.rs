//! The service of a spec: how many pods, called by which address, and what runs in them.

use meshtax_model::experiment::{
    Experiment, OwnProgram, PROXY_PORTS, Protocol, Service, ServiceAddress,
};
use meshtax_model::graph::Graph;

use crate::error::Problem;
use crate::fields::{Fields, scalar, text_of, word};
use crate::tree::{Node, Value};
use crate::value::{self, ValueError};

const EXAMPLE: &str = "`service: {replicas: 4, nodes: 2, address: virtual}`";
const PROGRAM_EXAMPLE: &str = "`server: {command: [nginx, -g, daemon off;], port: 80}`";

/// More on one machine would measure its scheduler.
pub(crate) const MOST_REPLICAS: u32 = 500;

/// Each is a network of its own, and has a link to each other one.
pub(crate) const MOST_NODES: u32 = 20;

/// As many as a node's bridges have ports for.
const MOST_PODS: u32 = 4000;

pub(crate) fn read(node: &Node) -> Result<Service, Problem> {
    let keys = ["replicas", "nodes", "address", "server"];
    let fields = Fields::of(node, "`service`", &keys, EXAMPLE)?;
    let replicas = fields.or("replicas", 1, |t| {
        value::count(t, "a number of pods", 1, MOST_REPLICAS)
    })?;
    let nodes = match fields.get("nodes") {
        Some(node) => {
            let count = scalar(node, "nodes", number_of_nodes)?;
            enough_for(count, replicas).map_err(|e| Problem::new(node.at, e.problem, e.fix))?;
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
            let address = word(node, "address", &WORDS)?;
            if replicas > 1 && address == ServiceAddress::Pod {
                return Err(Problem::new(
                    node.at,
                    format!("a pod's address reaches one of {replicas} replicas only"),
                    "write `address: virtual`, or leave `replicas` out",
                ));
            }
            address
        }
        None if replicas > 1 => ServiceAddress::Virtual,
        None => ServiceAddress::Pod,
    };
    Ok(Service {
        replicas,
        nodes,
        address,
        program: fields.get("server").map(program).transpose()?,
        graph: None,
    })
}

pub(crate) fn number_of_nodes(text: &str) -> Result<u32, ValueError> {
    value::count(text, "a number of nodes", 1, MOST_NODES)
}

/// A node without a replica would have nothing to do.
pub(crate) fn enough_for(nodes: u32, replicas: u32) -> Result<(), ValueError> {
    if nodes <= replicas {
        return Ok(());
    }
    let replicas = match replicas {
        1 => "1 replica".to_owned(),
        more => format!("{more} replicas"),
    };
    Err(ValueError {
        problem: format!("{replicas} cannot stand on {nodes} nodes: some would have none"),
        fix: format!("give it {nodes} replicas at least, or fewer nodes"),
    })
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
            format!(
                "`command` is a list of words, and here stands {}",
                node.kind()
            ),
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
    let port = value::count(text, "a port", 1, u32::from(u16::MAX))? as u16;
    if PROXY_PORTS.contains(&port) {
        return Err(ValueError {
            problem: format!("port {port} belongs to a proxy in some data plane"),
            fix: "let the program listen elsewhere, as on 9000".to_owned(),
        });
    }
    Ok(port)
}

fn path(text: &str) -> Result<String, ValueError> {
    let fits = text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic());
    if fits && text.len() <= 1024 {
        return Ok(text.to_owned());
    }
    Err(ValueError {
        problem: format!("{text:?} is no path of a request"),
        fix: "a path begins with / and has no spaces, as in /index.html".to_owned(),
    })
}

/// Whether the rest of the experiment goes with the service.
pub(crate) fn fits(node: Option<&Node>, experiment: &Experiment) -> Result<(), Problem> {
    let Some(node) = node else {
        return Ok(());
    };
    room_for_all(experiment).map_err(|e| Problem::new(node.at, e.problem, e.fix))?;
    match experiment.service.program {
        Some(_) => program_fits(node, experiment),
        None => Ok(()),
    }
}

/// All variants stand at the same time, each with its replicas, the services behind them, a pod for a waypoint, and one
/// for a gateway if there is one.
pub(crate) fn room_for_all(experiment: &Experiment) -> Result<(), ValueError> {
    let variants = experiment.variants.len() as u32;
    let own = 1 + u32::from(experiment.has_ingress());
    let most = MOST_PODS / variants.max(1) - own;
    let service = &experiment.service;
    let behind = service.graph.as_ref().map_or(0, Graph::pods);
    let pods = service.replicas.saturating_add(behind);
    if pods <= most {
        return Ok(());
    }
    let (what, fix) = match behind {
        0 => ("replicas", format!("write `replicas: {most}` or less")),
        _ => ("pods", "take a smaller topology".to_owned()),
    };
    Err(ValueError {
        problem: format!(
            "{pods} {what} of {variants} variants (the two baselines among them) are more pods than \
             the lab has room for"
        ),
        fix: format!("{fix}, or leave out variants"),
    })
}

/// The user's own program is asked by plain HTTP/1.1, and answers what it likes.
fn program_fits(node: &Node, experiment: &Experiment) -> Result<(), Problem> {
    for point in &experiment.load_points {
        if point.protocol != Protocol::Http1 || point.response_bytes.is_some() {
            return Err(Problem::new(
                node.at,
                format!(
                    "the load point `{}` asks for a protocol or a size of answers that meshtax cannot \
                     ask of the service's own program",
                    point.id
                ),
                "leave `protocol` and `response` out of the load points, or `server` out of the service",
            ));
        }
    }
    if let Some(variant) = experiment.variants.iter().find(|v| v.inject.is_some()) {
        return Err(Problem::new(
            node.at,
            format!(
                "`{}` injects a delay, which the service's own program does not know of",
                variant.id
            ),
            "leave `inject` out, or `server` out of the service",
        ));
    }
    Ok(())
}
