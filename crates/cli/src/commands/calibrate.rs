//! `meshtax calibrate`: known costs, and how small a cost this machine shows.

use std::path::PathBuf;

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Analysis, Calibration, Resolvable};
use meshtax_model::experiment::{Experiment, Inject};
use meshtax_stats::RunData;
use meshtax_stats::power::{Length, POWER, resolvable};

use super::analysis;
use super::run::{Done, Job, conclude, preset};
use crate::args::{CalibrateArgs, EngineName, ProgramArgs};
use crate::exit::{Failure, Outcome, UNEXPECTED};
use crate::terminal;

/// How long the runs are of which it says what they find.
const LENGTHS_NS: [u64; 3] = [60_000_000_000, 300_000_000_000, 1_200_000_000_000];

/// The part of the time in which known costs run; in the rest, equal variants alone.
const COSTS_SHARE: f64 = 0.6;

/// Costs no time, so that the variant that holds it is one more baseline.
const HELD_BYTES: u64 = 1 << 20;

pub(crate) fn calibrate(args: CalibrateArgs) -> Outcome {
    let mut costs = preset("calibrate")?;
    if let Some(time_limit_ns) = args.time {
        costs.design.time_limit_ns = time_limit_ns;
    }
    let all_ns = costs.design.time_limit_ns;
    costs.design.time_limit_ns = (all_ns as f64 * COSTS_SHARE) as u64;
    let quiet = equals(all_ns.saturating_sub(costs.design.time_limit_ns))?;
    let costs = perform(costs, args.out.clone(), args.seed)?;
    let mut found = Vec::new();
    if !costs.is_interrupted() {
        terminal::say("known costs are done; now equal variants, for what a run here can find");
        let within = args.out.map(|out| out.join("noise"));
        found = of_equals(&perform(quiet, within, args.seed)?);
    }
    conclude(&costs, |data, analysis| {
        tell(&calibration(data, analysis, found), args.json)
    })
}

/// Three equal variants at the steady point, as close to each other in time as in a run of one candidate.
fn equals(time_limit_ns: u64) -> Result<Experiment, Failure> {
    let mut experiment = preset("noise")?;
    experiment.design.time_limit_ns = time_limit_ns;
    meshtax_spec::add_injected(&mut experiment, Inject::HoldBytes(HELD_BYTES))
        .map_err(|e| Failure::new(UNEXPECTED, e.problem))?;
    Ok(experiment)
}

fn perform(
    experiment: Experiment,
    out: Option<PathBuf>,
    seed: Option<u64>,
) -> Result<Done, Failure> {
    let job = Job {
        experiment,
        engine: EngineName::Local,
        out,
        seed,
        programs: ProgramArgs::default(),
        sabotage: Vec::new(),
        open: false,
    };
    job.perform()
}

/// What equal variants by themselves say; nothing if their run cannot be read.
fn of_equals(done: &Done) -> Vec<Resolvable> {
    let run = analysis::read(&done.directory);
    run.map_or_else(|_| Vec::new(), |run| found_in(&analysis::data(&run)))
}

fn found_in(data: &RunData<'_>) -> Vec<Resolvable> {
    let lengths: Vec<Length> = LENGTHS_NS
        .iter()
        .filter_map(|time_ns| Length::of_one_candidate(data, *time_ns))
        .collect();
    resolvable(data, &lengths)
}

/// The equal variants come first: what they say of a load point, the run of the costs need not.
fn calibration(
    data: &RunData<'_>,
    analysis: &Analysis,
    mut resolvable: Vec<Resolvable>,
) -> Calibration {
    let said = |all: &[Resolvable], one: &Resolvable| {
        all.iter()
            .any(|r| r.load_point == one.load_point && r.metric == one.metric)
    };
    let mut more = found_in(data);
    more.retain(|one| !said(&resolvable, one));
    resolvable.extend(more);
    Calibration {
        format_version: FORMAT_VERSION,
        power: POWER,
        resolvable,
        analysis: analysis.clone(),
    }
}

fn tell(calibration: &Calibration, json: bool) -> String {
    if json {
        return meshtax_report::calibration_json(calibration);
    }
    meshtax_report::calibration_terminal(calibration, terminal::options())
}
