//! `meshtax load`: the load generator by itself.

mod export;
mod failure;
mod live;
mod offer;
mod requests;
mod search;
mod spec;
mod url;

pub(crate) use self::failure::failure;
use self::offer::offer;
use crate::args::LoadArgs;
use crate::exit::{NOTHING_MEASURED, Outcome, SUCCESS};
use crate::interrupt::Interrupt;
use crate::terminal::print;

pub(crate) fn load(args: &LoadArgs) -> Outcome {
    let mut spec = spec::spec(args)?;
    spec.validate().map_err(failure)?;
    if let Some(plan) = search::Plan::of(args) {
        return search::run(args, spec, plan, &Interrupt::catch());
    }
    let exports = export::requested(&args.output)?;
    let is_shown = !args.output.no_tui && !args.output.json;
    if exports.is_empty() && !is_shown {
        // Nobody would see them, and they grow with the load's length.
        spec.interval_ns = None;
    }
    let interrupt = Interrupt::catch();
    let finished = offer(&args.url, &spec, &args.fleet, &interrupt, is_shown)?;
    if exports.iter().all(|export| export.path.is_some()) {
        print(&meshtax_report::load::terminal(&finished));
    }
    export::write(&exports, &finished)?;
    let nothing = finished.result.completed == 0;
    Ok(interrupt
        .exit_code()
        .unwrap_or(if nothing { NOTHING_MEASURED } else { SUCCESS }))
}
