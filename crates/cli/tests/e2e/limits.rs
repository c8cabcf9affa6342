//! Limits on the proxies of a variant: enforced by the kernel, reported, removed with the run.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::outcome::{ALL_DISTURBED, assert_taken, variant_of};
use crate::processes::Process;
use crate::specs::{run_arguments, spec};
use crate::support::{
    BINARY, NOBODY, PATIENCE, Running, Scratch, alone, beside_others, copy_program, finish,
    is_root, meshtax, prepared, records, skipped,
};

/// The built-in proxy with its limits, as `limited`.
fn limited(limits: &str) -> String {
    format!("{{data-plane: limit-mtls, id: limited, limits: {limits}}}")
}

fn spec_in(scratch: &Scratch, limits: &str, rate: u32, design: &str) -> PathBuf {
    let load = format!("  - steady: {{rate: {rate}}}\n");
    scratch.write(
        "spec.yaml",
        &spec("limits", &[limited(limits)], &load, design),
    )
}

/// Where cgroups cannot be written, which is rejected as such, there is nothing to test.
fn may_limit(what: &str) -> bool {
    let is_writable = |path: &str| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let hierarchies = [
        "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup/cgroup.subtree_control",
    ];
    let may = is_root() && hierarchies.into_iter().any(is_writable);
    if !may {
        skipped(what, "no cgroup can be made here, which root can");
    }
    may
}

/// The cgroups of runs.
fn run_cgroups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut level = vec![PathBuf::from("/sys/fs/cgroup")];
    for _ in 0..4 {
        let below = level.iter().filter_map(|path| fs::read_dir(path).ok());
        let below = below.flatten().flatten().map(|entry| entry.path());
        level = below.filter(|path| path.is_dir()).collect();
        let is_ours = |path: &&PathBuf| path.to_string_lossy().contains("/meshtax-run-");
        found.extend(level.iter().filter(is_ours).cloned());
    }
    found
}

