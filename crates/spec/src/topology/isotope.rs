//! Topologies in the format of isotope, Istio's generator of service graphs (istio/tools, isotope/README.md).
//!
//! Features without a counterpart are reported and ignored: request bodies, gRPC between services, and policies.

use meshtax_model::topology::{Call, Work, WorkStep};

use super::definition::{TopologySpec, UnsupportedFeature};
use super::draft::Draft;
use super::placed::place;
use crate::grammar::{
    ValueError, in_range, isotope_response_bytes, isotope_share, pause_ns, safe_name,
};
use crate::service::MAX_REPLICAS;
use crate::yaml::{Fields, Node, Problem, Value, items, scalar, text_of};

const MAX_SERVICES: usize = 200;
const MAX_STEPS: usize = 100;
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

/// Whether a document is in this format: by its kind, or by keys that only isotope has.
pub(super) fn is_format_of(root: &Node) -> bool {
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
    let top_keys = ["apiVersion", "kind", "default", "defaults"];
    let service_keys = [
        "script",
        "isEntrypoint",
        "numReplicas",
        "errorRate",
        "responseSize",
    ];
    let in_services = match services.map(|(_, node)| &node.value) {
        Some(Value::List(items)) => items.iter().any(|item| has(item, &service_keys)),
        _ => false,
    };
    has(root, &top_keys) || in_services
}

/// The defaults of services.
#[derive(Default)]
struct Defaults {
    replicas: Option<u32>,
    response_bytes: Option<u32>,
    error_share: Option<f64>,
    steps: Option<Vec<WorkStep>>,
}

pub(super) fn read(root: &Node) -> Result<TopologySpec, Problem> {
    let fields = Fields::of(root, "a topology of isotope", &TOP_KEYS, EXAMPLE)?;
    let mut unsupported = Unsupported::default();
    let defaults = match fields.get("defaults").or(fields.get("default")) {
        Some(node) => defaults(node, &mut unsupported)?,
        None => Defaults::default(),
    };
    let nodes = items(fields.need("services", EXAMPLE)?, "services", MAX_SERVICES)?;
    let mut services = Vec::new();
    for node in nodes {
        services.push((service(node, &defaults, &mut unsupported)?, node));
    }
    let first = services.remove(first_entry_point(&services));
    services.insert(0, first);
    let name = fields.or("name", "isotope".to_owned(), safe_name)?;
    let (drafts, nodes): (Vec<_>, Vec<_>) = services.into_iter().unzip();
    let mut topology =
        place(&name, drafts).map_err(|invalid| invalid.located(nodes.into_iter(), root))?;
    topology.unsupported = unsupported.0;
    Ok(topology)
}

/// The index of the service that comes first: an entry point that no other service calls, or, if none is marked, any
/// service that is not called.
fn first_entry_point(services: &[(Draft, &Node)]) -> usize {
    let drafts = || services.iter().map(|(draft, _)| draft);
    let is_called = |name: &str| {
        drafts()
            .flat_map(Draft::calls)
            .any(|call| call.service == name)
    };
    let any_is_marked = drafts().any(|draft| draft.entry_point);
    let may_be = |draft: &Draft| draft.entry_point || !any_is_marked;
    let uncalled = drafts().position(|draft| may_be(draft) && !is_called(&draft.name));
    uncalled
        .or_else(|| drafts().position(|draft| draft.entry_point))
        .unwrap_or(0)
}

/// Features without a counterpart, each once.
#[derive(Default)]
struct Unsupported(Vec<UnsupportedFeature>);

impl Unsupported {
    fn note(&mut self, feature: UnsupportedFeature) {
        if !self.0.contains(&feature) {
            self.0.push(feature);
        }
    }

    fn note_keys(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        if let Some(node) = fields.get("type")
            && text_of(node, "type")? == "grpc"
        {
            self.note(UnsupportedFeature::Grpc);
        }
        if fields.get("requestSize").is_some() {
            self.note(UnsupportedFeature::RequestBodies);
        }
        if fields.get("numRbacPolicies").is_some() {
            self.note(UnsupportedFeature::RbacPolicies);
        }
        Ok(())
    }
}

fn defaults(node: &Node, unsupported: &mut Unsupported) -> Result<Defaults, Problem> {
    let fields = Fields::of(
        node,
        "`defaults`",
        &KEYS,
        "`defaults: {responseSize: 16 KB}`",
    )?;
    unsupported.note_keys(&fields)?;
    shared(&fields, unsupported)
}

