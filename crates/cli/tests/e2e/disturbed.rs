//! A disturbed machine or server: the run reports the disturbance, and declares no false difference.
//!
//! `MESHTAX_DISTURBED_RUNS` sets how often each case is tried (once by default).

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::outcome::{ALL_DISTURBED, caveat_ids, invalid_reasons, variant_of};
use crate::specs::{run_arguments, spec};
use crate::support::{Finished, Scratch, alone, finish, meshtax, records, skipped, until_measured};

/// Two more baselines: every declared difference is false.
const EQUALS: [&str; 2] = [
    "{data-plane: none, id: equal-1}",
    "{data-plane: none, id: equal-2}",
];
const LOAD: &str = "  - steady: {rate: 1000}\n  - saturated: {}\n";
/// Long enough for eight steps of memory in a window.
const DESIGN: &str = "rounds: 6, blocks: 1, trial: 200ms, warmup: 40ms, time: 14s";

/// For who uses the cores, the samples of one block tell.
const ONE_BLOCK: &str = "rounds: 1, blocks: 1, trial: 200ms, warmup: 40ms, time: 2s";

/// Reasons that precede all others: a trial that the hypervisor disturbed shows nothing else.
const BY_HYPERVISOR: [&str; 2] = ["steal", "late-by-steal"];

fn tries() -> usize {
    let number = std::env::var("MESHTAX_DISTURBED_RUNS").ok();
    number.map_or(1, |n| n.parse().expect("a number of runs"))
}

fn run(scratch: &Scratch, variants: &[&str], service: &str) -> Finished {
    run_of(scratch, variants, service, DESIGN)
}

fn run_of(scratch: &Scratch, variants: &[&str], service: &str, design: &str) -> Finished {
    let variants: Vec<String> = variants.iter().map(|v| (*v).to_owned()).collect();
    let text = spec("disturbed", &variants, LOAD, design) + service;
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    finish(meshtax(scratch, &arguments))
}

