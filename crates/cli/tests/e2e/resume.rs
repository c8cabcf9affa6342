//! `meshtax run --resume`: what an interrupted run lacks is measured, in the same directory, and nothing twice.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::outcome::{assert_not_excluded, caveat_ids, variant_of};
use crate::processes::Process;
use crate::specs::{SATURATED, spec, variant};
use crate::stores::{STORED, VERSION_1, copied};
use crate::support::{
    Finished, PATIENCE, Running, Scratch, alone, beside_others, finish, manifest, meshtax, records,
    until_measured,
};

const DESIGN: &str = "rounds: 6, blocks: 1, trial: 150ms, warmup: 30ms, time: 25s";

const USAGE: i32 = 2;
const MISSING: i32 = 11;
const UNREADABLE: i32 = 14;
const REFUSED: i32 = 22;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn trials(run: &Path) -> Vec<Value> {
    records(&run.join("trials.jsonl"))
}

/// Starts a run of the minimal proxy, and waits until its second round is measured.
fn started(scratch: &Scratch) -> (Running, PathBuf) {
    let variants = [variant("limit-mtls", "mtls", "limit-mtls")];
    let path = scratch.write("spec.yaml", &spec("resumed", &variants, SATURATED, DESIGN));
    let out = scratch.path("run");
    let arguments = ["run", text(&path), "--out", text(&out), "--offline"];
    let mut command = meshtax(scratch, &arguments);
    command.process_group(0);
    let mut run = Running::start(command);
    run.wait_until("a trial of the second round", |_| {
        trials(&out)
            .iter()
            .any(|trial| trial["trial"]["round"] == 2)
    });
    (run, out)
}

/// A run that was interrupted as by Ctrl-C.
fn interrupted(scratch: &Scratch) -> PathBuf {
    let (run, out) = started(scratch);
    let group = i32::try_from(run.pid()).ok().and_then(Pid::from_raw);
    kill_process_group(group.expect("a process group"), Signal::INT).expect("a living group");
    run.finish(PATIENCE).expect_code(130);
    out
}

fn killed(scratch: &Scratch) -> PathBuf {
    let (run, out) = started(scratch);
    assert!(Process::find(run.pid()).is_some_and(Process::kill));
    run.finish(PATIENCE).expect_code(137);
    out
}

fn resume(scratch: &Scratch, run: &Path) -> Finished {
    finish(meshtax(
        scratch,
        &["run", "--resume", text(run), "--offline", "--json"],
    ))
}

fn change_manifest(run: &Path, change: impl Fn(&mut Value)) {
    let mut changed = manifest(run);
    change(&mut changed);
    fs::write(run.join("manifest.json"), changed.to_string()).expect("the manifest");
}

/// Every file of a run, to see that nothing was changed.
fn files(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(run).expect("a run directory").flatten();
    let mut files: Vec<_> = entries
        .map(|entry| (entry.path(), fs::read(entry.path()).expect("a file")))
        .collect();
    files.sort();
    files
}

/// The trials of before are the first ones of a run that went on to its end, and none is there twice.
fn assert_continued(run: &Path, before: &[Value], finished: &Finished) {
    let after = trials(run);
    assert_eq!(&after[..before.len()], before);
    let ids: BTreeSet<&str> = after
        .iter()
        .filter_map(|trial| trial["trial"]["id"].as_str())
        .collect();
    assert_eq!(ids.len(), after.len());
    let last = |trials: &[Value]| trials.last().map(|trial| trial["trial"]["round"].clone());
    let next = after[before.len()]["trial"]["round"].as_u64();
    assert_eq!(
        next,
        Some(last(before).and_then(|r| r.as_u64()).unwrap() + 1)
    );
    let manifest = manifest(run);
    assert_eq!(manifest["ending"]["id"], "time-used");
    let resumptions = manifest["resumptions"].as_array().expect("resumptions");
    assert_eq!(resumptions.len(), 1);
    assert_eq!(Some(&resumptions[0]["after_round"]), last(before).as_ref());
    assert_eq!(resumptions[0]["restarted"], false);
    let analysis = finished.json();
    assert_eq!(analysis["run"]["resumptions"], manifest["resumptions"]);
    let caveats = caveat_ids(&analysis);
    assert!(caveats.contains("resumed") && !caveats.contains("incomplete"));
    assert_not_excluded(variant_of(&analysis, "limit-mtls"));
}

#[test]
fn interrupted_run_is_resumed_to_its_end_with_each_trial_once() {
    let _alone = alone();
    let measure = |scratch: &Scratch| {
        let run = interrupted(scratch);
        assert_refused_with_another_program(scratch, &run);
        let before = trials(&run);
        (before, resume(scratch, &run))
    };
    let (scratch, (before, finished)) =
        until_measured(measure, |_, (_, finished)| finished.is_measured());
    finished.expect_success_or_busy_cores();
    let run = scratch.path("run");
    assert_continued(&run, &before, &finished);
    let analysis = finished.json();
    if finished.code == 0 {
        let effects = analysis["effects"].as_array().expect("effects");
        let of = |effect: &&Value| effect["variant"] == "limit-mtls" && effect["primary"] == true;
        let effect = effects.iter().find(of).expect("a primary effect");
        assert!(effect["rounds"].as_u64() >= Some(6), "{effect}");
        assert!(effect["difference"]["interval"].is_object(), "{effect}");
    }
    // The manifest says that it is complete.
    let complete = files(&run);
    let again = resume(&scratch, &run);
    assert_eq!(again.expect_code(0).json(), analysis);
    assert_eq!(files(&run), complete);
}

