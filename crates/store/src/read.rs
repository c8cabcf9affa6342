//! Reading: everything that was written whole, and a note on what was not.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use meshtax_model::FORMAT_VERSION;
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::event::{Resumption, active_ns};
use meshtax_model::evidence::Evidence;
use meshtax_model::failure::VariantFailure;
use meshtax_model::monitoring::Monitoring;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{
    CLUSTER, EVIDENCE, FAILURES, MANIFEST, MONITORING, Manifest, SAMPLES, StoreError, TRIALS,
};

/// A run as stored in its directory.
#[derive(Clone, Debug)]
pub struct RunOnDisk {
    /// The manifest.
    pub manifest: Manifest,
    /// In the order in which they ran.
    pub trials: Vec<TrialRecord>,
    /// At most one per trial.
    pub samples: Vec<ResourceSample>,
    /// The results of the probes.
    pub evidence: Vec<Evidence>,
    /// Variants that could not be measured.
    pub failures: Vec<VariantFailure>,
    /// What the cluster granted and reported; empty without one.
    pub cluster: Vec<ClusterRecord>,
    /// What a monitoring system recorded; `None`: none was asked, or its file cannot be read.
    pub monitoring: Option<Monitoring>,
    /// Notes on the files: a torn line, a run without an end.
    pub notes: Vec<String>,
}

impl RunOnDisk {
    /// How long it has been measuring, in nanoseconds: from its start to the end of its last trial, without pauses.
    #[must_use]
    pub fn took_ns(&self) -> u64 {
        let Manifest {
            started_unix_ms,
            resumptions,
            ..
        } = &self.manifest;
        self.last_trial().map_or(0, |last| {
            active_ns(*started_unix_ms, resumptions, last.started_unix_ms)
                .saturating_add(self.trial_ns(last))
        })
    }

    /// The last round of which there is any record; 0: there is none.
    #[must_use]
    pub fn last_round(&self) -> u32 {
        let trials = self.trials.iter().map(|record| record.trial.round);
        let evidence = self.evidence.iter().map(|evidence| evidence.round);
        let failures = self.failures.iter().map(|failure| failure.round);
        trials.chain(evidence).chain(failures).max().unwrap_or(0)
    }

    /// That the run is continued now; whether in the same boot is not known yet.
    pub(crate) fn resumption(&self, now_unix_ms: u64) -> Resumption {
        let measured_until = self.last_trial().map(|last| {
            let took_ms = self.trial_ns(last) / 1_000_000;
            last.started_unix_ms.saturating_add(took_ms)
        });
        let resumed = self.manifest.resumptions.iter().map(|r| r.at_unix_ms);
        // Without a trial since it was last started, the pause begins there.
        let until = measured_until.into_iter().chain(resumed).max();
        let until = until.unwrap_or(self.manifest.started_unix_ms);
        let rounds = self.trials.iter().map(|record| record.trial.round);
        Resumption {
            at_unix_ms: now_unix_ms,
            after_round: rounds.max().unwrap_or(0),
            paused_ns: now_unix_ms.saturating_sub(until).saturating_mul(1_000_000),
            restarted: false,
        }
    }

    fn last_trial(&self) -> Option<&TrialRecord> {
        self.trials.iter().max_by_key(|t| t.started_unix_ms)
    }

    /// How long a trial took, with its warm-up.
    fn trial_ns(&self, record: &TrialRecord) -> u64 {
        let design = &self.manifest.experiment.design;
        // A trial of a fixed number of requests ends before its time limit.
        let window_ns = match &record.outcome {
            TrialOutcome::Measured { load, .. } => load.window_ns,
            TrialOutcome::Failed { .. } => design.trial_ns,
        };
        design.warmup_ns.saturating_add(window_ns)
    }
}

/// Reads a run directory, whether its run has ended, was killed, or is in progress.
///
/// # Errors
/// If it is not a run directory, a newer meshtax wrote it, or a line other than a torn last
/// one cannot be read.
pub fn read(path: &Path) -> Result<RunOnDisk, StoreError> {
    let mut run = records(path)?;
    if run.manifest.ending.is_none() {
        let note = "the run has not ended: it was killed, or it still goes on";
        run.notes.insert(0, note.to_owned());
    }
    Ok(run)
}

