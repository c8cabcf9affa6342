//! A whole spec -> an [`Experiment`], or one for each of its topologies.

use meshtax_model::experiment::{Experiment, Placement, Workers};
use meshtax_model::topology::Topology;

use crate::design::{
    self, FAITHFUL, LONGEST_DEFAULT_TRIAL_NS, Lengths, TRIAL, default_trials, fit_trials_to_time,
};
use crate::error::SpecError;
use crate::grammar::{ValueError, safe_name, workers};
use crate::kubernetes;
use crate::topology::{self, TopologySpec};
use crate::yaml::{self, Fields, Node, Problem, items};
use crate::{clients, ingress, load_points, margins, saturation, service, variants, workload};

const EXAMPLE: &str = "`name: my-question` and further lines of `key: value`";

/// The runs of more topologies take a night.
const MAX_TOPOLOGIES: usize = 12;

/// The key for the services, and the key for several alternatives of them, run one after the other.
const TOPOLOGY: &str = "topology";
const TOPOLOGIES: &str = "topologies";

const PLACEMENTS: [Placement; 2] = [Placement::TwoNodes, Placement::OneNode];

const KEYS: [&str; 15] = [
    "name",
    "study",
    "placement",
    kubernetes::KEY,
    TOPOLOGY,
    TOPOLOGIES,
    "service",
    saturation::KEY,
    "workload",
    "workers",
    "variants",
    "load",
    margins::KEY,
    "design",
    FAITHFUL,
];

/// Reads a spec: its experiment, or one for each of its `topologies`, which are run one after the other. `file` is its
/// name in errors.
///
/// # Errors
/// The first problem: invalid YAML, an unknown or missing key, a value out of range, an unknown data plane or level, a
/// duplicate.
pub fn parse_all(file: &str, text: &str, lengths: Lengths) -> Result<Vec<Experiment>, SpecError> {
    yaml::read(text)
        .and_then(|root| experiments(&root, lengths))
        .map_err(|problem| SpecError::new(file, text, problem))
}

/// Reads a spec of one experiment.
///
/// # Errors
/// Those of [`parse_all`], and a spec with several topologies.
pub fn parse(file: &str, text: &str) -> Result<Experiment, SpecError> {
    yaml::read(text)
        .and_then(|root| single_experiment(&root))
        .map_err(|problem| SpecError::new(file, text, problem))
}

/// The error of a value that only its user can judge, at its place in a spec: `path` has the keys and the indices that lead
/// to it, as far as they exist.
#[must_use]
pub fn error_at(file: &str, text: &str, path: &[&str], error: ValueError) -> SpecError {
    let at = yaml::read(text).ok().map(|root| root.place(path));
    let problem = Problem {
        at,
        message: error.problem,
        fix: error.fix,
    };
    SpecError::new(file, text, problem)
}

/// The experiments of a spec, each with an equal part of the time.
fn experiments(root: &Node, lengths: Lengths) -> Result<Vec<Experiment>, Problem> {
    let Some(topologies) = alternatives(root)? else {
        return Ok(vec![experiment(root, lengths, None)?]);
    };
    let mut experiments: Vec<Experiment> = Vec::new();
    for node in topologies {
        let mut one = experiment(root, lengths, Some(node))?;
        if lengths == Lengths::Short {
            one.design.time_limit_ns /= topologies.len() as u64;
        }
        if experiments.iter().any(|other| other.name == one.name) {
            return Err(Problem::new(
                node.at,
                "this topology is listed twice",
                "remove one, or give each of your own topologies a `name`",
            ));
        }
        experiments.push(one);
    }
    Ok(experiments)
}

fn single_experiment(root: &Node) -> Result<Experiment, Problem> {
    match alternatives(root)? {
        None => experiment(root, Lengths::Short, None),
        Some(_) => Err(Problem::new(
            root.entry(TOPOLOGIES).map_or(root.at, |node| node.at),
            "several topologies are several runs, and a single run is required here",
            "write one of them as `topology:`; only `meshtax run` runs several",
        )),
    }
}

/// The items of `topologies`, if the spec has that key.
fn alternatives(root: &Node) -> Result<Option<&[Node]>, Problem> {
    let Some(node) = root.entry(TOPOLOGIES) else {
        return Ok(None);
    };
    let mut others = [TOPOLOGY, "service"].into_iter();
    if let Some(other) = others.find_map(|key| root.entry(key)) {
        return Err(Problem::new(
            other.at,
            "`topologies` already defines the services",
            "remove one of the two keys",
        ));
    }
    items(node, TOPOLOGIES, MAX_TOPOLOGIES).map(Some)
}

