//! Writing: one line, one write, and on the disk before the next trial.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use meshtax_engine::{Sink, SinkError};
use meshtax_model::FORMAT_VERSION;
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::{Environment, Host};
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::Experiment;
use meshtax_model::failure::{TrialFailure, VariantFailure};
use meshtax_model::monitoring::Monitoring;
use meshtax_model::trial::{ResourceSample, TrialOutcome, TrialRecord};
use serde::Serialize;

use crate::log::Log;
use crate::read::{self, RunOnDisk};
use crate::{
    CLUSTER, EVIDENCE, FAILURES, MANIFEST, MONITORING, Manifest, RunStart, SAMPLES, StoreError,
    TRIALS,
};

/// Written once to see that there is room at all, then removed.
const PROBE: &str = ".probe";
const PROBE_BYTES: usize = 64 * 1024;

/// A run directory that is being written.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    start: RunStart,
    manifest: Option<Manifest>,
    /// That it is continued, from [`Sink::prepared`] on.
    resumption: Option<Resumption>,
    trials: Log,
    samples: Log,
    evidence: Log,
    failures: Log,
    /// `None`: there is nothing in it.
    cluster: Option<Log>,
    created: bool,
    created_parent: bool,
}

impl Store {
    /// Makes the directory and its files, and tries whether it can be written.
    ///
    /// [`Sink::prepared`] writes the manifest: until then this is not a run directory.
    ///
    /// # Errors
    /// If the path is a file, is a directory with something in it, or cannot be written.
    pub fn create(path: &Path, start: RunStart) -> Result<Self, StoreError> {
        let created = !path.exists();
        let created_parent = path
            .parent()
            .is_some_and(|parent| !parent.as_os_str().is_empty() && !parent.exists());
        make_directory(path)?;
        probe(path)?;
        let trials = Log::create(path.join(TRIALS))?;
        own(path, &trials)?;
        Ok(Self {
            trials,
            samples: Log::create(path.join(SAMPLES))?,
            evidence: Log::create(path.join(EVIDENCE))?,
            failures: Log::create(path.join(FAILURES))?,
            cluster: None,
            path: path.to_owned(),
            manifest: None,
            resumption: None,
            start,
            created,
            created_parent,
        })
    }

    /// Opens the directory of a run that was interrupted, to continue it: what is in it, and where the rest goes.
    ///
    /// Nothing in it changes before [`Sink::prepared`], which records the resumption, except that a torn line is
    /// removed.
    ///
    /// # Errors
    /// If it is not a run directory that can be read and written, or its run goes on.
    pub fn resume(path: &Path, now_unix_ms: u64) -> Result<(Self, RunOnDisk), StoreError> {
        // Before the lock: what is not a run directory has no file to lock.
        read::manifest(path)?;
        let mut trials = Log::open(path.join(TRIALS))?;
        own(path, &trials)?;
        let run = read::records(path)?;
        trials.repair()?;
        let open = |name| {
            let mut log = Log::open(path.join(name))?;
            log.repair()?;
            Ok(log)
        };
        let manifest = &run.manifest;
        let store = Self {
            trials,
            samples: open(SAMPLES)?,
            evidence: open(EVIDENCE)?,
            failures: open(FAILURES)?,
            cluster: match path.join(CLUSTER).exists() {
                true => Some(open(CLUSTER)?),
                false => None,
            },
            path: path.to_owned(),
            start: RunStart {
                run_id: manifest.run_id.clone(),
                meshtax_version: manifest.meshtax_version.clone(),
                started_unix_ms: manifest.started_unix_ms,
                seed: manifest.seed,
            },
            manifest: Some(manifest.clone()),
            resumption: Some(run.resumption(now_unix_ms)),
            created: false,
            created_parent: false,
        };
        Ok((store, run))
    }

    /// The run directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// When the run began, in milliseconds since 1970.
    #[must_use]
    pub fn started_unix_ms(&self) -> u64 {
        self.start.started_unix_ms
    }

    /// Whether the run was prepared: until then this is not a run directory.
    #[must_use]
    pub fn has_manifest(&self) -> bool {
        self.manifest.is_some()
    }

    /// Stores what a monitoring system recorded over the run, in place of what is there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn monitoring(&self, monitoring: &Monitoring) -> Result<(), StoreError> {
        replace(&self.path, MONITORING, monitoring)
    }

    /// Removes the directory if the run never wrote its manifest. For a run that
    /// failed before anything could be measured; what cannot be removed stays.
    pub fn remove_if_unused(self) {
        if self.manifest.is_some() {
            return;
        }
        for name in [TRIALS, SAMPLES, EVIDENCE, FAILURES] {
            let _ = fs::remove_file(self.path.join(name));
        }
        // A directory that was there before is the user's.
        if self.created {
            let _ = fs::remove_dir(&self.path);
        }
        // A parent directory that was created for it is removed as well if it is empty.
        if let Some(parent) = self.path.parent().filter(|_| self.created_parent) {
            let _ = fs::remove_dir(parent);
        }
    }

    fn write_manifest(&mut self, manifest: Manifest) -> Result<(), StoreError> {
        replace(&self.path, MANIFEST, &manifest)?;
        self.manifest = Some(manifest);
        Ok(())
    }
}

