//! What goes wrong on a cluster during a run.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::access::{PATIENCE, SPEC, TestCluster, spec_with, test_cluster, wait_for};
use super::relay::Relay;
use crate::outcome::{invalid_trials, points};
use crate::processes::{Process, descendants};
use crate::support::{Finished, Running, Scratch, alone, finish, meshtax, records};

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
        // Each test ends its run, however long rounds take on a busy machine.
        let spec = spec_with(&scratch, &SPEC.replace("time: 60s", "time: 4m"));
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

    fn finish(self) -> (Ended, Scratch) {
        let trials = self.trials();
        let finished = self.run.finish(PATIENCE);
        self.cluster.assert_nothing_left();
        assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
        let trials = records(&trials);
        (Ended { finished, trials }, self.scratch)
    }

    /// Waits until every variant was measured in this round or a later one.
    fn wait_for_round(&mut self, number: u64) {
        let trials = self.trials();
        wait_for(&mut self.run, "later round", || {
            let trials = records(&trials);
            ["none", "limit-mtls"].iter().all(|variant| {
                let of_variant = trials.iter().filter(|t| t["trial"]["variant"] == *variant);
                let mut measured = of_variant.filter(|trial| is_measured(trial));
                measured.any(|trial| round(trial) >= number)
            })
        });
    }

    /// Waits until one more trial is stored.
    fn wait_for_trial(&mut self) {
        let trials = self.trials();
        let stored = records(&trials).len();
        wait_for(&mut self.run, "further trial", || {
            records(&trials).len() > stored
        });
    }

    /// Waits until it has gone on to this round, and interrupts it.
    fn finish_after_round(mut self, number: u64) -> (Ended, Scratch) {
        self.wait_for_round(number);
        let pid = Pid::from_raw(self.run.pid().cast_signed());
        kill(pid, Signal::SIGINT).expect("its own child");
        let (ended, scratch) = self.finish();
        ended.finished.expect_code(130);
        (ended, scratch)
    }
}

fn round(trial: &Value) -> u64 {
    trial["trial"]["round"].as_u64().expect("a round")
}

fn is_measured(trial: &Value) -> bool {
    trial["outcome"]["id"] == "measured"
}

/// Trials without a result, or during which a container ended: each with its variant and the reason.
fn failures(trials: &[Value]) -> Vec<String> {
    let failed = trials.iter().filter(|trial| {
        let ended = trial["outcome"]["component_failures"].as_array();
        !is_measured(trial) || ended.is_some_and(|ended| !ended.is_empty())
    });
    let reason = |trial: &Value| {
        let Value::Object(mut outcome) = trial["outcome"].clone() else {
            panic!("{trial:#}");
        };
        outcome.remove("load");
        format!("{} {outcome:?}", trial["trial"]["variant"])
    };
    failed.map(reason).collect()
}

impl Ended {
    #[track_caller]
    fn expect_failure_with(&self, text: &str) {
        self.expect_failure_after(0, text);
    }

    /// One after so many others.
    #[track_caller]
    fn expect_failure_after(&self, others: usize, text: &str) {
        let failures = &failures(&self.trials)[others..];
        let named = failures.iter().any(|failure| failure.contains(text));
        assert!(named, "{text}: {failures:#?}\n{}", self.finished.stderr);
    }
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
        self.0.try_kubectl(&["uncordon", self.1]);
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
    let (ended, _scratch) = run.finish();
    ended.finished.expect_code(11);
    for text in ["node node2 is cordoned", "kubectl uncordon"] {
        assert!(
            ended.finished.stderr.contains(text),
            "{text}: {}",
            ended.finished.stderr
        );
    }
    // What was measured before is kept and reported.
    assert_eq!(failures(&ended.trials), Vec::<String>::new());
    assert!(ended.finished.json().is_object());
}

#[test]
fn deleted_namespace_of_the_agents_ends_the_run_with_the_reason() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a deleted namespace") else {
        return;
    };
    let run = UnderWay::begin(cluster);
    let agents = cluster.namespace_of("agents");
    cluster.kubectl(&["delete", "namespace", &agents, "--wait=false"]);
    let (ended, _scratch) = run.finish();
    ended.finished.expect_code(11);
    for text in [agents.as_str(), "somebody deleted the run's namespaces"] {
        assert!(
            ended.finished.stderr.contains(text),
            "{text}: {}",
            ended.finished.stderr
        );
    }
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
fn deleted_pod_and_killed_agents_cost_the_trials_of_a_round_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a deleted pod and killed agents") else {
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
    let unmeshed = cluster.namespace_of("none");
    let now = ["--grace-period=0", "--force"];
    cluster.kubectl(&[&["delete", "pod", "server", "-n", &unmeshed][..], &now].concat());
    let (ended, scratch) = run.finish_after_round(2);
    ended.expect_failure_with("limit-mtls/server/agent");
    ended.expect_failure_with("none/server");
    assert_ending_is_on_record(&scratch);
    assert_resumed(cluster, scratch, &ended);
}

