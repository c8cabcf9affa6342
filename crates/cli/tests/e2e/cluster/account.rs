//! Accounts with the rules of docs/kubernetes.md, or some of them.

use std::fs;
use std::path::PathBuf;

use super::access::{Objects, TestCluster};
use crate::support::Scratch;

pub(super) const DOCUMENT: &str = include_str!("../../../../../docs/kubernetes.md");

/// The namespace of the accounts.
const NAMESPACE: &str = "meshtax-e2e-user";

/// A line of the document's ClusterRole.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// `{apiGroups: [""], resources: [nodes], verbs: [list]}`
    pub(super) yaml: String,
    /// What it permits, as errors name it: `create daemonsets.apps`.
    pub(super) permissions: Vec<String>,
}

/// The rules that the document asks for in every run.
pub(super) fn documented_rules() -> Vec<Rule> {
    let (_, role) = DOCUMENT.split_once("kind: ClusterRole").expect("a role");
    let (role, _) = role.split_once("```").expect("its end");
    let lines = role.lines().map(str::trim);
    let rules = lines.filter_map(|line| line.strip_prefix("- {apiGroups"));
    let rules: Vec<Rule> = rules
        .map(|rest| Rule::of(&format!("{{apiGroups{rest}")))
        .collect();
    assert!(rules.len() > 5, "{rules:?}");
    rules
}

impl Rule {
    fn of(yaml: &str) -> Self {
        let list = |key: &str| -> Vec<&str> {
            let (_, rest) = yaml.split_once(key).expect("the key");
            let (_, rest) = rest.split_once('[').expect("a list");
            let (list, _) = rest.split_once(']').expect("its end");
            let items = list.split(',');
            items.map(|item| item.trim().trim_matches('"')).collect()
        };
        let group = match list("apiGroups:")[..] {
            [""] => String::new(),
            [group] => format!(".{group}"),
            _ => panic!("one group: {yaml}"),
        };
        let mut permissions = Vec::new();
        for resource in list("resources:") {
            for verb in list("verbs:") {
                permissions.push(format!("{verb} {resource}{group}"));
            }
        }
        Self {
            yaml: yaml.to_owned(),
            permissions,
        }
    }
}

/// Accounts, the rules of each, and what binds them.
pub(super) fn accounts(cluster: &'static TestCluster, all: &[(String, Vec<Rule>)]) -> Objects {
    let mut objects =
        format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}\n");
    for (name, rules) in all {
        let rules: Vec<&str> = rules.iter().map(|rule| rule.yaml.as_str()).collect();
        let rules = rules.join(", ");
        objects += &format!(
            "---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {NAMESPACE}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {NAMESPACE}-{name}}}
rules: [{rules}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {NAMESPACE}-{name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {NAMESPACE}-{name}}}
subjects: [{{kind: ServiceAccount, name: {name}, namespace: {NAMESPACE}}}]
"
        );
    }
    cluster.with_objects(objects)
}

/// A kubeconfig with the account's token.
pub(super) fn kubeconfig(cluster: &TestCluster, scratch: &Scratch, account: &str) -> PathBuf {
    let token = cluster.kubectl(&["create", "token", account, "-n", NAMESPACE]);
    let administrators = fs::read_to_string(&cluster.kubeconfig).expect("the kubeconfig");
    let own: String = administrators
        .lines()
        .map(|line| match line.split_once("token:") {
            // `user: {token: ...}`
            Some((before, _)) => format!("{before}token: {}}}\n", token.trim()),
            None => format!("{line}\n"),
        })
        .collect();
    scratch.write(&format!("kubeconfig-{account}"), &own)
}