impl Sink for Store {
    fn prepared(
        &mut self,
        environment: &Environment,
        experiment: &Experiment,
    ) -> Result<(), SinkError> {
        if let (Some(manifest), Some(resumption)) = (&self.manifest, &self.resumption) {
            let manifest = resumed(manifest.clone(), resumption.clone(), environment);
            return self.write_manifest(manifest).map_err(SinkError::new);
        }
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            run_id: self.start.run_id.clone(),
            meshtax_version: self.start.meshtax_version.clone(),
            started_unix_ms: self.start.started_unix_ms,
            seed: self.start.seed,
            experiment: experiment.clone(),
            environment: environment.clone(),
            resumptions: Vec::new(),
            ending: None,
        };
        self.write_manifest(manifest).map_err(SinkError::new)
    }

    // Both are on the disk before the trials that they decide on.

    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError> {
        self.evidence.append(evidence).map_err(SinkError::new)?;
        self.evidence.sync().map_err(SinkError::new)
    }

    // Of the report only: it need not be on the disk before the next trial.
    fn observed(&mut self, record: &ClusterRecord) -> Result<(), SinkError> {
        if self.cluster.is_none() {
            let created = Log::create(self.path.join(CLUSTER));
            self.cluster = Some(created.map_err(SinkError::new)?);
        }
        let log = self.cluster.as_mut();
        log.map_or(Ok(()), |log| log.append(record).map_err(SinkError::new))
    }

    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError> {
        self.failures.append(failure).map_err(SinkError::new)?;
        self.failures.sync().map_err(SinkError::new)
    }

    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError> {
        // The sample first: a trial on the disk always has its sample.
        if let Some(sample) = sample {
            self.samples.append(sample).map_err(SinkError::new)?;
            self.samples.sync().map_err(SinkError::new)?;
        }
        self.trials
            .append(&readable(record))
            .map_err(SinkError::new)?;
        self.trials.sync().map_err(SinkError::new)
    }

    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError> {
        let Some(manifest) = self.manifest.clone() else {
            return Ok(());
        };
        self.write_manifest(Manifest {
            ending: Some(ending.clone()),
            ..manifest
        })
        .map_err(SinkError::new)
    }
}

/// The manifest of a run that is continued in this environment, which equals its own but for a restart.
fn resumed(manifest: Manifest, resumption: Resumption, environment: &Environment) -> Manifest {
    let machines = &environment.machines;
    let boots = |machines: &[Host]| -> Vec<_> {
        let ids = machines.iter().map(|host| host.boot_id.clone());
        ids.collect()
    };
    let restarted = boots(&manifest.environment.machines) != boots(machines);
    let mut resumptions = manifest.resumptions;
    resumptions.push(Resumption {
        restarted,
        ..resumption
    });
    Manifest {
        environment: Environment {
            machines: machines.clone(),
            cluster_run: environment.cluster_run.clone(),
            ..manifest.environment
        },
        resumptions,
        ending: None,
        ..manifest
    }
}

/// Only one process writes into a run directory.
fn own(directory: &Path, trials: &Log) -> Result<(), StoreError> {
    match trials.try_lock() {
        true => Ok(()),
        false => Err(StoreError::InUse {
            path: directory.to_owned(),
        }),
    }
}

/// The record, or a failed trial in its place if it could not be read back.
///
/// JSON has no NaN: one bad figure would otherwise make the whole run unreadable.
fn readable(record: &TrialRecord) -> Cow<'_, TrialRecord> {
    let text = serde_json::to_vec(record);
    let back = text.and_then(|bytes| serde_json::from_slice::<TrialRecord>(&bytes));
    match back {
        Ok(_) => Cow::Borrowed(record),
        Err(cause) => Cow::Owned(TrialRecord {
            outcome: TrialOutcome::Failed {
                failure: TrialFailure::NotStorable {
                    detail: cause.to_string(),
                },
            },
            ..record.clone()
        }),
    }
}

fn make_directory(path: &Path) -> Result<(), StoreError> {
    if path.exists() && !path.is_dir() {
        return Err(StoreError::NotADirectory {
            path: path.to_owned(),
        });
    }
    fs::create_dir_all(path).map_err(|e| StoreError::write(path, e))?;
    let mut entries = fs::read_dir(path).map_err(|e| StoreError::write(path, e))?;
    if entries.next().is_some() {
        return Err(StoreError::Occupied {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn probe(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join(PROBE);
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&[0; PROBE_BYTES])
            .and_then(|()| file.sync_data())
    });
    let removed = fs::remove_file(&path);
    written
        .and(removed)
        .map_err(|e| StoreError::write(directory, e))
}

/// Replaces a file atomically: a reader sees either the old content or the new.
fn replace(directory: &Path, name: &str, content: &impl Serialize) -> Result<(), StoreError> {
    let path = directory.join(name);
    let temporary = directory.join(format!(".{name}.tmp"));
    let result = (|| {
        let mut bytes = serde_json::to_vec_pretty(content).map_err(io::Error::other)?;
        bytes.push(b'\n');
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        // The new name itself is on the disk only once its directory is.
        File::open(directory)?.sync_all()
    })();
    result.map_err(|e| StoreError::write(path, e))
}
