//! Topologies of isotope, Istio's own generator of load over service graphs (istio/tools, isotope/README.md).
//!
//! What it knows and this does not is told and left out: bodies of requests, gRPC between services, and policies.

use meshtax_model::graph::{Call, Step, Work};

use super::{Draft, Topology, own, placed};
use crate::error::Problem;
use crate::fields::{Fields, items, scalar, text_of};
use crate::parse::safe_name;
use crate::service::MOST_REPLICAS;
use crate::tree::{Node, Value};
use crate::value::{self, ValueError};

const MOST_SERVICES: usize = 200;
const MOST_STEPS: usize = 100;
const EXAMPLE: &str = "`services: [{name: a, isEntrypoint: true, script: [{call: b}]}, {name: b}]`";

const TOP_KEYS: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "default",
    "defaults",
    "services",
];
const KEYS: [&str; 9] = [
    "name",
    "type",
    "numReplicas",
    "numRbacPolicies",
    "isEntrypoint",
    "errorRate",
    "requestSize",
    "responseSize",
    "script",
];

/// Whether a document is meant to be one: by its kind, or by words that only isotope has.
pub(super) fn is_one(root: &Node) -> bool {
    let has = |node: &Node, names: &[&str]| match &node.value {
        Value::Map(entries) => entries
            .iter()
            .any(|(key, _)| names.contains(&key.name.as_str())),
        _ => false,
    };
    let services = match &root.value {
        Value::Map(entries) => entries.iter().find(|(key, _)| key.name == "services"),
        _ => None,
    };
    let first_words = ["apiVersion", "kind", "default", "defaults"];
    let words = [
        "script",
        "isEntrypoint",
        "numReplicas",
        "errorRate",
        "responseSize",
    ];
    let in_services = match services.map(|(_, node)| &node.value) {
        Some(Value::List(items)) => items.iter().any(|item| has(item, &words)),
        _ => false,
    };
    has(root, &first_words) || in_services
}

/// What holds for services that say nothing else.
#[derive(Default)]
struct Defaults {
    replicas: Option<u32>,
    response_bytes: Option<u32>,
    error_share: Option<f64>,
    steps: Option<Vec<Step>>,
}

pub(super) fn read(root: &Node) -> Result<Topology, Problem> {
    let fields = Fields::of(root, "a topology of isotope", &TOP_KEYS, EXAMPLE)?;
    let mut left_out = LeftOut::default();
    let defaults = match fields.get("defaults").or(fields.get("default")) {
        Some(node) => defaults(node, &mut left_out)?,
        None => Defaults::default(),
    };
    let nodes = items(fields.need("services", EXAMPLE)?, "services", MOST_SERVICES)?;
    let mut services = Vec::new();
    for node in nodes {
        services.push((service(node, &defaults, &mut left_out)?, node));
    }
    let first = services.remove(first_called(&services));
    services.insert(0, first);
    let name = fields.or("name", "isotope".to_owned(), safe_name)?;
    let (drafts, nodes): (Vec<_>, Vec<_>) = services.into_iter().unzip();
    let placed = placed::place(&name, drafts);
    let mut topology = placed.map_err(|wrong| own::at_its_place(wrong, nodes.into_iter(), root))?;
    topology.left_out = left_out.0;
    Ok(topology)
}

/// The place of the one that is to come first: an entry point that no other service calls, or, where none is marked,
/// whatever is not called.
fn first_called(services: &[(Draft, &Node)]) -> usize {
    let drafts = || services.iter().map(|(draft, _)| draft);
    let is_called = |name: &str| {
        drafts()
            .flat_map(Draft::calls)
            .any(|call| call.service == name)
    };
    let any_is_marked = drafts().any(|draft| draft.clients);
    let may_be = |draft: &Draft| draft.clients || !any_is_marked;
    let alone = drafts().position(|draft| may_be(draft) && !is_called(&draft.name));
    alone
        .or_else(|| drafts().position(|draft| draft.clients))
        .unwrap_or(0)
}

/// What has no counterpart, each once.
#[derive(Default)]
struct LeftOut(Vec<String>);

impl LeftOut {
    fn note(&mut self, what: &str) {
        if !self.0.iter().any(|noted| noted == what) {
            self.0.push(what.to_owned());
        }
    }

    fn of(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        if let Some(node) = fields.get("type")
            && text_of(node, "type")? == "grpc"
        {
            self.note("gRPC between services: calls go over HTTP/1.1");
        }
        if fields.get("requestSize").is_some() {
            self.note("bodies of requests: calls have none");
        }
        if fields.get("numRbacPolicies").is_some() {
            self.note("further policies: the variants' levels say what is enforced");
        }
        Ok(())
    }
}

fn defaults(node: &Node, left_out: &mut LeftOut) -> Result<Defaults, Problem> {
    let fields = Fields::of(
        node,
        "`defaults`",
        &KEYS,
        "`defaults: {responseSize: 16 KB}`",
    )?;
    left_out.of(&fields)?;
    shared(&fields, left_out)
}

