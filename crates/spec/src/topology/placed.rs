//! From services as they are written to a graph: all names exist, there is no cycle, and each service has a node.

use std::collections::{BTreeMap, VecDeque};

use meshtax_model::topology::{NodeSide, Service, ServiceAddress, Topology};

use super::definition::TopologySpec;
use super::draft::Draft;
use crate::grammar::{ValueError, quoted, with_suggestion};
use crate::service::enough_for;
use crate::yaml::{Node, Problem};

/// Names that the lab uses for other pods and identities.
const RESERVED: [&str; 6] = [
    "client",
    "waypoint",
    "ingress-gateway",
    "outsider",
    "intruder",
    "impostor",
];

/// Whether a pod of the clients could have this name.
fn is_further_client(name: &str) -> bool {
    let number = name.strip_prefix("client-");
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What is wrong with a service, before its location is known.
pub(super) struct Invalid {
    service: usize,
    error: ValueError,
}

impl Invalid {
    /// At the location of the service in `nodes`, or else of the whole.
    pub(super) fn located<'a>(
        self,
        mut nodes: impl Iterator<Item = &'a Node>,
        whole: &Node,
    ) -> Problem {
        let at = nodes.nth(self.service).map_or(whole.at, |node| node.at);
        Problem::at(at, self.error)
    }
}

fn invalid(service: usize, problem: String, fix: impl Into<String>) -> Invalid {
    Invalid {
        service,
        error: ValueError::new(problem, fix),
    }
}

/// A topology whose services were not read from a file.
pub(super) fn topology(name: &str, drafts: Vec<Draft>) -> Result<TopologySpec, ValueError> {
    place(name, drafts).map_err(|invalid| invalid.error)
}

/// Clients call the first of the services, and those that are marked.
pub(super) fn place(name: &str, mut drafts: Vec<Draft>) -> Result<TopologySpec, Invalid> {
    if let Some(first) = drafts.first_mut() {
        first.entry_point = true;
    }
    names_are_fit(&drafts)?;
    pages_are_of_the_first(&drafts)?;
    nodes_are_of_the_first(&drafts)?;
    calls_are_known(&drafts)?;
    no_cycle(&drafts)?;
    let nodes = nodes(&drafts);
    let Some(first) = drafts.first_mut() else {
        let fix = "list at least one, as in `services: [{name: front}]`";
        return Err(invalid(0, "there are no services".to_owned(), fix));
    };
    // It is the workload's default, which a spec can override.
    let response_bytes = first.response_bytes.take();
    let placed = drafts.into_iter().zip(nodes);
    let services = placed
        .map(|(draft, node)| Service {
            name: draft.name,
            replicas: draft.replicas,
            node,
            nodes: draft.nodes,
            address: ServiceAddress::default(),
            response_bytes: match draft.entry_point {
                true => draft.response_bytes,
                false => Some(draft.response_bytes.unwrap_or(1024)),
            },
            entry_point: draft.entry_point,
            program: None,
            work: draft.work,
            pages: draft.pages,
        })
        .collect();
    Ok(TopologySpec {
        name: name.to_owned(),
        topology: Topology {
            name: Some(name.to_owned()),
            services,
        },
        response_bytes,
        unsupported: Vec::new(),
    })
}

fn names_are_fit(drafts: &[Draft]) -> Result<(), Invalid> {
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for (number, draft) in drafts.iter().enumerate() {
        let name = &draft.name;
        let is_label = name.len() <= 40
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !name.ends_with('-');
        if !is_label {
            let fix = "use up to 40 of a-z 0-9 -, beginning with a letter, as in DNS labels: front, cart-2";
            let name = quoted(name);
            return Err(invalid(
                number,
                format!("`{name}` cannot be the name of a service"),
                fix,
            ));
        }
        if RESERVED.contains(&name.as_str()) || is_further_client(name) {
            let fix = format!("reserved names: {}, client-2", RESERVED.join(", "));
            return Err(invalid(
                number,
                format!("the name `{name}` is reserved"),
                fix,
            ));
        }
        for pod in 1..=draft.replicas {
            let pod = match pod {
                1 => name.clone(),
                _ => format!("{name}-{pod}"),
            };
            if pods.insert(pod.clone(), number).is_some() {
                let problem = format!("two pods would have the name `{pod}`");
                return Err(invalid(number, problem, "rename one of the services"));
            }
        }
    }
    Ok(())
}

