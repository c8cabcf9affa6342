//! Settings of pods on a cluster.

use std::collections::BTreeMap;

use meshtax_model::pods::{
    AGENT_SECRET, Passed, PodRole, PodSettings, PullSecret, QualityOfService, Quantities,
};

use crate::grammar::{ValueError, cpu_millis, memory_bytes};
use crate::yaml::{Fields, Key, Node, Problem, Value, items, scalar, text_of};

/// The key for these settings.
pub(crate) const KEY: &str = "kubernetes";

const EXAMPLE: &str = "`kubernetes: {limits: {client: {cpu: 1, memory: 512Mi}}}`";

/// More than anybody has.
const MAX_ITEMS: usize = 64;

/// Where a Secret without a namespace is.
const DEFAULT_NAMESPACE: &str = "default";

const KEYS: [&str; 9] = [
    "requests",
    "limits",
    "qos",
    "node-selector",
    "affinity",
    "tolerations",
    "topology-spread",
    "priority-class",
    "image-pull-secrets",
];

/// What is passed on to Kubernetes is checked by its own types, elsewhere.
pub(crate) fn read(node: Option<&Node>) -> Result<Option<PodSettings>, Problem> {
    let Some(node) = node else {
        return Ok(None);
    };
    let fields = Fields::of(node, "`kubernetes`", &KEYS, EXAMPLE)?;
    let settings = PodSettings {
        requests: resources(fields.get("requests"), "`requests`")?,
        limits: resources(fields.get("limits"), "`limits`")?,
        qos: fields.keyword("qos", &[("guaranteed", QualityOfService::Guaranteed)])?,
        node_selector: labels(fields.get("node-selector"))?,
        affinity: fields.get("affinity").map(mapping).transpose()?,
        tolerations: list(&fields, "tolerations")?,
        topology_spread: list(&fields, "topology-spread")?,
        priority_class: fields.optional("priority-class", object_name)?,
        image_pull_secrets: match fields.get("image-pull-secrets") {
            None => Vec::new(),
            Some(node) => pull_secrets(node)?,
        },
    };
    requests_within_limits(&fields, &settings)?;
    guaranteed(&fields, &settings)?;
    Ok(Some(settings))
}

fn resources(
    node: Option<&Node>,
    what: &'static str,
) -> Result<BTreeMap<PodRole, Quantities>, Problem> {
    let Some(node) = node else {
        return Ok(BTreeMap::new());
    };
    let roles = PodRole::ALL.map(PodRole::key);
    let fields = Fields::of(
        node,
        what,
        &roles,
        "`{service: {cpu: 500m, memory: 256Mi}}`",
    )?;
    let given = PodRole::ALL
        .into_iter()
        .filter_map(|role| Some((role, fields.get(role.key())?)));
    given
        .map(|(role, node)| Ok((role, quantities(node)?)))
        .collect()
}

fn quantities(node: &Node) -> Result<Quantities, Problem> {
    let fields = Fields::of(
        node,
        "the resources of a role",
        &["cpu", "memory"],
        "`{cpu: 500m, memory: 256Mi}`",
    )?;
    Ok(Quantities {
        cpu_millis: fields.optional("cpu", cpu_millis)?,
        memory_bytes: fields.optional("memory", memory_bytes)?,
    })
}

/// What is written for a role.
fn given<'a>(fields: &Fields<'a>, key: &str, role: PodRole) -> Option<&'a Node> {
    fields.get(key)?.entry(role.key())
}

/// A relation that no request may have to its limit, in CPU or in memory.
fn no_request(
    fields: &Fields<'_>,
    settings: &PodSettings,
    is_wrong: impl Fn(u64, u64) -> bool,
    (problem, fix): (&str, &str),
) -> Result<(), Problem> {
    for (role, requested) in &settings.requests {
        let Some(limit) = settings.limits.get(role) else {
            continue;
        };
        let wrong = |pair: (Option<u64>, Option<u64>)| matches!(pair, (Some(least), Some(most)) if is_wrong(least, most));
        let is_either = wrong((requested.cpu_millis, limit.cpu_millis))
            || wrong((requested.memory_bytes, limit.memory_bytes));
        if let Some(node) = given(fields, "requests", *role).filter(|_| is_either) {
            let message = format!("the requests of `{}` {problem}", role.key());
            return Err(Problem::new(node.at, message, fix));
        }
    }
    Ok(())
}

