//! The settings of a run's pods, as Kubernetes' own types.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
    TopologySpreadConstraint,
};
use meshtax_model::pods::{Passed, PodRole, PodSettings, QualityOfService, Quantities};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::passed::{PassedError, read};

/// Settings that a cluster can be given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    given: PodSettings,
    affinity: Affinity,
    pub(crate) tolerations: Vec<Toleration>,
    topology_spread: Vec<TopologySpreadConstraint>,
}

/// What a container does, for its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerRole {
    /// It is measured.
    Measured(PodRole),
    /// An agent that only reads and redirects.
    Harness,
}

/// Where nothing is given, a guaranteed container gets this.
const WHOLE: Quantities = Quantities {
    cpu_millis: Some(1000),
    memory_bytes: Some(512 << 20),
};

/// Of an agent in a pod whose other containers have limits: without any of its own it would lower the pod's class.
const HARNESS: Quantities = Quantities {
    cpu_millis: Some(100),
    memory_bytes: Some(128 << 20),
};

/// Checks what a spec passes on to Kubernetes: each field must be one that it knows, of the right type.
///
/// # Errors
/// The first that is not, with its path from the key `kubernetes` of the spec on.
pub fn check_settings(settings: &PodSettings) -> Result<(), PassedError> {
    Settings::new(Some(settings)).map(|_| ())
}

impl Settings {
    /// Those of an experiment.
    pub(crate) fn new(given: Option<&PodSettings>) -> Result<Self, PassedError> {
        let Some(given) = given else {
            return Ok(Self::default());
        };
        Ok(Self {
            affinity: typed(given.affinity.as_ref(), "affinity")?,
            tolerations: typed(given.tolerations.as_ref(), "tolerations")?,
            topology_spread: typed(given.topology_spread.as_ref(), "topology-spread")?,
            given: given.clone(),
        })
    }

    /// The labels that a node must have.
    pub(crate) fn node_selector(&self) -> impl Iterator<Item = (&String, &String)> {
        self.given.node_selector.iter()
    }

    /// Whether pods of the run may be on a node with this taint.
    pub(crate) fn tolerate(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|one| tolerates(one, taint))
    }

    /// What every pod of the run has: it must be admitted, and find its image.
    pub(crate) fn of_every_pod(&self) -> Map<String, Value> {
        let mut spec = Map::new();
        let mut set = |key: &str, is_given: bool, value: Value| {
            if is_given {
                spec.insert(key.to_owned(), value);
            }
        };
        let given = &self.given;
        set(
            "tolerations",
            !self.tolerations.is_empty(),
            json!(self.tolerations),
        );
        set(
            "priorityClassName",
            given.priority_class.is_some(),
            json!(given.priority_class),
        );
        let secrets = given.image_pull_secrets.iter();
        let secrets: Vec<Value> = secrets.map(|of| json!({"name": of.name})).collect();
        set("imagePullSecrets", !secrets.is_empty(), json!(secrets));
        spec
    }

    /// What the pods of variants have in addition, on their node.
    pub(crate) fn of_variants(&self, node: &str) -> Map<String, Value> {
        let mut spec = self.of_every_pod();
        spec.insert("affinity".into(), json!(self.affinity_on(node)));
        if !self.given.node_selector.is_empty() {
            spec.insert("nodeSelector".into(), json!(self.given.node_selector));
        }
        if !self.topology_spread.is_empty() {
            let constraints = json!(self.topology_spread);
            spec.insert("topologySpreadConstraints".into(), constraints);
        }
        spec
    }

    /// The affinity that was given, and the node by its name. Terms are alternatives: the node is part of each.
    fn affinity_on(&self, node: &str) -> Affinity {
        let mut affinity = self.affinity.clone();
        let of_nodes = affinity.node_affinity.get_or_insert_default();
        let required = of_nodes
            .required_during_scheduling_ignored_during_execution
            .get_or_insert_default();
        if required.node_selector_terms.is_empty() {
            required
                .node_selector_terms
                .push(NodeSelectorTerm::default());
        }
        for term in &mut required.node_selector_terms {
            let fields = term.match_fields.get_or_insert_default();
            fields.push(NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: Some(vec![node.to_owned()]),
            });
        }
        affinity
    }

    /// The `resources` of a container; `None`: none are given. `own`: the limits of its variant, which come first.
    pub(crate) fn resources(&self, role: ContainerRole, own: Quantities) -> Option<Value> {
        let given = &self.given;
        let is_guaranteed = given.qos == Some(QualityOfService::Guaranteed);
        let (requests, limits) = match role {
            ContainerRole::Harness if is_guaranteed || !given.limits.is_empty() => {
                (HARNESS, HARNESS)
            }
            ContainerRole::Harness => return None,
            ContainerRole::Measured(role) => {
                let of = |all: &BTreeMap<PodRole, Quantities>| {
                    all.get(&role).copied().unwrap_or_default()
                };
                let limits = or(own, of(&given.limits));
                (at_most(of(&given.requests), own), limits)
            }
        };
        let (requests, limits) = match is_guaranteed {
            true => {
                let both = or(or(limits, requests), WHOLE);
                (both, both)
            }
            // Kubernetes does the same.
            false => (or(requests, limits), limits),
        };
        let mut resources = Map::new();
        for (key, quantities) in [("requests", requests), ("limits", limits)] {
            let listed = listed(quantities);
            if !listed.is_empty() {
                resources.insert(key.into(), Value::Object(listed));
            }
        }
        (!resources.is_empty()).then_some(Value::Object(resources))
    }
}

