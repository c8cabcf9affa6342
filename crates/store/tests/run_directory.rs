//! A run directory survives a kill, and its errors are reported.
#![forbid(unsafe_code)]

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use meshtax_engine::fake::{FakeClock, FakeEngine, Fault};
use meshtax_engine::{RunOptions, RunOutcome, Sink as _, Watch, run};
use meshtax_model::FORMAT_VERSION;
use meshtax_model::cluster::{ClusterEvent, ClusterRecord, Severity};
use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_model::monitoring::Monitoring;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{TrialOutcome, TrialRecord};
use meshtax_spec::parse;
use meshtax_store::{
    CLUSTER, EVIDENCE, FAILURES, MANIFEST, MONITORING, RunStart, SAMPLES, Store, StoreError,
    TRIALS, read,
};
use proptest::prelude::*;
use tempfile::TempDir;

fn start() -> RunStart {
    RunStart {
        run_id: "20261121-110934-small-3f2a".to_owned(),
        meshtax_version: "0.1.0".to_owned(),
        started_unix_ms: 1_795_259_374_000,
        seed: u64::MAX,
    }
}

fn experiment() -> Experiment {
    let text = "name: small\n\
        variants: [{data-plane: limit-mtls}, {data-plane: limit-l4}]\n\
        load: [{steady: {rate: 100}}]\n\
        design: {time: 10s}\n";
    parse("small", text).unwrap()
}

/// A directory with a whole run of the fake engine in it.
fn measured(path: &Path) -> RunOutcome {
    let mut store = Store::create(path, start()).unwrap();
    let clock = FakeClock::default();
    let fault = Fault::VariantFails(VariantId("limit-l4".to_owned()), 1);
    let mut engine = FakeEngine::with_faults(clock.clone(), [fault]);
    let watch = Watch {
        clock: &clock,
        events: &mut |_| (),
        interrupted: &AtomicBool::new(false),
        enough: &mut || false,
    };
    run(
        &mut engine,
        &experiment(),
        RunOptions { seed: u64::MAX },
        &mut store,
        watch,
    )
}

fn run_in_new_directory() -> (TempDir, PathBuf) {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("deep").join("run");
    measured(&path);
    (parent, path)
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
}

#[test]
fn written_run_is_read_back() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("run");
    let outcome = measured(&path);
    let back = read(&path).unwrap();
    assert_eq!(back.notes, Vec::<String>::new());
    assert_eq!(back.manifest.format_version, FORMAT_VERSION);
    assert_eq!(back.manifest.seed, u64::MAX);
    assert_eq!(back.manifest.experiment, outcome.experiment);
    assert_eq!(back.manifest.ending, Some(Ending::TimeUsed));
    assert_eq!(back.trials.len(), outcome.measured.trials as usize);
    assert_eq!(back.samples.len(), back.trials.len());
    assert_eq!(back.failures, outcome.excluded);
    assert!(back.evidence.iter().all(Evidence::passed));
    let mut names: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [EVIDENCE, FAILURES, MANIFEST, SAMPLES, TRIALS]);
}

#[test]
fn torn_last_line_is_skipped_with_a_note() {
    for name in [TRIALS, SAMPLES, EVIDENCE, FAILURES] {
        let (_parent, path) = run_in_new_directory();
        let before = read(&path).unwrap();
        append(&path.join(name), b"{\"trial\":{\"id\":\"r9");
        let after = read(&path).unwrap();
        assert_eq!(after.trials, before.trials);
        assert_eq!(after.samples, before.samples);
        assert_eq!(after.notes.len(), 1, "{:?}", after.notes);
        assert!(after.notes[0].contains(name), "{:?}", after.notes);
    }
}

#[test]
fn run_killed_at_any_byte_of_the_last_trial_is_readable() {
    let (_parent, path) = run_in_new_directory();
    let whole = read(&path).unwrap();
    let text = fs::read(path.join(TRIALS)).unwrap();
    let last = text.len()
        - text[..text.len() - 1]
            .iter()
            .rposition(|b| *b == b'\n')
            .unwrap()
        - 1;
    cut(&path.join(TRIALS), 1);
    // Only the line's end is missing: nothing is lost.
    assert_eq!(read(&path).unwrap().trials, whole.trials);
    for _ in 0..5 {
        cut(&path.join(TRIALS), (last as u64 - 1) / 5);
        let back = read(&path).unwrap();
        assert_eq!(back.trials, whole.trials[..whole.trials.len() - 1]);
        assert_eq!(back.samples.len(), back.trials.len());
    }
}

