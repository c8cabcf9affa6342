//! Real meshes on the test cluster: those whose images and manifests `MESHTAX_E2E_IMAGES` has (CONTRIBUTING.md).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::access::{TestCluster, spec_with, test_cluster};
use crate::support::{Scratch, alone, records, skipped};

/// A directory with a directory for each mesh: archives of its images (`*.tar`), and its manifests (`*.yaml`).
const IMAGES: &str = "MESHTAX_E2E_IMAGES";

/// A mesh of these tests.
struct Mesh {
    /// The name of its directory.
    name: &'static str,
    namespace: &'static str,
    /// The variant that must be proven.
    data_plane: &'static str,
    level: &'static str,
    /// Ways to break it, and the probe that must fail; `None`: it is not started.
    broken: [(&'static str, Option<&'static str>); 3],
}

const MESHES: [Mesh; 2] = [
    Mesh {
        name: "linkerd",
        namespace: "linkerd",
        data_plane: "linkerd",
        level: "l7",
        broken: [
            ("no-proxy", None),
            ("no-policy", Some("forbidden-identity")),
            ("wrong-server-identity", Some("server-identity")),
        ],
    },
    Mesh {
        name: "istio-ambient",
        namespace: "istio-system",
        data_plane: "ztunnel",
        level: "l4",
        broken: [
            ("no-proxy", None),
            ("no-policy", Some("plaintext-outsider")),
            ("wrong-server-identity", Some("server-identity")),
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
    manifests: Vec<String>,
}

impl Installed {
    /// `None`: there are no images of it, which is said.
    fn install(cluster: &'static TestCluster, mesh: &'static Mesh) -> Option<Self> {
        let directory = PathBuf::from(std::env::var(IMAGES).ok()?).join(mesh.name);
        if !directory.is_dir() {
            return None;
        }
        let load = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/cluster/load");
        let mut load = Command::new(load);
        load.arg(&cluster.directory).args(files(&directory, "tar"));
        let loaded = load.output().expect("a program");
        assert!(loaded.status.success(), "{loaded:?}");
        let manifests = files(&directory, "yaml").into_iter();
        let this = Self {
            cluster,
            mesh,
            manifests: manifests
                .map(|path| path.to_str().expect("UTF-8").to_owned())
                .collect(),
        };
        // The second time, the types of all objects are known.
        for _ in 0..2 {
            for manifest in &this.manifests {
                cluster.kubectl(&["apply", "--server-side", "--filename", manifest]);
            }
        }
        this.await_ready();
        Some(this)
    }

    fn await_ready(&self) {
        let namespace = ["--namespace", self.mesh.namespace];
        let names = ["get", "deployments,daemonsets", "--output", "name"];
        let workloads = self.cluster.kubectl(&[&names[..], &namespace].concat());
        assert!(
            workloads.lines().count() > 1,
            "{}: {workloads}",
            self.mesh.name
        );
        for workload in workloads.lines() {
            let wait = ["rollout", "status", workload, "--timeout", "120s"];
            let ready = self.cluster.kubectl(&[&wait[..], &namespace].concat());
            assert!(
                ready.contains("successfully rolled out"),
                "{workload}: {ready}"
            );
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        for manifest in self.manifests.iter().rev() {
            let delete = ["delete", "--ignore-not-found", "--wait=false", "--filename"];
            self.cluster.kubectl(&[&delete[..], &[manifest]].concat());
        }
    }
}

/// The ids of the probes that failed.
fn failed_probes(evidence: &Value) -> Vec<&str> {
    let probes = evidence["probes"].as_array().expect("probes").iter();
    let failed = probes.filter(|result| result["passed"] == false);
    failed
        .filter_map(|result| result["probe"].as_str())
        .collect()
}

fn spec_of(mesh: &Mesh) -> String {
    let Mesh {
        data_plane, level, ..
    } = mesh;
    let mut variants = format!("  - {{data-plane: {data_plane}, level: {level}, id: proven}}\n");
    for (kind, _) in mesh.broken {
        variants += &format!("  - {{data-plane: {data_plane}, level: l4, id: {kind}}}\n");
    }
    format!(
        "name: meshes\nplacement: two-nodes\nworkload: {{response: 1 KiB, connections: 4}}\nvariants:\n{variants}\
         load:\n  - steady: {{rate: 200, arrivals: poisson}}\n\
         design: {{rounds: 1, blocks: 1, trial: 300ms, warmup: 150ms, time: 20s}}\n"
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
    let sabotage = mesh.broken.map(|(kind, _)| format!("{kind}={kind}"));
    arguments.extend(sabotage.iter().flat_map(|pair| ["--sabotage", pair]));
    let finished = installed.cluster.finish(&scratch, &arguments);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    let evidence = records(&out.join("evidence.jsonl"));
    let of = |variant: &str| evidence.iter().find(|record| record["variant"] == variant);
    let proven = of("proven").unwrap_or_else(|| panic!("{}", finished.stderr));
    assert_eq!(failed_probes(proven), [""; 0], "{proven:#}");
    for (kind, probe) in mesh.broken {
        match (of(kind), probe) {
            (None, None) => {}
            (Some(record), Some(probe)) => {
                assert!(failed_probes(record).contains(&probe), "{kind}: {record:#}");
            }
            (record, _) => panic!("{kind}: {record:#?}\n{}", finished.stderr),
        }
    }
    let samples = records(&out.join("samples.jsonl"));
    let of_mesh = samples.iter().filter(|sample| {
        let components = sample["components"].as_array().expect("components").iter();
        let roles: Vec<&str> = components.filter_map(|c| c["role"].as_str()).collect();
        ["client-proxy", "server-proxy", "control-plane"]
            .iter()
            .all(|role| roles.contains(role))
    });
    assert_eq!(of_mesh.count(), 1, "{samples:#?}");
    installed.cluster.assert_nothing_left();
}

#[test]
fn installed_meshes_are_proven_and_every_sabotage_is_detected() {
    let _alone = alone();
    let what = "real meshes on Kubernetes";
    let Some(cluster) = test_cluster(what) else {
        return;
    };
    for mesh in &MESHES {
        match Installed::install(cluster, mesh) {
            Some(installed) => check(&installed),
            None => {
                let why = format!("{IMAGES} has no images of {}", mesh.name);
                skipped(what, &why);
            }
        }
    }
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
