//! Real meshes on the test cluster: those whose images and charts `MESHTAX_E2E_IMAGES` has (CONTRIBUTING.md).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::access::{PATIENCE, TestCluster, spec_with, test_cluster};
use crate::support::{Finished, Running, Scratch, alone, manifest, meshtax, records, skipped};

/// A directory with a directory for each mesh: archives of its images (`*.tar`), its charts (`charts`), and their values
/// (`values.yaml`).
const IMAGES: &str = "MESHTAX_E2E_IMAGES";

/// A mesh of these tests.
struct Mesh {
    /// The name of its directory.
    name: &'static str,
    namespace: &'static str,
    /// The variants that must be proven: id, data plane, level.
    proven: &'static [(&'static str, &'static str, &'static str)],
    /// Rounds of the run, and its time in seconds. The proxies of nodes outlive rounds: what they counted in the first must not
    /// disturb the second.
    rounds: (usize, u32),
    /// Ways to break a data plane, and the probe that must fail; `None`: it is not started.
    broken: &'static [(&'static str, &'static str, Option<&'static str>)],
}

const MESHES: [Mesh; 2] = [
    Mesh {
        name: "linkerd",
        namespace: "linkerd",
        proven: &[("linkerd-l7", "linkerd", "l7")],
        rounds: (1, 20),
        broken: &[
            ("linkerd", "no-proxy", None),
            ("linkerd", "no-policy", Some("forbidden-identity")),
            ("linkerd", "wrong-server-identity", Some("server-identity")),
        ],
    },
    Mesh {
        name: "istio-ambient",
        namespace: "istio-system",
        // Its control plane serves sidecars, too: here, upstream Envoys.
        proven: &[
            ("ambient-l4", "ztunnel", "l4"),
            ("sidecar-l7", "envoy-sidecar", "l7"),
        ],
        rounds: (2, 130),
        broken: &[
            ("ztunnel", "no-proxy", None),
            ("ztunnel", "no-policy", Some("plaintext-outsider")),
            ("ztunnel", "wrong-server-identity", Some("server-identity")),
            ("envoy-sidecar", "no-proxy", None),
            ("envoy-sidecar", "no-policy", Some("plaintext-outsider")),
            (
                "envoy-sidecar",
                "wrong-server-identity",
                Some("server-identity"),
            ),
        ],
    },
];

/// The files of a directory with this extension, by name.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|of| of == extension))
        .collect();
    files.sort();
    files
}

/// A mesh that is installed as long as this lives.
struct Installed {
    cluster: &'static TestCluster,
    mesh: &'static Mesh,
    scratch: Scratch,
}

impl Installed {
    /// `None`: there are no images of it.
    fn install(cluster: &'static TestCluster, mesh: &'static Mesh) -> Option<Self> {
        let directory = PathBuf::from(std::env::var(IMAGES).ok()?).join(mesh.name);
        if !directory.join("charts").is_dir() {
            return None;
        }
        let load = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/cluster/load");
        let mut load = Command::new(load);
        load.arg(&cluster.directory).args(files(&directory, "tar"));
        let loaded = load.output().expect("a program");
        assert!(loaded.status.success(), "{loaded:?}");
        let this = Self {
            cluster,
            mesh,
            scratch: Scratch::new(),
        };
        let path = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
        let (charts, values) = (path("charts"), path("values.yaml"));
        let report = this.mesh_json(&[
            "install", mesh.name, "--charts", &charts, "--values", &values,
        ]);
        let steps = report["steps"].as_array().expect("steps");
        assert!(steps.len() > 2, "{report:#}");
        let timed = |step: &Value| step["seconds"].as_f64().is_some_and(|s| s > 0.0);
        assert!(steps.iter().all(timed), "{report:#}");
        Some(this)
    }

    fn mesh(&self, arguments: &[&str]) -> Finished {
        let helm = self.cluster.directory.join("bin/helm");
        let mut all = vec!["mesh"];
        all.extend(arguments);
        all.extend([
            "--kubeconfig",
            self.cluster.kubeconfig.to_str().expect("UTF-8"),
        ]);
        all.extend(["--helm", helm.to_str().expect("UTF-8")]);
        Running::start(meshtax(&self.scratch, &all)).finish(PATIENCE)
    }