#[test]
fn corrupt_line_is_reported_with_file_and_line() {
    for name in [TRIALS, SAMPLES, EVIDENCE] {
        let (_parent, path) = run_in_new_directory();
        let file = path.join(name);
        let text = fs::read_to_string(&file).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[1] = "{\"cut";
        fs::write(&file, format!("{}\n", lines.join("\n"))).unwrap();
        let error = read(&path).unwrap_err();
        assert!(
            matches!(error, StoreError::CorruptLine { line: 2, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains(&format!("{name}:2 is corrupt")),
            "{error}"
        );
        assert!(error.to_string().contains("fix:"), "{error}");
    }
}

#[test]
fn non_finite_figure_loses_only_its_trial() {
    let (parent, path) = run_in_new_directory();
    let whole = read(&path).unwrap();
    let mut store = Store::create(&parent.path().join("nan"), start()).unwrap();
    store
        .prepared(&whole.manifest.environment, &experiment())
        .unwrap();
    let mut record = whole.trials[0].clone();
    if let TrialOutcome::Measured { load, .. } = &mut record.outcome {
        load.audit.busy_share = f64::NAN;
    }
    store.trial(&record, None).unwrap();
    store.trial(&whole.trials[1], None).unwrap();
    let back = read(store.path()).unwrap();
    assert!(matches!(
        back.trials[0].outcome,
        TrialOutcome::Failed { .. }
    ));
    assert_eq!(back.trials[1], whole.trials[1]);
}

#[test]
fn duplicate_trial_is_corrupt() {
    let (_parent, path) = run_in_new_directory();
    let text = fs::read_to_string(path.join(TRIALS)).unwrap();
    append(
        &path.join(TRIALS),
        format!("{}\n", text.lines().next().unwrap()).as_bytes(),
    );
    let last = text.lines().count() as u64 + 1;
    let error = read(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::CorruptLine { path: file, line, .. } if *line == last && file.ends_with(TRIALS)),
        "{error}"
    );
    assert!(error.to_string().contains("r1b1t01"), "{error}");
}

#[test]
fn newer_format_version_is_rejected_with_both_versions() {
    let (_parent, path) = run_in_new_directory();
    // Nothing else in a future manifest needs to make sense today.
    fs::write(path.join(MANIFEST), "{\"format_version\": 7, \"new\": []}").unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, StoreError::FutureVersion { found: 7, .. }));
    let text = error.to_string();
    assert!(
        text.contains("version 7")
            && text.contains(&format!("reads version {FORMAT_VERSION} only")),
        "{text}"
    );
}

#[test]
fn format_version_1_is_rejected_with_both_versions_and_a_fix() {
    let (_parent, path) = run_in_new_directory();
    // What else version 1 wrote is not looked at.
    fs::write(path.join(MANIFEST), "{\"format_version\": 1, \"old\": []}").unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, StoreError::PastVersion { found: 1, .. }));
    let text = error.to_string();
    for part in [
        "version 1,",
        &format!("reads version {FORMAT_VERSION} only"),
        "fix: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn directory_without_a_run_is_rejected() {
    let parent = TempDir::new().unwrap();
    let nothing = parent.path().join("nothing");
    assert!(matches!(read(&nothing), Err(StoreError::NotFound { .. })));
    assert!(matches!(
        read(parent.path()),
        Err(StoreError::NotARun { .. })
    ));
    let file = parent.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(matches!(read(&file), Err(StoreError::NotARun { .. })));
    let (_parent, path) = run_in_new_directory();
    fs::write(path.join(MANIFEST), "{").unwrap();
    assert!(matches!(
        read(&path),
        Err(StoreError::CorruptManifest { .. })
    ));
    fs::remove_file(path.join(MANIFEST)).unwrap();
    let error = read(&path).unwrap_err();
    assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
    assert!(error.to_string().contains(MANIFEST), "{error}");
}

#[test]
fn unfinished_run_is_noted() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("run");
    let mut store = Store::create(&path, start()).unwrap();
    store.prepared(&environment(), &experiment()).unwrap();
    let back = read(&path).unwrap();
    assert_eq!(back.manifest.ending, None);
    assert!(back.notes[0].contains("not ended"));
}

fn environment() -> Environment {
    let (_parent, path) = run_in_new_directory();
    read(&path).unwrap().manifest.environment
}

