//! `meshtax run --preset upgrade`: two builds of one data plane, measured in the same rounds.

use meshtax_model::catalogue::{self, DATA_PLANES};
use meshtax_model::comparison::RunComparison;
use meshtax_model::experiment::{Experiment, Inject};
use meshtax_spec::{Sides, Upgrade};
use meshtax_stats::gate::{gate_sides, limits_match};
use meshtax_stats::interleaved::compare_sides;

use super::gate;
use crate::args::{RunArgs, UpgradeArgs};
use crate::exit::{Failure, Outcome, USAGE};
use crate::runs::conclusion::conclude_with_verdict;
use crate::runs::job::Job;
use crate::terminal;

const DEFAULT: &str = "envoy-sidecar";

pub(crate) fn upgrade(args: &RunArgs, experiment: &Experiment, job: Job) -> Outcome {
    let sides = sides(args, experiment)?;
    let limits = &args.upgrade.max;
    if !limits.is_empty() {
        // A mistyped limit is reported before minutes of measuring.
        limits_match(&sides.experiment, &sides.pairs, limits).map_err(gate::failure)?;
    }
    let job = Job {
        experiment: sides.experiment.clone(),
        all_programs_required: true,
        ..job
    };
    let finished = job.execute()?;
    conclude_with_verdict(&finished, |data, analysis| {
        let comparison = compare_sides(data, analysis, &sides.pairs);
        if limits.is_empty() {
            print(args, &comparison);
            return Ok(None);
        }
        let gate = gate_sides(data, &sides.pairs, limits).map_err(gate::failure)?;
        match args.json {
            true => terminal::print(&meshtax_report::gate_json(&gate)),
            false => {
                print(args, &comparison);
                terminal::print(&meshtax_report::gate_terminal(&gate, terminal::options()));
            }
        }
        Ok(Some(gate::code(gate.verdict)))
    })
}

fn print(args: &RunArgs, comparison: &RunComparison) {
    terminal::print(&match args.json {
        true => meshtax_report::comparison_json(comparison),
        false => meshtax_report::comparison_terminal(comparison, terminal::options()),
    });
}

/// The known cost of the new build.
fn only_cost(costs: &[Inject]) -> Result<Option<Inject>, Failure> {
    match costs {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        _ => {
            let message = "--inject: the new build can have one known cost";
            Err(Failure::with_fix(USAGE, message, "give the option once"))
        }
    }
}

fn sides(run: &RunArgs, experiment: &Experiment) -> Result<Sides, Failure> {
    let args: &UpgradeArgs = &run.upgrade;
    let (Some(from), Some(to)) = (&args.from, &args.to) else {
        let fix = "name both, as in --from 1.39.0 --to 1.40.0";
        let message = "--preset upgrade compares two builds, and none are named";
        return Err(Failure::with_fix(USAGE, message, fix));
    };
    let name = args.data_plane.as_deref().unwrap_or(DEFAULT);
    let data_plane = catalogue::find(name).ok_or_else(|| {
        let known: Vec<_> = DATA_PLANES.iter().map(|plane| plane.name).collect();
        Failure::unknown_name("data plane", name, &known)
    })?;
    let upgrade = Upgrade {
        data_plane,
        program: args.program,
        from: from.clone(),
        to: to.clone(),
        level: args.level,
        protocol: args.protocol,
        rate_per_s: args.rate,
        response_bytes: args.response,
        inject: only_cost(&run.inject)?,
    };
    meshtax_spec::upgrade(experiment, &upgrade).map_err(|e| Failure::new(USAGE, e))
}
