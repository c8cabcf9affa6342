//! A quota that forbids the pods of a variant.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::access::{PATIENCE, SPEC, TestCluster, spec_with, test_cluster, wait_for};
use crate::support::{Finished, Running, Scratch, alone, records};

/// The variant whose namespace gets the quota.
const DENIED: &str = "denied";

/// How often a run is begun, until it is stopped between its variant's namespace and the first pod in it.
const TRIES: u32 = 3;

/// How long a run goes on between two looks at its namespaces: for a few requests.
const SLICE: Duration = Duration::from_millis(20);

/// A run whose variant `denied` gets a quota before its first pod, and its directory.
fn run_with_quota(cluster: &'static TestCluster, variants: &str) -> (Scratch, Finished) {
    for _ in 0..TRIES {
        let scratch = Scratch::new();
        let mut run = started(cluster, &scratch, variants);
        let namespace = stopped_at_namespace(cluster, &mut run);
        let is_in_time = listed(cluster, &["pods", "-n", &namespace]).is_empty();
        if is_in_time {
            forbid_pods(cluster, &namespace);
        }
        signal(&run, Signal::SIGCONT);
        if !is_in_time {
            signal(&run, Signal::SIGTERM);
        }
        let finished = run.finish(PATIENCE);
        cluster.assert_nothing_left();
        if is_in_time {
            return (scratch, finished);
        }
    }
    panic!("{DENIED} had pods before it could have a quota, {TRIES} times");
}

fn started(cluster: &'static TestCluster, scratch: &Scratch, variants: &str) -> Running {
    let spec = SPEC
        .replace("  - {data-plane: limit-mtls, level: mtls}\n", variants)
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 1");
    let spec = spec_with(scratch, &spec);
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8");
    let arguments = [spec.as_str(), "--time", "20s", "--json", "--out", out];
    Running::start(cluster.run(scratch, &arguments))
}

/// The namespace of `denied`, as soon as it is there. From its first namespace on the run goes on in slices, and stands still
/// while it is looked at: it is stopped in the end.
fn stopped_at_namespace(cluster: &'static TestCluster, run: &mut Running) -> String {
    wait_for(run, "a namespace", || !namespaces(cluster).is_empty());
    let begin = Instant::now();
    loop {
        signal(run, Signal::SIGSTOP);
        let mut names = namespaces(cluster).into_iter();
        if let Some(found) = names.find(|name| name.ends_with(&format!("-{DENIED}"))) {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{}", run.stderr_text());
        signal(run, Signal::SIGCONT);
        thread::sleep(SLICE);
        assert!(!run.is_over(), "no namespace: {}", run.stderr_text());
    }
}

fn namespaces(cluster: &'static TestCluster) -> Vec<String> {
    let of_runs = "app.kubernetes.io/managed-by=meshtax,!meshtax.io/mesh";
    let names = listed(cluster, &["namespaces", "-l", of_runs]);
    let names = names
        .iter()
        .filter_map(|name| name.strip_prefix("namespace/"));
    names.map(str::to_owned).collect()
}

/// Names of objects. Unlike an empty list, a failure is the test's.
fn listed(cluster: &'static TestCluster, what: &[&str]) -> Vec<String> {
    let arguments = [&["get", "-o", "name"], what].concat();
    let output = cluster.kubectl_command(&arguments).output();
    let output = output.expect("kubectl");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

fn signal(run: &Running, signal: Signal) {
    kill(Pid::from_raw(run.pid().cast_signed()), signal).expect("its own child");
}

/// Returns once the quota is enforced.
fn forbid_pods(cluster: &'static TestCluster, namespace: &str) {
    let quota = format!(
        "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: nothing, namespace: {namespace}}}, \
         spec: {{hard: {{pods: '0'}}}}}}"
    );
    let applied = cluster.kubectl_with(&["apply"], &quota);
    assert!(applied.status.success(), "{applied:?}");
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: probe, namespace: {namespace}}}, \
         spec: {{containers: [{{name: a, image: a}}]}}}}"
    );
    let begin = Instant::now();
    loop {
        let denied = cluster.kubectl_with(&["create", "--dry-run=server"], &pod);
        if String::from_utf8_lossy(&denied.stderr).contains("exceeded quota") {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{denied:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn variant_whose_pods_a_quota_forbids_is_left_out_with_its_message() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a quota") else {
        return;
    };
    let variants =
        "  - {data-plane: limit-mtls, level: mtls}\n  - {data-plane: limit-l4, id: denied}\n";
    let (scratch, finished) = run_with_quota(cluster, variants);
    finished.expect_completed();
    let failures = records(&scratch.path("run/failures.jsonl"));
    let [failure] = &failures[..] else {
        panic!("{failures:#?}");
    };
    assert_eq!(failure["variant"], DENIED);
    assert_eq!(failure["reason"]["id"], "start-failed");
    let detail = failure["reason"]["detail"].as_str().expect("a text");
    assert!(detail.contains("exceeded quota: nothing"), "{detail}");
    let trials = records(&scratch.path("run/trials.jsonl"));
    let measured = |variant: &str| trials.iter().any(|t| t["trial"]["variant"] == variant);
    assert!(measured("none") && measured("limit-mtls") && !measured(DENIED));
}

#[test]
fn run_without_a_candidate_within_the_quota_ends_with_its_message() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a quota for the only candidate") else {
        return;
    };
    let only = "  - {data-plane: limit-l4, id: denied}\n";
    let (_scratch, finished) = run_with_quota(cluster, only);
    finished.expect_code(12);
    assert!(
        finished.stderr.contains("exceeded quota: nothing"),
        "{}",
        finished.stderr
    );
}
