//! `meshtax run`.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use meshtax_dataplane::{DATA_PLANES, Program};
use meshtax_engine::{
    Counts, EngineError, RunError, RunOptions, RunOutcome, Sink, SinkError, SystemClock, Watch,
};
use meshtax_local::{LocalEngine, LocalOptions};
use meshtax_model::analysis::{Analysis, Verdict};
use meshtax_model::environment::Environment;
use meshtax_model::event::Ending;
use meshtax_model::evidence::{Evidence, VariantFailure};
use meshtax_model::experiment::Experiment;
use meshtax_model::trial::{ResourceSample, TrialRecord};
use meshtax_spec::KnownDataPlane;
use meshtax_store::{RunStart, Store};

use super::report::render;
use super::{analysis, dataplanes, presets};
use crate::args::{EngineName, Format, RunArgs};
use crate::exit::{
    Failure, LEFTOVERS, MISSING, NOTHING_MEASURED, Outcome, SPEC_INVALID, SUCCESS, TOO_FEW,
    UNEXPECTED, USAGE,
};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::terminal;

const REPORT: &str = "report.html";

pub(crate) fn run(args: RunArgs) -> Outcome {
    let experiment = experiment(&args)?;
    let interrupt = Interrupt::catch();
    let seed = args.seed.unwrap_or_else(random);
    let mut store = create_store(&args, &experiment, seed)?;
    let directory = store.path().to_path_buf();
    let measured = measure(args, &experiment, seed, &mut store, &interrupt);
    if !directory.join(meshtax_store::MANIFEST).is_file() {
        store.remove_if_unused();
    }
    let (outcome, json) = measured?;
    conclude(&outcome, &directory, json, &interrupt)
}

/// What was asked: the spec or the preset, with what the command line adds.
fn experiment(args: &RunArgs) -> Result<Experiment, Failure> {
    let known: Vec<_> = DATA_PLANES
        .iter()
        .map(|plane| KnownDataPlane::new(plane.name, plane.levels))
        .collect();
    let parse = |file: &str, text: &str| {
        meshtax_spec::parse(file, text, &known).map_err(|e| Failure::new(SPEC_INVALID, e))
    };
    let mut experiment = match &args.spec {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|e| {
                let message = format!("cannot read the spec {}: {e}", path.display());
                Failure::with_fix(SPEC_INVALID, message, "name a YAML file, or use --preset")
            })?;
            parse(&path.display().to_string(), &text)?
        }
        None => {
            let preset = presets::find(args.preset.as_deref().unwrap_or("quick"))?;
            parse(preset.name, preset.yaml)?
        }
    };
    if let Some(time_limit_ns) = args.time {
        experiment.design.time_limit_ns = time_limit_ns;
    }
    if args.precision.is_some() {
        experiment.design.precision = args.precision;
    }
    for inject in &args.inject {
        meshtax_spec::add_injected(&mut experiment, *inject)
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
    Ok(experiment)
}

