//! A short run of everything that `quick` compares, as root and as a user who owns nothing.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::specs::{BOTH, candidate_ids, candidates, run_arguments, spec};
use crate::support::{
    BINARY, Finished, NOBODY, PATIENCE, Running, Scratch, alone, copy_program, envoy, finish,
    is_measured, is_root, manifest, meshtax, prepared, records, skipped,
};

const SCHEMA: &str = include_str!("../../../../docs/schema/report-v1.json");

/// Time for six blocks and some more: without six there is no interval.
const DESIGN: &str = "rounds: 3, blocks: 2, trial: 200ms, warmup: 50ms, time: 28s";
const SHORTER: &str = "rounds: 3, blocks: 2, trial: 100ms, warmup: 20ms, time: 20s";

#[test]
fn measures_proves_and_reports() {
    let _alone = alone();
    let scratch = Scratch::new();
    let path = scratch.write("spec.yaml", &spec("short", &candidates(), BOTH, DESIGN));
    let out = scratch.path("run");
    let before = Machine::now(&scratch);
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--json", "--seed", "7"]);
    let mut run = Running::start(meshtax(&scratch, &arguments));
    run.wait_until("a trial", |_| {
        !records(&out.join("trials.jsonl")).is_empty()
    });
    let mut trace = Trace::default();
    trace.look(run.pid());
    let finished = run.finish(PATIENCE);
    finished.expect_an_answer();
    // Without this the comparison of before and after could pass because it looked at nothing.
    assert!(
        trace.processes() >= 7 && trace.namespaces() >= 10,
        "{trace:#?}"
    );
    assert_nothing_left(&before, &trace, &scratch);
    let analysis = finished.json();
    assert_eq!(analysis["run"]["seed"], 7);
    assert_eq!(analysis["environment"]["rootless"], !is_root());
    check_answer(&finished, &analysis);
    check_analysis(&analysis);
    check_files(&out, &analysis);
    check_reports(&scratch, &out, &analysis);
}

#[test]
fn an_ordinary_user_needs_no_rights() {
    let _alone = alone();
    if !is_root() {
        return skipped(
            "the run as another user",
            "this user is an ordinary one already, and the first test ran as it",
        );
    }
    let scratch = Scratch::new();
    let home = scratch.path("home");
    fs::create_dir(&home).expect("a home");
    for path in [&home, &scratch.path("tmp")] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("a chown by root");
    }
    let path = scratch.write("spec.yaml", &spec("short", &candidates(), BOTH, SHORTER));
    let out = home.join("run");
    let before = Machine::now(&scratch);
    let mut arguments: Vec<String> = ["run", "--json", "--offline", "--out"]
        .map(String::from)
        .to_vec();
    arguments.extend([&out, &path].map(|p| p.display().to_string()));
    if let Some(envoy) = readable_copy(&scratch, envoy(), "envoy") {
        arguments.extend(["--envoy".into(), envoy.display().to_string()]);
    }
    let finished = as_nobody(&scratch, &home, &arguments);
    if finished.code == 11 && finished.stderr.contains("user namespaces") {
        assert!(finished.stderr.contains("fix: "), "{}", finished.stderr);
        return skipped("the run as an ordinary user", finished.stderr.trim());
    }
    finished.expect_an_answer();
    assert_nothing_left(&before, &Trace::default(), &scratch);
    let analysis = finished.json();
    assert_eq!(analysis["environment"]["rootless"], true);
    check_answer(&finished, &analysis);
    check_analysis(&analysis);
    check_files(&out, &analysis);
}

/// A copy where a user who may not look into root's directories can read it.
fn readable_copy(scratch: &Scratch, program: Option<&Path>, name: &str) -> Option<PathBuf> {
    let copy = scratch.path(name);
    copy_program(program?, &copy);
    Some(copy)
}

fn as_nobody(scratch: &Scratch, home: &Path, arguments: &[String]) -> Finished {
    let binary = readable_copy(scratch, Some(Path::new(BINARY)), "meshtax").expect("a copy");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = prepared(Command::new(binary), scratch, &arguments);
    // The standard library clears the other groups when it changes the user.
    command.uid(NOBODY).gid(NOBODY);
    command.env("HOME", home).env_remove("XDG_CACHE_HOME");
    finish(command)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("no list {key} in {value:#}"))
}

fn named<'a>(items: &'a [Value], key: &str, name: &str) -> &'a Value {
    let mut found = items.iter().filter(|item| item[key] == name);
    found
        .next()
        .unwrap_or_else(|| panic!("no {key} {name} in {items:#?}"))
}

/// An answer stands on blocks that count; `check_files` sees to it that as many were measured at least.
fn check_answer(finished: &Finished, analysis: &Value) {
    let blocks = analysis["blocks"].as_u64();
    assert!(finished.code != 0 || blocks >= Some(6), "{blocks:?}");
}

