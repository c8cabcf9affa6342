//! `meshtax scale`: how costs grow, from a run for each number.

use meshtax_dataplane::{DATA_PLANES, DataPlane};
use meshtax_model::analysis::Analysis;
use meshtax_model::experiment::{Experiment, OptionKind};
use meshtax_model::graph::Graph;
use meshtax_spec::Topology;
use meshtax_stats::scaling::{Asked, Growth, Scaled, scaling};

use super::run::{Job, known, parse};
use super::topologies;
use crate::args::{EngineName, OverName, ScaleArgs};
use crate::exit::{Failure, Outcome, SUCCESS, TOO_FEW, USAGE};
use crate::terminal;

/// What is measured where nothing else is said.
struct Usual {
    at: &'static [u32],
    predict: u32,
    time_ns: u64,
}

fn usual(over: OverName) -> Usual {
    let usual = |at, predict, seconds: u64| Usual {
        at,
        predict,
        time_ns: seconds * 1_000_000_000,
    };
    match over {
        OverName::Pods => usual(&[1, 10, 50, 90], 150, 30),
        OverName::Nodes => usual(&[1, 2, 4, 8], 16, 30),
        OverName::Hops => usual(&[1, 2, 3, 5], 8, 60),
        OverName::Rates => usual(&[50, 200, 400, 800], 600, 30),
        OverName::Known => usual(&[1, 100, 1000, 5000], 2500, 30),
        OverName::Churn => usual(&[1, 20, 50, 100], 75, 30),
    }
}

pub(crate) fn scale(args: &ScaleArgs) -> Outcome {
    let at = numbers(args)?;
    flags_go_together(args)?;
    plane_is_known(args)?;
    let asked = Subject::asked(args)?;
    // Before anything is measured: what the last of them refuses would cost the time of all others.
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
            true => format!("measuring {name}, to hold the prediction against it"),
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
    let told = told(args, &analyses, &asked, check.as_ref());
    Ok(match ended {
        SUCCESS if !told => TOO_FEW,
        ended => ended,
    })
}

/// Prints the laws; whether there is one at least.
fn told(
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

/// What a run is of.
#[derive(Clone)]
enum Subject {
    Number(u32),
    /// Services that call each other.
    Topology(Box<Topology>),
}

impl Subject {
    /// What the laws are to predict.
    fn asked(args: &ScaleArgs) -> Result<Self, Failure> {
        let number = args.predict.unwrap_or(usual(args.over).predict);
        match &args.topology {
            None => Ok(Self::Number(number)),
            Some(name) => Ok(Self::Topology(Box::new(topologies::find(name)?))),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Topology(topology) => topology.name.clone(),
        }
    }

    /// Of its run, below that of all. A topology's name may be a number, too.
    fn directory(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Topology(topology) => format!("for-{}", topology.name),
        }
    }

    fn as_asked(&self) -> Asked<'_> {
        match self {
            Self::Number(number) => Asked::Number(*number),
            Self::Topology(topology) => match &topology.graph {
                Some(graph) => Asked::Graph {
                    graph,
                    replicas: topology.replicas,
                },
                // A service that calls nobody is the first hop.
                None => Asked::Number(1),
            },
        }
    }
}

/// What only some numbers can have.
fn flags_go_together(args: &ScaleArgs) -> Result<(), Failure> {
    if args.topology.is_some() && args.over != OverName::Hops {
        let problem = "--for: only laws over hops say something of services that call each other";
        return Err(Failure::with_fix(
            USAGE,
            problem,
            "meshtax scale hops --for TOPOLOGY",
        ));
    }
    if args.pods.is_some() && args.over != OverName::Nodes {
        let problem = "--pods: only over nodes the number of pods stays the same";
        let fix = "meshtax scale nodes --pods N; or, how many pods: scale pods --at N,N,N";
        return Err(Failure::with_fix(USAGE, problem, fix));
    }
    if args.rate.is_some() && args.over == OverName::Rates {
        let problem = "--rate: here the rates are what there is more of";
        return Err(Failure::with_fix(USAGE, problem, "say which with --at"));
    }
    Ok(())
}

