//! The nodes that a run uses.

use k8s_openapi::api::core::v1::Node;
use kube::Api;

use crate::cluster::Cluster;
use crate::error::{ClusterError, NodeProblem};

/// The nodes of a run: the clients' first, then the servers'.
pub(crate) fn choose(
    cluster: &Cluster,
    named: &[String],
    server_nodes: usize,
) -> Result<Vec<String>, ClusterError> {
    choose_from(&all(cluster)?, named, 1 + server_nodes)
}

/// Fails if one of a run's nodes takes no pods any more.
pub(crate) fn check(cluster: &Cluster, nodes: &[String]) -> Result<(), ClusterError> {
    choose_from(&all(cluster)?, nodes, nodes.len()).map(|_| ())
}

fn all(cluster: &Cluster) -> Result<Vec<Node>, ClusterError> {
    let api: Api<Node> = Api::all(cluster.client());
    let mut all = cluster.list(&api, "list nodes", "")?;
    all.sort_by_key(name);
    Ok(all)
}

fn choose_from(all: &[Node], named: &[String], needed: usize) -> Result<Vec<String>, ClusterError> {
    if named.is_empty() {
        let usable = all.iter().filter(|node| problem(node).is_none());
        return enough(usable.map(name).collect(), needed);
    }
    for wanted in named {
        let node = all.iter().find(|node| name(node) == *wanted);
        let problem = node.map_or(Some(NodeProblem::Absent), problem);
        if let Some(problem) = problem {
            let name = wanted.clone();
            return Err(ClusterError::Node { name, problem });
        }
    }
    enough(named.to_vec(), needed)
}

fn enough(mut names: Vec<String>, needed: usize) -> Result<Vec<String>, ClusterError> {
    if names.len() < needed {
        return Err(ClusterError::TooFewNodes {
            found: names.len(),
            names: names.join(", "),
            needed,
        });
    }
    names.truncate(needed);
    Ok(names)
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// Why no pod of meshtax can run there.
fn problem(node: &Node) -> Option<NodeProblem> {
    let spec = node.spec.clone().unwrap_or_default();
    if spec.unschedulable == Some(true) {
        return Some(NodeProblem::Cordoned);
    }
    let labels = node.metadata.labels.iter().flatten();
    let mut system = labels.filter(|(key, _)| *key == "kubernetes.io/os");
    if system.any(|(_, system)| system != "linux") {
        return Some(NodeProblem::NotLinux);
    }
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut ready = conditions.filter(|c| c.type_ == "Ready");
    if !ready.any(|c| c.status == "True") {
        return Some(NodeProblem::NotReady);
    }
    let taints = spec.taints.unwrap_or_default();
    let keeps_out = taints
        .iter()
        .any(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()));
    keeps_out.then_some(NodeProblem::Tainted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, change: impl Fn(&mut serde_json::Value)) -> Node {
        let mut node = json!({
            "metadata": {"name": name},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    fn cluster() -> Vec<Node> {
        vec![
            node("a", |_| {}),
            node("b", |n| n["spec"]["unschedulable"] = json!(true)),
            node("c", |n| {
                n["status"]["conditions"][0]["status"] = json!("Unknown");
            }),
            node("d", |n| {
                n["spec"]["taints"] = json!([{"key": "control-plane", "effect": "NoSchedule"}]);
            }),
            node("e", |_| {}),
            node("f", |n| {
                n["metadata"]["labels"] = json!({"kubernetes.io/os": "windows"});
            }),
        ]
    }

    #[test]
    fn nodes_that_take_no_pods_are_not_chosen() {
        assert_eq!(choose_from(&cluster(), &[], 2).unwrap(), ["a", "e"]);
        let error = choose_from(&cluster(), &[], 3).unwrap_err().to_string();
        assert!(error.contains("2 nodes can take pods (a, e)"), "{error}");
    }

    #[test]
    fn named_node_that_cannot_be_used_is_rejected_with_its_problem() {
        for (name, problem) in [
            ("b", NodeProblem::Cordoned),
            ("c", NodeProblem::NotReady),
            ("d", NodeProblem::Tainted),
            ("f", NodeProblem::NotLinux),
            ("x", NodeProblem::Absent),
        ] {
            let named = ["e".to_owned(), name.to_owned()];
            match choose_from(&cluster(), &named, 2) {
                Err(ClusterError::Node { problem: found, .. }) => assert_eq!(found, problem),
                other => panic!("{name}: {other:?}"),
            }
        }
        let named = ["e".to_owned(), "a".to_owned()];
        assert_eq!(choose_from(&cluster(), &named, 2).unwrap(), ["e", "a"]);
    }
}
