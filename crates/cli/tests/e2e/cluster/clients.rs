//! Several client pods on a cluster.

use std::collections::BTreeSet;

use serde_json::Value;

use super::access::{SPEC, cluster, spec_with};
use crate::outcome::trials_together;
use crate::support::{Scratch, alone, records};

/// One variant as it is, one with a client whose pod redirects nothing, one with a client whose load bypasses its proxy.
const BROKEN: [&str; 2] = [
    "no-redirect-of-one-client",
    "load-of-one-client-around-proxies",
];

#[test]
fn four_client_pods_offer_one_load_and_a_broken_one_is_detected() {
    let _alone = alone();
    let Some(cluster) = cluster("four client pods on Kubernetes") else {
        return;
    };
    let scratch = Scratch::new();
    let variants: String = BROKEN
        .iter()
        .map(|kind| format!("  - {{data-plane: limit-mtls, level: mtls, id: {kind}}}\n"))
        .collect();
    let text = SPEC
        .replace("connections: 4}", "connections: 7, clients: 4}")
        .replace("load:\n", &format!("{variants}load:\n"))
        .replace("arrivals: poisson", "arrivals: constant")
        .replace("rounds: 3, blocks: 2", "rounds: 1, blocks: 2");
    let out = scratch.path("run");
    let spec = spec_with(&scratch, &text);
    let sabotage: Vec<String> = BROKEN
        .iter()
        .map(|kind| format!("--sabotage={kind}={kind}"))
        .collect();
    let mut arguments = vec![spec.as_str(), "--json", "--time", "75s"];
    arguments.extend(sabotage.iter().map(String::as_str));
    let finished = cluster.complete(&scratch, &out, &arguments);
    let evidence = records(&out.join("evidence.jsonl"));
    let of = |variant: &str| {
        let found = evidence.iter().find(|record| record["variant"] == variant);
        found.unwrap_or_else(|| panic!("{variant}: {}", finished.stderr))
    };
    let failed = |variant: &str| -> Vec<String> {
        let probes = of(variant)["probes"].as_array().expect("probes");
        let failed = probes.iter().filter(|result| result["passed"] == false);
        failed.map(ToString::to_string).collect()
    };
    assert_eq!(failed("limit-mtls"), [""; 0]);
    let seen = of("limit-mtls").to_string();
    assert!(seen.contains("4 clients; client: "), "{seen}");
    let broken = failed(BROKEN[0]);
    assert!(
        broken.iter().any(|probe| probe.contains("client-4")),
        "{broken:#?}"
    );
    assert_eq!(failed(BROKEN[1]), [""; 0]);
    let trials = records(&out.join("trials.jsonl"));
    let of_variant = |variant: &str| -> Vec<&Value> {
        let together = trials_together(&trials, variant).into_iter();
        together.map(|trial| &trial["outcome"]).collect()
    };
    for outcome in of_variant("limit-mtls") {
        let load = &outcome["load"];
        assert_eq!(load["connections_opened"], 7, "{outcome:#}");
        let (offered, window_ns) = (&load["offered"], &load["window_ns"]);
        let expected = window_ns.as_f64().expect("a window") * 200.0 / 1e9;
        let offered = offered.as_f64().expect("a count");
        assert!((offered - expected).abs() <= 2.0, "{offered} of {expected}");
        assert!(!outcome.to_string().contains("bypassed"), "{outcome:#}");
    }
    for outcome in of_variant(BROKEN[1]) {
        let lost = outcome["lost_evidence"].to_string();
        assert!(lost.contains("client-4"), "{outcome:#}");
    }
    assert_each_client_is_metered(&records(&out.join("samples.jsonl")));
}

/// The containers of each client's pod: its generator's and its proxy's. A stall of the machine can leave one idle for a whole
/// window.
fn assert_each_client_is_metered(samples: &[Value]) {
    let components = samples
        .iter()
        .flat_map(|sample| sample["components"].as_array().expect("components"));
    let busy: BTreeSet<&str> = components
        .filter(|component| component["cpu_ns"].as_u64() > Some(0))
        .map(|component| component["name"].as_str().expect("a name"))
        .collect();
    for pod in ["client", "client-2", "client-3", "client-4"] {
        for of in ["agent", "proxy"] {
            let name = format!("limit-mtls/{pod}/{of}");
            assert!(busy.contains(name.as_str()), "{name}: {busy:?}");
        }
    }
}
