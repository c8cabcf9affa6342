//! A spec's tree -> an [`Experiment`].

use meshtax_model::experiment::{
    Arrivals, Design, EqualWork, Experiment, Ingress, LoadPoint, LoadPointId, Placement, Protocol,
    Regime, Service, Workload,
};

use crate::error::{Place, Problem};
use crate::fields::{Fields, items, scalar, word};
use crate::ingress;
use crate::service;
use crate::topology::{self, Topology};
use crate::tree::Node;
use crate::value::{self, ValueError};
use crate::variants;
use crate::{KnownDataPlane, Lengths};

/// More load points than this make a block longer than a machine stays the same.
const MOST_LOAD_POINTS: usize = 16;

const SPEC_EXAMPLE: &str = "`name: my-question` and further lines of `key: value`";
const WORKLOAD_KEYS: [&str; 3] = [RESPONSE, CONNECTIONS, ingress::KEY];
const WORKLOAD_EXAMPLE: &str = "`workload: {response: 1 KiB, connections: 32}`";
const STEADY_EXAMPLE: &str = "- steady: {rate: 1000, arrivals: poisson}";
const SATURATED_EXAMPLE: &str = "- saturated: {}";

/// More topologies than this in a row are a study for a night.
const MOST_TOPOLOGIES: usize = 12;

/// The key for a study's own lengths.
const FAITHFUL: &str = "faithful";
const FAITHFUL_EXAMPLE: &str = "`faithful: {trial: 5m}` or `faithful: {requests: 300000}`";

/// A trial by the number of its requests takes no longer, in nanoseconds.
const LONGEST_BY_REQUESTS_NS: u64 = 3_600_000_000_000;

/// The key for what is called, and that for several of it, one run after the other.
const TOPOLOGY: &str = "topology";
const TOPOLOGIES: &str = "topologies";

/// The whole spec: one experiment, or one for each of its topologies, with an equal part of the time.
pub(crate) fn experiments(
    root: &Node,
    known: &[KnownDataPlane],
    lengths: Lengths,
) -> Result<Vec<Experiment>, Problem> {
    let Some(all) = several(root)? else {
        return Ok(vec![experiment(root, known, lengths, None)?]);
    };
    let mut experiments: Vec<Experiment> = Vec::new();
    for node in all {
        let mut one = experiment(root, known, lengths, Some(node))?;
        if lengths == Lengths::Short {
            one.design.time_limit_ns /= all.len() as u64;
        }
        if experiments.iter().any(|other| other.name == one.name) {
            return Err(Problem::new(
                node.at,
                "this topology stands twice",
                "leave one out, or give each of your own a `name`",
            ));
        }
        experiments.push(one);
    }
    Ok(experiments)
}

/// The experiment of a spec that may not be several.
pub(crate) fn only_experiment(
    root: &Node,
    known: &[KnownDataPlane],
) -> Result<Experiment, Problem> {
    match several(root)? {
        None => experiment(root, known, Lengths::Short, None),
        Some(_) => Err(Problem::new(
            root.entry(TOPOLOGIES).map_or(root.at, |node| node.at),
            "several topologies are several runs, and here one is needed",
            "write one of them as `topology:`; `meshtax run` alone takes them all",
        )),
    }
}

/// The topologies, if the spec has a list of them.
fn several(root: &Node) -> Result<Option<&[Node]>, Problem> {
    let Some(node) = root.entry(TOPOLOGIES) else {
        return Ok(None);
    };
    let mut others = [TOPOLOGY, "service"].into_iter();
    if let Some(other) = others.find_map(|key| root.entry(key)) {
        return Err(Problem::new(
            other.at,
            "`topologies` says already what is called",
            "leave one of the two out",
        ));
    }
    items(node, TOPOLOGIES, MOST_TOPOLOGIES).map(Some)
}