/// The API server would reject the pods of every variant.
fn requests_within_limits(fields: &Fields<'_>, settings: &PodSettings) -> Result<(), Problem> {
    let words = ("exceed its limits", "request as much as the limit, or less");
    no_request(fields, settings, |least, most| least > most, words)
}

/// The kubelet gives whole cores only, and only where requests equal limits.
fn guaranteed(fields: &Fields<'_>, settings: &PodSettings) -> Result<(), Problem> {
    if settings.qos.is_none() {
        return Ok(());
    }
    for (key, of_roles) in [
        ("requests", &settings.requests),
        ("limits", &settings.limits),
    ] {
        for (role, quantities) in of_roles {
            let is_whole = quantities
                .cpu_millis
                .is_none_or(|millis| millis % 1000 == 0);
            if let Some(node) = given(fields, key, *role).filter(|_| !is_whole) {
                return Err(Problem::new(
                    node.entry("cpu").unwrap_or(node).at,
                    "`qos: guaranteed` needs whole CPUs",
                    "write a whole number, as in `cpu: 1`, or omit `qos`",
                ));
            }
        }
    }
    let words = (
        "differ from its limits, and `qos: guaranteed` needs them equal",
        "omit `requests`: they are the limits then",
    );
    no_request(fields, settings, |least, most| least != most, words)
}

/// Labels of nodes.
fn labels(node: Option<&Node>) -> Result<BTreeMap<String, String>, Problem> {
    let Some(node) = node else {
        return Ok(BTreeMap::new());
    };
    let Value::Map(entries) = &node.value else {
        return Err(Problem::new(
            node.at,
            format!("`node-selector` must be a mapping, not {}", node.kind()),
            "write labels of nodes, as in `node-selector: {pool: bench}`",
        ));
    };
    let label = |(key, value): &(Key, Node)| {
        Ok((
            key.name.clone(),
            text_of(value, "node-selector")?.to_owned(),
        ))
    };
    entries.iter().map(label).collect()
}

fn mapping(node: &Node) -> Result<Passed, Problem> {
    match &node.value {
        Value::Map(_) => Ok(passed(node)),
        _ => Err(Problem::new(
            node.at,
            format!("`affinity` must be a mapping, not {}", node.kind()),
            "write it as in a pod's specification, as in `affinity: {podAntiAffinity: {...}}`",
        )),
    }
}

fn list(fields: &Fields<'_>, key: &str) -> Result<Option<Passed>, Problem> {
    let Some(node) = fields.get(key) else {
        return Ok(None);
    };
    items(node, key, MAX_ITEMS)?;
    Ok(Some(passed(node)))
}

fn passed(node: &Node) -> Passed {
    match &node.value {
        Value::Null => Passed::Null,
        Value::Scalar(text) => Passed::Text(text.clone()),
        Value::List(items) => Passed::List(items.iter().map(passed).collect()),
        Value::Map(entries) => {
            let entries = entries.iter();
            Passed::Map(
                entries
                    .map(|(key, node)| (key.name.clone(), passed(node)))
                    .collect(),
            )
        }
    }
}

/// Their copies are in one namespace, under the same names.
fn pull_secrets(node: &Node) -> Result<Vec<PullSecret>, Problem> {
    const KEY: &str = "image-pull-secrets";
    let mut secrets: Vec<PullSecret> = Vec::new();
    for item in items(node, KEY, MAX_ITEMS)? {
        let secret = scalar(item, KEY, pull_secret)?;
        let name = &secret.name;
        let (message, fix) = if name == AGENT_SECRET {
            (
                format!(
                    "`{name}` is the name of a Secret of meshtax's own in the run's namespaces"
                ),
                "copy it under another name, and list that",
            )
        } else if secrets.contains(&secret) {
            (
                format!("the Secret `{}/{name}` is listed twice", secret.namespace),
                "remove one",
            )
        } else if secrets.iter().any(|other| other.name == *name) {
            (
                format!(
                    "two Secrets have the name `{name}`, and copies of both would be in the run's namespaces"
                ),
                "copy one of them under another name, and list that",
            )
        } else {
            secrets.push(secret);
            continue;
        };
        return Err(Problem::new(item.at, message, fix));
    }
    Ok(secrets)
}