/// A value as a type of Kubernetes; its default where nothing is given.
fn typed<T>(given: Option<&Passed>, key: &str) -> Result<T, PassedError>
where
    T: Default + for<'de> Deserialize<'de>,
{
    let typed = given.map(|passed| read(passed).map_err(|e| e.within(key)));
    Ok(typed.transpose()?.unwrap_or_default())
}

fn or(first: Quantities, second: Quantities) -> Quantities {
    Quantities {
        cpu_millis: first.cpu_millis.or(second.cpu_millis),
        memory_bytes: first.memory_bytes.or(second.memory_bytes),
    }
}

/// Requests within limits.
fn at_most(requests: Quantities, limits: Quantities) -> Quantities {
    let least = |requested: Option<u64>, limit: Option<u64>| match (requested, limit) {
        (Some(requested), Some(limit)) => Some(requested.min(limit)),
        (requested, _) => requested,
    };
    Quantities {
        cpu_millis: least(requests.cpu_millis, limits.cpu_millis),
        memory_bytes: least(requests.memory_bytes, limits.memory_bytes),
    }
}

fn listed(quantities: Quantities) -> Map<String, Value> {
    let cpu = quantities.cpu_millis.map(|millis| match millis % 1000 {
        0 => (millis / 1000).to_string(),
        _ => format!("{millis}m"),
    });
    let memory = quantities.memory_bytes.map(|bytes| bytes.to_string());
    let all = [("cpu", cpu), ("memory", memory)].into_iter();
    all.filter_map(|(key, text)| Some((key.to_owned(), json!(text?))))
        .collect()
}

