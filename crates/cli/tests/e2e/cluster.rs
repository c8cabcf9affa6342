//! Runs on a real cluster: the one of `e2e/cluster`, or any other that `MESHTAX_E2E_CONTEXT` names.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{
    BINARY, Finished, Running, Scratch, alone, finish, manifest, meshtax, records, skipped,
};

/// The directory of the test cluster (`e2e/cluster/up DIR`).
const CLUSTER: &str = "MESHTAX_E2E_CLUSTER";
/// The context of another cluster, and an image of this meshtax that its nodes can pull.
const CONTEXT: &str = "MESHTAX_E2E_CONTEXT";
const IMAGE: &str = "MESHTAX_E2E_IMAGE";

/// Longer than a run of these tests takes.
const PATIENCE: Duration = Duration::from_secs(280);

/// A cluster for tests.
struct TestCluster {
    /// Its options on the command line.
    options: Vec<String>,
    kubectl: Option<(PathBuf, PathBuf)>,
}

/// `None`: there is none; that is said once for each test.
fn cluster(what: &str) -> Option<&'static TestCluster> {
    static CLUSTER: OnceLock<Option<TestCluster>> = OnceLock::new();
    let found = CLUSTER.get_or_init(find).as_ref();
    if found.is_none() {
        skipped(
            what,
            "no test cluster: set MESHTAX_E2E_CLUSTER or MESHTAX_E2E_CONTEXT",
        );
    }
    found
}

fn find() -> Option<TestCluster> {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    if let Ok(directory) = std::env::var(CLUSTER) {
        let directory = PathBuf::from(directory);
        load_image(&directory);
        let kubeconfig = directory.join("run/kubeconfig");
        let path = kubeconfig.to_str().expect("UTF-8");
        return Some(TestCluster {
            options: text(&["--kubeconfig", path, "--image", TEST_IMAGE]),
            kubectl: Some((directory.join("bin/kubectl"), kubeconfig)),
        });
    }
    let context = std::env::var(CONTEXT).ok()?;
    let image = std::env::var(IMAGE).unwrap_or_else(|_| panic!("{CONTEXT} needs {IMAGE}"));
    Some(TestCluster {
        options: text(&["--context", &context, "--image", &image]),
        kubectl: None,
    })
}

const TEST_IMAGE: &str = "meshtax.test/meshtax:e2e";

/// Builds an image of the binary under test, and loads it into the nodes' container runtime.
fn load_image(cluster: &std::path::Path) {
    let scratch = Scratch::new();
    let tar = scratch.path("image.tar");
    let mut build = Command::new(BINARY);
    build
        .args(["image", "build", "--name", TEST_IMAGE, "--out"])
        .arg(&tar);
    let mut load = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../e2e/cluster/load"
    ));
    load.arg(cluster).arg(&tar);
    for mut command in [build, load] {
        let output = command.stdin(Stdio::null()).output().expect("a program");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command:?}: {stderr}");
    }
}

impl TestCluster {
    fn run(&self, scratch: &Scratch, more: &[&str]) -> Command {
        let mut arguments = vec!["run", "--engine", "kubernetes"];
        arguments.extend(self.options.iter().map(String::as_str));
        arguments.extend(more);
        meshtax(scratch, &arguments)
    }

    fn finish(&self, scratch: &Scratch, more: &[&str]) -> Finished {
        Running::start(self.run(scratch, more)).finish(PATIENCE)
    }

    /// Everything of meshtax on the cluster, by name; `None` without kubectl.
    fn objects(&self) -> Option<String> {
        let (kubectl, kubeconfig) = self.kubectl.as_ref()?;
        let output = Command::new(kubectl)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args([
                "get",
                "namespaces,pods,services,daemonsets,secrets",
                "-A",
                "-o",
                "name",
            ])
            .args(["-l", "app.kubernetes.io/managed-by=meshtax"])
            .output()
            .expect("kubectl");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        if let Some(objects) = self.objects() {
            assert_eq!(objects, "");
        }
    }

