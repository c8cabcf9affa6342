//! `meshtax run`.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use meshtax_dataplane::{DATA_PLANES, DataPlane, GATEWAY_PROGRAM, Program, Sabotage};
use meshtax_engine::{Counts, EngineError, RunError, RunOptions, RunOutcome, SystemClock, Watch};
use meshtax_local::{LocalEngine, LocalOptions};
use meshtax_model::analysis::{Analysis, Verdict};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{Experiment, VariantId};
use meshtax_spec::{KnownDataPlane, Lengths};
use meshtax_stats::RunData;
use meshtax_store::{RunStart, Store};

use super::live::Live;
use super::report::render;
use super::{analysis, dataplanes, page, presets, series, topologies};
use crate::args::{EngineName, Format, ProgramArgs, RunArgs};
use crate::exit::{
    Failure, LEFTOVERS, MISSING, NOTHING_MEASURED, Outcome, SPEC_INVALID, SUCCESS, TOO_FEW,
    UNEXPECTED, USAGE,
};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::terminal;

pub(crate) fn run(args: RunArgs) -> Outcome {
    let mut experiments = experiments(&args)?;
    if args.faithful {
        terminal::say(&meshtax_report::how_long(&experiments));
    }
    let format = if args.json {
        Format::Json
    } else {
        Format::Terminal
    };
    let experiment = match experiments.len() {
        1 => experiments.remove(0),
        _ => return series::run(args, experiments, format),
    };
    let done = Job::of(&args, experiment, args.out.clone()).perform()?;
    conclude(&done, |_, analysed| render(analysed, format))
}

/// An experiment that is to be run.
pub(crate) struct Job {
    pub(crate) experiment: Experiment,
    pub(crate) engine: EngineName,
    pub(crate) out: Option<PathBuf>,
    pub(crate) seed: Option<u64>,
    pub(crate) programs: ProgramArgs,
    pub(crate) sabotage: Vec<(VariantId, Sabotage)>,
    /// Show the page while the run goes on.
    pub(crate) open: bool,
}

/// One that was.
pub(crate) struct Done {
    outcome: RunOutcome,
    pub(crate) directory: PathBuf,
    interrupt: Interrupt,
}

impl Done {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupt.exit_code().is_some()
    }
}

/// A run that was measured and understood.
pub(crate) struct Measured {
    /// `None`: nothing was measured.
    pub(crate) analysis: Option<Analysis>,
    /// The code that it would end with by itself.
    pub(crate) code: u8,
    pub(crate) is_interrupted: bool,
}

impl Job {
    /// What `run` was asked for, stored in this directory.
    pub(crate) fn of(args: &RunArgs, experiment: Experiment, out: Option<PathBuf>) -> Self {
        Self {
            experiment,
            engine: args.engine,
            out,
            seed: args.seed,
            programs: args.programs.clone(),
            sabotage: args.sabotage.clone(),
            open: args.open,
        }
    }

    /// Runs it as one of several: nothing of it is printed.
    pub(crate) fn measured(self) -> Result<Measured, Failure> {
        let done = self.perform()?;
        let mut analysis = None;
        let code = conclude_judged(&done, |_, analysed| {
            analysis = Some(analysed.clone());
            Ok(None)
        })?;
        Ok(Measured {
            analysis,
            code,
            is_interrupted: done.is_interrupted(),
        })
    }

    pub(crate) fn perform(self) -> Result<Done, Failure> {
        let interrupt = Interrupt::catch();
        let seed = self.seed.unwrap_or_else(random);
        let mut store = self.create_store(seed)?;
        let directory = store.path().to_path_buf();
        let measured = self.measure(seed, &mut store, &interrupt);
        if !directory.join(meshtax_store::MANIFEST).is_file() {
            store.remove_if_unused();
        }
        Ok(Done {
            outcome: measured?,
            directory,
            interrupt,
        })
    }

    fn create_store(&self, seed: u64) -> Result<Store, Failure> {
        let started_unix_ms = meshtax_observe::unix_ms();
        let run_id = meshtax_store::run_id(started_unix_ms, &self.experiment.name, random() as u16);
        let path = self
            .out
            .clone()
            .unwrap_or_else(|| meshtax_store::default_path(&run_id));
        let start = RunStart {
            run_id,
            meshtax_version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms,
            seed,
        };
        Store::create(&path, start).map_err(|e| Failure::new(MISSING, e))
    }

