//! Services on several nodes: each node is verified over its own link, and has its own memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::outcome::{assert_not_excluded, assert_taken, has_figures, seen_by};
use crate::specs::{run_arguments, variant};
use crate::support::{
    Scratch, ZTUNNEL, alone, beside_others, envoy, finish, given, meshtax, records, until_measured,
};

const DESIGN: &str = "design: {rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 2s}\n";
const LOAD: &str = "load:\n  - saturated: {requests-per-connection: 1}\n";

/// Component names by node: the clients' is the first.
fn components_by_node(samples: &Path) -> BTreeMap<u64, BTreeSet<String>> {
    let mut nodes: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for sample in records(samples) {
        for component in sample["components"].as_array().expect("components") {
            let node = component["node"].as_u64().expect("a node");
            let name = component["name"].as_str().expect("a name").to_owned();
            nodes.entry(node).or_default().insert(name);
        }
    }
    nodes
}

/// Four replicas on three nodes: every replica gets requests, and each node's traffic is captured on its own link.
#[test]
fn replicas_are_verified_on_every_node() {
    let _alone = alone();
    let mut variants = vec![variant("limit-mtls", "mtls", "limit")];
    if envoy().is_some() {
        variants.push(variant("envoy-sidecar", "mtls", "envoy"));
    }
    let ztunnel = given(ZTUNNEL, "ztunnel on several nodes");
    if ztunnel.is_some() {
        variants.push(variant("ztunnel", "mtls", "ztunnel"));
    }
    let lines: String = variants.iter().map(|v| format!("  - {v}\n")).collect();
    let text = format!(
        "name: nodes\nservice: {{replicas: 4, nodes: 3}}\nworkload: {{connections: 8}}\nvariants:\n{lines}{LOAD}{DESIGN}"
    );
    let (scratch, finished) = until_measured(
        |scratch| {
            let path = scratch.write("nodes.yaml", &text);
            let out = scratch.path("nodes");
            let mut arguments = run_arguments(&path, &out);
            arguments.push("--json");
            if let Some(ztunnel) = &ztunnel {
                arguments.extend(["--ztunnel", ztunnel.to_str().expect("UTF-8")]);
            }
            finish(meshtax(scratch, &arguments))
        },
        |_, finished| finished.has_every_point(),
    );
    let out = scratch.path("nodes");
    finished.expect_completed();
    let analysis = finished.json();
    assert_eq!(
        analysis["experiment"]["topology"]["services"][0]["nodes"],
        3
    );
    for variant in analysis["variants"].as_array().expect("variants") {
        assert_on_three_nodes(variant);
    }
    let nodes = components_by_node(&out.join("samples.jsonl"));
    assert!(nodes[&1].contains("limit/server-proxy-4"), "{nodes:?}");
    assert!(nodes[&2].contains("limit/server-proxy-2"), "{nodes:?}");
    assert!(nodes[&3].contains("none/server-app-3"), "{nodes:?}");
    if ztunnel.is_some() {
        assert!(nodes[&3].contains("ztunnel/server-proxy-3"), "{nodes:?}");
    }
    let out = out.to_str().expect("UTF-8");
    let report = finish(meshtax(&scratch, &["report", out, "--format", "markdown"]));
    let text = &report.expect_code(0).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for stated in [
        "4 replicas behind the service address, distributed over 3 server nodes",
        "server-3: application and proxies",
    ] {
        assert!(words.contains(stated), "{words}");
    }
}

/// Each of three server nodes was seen on its own link and has its own proxy's memory, and each of four replicas was hit.
#[track_caller]
fn assert_on_three_nodes(variant: &Value) {
    let id = variant["variant"].as_str().expect("an id");
    assert_not_excluded(variant);
    let seen = seen_by(&variant["evidence"], "every-node");
    let is_encrypted = !["none", "none-again"].contains(&id);
    assert_eq!(seen.contains("TLS 1.3"), is_encrypted, "{id}: {seen}");
    for node in ["node 1", "node 2", "node 3"] {
        assert!(seen.contains(node), "{id}: {seen}");
    }
    let point = &variant["points"][0];
    if !has_figures(point, 1, id) {
        return;
    }
    assert_eq!(point["spread"]["hit_min"], 4, "{id}: {point:#}");
    let nodes = variant["nodes"].as_array().expect("nodes");
    let servers: Vec<&Value> = nodes.iter().filter(|n| n["role"] == "server").collect();
    let numbers: Vec<u64> = servers
        .iter()
        .map(|n| n["node"].as_u64().expect("an index"))
        .collect();
    assert_eq!(numbers, [1, 2, 3], "{id}: {nodes:?}");
    for node in servers {
        let has_proxy = node["proxy_file_bytes"].as_u64() > Some(0);
        assert_eq!(has_proxy, !id.starts_with("none"), "{id}: {node}");
    }
}

/// Called services run on the first server node or on the clients' node, and are reached from all server nodes.
#[test]
fn services_are_called_from_replicas_on_every_node() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let own = "name: spread\nservices:\n  - {name: front, replicas: 3, nodes: 3, calls: [beside, across]}\n\
               \x20 - {name: beside, replicas: 2, node: server}\n  - {name: across, replicas: 2}\n";
    let topology = scratch.write("spread.yaml", own);
    let variants = [
        variant("limit-l4", "plaintext", "plain"),
        variant("limit-mtls", "mtls", "limit"),
    ];
    let lines: String = variants.iter().map(|v| format!("  - {v}\n")).collect();
    let text =
        format!("name: spread\nworkload: {{connections: 8}}\nvariants:\n{lines}{LOAD}{DESIGN}");
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("spread");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--topology", topology.to_str().expect("UTF-8"), "--json"]);
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_completed();
    let analysis = finished.json();
    for variant in analysis["variants"].as_array().expect("variants") {
        let id = variant["variant"].as_str().expect("an id");
        assert_not_excluded(variant);
        let nodes = seen_by(&variant["evidence"], "every-node");
        assert!(nodes.contains("node 3"), "{id}: {nodes}");
        // Each replica of the first service calls the service on the clients' node over its own link.
        let calls = seen_by(&variant["evidence"], "calls-on-the-wire");
        for caller in ["front to across", "front-2 to across", "front-3 to across"] {
            assert!(calls.contains(caller), "{id}: {calls}");
        }
        assert_taken(&variant["points"][0], 1, id);
    }
}
