//! `meshtax scale`: how costs scale, from one run for each number.

use meshtax_model::analysis::Analysis;
use meshtax_model::catalogue::{DATA_PLANES, DataPlane};
use meshtax_model::experiment::{
    Arrivals, Design, Experiment, ExtraEndpoints, LoadPoint, OptionKind, Placement, Regime,
    Variant, Workers, Workload,
};
use meshtax_model::topology::Topology;
use meshtax_spec::TopologySpec;
use meshtax_stats::scaling::{Growth, Scaled, ScalingTarget, scaling};

use crate::args::{OverName, ScaleArgs};
use crate::exit::{Failure, Outcome, SUCCESS, TOO_FEW, USAGE};
use crate::experiments::topology;
use crate::runs::conclusion;
use crate::runs::job::Job;
use crate::terminal;

/// The window of every trial.
const TRIAL_NS: u64 = 1_000_000_000;

/// The defaults of the options.
struct Defaults {
    at: &'static [u32],
    predict: u32,
    time_ns: u64,
}

fn defaults(over: OverName) -> Defaults {
    let defaults = |at, predict, seconds: u64| Defaults {
        at,
        predict,
        time_ns: seconds * 1_000_000_000,
    };
    match over {
        OverName::Pods => defaults(&[1, 10, 50, 90], 150, 30),
        OverName::Nodes => defaults(&[1, 2, 4, 8], 16, 30),
        OverName::Hops => defaults(&[1, 2, 3, 5], 8, 60),
        OverName::Rates => defaults(&[50, 200, 400, 800], 600, 30),
        OverName::Clients => defaults(&[1, 2, 3, 6], 4, 30),
        OverName::Endpoints => defaults(&[1, 100, 1000, 5000], 2500, 30),
        OverName::Churn => defaults(&[1, 20, 50, 100], 75, 30),
    }
}

pub(crate) fn scale(args: &ScaleArgs) -> Outcome {
    let at = numbers(args)?;
    validate_options(args)?;
    validate_data_plane(args)?;
    let asked = Subject::predicted(args)?;
    // All experiments are validated before the first run.
    let subjects = at.iter().map(|number| Subject::Number(*number));
    let further = args.check.then(|| asked.clone());
    let mut experiments = subjects
        .chain(further)
        .map(|subject| {
            let experiment = experiment(args, &subject)?;
            Ok((subject, experiment))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let checked = experiments.split_off(at.len()).pop();
    let mut analyses = Vec::new();
    let mut check = None;
    let mut ended = SUCCESS;
    for (subject, experiment) in experiments.into_iter().chain(checked) {
        let is_check = analyses.len() == at.len();
        let name = subject.name();
        terminal::say(&match is_check {
            false => format!("measuring {name} of {}", list(&at)),
            true => format!("measuring {name}, to check the prediction"),
        });
        match (measure(args, &subject.directory(), experiment)?, subject) {
            (Ok(analysis), _) if is_check => check = Some(analysis),
            (Ok(analysis), Subject::Number(number)) => analyses.push((number, analysis)),
            (Ok(_), Subject::Topology(_)) => {}
            (Err(code), _) => {
                ended = code;
                break;
            }
        }
    }
    if analyses.is_empty() {
        return Ok(ended);
    }
    let has_law = report(args, &analyses, &asked, check.as_ref());
    Ok(match ended {
        SUCCESS if !has_law => TOO_FEW,
        ended => ended,
    })
}

/// Prints the laws; returns whether there is one.
fn report(
    args: &ScaleArgs,
    analyses: &[(u32, Analysis)],
    asked: &Subject,
    check: Option<&Analysis>,
) -> bool {
    let runs: Vec<Scaled<'_>> = analyses
        .iter()
        .map(|(at, analysis)| Scaled { at: *at, analysis })
        .collect();
    let laws = scaling(&Growth {
        over: args.over.over(),
        runs: &runs,
        asked: Some(asked.as_asked()),
        check,
    });
    terminal::print(&if args.json {
        meshtax_report::scaling_json(&laws)
    } else {
        meshtax_report::scaling_terminal(&laws, terminal::options())
    });
    laws.laws.iter().any(|law| law.line.is_some())
}

/// The subject of a run.
#[derive(Clone)]
enum Subject {
    Number(u32),
    /// A topology.
    Topology(Box<TopologySpec>),
}

impl Subject {
    /// The subject of the prediction.
    fn predicted(args: &ScaleArgs) -> Result<Self, Failure> {
        let number = args.predict.unwrap_or(defaults(args.over).predict);
        match &args.topology {
            None => Ok(Self::Number(number)),
            Some(name) => Ok(Self::Topology(Box::new(topology(name)?))),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Topology(topology) => topology.name.clone(),
        }
    }

    /// The name of its run directory. The name of a topology may be a number, too.
    fn directory(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Topology(topology) => format!("for-{}", topology.name),
        }
    }

    fn as_asked(&self) -> ScalingTarget<'_> {
        match self {
            Self::Number(number) => ScalingTarget::Number(*number),
            Self::Topology(spec) => ScalingTarget::Topology(&spec.topology),
        }
    }
}