    fn mesh_json(&self, arguments: &[&str]) -> Value {
        let finished = self.mesh(&[arguments, &["--json"]].concat());
        finished.expect_code(0);
        serde_json::from_str(&finished.stdout).expect("JSON")
    }

    /// Everything of it is ready, and it is not installed a second time.
    fn assert_status(&self) {
        let status = self.mesh_json(&["status", self.mesh.name]);
        let status = &status["meshes"][0];
        assert_eq!(status["by_meshtax"], true, "{status:#}");
        let workloads = status["workloads"].as_array().expect("workloads");
        let is_ready = |workload: &Value| workload["ready"] == workload["desired"];
        assert!(
            !workloads.is_empty() && workloads.iter().all(is_ready),
            "{status:#}"
        );
        let again = self.mesh(&["install", self.mesh.name, "--charts", "/nonexistent"]);
        again.expect_code(11);
        let expected = format!("releases in {}", self.mesh.namespace);
        assert!(again.stderr.contains(&expected), "{}", again.stderr);
    }

    fn uninstall(&self) {
        self.mesh(&["uninstall", self.mesh.name, "--crds"])
            .expect_code(0);
    }
}

/// A test that failed leaves nothing to the next one.
impl Drop for Installed {
    fn drop(&mut self) {
        let _ = self.mesh(&["uninstall", self.mesh.name, "--crds"]);
    }
}

/// How long the types of APIs that are gone may be listed.
const LISTED_WITHIN: Duration = Duration::from_secs(30);

/// Kinds and objects that every cluster has: fewer show that the list is not whole.
const FEWEST: usize = 30;

/// Every object of the cluster that does not change by itself: kind, namespace, name and id. `None`: a list fails, as it does
/// while an API is going.
fn objects(cluster: &TestCluster) -> Option<BTreeSet<String>> {
    let kinds = cluster.try_kubectl(&["api-resources", "--verbs=list", "--output=name"])?;
    let changing = ["events", "leases", "endpoint", "metrics"];
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !changing.iter().any(|begin| kind.starts_with(begin)))
        .collect();
    let columns = "--output=custom-columns=:kind,:metadata.namespace,:metadata.name,:metadata.uid,:metadata.generation";
    let list = [
        "get",
        &kinds.join(","),
        "--all-namespaces",
        "--no-headers",
        columns,
    ];
    let lines = cluster.try_kubectl(&list)?;
    let objects: BTreeSet<String> = lines.lines().map(str::to_owned).collect();
    let is_whole = kinds.len() >= FEWEST && objects.len() >= FEWEST;
    assert!(is_whole, "{kinds:#?}\n{objects:#?}");
    Some(objects)
}