/// As [`read()`], without a note on the run's end.
pub(crate) fn records(path: &Path) -> Result<RunOnDisk, StoreError> {
    let manifest = manifest(path)?;
    let mut notes = Vec::new();
    // Trials before samples: the writer's order is the reverse, so that every trial
    // read here has its sample even while the run is in progress.
    let trials: Vec<TrialRecord> = lines(path.join(TRIALS), &mut notes)?;
    let samples: Vec<ResourceSample> = lines(path.join(SAMPLES), &mut notes)?;
    only_once(path.join(TRIALS), trials.iter().map(|t| &t.trial.id))?;
    only_once(path.join(SAMPLES), samples.iter().map(|s| &s.trial))?;
    let samples = with_trial(samples, &trials, &mut notes);
    Ok(RunOnDisk {
        trials,
        samples,
        evidence: lines(path.join(EVIDENCE), &mut notes)?,
        failures: lines(path.join(FAILURES), &mut notes)?,
        cluster: match path.join(CLUSTER).exists() {
            true => lines(path.join(CLUSTER), &mut notes)?,
            false => Vec::new(),
        },
        monitoring: monitoring(path, &mut notes),
        manifest,
        notes,
    })
}

/// Context only: a damaged file costs a note.
fn monitoring(directory: &Path, notes: &mut Vec<String>) -> Option<Monitoring> {
    let path = directory.join(MONITORING);
    let bytes = fs::read(&path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(monitoring) => Some(monitoring),
        Err(cause) => {
            notes.push(format!(
                "{MONITORING} cannot be read and is left out: {cause}"
            ));
            None
        }
    }
}

/// The one field that every version of the manifest has.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

pub(crate) fn manifest(directory: &Path) -> Result<Manifest, StoreError> {
    let path = directory.join(MANIFEST);
    let bytes = fs::read(&path).map_err(|cause| no_manifest(directory, &path, cause))?;
    let corrupt = |cause| StoreError::CorruptManifest {
        path: path.clone(),
        cause,
    };
    let version: Version = serde_json::from_slice(&bytes).map_err(corrupt)?;
    let (found, known) = (version.format_version, FORMAT_VERSION);
    match found.cmp(&known) {
        Ordering::Greater => return Err(StoreError::FutureVersion { path, found, known }),
        Ordering::Less => return Err(StoreError::PastVersion { path, found, known }),
        Ordering::Equal => {}
    }
    serde_json::from_slice(&bytes).map_err(corrupt)
}

fn no_manifest(directory: &Path, path: &Path, cause: io::Error) -> StoreError {
    let not_a_run = |why| StoreError::NotARun {
        path: directory.to_owned(),
        why,
    };
    match cause.kind() {
        io::ErrorKind::NotFound if !directory.exists() => StoreError::NotFound {
            path: directory.to_owned(),
        },
        io::ErrorKind::NotFound if directory.join(TRIALS).exists() => {
            not_a_run("it has no manifest.json; the run ended before anything was measured")
        }
        io::ErrorKind::NotFound => not_a_run("it has no manifest.json"),
        io::ErrorKind::NotADirectory => not_a_run("it is a file"),
        _ => StoreError::read(path, cause),
    }
}

/// The records of a file. A last line without its end is torn: it is left out with a note
/// unless it is complete all the same.
fn lines<T: DeserializeOwned>(
    path: PathBuf,
    notes: &mut Vec<String>,
) -> Result<Vec<T>, StoreError> {
    let file = File::open(&path).map_err(|e| StoreError::read(&path, e))?;
    let mut reader = BufReader::new(file);
    let mut records = Vec::new();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|e| StoreError::read(&path, e))? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) if line.last() != Some(&b'\n') => notes.push(format!(
                "{}:{number} was cut off while it was written and is left out",
                file_name(&path)
            )),
            Err(cause) => {
                return Err(StoreError::CorruptLine {
                    path,
                    line: number,
                    cause: within_line(&cause),
                });
            }
        }
    }
    Ok(records)
}

/// serde_json's message with its "line 1" taken out: the line is the file's.
fn within_line(cause: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", cause.line(), cause.column());
    let message = cause.to_string().replace(&place, "");
    format!("{message} (column {})", cause.column())
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}

/// Two records of one trial would count it twice.
fn only_once<'a>(
    path: PathBuf,
    trials: impl Iterator<Item = &'a TrialId>,
) -> Result<(), StoreError> {
    let mut seen = BTreeSet::new();
    for (trial, line) in trials.zip(1_u64..) {
        if !seen.insert(trial) {
            return Err(StoreError::CorruptLine {
                path,
                line,
                cause: format!("a second record of the trial {trial}"),
            });
        }
    }
    Ok(())
}

/// A kill between a sample and its trial leaves a sample of nothing.
fn with_trial(
    mut samples: Vec<ResourceSample>,
    trials: &[TrialRecord],
    notes: &mut Vec<String>,
) -> Vec<ResourceSample> {
    let known: BTreeSet<&TrialId> = trials.iter().map(|t| &t.trial.id).collect();
    samples.retain(|sample| {
        let has_trial = known.contains(&sample.trial);
        if !has_trial {
            notes.push(format!(
                "{SAMPLES} has a sample of the trial {}, which is not in {TRIALS}: left out",
                sample.trial
            ));
        }
        has_trial
    });
    samples
}
