//! What goes wrong on a cluster during a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::access::{PATIENCE, SPEC, TestCluster, spec_with, test_cluster, wait_for};
use super::relay::Relay;
use crate::processes::{Process, descendants};
use crate::support::{Finished, Running, Scratch, alone, records};

/// A run of a few rounds that has stored its first trial.
struct UnderWay {
    cluster: &'static TestCluster,
    scratch: Scratch,
    run: Running,
}

/// Its end.
struct Ended {
    finished: Finished,
    trials: Vec<Value>,
}

impl UnderWay {
    fn begin(cluster: &'static TestCluster) -> Self {
        Self::begin_with(cluster, &cluster.kubeconfig)
    }

    fn begin_with(cluster: &'static TestCluster, kubeconfig: &Path) -> Self {
        let scratch = Scratch::new();
        let spec = SPEC
            .replace("rounds: 3, blocks: 2", "rounds: 2, blocks: 2")
            .replace("time: 60s", "time: 35s");
        let spec = spec_with(&scratch, &spec);
        let out = scratch.path("run");
        let out = out.to_str().expect("UTF-8");
        let arguments = [spec.as_str(), "--json", "--out", out];
        let run = Running::start(cluster.run_with(kubeconfig, &scratch, &arguments));
        let mut this = Self {
            cluster,
            scratch,
            run,
        };
        let trials = this.trials();
        wait_for(&mut this.run, "trial", || !records(&trials).is_empty());
        this
    }

    fn trials(&self) -> PathBuf {
        self.scratch.path("run/trials.jsonl")
    }

    fn finish(self) -> Ended {
        let trials = self.trials();
        let finished = self.run.finish(PATIENCE);
        self.cluster.assert_nothing_left();
        assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
        Ended {
            finished,
            trials: records(&trials),
        }
    }
}

fn round(trial: &Value) -> u64 {
    trial["trial"]["round"].as_u64().expect("a round")
}

fn is_measured(trial: &Value) -> bool {
    trial["outcome"].to_string().contains("\"load\"")
}

impl Ended {
    /// The run went on after a fault: it has measured trials of every variant in a later round than the first.
    #[track_caller]
    fn expect_later_rounds(&self) -> &Self {
        let stderr = &self.finished.stderr;
        assert!([0, 13].contains(&self.finished.code), "{stderr}");
        for variant in ["none", "limit-mtls"] {
            let later = |trial: &&Value| {
                trial["trial"]["variant"] == variant && round(trial) > 1 && is_measured(trial)
            };
            let found = self.trials.iter().any(|trial| later(&trial));
            assert!(found, "{variant}: {stderr}\n{:#?}", self.trials);
        }
        self
    }

    /// Trials without a result, whose reason has this text.
    fn failed_with(&self, text: &str) -> usize {
        let failed = self.trials.iter().filter(|trial| !is_measured(trial));
        let named = failed.filter(|trial| trial["outcome"].to_string().contains(text));
        named.count()
    }
}

#[test]
fn deleted_pod_costs_trials_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a deleted pod") else {
        return;
    };
    let run = UnderWay::begin(cluster);
    let namespace = cluster.namespace_of("limit-mtls");
    let now = ["--grace-period=0", "--force"];
    cluster.kubectl(&[&["delete", "pod", "server", "-n", &namespace][..], &now].concat());
    let ended = run.finish();
    ended.expect_later_rounds();
    assert!(
        ended.failed_with("limit-mtls/server") > 0,
        "{:#?}",
        ended.trials
    );
}

/// A node that takes no pods while this lives.
struct Cordoned(&'static TestCluster, &'static str);

impl Cordoned {
    fn new(cluster: &'static TestCluster, node: &'static str) -> Self {
        cluster.kubectl(&["cordon", node]);
        Self(cluster, node)
    }
}

impl Drop for Cordoned {
    fn drop(&mut self) {
        self.0.kubectl(&["uncordon", self.1]);
    }
}

