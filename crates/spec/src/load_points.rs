//! The load points of a spec: what load is offered to each variant.

use std::collections::BTreeSet;

use meshtax_model::experiment::{
    Arrivals, Design, Ingress, LoadPoint, LoadPointId, Protocol, Regime,
};

use crate::grammar::{self, ValueError, in_range, one_of, response_bytes, safe_name};
use crate::ingress;
use crate::options::SWITCH;
use crate::workload::{self, CONNECTIONS, RESPONSE};
use crate::yaml::{Fields, Node, Problem, Span, items, scalar};

/// With more load points a block takes longer than the state of a machine is stable.
const MAX_LOAD_POINTS: usize = 16;

const ARRIVALS: [(&str, Arrivals); 2] = [
    ("poisson", Arrivals::Poisson),
    ("constant", Arrivals::Constant),
];

const STEADY_EXAMPLE: &str = "- steady: {rate: 1000, arrivals: poisson}";
const SATURATED_EXAMPLE: &str = "- saturated: {}";

fn default_load() -> Vec<LoadPoint> {
    let steady = Regime::Steady {
        rate_per_s: 1000.0,
        arrivals: Arrivals::Poisson,
    };
    [("steady", steady), ("saturated", Regime::Saturated)]
        .map(|(id, load)| LoadPoint::new(id, load))
        .to_vec()
}

/// The arrivals of an open loop: `poisson` or `constant`.
///
/// # Errors
/// If it is neither.
pub fn arrivals(text: &str) -> Result<Arrivals, ValueError> {
    let found = ARRIVALS.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, arrivals)| *arrivals)
        .ok_or_else(|| ValueError::not(text, "a kind of arrivals", "allowed: poisson or constant"))
}

/// A load point before its id is final.
struct Draft {
    at: Span,
    id: Option<String>,
    load: Regime,
    requests_per_connection: Option<u32>,
    connections: Option<u32>,
    by_users: bool,
    protocol: Protocol,
    response: Option<(String, u32)>,
    /// `None`: that of the workload.
    ingress: Option<Option<Ingress>>,
    cold: bool,
}

impl Draft {
    /// A name of what distinguishes it from the default load points.
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
        if self.cold {
            id.push_str("-cold");
        }
        id
    }
}

