//! `meshtax topologies`.

use std::fmt::Write as _;

use meshtax_model::topology::{Call, WorkStep};
use meshtax_spec::{TopologySpec, topologies as all};

use crate::args::{TopologiesAction, TopologiesArgs};
use crate::exit::{Outcome, SUCCESS};
use crate::experiments;
use crate::terminal;

pub(crate) fn topologies(args: &TopologiesArgs) -> Outcome {
    match &args.action {
        None => {
            for shipped in all() {
                terminal::print(&format!("{:<18} {}\n", shipped.name, shipped.summary));
            }
        }
        Some(TopologiesAction::Show { topology: name }) => {
            let found = experiments::topology(name)?;
            terminal::print(&describe(&found));
            let shipped = all().iter().find(|shipped| shipped.name == name);
            if let Some(yaml) = shipped.and_then(|shipped| shipped.yaml) {
                terminal::print(&format!("\n{yaml}"));
            }
        }
    }
    Ok(SUCCESS)
}

/// Its services, their pods and nodes, and their calls.
fn describe(spec: &TopologySpec) -> String {
    let topology = &spec.topology;
    let (services, pods) = (topology.services.len(), topology.pods());
    if let ([only], None) = (topology.services.as_slice(), &topology.name) {
        let nodes = match only.nodes {
            1 => String::new(),
            count => format!(" on {count} nodes"),
        };
        return format!("{}: one service with {}{nodes}\n", spec.name, count(pods));
    }
    let mut text = format!(
        "{}: {services} services with {pods} pods; {:.2} calls between services per client request, {:.2} of them in sequence\n",
        spec.name,
        topology.calls_per_request(),
        topology.calls_in_sequence(),
    );
    for service in &topology.services {
        let name = &service.name;
        let placement = match service.nodes {
            1 => format!("on the {}'s node", service.node),
            nodes => format!("on {nodes} nodes"),
        };
        let requests = topology.requests_per_request(name);
        let by_clients = match service.entry_point {
            true => " (by clients)",
            false => "",
        };
        let (pods, calls) = (count(service.replicas), calls(&service.work.steps));
        let _ = writeln!(
            text,
            "  {name:<14} {pods}, {placement}, {requests:.2} requests{by_clients}, {calls}"
        );
    }
    for page in topology.services.iter().flat_map(|s| &s.pages) {
        let (name, bytes, calls) = (&page.name, page.response_bytes, calls(&page.steps));
        let _ = writeln!(text, "  page {name:<12} {bytes} bytes, {calls}");
    }
    text
}

fn count(pods: u32) -> String {
    match pods {
        1 => "1 pod".to_owned(),
        count => format!("{count} pods"),
    }
}

fn calls(steps: &[WorkStep]) -> String {
    let steps: Vec<String> = steps.iter().map(step).collect();
    match steps.is_empty() {
        true => "no calls".to_owned(),
        false => format!("calls {}", steps.join(", then ")),
    }
}

fn step(step: &WorkStep) -> String {
    match step {
        WorkStep::SleepNs(ns) => format!("a pause of {} ms", *ns as f64 / 1e6),
        WorkStep::Calls(calls) => calls.iter().map(call).collect::<Vec<_>>().join(" and "),
    }
}

fn call(call: &Call) -> String {
    match call.share {
        share if share >= 1.0 => call.service.clone(),
        share => format!("{} ({:.1} %)", call.service, share * 100.0),
    }
}