/// `of_several`: the one of its topologies that this experiment is of, after which it is called, too.
fn experiment(
    root: &Node,
    known: &[KnownDataPlane],
    lengths: Lengths,
    of_several: Option<&Node>,
) -> Result<Experiment, Problem> {
    const KEYS: [&str; 12] = [
        "name",
        "study",
        "placement",
        TOPOLOGY,
        TOPOLOGIES,
        "service",
        "workload",
        "workers",
        "variants",
        "load",
        "design",
        FAITHFUL,
    ];
    let spec = Fields::of(root, "the spec", &KEYS, SPEC_EXAMPLE)?;
    let short = match spec.get("design") {
        Some(node) => design(node)?,
        None => default_design(),
    };
    let design = match (lengths, faithful(&spec, &short)?) {
        (Lengths::Short, _) => short,
        (Lengths::Faithful, Some(faithful)) => faithful,
        (Lengths::Faithful, None) => {
            return Err(Problem::new(
                root.at,
                "the spec does not say how long a study's own trials are",
                format!("add {FAITHFUL_EXAMPLE}, or leave `--faithful` off"),
            ));
        }
    };
    let topology_node = of_several.or(spec.get(TOPOLOGY));
    let topology = topology_node.map(topology::read).transpose()?;
    if let (Some(_), Some(node)) = (&topology, spec.get("service")) {
        return Err(Problem::new(
            node.at,
            "`service` and `topology` both say what is called",
            "leave one out; a topology has replicas of its own, as in `topology: replicas-3`",
        ));
    }
    let name = spec.or("name", "custom".to_owned(), safe_name)?;
    let usual_ingress = workload_ingress(spec.get("workload"))?;
    let experiment = Experiment {
        name: match (&of_several, &topology) {
            (Some(_), Some(topology)) => format!("{name}-{}", topology.name),
            _ => name.clone(),
        },
        study: spec.or("study", None, |t| safe_name(t).map(Some))?,
        series: of_several.is_some().then_some(name),
        placement: match spec.get("placement") {
            Some(node) => word(node, "placement", &[("two-nodes", Placement::TwoNodes)])?,
            None => Placement::TwoNodes,
        },
        service: match spec.get("service") {
            Some(node) => service::read(node)?,
            None => topology
                .as_ref()
                .map_or_else(Service::default, Topology::service),
        },
        workload: workload(spec.get("workload"), topology.as_ref())?,
        equal_work: EqualWork {
            workers: spec.or("workers", 1, |t| {
                value::count(t, "a number of worker threads", 1, 64)
            })?,
        },
        variants: variants::read(spec.get("variants"), known)?,
        load_points: load_points(spec.get("load"), usual_ingress, &design)?,
        design,
    };
    let at_ingress = match usual_ingress {
        Some(_) => spec.get("workload"),
        None => spec.get("load"),
    };
    if let Some(node) = at_ingress {
        let of_ingress = |e: ValueError| Problem::new(node.at, e.problem, e.fix);
        ingress::fits(&experiment, known).map_err(of_ingress)?;
    }
    if let Some(node) = topology_node {
        let of_topology = |e: ValueError| Problem::new(node.at, e.problem, e.fix);
        topology::fits(&experiment, known).map_err(of_topology)?;
    }
    service::fits(spec.get("service"), &experiment)?;
    Ok(match lengths {
        Lengths::Short => experiment,
        Lengths::Faithful => lasting_as_planned(experiment),
    })
}

/// A study's own lengths, which are checked whether they are asked for or not.
fn faithful(spec: &Fields<'_>, short: &Design) -> Result<Option<Design>, Problem> {
    let Some(node) = spec.get(FAITHFUL) else {
        return Ok(None);
    };
    let keys = ["rounds", "trial", "warmup", "requests"];
    let fields = Fields::of(node, "`faithful`", &keys, FAITHFUL_EXAMPLE)?;
    let requests = fields.or("requests", None, |t| {
        value::count(t, "a number of requests", 1, 100_000_000).map(Some)
    })?;
    let rounds = fields.or("rounds", 1, |t| {
        value::count(t, "a number of rounds", 1, 1000)
    })?;
    if requests.is_none() && fields.get("trial").is_none() {
        return Err(Problem::new(
            node.at,
            "`faithful` does not say how long a trial is",
            format!("write it as {FAITHFUL_EXAMPLE}"),
        ));
    }
    // How long such a trial takes shows in the first round only; a further one could not be planned.
    if let (Some(_), true, Some(node)) = (requests, rounds > 1, fields.get("rounds")) {
        return Err(Problem::new(
            node.at,
            "trials by the number of their requests are measured in one round",
            "leave `rounds` out, or give a time as `trial:` in place of `requests`",
        ));
    }
    Ok(Some(Design {
        min_rounds: rounds,
        blocks_per_round: 1,
        trial_ns: fields.or("trial", LONGEST_BY_REQUESTS_NS, value::trial_ns)?,
        requests_per_trial: requests.map(u64::from),
        warmup_ns: fields.or("warmup", short.warmup_ns, value::warmup_ns)?,
        time_limit_ns: short.time_limit_ns,
        precision: None,
    }))
}