fn create_store(args: &RunArgs, experiment: &Experiment, seed: u64) -> Result<Store, Failure> {
    let started_unix_ms = meshtax_observe::unix_ms();
    let run_id = meshtax_store::run_id(started_unix_ms, &experiment.name, random() as u16);
    let path = args
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

/// Of no use for secrets: a seed that differs from run to run.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}

fn measure(
    args: RunArgs,
    experiment: &Experiment,
    seed: u64,
    store: &mut Store,
    interrupt: &Interrupt,
) -> Result<(RunOutcome, bool), Failure> {
    let EngineName::Local = args.engine;
    let mut progress = Progress::new();
    let mut programs = Vec::new();
    for program in needed_programs(experiment) {
        match dataplanes::program(program, &args.programs, &progress)? {
            Ok(binary) => programs.push(binary),
            Err(why) => {
                let name = program.name();
                progress.line(&format!("variants with {name} are left out: {why}"));
            }
        }
    }
    let mut engine = LocalEngine::new(LocalOptions {
        programs,
        sabotage: args.sabotage.into_iter().collect(),
    });
    let kept = Kept::default();
    let kept = RefCell::new(kept);
    let half_width = experiment.design.precision;
    let mut sink = KeepingSink {
        store,
        kept: half_width.is_some().then_some(&kept),
    };
    let mut enough = || half_width.is_some_and(|half_width| kept.borrow().precise(half_width));
    let outcome = meshtax_engine::run(
        &mut engine,
        experiment,
        RunOptions { seed },
        &mut sink,
        Watch {
            clock: &SystemClock::new(),
            events: &mut |event| progress.show(&event),
            interrupted: &interrupt.flag,
            enough: &mut enough,
        },
    );
    progress.clear();
    Ok((outcome, args.json))
}

/// Programs of real proxies, each once.
fn needed_programs(experiment: &Experiment) -> Vec<Program> {
    let is_needed = |program: &Program| {
        experiment.variants.iter().any(|variant| {
            meshtax_dataplane::find(&variant.data_plane)
                .is_some_and(|plane| plane.needs.contains(program))
        })
    };
    Program::FOREIGN.iter().copied().filter(is_needed).collect()
}

/// Says what was measured, and by which code the run ends.
fn conclude(outcome: &RunOutcome, directory: &Path, json: bool, interrupt: &Interrupt) -> Outcome {
    let mut analysis = None;
    if outcome.measured.trials > 0 {
        let analysed = analysis::of_directory(directory)?;
        terminal::print(&render(
            &analysed,
            if json { Format::Json } else { Format::Terminal },
        ));
        write_report(&analysed, directory);
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
    Ok(interrupt
        .exit_code()
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
fn answers(analysis: &Analysis) -> bool {
    analysis.effects.iter().any(|effect| {
        !matches!(effect.verdict, Verdict::NotEstimable { .. })
            && effect
                .difference
                .is_some_and(|difference| difference.interval.is_some())
    })
}

fn write_report(analysis: &Analysis, directory: &Path) {
    let path: PathBuf = directory.join(REPORT);
    if let Err(e) = fs::write(&path, meshtax_report::html(analysis)) {
        terminal::say(&format!("cannot write {}: {e}", path.display()));
    }
}

/// Keeps records in memory as well, where stopping on precision needs them.
struct KeepingSink<'a> {
    store: &'a mut Store,
    kept: Option<&'a RefCell<Kept>>,
}

/// The records so far.
#[derive(Default)]
struct Kept {
    prepared: Option<(Environment, Experiment)>,
    trials: Vec<TrialRecord>,
    samples: Vec<ResourceSample>,
    evidence: Vec<Evidence>,
    failures: Vec<VariantFailure>,
}

impl Kept {
    fn precise(&self, half_width: f64) -> bool {
        let Some((environment, experiment)) = &self.prepared else {
            return false;
        };
        let data = meshtax_stats::RunData {
            run: meshtax_model::analysis::RunFacts {
                id: String::new(),
                meshtax_version: String::new(),
                started_unix_ms: 0,
                took_ns: 0,
                seed: 0,
                ending: None,
            },
            experiment,
            environment,
            trials: &self.trials,
            samples: &self.samples,
            evidence: &self.evidence,
            failures: &self.failures,
        };
        meshtax_stats::precision_reached(&data, half_width)
    }
}

impl KeepingSink<'_> {
    fn keep(&self, add: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.kept {
            add(&mut kept.borrow_mut());
        }
    }
}

impl Sink for KeepingSink<'_> {
    fn prepared(
        &mut self,
        environment: &Environment,
        experiment: &Experiment,
    ) -> Result<(), SinkError> {
        self.keep(|kept| kept.prepared = Some((environment.clone(), experiment.clone())));
        self.store.prepared(environment, experiment)
    }

    fn evidence(&mut self, evidence: &Evidence) -> Result<(), SinkError> {
        self.keep(|kept| kept.evidence.push(evidence.clone()));
        self.store.evidence(evidence)
    }

    fn variant_failed(&mut self, failure: &VariantFailure) -> Result<(), SinkError> {
        self.keep(|kept| kept.failures.push(failure.clone()));
        self.store.variant_failed(failure)
    }

    fn trial(
        &mut self,
        record: &TrialRecord,
        sample: Option<&ResourceSample>,
    ) -> Result<(), SinkError> {
        self.keep(|kept| {
            kept.trials.push(record.clone());
            kept.samples.extend(sample.cloned());
        });
        self.store.trial(record, sample)
    }

    fn ended(&mut self, ending: &Ending) -> Result<(), SinkError> {
        self.store.ended(ending)
    }
}
