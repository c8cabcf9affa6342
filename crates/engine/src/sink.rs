//! Where results go, one by one, as they come.

use std::error::Error;

use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::evidence::{Evidence, VariantFailure};
use meshtax_model::experiment::Experiment;
use meshtax_model::trial::{ResourceSample, TrialRecord};

/// A result could not be kept: the run stops, since what is measured next would be lost too.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(#[source] pub Box<dyn Error + Send + Sync>);

impl SinkError {
    /// Wraps the cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Keeps what the runner hands over, before the next trial starts.
pub trait Sink {
    /// The environment stands and the experiment is resolved (no injected delay is a share
    /// any more). Called once, before anything else.
    ///
    /// # Errors
    /// If it could not be kept.
    fn prepared(
        &mut self,
        environment: &Environment,
        experiment: &Experiment,
    ) -> Result<(), SinkError>;

    /// What the probes saw of a variant in a round, whether they passed or not.
    ///
    /// # Errors
    /// If it could not be kept.
    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError>;

    /// A variant cannot be measured in a round.
    ///
    /// # Errors
    /// If it could not be kept.
    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError>;

    /// A trial is over.
    ///
    /// # Errors
    /// If it could not be kept.
    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError>;

    /// Nothing more will come. Called once, if [`Sink::prepared`] succeeded.
    ///
    /// # Errors
    /// If it could not be kept.
    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError>;
}
