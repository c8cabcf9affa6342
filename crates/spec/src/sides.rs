//! Two specs combined into one experiment, so that both sides are measured in the same blocks.

use std::fmt::{Debug, Display};
use std::time::Duration;

use meshtax_model::experiment::{Design, Experiment, Role, Variant, VariantId};
use meshtax_model::topology::Service;

use crate::grammar::{MAX_NAME_LENGTH, one_of};
use crate::variants::MAX as MAX_VARIANTS;

/// Two specs in one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    /// The variants of both, under ids that begin with `a.` and `b.`; the baselines are shared.
    pub experiment: Experiment,
    /// The pairs that are compared: a variant of A (`None`: the baselines) and one of B.
    pub pairs: Vec<(Option<VariantId>, VariantId)>,
    /// Variants without a counterpart.
    pub unpaired: Vec<VariantId>,
}

/// Why two specs cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}\n  fix: {fix}", .problems.join("\n"))]
pub struct SideError {
    /// Each of the problems.
    pub problems: Vec<String>,
    /// What to do.
    pub fix: String,
}

/// Combines two experiments. The pairs are those that `named` lists (A's id, B's id); by default
/// variants of the same id; otherwise, with one variant on each side, those two; and if A has no
/// variants, each of B's is compared with the baselines.
///
/// # Errors
/// If the experiments differ in more than their variants, if a named variant does not exist, or if there is nothing
/// to compare.
pub fn interleave(
    a: &Experiment,
    b: &Experiment,
    named: &[(String, String)],
) -> Result<Sides, SideError> {
    let problems = unequal(a, b);
    if !problems.is_empty() {
        return Err(SideError {
            problems,
            fix: "only the variants may differ: make everything else the same in both specs"
                .to_owned(),
        });
    }
    let pairs = pairs(a, b, named)?;
    let mut experiment = a.clone();
    experiment.name = if a.name == b.name {
        a.name.clone()
    } else {
        let mut name = format!("{}-{}", a.name, b.name);
        name.truncate(MAX_NAME_LENGTH);
        name
    };
    experiment.variants.retain(|v| v.role != Role::Candidate);
    for (prefix, side) in [("a", a), ("b", b)] {
        let prefixed = candidates(side).map(|variant| Variant {
            id: under(prefix, &variant.id),
            ..variant.clone()
        });
        experiment.variants.extend(prefixed);
    }
    let count = experiment.variants.len();
    if count > MAX_VARIANTS + 2 {
        let problem = format!(
            "together they have {} variants, and {MAX_VARIANTS} are allowed",
            count - 2
        );
        return Err(SideError {
            problems: vec![problem],
            fix: "compare fewer variants at a time".to_owned(),
        });
    }
    let all = experiment.variants.iter().map(|v| v.id.clone());
    let is_paired = |id: &VariantId| {
        let mut both = pairs.iter();
        both.any(|(first, second)| first.as_ref() == Some(id) || second == id)
    };
    let unpaired = all.skip(2).filter(|id| !is_paired(id)).collect();
    Ok(Sides {
        experiment,
        pairs,
        unpaired,
    })
}

fn candidates(side: &Experiment) -> impl Iterator<Item = &Variant> {
    side.variants.iter().filter(|v| v.role == Role::Candidate)
}

fn under(prefix: &str, id: &VariantId) -> VariantId {
    VariantId(format!("{prefix}.{id}"))
}

