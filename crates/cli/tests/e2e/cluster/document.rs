//! docs/kubernetes.md: what it says to type works, with the permissions that it asks for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use meshtax_fixtures::registry::Registry;

use super::access::{PATIENCE, TestCluster, test_cluster};
use super::account::{DOCUMENT, accounts, documented_rules, kubeconfig};
use super::relay::Relay;
use crate::support::{BINARY, Finished, Running, Scratch, alone, prepared};

/// The registry in the document's commands.
const REGISTRY: &str = "registry.example";

/// The lines of its blocks of shell commands, but for those that install a mesh: they take an administrator, Helm and charts, and are
/// tested with real meshes (`meshes.rs`).
fn commands() -> Vec<String> {
    let blocks = DOCUMENT.split("```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().expect("its end"));
    let lines = blocks.flat_map(str::lines);
    let commands: Vec<String> = lines
        .filter(|line| !line.starts_with("meshtax mesh "))
        .map(str::to_owned)
        .collect();
    assert!(commands.len() >= 4, "{commands:?}");
    commands
}

/// A registry on this machine's loopback, which the nodes reach by the same name.
struct Reachable {
    _registry: Registry,
    name: String,
    /// containerd's configuration for it.
    hosts: PathBuf,
}

impl Reachable {
    /// `None`: there is no registry here, which is said.
    fn start(cluster: &TestCluster) -> Option<Self> {
        let registry = Registry::start(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
        let machine = machine(cluster);
        let relay = Relay::start(&machine, ([127, 0, 0, 1], registry.port).into());
        let name = format!("127.0.0.1:{}", registry.port);
        let hosts = cluster.directory.join("run/registries").join(&name);
        fs::create_dir(&hosts).expect("a directory");
        let text = format!("[host.\"http://{}\"]\n", relay.at);
        fs::write(hosts.join("hosts.toml"), text).expect("a file");
        Some(Self {
            _registry: registry,
            name,
            hosts,
        })
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.hosts);
    }
}

/// The machine's address on the cluster's link.
fn machine(cluster: &TestCluster) -> String {
    let text = fs::read_to_string(cluster.directory.join("run/env")).expect("a cluster");
    let (_, rest) = text
        .split_once("MESHTAX_CLUSTER_MACHINE=")
        .expect("its address");
    rest.lines().next().expect("a line").to_owned()
}

/// A user's machine: both programs installed, a kubeconfig, and otherwise an empty home.
struct Desk {
    scratch: Scratch,
    kubeconfig: PathBuf,
}

const INSTALLED: &str = "home/.local/bin";

impl Desk {
    fn new(cluster: &TestCluster, account: &str) -> Self {
        let scratch = Scratch::new();
        let installed = scratch.path(INSTALLED);
        fs::create_dir_all(&installed).expect("a directory");
        symlink(BINARY, installed.join("meshtax")).expect("a link");
        symlink(cluster.kubectl_program(), installed.join("kubectl")).expect("a link");
        let kubeconfig = kubeconfig(cluster, &scratch, account);
        Self {
            scratch,
            kubeconfig,
        }
    }

    fn execute(&self, line: &str) -> Finished {
        let installed = self.scratch.path(INSTALLED);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = prepared(Command::new("sh"), &self.scratch, &["-ec", line]);
        command
            .env("PATH", format!("{}:{path}", installed.display()))
            .env("HOME", self.scratch.path("home"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("MESHTAX_IMAGE");
        Running::start(command).finish(PATIENCE)
    }

    /// The pages of its runs that are whole.
    fn pages(&self) -> usize {
        let runs = fs::read_dir(self.scratch.path("meshtax-runs")).expect("its runs");
        let pages = runs.flatten().map(|run| run.path().join("report.html"));
        let texts = pages.filter_map(|page| fs::read_to_string(page).ok());
        texts.filter(|text| text.contains("</html>")).count()
    }
}

/// The whole document, as an account that has just its permissions. Runs are shorter, and may have too few rounds (13).
#[test]
fn documented_commands_lead_from_an_empty_cluster_to_a_page() {
    let _alone = alone();
    let Some(cluster) = test_cluster("the commands of docs/kubernetes.md") else {
        return;
    };
    let Some(registry) = Reachable::start(cluster) else {
        return;
    };
    let _account = accounts(cluster, &[("reader".to_owned(), documented_rules())]);
    let desk = Desk::new(cluster, "reader");
    let mut runs = 0;
    for line in commands() {
        let mut line = line.replace(REGISTRY, &registry.name);
        let is_run = line.contains("meshtax run");
        if is_run {
            line += " --time 10s";
            runs += 1;
        }
        let finished = desk.execute(&line);
        let is_expected = finished.code == 0 || (is_run && finished.code == 13);
        assert!(is_expected, "{line}: {finished:?}");
        cluster.assert_nothing_left();
    }
    assert!(runs >= 2, "the document has {runs} runs");
    assert_eq!(desk.pages(), runs);
}