/// In order, each once; at least as many as a line takes.
fn numbers(args: &ScaleArgs) -> Result<Vec<u32>, Failure> {
    let mut at = match args.at.as_slice() {
        [] => usual(args.over).at.to_vec(),
        given => given.to_vec(),
    };
    at.sort_unstable();
    at.dedup();
    let least = meshtax_stats::scaling::RUNS_MIN;
    if at.len() >= least {
        return Ok(at);
    }
    let problem = format!("--at: a line takes {least} different numbers");
    Err(Failure::with_fix(
        USAGE,
        problem,
        "name more, as in --at 1,10,50,90",
    ))
}

fn list(at: &[u32]) -> String {
    at.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// A run, reported as any other. `Err` within: it ended otherwise than with figures, with this code.
fn measure(
    args: &ScaleArgs,
    directory: &str,
    experiment: Experiment,
) -> Result<Result<Analysis, u8>, Failure> {
    let job = Job {
        experiment,
        engine: EngineName::Local,
        out: args.out.as_ref().map(|out| out.join(directory)),
        seed: args.seed,
        programs: args.programs.clone(),
        sabotage: Vec::new(),
        open: false,
    };
    let measured = job.measured()?;
    Ok(match (measured.code, measured.analysis) {
        // Too few trials for intervals of effects are enough for what stands there.
        (SUCCESS | TOO_FEW, Some(analysis)) => Ok(analysis),
        (code, _) => Err(code),
    })
}

/// What a variant of the data plane must be able to have.
fn needed(over: OverName) -> &'static [OptionKind] {
    match over {
        OverName::Pods | OverName::Nodes | OverName::Hops | OverName::Rates => &[],
        OverName::Known => &[OptionKind::Knows],
        OverName::Churn => &[OptionKind::Knows, OptionKind::Changes],
    }
}

/// It is to be one with proxies, and the level one of its own.
fn plane_is_known(args: &ScaleArgs) -> Result<(), Failure> {
    let name = args.data_plane.as_str();
    let with_proxies = || DATA_PLANES.iter().filter(|p| !p.levels.is_empty());
    let able = |plane: &DataPlane| needed(args.over).iter().all(|n| plane.options.contains(n));
    let names = || with_proxies().map(|plane| plane.name);
    let Some(plane) = with_proxies().find(|plane| plane.name == name) else {
        let known = format!("use one of: {}", names().collect::<Vec<_>>().join(", "));
        let fix = match meshtax_spec::nearest(name, names()) {
            Some(meant) => format!("did you mean `{meant}`? {known}"),
            None => known,
        };
        let problem = format!("--data-plane: no data plane with proxies is called {name:?}");
        return Err(Failure::with_fix(USAGE, problem, &fix));
    };
    if !able(plane) {
        let problem = format!(
            "--data-plane: the proxies of {name} cannot be told of services that {}",
            match args.over {
                OverName::Churn => "change",
                OverName::Pods
                | OverName::Nodes
                | OverName::Hops
                | OverName::Rates
                | OverName::Known => "nobody calls",
            }
        );
        let able: Vec<&str> = with_proxies().filter(|p| able(p)).map(|p| p.name).collect();
        let fix = format!("use one of: {}", able.join(", "));
        return Err(Failure::with_fix(USAGE, problem, &fix));
    }
    if plane.levels.len() == 1 || plane.levels.contains(&args.level) {
        return Ok(());
    }
    let levels: Vec<String> = plane.levels.iter().map(ToString::to_string).collect();
    let problem = format!("--level: {name} has no level {}", args.level);
    let fix = format!("use one of: {}", levels.join(", "));
    Err(Failure::with_fix(USAGE, problem, &fix))
}

/// Requests of clients in a second where they are not what is asked: few, so that what is measured is what stands
/// there, and how long a request takes that waits for nobody.
const FEW_PER_S: f64 = 50.0;