/// Lists all objects until this is so of them, or the time is over.
#[track_caller]
fn objects_when(
    cluster: &TestCluster,
    is_so: impl Fn(&BTreeSet<String>) -> bool,
) -> BTreeSet<String> {
    let begin = Instant::now();
    loop {
        let is_late = begin.elapsed() > LISTED_WITHIN;
        match objects(cluster) {
            Some(objects) if is_late || is_so(&objects) => return objects,
            None if is_late => panic!("objects cannot be listed"),
            _ => thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// APIs are listed for a moment after their types are gone.
#[track_caller]
fn assert_same_objects(cluster: &TestCluster, before: &BTreeSet<String>) {
    let after = objects_when(cluster, |after| after == before);
    let added: Vec<_> = after.difference(before).collect();
    let gone: Vec<_> = before.difference(&after).collect();
    assert!(
        added.is_empty() && gone.is_empty(),
        "added: {added:#?}\ngone: {gone:#?}"
    );
}

/// The ids of the probes that failed.
fn failed_probes(evidence: &Value) -> Vec<&str> {
    let probes = evidence["probes"].as_array().expect("probes").iter();
    let failed = probes.filter(|result| result["passed"] == false);
    failed
        .filter_map(|result| result["probe"].as_str())
        .collect()
}

/// The id of a broken variant.
fn broken_id(data_plane: &str, kind: &str) -> String {
    format!("{data_plane}-{kind}")
}

/// Two clients: each must be in the mesh, and its load must have passed its proxy.
fn spec_of(mesh: &Mesh) -> String {
    let (rounds, seconds) = mesh.rounds;
    let mut variants = String::new();
    for (id, data_plane, level) in mesh.proven {
        variants += &format!("  - {{data-plane: {data_plane}, level: {level}, id: {id}}}\n");
    }
    for (data_plane, kind, _) in mesh.broken {
        let id = broken_id(data_plane, kind);
        variants += &format!("  - {{data-plane: {data_plane}, level: l4, id: {id}}}\n");
    }
    format!(
        "name: meshes\nplacement: two-nodes\nworkload: {{response: 1 KiB, connections: 4, clients: 2}}\nvariants:\n{variants}\
         load:\n  - steady: {{rate: 200, arrivals: poisson}}\n\
         design: {{rounds: {rounds}, blocks: 1, trial: 300ms, warmup: 150ms, time: {seconds}s}}\n"
    )
}

/// The mesh is proven and its components are measured; each sabotage is detected; nothing is left.
fn check(installed: &Installed) {
    let mesh = installed.mesh;
    let scratch = Scratch::new();
    let spec = spec_with(&scratch, &spec_of(mesh));
    let out = scratch.path("run");
    let mut arguments = vec![
        spec.as_str(),
        "--json",
        "--out",
        out.to_str().expect("UTF-8"),
    ];
    let broken = mesh.broken.iter();
    let sabotage = broken.map(|(plane, kind, _)| format!("{}={kind}", broken_id(plane, kind)));
    let sabotage: Vec<String> = sabotage.collect();
    arguments.extend(sabotage.iter().flat_map(|pair| ["--sabotage", pair]));
    let finished = installed.cluster.finish(&scratch, &arguments);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    for (id, data_plane, _) in mesh.proven {
        assert_proven(mesh, &out, id, &finished.stderr);
        if *data_plane == "envoy-sidecar" {
            assert_sidecar_described_itself(&out, id);
        }
    }
    let evidence = records(&out.join("evidence.jsonl"));
    for (plane, kind, probe) in mesh.broken {
        let id = broken_id(plane, kind);
        let record = evidence
            .iter()
            .find(|record| record["variant"] == id.as_str());
        match (record, probe) {
            (None, None) => {}
            (Some(record), Some(probe)) => {
                assert!(failed_probes(record).contains(probe), "{id}: {record:#}");
            }
            (record, _) => panic!("{id}: {record:#?}\n{}", finished.stderr),
        }
    }
    installed.cluster.assert_nothing_left();
}

/// The variant passed all probes in every round, and its trials have load and resources of every role.
fn assert_proven(mesh: &Mesh, out: &Path, variant: &str, messages: &str) {
    let evidence = records(&out.join("evidence.jsonl"));
    let proven: Vec<_> = evidence
        .iter()
        .filter(|record| record["variant"] == variant)
        .collect();
    assert!(proven.len() >= mesh.rounds.0, "{variant}: {messages}");
    for round in proven {
        assert_eq!(failed_probes(round), [""; 0], "{round:#}");
    }
    let trials = records(&out.join("trials.jsonl"));
    let mut of_variant = trials
        .iter()
        .filter(|trial| trial["trial"]["variant"] == variant);
    let ids: Vec<&Value> = of_variant
        .clone()
        .map(|trial| &trial["trial"]["id"])
        .collect();
    let outcome = &of_variant.next().expect("a trial")["outcome"];
    let lost = outcome["lost_evidence"].as_array().map_or(0, Vec::len);
    assert!(lost == 0 && outcome["load"].is_object(), "{outcome:#}");
    let samples = records(&out.join("samples.jsonl"));
    let of_variant = samples
        .iter()
        .filter(|sample| ids.contains(&&sample["trial"]));
    let complete = of_variant.filter(|sample| {
        let components = sample["components"].as_array().expect("components").iter();
        let roles: Vec<&str> = components.filter_map(|c| c["role"].as_str()).collect();
        ["client-proxy", "server-proxy", "control-plane"]
            .iter()
            .all(|role| roles.contains(role))
    });
    assert!(complete.count() >= mesh.rounds.0, "{variant}: {samples:#?}");
}

/// The version of the sidecar's Envoy is its own word, beside the image's tag, and so is its number of workers.
fn assert_sidecar_described_itself(out: &Path, variant: &str) {
    let manifest = manifest(out);
    let artifacts = manifest["environment"]["artifacts"].as_array();
    let mut artifacts = artifacts.expect("artifacts").iter();
    let is_its = |artifact: &&Value| {
        let variants = artifact["variants"].as_array().expect("variants");
        variants.iter().any(|of| of == variant)
    };
    let artifact = artifacts.find(is_its).expect("the sidecar's");
    let version = artifact["version"].as_str().expect("a version");
    assert!(version.contains("(image "), "{artifact:#}");
    assert_eq!(artifact["workers"], 1, "{artifact:#}");
}

#[test]
fn mesh_is_installed_proven_and_removed_without_a_trace() {
    let _alone = alone();
    let what = "real meshes on Kubernetes";
    let Some(cluster) = test_cluster(what) else {
        return;
    };
    for mesh in &MESHES {
        let before = objects_when(cluster, |_| true);
        let Some(installed) = Installed::install(cluster, mesh) else {
            let why = format!("{IMAGES} has no images and charts of {}", mesh.name);
            skipped(what, &why);
            continue;
        };
        installed.assert_status();
        check(&installed);
        installed.uninstall();
        assert_same_objects(cluster, &before);
        // What is gone can be installed again.
        let again = Installed::install(cluster, mesh).expect("the second time");
        again.uninstall();
        assert_same_objects(cluster, &before);
        let nothing = again.mesh(&["uninstall", mesh.name]);
        nothing.expect_code(11);
        assert!(
            nothing.stderr.contains("did not install"),
            "{}",
            nothing.stderr
        );
    }
}

#[test]
fn prerequisites_of_a_mesh_are_checked_with_fixes() {
    let _alone = alone();
    let Some(cluster) = test_cluster("prerequisites of a mesh") else {
        return;
    };
    let scratch = Scratch::new();
    let kubeconfig = cluster.kubeconfig.to_str().expect("UTF-8");
    let arguments = [
        "mesh",
        "check",
        "istio-ambient",
        "--kubeconfig",
        kubeconfig,
        "--helm",
    ];
    let without_helm = [&arguments[..], &["/nonexistent/helm"]].concat();
    let finished = Running::start(meshtax(&scratch, &without_helm)).finish(PATIENCE);
    finished.expect_code(11);
    for expected in [
        "\u{2717} Helm",
        "--helm PATH",
        "2 of 2 nodes take pods",
        "cluster administrator",
    ] {
        assert!(
            finished.stdout.contains(expected),
            "{expected}: {}",
            finished.stdout
        );
    }
    let cilium = [
        "mesh",
        "check",
        "cilium",
        "--kubeconfig",
        kubeconfig,
        "--helm",
        "/nonexistent/helm",
    ];
    let finished = Running::start(meshtax(&scratch, &cilium)).finish(PATIENCE);
    finished.expect_code(11);
    assert!(
        finished.stdout.contains("a cluster's network"),
        "{}",
        finished.stdout
    );
}

#[test]
fn variant_of_a_mesh_that_is_not_installed_is_left_out_with_the_reason() {
    let _alone = alone();
    let Some(cluster) = test_cluster("a mesh that is not installed") else {
        return;
    };
    if !cluster
        .kubectl(&["get", "namespaces", "linkerd", "--ignore-not-found"])
        .is_empty()
    {
        return skipped("a mesh that is not installed", "Linkerd is on the cluster");
    }
    let scratch = Scratch::new();
    let spec = spec_with(
        &scratch,
        "name: absent\nvariants: [{data-plane: linkerd, level: mtls}]\ndesign: {rounds: 1, time: 10s}\n",
    );
    let finished = cluster.finish(&scratch, &[&spec]);
    finished.expect_code(12);
    let expected = "Linkerd is not installed: namespace linkerd has no running pod";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
    cluster.assert_nothing_left();
}
