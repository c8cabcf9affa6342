//! Builds of a program by variant, runtime switches, and one build against another.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::outcome::{
    ALL_DISTURBED, assert_taken, disturbed_trials, is_mostly_disturbed, points, seen_by, variant_of,
};
use crate::specs::{run_arguments, spec};
use crate::support::{
    Finished, LINKERD_PROXY, Scratch, ZTUNNEL, alone, beside_others, copy_program, envoy, finish,
    given, manifest, meshtax, records, skipped, until_measured,
};

const STEADY: &str = "  - steady: {rate: 300}\n";
const SHORT: &str = "rounds: 2, blocks: 3, trial: 100ms, warmup: 20ms, time: 15s";
const SWITCH: &str = "envoy.reloadable_features.http2_use_oghttp2";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Downloads nothing.
fn offline(scratch: &Scratch, spec: &Path, envoy: &Path) -> Command {
    let out = scratch.path("run");
    let arguments = [
        "run",
        text(spec),
        "--out",
        text(&out),
        "--envoy",
        text(envoy),
        "--offline",
        "--json",
    ];
    meshtax(scratch, &arguments)
}

fn artifacts_of<'a>(manifest: &'a Value, variant: &str) -> Vec<&'a Value> {
    let all = manifest["environment"]["artifacts"].as_array();
    let all = all.into_iter().flatten();
    let runs_it = |artifact: &&Value| {
        let mut variants = artifact["variants"].as_array().into_iter().flatten();
        variants.any(|id| id == variant)
    };
    all.filter(runs_it).collect()
}

/// What the probe of runtime switches observed for the variant `switched`.
fn switches_seen(scratch: &Scratch) -> String {
    let evidence = records(&scratch.path("run").join("evidence.jsonl"));
    let of_variant = evidence
        .iter()
        .find(|record| record["variant"] == "switched");
    seen_by(of_variant.expect("evidence"), "runtime-switches").to_owned()
}

#[test]
fn variant_runs_the_build_and_the_switches_that_it_names() {
    let _alone = alone();
    let Some(envoy) = envoy() else {
        return skipped("builds of a variant", "Envoy is not available");
    };
    let scratch = Scratch::new();
    // The same program with another digest.
    let own = scratch.path("own-envoy");
    copy_program(envoy, &own);
    let mut bytes = std::fs::read(&own).expect("the copy");
    bytes.push(0);
    std::fs::write(&own, bytes).expect("the copy");
    let plane = "data-plane: envoy-sidecar, level: mtls";
    let variants = [
        format!("{{{plane}, id: usual}}"),
        format!("{{{plane}, id: own, program: {}}}", own.display()),
        format!("{{{plane}, id: switched, runtime: {{{SWITCH}: false}}}}"),
    ];
    let path = scratch.write("spec.yaml", &spec("builds", &variants, STEADY, SHORT));
    let finished = finish(offline(&scratch, &path, envoy));
    let analysis = finished.expect_success_or_busy_cores().json();
    for id in ["usual", "own", "switched"] {
        assert_taken(&variant_of(&analysis, id)["points"][0], 2, id);
    }
    let manifest = manifest(&scratch.path("run"));
    let [usual, own] = ["usual", "own"].map(|id| artifacts_of(&manifest, id)[0]);
    assert_ne!(usual["sha256"], own["sha256"]);
    assert_eq!(
        usual["sha256"],
        artifacts_of(&manifest, "switched")[0]["sha256"]
    );
    assert_eq!(own["origin"], "path given");
    for artifact in [usual, own] {
        assert_eq!(artifact["build"]["profile"], "release", "{artifact:#}");
        assert_eq!(artifact["build"]["crypto"], "BoringSSL", "{artifact:#}");
        assert_eq!(artifact["build"]["allocator"], "tcmalloc", "{artifact:#}");
    }
    let seen = switches_seen(&scratch);
    assert_eq!(seen, format!("{SWITCH}=false in 2 proxies"));
}

#[test]
fn switches_of_programs_without_a_runtime_are_in_their_environment() {
    let _shared = beside_others();
    for (variable, data_plane, switch) in [
        (ZTUNNEL, "ztunnel", "CONNECTION_TERMINATION_DEADLINE"),
        (
            LINKERD_PROXY,
            "linkerd",
            "LINKERD2_PROXY_SHUTDOWN_GRACE_PERIOD",
        ),
    ] {
        let Some(program) = given(variable, &format!("switches of {data_plane}")) else {
            continue;
        };
        let scratch = Scratch::new();
        let variants = [format!(
            "{{data-plane: {data_plane}, level: mtls, id: switched, runtime: {{{switch}: 7s}}}}"
        )];
        let path = scratch.write("spec.yaml", &spec("switches", &variants, STEADY, SHORT));
        let out = scratch.path("run");
        let mut command = meshtax(&scratch, &run_arguments(&path, &out));
        command.env(variable, &program);
        // Whatever the machine did to the trials.
        finish(command);
        assert_eq!(switches_seen(&scratch), format!("{switch}=7s in 2 proxies"));
    }
}