pub(crate) fn read(
    node: Option<&Node>,
    default_ingress: Option<Ingress>,
    design: &Design,
) -> Result<Vec<LoadPoint>, Problem> {
    let Some(node) = node else {
        let mut points = default_load();
        points
            .iter_mut()
            .for_each(|point| point.ingress = default_ingress);
        return Ok(points);
    };
    let drafts = items(node, "load", MAX_LOAD_POINTS)?
        .iter()
        .map(|item| load_point(item, design))
        .collect::<Result<Vec<_>, _>>()?;
    let generated_rates = drafts
        .iter()
        .filter_map(|draft| match (&draft.id, draft.load) {
            (None, Regime::Steady { rate_per_s, .. }) => Some(rate_per_s.to_bits()),
            _ => None,
        });
    let with_rate = generated_rates.collect::<BTreeSet<_>>().len() > 1;
    let mut points: Vec<LoadPoint> = Vec::new();
    for draft in drafts {
        let given = draft.id.clone();
        let id = LoadPointId(given.unwrap_or_else(|| draft.generated_id(with_rate)));
        if points.iter().any(|p| p.id == id) {
            return Err(Problem::new(
                draft.at,
                format!("the load point `{id}` is listed twice"),
                "remove one, or give it its own `id:`",
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
            ingress: draft.ingress.unwrap_or(default_ingress),
            cold: draft.cold,
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
            format!("write an item for each: `{STEADY_EXAMPLE}` and `{SATURATED_EXAMPLE}`"),
        ));
    };
    let (fields, load) = if kind.name == "steady" {
        steady(inner, design)?
    } else {
        let fields = Fields::of(
            inner,
            "`saturated`",
            &[
                "id",
                REUSE,
                CONNECTIONS,
                PROTOCOL,
                RESPONSE,
                ingress::KEY,
                COLD,
            ],
            &format!("`{SATURATED_EXAMPLE}`"),
        )?;
        (fields, Regime::Saturated)
    };
    Ok(Draft {
        at: kind.at,
        id: fields.optional("id", safe_name)?,
        load,
        requests_per_connection: fields
            .optional(REUSE, in_range("a number of requests", 1, 1_000_000))?,
        connections: match users(&fields)? {
            Some(users) => Some(users),
            None => fields.optional(CONNECTIONS, workload::connections)?,
        },
        by_users: fields.get(USERS).is_some(),
        protocol: fields
            .keyword(PROTOCOL, &PROTOCOLS)?
            .unwrap_or(Protocol::Http1),
        response: fields.optional(RESPONSE, |t| {
            response_bytes(t).map(|bytes| (t.to_owned(), bytes))
        })?,
        ingress: fields.get(ingress::KEY).map(ingress::read).transpose()?,
        cold: fields.keyword(COLD, &SWITCH)?.unwrap_or(false),
    })
}

/// The key for trials with processes that have just started.
const COLD: &str = "cold";

/// The key for users, each with its own connection and arrival schedule.
const USERS: &str = "users";

fn users(fields: &Fields<'_>) -> Result<Option<u32>, Problem> {
    let Some(node) = fields.get(USERS) else {
        return Ok(None);
    };
    for other in [CONNECTIONS, REUSE] {
        if let Some(other_node) = fields.get(other) {
            return Err(Problem::new(
                other_node.at,
                format!("`users` already defines `{other}`: each user has one connection"),
                format!("omit `{other}`, or `users`"),
            ));
        }
    }
    scalar(node, USERS, in_range("a number of users", 1, 10_000)).map(Some)
}

/// The key for the protocol.
const PROTOCOL: &str = "protocol";
/// A protocol by its name.
///
/// # Errors
/// If there is none of that name.
pub fn protocol(text: &str) -> Result<Protocol, ValueError> {
    let found = PROTOCOLS.iter().find(|(name, _)| *name == text);
    found.map(|(_, protocol)| *protocol).ok_or_else(|| {
        let names = PROTOCOLS.map(|(name, _)| name);
        ValueError::not(text, "a protocol", format!("allowed: {}", one_of(names)))
    })
}

const PROTOCOLS: [(&str, Protocol); 4] = [
    ("http1", Protocol::Http1),
    ("http2", Protocol::Http2),
    ("grpc", Protocol::Grpc),
    ("tcp", Protocol::Tcp),
];
/// The key for the number of requests on one connection.
const REUSE: &str = "requests-per-connection";

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
            COLD,
        ],
        &example,
    )?;
    let rate_node = fields.need("rate", &example)?;
    let rate_per_s = scalar(rate_node, "rate", grammar::rate_per_s)?;
    enough_requests(rate_per_s, design.trial_ns).map_err(|e| {
        let problem = format!("`rate`: {}", e.problem);
        Problem::new(rate_node.at, problem, e.fix)
    })?;
    let arrivals = fields.keyword("arrivals", &ARRIVALS)?;
    let load = Regime::Steady {
        rate_per_s,
        arrivals: arrivals.unwrap_or(Arrivals::Poisson),
    };
    Ok((fields, load))
}

/// Requests in a trial, for a meaningful median.
const REQUESTS_MIN: f64 = 20.0;

/// The shortest trial with enough requests at a rate, in nanoseconds.
pub(crate) fn shortest_trial_ns(rate_per_s: f64) -> u64 {
    // The cast saturates.
    (REQUESTS_MIN / rate_per_s * 1e9).ceil() as u64
}

/// Rejects a rate at which a trial would have too few requests for a meaningful median.
///
/// # Errors
/// If a trial would have fewer than 20 requests.
pub fn enough_requests(rate_per_s: f64, trial_ns: u64) -> Result<(), ValueError> {
    let seconds = trial_ns as f64 / 1e9;
    let expected = rate_per_s * seconds;
    if expected >= REQUESTS_MIN {
        return Ok(());
    }
    Err(ValueError::new(
        format!("a trial of {seconds} s would have {expected:.0} requests at {rate_per_s}/s"),
        format!(
            "a trial needs at least {REQUESTS_MIN}: use a rate of {:.0}, or a trial of {:.1} s",
            (REQUESTS_MIN / seconds).ceil(),
            REQUESTS_MIN / rate_per_s
        ),
    ))
}
