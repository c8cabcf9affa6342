//! Where results are stored, one by one, as they arrive.

use std::error::Error;

use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::Experiment;
use meshtax_model::failure::VariantFailure;
use meshtax_model::trial::{ResourceSample, TrialRecord};

/// A result could not be stored: the run stops, since further results would be lost too.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(#[source] pub Box<dyn Error + Send + Sync>);

impl SinkError {
    /// Wraps the cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Stores what the runner passes on, before the next trial starts.
pub trait Sink {
    /// The environment is ready and the experiment is resolved (no injected delay is a share
    /// any more). Called once, before anything else.
    ///
    /// # Errors
    /// If it could not be stored.
    fn prepared(
        &mut self,
        environment: &Environment,
        experiment: &Experiment,
    ) -> Result<(), SinkError>;

    /// What the probes observed of a variant in a round, whether they passed or not.
    ///
    /// # Errors
    /// If it could not be stored.
    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError>;

    /// What the environment granted or reported.
    ///
    /// # Errors
    /// If it could not be stored.
    fn observed(&mut self, record: &ClusterRecord) -> Result<(), SinkError>;

    /// A variant cannot be measured in a round.
    ///
    /// # Errors
    /// If it could not be stored.
    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError>;

    /// A trial is over.
    ///
    /// # Errors
    /// If it could not be stored.
    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError>;

    /// The run is over. Called once, if [`Sink::prepared`] succeeded.
    ///
    /// # Errors
    /// If it could not be stored.
    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError>;
}
