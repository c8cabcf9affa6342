//! Warm and cold trials: what is open between the proxies when a window begins.

use crate::specs::run_arguments;
use crate::support::{Scratch, alone, envoy, finish, meshtax, records, skipped};

const SPEC: &str = "
name: warm
workload: {response: 1 KiB, connections: 8}
variants:
  - {data-plane: envoy-sidecar, level: mtls}
load:
  - steady: {rate: 300}
  - steady: {rate: 300, cold: true}
design: {rounds: 2, blocks: 1, trial: 300ms, warmup: 100ms, time: 5s}
";

/// Independent of the machine's speed and of valid trials. A steady load alone uses fewer connections than the generator
/// has: only a burst at full concurrency opens them before the window.
#[test]
fn bursts_open_connections_before_warm_trials_and_cold_trials_open_their_own() {
    let _alone = alone();
    if envoy().is_none() {
        return skipped("warm and cold trials", "Envoy is not available");
    }
    let scratch = Scratch::new();
    let spec = scratch.write("spec.yaml", SPEC);
    let out = scratch.path("run");
    let mut arguments = run_arguments(&spec, &out);
    arguments.push("--json");
    finish(meshtax(&scratch, &arguments));
    let trials = records(&out.join("trials.jsonl"));
    let connections = |point: &str| {
        let of_mesh = trials.iter().filter(|record| {
            record["trial"]["variant"] == "envoy-sidecar-mtls"
                && record["trial"]["load_point"] == point
        });
        let found: Vec<_> = of_mesh
            .map(|record| record["outcome"]["proxy_connections"].clone())
            .collect();
        assert!(!found.is_empty(), "{point}: {trials:#?}");
        found
    };
    for warm in connections("steady") {
        let before = warm["before"].as_u64();
        assert!(before.is_some_and(|before| before >= 4), "{warm}");
    }
    for cold in connections("steady-cold") {
        assert!(cold["before"].is_null(), "{cold}");
        assert!(cold["after"].as_u64() >= Some(1), "{cold}");
    }
}
