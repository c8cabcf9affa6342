//! `meshtax cleanup`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::access::{PATIENCE, test_cluster, wait_for};
use crate::support::{Scratch, alone};

#[test]
fn killed_run_is_cleaned_up_by_the_cleanup_command() {
    let _alone = alone();
    let Some(cluster) = test_cluster("cleanup after a killed run") else {
        return;
    };
    let scratch = Scratch::new();
    let mut run = cluster.start(&scratch);
    wait_for(&mut run, "client", || {
        cluster.objects().contains("pod/client")
    });
    let pid = Pid::from_raw(run.pid().cast_signed());
    kill(pid, Signal::SIGKILL).expect("its own child");
    run.finish(PATIENCE);
    let cleaned = cluster.cleanup(&scratch, "--all");
    cleaned.expect_code(0);
    assert!(
        cleaned.stdout.contains("removed namespace meshtax-"),
        "{}",
        cleaned.stdout
    );
    cluster.assert_nothing_left();
    let again = cluster.cleanup(&scratch, "--all");
    assert_eq!(again.expect_code(0).stdout, "nothing was left\n");
}

/// As another version could have made them.
const STRANGE: &str = "
apiVersion: v1
kind: Namespace
metadata:
  name: meshtax-0ld-agents
  labels:
    app.kubernetes.io/managed-by: meshtax
    app.kubernetes.io/version: 0.0.1
    meshtax.io/run: 0ld
    meshtax.io/unknown: label
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-another-version, namespace: meshtax-0ld-agents}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: of-another-version, namespace: meshtax-0ld-agents}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: a, image: 'cluster.test/tools:1', command: [sleep, '1000']}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: meshtax-of-somebody-else}
";

#[test]
fn leftovers_of_another_version_are_removed_and_nothing_else() {
    let _alone = alone();
    let Some(cluster) = test_cluster("leftovers of another version") else {
        return;
    };
    let _objects = cluster.with_objects(STRANGE.to_owned());
    let scratch = Scratch::new();
    let unknown = cluster.cleanup(&scratch, "abcdef");
    assert_eq!(
        unknown.expect_code(0).stdout,
        "run abcdef has left nothing on the cluster; these runs have: 0ld\n"
    );
    let all = cluster.cleanup(&scratch, "--all");
    assert_eq!(
        all.expect_code(0).stdout,
        "removed namespace meshtax-0ld-agents (run 0ld)\n"
    );
    cluster.assert_nothing_left();
    let namespaces = cluster.kubectl(&["get", "namespaces", "-o", "name"]);
    assert!(namespaces.contains("meshtax-of-somebody-else"));
    let unknown = cluster.cleanup(&scratch, "abcdef");
    assert_eq!(
        unknown.expect_code(0).stdout,
        "run abcdef has left nothing on the cluster, nor has any other\n"
    );
}
