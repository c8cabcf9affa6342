//! SIGINT and SIGTERM: the run tears down and reports the completed trials.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use serde_json::Value;

use crate::broken_proxies::broken_proxy;
use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::outcome::caveat_ids;
use crate::specs::{BOTH, candidates, run_arguments, spec, variant};
use crate::support::{
    Finished, PATIENCE, Running, Scratch, alone, finish, manifest, meshtax, records,
};

const DESIGN: &str = "trial: 200ms, warmup: 50ms, time: 2m";

/// When the signal is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Pods and proxies are being started.
    Starting,
    /// As [`When::Starting`], with a proxy that is awaited for ten seconds.
    AwaitingProxy,
    /// The second trial is on the disk.
    Measuring,
    /// The first trial is on the disk, and the second takes 15 s.
    SecondTrial,
}

impl When {
    /// What a second does not complete is given up: its end would come after these.
    fn ends_within(self) -> Duration {
        match self {
            Self::Starting | Self::Measuring => Duration::from_secs(15),
            Self::SecondTrial => Duration::from_secs(12),
            Self::AwaitingProxy => Duration::from_secs(5),
        }
    }
}

fn trials(run: &Path) -> usize {
    records(&run.join("trials.jsonl")).len()
}

fn interrupt(scratch: &Scratch, signal: Signal, when: When) -> Finished {
    let text = spec("long", &candidates(), BOTH, DESIGN);
    interrupt_run_of(scratch, &text, &["--json"], signal, when)
}

/// Interrupts a run as a terminal does: every process in its group receives the signal.
fn interrupt_run_of(
    scratch: &Scratch,
    text: &str,
    options: &[&str],
    signal: Signal,
    when: When,
) -> Finished {
    let path = scratch.write("spec.yaml", text);
    let out = scratch.path("run");
    let before = Machine::now(scratch);
    let mut arguments = run_arguments(&path, &out);
    arguments.extend(options);
    let mut command = meshtax(scratch, &arguments);
    command.process_group(0).env("BROKEN_PROXY", "sleeps");
    let mut run = Running::start(command);
    match when {
        When::Starting | When::AwaitingProxy => run.wait_until("its first round", |run| {
            run.stderr_text().contains("round 1")
        }),
        When::Measuring => run.wait_until("two trials", |_| trials(&out) >= 2),
        When::SecondTrial => run.wait_until("a trial", |_| trials(&out) >= 1),
    }
    let mut trace = Trace::default();
    trace.look(run.pid());
    let group = i32::try_from(run.pid()).ok().and_then(Pid::from_raw);
    kill_process_group(group.expect("a process group"), signal).expect("a living group");
    let interrupted = std::time::Instant::now();
    let finished = run.finish(PATIENCE);
    let took = interrupted.elapsed();
    assert!(took < when.ends_within(), "{took:?} after {signal:?}");
    assert_nothing_left(&before, &trace, scratch);
    finished
}

fn assert_is_interrupted(analysis: &Value) {
    assert_eq!(analysis["run"]["ending"]["id"], "interrupted");
    assert!(caveat_ids(analysis).contains("incomplete"));
}

fn check_partial_report(scratch: &Scratch) {
    let run = scratch.path("run");
    assert_eq!(manifest(&run)["ending"]["id"], "interrupted");
    let run = run.to_str().expect("a path in UTF-8");
    finish(meshtax(scratch, &["report", run])).expect_code(0);
    let report = finish(meshtax(scratch, &["report", run, "--format", "json"]));
    assert_is_interrupted(&report.expect_code(0).json());
}

#[test]
fn sigint_exits_with_130_and_reports_completed_trials() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = interrupt(&scratch, Signal::INT, When::Measuring);
    finished.expect_code(130);
    assert_is_interrupted(&finished.json());
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
    check_partial_report(&scratch);
}

#[test]
fn sigterm_exits_with_143() {
    let _alone = alone();
    let scratch = Scratch::new();
    interrupt(&scratch, Signal::TERM, When::Measuring).expect_code(143);
    check_partial_report(&scratch);
}

#[test]
fn sigint_during_a_long_trial_gives_it_up_and_keeps_the_trials_before_it() {
    let _alone = alone();
    let scratch = Scratch::new();
    let text = "name: long-trials\nvariants: [{data-plane: limit-l4}]\nload: [{steady: {rate: 100}}]\n\
                faithful: {trial: 15s}\n";
    let options = ["--faithful", "--json"];
    let finished = interrupt_run_of(&scratch, text, &options, Signal::INT, When::SecondTrial);
    finished.expect_code(130);
    assert_is_interrupted(&finished.json());
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
    assert_eq!(trials(&scratch.path("run")), 1);
    check_partial_report(&scratch);
}

#[test]
fn sigint_before_the_first_trial_exits_with_130() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = interrupt(&scratch, Signal::INT, When::Starting);
    finished.expect_code(130);
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
}

#[test]
fn sigint_while_a_proxy_is_awaited_gives_it_up_and_leaves_nothing() {
    let _alone = alone();
    let scratch = Scratch::new();
    let broken = broken_proxy();
    let options = ["--ztunnel", broken.to_str().expect("a path in UTF-8")];
    let text = spec(
        "hangs",
        &[variant("ztunnel", "mtls", "hangs")],
        BOTH,
        DESIGN,
    );
    let when = When::AwaitingProxy;
    let finished = interrupt_run_of(&scratch, &text, &options, Signal::INT, when);
    finished.expect_code(130);
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
}