/// A program of another build than the recorded one.
fn assert_refused_with_another_program(scratch: &Scratch, run: &Path) {
    let original = fs::read(run.join("manifest.json")).expect("the manifest");
    change_manifest(run, |manifest| {
        manifest["environment"]["artifacts"][0]["sha256"] = json!("00ff");
    });
    let changed = files(run);
    let refused = resume(scratch, run);
    let stderr = &refused.expect_code(REFUSED).stderr;
    for part in ["program limit-mtls", "00ff", "fix: "] {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
    for same in ["kernel:", "core layout:", "program meshtax"] {
        assert!(!stderr.contains(same), "{same:?} in {stderr}");
    }
    assert_eq!(files(run), changed);
    fs::write(run.join("manifest.json"), original).expect("the manifest");
}

#[test]
fn killed_run_with_a_torn_line_is_resumed_by_one_process_only() {
    let _alone = alone();
    let scratch = Scratch::new();
    let run = killed(&scratch);
    let before = trials(&run);
    let appending = OpenOptions::new()
        .append(true)
        .open(run.join("trials.jsonl"));
    let torn = b"{\"trial\":{\"id\":\"r9";
    appending
        .expect("the trials")
        .write_all(torn)
        .expect("room");
    let arguments = ["run", "--resume", text(&run), "--offline", "--json"];
    let mut resumed = Running::start(meshtax(&scratch, &arguments));
    resumed.wait_until("a further trial", |_| trials(&run).len() > before.len());
    let second = resume(&scratch, &run);
    let stderr = &second.expect_code(MISSING).stderr;
    assert!(
        stderr.contains("still in progress") && stderr.contains("fix: "),
        "{stderr}"
    );
    let finished = resumed.finish(PATIENCE);
    finished.expect_success_or_busy_cores();
    assert_continued(&run, &before, &finished);
}

#[test]
fn complete_run_is_reported_and_left_as_it_is() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let before = files(&run);
    let resumed = resume(&scratch, &run);
    assert!(resumed.expect_code(0).stderr.contains("is complete"));
    let report = finish(meshtax(&scratch, &["report", STORED, "--format", "json"]));
    assert_eq!(resumed.json(), report.json());
    assert_eq!(files(&run), before);
}

#[test]
fn run_of_another_machine_is_refused_with_each_difference() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    change_manifest(&run, |manifest| {
        manifest["ending"] = json!({"id": "interrupted"});
        manifest["experiment"]["design"]["time_limit_ns"] = json!(3_600_000_000_000_u64);
        manifest["environment"]["machines"][0]["kernel"] = json!("2.6.32-test");
        manifest["meshtax_version"] = json!("0.0.1-test");
    });
    let before = files(&run);
    let refused = resume(&scratch, &run);
    let stderr = &refused.expect_code(REFUSED).stderr;
    for part in ["kernel: 2.6.32-test", "meshtax: 0.0.1-test", "fix: "] {
        assert!(stderr.contains(part), "no {part:?} in {stderr}");
    }
    assert_eq!(refused.stdout, "");
    assert_eq!(files(&run), before);
}

#[test]
fn what_is_no_interrupted_run_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let absent = scratch.path("absent");
    resume(&scratch, &absent).expect_code(UNREADABLE);
    resume(&scratch, &scratch.path("tmp")).expect_code(UNREADABLE);
    resume(&scratch, Path::new(VERSION_1)).expect_code(UNREADABLE);
    copied(&scratch);
    // The parent of a run is a series.
    let series = resume(&scratch, &scratch.path(""));
    assert!(series.expect_code(USAGE).stderr.contains("series"));
}

#[test]
fn options_of_a_new_run_conflict_with_resume() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let conflicting: [&[&str]; 9] = [
        &["spec.yaml"],
        &["--preset", "quick"],
        &["--time", "1m"],
        &["--seed", "1"],
        &["--out", "elsewhere"],
        &["--engine", "local"],
        &["--topology", "bookinfo"],
        &["--inject", "delay=15%"],
        &["--nodes", "a,b"],
    ];
    for options in conflicting {
        let arguments = [&["run", "--resume", STORED], options].concat();
        let rejected = finish(meshtax(&scratch, &arguments));
        let stderr = &rejected.expect_code(USAGE).stderr;
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
    let run = copied(&scratch);
    change_manifest(&run, |manifest| {
        manifest["ending"] = json!({"id": "interrupted"});
    });
    let arguments = ["run", "--resume", text(&run), "--context", "other"];
    let rejected = finish(meshtax(&scratch, &arguments));
    assert!(rejected.expect_code(USAGE).stderr.contains("on a cluster"));
}