/// Each difference outside the variants.
fn unequal(a: &Experiment, b: &Experiment) -> Vec<String> {
    let mut found = Differences::default();
    let [time_a, time_b] = [a, b].map(|side| side.design.clone());
    found.note("placement", a.placement, b.placement);
    if a.kubernetes != b.kubernetes {
        found
            .0
            .push("kubernetes differs: A and B have other settings of pods".to_owned());
    }
    let saturates_at = |side: &Experiment| side.saturation.as_ref().map(|s| s.rate_per_s);
    found.note(
        "saturates-at (requests/s)",
        saturates_at(a),
        saturates_at(b),
    );
    let first = |side: &Experiment| {
        let first = side.topology.services.first().cloned();
        first.unwrap_or_else(|| Service::new("server"))
    };
    let [service_a, service_b] = [a, b].map(first);
    found.note("service.replicas", service_a.replicas, service_b.replicas);
    found.note("service.nodes", service_a.nodes, service_b.nodes);
    found.note("service.address", service_a.address, service_b.address);
    found.note("service.server", &service_a.program, &service_b.program);
    found.note("topology", &a.topology.name, &b.topology.name);
    let is_same = a.topology.name == b.topology.name;
    if is_same && a.topology.name.is_some() && a.topology != b.topology {
        found.note("the topology's services", "its own", "others");
    }
    let bytes = |side: &Experiment| side.workload.response_bytes;
    found.note("workload.response (bytes)", bytes(a), bytes(b));
    let connections = |side: &Experiment| side.workload.connections;
    found.note("workload.connections", connections(a), connections(b));
    let clients = |side: &Experiment| side.workload.clients;
    found.note("workload.clients", clients(a), clients(b));
    let workers = |side: &Experiment| side.workers.to_string();
    found.words("workers", &workers(a), &workers(b));
    found.note("margins", a.margins, b.margins);
    found.note("design.rounds", time_a.min_rounds, time_b.min_rounds);
    let blocks = |design: &Design| design.blocks_per_round;
    found.note("design.blocks", blocks(&time_a), blocks(&time_b));
    for (what, of) in [
        ("design.trial", (|d| d.trial_ns) as fn(&Design) -> u64),
        ("design.warmup", |d| d.warmup_ns),
        ("design.time", |d| d.time_limit_ns),
    ] {
        let [a, b] = [&time_a, &time_b].map(|d| Duration::from_nanos(of(d)));
        found.note(what, a, b);
    }
    found.note("design.precision", time_a.precision, time_b.precision);
    found.loads(a, b);
    found.0
}

/// Descriptions of the differences.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn words(&mut self, what: &str, a: &str, b: &str) {
        if a != b {
            self.0.push(format!("{what} differs: A has {a}, B has {b}"));
        }
    }

    fn note<T: Debug + PartialEq>(&mut self, what: &str, a: T, b: T) {
        if a != b {
            let text = format!("{what} differs: A has {a:?}, B has {b:?}");
            self.0.push(text);
        }
    }

    fn loads(&mut self, a: &Experiment, b: &Experiment) {
        for point in &a.load_points {
            let id = &point.id;
            let Some(other) = b.load_point(id) else {
                self.0.push(format!("load differs: only A has `{id}`"));
                continue;
            };
            self.note(&format!("load `{id}`"), point.load, other.load);
            let [one, two] = [point, other].map(|p| p.requests_per_connection);
            self.note(&format!("load `{id}`: requests-per-connection"), one, two);
            let [one, two] = [point, other].map(|p| p.connections);
            self.note(&format!("load `{id}`: connections"), one, two);
            let [one, two] = [point, other].map(|p| p.by_users);
            self.note(&format!("load `{id}`: users"), one, two);
            let [one, two] = [point, other].map(|p| p.protocol);
            self.note(&format!("load `{id}`: protocol"), one, two);
            let [one, two] = [point, other].map(|p| p.response_bytes);
            self.note(&format!("load `{id}`: response (bytes)"), one, two);
            let [one, two] = [point, other].map(|p| p.cold);
            self.note(&format!("load `{id}`: cold"), one, two);
            let [one, two] = [point, other].map(|p| p.ingress);
            self.note(&format!("load `{id}`: ingress"), one, two);
        }
        let more = b.load_points.iter();
        for point in more.filter(|point| a.load_point(&point.id).is_none()) {
            let text = format!("load differs: only B has `{}`", point.id);
            self.0.push(text);
        }
    }
}

fn pairs(
    a: &Experiment,
    b: &Experiment,
    named: &[(String, String)],
) -> Result<Vec<(Option<VariantId>, VariantId)>, SideError> {
    let ids = |side| candidates(side).map(|v| v.id.clone()).collect::<Vec<_>>();
    let (first, second) = (ids(a), ids(b));
    let pair = |one: &VariantId, two: &VariantId| (Some(under("a", one)), under("b", two));
    let mut found = Vec::new();
    for (one, two) in named {
        let (one, two) = (VariantId(one.clone()), VariantId(two.clone()));
        for (id, side, has) in [(&one, "A", &first), (&two, "B", &second)] {
            if !has.contains(id) {
                return Err(SideError {
                    problems: vec![format!("--pair: {side} has no variant `{id}`")],
                    fix: format!("{side} has {}", listed(has)),
                });
            }
        }
        found.push(pair(&one, &two));
    }
    if found.is_empty() {
        found.extend(second.iter().filter_map(|two| {
            let one = first.iter().find(|one| *one == two)?;
            Some(pair(one, two))
        }));
    }
    match (found.is_empty(), first.as_slice(), second.as_slice()) {
        (false, ..) => Ok(found),
        (true, [one], [two]) => Ok(vec![pair(one, two)]),
        (true, [], [_, ..]) => Ok(second.iter().map(|two| (None, under("b", two))).collect()),
        (true, _, []) => Err(SideError {
            problems: vec!["B has no variant to compare, only its baseline".to_owned()],
            fix: "list a variant in B's spec; A's may have none, in which case B's are compared with no mesh"
                .to_owned(),
        }),
        (true, ..) => Err(SideError {
            problems: vec![format!(
                "no variant is on both sides: A has {}, B has {}",
                listed(&first),
                listed(&second)
            )],
            fix: "give matching variants the same `id:`, or name them with --pair A=B"
                .to_owned(),
        }),
    }
}

