//! The variants of a spec: the baseline, its control and the candidates.

use meshtax_model::catalogue::{self, DATA_PLANES, DataPlane};
use meshtax_model::experiment::{
    Experiment, Inject, OptionKind, PolicyLevel, Role, Variant, VariantId,
};

use crate::builds;
use crate::grammar::{COSTS, ValueError, known_cost, one_of, safe_name, with_suggestion};
use crate::limits;
use crate::options;
use crate::yaml::{Fields, Node, Problem, Span, Value, items, keyword, scalar, text_of};

/// The data plane without a mesh, and the baseline's id.
pub(crate) const NONE: &str = "none";
/// The control's id.
pub(crate) const NONE_AGAIN: &str = "none-again";

/// With more variants a block takes longer than the state of a machine is stable.
pub(crate) const MAX: usize = 32;

const EXAMPLE: &str = "`- {data-plane: envoy-sidecar, level: mtls}`";

const LEVELS: [(&str, PolicyLevel); 4] = [
    ("plaintext", PolicyLevel::Plaintext),
    ("mtls", PolicyLevel::Mtls),
    ("l4", PolicyLevel::L4),
    ("l7", PolicyLevel::L7),
];

/// A policy level by its name.
///
/// # Errors
/// If there is no level of that name.
pub fn policy_level(text: &str) -> Result<PolicyLevel, ValueError> {
    let found = LEVELS.iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| *level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name);
        let fix = with_suggestion(text, names, format!("allowed: {}", one_of(names)));
        ValueError::not(text, "a policy level", fix)
    })
}

/// The baseline, its control, then what the spec lists (or the default candidates).
pub(crate) fn read(node: Option<&Node>) -> Result<Vec<Variant>, Problem> {
    let mut all = baselines();
    let Some(node) = node else {
        all.extend(default_candidates());
        return Ok(all);
    };
    let mut baseline_listed = false;
    for item in items(node, "variants", MAX)? {
        let variant = variant(item)?;
        // The baseline may be listed for clarity; it is in every plan anyway.
        if variant.id.0 == NONE && variant.inject.is_none() && !baseline_listed {
            baseline_listed = true;
            continue;
        }
        reject_duplicate(&all, &variant, item.at)?;
        all.push(variant);
    }
    Ok(all)
}

fn reject_duplicate(all: &[Variant], new: &Variant, at: Span) -> Result<(), Problem> {
    if !all.iter().any(|v| v.id == new.id) {
        return Ok(());
    }
    let help = if new.id.0 == NONE || new.id.0 == NONE_AGAIN {
        "remove it: the baseline `none` and its control `none-again` are in every plan"
    } else {
        "remove one, or give it its own `id:`"
    };
    Err(Problem::new(
        at,
        format!("the variant `{}` is listed twice", new.id),
        help,
    ))
}

/// The baseline and its control, which are in every plan.
#[must_use]
pub fn baselines() -> Vec<Variant> {
    [(NONE, Role::Baseline), (NONE_AGAIN, Role::Control)]
        .map(|(id, role)| Variant::new(VariantId(id.to_owned()), NONE, None, role))
        .to_vec()
}

fn default_candidates() -> Vec<Variant> {
    [
        ("limit-mtls", PolicyLevel::Mtls),
        ("ztunnel", PolicyLevel::Mtls),
        ("linkerd", PolicyLevel::Mtls),
        ("envoy-sidecar", PolicyLevel::Mtls),
        ("envoy-sidecar", PolicyLevel::L7),
    ]
    .map(|(data_plane, level)| {
        let id = generated_id(data_plane, Some(level), None);
        Variant::new(VariantId(id), data_plane, Some(level), Role::Candidate)
    })
    .to_vec()
}

/// A candidate of a data plane at a policy level, with the id that a spec would generate for it.
#[must_use]
pub fn candidate(data_plane: &DataPlane, level: Option<PolicyLevel>) -> Variant {
    let distinguishing = level.filter(|_| data_plane.levels.len() > 1);
    let id = VariantId(generated_id(data_plane.name, distinguishing, None));
    Variant::new(id, data_plane.name, level, Role::Candidate)
}

/// `envoy-sidecar-l7`, `none+delay`; `limit-mtls` already contains its level.
fn generated_id(data_plane: &str, level: Option<PolicyLevel>, inject: Option<Inject>) -> String {
    let mut id = data_plane.to_owned();
    if let Some(level) = level {
        let ending = format!("-{level}");
        if !id.ends_with(&ending) {
            id.push_str(&ending);
        }
    }
    if let Some(inject) = inject {
        id.push('+');
        id.push_str(inject.kind());
    }
    id
}

