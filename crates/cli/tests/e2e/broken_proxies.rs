//! Proxies that exit immediately, never become ready, or are killed during a trial: each is reported with its last
//! output, and the other variants are still measured.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::outcome::{
    assert_excluded_by, assert_failure_is_stored, assert_not_excluded, assert_taken,
    disturbed_trials, variant_of,
};
use crate::processes::{Process, descendants};
use crate::specs::{SATURATED, run_arguments, spec, variant};
use crate::support::{
    LINKERD_PROXY, PATIENCE, Running, Scratch, ZTUNNEL, beside_others, copy_program, envoy, finish,
    given, meshtax, records, skipped,
};

const DESIGN: &str = "rounds: 1, blocks: 6, trial: 100ms, warmup: 20ms, ";

/// The example `broken_proxy`, which Cargo builds with the tests.
pub(crate) fn broken_proxy() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.parent().and_then(Path::parent).expect("target/…");
    let path = profile.join("examples/broken_proxy");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

fn assert_all_taken(analysis: &Value, ids: &[&str]) {
    for id in ids {
        let variant = variant_of(analysis, id);
        assert_not_excluded(variant);
        assert_taken(&variant["points"][0], 6, id);
    }
}

/// All data planes with a real proxy, with the broken one in its place.
fn with_broken(scratch: &Scratch, how: &str, time: &str) -> Command {
    let planes = [
        ("envoy-sidecar", "mtls"),
        ("ztunnel", "mtls"),
        ("ztunnel-waypoint", "l7"),
        ("linkerd", "mtls"),
        ("limit-mtls", "mtls"),
    ];
    let design = format!("{DESIGN}time: {time}");
    let variants: Vec<String> = planes.iter().map(|(p, l)| variant(p, l, p)).collect();
    let path = scratch.write("spec.yaml", &spec("broken", &variants, SATURATED, &design));
    let out = scratch.path("run");
    let broken = broken_proxy();
    let broken = broken.to_str().expect("UTF-8");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let arguments = [
        "run",
        &text(&path),
        "--out",
        &text(&out),
        "--json",
        "--envoy",
        broken,
        "--ztunnel",
        broken,
        "--linkerd-proxy",
        broken,
    ];
    let mut command = meshtax(scratch, &arguments);
    command.env("BROKEN_PROXY", how);
    command
}

const BROKEN: [&str; 4] = ["envoy-sidecar", "ztunnel", "ztunnel-waypoint", "linkerd"];
/// Written by the example before it exits or sleeps.
const LAST_OUTPUT: &str = "broken on purpose: the third wheel is missing";

#[test]
fn proxy_that_exits_is_excluded_with_its_last_output() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let finished = finish(with_broken(&scratch, "exits", "14s"));
    let analysis = finished.expect_success_or_busy_cores().json();
    for id in BROKEN {
        let excluded = &variant_of(&analysis, id)["excluded"];
        let ended = excluded["failure"]["ended"]
            .as_array()
            .into_iter()
            .flatten();
        let component = format!("{id}/client-proxy");
        let proxy = ended
            .clone()
            .find(|ended| ended["component"] == component.as_str());
        let proxy = proxy.unwrap_or_else(|| panic!("{id}: {excluded:#}"));
        assert_eq!(proxy["ending"], json!({"id": "exited", "code": 3}), "{id}");
        let output = proxy["last_output"].to_string();
        assert!(output.contains(LAST_OUTPUT), "{id}: {output}");
        assert_failure_is_stored(&scratch.path("run"), id);
    }
    assert_all_taken(&analysis, &["none", "none-again", "limit-mtls"]);
}

#[test]
fn proxy_that_never_becomes_ready_is_excluded_with_its_last_output() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let finished = finish(with_broken(&scratch, "sleeps", "60s"));
    let analysis = finished.expect_success_or_busy_cores().json();
    for id in BROKEN {
        let variant = variant_of(&analysis, id);
        assert_excluded_by(variant, "permitted-request", &["200"]);
        let reason = variant["excluded"].to_string();
        assert!(reason.contains(LAST_OUTPUT), "{id}: {reason}");
    }
    assert_all_taken(&analysis, &["none", "none-again", "limit-mtls"]);
}