/// Rejects options that do not apply.
fn validate_options(args: &ScaleArgs) -> Result<(), Failure> {
    if args.topology.is_some() && args.over != OverName::Hops {
        let problem = "--for: only `scale hops` predicts services that call each other";
        return Err(Failure::with_fix(
            USAGE,
            problem,
            "use `meshtax scale hops --for TOPOLOGY`",
        ));
    }
    if args.pods.is_some() && args.over != OverName::Nodes {
        let problem = "--pods: only `scale nodes` has a fixed number of pods";
        let fix = "use `meshtax scale nodes --pods N`, or `meshtax scale pods --at N,N,N`";
        return Err(Failure::with_fix(USAGE, problem, fix));
    }
    if args.rate.is_some() && args.over == OverName::Rates {
        let problem = "--rate: `scale rates` varies the rate";
        return Err(Failure::with_fix(USAGE, problem, "use --at"));
    }
    Ok(())
}

/// The numbers in ascending order, each once; at least as many as a line requires.
fn numbers(args: &ScaleArgs) -> Result<Vec<u32>, Failure> {
    let mut at = match args.at.as_slice() {
        [] => defaults(args.over).at.to_vec(),
        given => given.to_vec(),
    };
    at.sort_unstable();
    at.dedup();
    let min = meshtax_stats::scaling::RUNS_MIN;
    if at.len() >= min {
        return Ok(at);
    }
    let problem = format!("--at: a line requires {min} different numbers");
    Err(Failure::with_fix(
        USAGE,
        problem,
        "add more, as in --at 1,10,50,90",
    ))
}

fn list(at: &[u32]) -> String {
    at.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Executes a run. `Ok(Err(code))`: it ended without a result.
fn measure(
    args: &ScaleArgs,
    directory: &str,
    experiment: Experiment,
) -> Result<Result<Analysis, u8>, Failure> {
    let measured = conclusion::measure(Job {
        out: args.out.as_ref().map(|out| out.join(directory)),
        seed: args.seed,
        programs: args.programs.clone(),
        ..Job::new(experiment)
    })?;
    Ok(match (measured.code, measured.analysis) {
        // Memory and idle CPU need fewer trials than intervals of effects.
        (SUCCESS | TOO_FEW, Some(analysis)) => Ok(analysis),
        (code, _) => Err(code),
    })
}

/// The options that the data plane must support.
fn needed_options(over: OverName) -> &'static [OptionKind] {
    match over {
        OverName::Pods | OverName::Nodes | OverName::Hops | OverName::Rates | OverName::Clients => {
            &[]
        }
        OverName::Endpoints => &[OptionKind::ExtraEndpoints],
        OverName::Churn => &[OptionKind::ExtraEndpoints, OptionKind::Changes],
    }
}

fn with_proxies() -> impl Iterator<Item = &'static DataPlane> {
    DATA_PLANES.iter().filter(|plane| !plane.levels.is_empty())
}

fn data_plane(args: &ScaleArgs) -> Result<&'static DataPlane, Failure> {
    let found = with_proxies().find(|plane| plane.name == args.data_plane);
    found.ok_or_else(|| {
        let names: Vec<&str> = with_proxies().map(|plane| plane.name).collect();
        Failure::unknown_name("data plane with proxies", &args.data_plane, &names)
    })
}

/// Rejects a data plane without proxies or without the options that are needed, and a level that it does not have.
fn validate_data_plane(args: &ScaleArgs) -> Result<(), Failure> {
    let name = args.data_plane.as_str();
    let plane = data_plane(args)?;
    let supports = |plane: &DataPlane| {
        let mut needed = needed_options(args.over).iter();
        needed.all(|option| plane.options.contains(option))
    };
    if !supports(plane) {
        let what = match args.over {
            OverName::Churn => "endpoint churn",
            _ => "extra endpoints",
        };
        let problem = format!("--data-plane: {name} does not support {what}");
        let names: Vec<&str> = with_proxies()
            .filter(|p| supports(p))
            .map(|p| p.name)
            .collect();
        let fix = format!("use one of: {}", names.join(", "));
        return Err(Failure::with_fix(USAGE, problem, fix));
    }
    if plane.levels.len() == 1 || plane.levels.contains(&args.level) {
        return Ok(());
    }
    let levels: Vec<String> = plane.levels.iter().map(ToString::to_string).collect();
    let problem = format!("--level: {name} has no level {}", args.level);
    let fix = format!("use one of: {}", levels.join(", "));
    Err(Failure::with_fix(USAGE, problem, fix))
}

/// The default rate: low, so that the figures are those of idle proxies and of requests that do not queue.
const DEFAULT_RATE_PER_S: f64 = 50.0;

