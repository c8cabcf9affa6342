//! Services as users write them.

use meshtax_model::graph::{Call, GraphNode, Page, Step, Work};

use super::{Draft, Topology, placed};
use crate::error::Problem;
use crate::fields::{Fields, items, scalar, text_of, word};
use crate::parse::{response_size, safe_name};
use crate::service::{MOST_REPLICAS, number_of_nodes};
use crate::tree::{Node, Value};
use crate::value::{self, ValueError};

/// More services than this are more than one machine holds in several variants.
const MOST_SERVICES: usize = 200;
/// More steps than this are a program, not a shape.
const MOST_STEPS: usize = 100;

/// More pages than this are a site, not a shape.
const MOST_PAGES: usize = 50;

const PAGE_EXAMPLE: &str = "`pages: [{name: home, response: 8 KiB, calls: [auth]}]`";
const EXAMPLE: &str =
    "`topology: {name: shop, services: [{name: front, calls: [cart]}, {name: cart}]}`";
const SERVICE_EXAMPLE: &str =
    "`- {name: front, replicas: 2, response: 4 KiB, calls: [cart, stock]}`";
const CALLS_EXAMPLE: &str =
    "`calls: [cart, {all: [stock, price]}, {call: ads, share: 20%}, {sleep: 5ms}]`";

/// Clients call the first of the services, and those that say so.
pub(super) fn read(node: &Node) -> Result<Topology, Problem> {
    let fields = Fields::of(node, "a topology", &["name", "services"], EXAMPLE)?;
    let name = fields.or("name", "own".to_owned(), safe_name)?;
    let nodes = items(fields.need("services", EXAMPLE)?, "services", MOST_SERVICES)?;
    let drafts = nodes.iter().map(service).collect::<Result<Vec<_>, _>>()?;
    placed::place(&name, drafts).map_err(|wrong| at_its_place(wrong, nodes.iter(), node))
}

pub(super) fn at_its_place<'a>(
    wrong: placed::Wrong,
    mut nodes: impl Iterator<Item = &'a Node>,
    all: &Node,
) -> Problem {
    let at = nodes.nth(wrong.service).map_or(all.at, |node| node.at);
    Problem::new(at, wrong.error.problem, wrong.error.fix)
}

fn service(node: &Node) -> Result<Draft, Problem> {
    let keys = [
        "name", "clients", "replicas", "nodes", "response", "node", "burn", "time", "errors",
        "calls", "pages",
    ];
    let fields = Fields::of(node, "a service", &keys, SERVICE_EXAMPLE)?;
    let name = text_of(fields.need("name", SERVICE_EXAMPLE)?, "name")?;
    const NODES: [(&str, GraphNode); 2] =
        [("client", GraphNode::Client), ("server", GraphNode::Server)];
    // Who does not call a service needs no word.
    const CLIENTS: [(&str, bool); 1] = [("true", true)];
    Ok(Draft {
        clients: match fields.get("clients") {
            Some(node) => word(node, "clients", &CLIENTS)?,
            None => false,
        },
        replicas: fields.or("replicas", 1, |t| {
            value::count(t, "a number of pods", 1, MOST_REPLICAS)
        })?,
        nodes: fields.or("nodes", 1, number_of_nodes)?,
        response_bytes: fields.or("response", None, |t| response_size(t).map(Some))?,
        node: match fields.get("node") {
            Some(node) => Some(word(node, "node", &NODES)?),
            None => None,
        },
        work: Work {
            burn_steps: fields.or("burn", 0, value::burn_steps)?,
            time: fields.or("time", None, |t| value::service_time(t).map(Some))?,
            error_share: fields.or("errors", 0.0, value::share)?,
            steps: match fields.get("calls") {
                Some(node) => steps(node)?,
                None => Vec::new(),
            },
        },
        pages: match fields.get("pages") {
            Some(node) => pages(node)?,
            None => Vec::new(),
        },
        ..Draft::new(name)
    })
}

/// What clients ask the first service for.
fn pages(node: &Node) -> Result<Vec<Page>, Problem> {
    let nodes = items(node, "pages", MOST_PAGES)?;
    let mut pages: Vec<Page> = Vec::new();
    for node in nodes {
        let page = page(node)?;
        if pages.iter().any(|other| other.name == page.name) {
            let problem = format!("the page `{}` stands twice", page.name);
            return Err(Problem::new(
                node.at,
                problem,
                "give each a name of its own",
            ));
        }
        pages.push(page);
    }
    Ok(pages)
}

fn page(node: &Node) -> Result<Page, Problem> {
    let keys = ["name", "response", "burn", "calls"];
    let fields = Fields::of(node, "a page", &keys, PAGE_EXAMPLE)?;
    let name = fields.need("name", PAGE_EXAMPLE)?;
    Ok(Page {
        name: scalar(name, "name", safe_name)?,
        response_bytes: fields.or("response", 1024, page_size)?,
        burn_steps: fields.or("burn", 0, value::burn_steps)?,
        steps: match fields.get("calls") {
            Some(node) => steps(node)?,
            None => Vec::new(),
        },
    })
}

/// The application has them ready.
fn page_size(text: &str) -> Result<u32, ValueError> {
    const MOST: u32 = 256 * 1024;
    let bytes = response_size(text)?;
    (bytes <= MOST).then_some(bytes).ok_or_else(|| ValueError {
        problem: format!("{bytes} bytes are out of range"),
        fix: "allowed: 0 B to 256 KiB, as in 12 KiB".to_owned(),
    })
}

fn steps(node: &Node) -> Result<Vec<Step>, Problem> {
    let items = items(node, "calls", MOST_STEPS)?;
    items.iter().map(step).collect()
}

fn step(node: &Node) -> Result<Step, Problem> {
    let Value::Map(_) = &node.value else {
        return Ok(Step::Calls(vec![call(node)?]));
    };
    let fields = Fields::of(
        node,
        "a step",
        &["all", "call", "share", "sleep"],
        CALLS_EXAMPLE,
    )?;
    match fields.only() {
        Some((key, inner)) if key.name == "sleep" => {
            scalar(inner, "sleep", value::pause_ns).map(Step::SleepNs)
        }
        Some((key, inner)) if key.name == "all" => {
            let calls = items(inner, "all", MOST_STEPS)?.iter().map(call);
            calls.collect::<Result<_, _>>().map(Step::Calls)
        }
        _ => Ok(Step::Calls(vec![call(node)?])),
    }
}

/// A service's name, or the name and a share.
fn call(node: &Node) -> Result<Call, Problem> {
    if let Value::Scalar(name) = &node.value {
        return Ok(Call {
            service: name.clone(),
            share: 1.0,
        });
    }
    let fields = Fields::of(node, "a call", &["call", "share"], CALLS_EXAMPLE)?;
    let name = fields.need("call", CALLS_EXAMPLE)?;
    Ok(Call {
        service: text_of(name, "call")?.to_owned(),
        share: fields.or("share", 1.0, value::share)?,
    })
}
