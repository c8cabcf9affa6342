//! The variants of a spec: the baseline, its control and the candidates.

use meshtax_model::experiment::{
    Experiment, Inject, OptionKind, Options, PolicyLevel, Role, Variant, VariantId,
};

use crate::KnownDataPlane;
use crate::error::{Place, Problem, nearest, one_of};
use crate::fields::{Fields, items, scalar, text_of, word};
use crate::options;
use crate::parse::own_id;
use crate::tree::{Node, Value};
use crate::value::{self, ValueError};

/// The data plane without a mesh, and the baseline's id.
pub(crate) const NONE: &str = "none";
/// The control's id.
pub(crate) const NONE_AGAIN: &str = "none-again";

/// A block of more variants takes longer than a machine stays the same.
pub(crate) const MOST: usize = 32;

const EXAMPLE: &str = "`- {data-plane: envoy-sidecar, level: mtls}`";

const LEVELS: [(&str, PolicyLevel); 4] = [
    ("plaintext", PolicyLevel::Plaintext),
    ("mtls", PolicyLevel::Mtls),
    ("l4", PolicyLevel::L4),
    ("l7", PolicyLevel::L7),
];

/// A policy level by its name, as a spec and the command line write it.
///
/// # Errors
/// If there is none of that name.
pub fn policy_level(text: &str) -> Result<PolicyLevel, ValueError> {
    let found = LEVELS.iter().find(|(name, _)| *name == text);
    found.map(|(_, level)| *level).ok_or_else(|| ValueError {
        problem: format!("`{}` is no policy level", value::shown(text)),
        fix: format!("allowed: {}", one_of(LEVELS.map(|(name, _)| name))),
    })
}

/// The baseline, its control, then what the spec lists (or the default candidates).
pub(crate) fn read(node: Option<&Node>, known: &[KnownDataPlane]) -> Result<Vec<Variant>, Problem> {
    let mut all = baselines();
    let Some(node) = node else {
        all.extend(default_candidates());
        return Ok(all);
    };
    let mut baseline_listed = false;
    for item in items(node, "variants", MOST)? {
        let variant = variant(item, known)?;
        // The baseline may be listed for the reader's sake; it is in the plan anyway.
        if variant.id.0 == NONE && variant.inject.is_none() && !baseline_listed {
            baseline_listed = true;
            continue;
        }
        refuse_duplicate(&all, &variant, item.at)?;
        all.push(variant);
    }
    Ok(all)
}

fn refuse_duplicate(all: &[Variant], new: &Variant, at: Place) -> Result<(), Problem> {
    if !all.iter().any(|v| v.id == new.id) {
        return Ok(());
    }
    let help = if new.id.0 == NONE || new.id.0 == NONE_AGAIN {
        "remove it: the baseline `none` and its control `none-again` are in every plan"
    } else {
        "remove one, or give it an `id:` of its own"
    };
    Err(Problem::new(
        at,
        format!("the variant `{}` stands twice", new.id),
        help,
    ))
}

fn baselines() -> Vec<Variant> {
    [(NONE, Role::Baseline), (NONE_AGAIN, Role::Control)]
        .map(|(id, role)| Variant {
            id: VariantId(id.to_owned()),
            data_plane: NONE.to_owned(),
            level: None,
            role,
            inject: None,
            options: Options::default(),
        })
        .to_vec()
}

fn default_candidates() -> Vec<Variant> {
    [
        ("limit-mtls", PolicyLevel::Mtls),
        ("envoy-sidecar", PolicyLevel::Mtls),
        ("envoy-sidecar", PolicyLevel::L7),
    ]
    .map(|(data_plane, level)| Variant {
        id: VariantId(generated_id(data_plane, Some(level), None)),
        level: Some(level),
        ..candidate(data_plane)
    })
    .to_vec()
}

/// Without anything besides, under its data plane's name.
fn candidate(data_plane: &str) -> Variant {
    Variant {
        id: VariantId(data_plane.to_owned()),
        data_plane: data_plane.to_owned(),
        level: None,
        role: Role::Candidate,
        inject: None,
        options: Options::default(),
    }
}

/// `envoy-sidecar-l7`, `none+delay`; `limit-mtls` already says its level.
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