    fn measure(
        self,
        seed: u64,
        store: &mut Store,
        interrupt: &Interrupt,
    ) -> Result<RunOutcome, Failure> {
        let EngineName::Local = self.engine;
        let experiment = &self.experiment;
        let mut progress = Progress::new();
        let mut programs = Vec::new();
        for program in needed_programs(experiment) {
            match dataplanes::program(program, &self.programs, &progress)? {
                Ok(binary) => programs.push(binary),
                Err(why) if experiment.has_ingress() && program == GATEWAY_PROGRAM => {
                    return Err(without_gateways(&why));
                }
                Err(why) => {
                    let name = program.name();
                    progress.line(&format!("variants with {name} are left out: {why}"));
                }
            }
        }
        let mut engine = LocalEngine::new(LocalOptions {
            programs,
            sabotage: self.sabotage.into_iter().collect(),
        });
        let live = Live::new(store.path(), experiment.design.precision, self.open);
        let live = RefCell::new(live);
        let mut enough = || live.borrow_mut().is_enough();
        let outcome = meshtax_engine::run(
            &mut engine,
            experiment,
            RunOptions { seed },
            store,
            Watch {
                clock: &SystemClock::new(),
                events: &mut |event| {
                    progress.show(&event);
                    live.borrow_mut().hear(&event, &mut progress);
                },
                interrupted: &interrupt.flag,
                enough: &mut enough,
            },
        );
        progress.clear();
        Ok(outcome)
    }
}

/// The data planes, as specs see them.
pub(crate) fn known() -> Vec<KnownDataPlane> {
    let known = |plane: &DataPlane| {
        KnownDataPlane::new(plane.name, plane.levels)
            .carrying_graphs(plane.carries_graphs())
            .with_options(plane.options)
            .having_gateway(plane.has_gateway())
    };
    DATA_PLANES.iter().map(known).collect()
}

/// A spec that is one experiment.
pub(crate) fn parse(file: &str, text: &str) -> Result<Experiment, Failure> {
    let experiment =
        meshtax_spec::parse(file, text, &known()).map_err(|e| Failure::new(SPEC_INVALID, e))?;
    study_is_known(file, &experiment)?;
    Ok(experiment)
}

fn study_is_known(file: &str, experiment: &Experiment) -> Result<(), Failure> {
    match &experiment.study {
        Some(study) if meshtax_published::find(study).is_none() => {
            let message =
                format!("{file}: `study`: nobody published `{study}` as far as meshtax knows");
            let fix = "name one of `meshtax published`, or leave it out";
            Err(Failure::with_fix(SPEC_INVALID, message, fix))
        }
        _ => Ok(()),
    }
}

/// An experiment that ships with meshtax.
pub(crate) fn preset(name: &str) -> Result<Experiment, Failure> {
    let preset = presets::find(name)?;
    parse(preset.name, preset.yaml)
}

/// An experiment from a file.
pub(crate) fn spec(path: &Path, fix: &str) -> Result<Experiment, Failure> {
    parse(&path.display().to_string(), &text_of(path, fix)?)
}

fn text_of(path: &Path, fix: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| {
        let message = format!("cannot read the spec {}: {e}", path.display());
        Failure::with_fix(SPEC_INVALID, message, fix)
    })
}