    /// kubectl on this cluster, for tests that change it.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let (kubectl, kubeconfig) = self.kubectl.as_ref().expect("the test cluster");
        let output = Command::new(kubectl)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(arguments)
            .output()
            .expect("kubectl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

const SPEC: &str = "
name: cluster
placement: two-nodes
workload: {response: 1 KiB, connections: 4}
variants:
  - {data-plane: limit-mtls, level: mtls}
load:
  - steady: {rate: 200, arrivals: poisson}
design: {rounds: 3, blocks: 2, trial: 300ms, warmup: 150ms, time: 60s}
";

fn spec(scratch: &Scratch) -> String {
    let path = scratch.write("spec.yaml", SPEC);
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn run_on_a_cluster_measures_with_evidence_and_leaves_nothing() {
    let _alone = alone();
    let Some(cluster) = cluster("a run on Kubernetes") else {
        return;
    };
    let scratch = Scratch::new();
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8");
    let finished = cluster.finish(&scratch, &[&spec(&scratch), "--json", "--out", out]);
    finished.expect_success_or_busy_cores();
    cluster.assert_nothing_left();
    let manifest = manifest(&scratch.path("run"));
    assert_eq!(manifest["environment"]["engine"], "kubernetes");
    let evidence = records(&scratch.path("run/evidence.jsonl"));
    let proven = |variant: &str| {
        evidence.iter().any(|record| {
            record["variant"] == variant && record["wire"]["frames_to_server"].as_u64() > Some(0)
        })
    };
    assert!(proven("none") && proven("limit-mtls"), "{evidence:#?}");
    let samples = records(&scratch.path("run/samples.jsonl"));
    let roles = |sample: &Value| -> Vec<String> {
        let components = sample["components"].as_array().expect("components");
        let busy = components.iter().filter(|c| c["cpu_ns"].as_u64() > Some(0));
        busy.map(|c| c["role"].as_str().expect("a role").to_owned())
            .collect()
    };
    let meshed = samples
        .iter()
        .find(|sample| roles(sample).iter().any(|role| role == "client-proxy"))
        .expect("a sample of the proxy");
    for role in ["generator", "app", "client-proxy", "server-proxy"] {
        assert!(
            roles(meshed).iter().any(|r| r == role),
            "{role}: {meshed:#}"
        );
    }
    assert!(meshed["clock_error_ns"].as_u64() > Some(0), "{meshed:#}");
}

#[test]
fn killed_run_is_cleaned_up_by_the_cleanup_command() {
    let _alone = alone();
    let Some(cluster) = cluster("cleanup after a killed run") else {
        return;
    };
    if cluster.kubectl.is_none() {
        return skipped(
            "cleanup after a killed run",
            "it removes all runs' objects, and this is not the test cluster",
        );
    }
    let scratch = Scratch::new();
    let run = Running::start(cluster.run(&scratch, &[&spec(&scratch)]));
    while !cluster.objects().expect("kubectl").contains("pod/client") {
        thread::sleep(Duration::from_millis(200));
    }
    let pid = Pid::from_raw(run.pid().cast_signed());
    kill(pid, Signal::SIGKILL).expect("its own child");
    run.finish(PATIENCE);
    let mut arguments = vec!["cleanup", "--all"];
    arguments.extend(["--kubeconfig", cluster.options[1].as_str()]);
    let cleaned = finish(meshtax(&scratch, &arguments));
    cleaned.expect_code(0);
    assert!(
        cleaned.stdout.contains("removed namespace meshtax-"),
        "{}",
        cleaned.stdout
    );
    cluster.assert_nothing_left();
    let again = finish(meshtax(&scratch, &arguments));
    assert_eq!(again.expect_code(0).stdout, "nothing was left\n");
}

/// Ways to break the minimal proxy, and a probe that must fail. `None`: the variant is verified, and its trials are not.
const BROKEN: [(&str, Option<&str>); 7] = [
    ("no-encryption", Some("canary")),
    ("wrong-server-identity", Some("server-identity")),
    ("wrong-client-identity", Some("client-identity")),
    ("no-redirect", Some("plaintext-outsider")),
    ("no-proxy", Some("permitted-request")),
    ("no-capture", Some("canary")),
    ("load-around-proxies", None),
];

#[test]
fn every_sabotage_on_a_cluster_is_detected_by_its_probe() {
    let _alone = alone();
    let Some(cluster) = cluster("sabotage on Kubernetes") else {
        return;
    };
    let scratch = Scratch::new();
    let variants: String = BROKEN
        .iter()
        .map(|(kind, _)| format!("  - {{data-plane: limit-mtls, level: mtls, id: {kind}}}\n"))
        .collect();
    let text = SPEC.replace("  - {data-plane: limit-mtls, level: mtls}\n", &variants);
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("run");
    let mut arguments = vec![path.to_str().expect("UTF-8"), "--json", "--time", "100s"];
    arguments.extend(["--out", out.to_str().expect("UTF-8")]);
    let sabotage: Vec<String> = BROKEN
        .iter()
        .map(|(kind, _)| format!("{kind}={kind}"))
        .collect();
    arguments.extend(sabotage.iter().flat_map(|pair| ["--sabotage", pair]));
    let finished = cluster.finish(&scratch, &arguments);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    let evidence = records(&out.join("evidence.jsonl"));
    for (kind, probe) in BROKEN {
        let of_kind = evidence.iter().find(|record| record["variant"] == kind);
        let of_kind = of_kind.unwrap_or_else(|| panic!("{kind}: {}", finished.stderr));
        let probes = of_kind["probes"].as_array().expect("probes");
        let failed: Vec<&str> = probes
            .iter()
            .filter(|result| result["passed"] == false)
            .filter_map(|result| result["probe"].as_str())
            .collect();
        match probe {
            Some(probe) => assert!(failed.contains(&probe), "{kind}: {of_kind:#}"),
            None => assert!(failed.is_empty(), "{kind}: {of_kind:#}"),
        }
    }
    let trials = records(&out.join("trials.jsonl"));
    let bypassed = trials
        .iter()
        .filter(|t| t.to_string().contains("load-around-proxies"));
    let bypassed: Vec<&Value> = bypassed.collect();
    assert!(!bypassed.is_empty(), "{}", finished.stderr);
    for trial in bypassed {
        let lost = trial["outcome"].to_string();
        assert!(lost.contains("lost_evidence"), "{trial:#}");
    }
    cluster.assert_nothing_left();
}

/// A run that is interrupted, once its pods are there.
#[test]
fn interrupted_run_removes_its_namespaces_and_a_second_run_names_the_first() {
    let _alone = alone();
    let Some(cluster) = cluster("an interrupted run") else {
        return;
    };
    if cluster.kubectl.is_none() {
        return skipped(
            "an interrupted run",
            "it looks at the whole cluster, and this is not the test cluster",
        );
    }
    let scratch = Scratch::new();
    let run = Running::start(cluster.run(&scratch, &[&spec(&scratch)]));
    while !cluster.objects().expect("kubectl").contains("pod/client") {
        thread::sleep(Duration::from_millis(200));
    }
    let other = Scratch::new();
    let second = cluster.finish(&other, &[&spec(&other)]);
    second.expect_code(11);
    assert!(
        second.stderr.contains("is measuring on nodes node1, node2"),
        "{}",
        second.stderr
    );
    let pid = Pid::from_raw(run.pid().cast_signed());
    kill(pid, Signal::SIGINT).expect("its own child");
    let finished = run.finish(PATIENCE);
    finished.expect_code(130);
    cluster.assert_nothing_left();
}

#[test]
fn image_that_cannot_be_pulled_ends_the_run_with_the_fix() {
    let _alone = alone();
    let Some(cluster) = cluster("an image that cannot be pulled") else {
        return;
    };
    let scratch = Scratch::new();
    let spec = spec(&scratch);
    let mut arguments = vec!["run", "--engine", "kubernetes", &spec];
    arguments.extend(cluster.options[..2].iter().map(String::as_str));
    // No registry is at this port of any node.
    arguments.extend(["--image", "127.0.0.1:9/meshtax:none"]);
    let finished = Running::start(meshtax(&scratch, &arguments)).finish(PATIENCE);
    finished.expect_code(11);
    for text in ["cannot be pulled", "meshtax image push"] {
        assert!(
            finished.stderr.contains(text),
            "{text}: {}",
            finished.stderr
        );
    }
    cluster.assert_nothing_left();
}

#[test]
fn deleted_pod_costs_trials_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = cluster("a deleted pod") else {
        return;
    };
    if cluster.kubectl.is_none() {
        return skipped(
            "a deleted pod",
            "it deletes pods, and this is not the test cluster",
        );
    }
    let scratch = Scratch::new();
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8");
    let run = Running::start(cluster.run(&scratch, &[&spec(&scratch), "--json", "--out", out]));
    let trials = scratch.path("run/trials.jsonl");
    while records(&trials).is_empty() {
        assert!(
            !run.stderr_text().contains("error:"),
            "{}",
            run.stderr_text()
        );
        thread::sleep(Duration::from_millis(50));
    }
    let namespaces = cluster.kubectl(&["get", "namespaces", "-o", "name"]);
    let meshed = namespaces
        .lines()
        .find(|name| name.ends_with("-limit-mtls"))
        .expect("its namespace");
    let meshed = meshed.trim_start_matches("namespace/");
    cluster.kubectl(&[
        "delete",
        "pod",
        "server",
        "-n",
        meshed,
        "--grace-period=0",
        "--force",
    ]);
    let finished = run.finish(PATIENCE);
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let records = records(&trials);
    let ended: Vec<&Value> = records
        .iter()
        .filter(|record| record.to_string().contains("limit-mtls/server"))
        .collect();
    assert!(!ended.is_empty(), "{records:#?}");
    let measured = records
        .iter()
        .filter(|record| record["outcome"].to_string().contains("\"load\""))
        .count();
    assert!(measured >= 6, "{measured} of {}", records.len());
    cluster.assert_nothing_left();
}

#[test]
fn missing_permissions_are_named_before_anything_is_created() {
    let _alone = alone();
    let Some(cluster) = cluster("missing permissions") else {
        return;
    };
    if cluster.kubectl.is_none() {
        return skipped(
            "missing permissions",
            "it creates users, and this is not the test cluster",
        );
    }
    let scratch = Scratch::new();
    let namespace = "meshtax-e2e-user";
    cluster.kubectl(&["create", "namespace", namespace]);
    cluster.kubectl(&["create", "serviceaccount", "viewer", "-n", namespace]);
    let account = format!("{namespace}:viewer");
    let role = [
        "create",
        "clusterrolebinding",
        namespace,
        "--clusterrole=view",
    ];
    cluster.kubectl(&[&role[..], &["--serviceaccount", &account]].concat());
    let token = cluster.kubectl(&["create", "token", "viewer", "-n", namespace]);
    let kubeconfig = std::fs::read_to_string(&cluster.options[1]).expect("the kubeconfig");
    let other: String = kubeconfig
        .lines()
        .map(|line| match line.split_once("token:") {
            // `user: {token: ...}`
            Some((before, _)) => format!("{before}token: {}}}\n", token.trim()),
            None => format!("{line}\n"),
        })
        .collect();
    let other = scratch.write("kubeconfig", &other);
    let mut arguments = vec!["run", "--engine", "kubernetes", "--image", TEST_IMAGE];
    arguments.extend(["--kubeconfig", other.to_str().expect("UTF-8")]);
    let spec = spec(&scratch);
    arguments.push(&spec);
    let finished = finish(meshtax(&scratch, &arguments));
    cluster.kubectl(&["delete", "clusterrolebinding", namespace]);
    cluster.kubectl(&["delete", "namespace", namespace]);
    finished.expect_code(11);
    for rule in [
        "create namespaces",
        "create pods/portforward",
        "create daemonsets.apps",
    ] {
        assert!(
            finished.stderr.contains(rule),
            "{rule}: {}",
            finished.stderr
        );
    }
    assert!(
        !finished.stderr.contains("list pods,"),
        "{}",
        finished.stderr
    );
    cluster.assert_nothing_left();
}
