//! Options of a variant: extra endpoints, access log, tracing; verified, reported, and rejected where unsupported.

use std::path::Path;

use serde_json::Value;

use crate::outcome::seen_by;
use crate::specs::run_arguments;
use crate::support::{Scratch, beside_others, envoy, finish, meshtax, records, skipped};

const SPEC: &str = "
name: options
workload: {response: 1 KiB, connections: 4}
variants:
  - {data-plane: envoy-sidecar, level: mtls, extra-endpoints: {endpoints: 25, per-service: 10, changes: 20/s}, access-log: true, tracing: 100%, all-stats: true}
load:
  - steady: {rate: 200}
design: {rounds: 2, blocks: 1, trial: 400ms, warmup: 100ms, time: 5s}
";

/// Independent of the machine's speed and of valid trials.
#[test]
fn variant_options_are_verified_and_their_cost_is_reported() {
    let _shared = beside_others();
    if envoy().is_none() {
        return skipped("options of a variant", "Envoy is not available");
    }
    let scratch = Scratch::new();
    let spec = scratch.write("spec.yaml", SPEC);
    let out = scratch.path("run");
    let mut arguments = run_arguments(&spec, &out);
    arguments.push("--json");
    let finished = finish(meshtax(&scratch, &arguments));
    let id = "envoy-sidecar-mtls+endpoints-25+changes-20+access-log+tracing+all-stats";
    let evidence = records(&out.join("evidence.jsonl"));
    let of_variant = evidence.iter().find(|record| record["variant"] == id);
    let of_variant = of_variant.unwrap_or_else(|| panic!("no evidence: {}", finished.stderr));
    for (probe, values) in [
        (
            "extra-endpoints",
            ["2 proxies", "25", "3 services"].as_slice(),
        ),
        ("access-log", &["5 requests"]),
        ("tracing", &[]),
        ("all-stats", &["2 proxies"]),
    ] {
        let seen = seen_by(of_variant, probe);
        for value in values {
            assert!(seen.contains(value), "{probe}: no {value:?} in {seen:?}");
        }
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
  - {data-plane: envoy-sidecar, level: mtls, id: endpoints, extra-endpoints: 25}
  - {data-plane: envoy-sidecar, level: mtls, id: logs, access-log: true}
  - {data-plane: envoy-sidecar, level: mtls, id: traces, tracing: 100%}
  - {data-plane: envoy-sidecar, level: mtls, id: stats, all-stats: true}
  - {data-plane: envoy-sidecar, level: mtls, id: runtime, runtime: {envoy.reloadable_features.http2_use_oghttp2: false}}
load:
  - steady: {rate: 200}
design: {rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s}
";

/// A variant without its configured option is not measured.
#[test]
fn missing_variant_options_are_detected_by_their_probes() {
    let _shared = beside_others();
    let Some(envoy) = envoy() else {
        return skipped("missing options", "Envoy is not available");
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
    for broken in [
        "endpoints=no-options",
        "logs=no-options",
        "traces=no-options",
        "stats=no-options",
        "runtime=no-options",
    ] {
        arguments.extend(["--sabotage", broken]);
    }
    finish(meshtax(&scratch, &arguments)).expect_code(12);
    let failures = records(&Path::new(out).join("failures.jsonl"));
    for (id, probe) in [
        ("endpoints", "extra-endpoints"),
        ("logs", "access-log"),
        ("traces", "tracing"),
        ("stats", "all-stats"),
        ("runtime", "runtime-switches"),
    ] {
        let failure = failures.iter().find(|failure| failure["variant"] == id);
        let failure = failure.unwrap_or_else(|| panic!("{id}: {failures:#?}"));
        let probes = failure["reason"]["probes"].as_array();
        let mut probes = probes.into_iter().flatten();
        assert!(probes.any(|failed| failed["probe"] == probe), "{failure:#}");
    }
}
