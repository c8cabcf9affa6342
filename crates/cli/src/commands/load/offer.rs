//! Offers one load, from this process or from workers.

use meshtax_load::{Hooks, LoadSpec, Progress, Window};
use meshtax_model::load::FinishedLoad;

use super::failure::failure;
use super::live::Live;
use crate::args::FleetArgs;
use crate::commands::fleet;
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// Offers a load, and shows its progress if `is_shown`.
///
/// # Errors
/// As [`failure`], and when workers fail.
pub(super) fn offer(
    url: &str,
    spec: &LoadSpec,
    fleet: &FleetArgs,
    interrupt: &Interrupt,
    is_shown: bool,
) -> Result<FinishedLoad, Failure> {
    let mut started_unix_ms = 0;
    let mut on_window = |window: Window| {
        let ahead_ns = window
            .start_monotonic_ns
            .saturating_sub(meshtax_load::now_ns());
        started_unix_ms = meshtax_observe::unix_ms() + ahead_ns / 1_000_000;
    };
    let mut live = Live::new(spec);
    let mut on_progress = |progress: Progress<'_>| live.show(&progress);
    let hooks = Hooks {
        on_progress: if is_shown {
            Some(&mut on_progress)
        } else {
            None
        },
        abort: Some(&interrupt.flag),
        ..Hooks::new(&mut on_window)
    };
    let result = match &fleet.workers {
        None => meshtax_load::run_with(spec, hooks).map_err(failure),
        Some(workers) => fleet::offer(spec, workers, fleet, hooks),
    };
    live.clear();
    Ok(FinishedLoad {
        url: url.to_owned(),
        started_unix_ms,
        settings: spec.settings(),
        result: result?,
    })
}
