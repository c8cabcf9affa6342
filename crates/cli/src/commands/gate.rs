//! `meshtax gate`: a change held against limits, for a pipeline.

use std::fs;
use std::path::Path;

use meshtax_model::comparison::{GateReport, GateVerdict};
use meshtax_model::experiment::Experiment;
use meshtax_spec::Sides;
use meshtax_stats::between::Runs;
use meshtax_stats::gate::{GateError, gate_runs, gate_sides, limits_match};

use super::compare::{Stored, apart_failure, options};
use super::run::{Job, conclude_judged, spec};
use crate::args::{EngineName, GateArgs};
use crate::exit::{
    Failure, GATE_CANNOT_TELL, GATE_FAILED, MISSING, Outcome, SPEC_INVALID, SUCCESS, USAGE,
};
use crate::terminal;

pub(crate) fn gate(args: GateArgs) -> Outcome {
    match (args.a.clone(), args.b.clone()) {
        (Some(a), Some(b)) => interleaved(args, &a, &b),
        _ => stored(&args),
    }
}

fn stored(args: &GateArgs) -> Outcome {
    let both = Stored::read(&args.runs)?;
    let [base, new] = both.data();
    let runs = Runs {
        base: &base,
        new: &new,
    };
    let gate = gate_runs(runs, &options(&args.runs), &args.max).map_err(failure)?;
    tell(args, &gate)
}

fn interleaved(mut args: GateArgs, a: &Path, b: &Path) -> Outcome {
    let sides = sides(&args, a, b)?;
    for id in &sides.alone {
        terminal::say(&format!(
            "note: {id} stands against nothing, and is not judged"
        ));
    }
    // Two minutes of measuring are too long a wait for a mistyped limit.
    limits_match(&sides.experiment, &sides.pairs, &args.max).map_err(failure)?;
    let job = Job {
        experiment: sides.experiment.clone(),
        engine: EngineName::Local,
        out: args.out.take(),
        seed: args.seed,
        programs: std::mem::take(&mut args.programs),
        sabotage: Vec::new(),
        open: false,
    };
    let done = job.perform()?;
    conclude_judged(&done, |data, _| {
        let gate = gate_sides(data, &sides.pairs, &args.max).map_err(failure)?;
        tell(&args, &gate).map(Some)
    })
}

/// Both specs in one experiment, with what the command line says.
fn sides(args: &GateArgs, a: &Path, b: &Path) -> Result<Sides, Failure> {
    let read = |path: &Path| -> Result<Experiment, Failure> {
        let mut experiment = spec(path, "name a YAML file")?;
        if let Some(time_limit_ns) = args.time {
            experiment.design.time_limit_ns = time_limit_ns;
        }
        if args.precision.is_some() {
            experiment.design.precision = args.precision;
        }
        Ok(experiment)
    };
    let (first, second) = (read(a)?, read(b)?);
    meshtax_spec::interleave(&first, &second, &args.runs.pair).map_err(|e| {
        Failure::new(
            SPEC_INVALID,
            format!("A and B cannot be measured side by side\n{e}"),
        )
    })
}

fn tell(args: &GateArgs, gate: &GateReport) -> Outcome {
    let annotations = if args.github || in_github_actions() {
        meshtax_report::gate_annotations(gate)
    } else {
        String::new()
    };
    if args.json {
        terminal::print(&meshtax_report::gate_json(gate));
        // Standard output is one document. GitHub reads annotations from either.
        if !annotations.is_empty() {
            terminal::say(annotations.trim_end());
        }
    } else {
        terminal::print(&meshtax_report::gate_terminal(gate, terminal::options()));
        terminal::print(&annotations);
    }
    if let Some(path) = &args.junit {
        write(path, &meshtax_report::gate_junit(gate))?;
    }
    if let Some(path) = &args.markdown {
        write(path, &meshtax_report::gate_markdown(gate))?;
    }
    Ok(match gate.verdict {
        GateVerdict::Pass => SUCCESS,
        GateVerdict::Fail => GATE_FAILED,
        GateVerdict::CannotTell => GATE_CANNOT_TELL,
    })
}

fn in_github_actions() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|e| {
        let message = format!("cannot write {}: {e}", path.display());
        Failure::with_fix(
            MISSING,
            message,
            "name a file in a directory that can be written",
        )
    })
}

fn failure(error: GateError) -> Failure {
    match error {
        GateError::Apart(apart) => apart_failure(&apart),
        GateError::NoLimit => Failure::with_fix(
            USAGE,
            "there is no limit",
            "give one, as in --max 'p99 +5%'",
        ),
        GateError::Unmatched { limit, known } => {
            let list = |part: usize| {
                let mut all: Vec<&str> = Vec::new();
                for one in &known {
                    if !all.contains(&one[part].as_str()) {
                        all.push(&one[part]);
                    }
                }
                all.join(", ")
            };
            let message = format!(
                "the limit '{limit}' is on nothing that both sides have\n  variants: {}\n  load points: {}\n  metrics: {}",
                list(0),
                list(1),
                list(2)
            );
            let fix = "name one of these; throughput is a saturated load's, latency a steady one's";
            Failure::with_fix(USAGE, message, fix)
        }
    }
}