fn check_analysis(analysis: &Value) {
    let schema = serde_json::from_str(SCHEMA).expect("a schema in JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(analysis)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(analysis["run"]["ending"]["kind"], "time_used");
    let variants = list(analysis, "variants");
    let names: Vec<&str> = variants
        .iter()
        .filter_map(|v| v["variant"].as_str())
        .collect();
    let mut expected = vec!["none", "none-again"];
    expected.extend(candidate_ids());
    assert_eq!(names, expected);
    for variant in variants {
        check_variant(variant);
    }
    if envoy().is_some() {
        let cpu = |name| {
            let points = list(named(variants, "variant", name), "points");
            let levels = list(named(points, "load_point", "saturated"), "levels");
            let level = &named(levels, "metric", "cpu_per_request")["value"];
            level.as_f64()
        };
        // What has no valid trial was told of above.
        if let (Some(limit), Some(proxy)) = (cpu("limit-mtls"), cpu("envoy-sidecar-mtls")) {
            assert!(
                limit < proxy,
                "limit-mtls {limit} ns, Envoy {proxy} ns per request"
            );
        }
    }
}

fn check_variant(variant: &Value) {
    let name = &variant["variant"];
    assert_eq!(variant["left_out"], Value::Null, "{name}");
    assert_eq!(variant["rounds_proven"], variant["rounds_tried"], "{name}");
    let probes = list(&variant["evidence"], "probes");
    assert!(probes.len() >= 3, "{name}: {probes:#?}");
    for probe in probes {
        assert_eq!(probe["passed"], true, "{name}: {probe}");
    }
    let points = list(variant, "points");
    assert_eq!(points.len(), 2, "{name}");
    for point in points {
        let at = format!("{name} {}", point["load_point"]);
        if !is_measured(point, 1, &at) {
            continue;
        }
        assert!(point["requests"].as_u64() > Some(0), "{at}: {point:#}");
        for level in list(point, "levels") {
            let known = level["value"].is_number() || level["reason"].is_string();
            assert!(known, "{at}: {level}");
        }
        let present = |metric| named(list(point, "levels"), "metric", metric)["value"].as_f64();
        let main = match point["load_point"].as_str() {
            Some("saturated") => "throughput",
            _ => "response_p50",
        };
        for metric in [main, "cpu_per_request"] {
            assert!(present(metric) > Some(0.0), "{at}: {metric}");
        }
        check_account(&at, &point["cpu"]);
    }
}

/// What was charged to somebody cannot exceed what was used, within what the kernel resolves.
fn check_account(at: &str, cpu: &Value) {
    let nanoseconds = |key: &str| {
        cpu[key]
            .as_i64()
            .unwrap_or_else(|| panic!("{at}: no {key} in {cpu:#}"))
    };
    let rest = nanoseconds("busy_ns") - nanoseconds("attributed_ns");
    // Kernels without the hypervisor's clock charge what it takes away to whoever was running.
    let explained = nanoseconds("resolution_ns") + nanoseconds("steal_ns");
    assert!(rest >= -explained, "{at}: {cpu:#}");
    match &cpu["unattributed_ns"] {
        Value::Null => {}
        unattributed => assert_eq!(unattributed.as_i64(), Some(rest), "{at}: {cpu:#}"),
    }
}

fn check_files(run: &Path, analysis: &Value) {
    let manifest = manifest(run);
    assert_eq!(manifest["run_id"], analysis["run"]["id"]);
    assert_eq!(manifest["ending"]["kind"], "time_used");
    let [trials, samples, evidence] =
        ["trials.jsonl", "samples.jsonl", "evidence.jsonl"].map(|name| records(&run.join(name)));
    assert!(trials.len() >= 6 * 2 * 3, "{} trials", trials.len());
    assert_eq!(trials.len(), samples.len());
    let proven = list(analysis, "variants")
        .iter()
        .filter_map(|v| v["rounds_proven"].as_u64());
    assert_eq!(evidence.len() as u64, proven.sum::<u64>());
    let page = fs::read_to_string(run.join("report.html")).expect("a page");
    assert!(page.contains("limit-mtls"), "{page}");
}

fn check_reports(scratch: &Scratch, run: &Path, analysis: &Value) {
    let run = run.to_str().expect("a path in UTF-8");
    let report = |format| {
        let finished = finish(meshtax(scratch, &["report", run, "--format", format]));
        finished.expect_code(0);
        finished
    };
    assert_eq!(report("json").json(), *analysis);
    for (format, wanted) in [
        ("terminal", "limit-mtls"),
        ("html", "<!doctype html>"),
        ("markdown", "| "),
        ("csv", "saturated,"),
    ] {
        let text = report(format).stdout;
        let found = text.to_lowercase().contains(wanted);
        assert!(found, "no {wanted:?} in the report as {format}:\n{text}");
        assert!(!text.contains("Partial:"), "{text}");
    }
}
