//! Services on several nodes: each node is reached and proven over its own link, and holds memory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::specs::{run_arguments, variant};
use crate::support::{
    Scratch, ZTUNNEL, alone, envoy, finish, given, is_measured, meshtax, records, skipped,
};

const DESIGN: &str = "design: {rounds: 1, blocks: 1, trial: 300ms, warmup: 50ms, time: 25s}\n";
const LOAD: &str = "load:\n  - saturated: {requests-per-connection: 1}\n";

fn seen(variant: &Value, probe: &str) -> String {
    let probes = variant["evidence"]["probes"].as_array().expect("probes");
    let found = probes.iter().find(|p| p["probe"] == probe);
    let found = found.unwrap_or_else(|| panic!("no probe `{probe}`: {variant:#}"));
    assert_eq!(found["passed"], true, "{found}");
    found["seen"].as_str().expect("words").to_owned()
}

/// Of each variant, the names of its processes by the number of their node of the servers'.
fn placed(samples: &Path) -> BTreeMap<u64, BTreeSet<String>> {
    let mut nodes: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for sample in records(samples) {
        for component in sample["components"].as_array().expect("components") {
            let node = component["server_node"].as_u64().unwrap_or(0);
            let name = component["name"].as_str().expect("a name").to_owned();
            nodes.entry(node).or_default().insert(name);
        }
    }
    nodes
}

/// Four replicas on three nodes: every replica gets requests, the traffic of each node is seen on its own link.
#[test]
fn replicas_on_several_nodes_are_proven_node_by_node() {
    let _alone = alone();
    let scratch = Scratch::new();
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
    let path = scratch.write("nodes.yaml", &text);
    let out = scratch.path("nodes");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    if let Some(ztunnel) = &ztunnel {
        arguments.extend(["--ztunnel", ztunnel.to_str().expect("UTF-8")]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let analysis = finished.json();
    assert_eq!(analysis["experiment"]["service"]["nodes"], 3);
    let mut all_measured = true;
    for variant in analysis["variants"].as_array().expect("variants") {
        let id = variant["variant"].as_str().expect("an id");
        assert_eq!(variant["left_out"], Value::Null, "{id}");
        let told = seen(variant, "every node");
        let how = match id {
            "none" | "none-again" => "readable: node 1: ",
            _ => "TLS 1.3, the canary not readable: node 1: ",
        };
        assert!(
            told.starts_with(how) && told.contains("node 3: "),
            "{id}: {told}"
        );
        let point = &variant["points"][0];
        if !is_measured(point, 1, id) {
            all_measured = false;
            continue;
        }
        assert_eq!(point["spread"]["hit_min"], 4, "{id}: {point:#}");
        // The clients' node has memory of the variant's where it has a proxy.
        let nodes = variant["nodes"].as_array().expect("nodes");
        let servers: Vec<&Value> = nodes.iter().filter(|n| n["node"] == "server").collect();
        let numbers: Vec<u64> = servers
            .iter()
            .map(|n| n["number"].as_u64().unwrap_or(0))
            .collect();
        assert_eq!(numbers, [0, 1, 2], "{id}: {nodes:?}");
        for node in servers {
            let has_proxy = node["proxy_file_bytes"].as_u64() > Some(0);
            assert_eq!(has_proxy, !id.starts_with("none"), "{id}: {node}");
        }
    }
    if all_measured {
        let nodes = placed(&out.join("samples.jsonl"));
        assert!(nodes[&0].contains("limit/server-proxy-4"), "{nodes:?}");
        assert!(nodes[&1].contains("limit/server-proxy-2"), "{nodes:?}");
        assert!(nodes[&2].contains("none/app-3"), "{nodes:?}");
        if ztunnel.is_some() {
            assert!(nodes[&2].contains("ztunnel/server-proxy-3"), "{nodes:?}");
        }
    }
    the_report_tells_the_nodes(&scratch, &out, all_measured);
}

fn the_report_tells_the_nodes(scratch: &Scratch, out: &Path, all_measured: bool) {
    let out = out.to_str().expect("UTF-8");
    let told = finish(meshtax(scratch, &["report", out, "--format", "markdown"]));
    let words = told.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let dealt = "4 replicas behind the service's address, dealt out to 3 nodes of the servers'";
    assert!(words.contains(dealt), "{words}");
    if !all_measured {
        return skipped("memory of each node", "not all variants were measured");
    }
    assert!(words.contains("server's 3: its replicas"), "{words}");
}

/// Services behind stand on the first of the servers' nodes or beside the clients, and are reached from all of them.
#[test]
fn services_are_called_from_every_node() {
    let _alone = alone();
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
    assert!([0, 13].contains(&finished.code), "{finished:?}");
    let analysis = finished.json();
    for variant in analysis["variants"].as_array().expect("variants") {
        let id = variant["variant"].as_str().expect("an id");
        assert_eq!(variant["left_out"], Value::Null, "{id}");
        assert!(seen(variant, "every node").contains("node 3: "), "{id}");
        // Each replica of the first service calls the one beside the clients over its own link.
        let calls = seen(variant, "calls on the wire");
        for caller in [
            "server to across",
            "server-2 to across",
            "server-3 to across",
        ] {
            assert!(calls.contains(caller), "{id}: {calls}");
        }
        is_measured(&variant["points"][0], 1, id);
    }
}