/// `NAME` or `NAMESPACE/NAME`.
fn pull_secret(text: &str) -> Result<PullSecret, ValueError> {
    let (namespace, name) = text.split_once('/').unwrap_or((DEFAULT_NAMESPACE, text));
    Ok(PullSecret {
        namespace: object_name(namespace)?,
        name: object_name(name)?,
    })
}

/// The name of an object: a DNS subdomain.
fn object_name(text: &str) -> Result<String, ValueError> {
    const MAX_LENGTH: usize = 253;
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = text.len() <= MAX_LENGTH
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(is_inner);
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(ValueError::not(
            text,
            "the name of an object",
            "use lower-case letters, digits, `-` and `.`, as in `bench-high`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<PodSettings, crate::SpecError> {
        let parsed = crate::parse("spec", &format!("kubernetes: {text}\n"))?;
        Ok(parsed.kubernetes.expect("settings"))
    }

    #[test]
    fn settings_are_read_and_what_is_passed_on_stays_as_it_is_written() {
        let read = settings(
            "{requests: {client: {cpu: 500m}}, limits: {client: {cpu: 1, memory: 1Gi}}, node-selector: {pool: '7'}, \
             tolerations: [{key: a, tolerationSeconds: 60}], priority-class: high, image-pull-secrets: [a, b/c]}",
        )
        .unwrap();
        assert_eq!(read.requests[&PodRole::Client].cpu_millis, Some(500));
        assert_eq!(read.limits[&PodRole::Client].memory_bytes, Some(1 << 30));
        assert_eq!(read.node_selector["pool"], "7");
        let toleration = [("key", "a"), ("tolerationSeconds", "60")];
        let toleration =
            toleration.map(|(key, value)| (key.to_owned(), Passed::Text(value.into())));
        let expected = Passed::List(vec![Passed::Map(toleration.into())]);
        assert_eq!(read.tolerations, Some(expected));
        let names: Vec<String> = read
            .image_pull_secrets
            .iter()
            .map(|secret| format!("{}/{}", secret.namespace, secret.name))
            .collect();
        assert_eq!(names, ["default/a", "b/c"]);
    }

    #[test]
    fn settings_that_no_pod_can_have_are_rejected() {
        for (text, expected) in [
            ("{cpus: 1}", "unknown key `cpus`"),
            ("{limits: {server: {cpu: 1}}}", "unknown key `server`"),
            ("{limits: {client: {cpu: 1 core}}}", "unknown unit"),
            (
                "{requests: {proxy: {cpu: 2}}, limits: {proxy: {cpu: 1}}}",
                "exceed its limits",
            ),
            (
                "{qos: guaranteed, limits: {client: {cpu: 500m}}}",
                "whole CPUs",
            ),
            (
                "{qos: guaranteed, requests: {client: {cpu: 1}}, limits: {client: {cpu: 2}}}",
                "differ from its limits",
            ),
            ("{qos: best}", "unknown value `best`"),
            ("{affinity: [a]}", "must be a mapping"),
            ("{tolerations: {key: a}}", "must be a list"),
            ("{priority-class: High}", "not the name of an object"),
            ("{image-pull-secrets: [a/b/c]}", "not the name of an object"),
            (
                "{image-pull-secrets: [a, default/a]}",
                "`default/a` is listed twice",
            ),
            (
                "{image-pull-secrets: [a, b/a]}",
                "two Secrets have the name `a`",
            ),
            ("{image-pull-secrets: [b/meshtax-agent]}", "meshtax's own"),
            ("[a]", "must be a mapping"),
        ] {
            let rejected = settings(text).unwrap_err().to_string();
            assert!(rejected.contains(expected), "{text}: {rejected}");
            assert!(rejected.contains("fix"), "{text}: {rejected}");
        }
    }
}