/// Upstream Envoy in place of Istio's own rejects the configuration at once.
#[test]
fn envoy_without_istios_filters_is_excluded_with_the_missing_filter_and_the_fix() {
    let _shared = beside_others();
    let Some(envoy) = envoy() else {
        return skipped("Istio's filters", "Envoy is not available");
    };
    let scratch = Scratch::new();
    let variants = [
        variant("istio-sidecar", "mtls", "istio"),
        variant("limit-mtls", "mtls", "limit"),
    ];
    let design = format!("{DESIGN}time: 14s");
    let path = scratch.write("spec.yaml", &spec("lacks", &variants, SATURATED, &design));
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(["--json", "--istio-proxy", envoy.to_str().expect("UTF-8")]);
    let finished = finish(meshtax(&scratch, &arguments));
    let analysis = finished.expect_success_or_busy_cores().json();
    let excluded = &variant_of(&analysis, "istio")["excluded"];
    let ended = excluded["failure"]["ended"].as_array();
    let ended = ended.unwrap_or_else(|| panic!("{excluded:#}"));
    assert_eq!(ended[0]["ending"]["id"], "exited", "{excluded:#}");
    let output = ended[0]["last_output"].to_string();
    let reason = "Didn't find a registered implementation for 'istio.metadata_exchange'";
    assert!(output.contains(reason), "{output}");
    for expected in [reason, "fix: ", "--istio-proxy PATH"] {
        assert!(
            finished.stderr.contains(expected),
            "{expected}: {}",
            finished.stderr
        );
    }
    assert_all_taken(&analysis, &["none", "none-again", "limit"]);
}

/// A real proxy is killed during a trial.
fn assert_kill_is_reported(variable: &str, program: &str, data_plane: &str) {
    let Some(given) = given(variable, &format!("{program} killed during a trial")) else {
        return;
    };
    // Its name distinguishes it from other processes on this machine.
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-of-these-tests"));
    copy_program(&given, &own);
    let scratch = Scratch::new();
    let variants = [
        variant(data_plane, "mtls", "dies"),
        variant("limit-mtls", "mtls", "lives"),
    ];
    let design = "rounds: 6, blocks: 1, trial: 200ms, warmup: 20ms, time: 18s";
    let path = scratch.write("spec.yaml", &spec("dies", &variants, SATURATED, design));
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    let mut command = meshtax(&scratch, &arguments);
    command.env(variable, &own);
    let mut run = Running::start(command);
    let is_it = |p: &Process| p.words().first().is_some_and(|word| word.contains(program));
    // Killed before the trials of a round, it is excluded from it; killed after its own, it affects no figure. So it is
    // killed once in each round, after the round's first trial, until that was before its own.
    let killed_in = Cell::new(0);
    run.wait_until("a trial in which it died", |run| {
        let trials = records(&out.join("trials.jsonl"));
        let round = trials
            .last()
            .and_then(|trial| trial["trial"]["round"].as_u64());
        if let Some(round) = round.filter(|round| *round > killed_in.get())
            && let Some(victim) = descendants(run.pid()).into_iter().find(is_it)
        {
            victim.kill();
            killed_in.set(round);
        }
        std::thread::sleep(Duration::from_millis(20));
        trials.iter().any(was_killed)
    });
    let finished = run.finish(PATIENCE);
    let analysis = finished.expect_success_or_busy_cores().json();
    // A proxy that dies did not carry its load, unless the machine was disturbed as well.
    let point = &variant_of(&analysis, "dies")["points"][0];
    let ended = point["short"]["proxy-ended"].as_u64().unwrap_or(0);
    assert!(ended > 0 || disturbed_trials(point) > 0, "{point:#}");
    assert!(point["invalid"]["component-failed"].is_null(), "{point:#}");
    assert_all_taken(&analysis, &["none", "none-again", "lives"]);
}

/// Whether a trial's record has a proxy of `dies` that a signal 9 ended.
fn was_killed(trial: &Value) -> bool {
    let outcome = &trial["outcome"];
    let lists = [
        &outcome["component_failures"],
        &outcome["failure"]["components"],
    ];
    let failures = lists.iter().filter_map(|list| list.as_array()).flatten();
    failures
        .filter(|failure| failure["ending"] == json!({"id": "killed", "signal": 9}))
        .filter_map(|failure| failure["component"].as_str())
        .any(|name| name.starts_with("dies/") && name.contains("-proxy"))
}

#[test]
fn ztunnel_killed_during_a_trial_is_reported() {
    let _shared = beside_others();
    assert_kill_is_reported(ZTUNNEL, "ztunnel", "ztunnel");
}

#[test]
fn linkerd_proxy_killed_during_a_trial_is_reported() {
    let _shared = beside_others();
    assert_kill_is_reported(LINKERD_PROXY, "linkerd2-proxy", "linkerd");
}