/// The keys that defaults and services have in common.
fn shared(fields: &Fields<'_>, unsupported: &mut Unsupported) -> Result<Defaults, Problem> {
    Ok(Defaults {
        replicas: fields.optional("numReplicas", in_range("a number of pods", 1, MAX_REPLICAS))?,
        response_bytes: fields.optional("responseSize", isotope_response_bytes)?,
        error_share: fields.optional("errorRate", error_rate)?,
        steps: fields
            .get("script")
            .map(|node| script(node, unsupported))
            .transpose()?,
    })
}

fn service(
    node: &Node,
    defaults: &Defaults,
    unsupported: &mut Unsupported,
) -> Result<Draft, Problem> {
    let fields = Fields::of(node, "a service", &KEYS, EXAMPLE)?;
    unsupported.note_keys(&fields)?;
    let name = text_of(fields.need("name", EXAMPLE)?, "name")?;
    let own = shared(&fields, unsupported)?;
    let steps = own.steps.or_else(|| defaults.steps.clone());
    Ok(Draft {
        entry_point: match fields.get("isEntrypoint") {
            Some(node) => text_of(node, "isEntrypoint")? == "true",
            None => false,
        },
        replicas: own.replicas.or(defaults.replicas).unwrap_or(1),
        // The default of isotope: no bytes.
        response_bytes: Some(own.response_bytes.or(defaults.response_bytes).unwrap_or(0)),
        work: Work {
            error_share: own.error_share.or(defaults.error_share).unwrap_or(0.0),
            steps: steps.unwrap_or_default(),
            ..Work::default()
        },
        ..Draft::new(name)
    })
}

/// `10%`, or `0.1`.
fn error_rate(text: &str) -> Result<f64, ValueError> {
    isotope_share(text, 1.0)
}

/// `50`, in percent.
fn probability(text: &str) -> Result<f64, ValueError> {
    isotope_share(text, 0.01)
}

fn script(node: &Node, unsupported: &mut Unsupported) -> Result<Vec<WorkStep>, Problem> {
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    for item in items(node, "script", MAX_STEPS)? {
        match &item.value {
            Value::List(_) => steps.push(concurrent(item, unsupported)?),
            _ => steps.push(match command(item, unsupported)? {
                Command::Call(call) => WorkStep::Calls(vec![call]),
                Command::Sleep(ns) => WorkStep::SleepNs(ns),
            }),
        }
    }
    Ok(steps)
}

/// Commands that run at the same time.
fn concurrent(node: &Node, unsupported: &mut Unsupported) -> Result<WorkStep, Problem> {
    let mut calls = Vec::new();
    let mut longest_ns = 0;
    for item in items(node, "script", MAX_STEPS)? {
        match command(item, unsupported)? {
            Command::Call(call) => calls.push(call),
            Command::Sleep(ns) => longest_ns = longest_ns.max(ns),
        }
    }
    if calls.is_empty() {
        return Ok(WorkStep::SleepNs(longest_ns));
    }
    if longest_ns > 0 {
        unsupported.note(UnsupportedFeature::ConcurrentSleep);
    }
    Ok(WorkStep::Calls(calls))
}

enum Command {
    Call(Call),
    Sleep(u64),
}

fn command(node: &Node, unsupported: &mut Unsupported) -> Result<Command, Problem> {
    const COMMANDS: &str = "`- call: b` or `- sleep: 10ms`";
    let fields = Fields::of(node, "a command", &["call", "sleep"], COMMANDS)?;
    match fields.only() {
        Some((key, inner)) if key.name == "sleep" => {
            scalar(inner, "sleep", pause_ns).map(Command::Sleep)
        }
        Some((_, inner)) => call(inner, unsupported).map(Command::Call),
        None => Err(Problem::new(
            node.at,
            "a command has exactly one key",
            format!("write {COMMANDS}"),
        )),
    }
}

fn call(node: &Node, unsupported: &mut Unsupported) -> Result<Call, Problem> {
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
        unsupported.note(UnsupportedFeature::RequestBodies);
    }
    Ok(Call {
        service: text_of(fields.need("service", CALL)?, "service")?.to_owned(),
        share: fields.or("probability", 1.0, probability)?,
    })
}