fn experiment(args: &ScaleArgs, subject: &Subject) -> Result<Experiment, Failure> {
    let (plane, level) = (&args.data_plane, args.level);
    let level = match level_is_given(plane) {
        true => format!(", level: {level}"),
        false => String::new(),
    };
    let (name, topology) = match (subject, args.over) {
        (Subject::Topology(topology), _) => ("graph", topology.as_ref().clone()),
        (Subject::Number(number), OverName::Pods) => {
            ("replicas", topologies::find(&format!("replicas-{number}"))?)
        }
        (Subject::Number(number), OverName::Nodes) => {
            let name = format!("replicas-{}-nodes-{number}", pods_of_nodes(args)?);
            ("nodes", topologies::find(&name)?)
        }
        (Subject::Number(number), OverName::Hops) => {
            ("chain", topologies::find(&format!("chain-{number}"))?)
        }
        (_, OverName::Rates) => ("rate", topologies::find("pair")?),
        (_, OverName::Known) => ("known", topologies::find("pair")?),
        (_, OverName::Churn) => ("churn", topologies::find("pair")?),
    };
    let rate = match (subject, args.over) {
        (Subject::Number(number), OverName::Rates) => f64::from(*number),
        _ => args.rate.unwrap_or(FEW_PER_S),
    };
    let text = format!(
        "name: scale-{name}-{}\nworkload: {{response: 1 KiB, connections: 8}}\nvariants:\n  \
         - {{data-plane: {plane}{level}{}}}\nload:\n  - steady: {{rate: {rate}}}\n\
         design: {{rounds: 6, blocks: 1, trial: 1s, warmup: 200ms, time: 60s}}\n",
        subject.name(),
        knows(args, subject)
    );
    let mut experiment = parse("--at, --data-plane, --level, --rate", &text)?;
    let changed = topology
        .apply(&mut experiment, &known())
        .map_err(|e| Failure::with_fix(USAGE, e.problem, &e.fix))?;
    for what in changed {
        terminal::say(&format!("{}: {what}", subject.name()));
    }
    // The first request to a pod opens a connection on the way: that is not to be in the window.
    let behind = topology.graph.as_ref().map_or(0, Graph::pods);
    let pods = topology.replicas.saturating_add(behind);
    experiment.design.warmup_ns = 200_000_000 + 20_000_000 * u64::from(pods);
    experiment.design.time_limit_ns = args.time.unwrap_or(usual(args.over).time_ns);
    Ok(experiment)
}

/// The same in all runs: two for each node, where the most are measured.
fn pods_of_nodes(args: &ScaleArgs) -> Result<u32, Failure> {
    let asked = args.predict.unwrap_or(usual(args.over).predict);
    let checked = args.check.then_some(asked);
    let most = numbers(args)?.into_iter().chain(checked).max();
    let by_default = 2 * most.unwrap_or_default();
    Ok(args.pods.unwrap_or(by_default))
}

/// What the variant has besides its level; one name for all runs, since they differ in the number only.
fn knows(args: &ScaleArgs, subject: &Subject) -> String {
    let per_service = args.endpoints_per_service;
    let (endpoints, changes) = match (args.over, subject) {
        (OverName::Known, Subject::Number(number)) => (*number, String::new()),
        (OverName::Churn, Subject::Number(number)) => {
            (args.endpoints, format!(", changes: {number}/s"))
        }
        _ => return String::new(),
    };
    let id = match level_is_given(&args.data_plane) {
        true => format!("{}-{}", args.data_plane, args.level),
        false => args.data_plane.clone(),
    };
    format!(", id: {id}, knows: {{endpoints: {endpoints}, per-service: {per_service}{changes}}}")
}

/// With one level there is nothing to say.
fn level_is_given(plane: &str) -> bool {
    meshtax_dataplane::find(plane).is_none_or(|plane| plane.levels.len() > 1)
}
