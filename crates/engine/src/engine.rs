//! The interface between the runner and an environment.

use meshtax_model::cluster::ClusterRecord;
use meshtax_model::environment::Environment;
use meshtax_model::evidence::{Evidence, FailedProbe};
use meshtax_model::experiment::{Design, Experiment, LoadPoint, Variant, VariantId};
use meshtax_model::failure::{ComponentFailure, VariantFailureReason};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::topology::Topology;
use meshtax_model::trial::{ResourceSample, TrialOutcome};

/// The environment cannot be used: nothing more can be measured in this run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The machine or the cluster does not meet a requirement. Exit code 11.
    #[error("{what}\n  fix: {fix}")]
    Missing {
        /// The requirement, and where it is not met.
        what: String,
        /// What the user can do.
        fix: String,
    },
    /// A part of the environment failed during the run (the lab was killed, the cluster is unreachable).
    #[error("{component} {problem}")]
    Lost {
        /// The part that failed.
        component: &'static str,
        /// How it failed.
        problem: String,
    },
}

/// The result of starting one variant.
#[derive(Clone, Debug)]
pub struct VariantStart {
    /// The variant.
    pub variant: VariantId,
    /// What the probes observed, if they ran. The variant counts as verified only if
    /// [`Evidence::passed`] and `failure` is `None`.
    pub evidence: Option<Evidence>,
    /// Why it cannot be measured in this round.
    pub failure: Option<VariantFailureReason>,
}

/// The state of a round at its end.
#[derive(Clone, Debug, Default)]
pub struct RoundEnd {
    /// Processes that had terminated on their own.
    pub ended: Vec<ComponentFailure>,
    /// Variants with probes that passed at the round's start and failed at its end.
    pub lost: Vec<(VariantId, Vec<FailedProbe>)>,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The load's result.
    pub outcome: TrialOutcome,
    /// Resource usage; `None` if there was nothing to observe.
    pub sample: Option<ResourceSample>,
}

/// An environment in which variants run side by side and are measured one at a time.
pub trait Engine {
    /// Builds the environment and describes it. Called once, before the first round.
    ///
    /// # Errors
    /// If the environment cannot be built.
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError>;

    /// Sets the services' work and the lengths of trials, from the next [`Engine::start_round`] on. Only
    /// [`Service::work`](meshtax_model::topology::Service::work) differs from the topology passed to
    /// [`Engine::prepare`]. Called before the first round only.
    ///
    /// # Errors
    /// If the environment itself failed.
    fn set_work(&mut self, topology: &Topology, design: &Design) -> Result<(), EngineError>;

    /// Starts new processes for these variants and verifies each variant. All keep running until
    /// [`Engine::end_round`]. The failure of a variant is in its [`VariantStart`].
    ///
    /// Rounds count from 1. Round 0 is a pilot, with the baseline only, possibly several times; it precedes the first
    /// round, and only if an injected delay is a share of the baseline's latency or the application's work is to be
    /// scaled. The experiment passed to [`Engine::prepare`] still has that share; the variants passed here do not.
    ///
    /// # Errors
    /// If the environment itself failed.
    fn start_round(
        &mut self,
        round: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, EngineError>;

    /// Measures one trial while all other variants of the round are idle.
    ///
    /// # Errors
    /// If the environment itself failed. A failed trial is a [`TrialOutcome::Failed`].
    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError>;

    /// Terminates the round's processes. With `prove`, each variant is verified again beforehand:
    /// its trials count only if its evidence still holds.
    ///
    /// # Errors
    /// If the environment itself failed.
    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError>;

    /// What the environment granted and reported since the last call. Called after [`Engine::start_round`] and
    /// [`Engine::end_round`], and before [`Engine::teardown`].
    fn observed(&mut self) -> Vec<ClusterRecord> {
        Vec::new()
    }

    /// Removes everything. Returns what could not be removed; empty on success.
    fn teardown(&mut self) -> Vec<String>;
}
