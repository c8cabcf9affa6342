//! What the run has too little of: its end, rounds, blocks, valid trials.

use meshtax_model::analysis::Caveat;
use meshtax_model::event::{Ending, Resumption};

use super::words::{all, trials as counted};
use crate::format::{self, plural};
use crate::view::reasons::invalid;
use crate::view::source::Loads;

pub(super) fn sentence(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::Incomplete { ending } => incomplete(ending.as_ref()),
        Caveat::Resumed { resumptions } => resumed(resumptions),
        Caveat::FewRounds { .. }
        | Caveat::FewBlocks { .. }
        | Caveat::FewBlocksForP99 { .. }
        | Caveat::FewPairedRounds { .. } => return too_few(caveat, loads),
        Caveat::InvalidTrials {
            variant,
            invalid: count,
            of,
            reasons,
        } => {
            let reasons: Vec<&str> = reasons.iter().map(|reason| invalid(*reason)).collect();
            let reasons = reasons.join("; ");
            format!("{variant}: {count} of {of} trials excluded as invalid ({reasons}).")
        }
        Caveat::UnequalExclusion {
            variant,
            load_point,
            invalid,
            of,
            baselines_invalid,
            baselines_of,
        } => format!(
            "{variant} {}: {invalid} of {of} trials excluded, against {baselines_invalid} of {baselines_of} of the \
             baselines. Chance does not explain this: the remaining trials may not be comparable.",
            loads.at(load_point)
        ),
        Caveat::UnknownTrials { trials } => format!(
            "{} on record {} to no variant or load point of the experiment, and {} not used.",
            counted(*trials),
            plural(*trials as usize, "belongs", "belong"),
            plural(*trials as usize, "is", "are")
        ),
        Caveat::NoResourceSample { trials } => format!(
            "{trials} valid {} no resource sample: CPU and memory figures exclude such trials.",
            plural(*trials as usize, "trial has", "trials have")
        ),
        _ => return None,
    })
}

/// A longer run has more of all of them.
fn too_few(caveat: &Caveat, loads: Loads<'_>) -> Option<String> {
    Some(match caveat {
        Caveat::FewRounds { rounds } => format!(
            "Fewer than six rounds ({rounds}): the intervals describe these processes only, and not what a restart \
             changes. Use a longer `--time`."
        ),
        Caveat::FewBlocks { blocks } => format!(
            "Fewer than six blocks ({blocks}): there are no intervals and no verdicts. Use a longer `--time`."
        ),
        Caveat::FewBlocksForP99 { blocks } => format!(
            "Fewer than ten blocks ({blocks}): there is no p99, which needs ten trials of each variant. Use a longer \
             `--time`."
        ),
        Caveat::FewPairedRounds {
            variant,
            load_point,
            rounds,
            of,
        } => format!(
            "{variant} {}: only {rounds} of {of} rounds {} a valid pair. An interval that holds beyond these processes \
             takes six.",
            loads.at(load_point),
            plural(*rounds as usize, "has", "have")
        ),
        _ => return None,
    })
}

fn incomplete(ending: Option<&Ending>) -> String {
    match ending {
        Some(Ending::Interrupted) => {
            "The run was interrupted: this is what was measured until then.".to_owned()
        }
        Some(Ending::Failed { detail, .. }) => {
            format!("The run failed: {detail}. This is what was measured until then.")
        }
        _ => "The run's end is not on record: it was killed, or is still in progress.".to_owned(),
    }
}

fn resumed(resumptions: &[Resumption]) -> String {
    let each = all(resumptions, |resumption| {
        let restarted = match resumption.restarted {
            true => " and a restart of the machine",
            false => "",
        };
        format!(
            "{} after round {}, a pause of {}{restarted}",
            format::date_utc(resumption.at_unix_ms),
            resumption.after_round,
            format::duration(resumption.paused_ns)
        )
    });
    format!(
        "The run was interrupted and resumed ({each}): differences hold, as pairs lie within a block, but levels describe \
         no particular moment."
    )
}
