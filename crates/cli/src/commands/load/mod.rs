//! `meshtax load`: the load generator by itself.

mod csv;
mod export;
mod figures;
mod fortio;
mod hgrm;
mod hints;
mod json;
mod live;
mod requests;
mod search;
mod spec;
mod text;
mod url;
mod vegeta;

use meshtax_load::{Hooks, LoadError, LoadSpec, Progress, Window};
use meshtax_model::trial::LoadResult;

use self::figures::Finished;
use self::live::Live;
use crate::args::{FleetArgs, LoadArgs};
use crate::exit::{Failure, MISSING, NOTHING_MEASURED, Outcome, SUCCESS, USAGE};
use crate::interrupt::Interrupt;
use crate::terminal::print;

pub(crate) fn load(args: &LoadArgs) -> Outcome {
    let mut spec = spec::spec(args)?;
    spec.validate().map_err(failure)?;
    if let Some(plan) = search::Plan::of(args) {
        return search::run(args, spec, plan, &Interrupt::catch());
    }
    let exports = export::wanted(&args.output)?;
    let is_shown = !args.output.no_tui && !args.output.json;
    if exports.is_empty() && !is_shown {
        // Nobody would see them, and they grow with the load's length.
        spec.interval_ns = None;
    }
    let interrupt = Interrupt::catch();
    let (started_unix_ms, result) = offer(&spec, &args.fleet, &interrupt, is_shown)?;
    let finished = Finished {
        url: &args.url,
        started_unix_ms,
        spec: &spec,
        result: &result,
    };
    if exports.iter().all(|export| export.path.is_some()) {
        print(&text::text(&finished));
    }
    export::write(&exports, &finished)?;
    let nothing = result.completed == 0;
    Ok(interrupt
        .exit_code()
        .unwrap_or(if nothing { NOTHING_MEASURED } else { SUCCESS }))
}

/// Runs it, and says when its window began, in milliseconds since 1970.
fn offer(
    spec: &LoadSpec,
    fleet: &FleetArgs,
    interrupt: &Interrupt,
    is_shown: bool,
) -> Result<(u64, LoadResult), Failure> {
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
        Some(workers) => super::fleet::offer(spec, workers, fleet, hooks),
    };
    live.clear();
    result.map(|result| (started_unix_ms, result))
}

/// A load's error with the code to end with, and what the command line can do about it.
pub(crate) fn failure(error: LoadError) -> Failure {
    let code = match &error {
        LoadError::Invalid { .. } => USAGE,
        LoadError::Connect { .. } => NOTHING_MEASURED,
        _ => MISSING,
    };
    match hints::of_error(&error) {
        Some(fix) => Failure::with_fix(code, error, fix),
        None => Failure::new(code, error),
    }
}
