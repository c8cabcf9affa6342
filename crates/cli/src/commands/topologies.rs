//! `meshtax topologies`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use meshtax_model::graph::{Call, GraphNode, Step};
use meshtax_spec::{Topology, named_topology, topologies as all, topology};

use crate::args::{TopologiesAction, TopologiesArgs};
use crate::exit::{Failure, Outcome, SPEC_INVALID, SUCCESS, USAGE};
use crate::terminal;

pub(crate) fn topologies(args: &TopologiesArgs) -> Outcome {
    match &args.action {
        None => {
            for shipped in all() {
                terminal::print(&format!("{:<18} {}\n", shipped.name, shipped.summary));
            }
        }
        Some(TopologiesAction::Show { topology: name }) => {
            let found = find(name)?;
            terminal::print(&told(&found));
            let shipped = all().iter().find(|shipped| shipped.name == name);
            if let Some(yaml) = shipped.and_then(|shipped| shipped.yaml) {
                terminal::print(&format!("\n{yaml}"));
            }
        }
    }
    Ok(SUCCESS)
}

/// A topology by its name, or from a file. What of the file has no counterpart is told.
pub(crate) fn find(name: &str) -> Result<Topology, Failure> {
    let path = Path::new(name);
    let is_file = path.extension().is_some() || name.contains('/');
    if !is_file {
        let fix = |e: meshtax_spec::ValueError| Failure::with_fix(USAGE, e.problem, &e.fix);
        return named_topology(name).map_err(fix);
    }
    let text = fs::read_to_string(path).map_err(|e| {
        let message = format!("cannot read the topology {name}: {e}");
        let fix = "name a YAML file of services, or one of `meshtax topologies`";
        Failure::with_fix(SPEC_INVALID, message, fix)
    })?;
    let found = topology(name, &text).map_err(|e| Failure::new(SPEC_INVALID, e))?;
    for what in &found.left_out {
        terminal::say(&format!("{name}: left out: {what}"));
    }
    Ok(found)
}

/// What it is made of, in words.
fn told(topology: &Topology) -> String {
    let replicas = |count: u32| match count {
        1 => "1 pod".to_owned(),
        count => format!("{count} pods"),
    };
    let nodes = match topology.nodes {
        1 => String::new(),
        count => format!(" on {count} nodes"),
    };
    let Some(graph) = &topology.graph else {
        return format!(
            "{}: one service of {}{nodes}\n",
            topology.name,
            replicas(topology.replicas)
        );
    };
    let mut text = format!(
        "{}: {} services of {} pods; for a request of a client {:.2} calls between services, {:.2} of them one \
         after the other\n",
        graph.name,
        graph.others.len() + 1,
        topology.replicas.saturating_add(graph.pods()),
        graph.calls_per_request(),
        graph.calls_in_sequence(),
    );
    for (name, work) in graph.all() {
        let pods = graph.other(name).map_or(topology.replicas, |s| s.replicas);
        let stands = match graph.other(name) {
            None if topology.nodes > 1 => format!("on {} nodes", topology.nodes),
            other => format!("on the {}'s node", other.map_or("server", |s| node(s.node))),
        };
        let calls: Vec<String> = work.steps.iter().map(step).collect();
        let calls = match calls.is_empty() {
            true => "calls nobody".to_owned(),
            false => format!("calls {}", calls.join(", then ")),
        };
        let asked = graph.requests_per_request(name);
        let by_clients = match graph.is_called(name) {
            true => " (by clients)",
            false => "",
        };
        let pods = replicas(pods);
        let _ = writeln!(
            text,
            "  {name:<14} {pods}, {stands}, asked {asked:.2} times{by_clients}, {calls}"
        );
    }
    for page in &graph.pages {
        let steps: Vec<String> = page.steps.iter().map(step).collect();
        let calls = match steps.is_empty() {
            true => "calls nobody".to_owned(),
            false => format!("calls {}", steps.join(", then ")),
        };
        let _ = writeln!(
            text,
            "  page {:<12} {} bytes, {calls}",
            page.name, page.response_bytes
        );
    }
    text
}

fn node(node: GraphNode) -> &'static str {
    match node {
        GraphNode::Client => "client",
        GraphNode::Server => "server",
    }
}

fn step(step: &Step) -> String {
    match step {
        Step::SleepNs(ns) => format!("a pause of {} ms", *ns as f64 / 1e6),
        Step::Calls(calls) => calls.iter().map(call).collect::<Vec<_>>().join(" and "),
    }
}

fn call(call: &Call) -> String {
    match call.share {
        share if share >= 1.0 => call.service.clone(),
        share => format!("{} ({:.1} %)", call.service, share * 100.0),
    }
}
