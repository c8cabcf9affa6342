//! The cluster of the tests.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{BINARY, Finished, Running, Scratch, meshtax, repeated, skipped};

/// The directory of the test cluster (`e2e/cluster/up DIR`).
const CLUSTER: &str = "MESHTAX_E2E_CLUSTER";
/// The context of another cluster, and an image of this meshtax that its nodes can pull.
const CONTEXT: &str = "MESHTAX_E2E_CONTEXT";
const IMAGE: &str = "MESHTAX_E2E_IMAGE";

/// Longer than a run of these tests takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(280);

pub(super) const TEST_IMAGE: &str = "meshtax.test/meshtax:e2e";

/// A cluster for tests.
pub(super) struct AnyCluster {
    /// Its options on the command line.
    options: Vec<String>,
    own: Option<TestCluster>,
}

/// The cluster of `e2e/cluster`, which tests may change.
pub(super) struct TestCluster {
    /// What `e2e/cluster/up` was given.
    pub(super) directory: PathBuf,
    pub(super) kubeconfig: PathBuf,
}

fn any() -> Option<&'static AnyCluster> {
    static FOUND: OnceLock<Option<AnyCluster>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

/// `None`: there is none; that is said once for each test.
pub(super) fn cluster(what: &str) -> Option<&'static AnyCluster> {
    let found = any();
    if found.is_none() {
        let why = "no test cluster: set MESHTAX_E2E_CLUSTER or MESHTAX_E2E_CONTEXT";
        skipped(what, why);
    }
    found
}

/// `None`: it is not that of `e2e/cluster`, which is said.
pub(super) fn test_cluster(what: &str) -> Option<&'static TestCluster> {
    let found = any().and_then(|any| any.own.as_ref());
    if found.is_none() {
        let why = "it changes the cluster, and MESHTAX_E2E_CLUSTER does not name the test cluster";
        skipped(what, why);
    }
    found
}

fn find() -> Option<AnyCluster> {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    if let Ok(directory) = std::env::var(CLUSTER) {
        let directory = PathBuf::from(directory);
        load_image(&directory);
        let kubeconfig = directory.join("run/kubeconfig");
        let path = kubeconfig.to_str().expect("UTF-8");
        return Some(AnyCluster {
            options: text(&["--kubeconfig", path, "--image", TEST_IMAGE]),
            own: Some(TestCluster {
                directory,
                kubeconfig,
            }),
        });
    }
    let context = std::env::var(CONTEXT).ok()?;
    let image = std::env::var(IMAGE).unwrap_or_else(|_| panic!("{CONTEXT} needs {IMAGE}"));
    Some(AnyCluster {
        options: text(&["--context", &context, "--image", &image]),
        own: None,
    })
}

/// Builds an image of the binary under test, and loads it into the nodes' container runtime.
fn load_image(cluster: &Path) {
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

impl AnyCluster {
    fn run(&self, scratch: &Scratch, more: &[&str]) -> Command {
        let mut arguments = vec!["run", "--engine", "kubernetes"];
        arguments.extend(self.options.iter().map(String::as_str));
        arguments.extend(more);
        meshtax(scratch, &arguments)
    }

    pub(super) fn finish(&self, scratch: &Scratch, more: &[&str]) -> Finished {
        Running::start(self.run(scratch, more)).finish(PATIENCE)
    }

    /// A run into this directory that is to complete. One that could not measure anything is repeated once, visibly: a
    /// cluster whose nodes share two cores may not start some pod in time.
    #[track_caller]
    pub(super) fn complete(&self, scratch: &Scratch, out: &Path, more: &[&str]) -> Finished {
        let mut arguments = more.to_vec();
        arguments.extend(["--out", out.to_str().expect("UTF-8")]);
        let mut finished = self.finish(scratch, &arguments);
        if [11, 12].contains(&finished.code) {
            repeated("a run on the cluster", &finished.stderr);
            let _ = fs::remove_dir_all(out);
            finished = self.finish(scratch, &arguments);
        }
        finished.expect_completed();
        self.assert_nothing_left();
        finished
    }

    /// Where that can be seen.
    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        if let Some(own) = &self.own {
            own.assert_nothing_left();
        }
    }
}

impl TestCluster {
    /// A run with this kubeconfig.
    pub(super) fn run_with(&self, kubeconfig: &Path, scratch: &Scratch, more: &[&str]) -> Command {
        let kubeconfig = kubeconfig.to_str().expect("UTF-8");
        let mut arguments = vec!["run", "--engine", "kubernetes", "--kubeconfig", kubeconfig];
        arguments.extend(more);
        let mut command = meshtax(scratch, &arguments);
        command.env("MESHTAX_IMAGE", TEST_IMAGE);
        command
    }