/// `alternative`: the one of its topologies that this experiment has, and from which it gets its name.
fn experiment(
    root: &Node,
    lengths: Lengths,
    alternative: Option<&Node>,
) -> Result<Experiment, Problem> {
    let spec = Fields::of(root, "the spec", &KEYS, EXAMPLE)?;
    let mut design = design::read(spec.get("design"), spec.get(FAITHFUL), lengths, root.at)?;
    let has_default_length = lengths == Lengths::Short && !names_trial_length(&spec);
    if has_default_length && design.requests_per_trial.is_none() {
        design.trial_ns = design.trial_ns.max(LONGEST_DEFAULT_TRIAL_NS);
    }
    let topology_node = alternative.or(spec.get(TOPOLOGY));
    let topology = topology_node.map(topology::read).transpose()?;
    defined_once(&spec, topology.as_ref())?;
    let name = spec.or("name", "custom".to_owned(), safe_name)?;
    let (workload, default_ingress) = workload::read(spec.get("workload"), topology.as_ref())?;
    let mut experiment = Experiment {
        name: match (&alternative, &topology) {
            (Some(_), Some(topology)) => format!("{name}-{}", topology.name),
            _ => name.clone(),
        },
        study: spec.optional("study", safe_name)?,
        series: alternative.is_some().then_some(name),
        placement: spec
            .keyword("placement", &PLACEMENTS.map(|one| (one.word(), one)))?
            .unwrap_or(Placement::TwoNodes),
        kubernetes: kubernetes::read(spec.get(kubernetes::KEY))?,
        saturation: spec.optional(saturation::KEY, saturation::rate)?,
        topology: services(&spec, topology.as_ref())?,
        workload,
        workers: spec.or("workers", Workers::Equal(1), workers)?,
        variants: variants::read(spec.get("variants"))?,
        load_points: load_points::read(spec.get("load"), default_ingress, &design)?,
        margins: margins::read(spec.get(margins::KEY))?,
        design,
    };
    if has_default_length {
        default_trials(&mut experiment);
        fit_trials_to_time(&mut experiment);
    }
    let ingress_node = spec.get(match default_ingress {
        Some(_) => "workload",
        None => "load",
    });
    validate(&experiment, &spec, topology_node, ingress_node)?;
    Ok(match lengths {
        Lengths::Short => experiment,
        Lengths::Faithful => design::limit_to_planned_rounds(experiment),
    })
}

/// Whether the length of a trial is the spec's own.
fn names_trial_length(spec: &Fields<'_>) -> bool {
    let design = spec.get("design");
    design.and_then(|node| node.entry(TRIAL)).is_some()
}

/// Two keys can define the services.
fn defined_once(spec: &Fields<'_>, topology: Option<&TopologySpec>) -> Result<(), Problem> {
    match (spec.get("service"), topology) {
        (Some(node), Some(_)) => Err(Problem::new(
            node.at,
            "`service` and `topology` both define the services",
            "remove one; a topology has its own replicas, as in `topology: replicas-3`",
        )),
        _ => Ok(()),
    }
}

fn services(spec: &Fields<'_>, topology: Option<&TopologySpec>) -> Result<Topology, Problem> {
    match (spec.get("service"), topology) {
        (Some(node), _) => service::read(node),
        (None, Some(topology)) => Ok(topology.topology.clone()),
        (None, None) => Ok(Topology::default()),
    }
}

/// What parts of the spec say about each other. Each contradiction is an error at the part that names it.
fn validate(
    experiment: &Experiment,
    spec: &Fields<'_>,
    topology: Option<&Node>,
    ingress: Option<&Node>,
) -> Result<(), Problem> {
    let check = |node: Option<&Node>, rule: fn(&Experiment) -> Result<(), ValueError>| match node {
        Some(node) => rule(experiment).map_err(|e| Problem::at(node.at, e)),
        None => Ok(()),
    };
    let clients = spec
        .get("workload")
        .and_then(|node| node.entry(clients::KEY));
    check(spec.get(saturation::KEY), saturation::validate)?;
    check(ingress, ingress::validate)?;
    check(clients, clients::validate)?;
    check(clients, service::room_for_all)?;
    check(topology, topology::validate)?;
    check(spec.get("placement"), one_node)?;
    check(spec.get("service"), service::validate)
}

/// Services on several nodes contradict a placement on one.
fn one_node(experiment: &Experiment) -> Result<(), ValueError> {
    let nodes = experiment.topology.server_nodes();
    match experiment.placement == Placement::OneNode && nodes > 1 {
        true => Err(ValueError::new(
            format!("the services have {nodes} nodes, and `one-node` has one for everything"),
            "omit `nodes` of the service or the topology, or write `placement: two-nodes`",
        )),
        false => Ok(()),
    }
}