/// The container that was killed, with its time, in the report of the run.
fn assert_ending_is_on_record(scratch: &Scratch) {
    let run = scratch.path("run");
    let run = run.to_str().expect("UTF-8");
    let report = finish(meshtax(scratch, &["report", run, "--format", "json"]));
    let analysis = report.expect_code(0).json();
    let events = analysis["events"].as_array().expect("events");
    let is_it =
        |event: &&Value| event["variant"] == "limit-mtls" && event["object"] == "Pod/server/agent";
    let event = events.iter().find(is_it);
    let event = event.unwrap_or_else(|| panic!("{events:#?}"));
    assert_eq!(event["severity"], "warning");
    assert!(event["at_unix_ms"].as_u64() >= analysis["run"]["started_unix_ms"].as_u64());
}

/// Resumes a run that was interrupted, until it has measured a further round: both parts are in one report.
fn assert_resumed(cluster: &'static TestCluster, scratch: Scratch, before: &Ended) {
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8").to_owned();
    let arguments = ["--resume", out.as_str(), "--json"];
    let run = Running::start(cluster.resume(&scratch, &arguments));
    let last = before.trials.iter().map(round).max().expect("a trial");
    let resumed = UnderWay {
        cluster,
        scratch,
        run,
    };
    let (ended, _scratch) = resumed.finish_after_round(last + 1);
    let trials = &ended.trials;
    assert_eq!(trials[..before.trials.len()], before.trials);
    let analysis = ended.finished.json();
    let resumptions = analysis["run"]["resumptions"].as_array().expect("a list");
    assert_eq!(resumptions[0]["after_round"], last);
    // Valid or not: the machine may be busy.
    let points = points(&analysis);
    let counted = points.map(|point| point["valid"].as_u64().unwrap_or(0) + invalid_trials(point));
    assert_eq!(counted.sum::<u64>(), trials.len() as u64);
}

/// The kubeconfig of the cluster, through a relay.
fn relayed(cluster: &TestCluster, scratch: &Scratch) -> (Relay, PathBuf) {
    let text = fs::read_to_string(&cluster.kubeconfig).expect("the kubeconfig");
    let (_, server) = text.split_once("https://").expect("a server");
    let (server, _) = server.split_once('"').expect("its end");
    let relay = Relay::start("127.0.0.1", server.parse().expect("an address"));
    let relayed = text.replace(server, &relay.at.to_string());
    (relay, scratch.write("kubeconfig", &relayed))
}

#[test]
fn cut_connections_and_a_restarted_api_server_cost_trials_and_not_the_run() {
    let _alone = alone();
    let Some(cluster) = test_cluster("an API server that is lost for a while") else {
        return;
    };
    let scratch = Scratch::new();
    let (relay, kubeconfig) = relayed(cluster, &scratch);
    let mut run = UnderWay::begin_with(cluster, &kubeconfig);
    assert!(relay.cut() > 0);
    run.wait_for_round(2);
    let before = failures(&records(&run.trials()));
    assert!(before.len() <= 1, "{before:#?}");
    // A server that is killed between rounds is back before the next trial and costs none: between the trials of a round
    // it costs one, unless the machine was slow just then.
    for last_round in 3..=5 {
        run.wait_for_trial();
        kill_api_server(cluster);
        run.wait_for_round(last_round);
        let failed = failures(&records(&run.trials())).len();
        if failed > before.len() {
            break;
        }
    }
    let (ended, _scratch) = run.finish_after_round(3);
    ended.expect_failure_after(before.len(), "agent");
}

fn kill_api_server(cluster: &TestCluster) {
    let is_it = |process: &Process| {
        process
            .words()
            .first()
            .is_some_and(|w| w == "kube-apiserver")
    };
    let server = in_cluster(cluster).into_iter().find(is_it);
    assert!(server.expect("the API server").kill());
}