/// With the time for as many rounds as there are to be, and not for another.
fn lasting_as_planned(mut experiment: Experiment) -> Experiment {
    /// For the set-up of a round, if it is slow.
    const SETUP_NS: u64 = 60_000_000_000;
    let block_ns = experiment.block_ns();
    let design = &mut experiment.design;
    let rounds = u64::from(design.min_rounds);
    design.time_limit_ns = match (rounds, design.requests_per_trial) {
        // One block is measured whatever the time.
        (1, _) | (_, Some(_)) => 1_000_000_000,
        _ => rounds.saturating_mul(block_ns + SETUP_NS.min(block_ns / rounds / 2)),
    };
    experiment
}

/// Names and ids stand in paths, in tables and in URLs' fragments.
pub(crate) fn safe_name(text: &str) -> Result<String, ValueError> {
    const MOST: usize = 64;
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && text.len() <= MOST && text.chars().all(safe) {
        return Ok(text.to_owned());
    }
    Err(ValueError {
        problem: "this name cannot be used".to_owned(),
        fix: format!(
            "allowed: up to {MOST} of a-z A-Z 0-9 - _ . +, a letter or digit first, as in envoy-sidecar-l7"
        ),
    })
}

/// The topology's size of answers holds if nothing else is said, and so many connections that they can be spread evenly
/// over the services that clients call.
fn workload(node: Option<&Node>, topology: Option<&Topology>) -> Result<Workload, Problem> {
    const CONNECTIONS_USED: u32 = 32;
    let usual = Workload {
        response_bytes: topology.and_then(|t| t.response_bytes).unwrap_or(1024),
        connections: topology.map_or(CONNECTIONS_USED, |t| t.evenly(CONNECTIONS_USED)),
    };
    let Some(node) = node else {
        return Ok(usual);
    };
    let fields = Fields::of(node, "`workload`", &WORKLOAD_KEYS, WORKLOAD_EXAMPLE)?;
    Ok(Workload {
        response_bytes: fields.or(RESPONSE, usual.response_bytes, response_size)?,
        connections: fields.or(CONNECTIONS, usual.connections, connections)?,
    })
}

fn connections(text: &str) -> Result<u32, ValueError> {
    value::count(text, "a number of connections", 1, 10_000)
}

/// Size of an answer's body.
pub(crate) fn response_size(text: &str) -> Result<u32, ValueError> {
    const MOST: u64 = 64 * 1024 * 1024;
    let bytes = value::size_bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|b| u64::from(*b) <= MOST)
        .ok_or_else(|| ValueError {
            problem: format!("{bytes} bytes are out of range"),
            fix: "allowed: 0 B to 64 MiB, as in 1 KiB".to_owned(),
        })
}

fn default_design() -> Design {
    Design {
        min_rounds: 6,
        blocks_per_round: 2,
        trial_ns: 500_000_000,
        requests_per_trial: None,
        warmup_ns: 100_000_000,
        time_limit_ns: 120_000_000_000,
        precision: None,
    }
}

fn design(node: &Node) -> Result<Design, Problem> {
    let fields = Fields::of(
        node,
        "`design`",
        &["rounds", "blocks", "trial", "warmup", "time", "precision"],
        "`design: {rounds: 6, blocks: 2, trial: 500ms, warmup: 100ms, time: 2m}`",
    )?;
    let default = default_design();
    Ok(Design {
        min_rounds: fields.or("rounds", default.min_rounds, |t| {
            value::count(t, "a number of rounds", 1, 1000)
        })?,
        blocks_per_round: fields.or("blocks", default.blocks_per_round, |t| {
            value::count(t, "a number of blocks", 1, 100)
        })?,
        trial_ns: fields.or("trial", default.trial_ns, value::trial_ns)?,
        requests_per_trial: None,
        warmup_ns: fields.or("warmup", default.warmup_ns, value::warmup_ns)?,
        time_limit_ns: fields.or("time", default.time_limit_ns, value::time_limit_ns)?,
        precision: fields.or("precision", None, |t| value::precision(t).map(Some))?,
    })
}

fn default_load() -> Vec<LoadPoint> {
    let steady = Regime::Steady {
        rate_per_s: 1000.0,
        arrivals: Arrivals::Poisson,
    };
    [("steady", steady), ("saturated", Regime::Saturated)]
        .map(|(id, load)| LoadPoint::new(id, load))
        .to_vec()
}

