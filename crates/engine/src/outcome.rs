//! The result of a whole run.

use meshtax_model::event::Ending;

use meshtax_model::experiment::Experiment;
use meshtax_model::failure::VariantFailure;

use crate::error::RunError;

/// How much was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rounds with at least one complete block.
    pub rounds: u32,
    /// Complete blocks.
    pub blocks: u32,
    /// Trials, failed ones included.
    pub trials: u32,
    /// Trials without a result, or during which a component failed.
    pub failed_trials: u32,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// Why measuring ended; [`Ending::Failed`] whenever `problem` is set.
    pub ending: Ending,
    /// The failure of the run as a whole. Results measured before it are kept.
    pub problem: Option<RunError>,
    /// How much was measured.
    pub measured: Counts,
    /// Variants that were excluded from the whole run, with the reason.
    pub excluded: Vec<VariantFailure>,
    /// The experiment as it was run: an injected share is replaced by nanoseconds.
    pub experiment: Experiment,
    /// What teardown could not remove; empty on success.
    pub leftovers: Vec<String>,
}