#[test]
fn node_that_is_cordoned_during_a_run_ends_it_after_the_round() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a cordoned node") else {
        return;
    };
    let run = UnderWay::begin(cluster);
    let _cordoned = Cordoned::new(cluster, "node2");
    let ended = run.finish();
    ended.finished.expect_code(11);
    for text in ["node node2 is cordoned", "kubectl uncordon"] {
        assert!(
            ended.finished.stderr.contains(text),
            "{text}: {}",
            ended.finished.stderr
        );
    }
    // What was measured before is kept and reported.
    assert!(ended.trials.iter().all(is_measured), "{:#?}", ended.trials);
    assert!(ended.finished.json().is_object());
}

/// The agent's process in a pod's container, found from the machine.
fn agent_of(cluster: &TestCluster, namespace: &str, label: &str) -> Process {
    let first = "jsonpath={.items[0].status.containerStatuses[?(@.name=='agent')].containerID}";
    let id = cluster.kubectl(&["get", "pods", "-n", namespace, "-l", label, "-o", first]);
    let id = id.rsplit('/').next().expect("an id").to_owned();
    assert!(id.len() > 20, "{namespace} {label}: {id}");
    let is_it = |process: &Process| {
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", process.pid));
        cgroups.is_ok_and(|text| text.contains(&id)) && process.words().iter().any(|w| w == "agent")
    };
    let found = in_cluster(cluster).into_iter().find(is_it);
    found.unwrap_or_else(|| panic!("no agent in {namespace}: {label}"))
}

/// All processes of the cluster.
fn in_cluster(cluster: &TestCluster) -> Vec<Process> {
    let init = fs::read_to_string(cluster.directory.join("run/init")).expect("a cluster");
    let init = init.split(' ').next().expect("a word").trim().parse();
    descendants(init.expect("a process")).into_iter().collect()
}

#[test]
fn killed_agents_cost_the_trials_of_a_round_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = test_cluster("killed agents") else {
        return;
    };
    let run = UnderWay::begin(cluster);
    let agents = cluster.namespace_of("agents");
    let meshed = cluster.namespace_of("limit-mtls");
    for (namespace, label) in [
        (&agents, "app=node-agent"),
        (&agents, "app=outsider"),
        (&meshed, "meshtax.io/pod=server"),
    ] {
        assert!(agent_of(cluster, namespace, label).kill(), "{label}");
    }
    let ended = run.finish();
    ended.expect_later_rounds();
    assert!(
        ended.failed_with("limit-mtls/server/agent") > 0,
        "{:#?}",
        ended.trials
    );
}

#[test]
fn api_server_that_restarts_costs_trials_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = test_cluster("an API server that restarts") else {
        return;
    };
    let run = UnderWay::begin(cluster);
    let is_it = |process: &Process| {
        process
            .words()
            .first()
            .is_some_and(|w| w == "kube-apiserver")
    };
    let server = in_cluster(cluster).into_iter().find(is_it);
    assert!(server.expect("the API server").kill());
    let ended = run.finish();
    let begin = Instant::now();
    while cluster.kubectl(&["get", "--raw", "/readyz"]) != "ok" {
        assert!(begin.elapsed() < PATIENCE, "the API server is not ready");
        thread::sleep(Duration::from_millis(200));
    }
    ended.expect_later_rounds();
    assert!(ended.failed_with("agent") > 0, "{:#?}", ended.trials);
}

#[test]
fn cut_connections_cost_at_most_the_trial_under_way() {
    let _alone = alone();
    let Some(cluster) = test_cluster("cut connections") else {
        return;
    };
    let scratch = Scratch::new();
    let text = fs::read_to_string(&cluster.kubeconfig).expect("the kubeconfig");
    let (_, server) = text.split_once("https://").expect("a server");
    let (server, _) = server.split_once('"').expect("its end");
    let relay = Relay::start("127.0.0.1", server.parse().expect("an address"));
    let relayed = text.replace(server, &relay.at.to_string());
    let kubeconfig = scratch.write("kubeconfig", &relayed);
    let run = UnderWay::begin_with(cluster, &kubeconfig);
    let before = records(&run.trials()).len();
    assert!(relay.cut() > 5);
    let ended = run.finish();
    ended.expect_later_rounds();
    let failed = ended.trials.iter().filter(|trial| !is_measured(trial));
    assert!(failed.count() <= 1, "{before}: {:#?}", ended.trials);
}