/// Only clients request pages, and only if they call one service: otherwise each would need them.
fn pages_are_of_the_first(drafts: &[Draft]) -> Result<(), Invalid> {
    let further = || drafts.iter().enumerate().skip(1);
    for (number, draft) in further() {
        if !draft.pages.is_empty() {
            let problem = format!("`{}` has pages, but is not the first service", draft.name);
            let fix =
                "move the pages to the first service: services do not request pages of each other";
            return Err(invalid(number, problem, fix));
        }
    }
    let has_pages = drafts.first().is_some_and(|first| !first.pages.is_empty());
    match further().find(|(_, draft)| has_pages && draft.entry_point) {
        None => Ok(()),
        Some((number, draft)) => {
            let problem = format!(
                "clients also call `{}`, while the first service has pages",
                draft.name
            );
            let fix = "omit `clients: true`, or the pages";
            Err(invalid(number, problem, fix))
        }
    }
}

/// Every other service runs on one node: that of the clients, or the first of the servers'.
fn nodes_are_of_the_first(drafts: &[Draft]) -> Result<(), Invalid> {
    for (number, draft) in drafts.iter().enumerate() {
        if number > 0 && draft.nodes > 1 {
            let problem = format!(
                "`{}` has several nodes, but is not the first service",
                draft.name
            );
            let fix = "give `nodes` to the first service, and `node: client` or `server` to others";
            return Err(invalid(number, problem, fix));
        }
        enough_for(draft.nodes, draft.replicas).map_err(|error| Invalid {
            service: number,
            error,
        })?;
    }
    Ok(())
}

fn position(drafts: &[Draft], name: &str) -> Option<usize> {
    drafts.iter().position(|draft| draft.name == name)
}

fn calls_are_known(drafts: &[Draft]) -> Result<(), Invalid> {
    for (number, draft) in drafts.iter().enumerate() {
        for call in draft.calls() {
            if position(drafts, &call.service).is_some() {
                continue;
            }
            let names = || drafts.iter().map(|d| d.name.as_str());
            let fix = format!("services: {}", names().collect::<Vec<_>>().join(", "));
            let callee = quoted(&call.service);
            return Err(invalid(
                number,
                format!(
                    "`{}` calls `{callee}`, and there is no such service",
                    draft.name
                ),
                with_suggestion(&call.service, names(), fix),
            ));
        }
    }
    Ok(())
}

/// In a cycle, a request would never end.
fn no_cycle(drafts: &[Draft]) -> Result<(), Invalid> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    fn visit(drafts: &[Draft], seen: &mut [Seen], number: usize) -> Result<(), Invalid> {
        seen[number] = Seen::Above;
        for call in drafts[number].calls() {
            let Some(callee) = position(drafts, &call.service) else {
                continue;
            };
            match seen[callee] {
                Seen::Done => {}
                Seen::No => visit(drafts, seen, callee)?,
                Seen::Above => {
                    let (caller, callee) = (&drafts[number].name, &drafts[callee].name);
                    return Err(invalid(
                        number,
                        format!(
                            "`{caller}` calls `{callee}`, which calls `{caller}` directly or indirectly"
                        ),
                        "remove one of the calls: a request would never end",
                    ));
                }
            }
        }
        seen[number] = Seen::Done;
        Ok(())
    }
    let mut seen = vec![Seen::No; drafts.len()];
    for number in 0..drafts.len() {
        if seen[number] == Seen::No {
            visit(drafts, &mut seen, number)?;
        }
    }
    Ok(())
}

/// The node that is given, or else the opposite of the node of the service's first caller (clients come first), so that
/// calls cross the link between the nodes.
fn nodes(drafts: &[Draft]) -> Vec<NodeSide> {
    let mut nodes: Vec<Option<NodeSide>> = drafts.iter().map(|d| d.node).collect();
    let mut next: VecDeque<usize> = VecDeque::new();
    for (number, _) in drafts.iter().enumerate().filter(|(_, d)| d.entry_point) {
        nodes[number].get_or_insert(NodeSide::Server);
        next.push_back(number);
    }
    if let Some(first) = nodes.first_mut() {
        *first = Some(NodeSide::Server);
    }
    let mut visited = vec![false; drafts.len()];
    while let Some(number) = next.pop_front() {
        if std::mem::replace(&mut visited[number], true) {
            continue;
        }
        let here = nodes[number].unwrap_or(NodeSide::Server);
        let calls = drafts[number].calls();
        for callee in calls.filter_map(|c| position(drafts, &c.service)) {
            nodes[callee].get_or_insert(here.other());
            next.push_back(callee);
        }
    }
    // A service without callers runs on the clients' node, which has fewer pods.
    let node = |node: Option<NodeSide>| node.unwrap_or(NodeSide::Client);
    nodes.into_iter().map(node).collect()
}