fn variant(node: &Node, known: &[KnownDataPlane]) -> Result<Variant, Problem> {
    if let Value::Scalar(text) = &node.value {
        return Err(Problem::new(
            node.at,
            format!("a variant is a mapping, and here stands `{text}`"),
            format!("write `- {{data-plane: {text}}}`, with a level as in {EXAMPLE}"),
        ));
    }
    let mut keys = vec!["data-plane", "level", "inject", "id"];
    keys.extend(options::KEYS.map(OptionKind::key));
    let fields = Fields::of(node, "a variant", &keys, EXAMPLE)?;
    let name_node = fields.need("data-plane", EXAMPLE)?;
    let data_plane = known_data_plane(name_node, known)?;
    let level = match fields.get("level") {
        Some(node) => Some(level(node, data_plane)?),
        None => implied_level(name_node.at, data_plane)?,
    };
    let inject = fields.get("inject").map(inject).transpose()?;
    let options = options::read(&fields, data_plane.name, data_plane.options)?;
    let id = own_id(&fields)?.unwrap_or_else(|| {
        // With one level there is nothing to tell apart.
        let told = level.filter(|_| data_plane.levels.len() > 1);
        generated_id(data_plane.name, told, inject) + &options::in_an_id(&options)
    });
    Ok(Variant {
        id: VariantId(id),
        level,
        inject,
        options,
        ..candidate(data_plane.name)
    })
}

/// A data plane as this module sees it: the baseline's is known without being listed.
#[derive(Clone, Copy)]
struct Choice<'a> {
    name: &'a str,
    levels: &'a [PolicyLevel],
    options: &'a [OptionKind],
}

fn known_data_plane<'a>(node: &Node, known: &'a [KnownDataPlane]) -> Result<Choice<'a>, Problem> {
    let typed = text_of(node, "data-plane")?;
    if typed == NONE {
        return Ok(Choice {
            name: NONE,
            levels: &[],
            options: &[],
        });
    }
    if let Some(found) = known.iter().find(|k| k.name == typed) {
        return Ok(Choice {
            name: &found.name,
            levels: &found.levels,
            options: &found.options,
        });
    }
    let mut names: Vec<&str> = vec![NONE];
    names.extend(known.iter().map(|k| k.name.as_str()).filter(|n| *n != NONE));
    let list = format!("known: {}", names.join(", "));
    Err(Problem::new(
        node.at,
        format!("unknown data plane `{typed}`"),
        match nearest(typed, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`? {list}"),
            None => list,
        },
    ))
}

fn level(node: &Node, data_plane: Choice<'_>) -> Result<PolicyLevel, Problem> {
    let level = word(node, "level", &LEVELS)?;
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

/// The level where only one is possible.
fn implied_level(at: Place, data_plane: Choice<'_>) -> Result<Option<PolicyLevel>, Problem> {
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
    let kinds = value::INJECTABLE.map(|(kind, _)| kind);
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
        let help = "give each a variant of its own: then it is known which of them is found";
        return Err(Problem::new(second.at, problem, help));
    }
    scalar(size, kind, |text| value::known_cost(kind, text))
}

/// Adds the baseline with a known cost as one more candidate, as `--inject` does.
///
/// Its id is `none+delay` (or `none+burn`, ...), or `none+delay-2` and so on if that is taken.
///
/// # Errors
/// If the experiment has as many variants as are allowed.
pub fn add_injected(experiment: &mut Experiment, inject: Inject) -> Result<VariantId, ValueError> {
    if experiment.variants.len() >= MOST + 2 {
        return Err(ValueError {
            problem: format!("the experiment has {MOST} variants already"),
            fix: "remove one, or run two experiments".to_owned(),
        });
    }
    if experiment.service.program.is_some() {
        return Err(ValueError {
            problem: "the service's own program knows of no cost that is injected".to_owned(),
            fix: "leave `server` out of the service".to_owned(),
        });
    }
    let first = generated_id(NONE, None, Some(inject));
    let mut id = VariantId(first.clone());
    let mut number = 2;
    while experiment.variant(&id).is_some() {
        id = VariantId(format!("{first}-{number}"));
        number += 1;
    }
    experiment.variants.push(Variant {
        id: id.clone(),
        inject: Some(inject),
        ..candidate(NONE)
    });
    Ok(id)
}
