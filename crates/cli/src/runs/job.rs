//! Executing an experiment.

use std::cell::RefCell;
use std::path::PathBuf;

use meshtax_dataplane::Sabotage;
use meshtax_engine::{Engine, RunOptions, RunOutcome, SystemClock, Watch};
use meshtax_kube::KubernetesEngine;
use meshtax_local::{LocalEngine, LocalOptions};
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_store::{RunStart, Store};

use super::live::Live;
use super::programs;
use crate::args::{KubernetesArgs, ProgramArgs};
use crate::exit::{Failure, MISSING};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::random;

/// An experiment to run, and its settings.
pub(crate) struct Job {
    pub(crate) experiment: Experiment,
    /// The run directory; `None`: the default.
    pub(crate) out: Option<PathBuf>,
    /// `None`: random.
    pub(crate) seed: Option<u64>,
    pub(crate) programs: ProgramArgs,
    pub(crate) sabotage: Vec<(VariantId, Sabotage)>,
    /// The cluster to run on; `None`: this machine.
    pub(crate) cluster: Option<KubernetesArgs>,
    /// Show the page in a browser during the run.
    pub(crate) open: bool,
}

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
            sabotage: Vec::new(),
            cluster: None,
            open: false,
        }
    }

    pub(crate) fn execute(self) -> Result<FinishedRun, Failure> {
        let interrupt = Interrupt::catch();
        let seed = self.seed.unwrap_or_else(random::seed);
        let mut store = self.create_store(seed)?;
        let directory = store.path().to_path_buf();
        let measured = self.measure(seed, &mut store, &interrupt);
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
            meshtax_version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms,
            seed,
        };
        Store::create(&path, start).map_err(|e| Failure::new(MISSING, e))
    }

    fn engine(&self, progress: &Progress) -> Result<Box<dyn Engine>, Failure> {
        let sabotage = self.sabotage.iter().cloned().collect();
        if let Some(cluster) = &self.cluster {
            let options = cluster.options(sabotage);
            let run = &options.run;
            progress.line(&format!("on the cluster, this is run {run}"));
            return Ok(Box::new(KubernetesEngine::new(options)));
        }
        let programs = programs::of_experiment(&self.experiment, &self.programs, progress)?;
        Ok(Box::new(LocalEngine::new(LocalOptions {
            programs,
            sabotage,
        })))
    }

    fn measure(
        self,
        seed: u64,
        store: &mut Store,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome, Failure> {
        let experiment = &self.experiment;
        let mut progress = Progress::new();
        let mut engine = self.engine(&progress)?;
        let live = Live::new(store.path(), experiment.design.precision, self.open);
        let live = RefCell::new(live);
        let outcome = meshtax_engine::run(
            &mut *engine,
            experiment,
            RunOptions { seed },
            store,
            Watch {
                clock: &SystemClock::new(),
                events: &mut |event| {
                    progress.show(&event);
                    live.borrow_mut().update(&event, &mut progress);
                },
                interrupted: &interrupt.flag,
                enough: &mut || live.borrow_mut().is_precise_enough(),
            },
        );
        progress.clear();
        Ok(outcome)
    }
}