#[test]
fn occupied_or_impossible_path_is_rejected_at_creation() {
    let (parent, path) = run_in_new_directory();
    let error = Store::create(&path, start()).unwrap_err();
    assert!(matches!(error, StoreError::Occupied { .. }), "{error}");
    let file = parent.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Store::create(&file, start()).unwrap_err();
    assert!(matches!(error, StoreError::NotADirectory { .. }), "{error}");
    let error = Store::create(&file.join("below"), start()).unwrap_err();
    assert!(
        matches!(&error, StoreError::CannotWrite { cause, .. } if cause.kind() == ErrorKind::NotADirectory),
        "{error}"
    );
    assert!(
        error.to_string().contains("a part of the path is a file"),
        "{error}"
    );
    // An empty directory that is there already is fine.
    let empty = parent.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let store = Store::create(&empty, start()).unwrap();
    store.remove_if_unused();
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn unused_directory_is_removed() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("run");
    Store::create(&path, start()).unwrap().remove_if_unused();
    assert!(!path.exists());
}

#[test]
fn read_only_directory_is_rejected_at_creation() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("locked");
    fs::create_dir(&path).unwrap();
    let mut mode = fs::metadata(&path).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(&path, mode).unwrap();
    if fs::write(path.join("probe"), "x").is_ok() {
        let mut out = std::io::stderr();
        let _ = writeln!(
            out,
            "SKIPPED: this user writes into read-only directories (root)"
        );
        return;
    }
    for place in [path.clone(), path.join("run")] {
        let error = Store::create(&place, start()).unwrap_err();
        assert!(
            matches!(&error, StoreError::CannotWrite { cause, .. } if cause.kind() == ErrorKind::PermissionDenied),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("locked") && text.contains("--out"), "{text}");
    }
}

/// A copy of the run as a kill would leave it: without its end.
fn killed() -> (TempDir, PathBuf) {
    let (parent, path) = run_in_new_directory();
    let mut manifest = read(&path).unwrap().manifest;
    manifest.ending = None;
    manifest.started_unix_ms = FakeClock::EPOCH_UNIX_MS;
    let text = serde_json::to_vec(&manifest).unwrap();
    fs::write(path.join(MANIFEST), text).unwrap();
    (parent, path)
}

/// A record like this one, of a later round.
fn in_round(record: &TrialRecord, round: u32, started_unix_ms: u64) -> TrialRecord {
    let mut record = record.clone();
    record.trial.round = round;
    record.trial.id = TrialId::new(round, 1, 1);
    record.started_unix_ms = started_unix_ms;
    record
}

#[test]
fn resumed_store_appends_after_a_line_that_was_torn_at_any_byte() {
    let (_parent, path) = killed();
    let whole = read(&path).unwrap();
    let file = path.join(TRIALS);
    let text = fs::read(&file).unwrap();
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let last = lines.next_back().unwrap().len();
    for kept in [0, 1, last / 2, last - 2, last - 1, last] {
        fs::write(&file, &text[..text.len() - last + kept]).unwrap();
        let (mut store, before) = Store::resume(&path, 0).unwrap();
        assert_eq!(before.trials, read(&path).unwrap().trials);
        let added = in_round(&whole.trials[0], 99, 0);
        store.trial(&added, None).unwrap();
        drop(store);
        let after = read(&path).unwrap();
        let (new, old) = after.trials.split_last().unwrap();
        assert_eq!((new, old), (&added, before.trials.as_slice()), "{kept}");
        let torn = (1..last - 1).contains(&kept);
        let lost = whole.trials.len() - before.trials.len();
        assert_eq!(lost, usize::from(torn || kept == 0), "{kept}");
    }
    for name in [SAMPLES, EVIDENCE, FAILURES] {
        append(&path.join(name), b"{\"trial\":{\"id\":\"r9");
        drop(Store::resume(&path, 0).unwrap());
        let text = fs::read(path.join(name)).unwrap();
        assert_eq!(text.last(), Some(&b'\n'), "{name}");
    }
}

#[test]
fn run_that_goes_on_cannot_be_resumed() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("run");
    let mut store = Store::create(&path, start()).unwrap();
    store.prepared(&environment(), &experiment()).unwrap();
    let error = Store::resume(&path, 0).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    drop(store);
    let (_resumed, _) = Store::resume(&path, 0).unwrap();
    let error = Store::resume(&path, 0).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
}

#[test]
fn what_is_not_a_run_directory_cannot_be_resumed() {
    let (parent, path) = killed();
    let error = Store::resume(&parent.path().join("none"), 0).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    let error = Store::resume(parent.path(), 0).unwrap_err();
    assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
    fs::write(path.join(MANIFEST), "{\"format_version\": 1}").unwrap();
    let error = Store::resume(&path, 0).unwrap_err();
    assert!(matches!(error, StoreError::PastVersion { .. }), "{error}");
}

