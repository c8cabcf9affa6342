//! A short run of the variants of `quick`, as root and as an unprivileged user.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::outcome::{
    ALL_DISTURBED, assert_not_excluded, caveat_ids, disturbed_trials, has_figures,
};
use crate::specs::{BOTH, candidate_ids, candidates, run_arguments, spec};
use crate::support::{
    BINARY, Finished, NOBODY, PATIENCE, Running, Scratch, alone, copy_program, envoy, finish,
    is_root, manifest, meshtax, prepared, records, skipped, until_measured,
};

const SCHEMA: &str = include_str!("../../../../docs/schema/report-v2.json");

/// Time for more than six blocks, which an interval requires.
const DESIGN: &str = "rounds: 3, blocks: 2, trial: 200ms, warmup: 50ms, time: 28s";
const SHORTER: &str = "rounds: 3, blocks: 2, trial: 100ms, warmup: 20ms, time: 20s";

#[test]
fn run_is_verified_measured_and_reported() {
    let _alone = alone();
    let (scratch, finished) = until_measured(measured_alone, |_, finished| finished.is_measured());
    let analysis = finished.expect_success_or_busy_cores().json();
    assert_eq!(analysis["run"]["seed"], 7);
    assert_eq!(analysis["environment"]["rootless"], !is_root());
    let out = scratch.path("run");
    check_analysis(&analysis);
    check_figures(&finished);
    check_files(&out, &analysis);
    check_reports(&scratch, &out, &analysis);
}

/// A run, after which nothing is left on the machine.
fn measured_alone(scratch: &Scratch) -> Finished {
    let path = scratch.write("spec.yaml", &spec("short", &candidates(), BOTH, DESIGN));
    let out = scratch.path("run");
    let before = Machine::now(scratch);
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--json", "--seed", "7"]);
    let mut run = Running::start(meshtax(scratch, &arguments));
    run.wait_until("a trial", |_| {
        !records(&out.join("trials.jsonl")).is_empty()
    });
    let mut trace = Trace::default();
    trace.look(run.pid());
    let finished = run.finish(PATIENCE);
    // Otherwise the comparison of before and after could pass vacuously.
    assert!(
        trace.processes() >= 7 && trace.namespaces() >= 10,
        "{trace:#?}"
    );
    assert_nothing_left(&before, &trace, scratch);
    finished
}

#[test]
fn run_works_without_privileges() {
    let _alone = alone();
    if !is_root() {
        return skipped(
            "the run as another user",
            "this user is unprivileged, and the first test ran as it",
        );
    }
    let (scratch, finished) = until_measured(measured_as_nobody, |_, finished| {
        finished.is_measured() || lacks_namespaces(finished)
    });
    if lacks_namespaces(&finished) {
        assert!(finished.stderr.contains("fix: "), "{}", finished.stderr);
        return skipped("the run as an unprivileged user", finished.stderr.trim());
    }
    let analysis = finished.expect_success_or_busy_cores().json();
    assert_eq!(analysis["environment"]["rootless"], true);
    check_analysis(&analysis);
    check_figures(&finished);
    check_files(&scratch.path("home/run"), &analysis);
}

fn lacks_namespaces(finished: &Finished) -> bool {
    finished.code == 11 && finished.stderr.contains("user namespaces")
}

/// A run as an unprivileged user, after which nothing is left on the machine.
fn measured_as_nobody(scratch: &Scratch) -> Finished {
    let home = scratch.path("home");
    fs::create_dir(&home).expect("a home");
    for path in [&home, &scratch.path("tmp")] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("a chown by root");
    }
    let path = scratch.write("spec.yaml", &spec("short", &candidates(), BOTH, SHORTER));
    let out = home.join("run");
    let before = Machine::now(scratch);
    let mut arguments: Vec<String> = ["run", "--json", "--offline", "--out"]
        .map(String::from)
        .to_vec();
    arguments.extend([&out, &path].map(|p| p.display().to_string()));
    if let Some(envoy) = readable_copy(scratch, envoy(), "envoy") {
        arguments.extend(["--envoy".into(), envoy.display().to_string()]);
    }
    let finished = as_nobody(scratch, &home, &arguments);
    assert_nothing_left(&before, &Trace::default(), scratch);
    finished
}

