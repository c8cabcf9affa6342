//! `meshtax run --resume`: continuing an interrupted run.

use std::path::Path;

use clap::ValueEnum as _;
use meshtax_engine::{NotComparable, RunError};
use meshtax_model::event::Ending;
use meshtax_store::{RunOnDisk, Store, StoreError};

use super::run::{format, reject_cluster_options};
use crate::args::{EngineName, KubernetesArgs, RunArgs};
use crate::exit::{Failure, MISSING, Outcome, REFUSED, SUCCESS, UNREADABLE, USAGE};
use crate::progress::duration;
use crate::runs::conclusion::conclude;
use crate::runs::job::{InterruptedRun, Job};
use crate::runs::{render, series, stored};
use crate::terminal;

pub(crate) fn resume(args: &RunArgs, path: &Path) -> Outcome {
    if series::is_series(path) {
        let message = format!("{} is a series of runs", path.display());
        let fix = "name one of the directories in it; each of its runs is resumed on its own";
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    // The files of a complete run are only read.
    let run = stored::read(path)?;
    if is_complete(&run) {
        report(args, &run);
        return Ok(SUCCESS);
    }
    let engine = engine_of(&run)?;
    if engine == EngineName::Local {
        reject_cluster_options(&args.kubernetes)?;
    }
    let opened = Store::resume(path, meshtax_observe::unix_ms());
    let (store, run) = opened.map_err(cannot_be_resumed)?;
    // It may have ended just before.
    if is_complete(&run) {
        report(args, &run);
        return Ok(SUCCESS);
    }
    announce(&run);
    let finished = job(args, engine, store, run).execute()?;
    if let Some(RunError::NotComparable(changed)) = &finished.outcome.problem {
        return Err(refused(path, changed));
    }
    conclude(&finished, |_, analysis| {
        render::run(analysis, format(args), terminal::options())
    })
}

fn is_complete(run: &RunOnDisk) -> bool {
    let ending = run.manifest.ending.as_ref();
    ending.is_some_and(Ending::is_complete)
}

/// Nothing is left to measure.
fn report(args: &RunArgs, run: &RunOnDisk) {
    let id = &run.manifest.run_id;
    terminal::say(&format!("{id} is complete: nothing is left to measure"));
    let analysis = stored::analyse(run);
    terminal::print(&render::run(&analysis, format(args), terminal::options()));
}

fn engine_of(run: &RunOnDisk) -> Result<EngineName, Failure> {
    let name = &run.manifest.environment.engine;
    EngineName::from_str(name, false).map_err(|_| {
        let message = format!(
            "{} was measured with the unknown engine {name}",
            run.manifest.run_id
        );
        Failure::with_fix(UNREADABLE, message, "use the meshtax that began the run")
    })
}

fn cannot_be_resumed(error: StoreError) -> Failure {
    let code = match error {
        StoreError::InUse { .. } | StoreError::CannotWrite { .. } => MISSING,
        _ => UNREADABLE,
    };
    Failure::new(code, error)
}

fn announce(run: &RunOnDisk) {
    let limit_ns = run.manifest.experiment.design.time_limit_ns;
    terminal::say(&format!(
        "resuming {} after round {}: {} trials are on record, {} left",
        run.manifest.run_id,
        run.last_round(),
        run.trials.len(),
        duration(limit_ns.saturating_sub(run.took_ns()))
    ));
}

fn job(args: &RunArgs, engine: EngineName, store: Store, run: RunOnDisk) -> Job {
    let job = Job {
        cluster: (engine == EngineName::Kubernetes).then(|| cluster(args, &run)),
        seed: Some(run.manifest.seed),
        programs: args.programs.clone(),
        open: args.open,
        prometheus: args.prometheus.clone(),
        ..Job::new(run.manifest.experiment.clone())
    };
    Job {
        interrupted: Some(InterruptedRun { store, run }),
        ..job
    }
}

/// The run's nodes and its image, unless another reference to it is given.
fn cluster(args: &RunArgs, run: &RunOnDisk) -> KubernetesArgs {
    let environment = &run.manifest.environment;
    let recorded = environment.meshtax.as_ref();
    let recorded = || recorded.and_then(|own| own.image.clone());
    KubernetesArgs {
        nodes: environment.nodes.iter().map(|n| n.name.clone()).collect(),
        image: args.kubernetes.image.clone().or_else(recorded),
        ..args.kubernetes.clone()
    }
}

fn refused(path: &Path, error: &NotComparable) -> Failure {
    let list: Vec<String> = error.changed.iter().map(meshtax_report::change).collect();
    let message = format!(
        "{} cannot be resumed here: further trials would not be comparable with its own\n  {}",
        path.display(),
        list.join("\n  ")
    );
    let fix =
        "restore these conditions, or begin a new run; `meshtax report` reports what was measured";
    Failure::with_fix(REFUSED, message, fix)
}
