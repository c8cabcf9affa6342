//! `meshtax calibrate`: known costs, and how small a cost this machine shows.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{Analysis, Calibration};
use meshtax_stats::RunData;
use meshtax_stats::power::{Length, POWER, resolvable};

use super::run::{Job, conclude, preset};
use crate::args::{CalibrateArgs, EngineName, ProgramArgs};
use crate::exit::Outcome;
use crate::terminal;

/// How long the runs are of which it says what they find.
const LENGTHS_NS: [u64; 3] = [60_000_000_000, 300_000_000_000, 1_200_000_000_000];

pub(crate) fn calibrate(args: CalibrateArgs) -> Outcome {
    let mut experiment = preset("calibrate")?;
    if let Some(time_limit_ns) = args.time {
        experiment.design.time_limit_ns = time_limit_ns;
    }
    let job = Job {
        experiment,
        engine: EngineName::Local,
        out: args.out,
        seed: args.seed,
        programs: ProgramArgs::default(),
        sabotage: Vec::new(),
    };
    let json = args.json;
    conclude(&job.perform()?, |data, analysis| {
        tell(&calibration(data, analysis), json)
    })
}

fn calibration(data: &RunData<'_>, analysis: &Analysis) -> Calibration {
    let lengths: Vec<Length> = LENGTHS_NS
        .iter()
        .filter_map(|time_ns| Length::of_one_candidate(data, *time_ns))
        .collect();
    Calibration {
        format_version: FORMAT_VERSION,
        power: POWER,
        resolvable: resolvable(data, &lengths),
        analysis: analysis.clone(),
    }
}

fn tell(calibration: &Calibration, json: bool) -> String {
    if json {
        return meshtax_report::calibration_json(calibration);
    }
    meshtax_report::calibration_terminal(calibration, terminal::options())
}
