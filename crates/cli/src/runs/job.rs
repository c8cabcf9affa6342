//! Executing an experiment.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use meshtax_dataplane::Sabotage;
use meshtax_engine::{Earlier, Engine, RunOptions, RunOutcome, SystemClock, Watch, never_started};
use meshtax_kube::{KubernetesEngine, KubernetesOptions};
use meshtax_local::{LocalEngine, LocalOptions};
use meshtax_model::comparison::Differing;
use meshtax_model::environment::Environment;
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_stats::{Conditions, changed_conditions};
use meshtax_store::{RunOnDisk, RunStart, Store};

use super::live::Live;
use super::{programs, prometheus};
use crate::args::{KubernetesArgs, ProgramArgs, PrometheusArgs};
use crate::exit::{Failure, MISSING};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::random;
use crate::terminal;

/// An experiment to run, and its settings.
pub(crate) struct Job {
    pub(crate) experiment: Experiment,
    /// The run directory; `None`: the default.
    pub(crate) out: Option<PathBuf>,
    /// `None`: random.
    pub(crate) seed: Option<u64>,
    pub(crate) programs: ProgramArgs,
    /// A program that cannot be had ends the job before it starts: it compares two sides.
    pub(crate) all_programs_required: bool,
    pub(crate) sabotage: Vec<(VariantId, Sabotage)>,
    /// The cluster to run on; `None`: this machine.
    pub(crate) cluster: Option<KubernetesArgs>,
    /// What a Prometheus is asked afterwards.
    pub(crate) prometheus: PrometheusArgs,
    /// Show the page in a browser during the run.
    pub(crate) open: bool,
    /// The run that is continued; `None`: it is a new one.
    pub(crate) interrupted: Option<InterruptedRun>,
}

/// A run that was interrupted.
pub(crate) struct InterruptedRun {
    pub(crate) store: Store,
    /// What is in the store.
    pub(crate) run: RunOnDisk,
}

/// meshtax's own.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run that has ended.
pub(crate) struct FinishedRun {
    pub(crate) outcome: RunOutcome,
    pub(crate) directory: PathBuf,
    interrupt: Interrupt,
}

impl FinishedRun {
    /// The exit code of a run that was interrupted.
    pub(crate) fn interrupted(&self) -> Option<u8> {
        self.interrupt.exit_code()
    }
}

impl Job {
    /// A job with default settings.
    pub(crate) fn new(experiment: Experiment) -> Self {
        Self {
            experiment,
            out: None,
            seed: None,
            programs: ProgramArgs::default(),
            all_programs_required: false,
            sabotage: Vec::new(),
            cluster: None,
            prometheus: PrometheusArgs::default(),
            open: false,
            interrupted: None,
        }
    }

    pub(crate) fn execute(mut self) -> Result<FinishedRun, Failure> {
        let interrupt = Interrupt::catch();
        let seed = self.seed.unwrap_or_else(random::seed);
        let (mut store, earlier) = match self.interrupted.take() {
            Some(InterruptedRun { store, run }) => (store, Some(run)),
            None => (self.create_store(seed)?, None),
        };
        let directory = store.path().to_path_buf();
        let prometheus = self.prometheus.clone();
        let measured = self.measure(seed, earlier.as_ref(), &mut store, &interrupt);
        record_monitoring(&prometheus, &store);
        if !directory.join(meshtax_store::MANIFEST).is_file() {
            store.remove_if_unused();
        }
        Ok(FinishedRun {
            outcome: measured?,
            directory,
            interrupt,
        })
    }

    fn create_store(&self, seed: u64) -> Result<Store, Failure> {
        let started_unix_ms = meshtax_observe::unix_ms();
        let suffix = random::seed() as u16;
        let run_id = meshtax_store::run_id(started_unix_ms, &self.experiment.name, suffix);
        let path = self
            .out
            .clone()
            .unwrap_or_else(|| meshtax_store::default_path(&run_id));
        let start = RunStart {
            run_id,
            meshtax_version: VERSION.into(),
            started_unix_ms,
            seed,
        };
        Store::create(&path, start).map_err(|e| Failure::new(MISSING, e))
    }

