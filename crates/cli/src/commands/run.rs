//! `meshtax run`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use meshtax_model::experiment::Experiment;
use meshtax_spec::Lengths;

use super::upgrade;
use crate::args::{EngineName, Format, KubernetesArgs, RunArgs};
use crate::exit::{Failure, MISSING, NOTHING_MEASURED, Outcome, SUCCESS, TOO_FEW, USAGE};
use crate::experiments::{self, SpecText};
use crate::random;
use crate::runs::conclusion::{conclude, measure};
use crate::runs::job::Job;
use crate::runs::{page, render};
use crate::terminal;

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let mut experiments = experiments(args)?;
    if args.engine == EngineName::Local {
        reject_cluster_options(&args.kubernetes)?;
    }
    if args.kubernetes.dry_run {
        return dry_run(args, &experiments);
    }
    if args.faithful {
        terminal::say(&meshtax_report::how_long(&experiments));
    }
    let format = format(args);
    let experiment = match experiments.len() {
        1 => experiments.remove(0),
        _ => return run_series(args, experiments, format),
    };
    if is_upgrade(args) {
        let job = job(args, experiment.clone(), args.out.clone());
        return upgrade::upgrade(args, &experiment, job);
    }
    if args.upgrade.from.is_some() {
        let message = "--from and --to compare two builds only with --preset upgrade";
        let fix =
            "add it, or name builds in the spec: {data-plane: envoy-sidecar, version: 1.40.0}";
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    let finished = job(args, experiment, args.out.clone()).execute()?;
    conclude(&finished, |_, analysis| {
        render::run(analysis, format, terminal::options())
    })
}

pub(super) fn format(args: &RunArgs) -> Format {
    match args.json {
        true => Format::Json,
        false => Format::Terminal,
    }
}