/// What may stand in the defaults and in a service alike.
fn shared(fields: &Fields<'_>, left_out: &mut LeftOut) -> Result<Defaults, Problem> {
    Ok(Defaults {
        replicas: fields.or("numReplicas", None, |t| {
            value::count(t, "a number of pods", 1, MOST_REPLICAS).map(Some)
        })?,
        response_bytes: fields.or("responseSize", None, |t| size(t).map(Some))?,
        error_share: fields.or("errorRate", None, |t| rate(t).map(Some))?,
        steps: match fields.get("script") {
            Some(node) => Some(script(node, left_out)?),
            None => None,
        },
    })
}

fn service(node: &Node, defaults: &Defaults, left_out: &mut LeftOut) -> Result<Draft, Problem> {
    let fields = Fields::of(node, "a service", &KEYS, EXAMPLE)?;
    left_out.of(&fields)?;
    let name = text_of(fields.need("name", EXAMPLE)?, "name")?;
    let own = shared(&fields, left_out)?;
    let steps = own.steps.or_else(|| defaults.steps.clone());
    Ok(Draft {
        clients: match fields.get("isEntrypoint") {
            Some(node) => text_of(node, "isEntrypoint")? == "true",
            None => false,
        },
        replicas: own.replicas.or(defaults.replicas).unwrap_or(1),
        // Its own default: no bytes.
        response_bytes: Some(own.response_bytes.or(defaults.response_bytes).unwrap_or(0)),
        work: Work {
            error_share: own.error_share.or(defaults.error_share).unwrap_or(0.0),
            steps: steps.unwrap_or_default(),
            ..Work::default()
        },
        ..Draft::new(name)
    })
}

/// Its sizes are binary whatever they are called: `16 KB` and `16K` are 16 KiB.
fn size(text: &str) -> Result<u32, ValueError> {
    let trimmed = text
        .trim()
        .trim_end_matches(['B', 'b'])
        .trim_end_matches('i');
    let binary = match trimmed.chars().last() {
        Some('k' | 'K') => format!("{} KiB", &trimmed[..trimmed.len() - 1]),
        Some('m' | 'M') => format!("{} MiB", &trimmed[..trimmed.len() - 1]),
        _ => format!("{trimmed} B"),
    };
    crate::parse::response_size(&binary)
}

/// `10%`, or `0.1`.
fn rate(text: &str) -> Result<f64, ValueError> {
    match text.trim().parse::<f64>() {
        Ok(share) => value::share(&format!("{}%", share * 100.0)),
        Err(_) => value::share(text),
    }
}

fn script(node: &Node, left_out: &mut LeftOut) -> Result<Vec<Step>, Problem> {
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    for item in items(node, "script", MOST_STEPS)? {
        match &item.value {
            Value::List(_) => steps.push(at_once(item, left_out)?),
            _ => steps.push(match command(item, left_out)? {
                Command::Call(call) => Step::Calls(vec![call]),
                Command::Sleep(ns) => Step::SleepNs(ns),
            }),
        }
    }
    Ok(steps)
}

/// Commands that run at the same time.
fn at_once(node: &Node, left_out: &mut LeftOut) -> Result<Step, Problem> {
    let mut calls = Vec::new();
    let mut longest_ns = 0;
    for item in items(node, "script", MOST_STEPS)? {
        match command(item, left_out)? {
            Command::Call(call) => calls.push(call),
            Command::Sleep(ns) => longest_ns = longest_ns.max(ns),
        }
    }
    if calls.is_empty() {
        return Ok(Step::SleepNs(longest_ns));
    }
    if longest_ns > 0 {
        left_out.note("pauses at the same time as calls");
    }
    Ok(Step::Calls(calls))
}

enum Command {
    Call(Call),
    Sleep(u64),
}

fn command(node: &Node, left_out: &mut LeftOut) -> Result<Command, Problem> {
    const COMMANDS: &str = "`- call: b` or `- sleep: 10ms`";
    let fields = Fields::of(node, "a command", &["call", "sleep"], COMMANDS)?;
    match fields.only() {
        Some((key, inner)) if key.name == "sleep" => {
            scalar(inner, "sleep", value::pause_ns).map(Command::Sleep)
        }
        Some((_, inner)) => call(inner, left_out).map(Command::Call),
        None => Err(Problem::new(
            node.at,
            "a command is one thing to do",
            format!("write {COMMANDS}"),
        )),
    }
}

fn call(node: &Node, left_out: &mut LeftOut) -> Result<Call, Problem> {
    if let Value::Scalar(name) = &node.value {
        return Ok(Call {
            service: name.clone(),
            share: 1.0,
        });
    }
    const CALL: &str = "`call: {service: b, probability: 50}`";
    let keys = [
        "service",
        "size",
        "payloadSize",
        "requestSize",
        "probability",
    ];
    let fields = Fields::of(node, "a call", &keys, CALL)?;
    if ["size", "payloadSize", "requestSize"]
        .iter()
        .any(|key| fields.get(key).is_some())
    {
        left_out.note("bodies of requests: calls have none");
    }
    let probability = |text: &str| value::share(&format!("{}%", text.trim().trim_end_matches('%')));
    Ok(Call {
        service: text_of(fields.need("service", CALL)?, "service")?.to_owned(),
        share: fields.or("probability", 1.0, probability)?,
    })
}
