//! The nodes that a run uses.

use std::thread;
use std::time::{Duration, Instant};

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

/// How long a node may be not ready between rounds: a kubelet that restarts reports within seconds.
const READY_AGAIN: Duration = Duration::from_secs(30);

/// Fails if one of a run's nodes takes no pods any more. One that is not ready may be so again in a moment.
pub(crate) fn check(
    cluster: &Cluster,
    nodes: &[String],
    settings: &Settings,
) -> Result<(), ClusterError> {
    const PAUSE: Duration = Duration::from_secs(1);
    check_within((READY_AGAIN, PAUSE), cluster, nodes, settings)
}

fn check_within(
    (patience, pause): (Duration, Duration),
    cluster: &Cluster,
    nodes: &[String],
    settings: &Settings,
) -> Result<(), ClusterError> {
    let begin = Instant::now();
    loop {
        match choose_from(&all(cluster)?, nodes, nodes.len(), settings) {
            Ok(_) => return Ok(()),
            Err(ClusterError::Node {
                problem: NodeProblem::NotReady,
                ..
            }) if begin.elapsed() < patience => thread::sleep(pause),
            Err(other) => return Err(other),
        }
    }
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

/// The taints of a node that is not ready, or was not a moment ago.
const OF_READINESS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

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
    let mut keeping_out = taints
        .iter()
        .filter(|taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str()))
        .filter(|taint| !settings.tolerate(taint))
        .peekable();
    keeping_out.peek()?;
    // The node controller removes these a moment after the node is ready again.
    match keeping_out.all(|taint| OF_READINESS.contains(&taint.key.as_str())) {
        true => Some(NodeProblem::NotReady),
        false => Some(NodeProblem::Tainted),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake_api::{Answer, FakeApi};

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

    /// Checks a node that has this problem in the first looks. Returns how often it was looked at.
    fn checked(
        looks: usize,
        change: impl Fn(&mut serde_json::Value) + Send + Sync + 'static,
    ) -> (usize, Result<(), ClusterError>) {
        let api = FakeApi::start(move |_, earlier| match earlier < looks {
            true => Answer::list(&[json!(node("a", &change))]),
            false => Answer::list(&[json!(node("a", |_| {}))]),
        });
        // Far more than a busy machine takes for the looks that are to succeed.
        let patience = match looks {
            usize::MAX => Duration::from_millis(300),
            _ => Duration::from_secs(20),
        };
        let times = (patience, Duration::from_millis(10));
        let checked = check_within(times, &api.cluster(), &["a".into()], &any());
        (api.requests().len(), checked)
    }

    #[test]
    fn node_that_is_not_ready_for_a_moment_is_looked_at_again_until_it_is() {
        let (looks, checked) = checked(3, |n| {
            n["status"]["conditions"][0]["status"] = json!("False");
        });
        assert!(checked.is_ok(), "{checked:?}");
        assert_eq!(looks, 4);
    }

    #[test]
    fn taint_that_a_node_keeps_for_a_moment_after_it_was_not_ready_passes() {
        let (looks, checked) = checked(2, |n| {
            n["spec"]["taints"] = json!([
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            ]);
        });
        assert!(checked.is_ok(), "{checked:?}");
        assert_eq!(looks, 3);
    }

    #[test]
    fn node_that_stays_not_ready_is_an_error_after_the_limit_and_a_cordoned_one_at_once() {
        let (looks, error) = checked(usize::MAX, |n| {
            n["status"]["conditions"][0]["status"] = json!("Unknown");
        });
        let problem = |result| match result {
            Err(ClusterError::Node { problem, .. }) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(error), NodeProblem::NotReady);
        assert!(looks > 2, "{looks}");
        let (looks, error) = checked(usize::MAX, |n| n["spec"]["unschedulable"] = json!(true));
        assert_eq!((problem(error), looks), (NodeProblem::Cordoned, 1));
    }
}
