//! A quota that forbids the pods of a variant.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::access::{PATIENCE, SPEC, TestCluster, spec_with, test_cluster};
use crate::support::{Finished, Running, Scratch, alone, records};

/// The variant whose namespace gets the quota.
const DENIED: &str = "denied";

/// A run without time for anything else while a namespace gets a quota: it is stopped in between.
fn run_with_quota(cluster: &'static TestCluster, scratch: &Scratch, variants: &str) -> Finished {
    let spec = SPEC
        .replace("  - {data-plane: limit-mtls, level: mtls}\n", variants)
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 1");
    let spec = spec_with(scratch, &spec);
    let mut watch = cluster
        .kubectl_command(&["get", "namespaces", "--watch", "-o", "name"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8");
    let arguments = [spec.as_str(), "--time", "20s", "--json", "--out", out];
    let run = Running::start(cluster.run(scratch, &arguments));
    let pid = Pid::from_raw(run.pid().cast_signed());
    let (found, namespace) = mpsc::channel();
    let watching = thread::spawn(move || {
        let mut names = lines.map_while(Result::ok);
        let name = names.find(|name| name.ends_with(&format!("-{DENIED}")));
        let _ = kill(pid, Signal::SIGSTOP);
        let _ = found.send(name);
    });
    let namespace = namespace.recv_timeout(PATIENCE);
    let _ = watch.kill();
    let _ = watch.wait();
    let _ = watching.join();
    let namespace = namespace.ok().flatten();
    let namespace = namespace.unwrap_or_else(|| panic!("no namespace: {}", run.stderr_text()));
    forbid_pods(cluster, namespace.trim_start_matches("namespace/"));
    kill(pid, Signal::SIGCONT).expect("its own child");
    let finished = run.finish(PATIENCE);
    cluster.assert_nothing_left();
    finished
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
    let scratch = Scratch::new();
    let variants =
        "  - {data-plane: limit-mtls, level: mtls}\n  - {data-plane: limit-l4, id: denied}\n";
    let finished = run_with_quota(cluster, &scratch, variants);
    assert!([0, 13].contains(&finished.code), "{}", finished.stderr);
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
    let scratch = Scratch::new();
    let only = "  - {data-plane: limit-l4, id: denied}\n";
    let finished = run_with_quota(cluster, &scratch, only);
    finished.expect_code(12);
    assert!(
        finished.stderr.contains("exceeded quota: nothing"),
        "{}",
        finished.stderr
    );
}
