//! The experiment's motor: an [`Engine`] brings variants up and measures trials; the runner
//! decides what is next, hands every result to a [`Sink`] before the next trial starts, and
//! ends in time.
//!
//! The runner knows no mesh, no namespace and no cluster. Engines know no plan and no store.
#![forbid(unsafe_code)]

mod clock;
pub mod fake;
mod pace;
mod pilot;
mod runner;
mod sink;

pub use clock::{Clock, SystemClock};
pub use runner::{Counts, RunError, RunOptions, RunOutcome, Watch, run};
pub use sink::{Sink, SinkError};

use meshtax_model::environment::Environment;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{Experiment, LoadPoint, Variant, VariantId};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{ResourceSample, TrialOutcome};

/// The environment broke: nothing more can be measured in this run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// This machine or cluster lacks something. Exit code 11.
    #[error("{what}\n  fix: {fix}")]
    Missing {
        /// What is missing, where.
        what: String,
        /// What the user can do.
        fix: String,
    },
    /// What was there is gone (the lab was killed, the cluster cannot be reached).
    #[error("{0}")]
    Lost(String),
}

/// How one variant's start went.
#[derive(Clone, Debug)]
pub struct VariantStart {
    /// Which.
    pub variant: VariantId,
    /// What the probes saw, if it came so far. It counts as proven only if
    /// [`Evidence::passed`] and `failure` is `None`.
    pub evidence: Option<Evidence>,
    /// Why it cannot be measured in this round.
    pub failure: Option<String>,
}

/// How a round ended.
#[derive(Clone, Debug, Default)]
pub struct RoundEnd {
    /// Processes that had died by themselves, each with how.
    pub died: Vec<String>,
    /// Variants that were no longer what the probes had seen at the round's start, with what was lost.
    pub lost: Vec<(VariantId, String)>,
}

/// What an engine gives for a trial.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the load came to.
    pub outcome: TrialOutcome,
    /// What it cost; `None` if there was nothing to observe.
    pub sample: Option<ResourceSample>,
}

/// A place where variants can be brought up side by side and measured one at a time.
pub trait Engine {
    /// Where this is. Called once, before the first round.
    ///
    /// # Errors
    /// If the environment cannot be built here.
    fn prepare(&mut self, experiment: &Experiment) -> Result<Environment, EngineError>;

    /// Recreates the processes of these variants and proves each. All stay up until
    /// [`Engine::end_round`]. A variant's failure is in its [`VariantStart`].
    ///
    /// Rounds count from 1. Round 0 is the pilot, with the baseline only; it comes before the
    /// first round, and only if an injected delay is a share of the baseline's latency. What
    /// [`Engine::prepare`] was given still has that share; the variants given here do not.
    ///
    /// # Errors
    /// If the environment itself broke.
    fn start_round(
        &mut self,
        round: u32,
        variants: &[Variant],
    ) -> Result<Vec<VariantStart>, EngineError>;

    /// Measures one trial while all other variants of the round idle.
    ///
    /// # Errors
    /// If the environment itself broke. A failed trial is a [`TrialOutcome::Failed`].
    fn trial(
        &mut self,
        trial: &PlannedTrial,
        load_point: &LoadPoint,
    ) -> Result<Measured, EngineError>;

    /// Ends the round's processes. With `prove`, each variant is proven once more before: what its
    /// trials measured is only what its name says if it still is.
    ///
    /// # Errors
    /// If the environment itself broke.
    fn end_round(&mut self, prove: bool) -> Result<RoundEnd, EngineError>;

    /// Takes everything down. Returns what could not be removed; empty is good.
    fn teardown(&mut self) -> Vec<String>;
}