/// A load point before its id is final.
struct Draft {
    at: Place,
    id: Option<String>,
    load: Regime,
    requests_per_connection: Option<u32>,
    connections: Option<u32>,
    by_users: bool,
    protocol: Protocol,
    response: Option<(String, u32)>,
    /// `None`: as the workload says.
    ingress: Option<Option<Ingress>>,
}

impl Draft {
    /// A name that says in what it differs from the usual one.
    fn generated_id(&self, with_rate: bool) -> String {
        let regime = match self.load {
            Regime::Steady { rate_per_s, .. } if with_rate => format!("steady-{rate_per_s}"),
            Regime::Steady { .. } => "steady".to_owned(),
            Regime::Saturated => "saturated".to_owned(),
        };
        let mut id = match self.requests_per_connection {
            None => regime,
            Some(1) => format!("{regime}-new-connections"),
            Some(most) => format!("{regime}-{most}-per-connection"),
        };
        id.push_str(match self.protocol {
            Protocol::Http1 => "",
            Protocol::Http2 => "-http2",
            Protocol::Grpc => "-grpc",
            Protocol::Tcp => "-tcp",
        });
        if let Some(connections) = self.connections {
            let letter = if self.by_users { 'u' } else { 'c' };
            id.push_str(&format!("-{letter}{connections}"));
        }
        if let Some((text, _)) = &self.response {
            let size: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            id.push_str(&format!("-{size}"));
        }
        id.push_str(match self.ingress {
            None => "",
            Some(None) => "-from-pod",
            Some(Some(Ingress::Plaintext)) => "-ingress",
            Some(Some(Ingress::Tls)) => "-ingress-tls",
        });
        id
    }
}

/// By which way clients come where a load point does not say it.
fn workload_ingress(node: Option<&Node>) -> Result<Option<Ingress>, Problem> {
    let Some(node) = node else {
        return Ok(None);
    };
    let fields = Fields::of(node, "`workload`", &WORKLOAD_KEYS, WORKLOAD_EXAMPLE)?;
    let ingress = fields.get(ingress::KEY).map(ingress::read).transpose()?;
    Ok(ingress.flatten())
}

fn load_points(
    node: Option<&Node>,
    usual: Option<Ingress>,
    design: &Design,
) -> Result<Vec<LoadPoint>, Problem> {
    let Some(node) = node else {
        let mut points = default_load();
        points.iter_mut().for_each(|point| point.ingress = usual);
        return Ok(points);
    };
    let drafts = items(node, "load", MOST_LOAD_POINTS)?
        .iter()
        .map(|item| load_point(item, design))
        .collect::<Result<Vec<_>, _>>()?;
    let is_unnamed = |d: &&Draft| d.id.is_none() && matches!(d.load, Regime::Steady { .. });
    let mut rates: Vec<f64> = Vec::new();
    for draft in drafts.iter().filter(is_unnamed) {
        if let Regime::Steady { rate_per_s, .. } = draft.load {
            rates.push(rate_per_s);
        }
    }
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let mut points: Vec<LoadPoint> = Vec::new();
    for draft in drafts {
        let own = draft.id.clone();
        let id = LoadPointId(own.unwrap_or_else(|| draft.generated_id(rates.len() > 1)));
        if points.iter().any(|p| p.id == id) {
            return Err(Problem::new(
                draft.at,
                format!("the load point `{id}` stands twice"),
                "remove one, or give it an `id:` of its own",
            ));
        }
        points.push(LoadPoint {
            id,
            load: draft.load,
            requests_per_connection: draft.requests_per_connection,
            connections: draft.connections,
            by_users: draft.by_users,
            protocol: draft.protocol,
            response_bytes: draft.response.map(|(_, bytes)| bytes),
            ingress: draft.ingress.unwrap_or(usual),
        });
    }
    Ok(points)
}