/// Those of a killed run go with its lab, a moment later. Other cgroups of the machine may change at any time.
fn assert_no_run_cgroup() {
    let since = Instant::now();
    while !run_cgroups().is_empty() {
        let left = run_cgroups();
        assert!(since.elapsed() < Duration::from_secs(5), "left: {left:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

const OVERLOAD: &str = "rounds: 3, blocks: 3, trial: 300ms, warmup: 50ms, time: 15s";

/// 0.05 CPU in a period of 100 ms.
const QUOTA_NS: u64 = 5_000_000;

/// The ground truth is the kernel's quota: 0.05 CPU is 15 ms in a window of 300 ms, whatever the machine.
/// 4000 requests per second need more than twice that of the fastest machine seen: 0.12 CPU.
fn assert_throttled(out: &Path) {
    let samples = records(&out.join("samples.jsonl"));
    let components = samples.iter().flat_map(|s| s["components"].as_array());
    let of_variant = |name: &str| {
        let all = components.clone().flatten();
        let found: Vec<&Value> = all.filter(|c| c["name"] == name).collect();
        assert!(!found.is_empty(), "no sample of {name}");
        found
    };
    let mut whole = 0;
    for server in of_variant("limited/server-proxy") {
        let cpu_ns = server["cpu_ns"].as_u64().expect("CPU");
        let throttled = &server["throttled"];
        let periods = throttled["periods"].as_u64().expect("periods");
        // A window need not begin or end with a period; two ticks of 4 ms beyond the quota, and what is read before and after.
        let most_ns = (periods + 2) * QUOTA_NS + 10_000_000;
        assert!(cpu_ns <= most_ns, "{server:#}");
        // After a stall over a whole window no whole period is in it.
        if periods >= 2 {
            whole += 1;
            let throttled_periods = throttled["throttled_periods"].as_u64();
            assert!(throttled_periods > Some(0), "{server:#}");
            assert!(throttled["throttled_ns"].as_u64() > Some(0), "{server:#}");
        }
    }
    assert!(whole > 0, "no window with whole periods");
    for client in of_variant("limited/client-proxy") {
        assert_eq!(client["throttled"], Value::Null, "it has no limit");
    }
}

#[test]
fn proxy_that_needs_more_cpu_than_its_limit_is_overloaded_and_throttled() {
    const WHAT: &str = "an overloaded proxy with a CPU limit";
    let _alone = alone();
    if !may_limit(WHAT) {
        return;
    }
    let scratch = Scratch::new();
    let spec = spec_in(&scratch, "{server-proxy: {cpu: 50m}}", 4000, OVERLOAD);
    let out = scratch.path("run");
    let mut arguments = run_arguments(&spec, &out);
    arguments.push("--json");
    let finished = finish(meshtax(&scratch, &arguments));
    finished.expect_completed();
    assert_no_run_cgroup();
    assert_throttled(&out);
    let analysis = finished.json();
    let point_of = |variant: &str| &variant_of(&analysis, variant)["points"][0];
    let all = ["none", "none-again", "limited"];
    for variant in all {
        assert_taken(point_of(variant), 6, variant);
    }
    let has_few = |variant: &str| point_of(variant)["valid"].as_u64() < Some(6);
    if all.into_iter().any(has_few) {
        return skipped(WHAT, ALL_DISTURBED);
    }
    let point = point_of("limited");
    if point_of("none")["outcome"]["id"] == "beyond-machine" {
        let mut baselines = ["none", "none-again"].map(point_of).into_iter();
        let fell_short = |point: &Value| point["short"].as_object().is_some_and(|s| !s.is_empty());
        assert!(baselines.any(fell_short), "{analysis:#}");
        return skipped(WHAT, "the baselines did not carry the load either");
    }
    assert_eq!(point["outcome"]["id"], "overloaded", "{point:#}");
    let out = out.to_str().expect("UTF-8");
    let shown = finish(meshtax(&scratch, &["report", out])).stdout;
    assert!(shown.contains("limited to 0.05 CPU"), "{shown}");
    assert!(shown.contains("Throttled at"), "{shown}");
}

#[test]
fn proxy_that_exceeds_its_memory_limit_is_named_as_out_of_memory() {
    let _shared = beside_others();
    if !may_limit("a memory limit") {
        return;
    }
    let scratch = Scratch::new();
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s";
    let spec = spec_in(&scratch, "{memory: 1Mi}", 100, design);
    let out = scratch.path("run");
    let finished = finish(meshtax(&scratch, &run_arguments(&spec, &out)));
    let expected = "limited/server-proxy exceeded its memory limit, and was killed";
    assert!(finished.stderr.contains(expected), "{finished:?}");
    let failures = records(&out.join("failures.jsonl"));
    let endings: Vec<&Value> = failures
        .iter()
        .filter_map(|failure| failure["reason"]["ended"].as_array())
        .flatten()
        .map(|ended| &ended["ending"]["id"])
        .collect();
    assert!(!endings.is_empty(), "{failures:#?}");
    assert!(
        endings.iter().all(|id| **id == "out-of-memory"),
        "{endings:?}"
    );
}

#[test]
fn limits_without_permission_are_rejected_with_the_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let copy = scratch.path("meshtax");
    copy_program(Path::new(BINARY), &copy);
    let home = scratch.path("home");
    fs::create_dir(&home).expect("a home");
    let design = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s";
    let spec = spec_in(&scratch, "{cpu: 1}", 100, design);
    let out = home.join("run");
    let mut command = prepared(Command::new(&copy), &scratch, &run_arguments(&spec, &out));
    command.env("HOME", &home);
    if is_root() {
        std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("a chown by root");
        command.uid(NOBODY).gid(NOBODY);
    } else if !may_limit("the rejection of limits") {
        return;
    }
    let finished = finish(command);
    assert_eq!(finished.code, 11, "{finished:?}");
    for expected in [
        "`limits` need a cgroup",
        "Permission denied",
        "fix: run as root",
    ] {
        assert!(finished.stderr.contains(expected), "{finished:?}");
    }
}

#[test]
fn cgroups_of_a_killed_run_are_removed() {
    let _alone = alone();
    if !may_limit("the cgroups of a killed run") {
        return;
    }
    let scratch = Scratch::new();
    let design = "rounds: 3, blocks: 1, trial: 300ms, warmup: 50ms, time: 4s";
    let spec = spec_in(&scratch, "{cpu: 1, memory: 64Mi}", 100, design);
    let out = scratch.path("run");
    let mut run = Running::start(meshtax(&scratch, &run_arguments(&spec, &out)));
    run.wait_until("cgroups of its proxies", |_| {
        run_cgroups().iter().any(|path| path.ends_with("proxy-1"))
    });
    thread::sleep(Duration::from_millis(50));
    let process = Process::find(run.pid()).expect("the run");
    assert!(process.kill());
    assert_eq!(run.finish(PATIENCE).code, 137);
    assert_no_run_cgroup();
}