fn listed(ids: &[impl Display]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    one_of(ids.iter().map(String::as_str)).replace(" or ", " and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Experiment {
        crate::parse("test", text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn with(variants: &str) -> Experiment {
        parsed(&format!("name: x\nvariants: [{variants}]\n"))
    }

    fn ids(sides: &Sides) -> Vec<&str> {
        let all = sides.experiment.variants.iter();
        all.map(|v| v.id.0.as_str()).collect()
    }

    fn paired(sides: &Sides) -> Vec<(Option<&str>, &str)> {
        let pairs = sides.pairs.iter();
        pairs
            .map(|(one, two)| (one.as_ref().map(|id| id.0.as_str()), two.0.as_str()))
            .collect()
    }

    #[test]
    fn variants_with_the_same_id_are_paired() {
        let a = with("{data-plane: limit-mtls}, {data-plane: limit-l4}");
        let b = with("{data-plane: limit-mtls}, {data-plane: linkerd, level: l4}");
        let sides = interleave(&a, &b, &[]).unwrap();
        assert_eq!(
            ids(&sides),
            [
                "none",
                "none-again",
                "a.limit-mtls",
                "a.limit-l4",
                "b.limit-mtls",
                "b.linkerd-l4"
            ]
        );
        assert_eq!(paired(&sides), [(Some("a.limit-mtls"), "b.limit-mtls")]);
        let unpaired: Vec<&str> = sides.unpaired.iter().map(|id| id.0.as_str()).collect();
        assert_eq!(unpaired, ["a.limit-l4", "b.linkerd-l4"]);
        let named = [("limit-l4".to_owned(), "linkerd-l4".to_owned())];
        let sides = interleave(&a, &b, &named).unwrap();
        assert_eq!(paired(&sides), [(Some("a.limit-l4"), "b.linkerd-l4")]);
    }

    #[test]
    fn single_variants_are_paired_and_a_side_without_variants_is_the_baseline() {
        let a = with("{data-plane: limit-mtls}");
        let b = with("{data-plane: limit-l4}");
        let sides = interleave(&a, &b, &[]).unwrap();
        assert_eq!(paired(&sides), [(Some("a.limit-mtls"), "b.limit-l4")]);
        let a = with("{data-plane: none}");
        let b = with("{data-plane: none, inject: {delay: 10%}}");
        let sides = interleave(&a, &b, &[]).unwrap();
        assert_eq!(ids(&sides), ["none", "none-again", "b.none+delay"]);
        assert_eq!(paired(&sides), [(None, "b.none+delay")]);
    }

    #[test]
    fn specs_that_cannot_be_compared_are_rejected_with_every_reason() {
        let two = with("{data-plane: limit-mtls}, {data-plane: limit-l4}");
        let none = with("{data-plane: none}");
        let others = with("{data-plane: linkerd, level: l4}, {data-plane: linkerd, level: l7}");
        let path = parsed(
            "name: y\nworkers: 2\nservice: {replicas: 3}\nworkload: {response: 4 KiB}\n\
             variants: [{data-plane: limit-mtls}]\nload: [steady: {rate: 500}]\ndesign: {trial: 1s}\n",
        );
        let missing = [("limit-l7".to_owned(), "limit-l4".to_owned())];
        let errors = [
            interleave(&two, &none, &[]),
            interleave(&two, &others, &[]),
            interleave(&two, &two, &missing),
            interleave(&two, &path, &[]),
        ]
        .map(|rejected| rejected.unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n---\n"));
    }
}
