//! Notes of a comparison of runs.

use meshtax_model::comparison::ComparisonNote;
use meshtax_model::event::Ending;

use super::words::all;

/// A note for the reader.
pub(crate) fn note(note: &ComparisonNote) -> String {
    match note {
        ComparisonNote::SameRun { run } => {
            format!("{run} is on both sides, so nothing can differ.")
        }
        ComparisonNote::SameSeed { seed } => {
            format!("Same seed ({seed}): the same order and the same arrivals.")
        }
        ComparisonNote::UnpairedVariants { side, variants } => format!(
            "Only in {side}, and not compared: variant {}.",
            all(variants, ToString::to_string)
        ),
        ComparisonNote::UnpairedLoadPoints { side, load_points } => format!(
            "Only in {side}, and not compared: load {}.",
            all(load_points, ToString::to_string)
        ),
        ComparisonNote::IncompleteRun { side, run, ending } => match ending {
            Some(Ending::Interrupted) => format!("{side}'s run {run} was interrupted."),
            Some(Ending::Failed { detail, .. }) => format!("{side}'s run {run} failed: {detail}."),
            _ => format!("{side}'s run {run} has no end on record."),
        },
    }
}