/// Keeps these cores busy during `work`.
fn with_busy_cores<T>(cores: &[usize], work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for core in cores {
            let mut set = CpuSet::new();
            set.set(*core);
            let stop = &stop;
            scope.spawn(move || {
                sched_setaffinity(None, &set).expect("a core that we may use");
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("this thread's cores");
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// The primary effects with the verdict *different*, of variants whose name contains `of`.
fn declared(analysis: &Value, of: &str) -> Vec<String> {
    let effects = analysis["effects"].as_array().expect("effects").iter();
    effects
        .filter(|effect| effect["verdict"]["id"] == "different")
        .filter(|effect| effect["primary"] == true)
        .map(|effect| format!("{} {}", effect["variant"], effect["metric"]))
        .filter(|text| text.contains(of))
        .collect()
}

/// The analysis of a run that completed, with or without enough valid trials.
fn analysis_of(finished: &Finished) -> Value {
    finished.expect_completed();
    finished.json()
}

/// Each try has one of the invalidity reasons; at most one try in ten declares a false difference.
fn each_try(reasons: &[&str], tried: impl Fn(&Scratch) -> Finished) {
    let mut wrong = Vec::new();
    for number in 0..tries() {
        let (_, finished) = until_measured(&tried, |_, finished| {
            let analysis = analysis_of(finished);
            let found = invalid_reasons(&analysis);
            // The hypervisor can disturb all trials, and nothing else is reported of them.
            analysis["blocks"] != 0 || reasons.iter().any(|reason| found.contains(reason))
        });
        let analysis = analysis_of(&finished);
        let found = invalid_reasons(&analysis);
        let by_hypervisor = !found.is_empty() && found.iter().all(|id| BY_HYPERVISOR.contains(id));
        if analysis["blocks"] == 0 && by_hypervisor {
            skipped("what disturbs a run", ALL_DISTURBED);
            continue;
        }
        assert!(
            reasons.iter().any(|reason| found.contains(reason)),
            "try {number}: none of {reasons:?} in {found:?}"
        );
        assert!(caveat_ids(&analysis).contains("invalid-trials"));
        let found = declared(&analysis, "equal");
        if !found.is_empty() {
            wrong.push(format!("try {number}: {found:?}"));
        }
    }
    assert!(wrong.len() * 10 <= tries(), "{wrong:#?}");
}

#[test]
fn busy_cores_are_reported_and_no_difference_is_declared() {
    let _alone = alone();
    let cores = allowed_cores();
    let both = [cores[0], cores[cores.len() - 1]];
    each_try(&["other-programs"], |scratch| {
        with_busy_cores(&both, || run(scratch, &EQUALS, ""))
    });
}

#[test]
fn busy_generator_core_is_reported() {
    let _alone = alone();
    let first = allowed_cores()[0];
    each_try(&["other-programs", "generator-bound"], |scratch| {
        with_busy_cores(&[first], || run(scratch, &EQUALS, ""))
    });
}

#[test]
fn restarted_server_is_reported() {
    let _alone = alone();
    let reasons = ["component-failed"];
    // The shell restarts it whenever it exits.
    let program = Path::new(env!("CARGO_BIN_EXE_meshtax")).display();
    let service = format!(
        "service:\n  server:\n    command: [sh, -c, \"while :; do timeout 1.3 {program} serve --listen 0.0.0.0:9000 \
         2>/dev/null; done\"]\n    port: 9000\n    path: /\n"
    );
    each_try(&reasons, |scratch| run(scratch, &EQUALS, &service));
}

#[test]
fn leaking_server_is_reported_and_not_compared() {
    let _alone = alone();
    let leaking = [
        EQUALS[0],
        "{data-plane: none, id: leaks, inject: {leak: 16KiB}}",
    ];
    each_try(&["memory-growth"], |scratch| {
        let finished = run(scratch, &leaking, "");
        let analysis = analysis_of(&finished);
        // At a steady rate, steal can make every trial late, which is found first.
        let leaks = &variant_of(&analysis, "leaks")["points"];
        let mut points = leaks.as_array().expect("points").iter();
        let grew = |point: &Value| point["invalid"]["memory-growth"].as_u64() > Some(0);
        assert!(points.any(grew), "{leaks}");
        assert_eq!(declared(&analysis, "leaks"), Vec::<String>::new());
        finished
    });
}

/// Runs `work` on a thread that may only use this core, as all that it starts.
fn on_core<T: Send>(core: usize, work: impl FnOnce() -> T + Send) -> T {
    let pinned = || {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).expect("a core that we may use");
        work()
    };
    thread::scope(|scope| scope.spawn(pinned).join().expect("its result"))
}

/// The names of other programs in the samples of a run on one core, while a program keeps another or the same core busy.
fn others_on(scratch: &Scratch, run_core: usize, busy_core: usize) -> Vec<String> {
    let program = scratch.path("busyloop");
    std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
    let mut busy = on_core(busy_core, || {
        let mut command = std::process::Command::new(&program);
        command
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell")
    });
    let finished = on_core(run_core, || run_of(scratch, &EQUALS[..1], "", ONE_BLOCK));
    busy.kill().expect("it runs");
    busy.wait().expect("it ended");
    analysis_of(&finished);
    let samples = records(&scratch.path("run/samples.jsonl"));
    assert!(!samples.is_empty());
    let machines = samples
        .iter()
        .flat_map(|s| s["machines"].as_array().expect("machines"));
    let others = machines.flat_map(|machine| machine["others"].as_array().into_iter().flatten());
    others
        .map(|other| other["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn busy_core_is_a_disturbance_only_if_the_run_may_use_it() {
    let _alone = alone();
    let cores = allowed_cores();
    let [first, .., last] = cores[..] else {
        skipped(
            "a busy core outside of the allowed set",
            "there is one core",
        );
        return;
    };
    let busyloop = "busyloop".to_owned();
    assert!(!others_on(&Scratch::new(), first, last).contains(&busyloop));
    assert!(others_on(&Scratch::new(), first, first).contains(&busyloop));
}
