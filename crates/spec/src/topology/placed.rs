//! From services as they are written to a graph: every name is known, there is no cycle, and each stands on a node.

use std::collections::{BTreeMap, VecDeque};

use meshtax_model::graph::{Graph, GraphNode, GraphService};

use super::{Draft, Topology};
use crate::error::nearest;
use crate::service::enough_for;
use crate::value::ValueError;

/// Names that the lab has for other pods and identities.
const TAKEN: [&str; 7] = [
    "client",
    "server",
    "waypoint",
    "ingress-gateway",
    "outsider",
    "intruder",
    "impostor",
];

/// What is wrong with the service of a number, which its reader gives a place.
pub(super) struct Wrong {
    pub(super) service: usize,
    pub(super) error: ValueError,
}

fn wrong(service: usize, problem: String, fix: impl Into<String>) -> Wrong {
    Wrong {
        service,
        error: ValueError {
            problem,
            fix: fix.into(),
        },
    }
}

/// For services that were not read from a file.
pub(super) fn topology(name: &str, drafts: Vec<Draft>) -> Result<Topology, ValueError> {
    place(name, drafts).map_err(|wrong| wrong.error)
}

/// Clients call the first of the services, and those that say so.
pub(super) fn place(name: &str, mut drafts: Vec<Draft>) -> Result<Topology, Wrong> {
    if let Some(first) = drafts.first_mut() {
        first.clients = true;
    }
    names_are_fit(&drafts)?;
    pages_are_of_the_first(&drafts)?;
    nodes_are_of_the_first(&drafts)?;
    calls_are_known(&drafts)?;
    no_cycle(&drafts)?;
    nobody_calls_the_first_of_several(&drafts)?;
    let nodes = nodes(&drafts);
    let mut drafts = drafts.into_iter().zip(nodes);
    let Some((entry, _)) = drafts.next() else {
        let fix = "list one at least, as in `services: [{name: front}]`";
        return Err(wrong(0, "there are no services".to_owned(), fix));
    };
    let others: Vec<GraphService> = drafts
        .map(|(draft, node)| GraphService {
            name: draft.name,
            replicas: draft.replicas,
            response_bytes: match draft.clients {
                true => draft.response_bytes,
                false => Some(draft.response_bytes.unwrap_or(1024)),
            },
            node,
            clients: draft.clients,
            work: draft.work,
        })
        .collect();
    Ok(Topology {
        name: name.to_owned(),
        replicas: entry.replicas,
        nodes: entry.nodes,
        response_bytes: entry.response_bytes,
        graph: Some(Graph {
            name: name.to_owned(),
            entry: entry.name,
            work: entry.work,
            pages: entry.pages,
            others,
        }),
        left_out: Vec::new(),
    })
}

fn names_are_fit(drafts: &[Draft]) -> Result<(), Wrong> {
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
            let fix = "use up to 40 of a-z 0-9 -, a letter first, as in DNS: front, cart-2";
            let shown = crate::value::shown(name);
            return Err(wrong(
                number,
                format!("`{shown}` cannot be a service's name"),
                fix,
            ));
        }
        if TAKEN.contains(&name.as_str()) {
            let fix = format!("these are taken: {}", TAKEN.join(", "));
            return Err(wrong(number, format!("the name `{name}` is taken"), fix));
        }
        for pod in 1..=draft.replicas {
            let pod = match pod {
                1 => name.clone(),
                _ => format!("{name}-{pod}"),
            };
            if pods.insert(pod.clone(), number).is_some() {
                let problem = format!("two pods would be called `{pod}`");
                return Err(wrong(number, problem, "give each service another name"));
            }
        }
    }
    Ok(())
}

/// Nobody but clients asks for pages, and only where they call one service: else each would have to have them.
fn pages_are_of_the_first(drafts: &[Draft]) -> Result<(), Wrong> {
    let further = || drafts.iter().enumerate().skip(1);
    for (number, draft) in further() {
        if !draft.pages.is_empty() {
            let problem = format!("`{}` has pages, and is not the first service", draft.name);
            let fix = "give pages to the first service: other services call the rest of them alike";
            return Err(wrong(number, problem, fix));
        }
    }
    let has_pages = drafts.first().is_some_and(|first| !first.pages.is_empty());
    match further().find(|(_, draft)| has_pages && draft.clients) {
        None => Ok(()),
        Some((number, draft)) => {
            let problem = format!(
                "clients call `{}`, too, and ask the first service for pages",
                draft.name
            );
            let fix = "leave out `clients: true`, or the pages";
            Err(wrong(number, problem, fix))
        }
    }
}