/// What was asked: the spec or the preset, with what the command line adds. Several: one run for each topology.
fn experiments(args: &RunArgs) -> Result<Vec<Experiment>, Failure> {
    let (file, text) = match &args.spec {
        Some(path) => {
            let text = text_of(path, "name a YAML file, or use --preset")?;
            (path.display().to_string(), text)
        }
        None => {
            let preset = presets::find(args.preset.as_deref().unwrap_or("quick"))?;
            (preset.name.to_owned(), preset.yaml.to_owned())
        }
    };
    let lengths = match args.faithful {
        true => Lengths::Faithful,
        false => Lengths::Short,
    };
    let mut all = meshtax_spec::parse_all(&file, &text, &known(), lengths)
        .map_err(|e| Failure::new(SPEC_INVALID, e))?;
    let of = all.len() as u64;
    if args.topology.is_some() && of > 1 {
        let message = "--topology: the spec has several topologies already";
        let fix = "leave it off, or write the spec with `topology:` in place of `topologies:`";
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    for experiment in &mut all {
        study_is_known(&file, experiment)?;
        adapt(experiment, args, of)?;
    }
    Ok(all)
}

/// What the command line adds to one of so many experiments.
fn adapt(experiment: &mut Experiment, args: &RunArgs, of: u64) -> Result<(), Failure> {
    if let Some(time_limit_ns) = args.time {
        experiment.design.time_limit_ns = time_limit_ns / of;
    }
    if args.precision.is_some() {
        experiment.design.precision = args.precision;
    }
    if let Some(name) = &args.topology {
        let topology = topologies::find(name)?;
        let changed = topology
            .apply(experiment, &known())
            .map_err(|e| Failure::with_fix(USAGE, format!("--topology: {}", e.problem), &e.fix))?;
        for what in changed {
            terminal::say(&format!("--topology: {what}"));
        }
    }
    if let Some(ingress) = args.ingress {
        meshtax_spec::enter_by_gateway(experiment, ingress, &known())
            .map_err(|e| Failure::with_fix(USAGE, format!("--ingress: {}", e.problem), &e.fix))?;
    }
    for inject in &args.inject {
        meshtax_spec::add_injected(experiment, *inject)
            .map_err(|e| Failure::with_fix(USAGE, format!("--inject: {}", e.problem), &e.fix))?;
    }
    for (variant, _) in &args.sabotage {
        if experiment.variant(variant).is_none() {
            return Err(Failure::new(
                USAGE,
                format!("--sabotage: no variant is called {variant}"),
            ));
        }
    }
    Ok(())
}

/// Of no use for secrets: a seed that differs from run to run.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

/// Programs of real proxies, each once.
fn needed_programs(experiment: &Experiment) -> Vec<Program> {
    let is_needed = |program: &Program| {
        experiment.variants.iter().any(|variant| {
            meshtax_dataplane::find(&variant.data_plane)
                .is_some_and(|plane| plane.needs.contains(program))
        }) || (experiment.has_ingress() && *program == GATEWAY_PROGRAM)
    };
    Program::FOREIGN.iter().copied().filter(is_needed).collect()
}

/// Not even the baseline can be measured then.
fn without_gateways(why: &str) -> Failure {
    let name = GATEWAY_PROGRAM.name();
    let message = format!("every gateway runs {name}, the baseline's too: {why}");
    let fix = "give one with --envoy PATH, or let clients call from a pod (no `ingress`)";
    Failure::with_fix(MISSING, message, fix)
}

/// Says what was measured, and by which code the run ends.
pub(crate) fn conclude(
    done: &Done,
    told: impl FnOnce(&RunData<'_>, &Analysis) -> String,
) -> Outcome {
    conclude_judged(done, |data, analysis| {
        terminal::print(&told(data, analysis));
        Ok(None)
    })
}

/// The same, of a run that is judged: a code of `told` stands in place of the run's own, if the run came to
/// its end in good order.
pub(crate) fn conclude_judged(
    done: &Done,
    told: impl FnOnce(&RunData<'_>, &Analysis) -> Result<Option<u8>, Failure>,
) -> Outcome {
    let Done {
        outcome,
        directory,
        interrupt,
    } = done;
    let mut analysis = None;
    let mut judged = None;
    if outcome.measured.trials > 0 {
        let run = analysis::read(directory)?;
        let data = analysis::data(&run);
        let analysed = meshtax_stats::analyse(&data);
        page::write(&analysed, directory);
        judged = told(&data, &analysed)?;
        analysis = Some(analysed);
    }
    if directory.is_dir() {
        terminal::say(&format!("run: {}", directory.display()));
    }
    if let Some(problem) = &outcome.problem {
        terminal::say(&format!("error: {problem}"));
    }
    if !outcome.leftovers.is_empty() {
        let message = format!(
            "teardown is incomplete; left: {}",
            outcome.leftovers.join(", ")
        );
        return Err(Failure::new(LEFTOVERS, message));
    }
    let whole = outcome.problem.is_none() && !matches!(outcome.ending, Ending::Failed { .. });
    Ok(interrupt
        .exit_code()
        .or(judged.filter(|_| whole))
        .unwrap_or_else(|| code(outcome, analysis.as_ref())))
}

fn code(outcome: &RunOutcome, analysis: Option<&Analysis>) -> u8 {
    let Counts { trials, .. } = outcome.measured;
    match (&outcome.problem, &outcome.ending) {
        (Some(RunError::Engine(EngineError::Missing { .. })), _) => MISSING,
        (Some(RunError::Sink(_)), _) => MISSING,
        (Some(_), _) if trials == 0 => NOTHING_MEASURED,
        (Some(_), _) | (None, Ending::Failed { .. }) => TOO_FEW,
        (None, _) => match analysis {
            Some(analysis) if answers(analysis) => SUCCESS,
            Some(_) => TOO_FEW,
            None if trials == 0 => NOTHING_MEASURED,
            None => UNEXPECTED,
        },
    }
}

/// Whether anything was compared with an interval.
pub(crate) fn answers(analysis: &Analysis) -> bool {
    analysis.effects.iter().any(|effect| {
        !matches!(effect.verdict, Verdict::NotEstimable { .. })
            && effect
                .difference
                .is_some_and(|difference| difference.interval.is_some())
    })
}
