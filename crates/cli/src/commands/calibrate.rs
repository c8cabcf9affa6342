//! `meshtax calibrate`: known costs, and the smallest effect that a run on this machine can detect.

use std::path::PathBuf;

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Analysis, Calibration, Resolvable};
use meshtax_model::experiment::{Experiment, Inject};
use meshtax_stats::RunData;
use meshtax_stats::power::{Length, POWER, resolvable};

use crate::args::CalibrateArgs;
use crate::exit::{Failure, Outcome, UNEXPECTED};
use crate::experiments::preset;
use crate::runs::conclusion::conclude;
use crate::runs::job::{FinishedRun, Job};
use crate::runs::stored;
use crate::terminal;

/// The lengths of the runs whose resolvable effects are reported.
const LENGTHS_NS: [u64; 3] = [60_000_000_000, 300_000_000_000, 1_200_000_000_000];

/// The share of the time for known costs; the rest is for identical variants.
const COSTS_SHARE: f64 = 0.6;

/// Costs no time, so that the variant with it is another baseline.
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
    if costs.interrupted().is_none() {
        terminal::say(
            "known costs are done; next: identical variants, for the smallest effect that a run can detect",
        );
        let within = args.out.map(|out| out.join("noise"));
        found = of_equals(&perform(quiet, within, args.seed)?);
    }
    conclude(&costs, |data, analysis| {
        render(&calibration(data, analysis, found), args.json)
    })
}

/// Three identical variants at the steady load point, as close in time as in a run with one candidate.
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
) -> Result<FinishedRun, Failure> {
    let job = Job {
        out,
        seed,
        ..Job::new(experiment)
    };
    job.execute()
}

/// What a run of identical variants resolves; nothing if it cannot be read.
fn of_equals(finished: &FinishedRun) -> Vec<Resolvable> {
    let run = stored::read(&finished.directory);
    run.map_or_else(|_| Vec::new(), |run| found_in(&stored::data(&run)))
}

fn found_in(data: &RunData<'_>) -> Vec<Resolvable> {
    let lengths: Vec<Length> = LENGTHS_NS
        .iter()
        .filter_map(|time_ns| Length::of_one_candidate(data, *time_ns))
        .collect();
    resolvable(data, &lengths)
}

/// The run of identical variants takes precedence where both runs resolve the same metric of a load point.
fn calibration(
    data: &RunData<'_>,
    analysis: &Analysis,
    mut resolvable: Vec<Resolvable>,
) -> Calibration {
    let is_resolved = |all: &[Resolvable], one: &Resolvable| {
        all.iter()
            .any(|r| r.load_point == one.load_point && r.metric == one.metric)
    };
    let mut more = found_in(data);
    more.retain(|one| !is_resolved(&resolvable, one));
    resolvable.extend(more);
    Calibration {
        format_version: FORMAT_VERSION,
        power: POWER,
        resolvable,
        analysis: analysis.clone(),
    }
}

fn render(calibration: &Calibration, json: bool) -> String {
    if json {
        return meshtax_report::calibration_json(calibration);
    }
    meshtax_report::calibration_terminal(calibration, terminal::options())
}