fn variant(node: &Node) -> Result<Variant, Problem> {
    if let Value::Scalar(text) = &node.value {
        return Err(Problem::new(
            node.at,
            format!("a variant must be a mapping, not `{text}`"),
            format!("write `- {{data-plane: {text}}}`, with a level as in {EXAMPLE}"),
        ));
    }
    let mut keys = vec!["data-plane", "level", "inject", "id", limits::KEY];
    keys.extend(builds::KEYS);
    keys.extend(options::KEYS.map(OptionKind::key));
    let fields = Fields::of(node, "a variant", &keys, EXAMPLE)?;
    let name_node = fields.need("data-plane", EXAMPLE)?;
    let data_plane = data_plane(name_node)?;
    let level = match fields.get("level") {
        Some(node) => Some(level(node, data_plane)?),
        None => implied_level(name_node.at, data_plane)?,
    };
    let inject = fields.get("inject").map(inject).transpose()?;
    let options = options::read(&fields, data_plane.name, data_plane.options)?;
    let named = builds::read(&fields, data_plane)?;
    let runtime = builds::runtime(&fields, data_plane)?;
    let limits = limits::read(&fields, data_plane)?;
    let id = fields.optional("id", safe_name)?.unwrap_or_else(|| {
        // A single level distinguishes nothing.
        let level = level.filter(|_| data_plane.levels.len() > 1);
        generated_id(data_plane.name, level, inject)
            + &options::in_an_id(&options)
            + &builds::in_an_id(&named, &runtime)
            + &limits::in_an_id(&limits, data_plane)
    });
    Ok(Variant {
        inject,
        options,
        builds: named,
        runtime,
        limits,
        ..Variant::new(VariantId(id), data_plane.name, level, Role::Candidate)
    })
}

fn data_plane(node: &Node) -> Result<&'static DataPlane, Problem> {
    let typed = text_of(node, "data-plane")?;
    catalogue::find(typed).ok_or_else(|| {
        let names = || DATA_PLANES.iter().map(|plane| plane.name);
        let fix = format!("known: {}", names().collect::<Vec<_>>().join(", "));
        Problem::new(
            node.at,
            format!("unknown data plane `{typed}`"),
            with_suggestion(typed, names(), fix),
        )
    })
}

fn level(node: &Node, data_plane: &DataPlane) -> Result<PolicyLevel, Problem> {
    let level = keyword(node, "level", &LEVELS)?;
    if data_plane.levels.contains(&level) {
        return Ok(level);
    }
    let help = if data_plane.levels.is_empty() {
        "remove `level`: without a mesh there is no policy".to_owned()
    } else {
        format!("allowed: {}", level_names(data_plane.levels))
    };
    Err(Problem::new(
        node.at,
        format!(
            "the data plane `{}` has no level `{level}`",
            data_plane.name
        ),
        help,
    ))
}

/// The only level of a data plane that has one.
fn implied_level(at: Span, data_plane: &DataPlane) -> Result<Option<PolicyLevel>, Problem> {
    match data_plane.levels {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => Err(Problem::new(
            at,
            format!("the data plane `{}` needs a level", data_plane.name),
            format!(
                "add `level:` with {}, as in {EXAMPLE}",
                level_names(several)
            ),
        )),
    }
}

fn level_names(levels: &[PolicyLevel]) -> String {
    let names: Vec<String> = levels.iter().map(ToString::to_string).collect();
    one_of(names.iter().map(String::as_str))
}

fn inject(node: &Node) -> Result<Inject, Problem> {
    const EXAMPLE: &str = "`inject: {delay: 15%}` or `inject: {memory: 64MiB}`";
    let kinds = COSTS.map(|(kind, _)| kind);
    let fields = Fields::of(node, "`inject`", &kinds, EXAMPLE)?;
    let mut given = kinds
        .into_iter()
        .filter_map(|kind| Some((kind, fields.get(kind)?)));
    let (Some((kind, size)), second) = (given.next(), given.next()) else {
        let problem = "`inject` names no cost".to_owned();
        return Err(Problem::new(
            node.at,
            problem,
            format!("write it as in {EXAMPLE}"),
        ));
    };
    if let Some((_, second)) = second {
        let problem = "`inject` names two costs".to_owned();
        let help = "give each cost its own variant";
        return Err(Problem::new(second.at, problem, help));
    }
    scalar(size, kind, |text| known_cost(kind, text))
}

/// Adds a candidate that is the baseline with a known cost, as `--inject` does.
///
/// Its id is `none+delay` (or `none+burn`, ...); if that exists, `none+delay-2` and so on.
///
/// # Errors
/// If the experiment already has the maximum number of variants, or a service program of the user's own.
pub fn add_injected(experiment: &mut Experiment, inject: Inject) -> Result<VariantId, ValueError> {
    if experiment.variants.len() >= MAX + 2 {
        return Err(ValueError::new(
            format!("the experiment already has {MAX} variants"),
            "remove one, or run two experiments",
        ));
    }
    if experiment.topology.program().is_some() {
        return Err(ValueError::new(
            "the service's own program does not support injected costs",
            "omit `server` from the service",
        ));
    }
    let first = generated_id(NONE, None, Some(inject));
    let mut id = VariantId(first.clone());
    let mut number = 2;
    while experiment.variant(&id).is_some() {
        id = VariantId(format!("{first}-{number}"));
        number += 1;
    }
    experiment.variants.push(Variant {
        inject: Some(inject),
        ..Variant::new(id.clone(), NONE, None, Role::Candidate)
    });
    Ok(id)
}
