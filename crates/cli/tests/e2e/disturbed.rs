//! A machine, or a server, that misbehaves while it is measured: the run says so, and declares no
//! difference that is not there.
//!
//! `MESHTAX_DISTURBED_RUNS` says how often each is tried; once, if nothing is said.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use crate::specs::{run_arguments, spec};
use crate::support::{Finished, Scratch, alone, finish, meshtax, skipped};

/// Two more baselines, so that every difference declared is one that is not there.
const EQUALS: [&str; 2] = [
    "{data-plane: none, id: equal-1}",
    "{data-plane: none, id: equal-2}",
];
const LOAD: &str = "  - steady: {rate: 1000}\n  - saturated: {}\n";
/// Long enough for eight steps of memory in a window.
const DESIGN: &str = "rounds: 6, blocks: 1, trial: 200ms, warmup: 40ms, time: 14s";

fn tries() -> usize {
    let asked = std::env::var("MESHTAX_DISTURBED_RUNS").ok();
    asked.map_or(1, |n| n.parse().expect("a number of runs"))
}

fn run(scratch: &Scratch, variants: &[&str], service: &str) -> Finished {
    let variants: Vec<String> = variants.iter().map(|v| (*v).to_owned()).collect();
    let text = spec("disturbed", &variants, LOAD, DESIGN) + service;
    let path = scratch.write("spec.yaml", &text);
    let out = scratch.path("run");
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    finish(meshtax(scratch, &arguments))
}

/// Threads that do nothing else than use the processor, on these cores.
fn with_hogs<T>(cores: &[usize], work: impl FnOnce() -> T) -> T {
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

fn caveats(analysis: &Value) -> String {
    let all = analysis["caveats"].as_array().expect("caveats").iter();
    all.filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
}

/// The effects that were declared, of variants whose name begins so.
fn declared(analysis: &Value, of: &str) -> Vec<String> {
    let effects = analysis["effects"].as_array().expect("effects").iter();
    effects
        .filter(|effect| effect["verdict"]["kind"] == "different")
        .filter(|effect| effect["primary"] == true)
        .map(|effect| format!("{} {}", effect["variant"], effect["metric"]))
        .filter(|text| text.contains(of))
        .collect()
}

/// Finished in good order: with an answer, or because too little was left of it.
fn analysis_of(finished: &Finished) -> Value {
    assert!([0, 13].contains(&finished.code), "{}", finished.stderr);
    finished.json()
}

/// Each try says it, and of twenty at most two declare what is not there; of fewer, none does.
fn each_try(says: &[&str], tried: impl Fn(&Scratch) -> Finished) {
    let mut wrong = Vec::new();
    for number in 0..tries() {
        let scratch = Scratch::new();
        let analysis = analysis_of(&tried(&scratch));
        let said = caveats(&analysis);
        if analysis["blocks"] == 0 && said.contains("the hypervisor") {
            skipped(
                "what is said of a disturbance",
                "the hypervisor took all trials away",
            );
            continue;
        }
        assert!(
            says.iter().any(|words| said.contains(words)),
            "try {number} says none of {says:?}:\n{said}"
        );
        let found = declared(&analysis, "equal");
        if !found.is_empty() {
            wrong.push(format!("try {number}: {found:?}"));
        }
    }
    assert!(wrong.len() * 10 <= tries(), "{wrong:#?}");
}

#[test]
fn two_hogs_are_named_and_no_difference_is_declared() {
    let _alone = alone();
    let cores = allowed_cores();
    let both = [cores[0], cores[cores.len() - 1]];
    each_try(&["another program used its cores"], |scratch| {
        with_hogs(&both, || run(scratch, &EQUALS, ""))
    });
}

#[test]
fn a_stolen_core_of_the_generator_is_told() {
    let _alone = alone();
    let first = allowed_cores()[0];
    let says = [
        "another program used its cores",
        "the generator was the limit",
    ];
    each_try(&says, |scratch| {
        with_hogs(&[first], || run(scratch, &EQUALS, ""))
    });
}

#[test]
fn a_server_that_is_restarted_in_mid_run_is_told() {
    let _alone = alone();
    let says = [
        "a component died or was restarted",
        "errors above 0.1 %",
        "achieved below 98 % of offered",
    ];
    // What stands before it starts it again each time it ends.
    let program = Path::new(env!("CARGO_BIN_EXE_meshtax")).display();
    let service = format!(
        "service:\n  server:\n    command: [sh, -c, \"while :; do timeout 1.3 {program} serve --listen 0.0.0.0:9000 \
         2>/dev/null; done\"]\n    port: 9000\n    path: /\n"
    );
    each_try(&says, |scratch| run(scratch, &EQUALS, &service));
}

#[test]
fn a_server_that_leaks_is_told_and_is_not_compared() {
    let _alone = alone();
    let leaking = [
        EQUALS[0],
        "{data-plane: none, id: leaks, inject: {leak: 16KiB}}",
    ];
    let says = ["leaks: ", "memory grew through the trial"];
    each_try(&says[1..], |scratch| {
        let finished = run(scratch, &leaking, "");
        let analysis = analysis_of(&finished);
        assert!(
            caveats(&analysis).contains(says[0]),
            "{}",
            caveats(&analysis)
        );
        assert_eq!(declared(&analysis, "leaks"), Vec::<String>::new());
        finished
    });
}
