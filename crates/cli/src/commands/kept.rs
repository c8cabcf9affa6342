//! The records of a run while it goes on, for what must be known before it ends.

use std::cell::RefCell;

use meshtax_engine::{Sink, SinkError};
use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::evidence::{Evidence, VariantFailure};
use meshtax_model::experiment::Experiment;
use meshtax_model::trial::{ResourceSample, TrialRecord};
use meshtax_store::Store;

/// Keeps records in memory as well, where stopping on precision needs them.
pub(crate) struct KeepingSink<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) kept: Option<&'a RefCell<Kept>>,
}

/// The records so far.
#[derive(Default)]
pub(crate) struct Kept {
    prepared: Option<(Environment, Experiment)>,
    trials: Vec<TrialRecord>,
    samples: Vec<ResourceSample>,
    evidence: Vec<Evidence>,
    failures: Vec<VariantFailure>,
}

impl Kept {
    /// Whether every primary effect is known this well.
    pub(crate) fn precise(&self, half_width: f64) -> bool {
        let Some((environment, experiment)) = &self.prepared else {
            return false;
        };
        let data = meshtax_stats::RunData {
            run: meshtax_model::analysis::RunFacts {
                id: String::new(),
                meshtax_version: String::new(),
                started_unix_ms: 0,
                took_ns: 0,
                seed: 0,
                ending: None,
            },
            experiment,
            environment,
            trials: &self.trials,
            samples: &self.samples,
            evidence: &self.evidence,
            failures: &self.failures,
        };
        meshtax_stats::precision_reached(&data, half_width)
    }
}

impl KeepingSink<'_> {
    fn keep(&self, add: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.kept {
            add(&mut kept.borrow_mut());
        }
    }
}

impl Sink for KeepingSink<'_> {
    fn prepared(
        &mut self,
        environment: &Environment,
        experiment: &Experiment,
    ) -> Result<(), SinkError> {
        self.keep(|kept| kept.prepared = Some((environment.clone(), experiment.clone())));
        self.store.prepared(environment, experiment)
    }

    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError> {
        self.keep(|kept| kept.evidence.push(evidence.clone()));
        self.store.evidence(evidence)
    }

    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError> {
        self.keep(|kept| kept.failures.push(failure.clone()));
        self.store.variant_failed(failure)
    }

    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError> {
        self.keep(|kept| {
            kept.trials.push(record.clone());
            kept.samples.extend(sample.cloned());
        });
        self.store.trial(record, sample)
    }

    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError> {
        self.store.ended(ending)
    }
}
