//! Ctrl-C and SIGTERM: the run ends in good order and says what it has.

use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::machine::{Machine, Trace, assert_nothing_left};
use crate::specs::{BOTH, candidates, run_arguments, spec};
use crate::support::{
    Finished, PATIENCE, Running, Scratch, alone, finish, manifest, meshtax, records,
};

const DESIGN: &str = "trial: 200ms, warmup: 50ms, time: 2m";

/// The trial that is under way ends first.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// When the signal is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Pods and proxies are being started.
    Starting,
    /// The second trial is on the disk.
    Measuring,
}

/// Interrupts a run as a terminal does: every process of its group gets the signal.
fn interrupt(scratch: &Scratch, signal: Signal, when: When) -> Finished {
    let path = scratch.write("spec.yaml", &spec("long", &candidates(), BOTH, DESIGN));
    let out = scratch.path("run");
    let before = Machine::now(scratch);
    let mut command = meshtax(scratch, &run_arguments(&path, &out));
    command.process_group(0);
    let mut run = Running::start(command);
    match when {
        When::Starting => run.wait_until("its first round", |run| run.said().contains("round 1")),
        When::Measuring => run.wait_until("two trials", |_| {
            records(&out.join("trials.jsonl")).len() >= 2
        }),
    }
    let mut trace = Trace::default();
    trace.look(run.pid());
    let group = i32::try_from(run.pid()).ok().and_then(Pid::from_raw);
    kill_process_group(group.expect("a process group"), signal).expect("a living group");
    let interrupted = std::time::Instant::now();
    let finished = run.finish(PATIENCE);
    let took = interrupted.elapsed();
    assert!(took < ENDS_WITHIN, "{took:?} after {signal:?}");
    assert_nothing_left(&before, &trace, scratch);
    finished
}

fn check_partial_report(scratch: &Scratch) {
    let run = scratch.path("run");
    assert_eq!(manifest(&run)["ending"]["kind"], "interrupted");
    let run = run.to_str().expect("a path in UTF-8");
    let report = finish(meshtax(scratch, &["report", run]));
    report.expect_code(0);
    let said = report.stdout.contains("Partial: interrupted");
    assert!(said, "{}", report.stdout);
    let json = finish(meshtax(scratch, &["report", run, "--format", "json"]));
    assert_eq!(
        json.expect_code(0).json()["run"]["ending"]["kind"],
        "interrupted"
    );
}

#[test]
fn ctrl_c_ends_with_130_and_what_was_measured_is_reported() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = interrupt(&scratch, Signal::INT, When::Measuring);
    finished.expect_code(130);
    let said = finished.stdout.contains("Partial: interrupted");
    assert!(said, "{}", finished.stdout);
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
    check_partial_report(&scratch);
}

#[test]
fn sigterm_ends_with_143() {
    let _alone = alone();
    let scratch = Scratch::new();
    interrupt(&scratch, Signal::TERM, When::Measuring).expect_code(143);
    check_partial_report(&scratch);
}

#[test]
fn ctrl_c_before_the_first_trial_ends_with_130_too() {
    let _alone = alone();
    let scratch = Scratch::new();
    let finished = interrupt(&scratch, Signal::INT, When::Starting);
    finished.expect_code(130);
    assert!(!finished.stderr.contains("error:"), "{}", finished.stderr);
}