/// A copy that an unprivileged user can read.
fn readable_copy(scratch: &Scratch, program: Option<&Path>, name: &str) -> Option<PathBuf> {
    let copy = scratch.path(name);
    copy_program(program?, &copy);
    Some(copy)
}

fn as_nobody(scratch: &Scratch, home: &Path, arguments: &[String]) -> Finished {
    let binary = readable_copy(scratch, Some(Path::new(BINARY)), "meshtax").expect("a copy");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = prepared(Command::new(binary), scratch, &arguments);
    // The standard library clears supplementary groups when it changes the user.
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

fn check_analysis(analysis: &Value) {
    let schema = serde_json::from_str(SCHEMA).expect("a schema in JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(analysis)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(analysis["run"]["ending"]["id"], "time-used");
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
}

/// What only a run with a result has.
fn check_figures(finished: &Finished) {
    if finished.code != 0 {
        return skipped("the figures of the whole run", ALL_DISTURBED);
    }
    let analysis = finished.json();
    // A result requires six blocks.
    assert!(
        analysis["blocks"].as_u64() >= Some(6),
        "{}",
        analysis["blocks"]
    );
    if envoy().is_some() {
        let variants = list(&analysis, "variants");
        let cpu = |name| {
            let points = list(named(variants, "variant", name), "points");
            let point = named(points, "load_point", "saturated");
            let level = &named(list(point, "levels"), "metric", "cpu_per_request")["value"];
            let is_explained = level.is_number() || disturbed_trials(point) > 0;
            assert!(is_explained, "{name}: {point:#}");
            level.as_f64()
        };
        let [limit, proxy] = ["limit-mtls", "envoy-sidecar-mtls"].map(cpu);
        assert!(
            limit.is_none() || proxy.is_none() || limit < proxy,
            "limit-mtls {limit:?} ns, Envoy {proxy:?} ns per request"
        );
    }
}

fn check_variant(variant: &Value) {
    let name = &variant["variant"];
    assert_not_excluded(variant);
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
        if !has_figures(point, 1, &at) {
            continue;
        }
        assert!(point["requests"].as_u64() > Some(0), "{at}: {point:#}");
        for level in list(point, "levels") {
            let is_explained = level["value"].is_number() || level["reason"]["id"].is_string();
            assert!(is_explained, "{at}: {level}");
        }
        let present = |metric| named(list(point, "levels"), "metric", metric)["value"].as_f64();
        let main = match point["load_point"].as_str() {
            Some("saturated") => "throughput",
            _ => "response_p50",
        };
        for metric in [main, "cpu_per_request"] {
            assert!(present(metric) > Some(0.0), "{at}: {metric}");
        }
        check_cpu_account(&at, &point["cpu"]);
    }
}

/// Attributed CPU cannot exceed busy time, within the kernel's resolution.
fn check_cpu_account(at: &str, cpu: &Value) {
    let nanoseconds = |key: &str| {
        cpu[key]
            .as_i64()
            .unwrap_or_else(|| panic!("{at}: no {key} in {cpu:#}"))
    };
    let rest = nanoseconds("busy_ns") - nanoseconds("attributed_ns");
    // Kernels without the hypervisor's clock charge stolen time to the running process.
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
    assert_eq!(manifest["ending"]["id"], "time-used");
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
    assert!(!caveat_ids(analysis).contains("incomplete"));
    for (format, wanted) in [
        ("terminal", "limit-mtls"),
        ("html", "<!doctype html>"),
        ("markdown", "| "),
        ("csv", "saturated,"),
    ] {
        let text = report(format).stdout;
        let found = text.to_lowercase().contains(wanted);
        assert!(found, "no {wanted:?} in the report as {format}:\n{text}");
    }
}