fn load_point(node: &Node, design: &Design) -> Result<Draft, Problem> {
    let example = format!("`{STEADY_EXAMPLE}` or `{SATURATED_EXAMPLE}`");
    let fields = Fields::of(node, "a load point", &["steady", "saturated"], &example)?;
    let Some((kind, inner)) = fields.only() else {
        return Err(Problem::new(
            node.at,
            "a load point is either steady or saturated",
            format!("write one item for each: `{STEADY_EXAMPLE}` and `{SATURATED_EXAMPLE}`"),
        ));
    };
    let (fields, load) = if kind.name == "steady" {
        steady(inner, design)?
    } else {
        let fields = Fields::of(
            inner,
            "`saturated`",
            &["id", REUSE, CONNECTIONS, PROTOCOL, RESPONSE, ingress::KEY],
            &format!("`{SATURATED_EXAMPLE}`"),
        )?;
        (fields, Regime::Saturated)
    };
    Ok(Draft {
        at: kind.at,
        id: own_id(&fields)?,
        load,
        requests_per_connection: fields.or(REUSE, None, |t| {
            value::count(t, "a number of requests", 1, 1_000_000).map(Some)
        })?,
        connections: match users(&fields)? {
            Some(users) => Some(users),
            None => fields.or(CONNECTIONS, None, |t| connections(t).map(Some))?,
        },
        by_users: fields.get(USERS).is_some(),
        protocol: match fields.get(PROTOCOL) {
            Some(node) => word(node, PROTOCOL, &PROTOCOLS)?,
            None => Protocol::Http1,
        },
        response: fields.or(RESPONSE, None, |t| {
            response_size(t).map(|bytes| Some((t.to_owned(), bytes)))
        })?,
        ingress: fields.get(ingress::KEY).map(ingress::read).transpose()?,
    })
}

/// The key for the generator's connections, of all load points or of one.
const CONNECTIONS: &str = "connections";
/// The key for users, each with a connection and a schedule of its own.
const USERS: &str = "users";

fn users(fields: &Fields<'_>) -> Result<Option<u32>, Problem> {
    let Some(node) = fields.get(USERS) else {
        return Ok(None);
    };
    for other in [CONNECTIONS, REUSE] {
        if let Some(other_node) = fields.get(other) {
            return Err(Problem::new(
                other_node.at,
                format!("each user has one connection, so `{other}` is said already"),
                format!("leave `{other}` out, or `users`"),
            ));
        }
    }
    scalar(node, USERS, |t| {
        value::count(t, "a number of users", 1, 10_000)
    })
    .map(Some)
}

/// The key for what is spoken.
const PROTOCOL: &str = "protocol";
const PROTOCOLS: [(&str, Protocol); 4] = [
    ("http1", Protocol::Http1),
    ("http2", Protocol::Http2),
    ("grpc", Protocol::Grpc),
    ("tcp", Protocol::Tcp),
];
/// The key for the size of answers, of all load points or of one.
const RESPONSE: &str = "response";

/// The key for how often a connection is used.
const REUSE: &str = "requests-per-connection";

pub(crate) fn own_id(fields: &Fields<'_>) -> Result<Option<String>, Problem> {
    fields.or("id", None, |t| safe_name(t).map(Some))
}

fn steady<'a>(node: &'a Node, design: &Design) -> Result<(Fields<'a>, Regime), Problem> {
    let example = format!("`{STEADY_EXAMPLE}`");
    let fields = Fields::of(
        node,
        "`steady`",
        &[
            "rate",
            "arrivals",
            "id",
            USERS,
            REUSE,
            CONNECTIONS,
            PROTOCOL,
            RESPONSE,
            ingress::KEY,
        ],
        &example,
    )?;
    let rate_node = fields.need("rate", &example)?;
    let rate_per_s = scalar(rate_node, "rate", value::rate_per_s)?;
    enough_requests(rate_node.at, rate_per_s, design)?;
    let arrivals = match fields.get("arrivals") {
        Some(node) => {
            const WORDS: [(&str, Arrivals); 2] = [
                ("poisson", Arrivals::Poisson),
                ("constant", Arrivals::Constant),
            ];
            word(node, "arrivals", &WORDS)?
        }
        None => Arrivals::Poisson,
    };
    let load = Regime::Steady {
        rate_per_s,
        arrivals,
    };
    Ok((fields, load))
}

/// A trial with a handful of requests has no median worth the name.
fn enough_requests(at: Place, rate_per_s: f64, design: &Design) -> Result<(), Problem> {
    const LEAST: f64 = 20.0;
    let seconds = design.trial_ns as f64 / 1e9;
    let expected = rate_per_s * seconds;
    if expected >= LEAST {
        return Ok(());
    }
    Err(Problem::new(
        at,
        format!(
            "`rate`: a trial of {seconds} s would see {expected:.0} requests at {rate_per_s}/s"
        ),
        format!(
            "a trial needs {LEAST} at least: a rate of {:.0}, or a trial of {:.1} s",
            (LEAST / seconds).ceil(),
            LEAST / rate_per_s
        ),
    ))
}
