//! The end of a run: its report, its page and its exit code.

use meshtax_engine::{Counts, EngineError, RunError, RunOutcome};
use meshtax_model::analysis::{Analysis, Verdict};
use meshtax_model::event::Ending;
use meshtax_stats::RunData;

use super::job::{FinishedRun, Job};
use super::{page, stored};
use crate::exit::{
    Failure, LEFTOVERS, MISSING, NOTHING_MEASURED, Outcome, SUCCESS, TOO_FEW, UNEXPECTED,
};
use crate::terminal;

/// A run that was measured and analysed.
pub(crate) struct Measured {
    /// `None`: nothing was measured.
    pub(crate) analysis: Option<Analysis>,
    /// The exit code of the run by itself.
    pub(crate) code: u8,
    pub(crate) is_interrupted: bool,
}

/// Executes a job as one of several runs, without printing its report.
pub(crate) fn measure(job: Job) -> Result<Measured, Failure> {
    let finished = job.execute()?;
    let mut analysis = None;
    let code = conclude_with_verdict(&finished, |_, analysed| {
        analysis = Some(analysed.clone());
        Ok(None)
    })?;
    Ok(Measured {
        analysis,
        code,
        is_interrupted: finished.interrupted().is_some(),
    })
}

/// Prints the report of a run, and returns its exit code.
pub(crate) fn conclude(
    finished: &FinishedRun,
    report: impl FnOnce(&RunData<'_>, &Analysis) -> String,
) -> Outcome {
    conclude_with_verdict(finished, |data, analysis| {
        terminal::print(&report(data, analysis));
        Ok(None)
    })
}

/// The same for a run with a verdict: the exit code that `report` returns replaces the run's own, if the run is
/// complete.
pub(crate) fn conclude_with_verdict(
    finished: &FinishedRun,
    report: impl FnOnce(&RunData<'_>, &Analysis) -> Result<Option<u8>, Failure>,
) -> Outcome {
    let FinishedRun {
        outcome, directory, ..
    } = finished;
    let mut analysis = None;
    let mut verdict = None;
    if outcome.measured.trials > 0 {
        let run = stored::read(directory)?;
        let data = stored::data(&run);
        let analysed = stored::analyse(&run);
        page::write(&analysed, directory);
        verdict = report(&data, &analysed)?;
        analysis = Some(analysed);
    }
    if directory.is_dir() {
        terminal::say(&format!("run: {}", directory.display()));
    }
    if let Some(problem) = &outcome.problem {
        terminal::say(&format!("error: {problem}"));
    }
    if !outcome.leftovers.is_empty() {
        let left = outcome.leftovers.join(", ");
        let message = format!("teardown is incomplete; left: {left}");
        return Err(Failure::new(LEFTOVERS, message));
    }
    let is_complete = outcome.problem.is_none() && !matches!(outcome.ending, Ending::Failed { .. });
    Ok(finished
        .interrupted()
        .or(verdict.filter(|_| is_complete))
        .unwrap_or_else(|| code(outcome, analysis.as_ref())))
}

fn code(outcome: &RunOutcome, analysis: Option<&Analysis>) -> u8 {
    let Counts { trials, .. } = outcome.measured;
    match (&outcome.problem, &outcome.ending) {
        (Some(RunError::Engine(EngineError::Missing { .. })), _) => MISSING,
        (Some(RunError::Sink(_)), _) => MISSING,
        (Some(_), _) if trials == 0 => NOTHING_MEASURED,
        (Some(_), _) | (None, Ending::Failed { .. }) => TOO_FEW,
        (None, _) => match analysis {
            Some(analysis) if has_result(analysis) => SUCCESS,
            Some(_) => TOO_FEW,
            None if trials == 0 => NOTHING_MEASURED,
            None => UNEXPECTED,
        },
    }
}

/// Whether any effect has an interval, or shows that a variant is overloaded.
pub(crate) fn has_result(analysis: &Analysis) -> bool {
    analysis.effects.iter().any(|effect| match effect.verdict {
        Verdict::NotEstimable { .. } => false,
        Verdict::Overloaded(_) => true,
        Verdict::Different | Verdict::Equivalent | Verdict::Inconclusive => effect
            .difference
            .is_some_and(|difference| difference.interval.is_some()),
    })
}