#[test]
fn native_workers_are_those_of_each_mesh() {
    let _shared = beside_others();
    let Some(envoy) = envoy() else {
        return skipped("native workers", "Envoy is not available");
    };
    let scratch = Scratch::new();
    let variants = ["{data-plane: envoy-sidecar, level: mtls, id: it}".to_owned()];
    let text = spec("native", &variants, STEADY, SHORT);
    let path = scratch.write("spec.yaml", &format!("workers: native\n{text}"));
    finish(offline(&scratch, &path, envoy)).expect_success_or_busy_cores();
    let manifest = manifest(&scratch.path("run"));
    assert_eq!(manifest["experiment"]["workers"], "native");
    assert_eq!(artifacts_of(&manifest, "it")[0]["workers"], 2);
}

fn upgrade(scratch: &Scratch, envoy: &Path, more: &[&str]) -> Finished {
    let out = scratch.path("run");
    let same = ["--from", text(envoy), "--to", text(envoy)];
    let mut arguments = vec!["run", "--preset", "upgrade", "--out", text(&out)];
    arguments.extend(same);
    arguments.extend(["--offline", "--json"]);
    arguments.extend(more);
    finish(meshtax(scratch, &arguments))
}

/// Whether the machine alone left fewer valid trials than the six that an interval needs, or disturbed too many for a
/// comparison.
fn is_disturbed(scratch: &Scratch) -> bool {
    let run = scratch.path("run");
    let report = ["report", text(&run), "--format", "json"];
    let analysis = finish(meshtax(scratch, &report)).json();
    points(&analysis).any(|point| {
        let valid = point["valid"].as_u64().unwrap_or(0);
        (valid < 6 && valid + disturbed_trials(point) >= 6) || is_mostly_disturbed([point])
    })
}

#[test]
fn build_against_itself_is_never_a_failure_and_a_slower_one_is() {
    let _alone = alone();
    let Some(envoy) = envoy() else {
        return skipped("one build against another", "Envoy is not available");
    };
    // Intervals need six valid blocks. Rounds of this preset take 5 to 7 seconds here.
    let mut limit = vec!["--max", "p50 +10%", "--time", "70s"];
    // A rate at which a generator of a debug build is never the bottleneck.
    limit.extend(["--rate", "300/s"]);
    let same = upgrade(&Scratch::new(), envoy, &limit);
    assert!([0, 21].contains(&same.code), "{same:?}");
    assert_eq!(same.json()["interleaved"], true);
    let (scratch, slower) = until_measured(
        |scratch| {
            // Far beyond the limit, and the load is carried.
            let cost = ["--inject", "delay=400us"];
            upgrade(scratch, envoy, &[&limit[..], &cost].concat())
        },
        |_, slower| slower.code == 20,
    );
    if slower.code == 21 && is_disturbed(&scratch) {
        return skipped("a gate on a slower build", ALL_DISTURBED);
    }
    slower.expect_code(20);
}

#[test]
fn two_builds_are_compared_in_every_metric_and_feature() {
    let _shared = beside_others();
    let Some(envoy) = envoy() else {
        return skipped("two builds side by side", "Envoy is not available");
    };
    let load = [
        "--level",
        "l7",
        "--protocol",
        "http2",
        "--rate",
        "200/s",
        "--time",
        "20s",
    ];
    let finished = upgrade(&Scratch::new(), envoy, &load);
    let comparison = finished.json();
    assert_eq!(comparison["interleaved"], true);
    let changes = comparison["changes"].as_array().expect("changes");
    let metrics = ["p50", "throughput", "cpu", "memory"];
    for metric in metrics {
        let has = changes
            .iter()
            .any(|change| change.to_string().contains(metric));
        assert!(has, "{metric}: {comparison:#}");
    }
    let pair = &comparison["pairs"][0];
    assert_eq!(pair["probes"], Value::Array(Vec::new()), "{pair:#}");
    for side in [0, 1] {
        assert!(
            pair["upkeep"][side]["start_ns"]["value"].is_number(),
            "{pair:#}"
        );
        assert!(pair["features"][side].is_object(), "{pair:#}");
    }
}

#[test]
fn upgrade_without_builds_or_of_a_built_in_proxy_is_rejected_with_a_fix() {
    let scratch = Scratch::new();
    let builds = "--preset upgrade --from 1 --to 2";
    for (options, expected) in [
        ("--preset upgrade", "--from"),
        (
            "--preset quick --from 1.39.0 --to 1.40.0",
            "--preset upgrade",
        ),
        (&format!("{builds} --data-plane limit-mtls"), "built in"),
        (
            &format!("{builds} --data-plane ztunnel-waypoint"),
            "--program",
        ),
        (&format!("{builds} --level l9"), "level"),
    ] {
        let mut all = vec!["run"];
        all.extend(options.split(' '));
        assert_usage_error(&scratch, &all, expected);
    }
    let mut all = vec!["run"];
    all.extend(builds.split(' '));
    all.extend(["--max", "memori +5%"]);
    assert_usage_error(&scratch, &all, "memori");
}

#[track_caller]
fn assert_usage_error(scratch: &Scratch, arguments: &[&str], expected: &str) {
    let finished = finish(meshtax(scratch, arguments));
    finished.expect_code(2);
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}
