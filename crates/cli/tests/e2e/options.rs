//! What a variant's proxies do and hold besides: proven, told, and refused where it cannot be.

use serde_json::Value;

use crate::support::{Scratch, alone, envoy, finish, meshtax, records, skipped};

const SPEC: &str = "
name: options
workload: {response: 1 KiB, connections: 4}
variants:
  - {data-plane: envoy-sidecar, level: mtls, knows: {endpoints: 25, per-service: 10, changes: 20/s}, access-log: true, tracing: 100%}
load:
  - steady: {rate: 200}
design: {rounds: 2, blocks: 1, trial: 400ms, warmup: 100ms, time: 5s}
";

/// Nothing here depends on how fast the machine is, nor on whether a trial counts.
#[test]
fn what_proxies_know_and_log_is_proven_and_what_they_take_is_told() {
    let _alone = alone();
    let Some(envoy) = envoy() else {
        return skipped("options of a variant", "there is no Envoy");
    };
    let scratch = Scratch::new();
    let spec = scratch.write("spec.yaml", SPEC);
    let out = scratch.path("run");
    let [spec, out_text, envoy] =
        [spec.as_path(), out.as_path(), envoy].map(|p| p.to_str().expect("UTF-8"));
    let arguments = [
        "run",
        spec,
        "--out",
        out_text,
        "--envoy",
        envoy,
        "--offline",
        "--json",
    ];
    let finished = finish(meshtax(&scratch, &arguments));
    let id = "envoy-sidecar-mtls+knows-25+changes-20+access-log+tracing";
    let proven = records(&out.join("evidence.jsonl"));
    let of_variant = |seen: &&Value| seen["variant"] == id;
    let seen = proven.iter().find(of_variant);
    let seen = seen.unwrap_or_else(|| panic!("no evidence: {}", finished.stderr));
    for (probe, said) in [
        (
            "knows of others",
            "2 proxies hold 25 further endpoints of 3 services",
        ),
        ("logs requests", "5 requests: "),
        ("sends spans", ""),
    ] {
        let probes = seen["probes"].as_array().expect("probes");
        let found = probes.iter().find(|p| p["probe"] == probe);
        let found = found.unwrap_or_else(|| panic!("no probe {probe}: {seen:#}"));
        let told = found["seen"].as_str().unwrap_or_default();
        assert!(
            found["passed"] == true && told.starts_with(said),
            "{found:#}"
        );
    }
    let samples = records(&out.join("samples.jsonl"));
    let changed = samples
        .iter()
        .filter(|s| s["changes"]["held"].as_u64() > Some(0));
    assert!(changed.count() >= 1, "no proxy held a change");
    let idle = |s: &&Value| s["idle_proxies"][0]["variant"] == id;
    assert!(
        samples.iter().any(|s| idle(&s)),
        "no idle proxies in {samples:#?}"
    );
    let analysis = finished.json();
    let variants = analysis["variants"].as_array().expect("variants");
    let found = variants
        .iter()
        .find(|v| v["variant"] == id)
        .expect("the variant");
    for figure in ["start_ns", "added_start_ns", "push_ns", "idle_cores"] {
        let value = found["upkeep"][figure]["value"].as_f64();
        assert!(
            value.is_some_and(f64::is_finite),
            "{figure}: {}",
            found["upkeep"]
        );
    }
}

const BROKEN: &str = "
name: broken-options
workload: {response: 1 KiB, connections: 4}
variants:
  - {data-plane: envoy-sidecar, level: mtls, id: knows, knows: 25}
  - {data-plane: envoy-sidecar, level: mtls, id: logs, access-log: true}
  - {data-plane: envoy-sidecar, level: mtls, id: traces, tracing: 100%}
load:
  - steady: {rate: 200}
design: {rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 25s}
";

/// Without what they are said to have, none of them is measured.
#[test]
fn options_that_are_not_there_are_caught_by_their_probes() {
    let _alone = alone();
    let Some(envoy) = envoy() else {
        return skipped("options that are not there", "there is no Envoy");
    };
    let scratch = Scratch::new();
    let spec = scratch.write("spec.yaml", BROKEN);
    let out = scratch.path("run");
    let [spec, out, envoy] =
        [spec.as_path(), out.as_path(), envoy].map(|p| p.to_str().expect("UTF-8"));
    let mut arguments = vec![
        "run",
        spec,
        "--out",
        out,
        "--envoy",
        envoy,
        "--offline",
        "--json",
    ];
    for broken in ["knows=no-options", "logs=no-options", "traces=no-options"] {
        arguments.extend(["--sabotage", broken]);
    }
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_code(12);
    for said in [
        "knows cannot be measured in round 1: knows of others: 0 proxies hold",
        "logs cannot be measured in round 1: logs requests: 5 requests: 0 lines",
        "traces cannot be measured in round 1: sends spans: ",
    ] {
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
    }
}
