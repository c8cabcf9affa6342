//! Stored runs: of this format version, of an earlier and of a later one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, beside_others, finish, manifest, meshtax};

/// A run in format version 2.
pub(crate) const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/v2");

/// The manifest of a run in format version 1.
pub(crate) const VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/v1");

/// A writable copy of the stored run.
pub(crate) fn copied(scratch: &Scratch) -> PathBuf {
    let run = scratch.path("run");
    fs::create_dir(&run).expect("a directory");
    for file in fs::read_dir(STORED).expect("the stored run").flatten() {
        fs::copy(file.path(), run.join(file.file_name())).expect("a copy");
    }
    run
}

/// A writable copy of the stored run, without any trial of this variant.
pub(crate) fn without(scratch: &Scratch, variant: &str) -> PathBuf {
    let run = copied(scratch);
    let trials = fs::read_to_string(run.join("trials.jsonl")).expect("trials");
    let of_variant = format!(r#""variant":"{variant}""#);
    let others = trials.lines().filter(|line| !line.contains(&of_variant));
    let others: Vec<&str> = others.collect();
    assert!(others.len() < trials.lines().count(), "{variant}");
    fs::write(run.join("trials.jsonl"), others.join("\n") + "\n").expect("a file");
    run
}

#[test]
fn format_version_1_is_rejected_by_report() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let finished = finish(meshtax(&scratch, &["report", VERSION_1]));
    let stderr = &finished.expect_code(14).stderr;
    for part in ["version 1", "version 2", "fix: "] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn stored_run_of_format_version_2_is_read_whole() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let finished = finish(meshtax(&scratch, &["report", STORED, "--format", "json"]));
    let report = finished.expect_code(0).json();
    assert_eq!(report["run"]["seed"], manifest(Path::new(STORED))["seed"]);
    let trials: u64 = report["variants"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|variant| variant["points"].as_array().into_iter().flatten())
        .map(|point| {
            let invalid = point["invalid"].as_object().into_iter().flatten();
            let invalid: u64 = invalid.filter_map(|(_, count)| count.as_u64()).sum();
            point["valid"].as_u64().unwrap_or(0) + invalid
        })
        .sum();
    assert_eq!(trials, 90, "every trial is there");
    let curve = &report["variants"][0]["points"][0]["curve"];
    assert!(
        curve.as_array().is_some_and(|points| points.len() > 12),
        "{curve}"
    );
}

#[test]
fn newer_format_version_is_rejected_by_report() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let path = run.join("manifest.json");
    let mut manifest = manifest(&run);
    manifest["format_version"] = 999.into();
    fs::write(&path, manifest.to_string()).expect("the manifest");
    let finished = finish(meshtax(&scratch, &["report", &run.display().to_string()]));
    assert!(
        finished.expect_code(14).stderr.contains("999"),
        "{finished:?}"
    );
}

#[test]
fn stored_run_is_reported_as_openmetrics_on_standard_output_and_in_a_file() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let report = ["report", STORED, "--format", "openmetrics"];
    let printed = finish(meshtax(&scratch, &report));
    let text = &printed.expect_code(0).stdout;
    assert!(text.starts_with("# TYPE meshtax_run info\n"), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert!(text.contains("bound=\"estimate\""), "{text}");
    let file = scratch.path("run.txt");
    let to_file = [&report[..], &["--out", file.to_str().expect("UTF-8")]].concat();
    finish(meshtax(&scratch, &to_file)).expect_code(0);
    assert_eq!(fs::read_to_string(file).expect("the file"), *text);
}
