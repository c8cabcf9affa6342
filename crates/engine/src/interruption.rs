//! A run that is to stop because a person or a signal requests it.

use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_model::event::Ending;

use crate::error::Stop;

/// Stops the runner if an interruption was requested.
pub(crate) fn check(interrupted: &AtomicBool) -> Result<(), Stop> {
    match is_requested(interrupted) {
        true => Err(Stop::Ended(Ending::Interrupted)),
        false => Ok(()),
    }
}

pub(crate) fn is_requested(interrupted: &AtomicBool) -> bool {
    interrupted.load(Ordering::Relaxed)
}
