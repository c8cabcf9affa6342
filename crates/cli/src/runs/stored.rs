//! Stored runs and their analyses.

use std::path::Path;

use meshtax_model::analysis::{Analysis, Caveat, RunFacts};
use meshtax_stats::RunData;
use meshtax_store::RunOnDisk;

use crate::exit::{Failure, UNREADABLE};
use crate::terminal::say;

/// The analysis of a run.
pub(crate) fn analysis(path: &Path) -> Result<Analysis, Failure> {
    analysis_with_study(path, None)
}

/// The same, as if the run's spec had named `study`.
pub(crate) fn analysis_with_study(path: &Path, study: Option<&str>) -> Result<Analysis, Failure> {
    let mut run = read(path)?;
    if let Some(study) = study {
        run.manifest.experiment.study = Some(study.to_owned());
    }
    let mut analysis = analyse(&run);
    if let Some(study) = study {
        analysis.caveats.push(Caveat::PublishedFigures {
            study: study.to_owned(),
        });
    }
    Ok(analysis)
}

/// The analysis of a run in progress, without any message; `None` if it cannot be read now.
pub(crate) fn analysis_so_far(path: &Path) -> Option<Analysis> {
    let run = meshtax_store::read(path).ok()?;
    Some(analyse(&run))
}

/// The analysis of a run that was read, with its context.
pub(crate) fn analyse(run: &RunOnDisk) -> Analysis {
    let mut analysis = meshtax_stats::analyse(&data(run));
    analysis.monitoring = run.monitoring.clone();
    analysis
}

/// Reads a run, and reports anomalies in its files.
pub(crate) fn read(path: &Path) -> Result<RunOnDisk, Failure> {
    let run = meshtax_store::read(path).map_err(|e| Failure::new(UNREADABLE, e))?;
    for note in &run.notes {
        say(&format!("note: {note}"));
    }
    Ok(run)
}

/// The data of a stored run that the analysis needs.
pub(crate) fn data(run: &RunOnDisk) -> RunData<'_> {
    let manifest = &run.manifest;
    RunData {
        run: RunFacts {
            id: manifest.run_id.clone(),
            meshtax_version: manifest.meshtax_version.clone(),
            started_unix_ms: manifest.started_unix_ms,
            took_ns: run.took_ns(),
            seed: manifest.seed,
            ending: manifest.ending.clone(),
            resumptions: manifest.resumptions.clone(),
        },
        experiment: &manifest.experiment,
        environment: &manifest.environment,
        trials: &run.trials,
        samples: &run.samples,
        evidence: &run.evidence,
        failures: &run.failures,
        cluster: &run.cluster,
    }
}