    /// `earlier`: what was measured before the run was interrupted.
    fn engine(
        &self,
        earlier: Option<&RunOnDisk>,
        progress: &Progress,
        interrupt: &Interrupt,
    ) -> Result<Box<dyn Engine>, Failure> {
        let sabotage = self.sabotage.iter().cloned().collect();
        if let Some(cluster) = &self.cluster {
            let options = KubernetesOptions {
                interrupted_run: earlier
                    .and_then(|run| run.manifest.environment.cluster_run.clone()),
                ..cluster.options(sabotage)
            };
            let run = &options.run;
            progress.line(&format!("on the cluster, this is run {run}"));
            return Ok(Box::new(KubernetesEngine::new(options)));
        }
        if self.experiment.kubernetes.is_some() {
            let note = "note: `kubernetes` in the spec applies to runs on a cluster only, and has no effect here";
            progress.line(note);
        }
        let mut experiment = self.experiment.clone();
        let excluded = earlier.map(excluded).unwrap_or_default();
        experiment.variants.retain(|v| !excluded.contains(&v.id));
        let programs = programs::of_experiment(
            &experiment,
            &self.programs,
            self.all_programs_required,
            progress,
        )?;
        Ok(Box::new(LocalEngine::new(LocalOptions {
            programs,
            sabotage,
            interrupted: Arc::clone(&interrupt.flag),
        })))
    }

    fn measure(
        self,
        seed: u64,
        earlier: Option<&RunOnDisk>,
        store: &mut Store,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome, Failure> {
        let experiment = &self.experiment;
        let mut progress = Progress::new();
        let mut engine = self.engine(earlier, &progress, interrupt)?;
        let trials = earlier.iter().flat_map(|run| &run.trials);
        let rounds = trials.map(|record| record.trial.round).collect();
        let precision = experiment.design.precision;
        let live = RefCell::new(Live::new(store.path(), precision, rounds, self.open));
        let watch = Watch {
            clock: &SystemClock::new(),
            events: &mut |event| {
                progress.show(&event);
                live.borrow_mut().update(&event, &mut progress);
            },
            interrupted: &interrupt.flag,
            enough: &mut || live.borrow_mut().is_precise_enough(),
        };
        let options = RunOptions { seed };
        let outcome = match earlier {
            None => meshtax_engine::run(&mut *engine, experiment, options, store, watch),
            Some(run) => {
                let earlier = Earlier {
                    trials: &run.trials,
                    failures: &run.failures,
                    last_round: run.last_round(),
                    used_ns: run.took_ns(),
                    changed: &|environment| changed(run, environment),
                };
                meshtax_engine::resume(&mut *engine, experiment, options, &earlier, store, watch)
            }
        };
        progress.clear();
        Ok(outcome)
    }
}

/// Stores what a Prometheus recorded meanwhile. What cannot be had is said, and costs nothing else.
fn record_monitoring(args: &PrometheusArgs, store: &Store) {
    if !store.has_manifest() {
        return;
    }
    let times = (store.started_unix_ms(), meshtax_observe::unix_ms());
    let Some((monitoring, errors)) = prometheus::read(args, times) else {
        return;
    };
    for error in errors {
        let fix = error.fix();
        terminal::say(&format!(
            "note: --prometheus: {error}; the run is not affected\n  fix: {fix}"
        ));
    }
    if let Err(error) = store.monitoring(&monitoring) {
        terminal::say(&format!(
            "note: the data of --prometheus could not be stored: {error}"
        ));
    }
}

/// The variants that never started: they are not tried again.
fn excluded(run: &RunOnDisk) -> BTreeSet<VariantId> {
    let failures = never_started(&run.trials, &run.failures);
    failures.into_iter().map(|f| f.variant).collect()
}

/// The conditions of a run that do not hold in this environment.
fn changed(run: &RunOnDisk, environment: &Environment) -> Vec<Differing> {
    let before = Conditions {
        meshtax_version: &run.manifest.meshtax_version,
        environment: &run.manifest.environment,
    };
    let now = Conditions {
        meshtax_version: VERSION,
        environment,
    };
    changed_conditions(before, now, &excluded(run))
}