/// As Kubernetes defines it: an empty key or effect stands for all of them.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    match key {
        "" => exists,
        key if key != taint.key => false,
        _ => {
            exists
                || toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(value: &Value) -> Passed {
        match value {
            Value::Array(items) => Passed::List(items.iter().map(passed).collect()),
            Value::Object(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| (key.clone(), passed(value)));
                Passed::Map(entries.collect())
            }
            Value::String(text) => Passed::Text(text.clone()),
            other => Passed::Text(other.to_string()),
        }
    }

    fn with_affinity(affinity: &Value) -> PodSettings {
        PodSettings {
            affinity: Some(passed(affinity)),
            ..PodSettings::default()
        }
    }

    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

    #[test]
    fn node_of_a_pod_is_part_of_every_term_that_was_given() {
        let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        let given =
            json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term("a"), term("b")]}}});
        let settings = Settings::new(Some(&with_affinity(&given))).unwrap();
        let spec = Value::Object(settings.of_variants("node1"));
        let terms = &spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        for (index, key) in ["a", "b"].into_iter().enumerate() {
            assert_eq!(terms[index]["matchFields"][0]["values"], json!(["node1"]));
            assert_eq!(terms[index]["matchExpressions"][0]["key"], key);
        }
        let alone = Value::Object(Settings::default().of_variants("node1"));
        let terms = &alone["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"];
        assert_eq!(terms.as_array().map(Vec::len), Some(1));
        assert_eq!(alone.as_object().map(Map::len), Some(1), "{alone}");
    }

    #[test]
    fn fields_that_kubernetes_does_not_have_are_errors_with_their_path() {
        let anti = json!({"podAntiAffinity": {REQUIRED: [{"topologyKeys": "a"}]}});
        let error = check_settings(&with_affinity(&anti)).unwrap_err();
        assert_eq!(
            error.path,
            ["affinity", "podAntiAffinity", REQUIRED, "0", "topologyKeys"]
        );
        assert!(error.to_string().contains("topologyKeys"), "{error}");
        let tolerations = json!([{"key": "a"}, {"tolerationSeconds": "soon"}]);
        let settings = PodSettings {
            tolerations: Some(passed(&tolerations)),
            ..PodSettings::default()
        };
        let error = check_settings(&settings).unwrap_err();
        assert_eq!(error.path, ["tolerations", "1", "tolerationSeconds"]);
    }

    const NONE: Quantities = Quantities {
        cpu_millis: None,
        memory_bytes: None,
    };

    #[test]
    fn limits_of_a_variant_come_before_those_of_the_role_and_cap_its_requests() {
        let cpu = |cpu_millis| Quantities {
            cpu_millis: Some(cpu_millis),
            memory_bytes: None,
        };
        let given = PodSettings {
            requests: BTreeMap::from([(PodRole::Proxy, cpu(500))]),
            limits: BTreeMap::from([(
                PodRole::Proxy,
                Quantities {
                    memory_bytes: Some(1 << 30),
                    ..cpu(1000)
                },
            )]),
            ..PodSettings::default()
        };
        let settings = Settings::new(Some(&given)).unwrap();
        let proxy = settings.resources(ContainerRole::Measured(PodRole::Proxy), cpu(100));
        let both = json!({"cpu": "100m", "memory": "1073741824"});
        assert_eq!(proxy, Some(json!({"requests": both, "limits": both})));
    }

    #[test]
    fn guaranteed_containers_have_limits_that_equal_requests_in_whole_cpus() {
        let given = PodSettings {
            qos: Some(QualityOfService::Guaranteed),
            limits: BTreeMap::from([(
                PodRole::Client,
                Quantities {
                    cpu_millis: Some(2000),
                    memory_bytes: None,
                },
            )]),
            ..PodSettings::default()
        };
        let settings = Settings::new(Some(&given)).unwrap();
        let of = |role| settings.resources(role, NONE).unwrap();
        let client = of(ContainerRole::Measured(PodRole::Client));
        assert_eq!(client["limits"], json!({"cpu": "2", "memory": "536870912"}));
        let proxy = of(ContainerRole::Measured(PodRole::Proxy));
        assert_eq!(proxy["limits"]["cpu"], "1");
        for resources in [client, proxy, of(ContainerRole::Harness)] {
            assert_eq!(resources["limits"], resources["requests"]);
        }
    }

    #[test]
    fn containers_have_the_resources_of_their_role_and_no_others() {
        let given = PodSettings {
            requests: BTreeMap::from([(
                PodRole::Service,
                Quantities {
                    cpu_millis: Some(250),
                    memory_bytes: None,
                },
            )]),
            ..PodSettings::default()
        };
        let settings = Settings::new(Some(&given)).unwrap();
        let service = settings.resources(ContainerRole::Measured(PodRole::Service), NONE);
        assert_eq!(service, Some(json!({"requests": {"cpu": "250m"}})));
        for role in [
            ContainerRole::Measured(PodRole::Proxy),
            ContainerRole::Harness,
        ] {
            assert_eq!(settings.resources(role, NONE), None);
        }
    }

    #[test]
    fn tolerations_match_taints_as_in_kubernetes() {
        let taint = Taint {
            key: "pool".into(),
            value: Some("bench".into()),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        let tolerates = |toleration: Value| {
            let settings = PodSettings {
                tolerations: Some(passed(&json!([toleration]))),
                ..PodSettings::default()
            };
            Settings::new(Some(&settings)).unwrap().tolerate(&taint)
        };
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(
            json!({"key": "pool", "operator": "Exists", "effect": "NoSchedule"})
        ));
        assert!(tolerates(json!({"key": "pool", "value": "bench"})));
        assert!(!tolerates(json!({"key": "pool", "value": "other"})));
        assert!(!tolerates(
            json!({"key": "pool", "operator": "Exists", "effect": "NoExecute"})
        ));
        assert!(!tolerates(json!({"key": "other", "operator": "Exists"})));
    }
}
