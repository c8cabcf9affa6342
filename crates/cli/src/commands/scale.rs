//! `meshtax scale`: how costs grow, from a run for each number.

use meshtax_dataplane::{DATA_PLANES, DataPlane};
use meshtax_model::analysis::Analysis;
use meshtax_model::experiment::{Experiment, OptionKind};
use meshtax_stats::scaling::{Scaled, scaling};

use super::run::{Job, known, parse};
use super::topologies;
use crate::args::{EngineName, OverName, ScaleArgs};
use crate::exit::{Failure, Outcome, SUCCESS, TOO_FEW, USAGE};
use crate::terminal;

pub(crate) fn scale(args: &ScaleArgs) -> Outcome {
    let at = numbers(args)?;
    let predict = predicted(args);
    plane_is_known(args)?;
    // Before anything is measured: what the last of them refuses would cost the time of all others.
    let further = args.check.then_some(predict);
    let experiments = at.iter().copied().chain(further);
    let mut experiments = experiments
        .map(|number| Ok((number, experiment(args, number)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let checked = experiments.split_off(at.len()).pop();
    let mut analyses = Vec::new();
    let mut check = None;
    let mut ended = SUCCESS;
    for (number, experiment) in experiments.into_iter().chain(checked) {
        let is_check = analyses.len() == at.len();
        terminal::say(&match is_check {
            false => format!("measuring {number} of {}", list(&at)),
            true => format!("measuring {number}, to hold the prediction against it"),
        });
        match measure(args, number, experiment)? {
            Ok(analysis) if is_check => check = Some(analysis),
            Ok(analysis) => analyses.push((number, analysis)),
            Err(code) => {
                ended = code;
                break;
            }
        }
    }
    if analyses.is_empty() {
        return Ok(ended);
    }
    let runs: Vec<Scaled<'_>> = analyses
        .iter()
        .map(|(at, analysis)| Scaled { at: *at, analysis })
        .collect();
    let laws = scaling(args.over.over(), &runs, Some(predict), check.as_ref());
    terminal::print(&if args.json {
        meshtax_report::scaling_json(&laws)
    } else {
        meshtax_report::scaling_terminal(&laws, terminal::options())
    });
    let has_line = laws.laws.iter().any(|law| law.line.is_some());
    Ok(match ended {
        SUCCESS if !has_line => TOO_FEW,
        ended => ended,
    })
}

/// For which number the law is to say what it expects.
fn predicted(args: &ScaleArgs) -> u32 {
    args.predict.unwrap_or(match args.over {
        OverName::Pods => 150,
        OverName::Nodes => 16,
        OverName::Hops => 8,
        OverName::Known => 2500,
        OverName::Churn => 75,
    })
}

/// In order, each once; at least as many as a line takes.
fn numbers(args: &ScaleArgs) -> Result<Vec<u32>, Failure> {
    let mut at = match (args.at.as_slice(), args.over) {
        ([], OverName::Pods) => vec![1, 10, 50, 90],
        ([], OverName::Nodes) => vec![1, 2, 4, 8],
        ([], OverName::Hops) => vec![1, 2, 3, 5],
        ([], OverName::Known) => vec![1, 100, 1000, 5000],
        ([], OverName::Churn) => vec![1, 20, 50, 100],
        (given, _) => given.to_vec(),
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
    number: u32,
    experiment: Experiment,
) -> Result<Result<Analysis, u8>, Failure> {
    let job = Job {
        experiment,
        engine: EngineName::Local,
        out: args.out.as_ref().map(|out| out.join(number.to_string())),
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
        OverName::Pods | OverName::Nodes | OverName::Hops => &[],
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
                OverName::Pods | OverName::Nodes | OverName::Hops | OverName::Known =>
                    "nobody calls",
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

/// A low steady rate: what is asked is what stands there, and how long a request takes that waits for nobody.
fn experiment(args: &ScaleArgs, number: u32) -> Result<Experiment, Failure> {
    let (plane, level) = (&args.data_plane, args.level);
    let level = match level_is_given(plane) {
        true => format!(", level: {level}"),
        false => String::new(),
    };
    let (name, topology, pods) = match args.over {
        OverName::Pods => ("replicas", format!("replicas-{number}"), number),
        OverName::Nodes => {
            let pods = pods_of_nodes(args)?;
            let topology = format!("replicas-{pods}-nodes-{number}");
            ("nodes", topology, pods)
        }
        OverName::Hops => ("chain", format!("chain-{number}"), number),
        OverName::Known => ("known", "pair".to_owned(), 1),
        OverName::Churn => ("churn", "pair".to_owned(), 1),
    };
    let text = format!(
        "name: scale-{name}-{number}\nworkload: {{response: 1 KiB, connections: 8}}\nvariants:\n  \
         - {{data-plane: {plane}{level}{}}}\nload:\n  - steady: {{rate: 50}}\n\
         design: {{rounds: 6, blocks: 1, trial: 1s, warmup: 200ms, time: 60s}}\n",
        knows(args, number)
    );
    let mut experiment = parse("--at, --data-plane, --level", &text)?;
    topologies::find(&topology)?
        .apply(&mut experiment, &known())
        .map_err(|e| Failure::with_fix(USAGE, e.problem, &e.fix))?;
    // The first request to a pod opens a connection on the way: that is not to be in the window.
    let per_pod_ns = 20_000_000 * u64::from(pods);
    experiment.design.warmup_ns = 200_000_000 + per_pod_ns;
    experiment.design.time_limit_ns = args.time.unwrap_or(match args.over {
        OverName::Hops => 60_000_000_000,
        OverName::Pods | OverName::Nodes | OverName::Known | OverName::Churn => 30_000_000_000,
    });
    Ok(experiment)
}

/// The same in all runs: two for each node, where the most are measured.
fn pods_of_nodes(args: &ScaleArgs) -> Result<u32, Failure> {
    let checked = args.check.then(|| predicted(args));
    let most = numbers(args)?.into_iter().chain(checked).max();
    let by_default = 2 * most.unwrap_or_default();
    Ok(args.pods.unwrap_or(by_default))
}

/// What the variant has besides its level; one name for all runs, since they differ in the number only.
fn knows(args: &ScaleArgs, number: u32) -> String {
    let per_service = args.endpoints_per_service;
    let (endpoints, changes) = match args.over {
        OverName::Pods | OverName::Nodes | OverName::Hops => return String::new(),
        OverName::Known => (number, String::new()),
        OverName::Churn => (args.endpoints, format!(", changes: {number}/s")),
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
