//! `meshtax gate`: compares a change with limits, for pipelines.

use std::fs;
use std::path::Path;

use meshtax_model::comparison::{GateReport, GateVerdict};
use meshtax_model::experiment::Experiment;
use meshtax_spec::Sides;
use meshtax_stats::between::Runs;
use meshtax_stats::gate::{GateError, gate_runs, gate_sides, limits_match};

use super::compare::{Stored, apart_failure, options};
use crate::args::GateArgs;
use crate::exit::{
    Failure, GATE_FAILED, GATE_INCONCLUSIVE, MISSING, Outcome, REFUSED, SPEC_INVALID, SUCCESS,
    USAGE,
};
use crate::experiments::SpecText;
use crate::runs::conclusion::conclude_with_verdict;
use crate::runs::job::Job;
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
    report(args, &gate)
}

fn interleaved(mut args: GateArgs, a: &Path, b: &Path) -> Outcome {
    let sides = sides(&args, a, b)?;
    for id in &sides.unpaired {
        terminal::say(&format!(
            "note: {id} has no counterpart and is not compared"
        ));
    }
    // A mistyped limit is reported before minutes of measuring.
    limits_match(&sides.experiment, &sides.pairs, &args.max).map_err(failure)?;
    let job = Job {
        out: args.out.take(),
        seed: args.seed,
        programs: std::mem::take(&mut args.programs),
        all_programs_required: true,
        ..Job::new(sides.experiment.clone())
    };
    let finished = job.execute()?;
    conclude_with_verdict(&finished, |data, _| {
        let gate = gate_sides(data, &sides.pairs, &args.max).map_err(failure)?;
        report(&args, &gate).map(Some)
    })
}

/// Both specs in one experiment, with the options of the command line.
fn sides(args: &GateArgs, a: &Path, b: &Path) -> Result<Sides, Failure> {
    let read = |path: &Path| -> Result<Experiment, Failure> {
        let mut experiment = SpecText::of_file(path, "name a YAML file")?.experiment()?;
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
            format!("A and B cannot be measured interleaved\n{e}"),
        )
    })
}

fn report(args: &GateArgs, gate: &GateReport) -> Outcome {
    let annotations = if args.github || in_github_actions() {
        meshtax_report::gate_annotations(gate)
    } else {
        String::new()
    };
    if args.json {
        terminal::print(&meshtax_report::gate_json(gate));
        // Standard output is one JSON document. GitHub reads annotations from standard error as well.
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
    Ok(code(gate.verdict))
}

/// The exit code of a verdict.
pub(super) fn code(verdict: GateVerdict) -> u8 {
    match verdict {
        GateVerdict::Pass => SUCCESS,
        GateVerdict::Fail => GATE_FAILED,
        GateVerdict::Inconclusive => GATE_INCONCLUSIVE,
    }
}

fn in_github_actions() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|e| {
        let message = format!("cannot write {}: {e}", path.display());
        Failure::with_fix(MISSING, message, "name a file in a writable directory")
    })
}

pub(super) fn failure(error: GateError) -> Failure {
    match error {
        GateError::Apart(apart) => apart_failure(&apart),
        GateError::NotComparable { differing } => {
            let list: Vec<String> = differing.iter().map(meshtax_report::difference).collect();
            let message = format!(
                "these runs are not comparable; their overheads differ for other reasons\n  {}",
                list.join("\n  ")
            );
            let fix = "measure both sides under the same conditions, or in one run: `meshtax gate --a SPEC --b SPEC`; \
                       `meshtax compare` reports the differences without a verdict";
            Failure::with_fix(REFUSED, message, fix)
        }
        GateError::NoLimit => {
            Failure::with_fix(USAGE, "no limit is given", "add one, as in --max 'p99 +5%'")
        }
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
                "the limit '{limit}' matches no metric that both sides have\n  variants: {}\n  load points: {}\n  metrics: {}",
                list(0),
                list(1),
                list(2)
            );
            let fix = "name one of these; throughput is measured at saturated load points, latency at steady ones";
            Failure::with_fix(USAGE, message, fix)
        }
    }
}
