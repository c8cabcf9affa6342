//! What `meshtax load` prints: the summary of one load, its progress, and several loads together.

mod hints;
mod levels;
mod numbers;
mod progress;
mod summary;

pub(crate) use levels::{level_progress, levels};
pub(crate) use progress::progress;
pub(crate) use summary::summary;
