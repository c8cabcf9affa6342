//! Settings of pods: they reach the cluster, for every variant alike, and what was granted is on record.

use serde_json::Value;

use super::access::{PATIENCE, SPEC, TestCluster, spec_with, test_cluster, wait_for};
use crate::support::{Running, Scratch, alone, beside_others, finish, manifest, meshtax, records};

const SETTINGS: &str = "
kubernetes:
  limits:
    client: {cpu: 300m, memory: 256Mi}
    service: {cpu: 100m, memory: 128Mi}
    proxy: {cpu: 100m, memory: 128Mi}
  node-selector: {kubernetes.io/os: linux}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 7
          podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}
  tolerations:
    - {key: meshtax-e2e, operator: Exists}
  topology-spread:
    - {maxSkew: 5, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}
  priority-class: meshtax-e2e
  image-pull-secrets: [meshtax-e2e]
";

const OBJECTS: &str = "
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: meshtax-e2e}, value: 1000}
---
{apiVersion: v1, kind: Secret, metadata: {name: meshtax-e2e, namespace: default},
 type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '{\"auths\":{}}'}}
";

/// The settings on one node, in a run of one block.
fn one_node() -> String {
    let spec = SPEC
        .replace("two-nodes", "one-node")
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 1");
    spec + SETTINGS
}

