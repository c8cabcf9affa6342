//! A run measures with evidence, and leaves nothing behind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::access::{PATIENCE, SPEC, cluster, spec, spec_with, test_cluster, wait_for};
use crate::support::{Running, Scratch, alone, manifest, records};

#[test]
fn run_on_a_cluster_measures_with_evidence_and_leaves_nothing() {
    let _alone = alone();
    let Some(cluster) = cluster("a run on Kubernetes") else {
        return;
    };
    let scratch = Scratch::new();
    let out = scratch.path("run");
    let out = out.to_str().expect("UTF-8");
    // Six blocks fit into two rounds, if there is no time for a third.
    let spec = spec_with(&scratch, &SPEC.replace("blocks: 2", "blocks: 4"));
    let finished = cluster.finish(&scratch, &[&spec, "--json", "--out", out]);
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
    let text = SPEC
        .replace("  - {data-plane: limit-mtls, level: mtls}\n", &variants)
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 1");
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("run");
    let mut arguments = vec![path.to_str().expect("UTF-8"), "--json", "--time", "20s"];
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
    let Some(cluster) = test_cluster("an interrupted run") else {
        return;
    };
    let scratch = Scratch::new();
    let mut run = cluster.start(&scratch);
    wait_for(&mut run, "client", || {
        cluster.objects().contains("pod/client")
    });
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
    let Some(cluster) = test_cluster("an image that cannot be pulled") else {
        return;
    };
    let scratch = Scratch::new();
    let mut run = cluster.run(&scratch, &[&spec(&scratch)]);
    // No registry is at this port of any node.
    run.env("MESHTAX_IMAGE", "127.0.0.1:9/meshtax:none");
    let finished = Running::start(run).finish(PATIENCE);
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
