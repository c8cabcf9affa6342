//! Proxies that exit at once, never become ready, or die while they are measured: each is named with
//! its last words, and the others are measured all the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::processes::{Process, descendants};
use crate::specs::{SATURATED, run_arguments, spec, variant};
use crate::support::{
    LINKERD_PROXY, PATIENCE, Running, Scratch, ZTUNNEL, alone, copy_program, finish, given,
    is_measured, meshtax, records,
};

const DESIGN: &str = "rounds: 1, blocks: 6, trial: 100ms, warmup: 20ms, ";

/// The example `broken_proxy`, which Cargo builds beside the tests.
fn broken_proxy() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.parent().and_then(Path::parent).expect("target/…");
    let path = profile.join("examples/broken_proxy");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

fn of<'a>(analysis: &'a Value, variant: &str) -> &'a Value {
    let variants = analysis["variants"].as_array().expect("variants");
    let found = variants.iter().find(|v| v["variant"] == variant);
    found.unwrap_or_else(|| panic!("no {variant} in {variants:#?}"))
}

fn assert_measured(analysis: &Value, ids: &[&str]) {
    for id in ids {
        let variant = of(analysis, id);
        assert_eq!(variant["left_out"], Value::Null, "{id}");
        is_measured(&variant["points"][0], 6, id);
    }
}

/// All data planes that run a real proxy, with the broken one in its place.
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
const LAST_WORDS: &str = "its last words: broken on purpose: the third wheel is missing";

#[test]
fn a_proxy_that_exits_at_once_is_named_with_its_last_words() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = finish(with_broken(&scratch, "exits", "14s"));
    let analysis = finished.expect_an_answer().json();
    for id in BROKEN {
        let left_out = of(&analysis, id)["left_out"].as_str().unwrap_or_default();
        let named = format!("{id}/client-proxy exited with 3; {LAST_WORDS}");
        assert!(left_out.contains(&named), "{id}: {left_out}");
        let announced = finished
            .stderr
            .contains(&format!("{id} cannot be measured"));
        assert!(announced, "{id}: {}", finished.stderr);
    }
    assert_measured(&analysis, &["none", "none-again", "limit-mtls"]);
}

#[test]
fn a_proxy_that_never_becomes_ready_is_named_with_its_last_words() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = finish(with_broken(&scratch, "sleeps", "60s"));
    let analysis = finished.expect_an_answer().json();
    for id in BROKEN {
        let left_out = of(&analysis, id)["left_out"].as_str().unwrap_or_default();
        assert!(
            left_out.contains("permitted request: no 200: "),
            "{id}: {left_out}"
        );
        assert!(left_out.contains(LAST_WORDS), "{id}: {left_out}");
    }
    assert_measured(&analysis, &["none", "none-again", "limit-mtls"]);
}

/// A real proxy is killed when trials have begun.
fn dies(variable: &str, program: &str, data_plane: &str) {
    let Some(given) = given(variable, &format!("{program} that dies in mid-trial")) else {
        return;
    };
    // By its name it can be told from those of others on this machine.
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}-of-these-tests"));
    copy_program(&given, &own);
    let scratch = Scratch::new();
    let variants = [
        variant(data_plane, "mtls", "dies"),
        variant("limit-mtls", "mtls", "lives"),
    ];
    let design = "rounds: 6, blocks: 1, trial: 200ms, warmup: 20ms, time: 30s";
    let path = scratch.write("spec.yaml", &spec("dies", &variants, SATURATED, design));
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    let mut command = meshtax(&scratch, &arguments);
    command.env(variable, &own);
    let mut run = Running::start(command);
    let is_it = |p: &Process| p.words().first().is_some_and(|word| word.contains(program));
    let is_hit = || {
        let trials = records(&out.join("trials.jsonl"));
        let told = |trial: &Value| trial["outcome"].to_string().contains("killed by signal 9");
        trials.iter().any(told)
    };
    run.wait_until("a trial", |_| {
        !records(&out.join("trials.jsonl")).is_empty()
    });
    // One that dies behind its last trial of a round harms no figure: then the next round's.
    run.wait_until("a trial in which it died", |run| {
        if let Some(victim) = descendants(run.pid()).into_iter().find(is_it) {
            victim.kill();
        }
        std::thread::sleep(Duration::from_millis(230));
        is_hit()
    });
    let finished = run.finish(PATIENCE);
    let analysis = finished.expect_an_answer().json();
    let said = format!("{}\n{analysis:#}", finished.stderr);
    assert!(said.contains("-proxy was killed by signal 9"), "{said}");
    assert!(said.contains("dies/"), "{said}");
    // What came before the death counts, and the others are whole.
    let dead = &of(&analysis, "dies")["points"][0];
    assert!(
        dead["invalid"]
            .as_object()
            .is_some_and(|why| !why.is_empty()),
        "{dead:#}"
    );
    assert_measured(&analysis, &["none", "none-again", "lives"]);
}

#[test]
fn a_ztunnel_that_dies_in_mid_trial_is_named() {
    let _alone = alone();
    dies(ZTUNNEL, "ztunnel", "ztunnel");
}

#[test]
fn a_linkerd_proxy_that_dies_in_mid_trial_is_named() {
    let _alone = alone();
    dies(LINKERD_PROXY, "linkerd2-proxy", "linkerd");
}