/// Options of a cluster are not ignored on this machine.
pub(super) fn reject_cluster_options(args: &KubernetesArgs) -> Result<(), Failure> {
    let given = [
        (args.dry_run, "--dry-run"),
        (args.access.context.is_some(), "--context"),
        (args.access.kubeconfig.is_some(), "--kubeconfig"),
        (!args.nodes.is_empty(), "--nodes"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => Err(Failure::with_fix(
            USAGE,
            format!("{option} is for runs on a cluster"),
            "add --engine kubernetes, or omit it",
        )),
    }
}

/// Every object that the runs would apply.
fn dry_run(args: &RunArgs, experiments: &[Experiment]) -> Outcome {
    for experiment in experiments {
        let objects = meshtax_kube::objects(experiment, &args.kubernetes.options(BTreeMap::new()));
        for object in objects.map_err(|e| Failure::with_fix(MISSING, &e, e.fix()))? {
            terminal::print(&format!("---\n{object}"));
        }
    }
    Ok(SUCCESS)
}

fn is_upgrade(args: &RunArgs) -> bool {
    args.preset.as_deref() == Some(meshtax_spec::UPGRADE)
}

fn job(args: &RunArgs, experiment: Experiment, out: Option<PathBuf>) -> Job {
    Job {
        cluster: (args.engine == EngineName::Kubernetes).then(|| args.kubernetes.clone()),
        out,
        seed: args.seed,
        programs: args.programs.clone(),
        sabotage: args.sabotage.clone(),
        open: args.open,
        prometheus: args.prometheus.clone(),
        ..Job::new(experiment)
    }
}

/// The experiments of the spec or the preset, with the options of the command line. Several: one run for each topology.
fn experiments(args: &RunArgs) -> Result<Vec<Experiment>, Failure> {
    let spec = match &args.spec {
        Some(path) => SpecText::of_file(path, "name a YAML file, or use --preset")?,
        None => {
            let name = args.preset.as_deref().unwrap_or("quick");
            SpecText::of_preset(experiments::find_preset(name)?)
        }
    };
    let lengths = match args.faithful {
        true => Lengths::Faithful,
        false => Lengths::Short,
    };
    let mut all = spec.experiments(lengths)?;
    let count = all.len() as u64;
    if args.topology.is_some() && count > 1 {
        let message = "--topology: the spec already has several topologies";
        let fix = "omit the option, or write the spec with `topology:` instead of `topologies:`";
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    for experiment in &mut all {
        apply_options(experiment, args, count)?;
    }
    Ok(all)
}

/// Applies the options of the command line to one of `count` experiments.
fn apply_options(experiment: &mut Experiment, args: &RunArgs, count: u64) -> Result<(), Failure> {
    if let Some(time_limit_ns) = args.time {
        experiment.design.time_limit_ns = time_limit_ns / count;
    }
    if args.fast_application {
        experiment.saturation = None;
    }
    if let Some(workers) = args.workers {
        experiment.workers = workers;
    }
    if args.precision.is_some() {
        experiment.design.precision = args.precision;
    }
    if let Some(clients) = args.clients {
        let rounded = meshtax_spec::set_clients(experiment, clients)
            .map_err(|e| Failure::option("--clients", &e))?;
        for connections in rounded {
            terminal::say(&format!("--clients: {connections}"));
        }
    }
    if let Some(name) = &args.topology {
        let rounded = experiments::topology(name)?
            .apply(experiment)
            .map_err(|e| Failure::option("--topology", &e))?;
        for connections in rounded {
            terminal::say(&format!("--topology: {connections}"));
        }
    }
    if let Some(ingress) = args.ingress {
        meshtax_spec::route_through_gateway(experiment, ingress)
            .map_err(|e| Failure::option("--ingress", &e))?;
    }
    // An upgrade's cost is the new build's.
    let costs = args.inject.iter().filter(|_| !is_upgrade(args));
    for inject in costs {
        meshtax_spec::add_injected(experiment, *inject)
            .map_err(|e| Failure::option("--inject", &e))?;
    }
    if args.time.is_some() && !args.faithful {
        meshtax_spec::fit_trials_to_time(experiment);
    }
    for (variant, _) in &args.sabotage {
        if experiment.variant(variant).is_none() {
            let message = format!("--sabotage: no variant is called {variant}");
            return Err(Failure::new(USAGE, message));
        }
    }
    Ok(())
}

/// Runs the experiments one after the other, each in a directory of its own name below that of the series.
fn run_series(args: &RunArgs, experiments: Vec<Experiment>, format: Format) -> Outcome {
    let directory = series_directory(args, &experiments);
    let count = experiments.len();
    let (mut analyses, mut codes) = (Vec::new(), Vec::new());
    for (experiment, number) in experiments.into_iter().zip(1..) {
        terminal::say(&format!("run {number} of {count}: {}", experiment.name));
        let out = directory.join(&experiment.name);
        let measured = measure(job(args, experiment, Some(out)))?;
        codes.push(measured.code);
        let continues = !measured.is_interrupted && measured.code != MISSING;
        analyses.extend(measured.analysis);
        if !continues {
            break;
        }
    }
    if !analyses.is_empty() {
        let report = render::series(&analyses, format, terminal::options())?;
        terminal::print(&report);
        page::write_series(&analyses, &directory);
        terminal::say(&format!("runs: {}", directory.display()));
    }
    Ok(series_code(&codes))
}

fn series_directory(args: &RunArgs, experiments: &[Experiment]) -> PathBuf {
    let name = experiments.iter().find_map(|e| e.series.as_deref());
    let default = || {
        let now = meshtax_observe::unix_ms();
        let suffix = random::seed() as u16;
        meshtax_store::default_path(&meshtax_store::run_id(
            now,
            name.unwrap_or("series"),
            suffix,
        ))
    };
    args.out.clone().unwrap_or_else(default)
}

/// A failure takes precedence; otherwise one run with a result is enough.
fn series_code(codes: &[u8]) -> u8 {
    let is_complete = |code: &&u8| [SUCCESS, TOO_FEW].contains(code);
    let failure = codes.iter().find(|code| !is_complete(code));
    let best = codes.iter().min();
    *failure.or(best).unwrap_or(&NOTHING_MEASURED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_run_determines_the_code_of_a_series_and_otherwise_one_result_is_enough() {
        for (codes, expected) in [
            (&[SUCCESS, SUCCESS][..], SUCCESS),
            (&[TOO_FEW, SUCCESS], SUCCESS),
            (&[TOO_FEW, TOO_FEW], TOO_FEW),
            (&[SUCCESS, MISSING], MISSING),
            (&[SUCCESS, NOTHING_MEASURED, SUCCESS], NOTHING_MEASURED),
            (&[SUCCESS, 130], 130),
            (&[], NOTHING_MEASURED),
        ] {
            assert_eq!(series_code(codes), expected, "{codes:?}");
        }
    }
}
