//! Topologies in meshtax's own format.

use meshtax_model::topology::{Call, NodeSide, Page, Work, WorkStep};

use super::definition::TopologySpec;
use super::draft::Draft;
use super::placed::place;
use crate::grammar::{
    ValueError, burn_steps, in_range, pause_ns, response_bytes, safe_name, service_time, share,
};
use crate::service::{MAX_REPLICAS, number_of_nodes};
use crate::yaml::{Fields, Node, Problem, Value, items, scalar, text_of};

/// More services exceed one machine with several variants.
const MAX_SERVICES: usize = 200;
/// More steps are a program, not a shape.
const MAX_STEPS: usize = 100;

/// More pages are a web site, not a shape.
const MAX_PAGES: usize = 50;

const PAGE_EXAMPLE: &str = "`pages: [{name: home, response: 8 KiB, calls: [auth]}]`";
const EXAMPLE: &str =
    "`topology: {name: shop, services: [{name: front, calls: [cart]}, {name: cart}]}`";
const SERVICE_EXAMPLE: &str =
    "`- {name: front, replicas: 2, response: 4 KiB, calls: [cart, stock]}`";
const CALLS_EXAMPLE: &str =
    "`calls: [cart, {all: [stock, price]}, {call: ads, share: 20%}, {sleep: 5ms}]`";

/// Clients call the first of the services, and those that are marked.
pub(super) fn read(node: &Node) -> Result<TopologySpec, Problem> {
    let fields = Fields::of(node, "a topology", &["name", "services"], EXAMPLE)?;
    let name = fields.or("name", "own".to_owned(), safe_name)?;
    let nodes = items(fields.need("services", EXAMPLE)?, "services", MAX_SERVICES)?;
    let drafts = nodes.iter().map(service).collect::<Result<Vec<_>, _>>()?;
    place(&name, drafts).map_err(|invalid| invalid.located(nodes.iter(), node))
}

fn service(node: &Node) -> Result<Draft, Problem> {
    let keys = [
        "name", "clients", "replicas", "nodes", "response", "node", "burn", "time", "errors",
        "calls", "pages",
    ];
    let fields = Fields::of(node, "a service", &keys, SERVICE_EXAMPLE)?;
    let name = text_of(fields.need("name", SERVICE_EXAMPLE)?, "name")?;
    const NODES: [(&str, NodeSide); 2] =
        [("client", NodeSide::Client), ("server", NodeSide::Server)];
    // There is no word for the default.
    const CLIENTS: [(&str, bool); 1] = [("true", true)];
    Ok(Draft {
        entry_point: fields.keyword("clients", &CLIENTS)?.unwrap_or(false),
        replicas: fields.or("replicas", 1, in_range("a number of pods", 1, MAX_REPLICAS))?,
        nodes: fields.or("nodes", 1, number_of_nodes)?,
        response_bytes: fields.optional("response", response_bytes)?,
        node: fields.keyword("node", &NODES)?,
        work: Work {
            burn_steps: fields.or("burn", 0, burn_steps)?,
            time: fields.optional("time", service_time)?,
            error_share: fields.or("errors", 0.0, share)?,
            steps: steps(&fields)?,
        },
        pages: match fields.get("pages") {
            Some(node) => pages(node)?,
            None => Vec::new(),
        },
        ..Draft::new(name)
    })
}

/// The pages that clients request of the first service.
fn pages(node: &Node) -> Result<Vec<Page>, Problem> {
    let nodes = items(node, "pages", MAX_PAGES)?;
    let mut pages: Vec<Page> = Vec::new();
    for node in nodes {
        let page = page(node)?;
        if pages.iter().any(|other| other.name == page.name) {
            let problem = format!("the page `{}` is listed twice", page.name);
            return Err(Problem::new(
                node.at,
                problem,
                "give each page its own name",
            ));
        }
        pages.push(page);
    }
    Ok(pages)
}

fn page(node: &Node) -> Result<Page, Problem> {
    let keys = ["name", "response", "post", "cookie", "burn", "calls"];
    let fields = Fields::of(node, "a page", &keys, PAGE_EXAMPLE)?;
    let name = fields.need("name", PAGE_EXAMPLE)?;
    Ok(Page {
        name: scalar(name, "name", safe_name)?,
        response_bytes: fields.or("response", 1024, page_size)?,
        post: fields.optional("post", sent_text)?,
        cookie: fields.optional("cookie", sent_text)?,
        burn_steps: fields.or("burn", 0, burn_steps)?,
        steps: steps(&fields)?,
    })
}

/// A form's body, or a cookie: what fits a line of a request.
fn sent_text(text: &str) -> Result<String, ValueError> {
    const MAX: usize = 4096;
    let is_sendable = text.bytes().all(|b| b.is_ascii_graphic());
    if !text.is_empty() && text.len() <= MAX && is_sendable {
        return Ok(text.to_owned());
    }
    Err(ValueError::new(
        "this text cannot be sent in a request",
        format!(
            "allowed: 1 to {MAX} visible ASCII characters without spaces, as in username=user1"
        ),
    ))
}

/// The application keeps pages in memory.
fn page_size(text: &str) -> Result<u32, ValueError> {
    const MAX: u32 = 256 * 1024;
    let bytes = response_bytes(text)?;
    (bytes <= MAX)
        .then_some(bytes)
        .ok_or_else(|| ValueError::out_of_range(text, "0 B to 256 KiB, as in 12 KiB"))
}

fn steps(fields: &Fields<'_>) -> Result<Vec<WorkStep>, Problem> {
    match fields.get("calls") {
        Some(node) => items(node, "calls", MAX_STEPS)?.iter().map(step).collect(),
        None => Ok(Vec::new()),
    }
}

fn step(node: &Node) -> Result<WorkStep, Problem> {
    let Value::Map(_) = &node.value else {
        return Ok(WorkStep::Calls(vec![call(node)?]));
    };
    let fields = Fields::of(
        node,
        "a step",
        &["all", "call", "share", "sleep"],
        CALLS_EXAMPLE,
    )?;
    match fields.only() {
        Some((key, inner)) if key.name == "sleep" => {
            scalar(inner, "sleep", pause_ns).map(WorkStep::SleepNs)
        }
        Some((key, inner)) if key.name == "all" => {
            let calls = items(inner, "all", MAX_STEPS)?.iter().map(call);
            calls.collect::<Result<_, _>>().map(WorkStep::Calls)
        }
        _ => Ok(WorkStep::Calls(vec![call(node)?])),
    }
}

/// The name of a service, or the name and a share.
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
        share: fields.or("share", 1.0, share)?,
    })
}