fn experiment(args: &ScaleArgs, subject: &Subject) -> Result<Experiment, Failure> {
    let (name, topology) = match (subject, args.over) {
        (Subject::Topology(topology), _) => ("graph", topology.as_ref().clone()),
        (Subject::Number(number), OverName::Pods) => {
            ("replicas", topology(&format!("replicas-{number}"))?)
        }
        (Subject::Number(number), OverName::Nodes) => {
            let name = format!("replicas-{}-nodes-{number}", pods_of_nodes(args)?);
            ("nodes", topology(&name)?)
        }
        (Subject::Number(number), OverName::Hops) => {
            ("chain", topology(&format!("chain-{number}"))?)
        }
        (_, OverName::Rates) => ("rate", topology("pair")?),
        (_, OverName::Clients) => ("clients", topology("pair")?),
        (_, OverName::Endpoints) => ("endpoints", topology("pair")?),
        (_, OverName::Churn) => ("churn", topology("pair")?),
    };
    let mut experiment = Experiment {
        name: format!("scale-{name}-{}", subject.name()),
        study: None,
        series: None,
        placement: Placement::TwoNodes,
        kubernetes: None,
        topology: Topology::default(),
        saturation: None,
        workload: Workload {
            response_bytes: 1024,
            connections: connections(args.over),
            clients: clients(args, subject)?,
        },
        workers: Workers::Equal(1),
        variants: meshtax_spec::baselines(),
        load_points: vec![load_point(args, subject)?],
        margins: Default::default(),
        design: design(args, &topology),
    };
    experiment.variants.push(variant(args, subject)?);
    let rounded = topology
        .apply(&mut experiment)
        .map_err(|e| Failure::with_fix(USAGE, e.problem, e.fix))?;
    for connections in rounded {
        terminal::say(&format!("{}: {connections}", subject.name()));
    }
    Ok(experiment)
}

/// The same number in all runs. Over clients, one that most numbers of clients divide evenly.
fn connections(over: OverName) -> u32 {
    match over {
        OverName::Clients => 24,
        _ => 8,
    }
}

fn clients(args: &ScaleArgs, subject: &Subject) -> Result<u32, Failure> {
    let Subject::Number(number) = subject else {
        return Ok(1);
    };
    if args.over != OverName::Clients {
        return Ok(1);
    }
    let most = connections(args.over);
    if *number > most {
        let problem = format!("{number} clients cannot share {most} connections");
        let fix = format!("use numbers from 1 to {most}");
        return Err(Failure::with_fix(USAGE, problem, fix));
    }
    Ok(*number)
}

fn design(args: &ScaleArgs, topology: &TopologySpec) -> Design {
    // The first request to a pod opens connections in the proxies: that belongs to the warm-up.
    let pods = topology.topology.pods();
    Design {
        min_rounds: 6,
        blocks_per_round: 1,
        trial_ns: TRIAL_NS,
        requests_per_trial: None,
        warmup_ns: 200_000_000 + 20_000_000 * u64::from(pods),
        time_limit_ns: args.time.unwrap_or(defaults(args.over).time_ns),
        precision: None,
    }
}

fn load_point(args: &ScaleArgs, subject: &Subject) -> Result<LoadPoint, Failure> {
    let (option, rate_per_s) = match (subject, args.over) {
        (Subject::Number(number), OverName::Rates) => ("--at", f64::from(*number)),
        _ => ("--rate", args.rate.unwrap_or(DEFAULT_RATE_PER_S)),
    };
    meshtax_spec::enough_requests(rate_per_s, TRIAL_NS).map_err(|e| Failure::option(option, &e))?;
    let load = Regime::Steady {
        rate_per_s,
        arrivals: Arrivals::Poisson,
    };
    Ok(LoadPoint::new("steady", load))
}

/// The candidate. Its id is the same in all runs: only the number differs.
fn variant(args: &ScaleArgs, subject: &Subject) -> Result<Variant, Failure> {
    let plane = data_plane(args)?;
    let level = match plane.levels {
        [only] => *only,
        _ => args.level,
    };
    let mut variant = meshtax_spec::candidate(plane, Some(level));
    let per_service = args.endpoints_per_service;
    variant.options.extra_endpoints = match (args.over, subject) {
        (OverName::Endpoints, Subject::Number(number)) => Some(ExtraEndpoints {
            endpoints: *number,
            per_service,
            changes_per_s: None,
        }),
        (OverName::Churn, Subject::Number(number)) => {
            let changes = meshtax_spec::changes_per_s(&number.to_string());
            Some(ExtraEndpoints {
                endpoints: args.endpoints,
                per_service,
                changes_per_s: Some(changes.map_err(|e| Failure::option("--at", &e))?),
            })
        }
        _ => None,
    };
    Ok(variant)
}

/// The same number in all runs: two for each of the most nodes.
fn pods_of_nodes(args: &ScaleArgs) -> Result<u32, Failure> {
    let predicted = args.predict.unwrap_or(defaults(args.over).predict);
    let checked = args.check.then_some(predicted);
    let max = numbers(args)?.into_iter().chain(checked).max();
    Ok(args.pods.unwrap_or(2 * max.unwrap_or_default()))
}
