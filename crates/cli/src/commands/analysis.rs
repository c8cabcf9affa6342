//! From a run directory to its analysis.

use std::path::Path;

use meshtax_model::analysis::{Analysis, RunFacts};
use meshtax_model::trial::TrialOutcome;
use meshtax_stats::RunData;
use meshtax_store::RunOnDisk;

use crate::exit::{Failure, UNREADABLE};
use crate::terminal::say;

/// Reads and understands a run.
pub(crate) fn of_directory(path: &Path) -> Result<Analysis, Failure> {
    beside(path, None)
}

/// The same, with what a study prints of a run, as if the run's spec had named it.
pub(crate) fn beside(path: &Path, study: Option<&str>) -> Result<Analysis, Failure> {
    let mut run = read(path)?;
    if let Some(study) = study {
        run.manifest.experiment.study = Some(study.to_owned());
    }
    Ok(meshtax_stats::analyse(&data(&run)))
}

/// As far as a run can be read and understood now, without a word: it goes on, and is read again.
pub(crate) fn quietly(path: &Path) -> Option<Analysis> {
    let run = meshtax_store::read(path).ok()?;
    Some(meshtax_stats::analyse(&data(&run)))
}

/// Reads a run, and tells what was odd about its files.
pub(crate) fn read(path: &Path) -> Result<RunOnDisk, Failure> {
    let run = meshtax_store::read(path).map_err(|e| Failure::new(UNREADABLE, e))?;
    for note in &run.notes {
        say(&format!("note: {note}"));
    }
    Ok(run)
}

/// What the statistics need of a run on disk.
pub(crate) fn data(run: &RunOnDisk) -> RunData<'_> {
    let manifest = &run.manifest;
    RunData {
        run: RunFacts {
            id: manifest.run_id.clone(),
            meshtax_version: manifest.meshtax_version.clone(),
            started_unix_ms: manifest.started_unix_ms,
            took_ns: took_ns(run),
            seed: manifest.seed,
            ending: manifest.ending.clone(),
        },
        experiment: &manifest.experiment,
        environment: &manifest.environment,
        trials: &run.trials,
        samples: &run.samples,
        evidence: &run.evidence,
        failures: &run.failures,
    }
}

/// From the run's start to the last trial's end, as far as the records tell.
fn took_ns(run: &RunOnDisk) -> u64 {
    let design = &run.manifest.experiment.design;
    let last = run.trials.iter().max_by_key(|t| t.started_unix_ms);
    last.map_or(0, |last| {
        // A trial by the number of its requests is over before its time.
        let window_ns = match &last.outcome {
            TrialOutcome::Measured { load, .. } => load.window_ns,
            TrialOutcome::Failed { .. } => design.trial_ns,
        };
        let begin = last.started_unix_ms;
        let before_ns = begin.saturating_sub(run.manifest.started_unix_ms);
        let before_ns = before_ns.saturating_mul(1_000_000);
        before_ns
            .saturating_add(design.warmup_ns)
            .saturating_add(window_ns)
    })
}