#[test]
fn resumptions_are_in_the_manifest_and_pauses_are_not_time_used() {
    let (_parent, path) = killed();
    let before = read(&path).unwrap();
    let started = before.manifest.started_unix_ms;
    let used_ms = before.took_ns() / 1_000_000;
    let (mut store, _) = Store::resume(&path, started + used_ms + 60_000).unwrap();
    let mut environment = before.manifest.environment.clone();
    environment.machines[0].boot_id = Some("another".to_owned());
    store.prepared(&environment, &experiment()).unwrap();
    let later = started + used_ms + 60_000 + 5_000;
    let added = in_round(&before.trials[0], 99, later);
    store.trial(&added, None).unwrap();
    store.ended(&Ending::Interrupted).unwrap();
    drop(store);
    let once = read(&path).unwrap();
    assert_eq!(once.manifest.ending, Some(Ending::Interrupted));
    assert_eq!(
        once.manifest.resumptions,
        [Resumption {
            at_unix_ms: started + used_ms + 60_000,
            after_round: before.last_round(),
            paused_ns: 60_000_000_000,
            restarted: true,
        }]
    );
    let trial_ns = 5_000_000_000..8_000_000_000;
    assert!(trial_ns.contains(&(once.took_ns() - before.took_ns())));
    // Twice, without a trial in between: the second pause begins where the first one ends.
    for _ in 0..2 {
        let (mut store, _) = Store::resume(&path, later + 100_000).unwrap();
        store.prepared(&environment, &experiment()).unwrap();
    }
    let thrice = read(&path).unwrap();
    assert_eq!(thrice.manifest.ending, None);
    let resumptions = &thrice.manifest.resumptions;
    let pauses: Vec<u64> = resumptions
        .iter()
        .map(|r| r.paused_ns / 1_000_000_000)
        .collect();
    assert_eq!((pauses[0], pauses[2]), (60, 0));
    assert!((95..100).contains(&pauses[1]), "{pauses:?}");
    assert!(!resumptions[1].restarted && resumptions[1].after_round == 99);
    assert_eq!(thrice.took_ns(), once.took_ns());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_do_not_panic_the_reader(
        which in 0_usize..5,
        at in 0.0_f64..1.0,
        junk in prop::collection::vec(any::<u8>(), 0..40),
        whole in any::<bool>(),
    ) {
        let (_parent, path) = run_in_new_directory();
        let file = path.join([MANIFEST, TRIALS, SAMPLES, EVIDENCE, FAILURES][which]);
        let mut bytes = if whole { Vec::new() } else { fs::read(&file).unwrap() };
        let place = (bytes.len() as f64 * at) as usize;
        bytes.splice(place..(place + junk.len() / 2).min(bytes.len()), junk);
        fs::write(&file, bytes).unwrap();
        let _ = read(&path).map_err(|e| e.to_string());
    }
}

fn evicted(count: u32) -> ClusterRecord {
    ClusterRecord::Event(ClusterEvent {
        at_unix_ms: 1,
        severity: Severity::Warning,
        variant: None,
        object: "Pod/server".to_owned(),
        reason: "Evicted".to_owned(),
        message: String::new(),
        count,
    })
}

#[test]
fn records_of_a_cluster_are_optional_and_grow_when_the_run_is_resumed() {
    let (_parent, path) = run_in_new_directory();
    assert!(!path.join(CLUSTER).exists());
    assert!(read(&path).unwrap().cluster.is_empty());
    for count in 1..=2 {
        let (mut store, _) = Store::resume(&path, 0).unwrap();
        store.observed(&evicted(count)).unwrap();
    }
    append(&path.join(CLUSTER), b"{\"id\":\"ev");
    let run = read(&path).unwrap();
    assert_eq!(run.cluster, [evicted(1), evicted(2)]);
    assert!(run.notes.iter().any(|note| note.contains(CLUSTER)));
}

#[test]
fn damaged_file_of_monitoring_costs_a_note_and_not_the_run() {
    let (_parent, path) = run_in_new_directory();
    let monitoring = Monitoring {
        url: "http://a/".to_owned(),
        from_unix_ms: 1,
        until_unix_ms: 2,
        step_ms: 1,
        queries: Vec::new(),
    };
    let (store, _) = Store::resume(&path, 0).unwrap();
    store.monitoring(&monitoring).unwrap();
    assert_eq!(read(&path).unwrap().monitoring, Some(monitoring));
    fs::write(path.join(MONITORING), "{").unwrap();
    let run = read(&path).unwrap();
    assert_eq!(run.monitoring, None);
    assert!(run.notes.iter().any(|note| note.contains(MONITORING)));
    assert!(!run.trials.is_empty());
}