    pub(super) fn run(&self, scratch: &Scratch, more: &[&str]) -> Command {
        self.run_with(&self.kubeconfig, scratch, more)
    }

    /// A run that is resumed: it has its engine and its image.
    pub(super) fn resume(&self, scratch: &Scratch, more: &[&str]) -> Command {
        let kubeconfig = self.kubeconfig.to_str().expect("UTF-8");
        let mut arguments = vec!["run", "--kubeconfig", kubeconfig];
        arguments.extend(more);
        meshtax(scratch, &arguments)
    }

    /// A run that has begun.
    pub(super) fn start(&self, scratch: &Scratch) -> Running {
        Running::start(self.run(scratch, &[&spec(scratch)]))
    }

    pub(super) fn finish(&self, scratch: &Scratch, more: &[&str]) -> Finished {
        Running::start(self.run(scratch, more)).finish(PATIENCE)
    }

    pub(super) fn cleanup(&self, scratch: &Scratch, what: &str) -> Finished {
        let kubeconfig = self.kubeconfig.to_str().expect("UTF-8");
        let arguments = ["cleanup", what, "--kubeconfig", kubeconfig];
        Running::start(meshtax(scratch, &arguments)).finish(PATIENCE)
    }

    pub(super) fn kubectl_program(&self) -> PathBuf {
        self.directory.join("bin/kubectl")
    }

    pub(super) fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.kubectl_program());
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments);
        command
    }

    /// What kubectl prints.
    #[track_caller]
    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.kubectl_command(arguments).output().expect("kubectl");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same; `None`: it fails.
    pub(super) fn try_kubectl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.kubectl_command(arguments).output().ok()?;
        let text = || String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then(text)
    }

    /// kubectl with objects in YAML on its standard input.
    pub(super) fn kubectl_with(&self, arguments: &[&str], objects: &str) -> Output {
        let mut child = self
            .kubectl_command(arguments)
            .args(["--filename", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(objects.as_bytes()).expect("its input");
        drop(input);
        child.wait_with_output().expect("its own child")
    }

    /// Creates objects, given in YAML, for as long as the result lives.
    pub(super) fn with_objects(&'static self, objects: String) -> Objects {
        let applied = self.kubectl_with(&["apply"], &objects);
        assert!(applied.status.success(), "{applied:?}: {objects}");
        Objects {
            cluster: self,
            objects,
        }
    }

    /// Everything of runs on the cluster, by name.
    pub(super) fn objects(&self) -> String {
        self.kubectl(&[
            "get",
            "namespaces,pods,services,daemonsets,secrets",
            "-A",
            "-o",
            "name",
            "-l",
            "app.kubernetes.io/managed-by=meshtax,!meshtax.io/mesh",
        ])
    }

    #[track_caller]
    pub(super) fn assert_nothing_left(&self) {
        assert_eq!(self.objects(), "");
    }

    /// The namespace of a variant, or of the agents, of the only run.
    pub(super) fn namespace_of(&self, what: &str) -> String {
        let objects = self.objects();
        let mut names = objects
            .lines()
            .filter_map(|line| line.strip_prefix("namespace/"));
        let end = format!("-{what}");
        let found = names.find(|name| name.ends_with(&end));
        found
            .unwrap_or_else(|| panic!("{what}: {objects}"))
            .to_owned()
    }
}

/// Objects of a test.
pub(super) struct Objects {
    cluster: &'static TestCluster,
    objects: String,
}

impl Drop for Objects {
    fn drop(&mut self) {
        let _ = self
            .cluster
            .kubectl_with(&["delete", "--ignore-not-found"], &self.objects);
    }
}

pub(super) const SPEC: &str = "
name: cluster
placement: two-nodes
workload: {response: 1 KiB, connections: 4}
variants:
  - {data-plane: limit-mtls, level: mtls}
load:
  - steady: {rate: 200, arrivals: poisson}
design: {rounds: 3, blocks: 2, trial: 300ms, warmup: 150ms, time: 60s}
";

pub(super) fn spec(scratch: &Scratch) -> String {
    spec_with(scratch, SPEC)
}

pub(super) fn spec_with(scratch: &Scratch, text: &str) -> String {
    let path = scratch.write("spec.yaml", text);
    path.to_str().expect("UTF-8").to_owned()
}

/// Waits until something is so on the cluster while a run goes on.
#[track_caller]
pub(super) fn wait_for(run: &mut Running, what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(!run.is_over(), "no {what}: {}", run.stderr_text());
        let waited = begin.elapsed();
        assert!(waited < PATIENCE, "no {what}: {}", run.stderr_text());
        thread::sleep(Duration::from_millis(50));
    }
}
