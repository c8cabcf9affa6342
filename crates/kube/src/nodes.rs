//! The nodes that a run uses.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use meshtax_model::experiment::Placement;

use crate::cluster::Cluster;
use crate::error::{ClusterError, NodeProblem};
use crate::settings::Settings;

/// The nodes of a run, for pods with these settings: the clients' first, then those of `server_nodes`. On one node, all
/// are the same.
pub(crate) fn choose(
    cluster: &Cluster,
    named: &[String],
    (placement, server_nodes): (Placement, usize),
    settings: &Settings,
) -> Result<Vec<String>, ClusterError> {
    let all = all(cluster)?;
    let places = 1 + server_nodes;
    match placement {
        Placement::TwoNodes => choose_from(&all, named, places, settings),
        Placement::OneNode => {
            let only = choose_from(&all, named, 1, settings)?;
            Ok(only.into_iter().cycle().take(places).collect())
        }
    }
}

/// Fails if one of a run's nodes takes no pods any more.
pub(crate) fn check(
    cluster: &Cluster,
    nodes: &[String],
    settings: &Settings,
) -> Result<(), ClusterError> {
    choose_from(&all(cluster)?, nodes, nodes.len(), settings).map(|_| ())
}

pub(crate) fn all(cluster: &Cluster) -> Result<Vec<Node>, ClusterError> {
    let api: Api<Node> = Api::all(cluster.client());
    let mut all = cluster.list(&api, "list nodes", "")?;
    all.sort_by_key(name);
    Ok(all)
}

fn choose_from(
    all: &[Node],
    named: &[String],
    needed: usize,
    settings: &Settings,
) -> Result<Vec<String>, ClusterError> {
    let problem = |node: &Node| problem(node, settings);
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
pub(crate) fn problem(node: &Node, settings: &Settings) -> Option<NodeProblem> {
    let spec = node.spec.clone().unwrap_or_default();
    if spec.unschedulable == Some(true) {
        return Some(NodeProblem::Cordoned);
    }
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let system = labels.get("kubernetes.io/os");
    if system.is_some_and(|system| system != "linux") {
        return Some(NodeProblem::NotLinux);
    }
    let mut wanted = settings.node_selector();
    if wanted.any(|(key, value)| labels.get(key) != Some(value)) {
        return Some(NodeProblem::NotSelected);
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
        .filter(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()))
        .any(|taint| !settings.tolerate(taint));
    keeps_out.then_some(NodeProblem::Tainted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn any() -> Settings {
        Settings::default()
    }

    fn settings(text: serde_json::Value) -> Settings {
        let given = serde_json::from_value(text).unwrap();
        Settings::new(Some(&given)).unwrap()
    }

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
        assert_eq!(choose_from(&cluster(), &[], 2, &any()).unwrap(), ["a", "e"]);
        let error = choose_from(&cluster(), &[], 3, &any())
            .unwrap_err()
            .to_string();
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
            match choose_from(&cluster(), &named, 2, &any()) {
                Err(ClusterError::Node { problem: found, .. }) => assert_eq!(found, problem),
                other => panic!("{name}: {other:?}"),
            }
        }
        let named = ["e".to_owned(), "a".to_owned()];
        assert_eq!(
            choose_from(&cluster(), &named, 2, &any()).unwrap(),
            ["e", "a"]
        );
    }

    #[test]
    fn selected_nodes_are_those_with_the_labels_and_tolerated_taints() {
        let mut nodes = cluster();
        nodes[0].metadata.labels = Some([("pool".to_owned(), "bench".to_owned())].into());
        let selected = settings(json!({"node_selector": {"pool": "bench"}}));
        assert_eq!(choose_from(&nodes, &[], 1, &selected).unwrap(), ["a"]);
        assert!(choose_from(&nodes, &[], 2, &selected).is_err());
        let toleration = json!([{"key": "control-plane", "operator": "Exists"}]);
        let tolerant = settings(json!({"tolerations": toleration}));
        assert_eq!(
            choose_from(&nodes, &[], 3, &tolerant).unwrap(),
            ["a", "d", "e"]
        );
    }
}