/// A node with a taint while this lives.
struct Tainted(&'static TestCluster);

impl Tainted {
    fn new(cluster: &'static TestCluster) -> Self {
        let taint = "meshtax-e2e=bench:NoSchedule";
        cluster.kubectl(&["taint", "--overwrite", "node", "node1", taint]);
        Self(cluster)
    }
}

impl Drop for Tainted {
    fn drop(&mut self) {
        self.0
            .try_kubectl(&["taint", "node", "node1", "meshtax-e2e-"]);
    }
}

#[test]
fn broken_variant_on_one_node_is_detected_by_its_capture() {
    let _alone = alone();
    let Some(cluster) = test_cluster("sabotage on one node") else {
        return;
    };
    let scratch = Scratch::new();
    let spec = SPEC
        .replace("two-nodes", "one-node")
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 1")
        .replace(
            "limit-mtls, level: mtls}",
            "limit-mtls, id: broken}\n  - {data-plane: limit-mtls, id: whole}",
        );
    let spec = spec_with(&scratch, &spec);
    let out = scratch.path("run");
    let path = out.to_str().expect("UTF-8");
    let sabotage = [
        "--sabotage",
        "broken=no-encryption",
        "--time",
        "15s",
        "--out",
        path,
    ];
    cluster.finish(&scratch, &[&[spec.as_str()][..], &sabotage].concat());
    cluster.assert_nothing_left();
    let evidence = records(&out.join("evidence.jsonl"));
    let failed = |variant: &str| -> Vec<String> {
        let of_variant = evidence.iter().find(|record| record["variant"] == variant);
        let probes = of_variant.expect("evidence")["probes"].as_array();
        let probes = probes.expect("probes").iter();
        probes
            .filter(|probe| probe["passed"] == false)
            .map(|probe| probe["probe"].to_string())
            .collect()
    };
    assert!(
        failed("broken").contains(&"\"canary\"".to_owned()),
        "{evidence:#?}"
    );
    assert_eq!(failed("whole"), Vec::<String>::new());
}

/// What every pod of a variant must have been given.
fn assert_settings(pod: &Value) {
    let spec = &pod["spec"];
    assert_eq!(spec["nodeName"], "node1", "{pod:#}");
    assert_eq!(spec["priorityClassName"], "meshtax-e2e");
    assert_eq!(spec["imagePullSecrets"][0]["name"], "meshtax-e2e");
    assert_eq!(spec["nodeSelector"]["kubernetes.io/os"], "linux");
    assert_eq!(spec["topologySpreadConstraints"][0]["maxSkew"], 5);
    let anti = &spec["affinity"]["podAntiAffinity"];
    let preferred = &anti["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0]["weight"], 7);
    for container in spec["containers"].as_array().expect("containers") {
        let resources = &container["resources"];
        assert_eq!(resources["limits"], resources["requests"], "{container:#}");
        assert!(resources["limits"]["memory"].is_string(), "{container:#}");
    }
    let tolerations = spec["tolerations"].as_array().expect("tolerations");
    assert!(tolerations.iter().any(|of| of["key"] == "meshtax-e2e"));
}

#[test]
fn settings_reach_every_pod_on_one_tainted_node_and_what_was_granted_is_on_record() {
    let _alone = alone();
    let Some(cluster) = test_cluster("settings of pods") else {
        return;
    };
    let _objects = cluster.with_objects(OBJECTS.to_owned());
    let _tainted = Tainted::new(cluster);
    let scratch = Scratch::new();
    let spec = spec_with(&scratch, &one_node());
    let out = scratch.path("run");
    let path = out.to_str().expect("UTF-8");
    let options = ["--nodes", "node1", "--time", "20s", "--json", "--out", path];
    let arguments = [&[spec.as_str()][..], &options].concat();
    let mut run = Running::start(cluster.run(&scratch, &arguments));
    let trials = out.join("trials.jsonl");
    wait_for(&mut run, "trial", || !records(&trials).is_empty());
    let selector = "app.kubernetes.io/managed-by=meshtax,meshtax.io/pod";
    let pods = cluster.kubectl(&["get", "pods", "-A", "-l", selector, "-o", "json"]);
    let pods: Value = serde_json::from_str(&pods).expect("JSON");
    let pods = pods["items"].as_array().expect("a list");
    assert!(pods.len() >= 6, "{}", pods.len());
    pods.iter().for_each(assert_settings);
    let finished = run.finish(PATIENCE);
    finished.expect_completed();
    cluster.assert_nothing_left();
    let evidence = records(&out.join("evidence.jsonl"));
    let frames = |record: &Value| record["wire"]["frames_to_server"].as_u64();
    assert!(
        evidence.len() >= 3 && evidence.iter().all(|e| frames(e) > Some(0)),
        "{evidence:#?}"
    );
    let failures = records(&out.join("failures.jsonl"));
    assert!(failures.is_empty(), "{failures:#?}");
    let nodes = manifest(&out)["environment"]["nodes"].clone();
    assert!(
        nodes
            .as_array()
            .expect("nodes")
            .iter()
            .all(|node| node["name"] == "node1")
    );
    let analysis = finished.json();
    let granted = analysis["environment"]["pods"].as_array().expect("pods");
    assert!(granted.len() >= 6, "{granted:#?}");
    for pod in granted {
        assert_eq!(
            (&pod["qos"], &pod["node"]),
            (&"Guaranteed".into(), &"node1".into())
        );
        let containers = pod["containers"].as_array().expect("containers");
        let has_cpus = |of: &Value| of["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty());
        assert!(containers.iter().all(has_cpus), "{pod:#}");
    }
}

#[test]
fn unknown_field_of_kubernetes_is_rejected_at_its_place_on_every_engine() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let spec = spec_with(&scratch, &one_node().replace("maxSkew: 5", "maxSkewed: 5"));
    for engine in ["local", "kubernetes"] {
        let run = ["run", "--engine", engine, spec.as_str()];
        let rejected = finish(meshtax(&scratch, &run));
        let stderr = &rejected.expect_code(10).stderr;
        for text in [
            "unknown key `maxSkewed`",
            "TopologySpreadConstraint",
            "^^^^^^^^^",
            "known keys: ",
        ] {
            assert!(stderr.contains(text), "{text}: {stderr}");
        }
    }
}

#[test]
fn guaranteed_pods_have_whole_cpus_for_what_is_measured() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let spec = spec_with(
        &scratch,
        &format!("{SPEC}kubernetes: {{qos: guaranteed}}\n"),
    );
    let run = [
        "run",
        "--engine",
        "kubernetes",
        "--image",
        "i",
        "--dry-run",
        spec.as_str(),
    ];
    let printed = finish(meshtax(&scratch, &run))
        .expect_code(0)
        .stdout
        .clone();
    let documents = printed
        .split("---\n")
        .filter(|text| !text.trim().is_empty());
    let objects: Vec<Value> = documents
        .map(|text| serde_json::from_str(text).expect("JSON"))
        .collect();
    let pods = objects
        .iter()
        .filter(|object| object["metadata"]["labels"]["meshtax.io/pod"].is_string());
    let mut measured = 0;
    for container in pods.flat_map(|pod| pod["spec"]["containers"].as_array().expect("containers"))
    {
        let resources = &container["resources"];
        assert_eq!(resources["limits"], resources["requests"], "{container:#}");
        measured += usize::from(resources["limits"]["cpu"] == "1");
    }
    // Three clients, three applications, two proxies.
    assert_eq!(measured, 8);
}

#[test]
fn one_node_needs_a_cluster() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let spec = spec_with(&scratch, &SPEC.replace("two-nodes", "one-node"));
    let refused = finish(meshtax(&scratch, &["run", spec.as_str(), "--offline"]));
    let stderr = &refused.expect_code(11).stderr;
    assert!(
        stderr.contains("one-node") && stderr.contains("--engine kubernetes"),
        "{stderr}"
    );
}
