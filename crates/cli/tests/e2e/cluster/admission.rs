//! What the cluster does not permit.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::access::{Objects, TestCluster, spec, test_cluster};
use super::account::{Rule, accounts, documented_rules, kubeconfig};
use crate::support::{Finished, Scratch, alone, finish};

/// How long the API server may take to notice new rules and policies.
const NOTICED: Duration = Duration::from_secs(20);

/// What the run says is missing; empty if it is nothing.
fn missing(finished: &Finished) -> Vec<String> {
    let mut lines = finished.stderr.lines();
    let list = lines.find_map(|line| line.split_once("missing permissions: "));
    let list = list.map_or("", |(_, list)| list);
    let mut names: Vec<String> = list.split(", ").map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// Starts a run as an account that lacks these, again until the API server knows the account's other rules.
fn refused(cluster: &TestCluster, kubeconfig: &Path, expected: &Rule) -> Finished {
    let mut wanted = expected.permissions.clone();
    wanted.sort_unstable();
    let begin = Instant::now();
    loop {
        let scratch = Scratch::new();
        let finished = finish(cluster.run_with(kubeconfig, &scratch, &[&spec(&scratch)]));
        if missing(&finished) == wanted || begin.elapsed() > NOTICED {
            assert_eq!(missing(&finished), wanted, "{}", finished.stderr);
            return finished;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn each_documented_rule_that_is_missing_is_named_before_anything_is_created() {
    let _alone = alone();
    let Some(cluster) = test_cluster("missing permissions") else {
        return;
    };
    let rules = documented_rules();
    let without = |index: usize| {
        let mut others = rules.clone();
        others.remove(index);
        (format!("without-{index}"), others)
    };
    let all: Vec<_> = (0..rules.len()).map(without).collect();
    let _accounts = accounts(cluster, &all);
    let scratch = Scratch::new();
    for ((account, _), rule) in all.iter().zip(&rules) {
        let kubeconfig = kubeconfig(cluster, &scratch, account);
        let finished = refused(cluster, &kubeconfig, rule);
        finished.expect_code(11);
        assert!(
            finished.stderr.contains("docs/kubernetes.md"),
            "{}",
            finished.stderr
        );
    }
    cluster.assert_nothing_left();
}

/// A policy that is enforced as long as this lives, and no longer: the API server notices both with a delay.
struct Enforced {
    cluster: &'static TestCluster,
    /// `None`: it is removed.
    policy: Option<Objects>,
    /// An object that it denies.
    denied: String,
}

impl Enforced {
    fn wait(&self, is_denied: bool) -> bool {
        let arguments = ["create", "--dry-run=server"];
        let is_so = || {
            let created = self.cluster.kubectl_with(&arguments, &self.denied);
            created.status.success() != is_denied
        };
        let begin = Instant::now();
        while !is_so() {
            if begin.elapsed() > NOTICED {
                return false;
            }
            thread::sleep(Duration::from_millis(200));
        }
        true
    }
}

impl Drop for Enforced {
    fn drop(&mut self) {
        drop(self.policy.take());
        self.wait(false);
    }
}

/// A policy that denies what this resource's expression does not admit, once the API server enforces it on this object.
fn policy(
    cluster: &'static TestCluster,
    resource: &str,
    expression: &str,
    denied: &str,
) -> Enforced {
    let rule = format!(
        "{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [{resource}]}}"
    );
    let policy = cluster.with_objects(format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: meshtax-e2e}}
spec:
  matchConstraints: {{resourceRules: [{rule}]}}
  validations: [{{expression: \"{expression}\", message: {MESSAGE}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: meshtax-e2e}}
spec: {{policyName: meshtax-e2e, validationActions: [Deny]}}
"
    ));
    let enforced = Enforced {
        cluster,
        policy: Some(policy),
        denied: denied.to_owned(),
    };
    assert!(enforced.wait(true), "the policy is not enforced");
    enforced
}

const MESSAGE: &str = "the office forbids this";

fn denied_by_policy(cluster: &'static TestCluster, doing: &str) {
    let scratch = Scratch::new();
    let finished = cluster.finish(&scratch, &[&spec(&scratch)]);
    finished.expect_code(11);
    for text in [doing, MESSAGE, "fix:"] {
        assert!(
            finished.stderr.contains(text),
            "{text}: {}",
            finished.stderr
        );
    }
    cluster.assert_nothing_left();
}

#[test]
fn policy_that_denies_namespaces_is_quoted() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a policy that denies namespaces") else {
        return;
    };
    let _policy = policy(
        cluster,
        "namespaces",
        "!object.metadata.name.startsWith('meshtax-')",
        "{apiVersion: v1, kind: Namespace, metadata: {name: meshtax-probe}}",
    );
    denied_by_policy(cluster, "apply Namespace meshtax-");
}

#[test]
fn policy_that_denies_the_pods_of_a_daemonset_is_quoted() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a policy that denies pods") else {
        return;
    };
    let _policy = policy(
        cluster,
        "pods",
        "!has(object.spec.hostPID) || !object.spec.hostPID",
        "{apiVersion: v1, kind: Pod, metadata: {name: probe, namespace: default}, \
         spec: {hostPID: true, containers: [{name: a, image: a}]}}",
    );
    denied_by_policy(cluster, "-agents/node-agent");
}
