//! Runs that earlier versions stored, and what a later one makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, alone, finish, manifest, meshtax};

/// A run as it was stored by the version that drew pictures first.
pub(crate) const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/v1");

/// The stored run, to be changed.
pub(crate) fn copied(scratch: &Scratch) -> PathBuf {
    let run = scratch.path("run");
    fs::create_dir(&run).expect("a directory");
    for file in fs::read_dir(STORED).expect("the stored run").flatten() {
        fs::copy(file.path(), run.join(file.file_name())).expect("a copy");
    }
    run
}

/// Nothing that was stored is ever lost to a newer version: this test stays as it is, and later formats
/// add stores of their own.
#[test]
fn a_store_of_the_first_format_is_understood() {
    let _alone = alone();
    let scratch = Scratch::new();
    let told = finish(meshtax(&scratch, &["report", STORED, "--format", "json"]));
    let report = told.expect_code(0).json();
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
fn a_store_from_the_future_is_refused() {
    let _alone = alone();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let path = run.join("manifest.json");
    let mut manifest = manifest(&run);
    manifest["format_version"] = 999.into();
    fs::write(&path, manifest.to_string()).expect("the manifest");
    let told = finish(meshtax(&scratch, &["report", &run.display().to_string()]));
    assert!(told.expect_code(14).stderr.contains("999"), "{told:?}");
}
