//! The input: the records of a run.

use meshtax_model::analysis::RunFacts;
use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::Environment;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::Experiment;
use meshtax_model::failure::VariantFailure;
use meshtax_model::trial::{ResourceSample, TrialRecord};

/// All records of a run. Some may be missing, and they may be in any order.
#[derive(Clone, Debug)]
pub struct RunData<'a> {
    /// The run as a whole.
    pub run: RunFacts,
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The environment.
    pub environment: &'a Environment,
    /// Every trial.
    pub trials: &'a [TrialRecord],
    /// The resource samples of the trials.
    pub samples: &'a [ResourceSample],
    /// The results of the probes, of all rounds.
    pub evidence: &'a [Evidence],
    /// Variants that could not be measured, by round.
    pub failures: &'a [VariantFailure],
    /// What the cluster granted and reported.
    pub cluster: &'a [ClusterRecord],
}