/// The first has a place of its own in the lab, where only clients know it. One of those that clients call is called by
/// no other: it can stand first.
fn nobody_calls_the_first_of_several(drafts: &[Draft]) -> Result<(), Wrong> {
    let Some((first, others)) = drafts.split_first() else {
        return Ok(());
    };
    if !others.iter().any(|draft| draft.clients) {
        return Ok(());
    }
    let calls_it = |draft: &Draft| draft.calls().any(|call| call.service == first.name);
    match others.iter().position(calls_it) {
        None => Ok(()),
        Some(number) => {
            let caller = &others[number].name;
            let problem = format!(
                "`{caller}` calls `{}`, the first of the services that clients call",
                first.name
            );
            let fix = format!(
                "begin with a service that no other calls, and give `{}` the key `clients: true`",
                first.name
            );
            Err(wrong(number + 1, problem, fix))
        }
    }
}

/// The others stand on one node each, beside the clients or beside the first of the servers' nodes.
fn nodes_are_of_the_first(drafts: &[Draft]) -> Result<(), Wrong> {
    for (number, draft) in drafts.iter().enumerate() {
        if number > 0 && draft.nodes > 1 {
            let problem = format!(
                "`{}` has several nodes, and clients do not call it",
                draft.name
            );
            let fix = "give `nodes` to the first service, and `node: client` or `server` to others";
            return Err(wrong(number, problem, fix));
        }
        enough_for(draft.nodes, draft.replicas).map_err(|error| Wrong {
            service: number,
            error,
        })?;
    }
    Ok(())
}

fn position(drafts: &[Draft], name: &str) -> Option<usize> {
    drafts.iter().position(|draft| draft.name == name)
}

fn calls_are_known(drafts: &[Draft]) -> Result<(), Wrong> {
    for (number, draft) in drafts.iter().enumerate() {
        for call in draft.calls() {
            if position(drafts, &call.service).is_some() {
                continue;
            }
            let names = || drafts.iter().map(|d| d.name.as_str());
            let known = format!("there are: {}", names().collect::<Vec<_>>().join(", "));
            let shown = crate::value::shown(&call.service);
            return Err(wrong(
                number,
                format!(
                    "`{}` calls `{shown}`, and no service is called so",
                    draft.name
                ),
                match nearest(&call.service, names()) {
                    Some(meant) => format!("did you mean `{meant}`? {known}"),
                    None => known,
                },
            ));
        }
    }
    Ok(())
}

/// Without one, requests end.
fn no_cycle(drafts: &[Draft]) -> Result<(), Wrong> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    fn visit(drafts: &[Draft], seen: &mut [Seen], number: usize) -> Result<(), Wrong> {
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
                    return Err(wrong(
                        number,
                        format!("`{caller}` calls `{callee}`, from where it is called itself"),
                        "leave out one of the calls: a request would never end",
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

/// Where it is said, or else on the other node than the first that calls it (clients first of all), so that calls cross
/// the link between the nodes.
fn nodes(drafts: &[Draft]) -> Vec<GraphNode> {
    let mut nodes: Vec<Option<GraphNode>> = drafts.iter().map(|d| d.node).collect();
    let mut next: VecDeque<usize> = VecDeque::new();
    for (number, _) in drafts.iter().enumerate().filter(|(_, d)| d.clients) {
        nodes[number].get_or_insert(GraphNode::Server);
        next.push_back(number);
    }
    if let Some(first) = nodes.first_mut() {
        *first = Some(GraphNode::Server);
    }
    let mut visited = vec![false; drafts.len()];
    while let Some(number) = next.pop_front() {
        if std::mem::replace(&mut visited[number], true) {
            continue;
        }
        let here = nodes[number].unwrap_or(GraphNode::Server);
        let calls = drafts[number].calls();
        for callee in calls.filter_map(|c| position(drafts, &c.service)) {
            nodes[callee].get_or_insert(here.other());
            next.push_back(callee);
        }
    }
    // Whom nobody calls stands where there is more room: beside the clients.
    let node = |node: Option<GraphNode>| node.unwrap_or(GraphNode::Client);
    nodes.into_iter().map(node).collect()
}
