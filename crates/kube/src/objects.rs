//! The objects of a run, as they are applied.

use std::collections::BTreeSet;

use std::collections::BTreeMap;

use meshtax_agent::remote::{AGENT_PORT, START_DIRECTORY, Token};
use meshtax_model::pods::{AGENT_SECRET, PodRole, Quantities};
use serde_json::{Map, Value, json};

use crate::mesh::Mesh;
use crate::names::{MANAGED_BY, POD, RUN};
use crate::settings::{ContainerRole, Settings};

/// The name of the agents' DaemonSet, and of their label.
pub(crate) const NODE_AGENT: &str = "node-agent";
/// The name of the client outside the mesh, and its label.
pub(crate) const OUTSIDER: &str = "outsider";
/// The container of an agent.
pub(crate) const AGENT: &str = "agent";

/// What all objects of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// Of the run.
    pub(crate) run: String,
    /// The image of meshtax.
    pub(crate) image: String,
    /// The agents' token.
    pub(crate) token: String,
    /// Of its pods.
    pub(crate) settings: Settings,
    /// The credentials of registries, for copies in the run's namespaces.
    pub(crate) pull_secrets: Vec<Credentials>,
}

/// A Secret for pulling images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) name: String,
    /// The Secret's type.
    pub(crate) kind: String,
    /// As in the Secret.
    pub(crate) data: Value,
}

/// A pod of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodPlan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The account, which is the identity of its workload.
    pub(crate) service_account: String,
    /// The service that it belongs to, if any.
    pub(crate) service: Option<String>,
    pub(crate) node: String,
    /// Whether its agent runs the load generator.
    pub(crate) generates: bool,
    /// Whether its agent redirects its traffic, which needs `NET_ADMIN`.
    pub(crate) is_redirected: bool,
    /// Its annotations: what its mesh is asked for.
    pub(crate) annotations: &'static [(&'static str, &'static str)],
    /// Whether the kubelet restarts its containers when they end: not where a restart would lose their configuration.
    pub(crate) restarts: bool,
    /// The containers beside the agent, which wait for what they are to start.
    pub(crate) containers: Vec<ContainerPlan>,
}

/// A container that waits for what it is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPlan {
    pub(crate) name: String,
    /// What it is given.
    pub(crate) role: PodRole,
    /// A proxy: its connections carry a mark, which needs `NET_ADMIN`.
    pub(crate) marks: bool,
    /// The limits of its variant.
    pub(crate) limits: Quantities,
}

impl Common {
    fn labels(&self) -> Value {
        let (key, value) = MANAGED_BY;
        json!({key: value, RUN: self.run})
    }

    /// The metadata of an object in a namespace.
    pub(crate) fn metadata(&self, namespace: &str, name: &str) -> Value {
        json!({"namespace": namespace, "name": name, "labels": self.labels()})
    }

    /// A namespace in which privileged pods are admitted: redirection needs `NET_ADMIN`, and the node agent the node.
    pub(crate) fn namespace(&self, name: &str, mesh: Option<&Mesh>) -> Value {
        let mut labels = self.labels();
        labels["pod-security.kubernetes.io/enforce"] = json!("privileged");
        let mut annotations = json!({});
        if let Some(mesh) = mesh {
            for (key, value) in mesh.labels {
                labels[*key] = json!(value);
            }
            for (key, value) in mesh.annotations() {
                annotations[*key] = json!(value);
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        })
    }

    /// What the pods of a namespace refer to: the agents' token, and credentials of registries.
    pub(crate) fn secrets(&self, namespace: &str) -> Vec<Value> {
        let token = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": self.metadata(namespace, AGENT_SECRET),
            "stringData": {"token": self.token},
        });
        let copy = |secret: &Credentials| {
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": self.metadata(namespace, &secret.name),
                "type": secret.kind, "data": secret.data,
            })
        };
        let copies = self.pull_secrets.iter().map(copy);
        std::iter::once(token).chain(copies).collect()
    }

    pub(crate) fn service_account(&self, namespace: &str, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": self.metadata(namespace, name),
            "automountServiceAccountToken": false,
        })
    }

    /// `ports`: number, and the name by which meshes know its protocol (`http-8080`, `tcp-8082`).
    pub(crate) fn service(&self, namespace: &str, name: &str, ports: &[(u16, String)]) -> Value {
        let ports: Vec<Value> = ports
            .iter()
            .map(|(number, name)| json!({"name": name, "port": number, "targetPort": number}))
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": self.metadata(namespace, name),
            "spec": {"selector": {"app": name, RUN: self.run}, "ports": ports},
        })
    }

    /// With the resources of a role; `None`: with those of no role.
    fn agent_container(
        &self,
        security: Value,
        mounts: Value,
        role: Option<ContainerRole>,
    ) -> Value {
        let token = json!({"secretKeyRef": {"name": AGENT_SECRET, "key": "token"}});
        let container = json!({
            "name": AGENT, "image": self.image, "imagePullPolicy": "IfNotPresent",
            "args": ["internal", "agent", AGENT_PORT.to_string()],
            "env": [{"name": Token::VARIABLE, "valueFrom": token}],
            "securityContext": security,
            "volumeMounts": mounts,
        });
        self.with_resources(container, role, Quantities::default())
    }

    fn with_resources(
        &self,
        mut container: Value,
        role: Option<ContainerRole>,
        limits: Quantities,
    ) -> Value {
        if let Some(resources) = role.and_then(|role| self.settings.resources(role, limits)) {
            container["resources"] = resources;
        }
        container
    }

    /// A pod: its agent, and containers that wait for the agent.
    pub(crate) fn pod(&self, plan: &PodPlan) -> Value {
        let shared = json!([{"name": "shared", "mountPath": START_DIRECTORY}]);
        let role = match plan.generates {
            true => ContainerRole::Measured(PodRole::Client),
            false => ContainerRole::Harness,
        };
        let redirects = security(plan.is_redirected);
        let mut containers = vec![self.agent_container(redirects, shared.clone(), Some(role))];
        containers.extend(plan.containers.iter().map(|container| {
            let object = json!({
                "name": container.name, "image": self.image, "imagePullPolicy": "IfNotPresent",
                "args": ["internal", "container", container.name],
                "securityContext": security(container.marks),
                "volumeMounts": shared,
            });
            let role = ContainerRole::Measured(container.role);
            self.with_resources(object, Some(role), container.limits)
        }));
        let mut labels = self.labels();
        labels[POD] = json!(plan.name);
        labels["app"] = json!(plan.service.as_deref().unwrap_or(&plan.name));
        let spec = json!({
            "serviceAccountName": plan.service_account,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": match plan.restarts {
                true => "Always",
                false => "Never",
            },
            "terminationGracePeriodSeconds": 0,
            "containers": containers,
            "volumes": [{"name": "shared", "emptyDir": {"medium": "Memory"}}],
        });
        let annotations: BTreeMap<&str, &str> = plan.annotations.iter().copied().collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": plan.namespace, "name": plan.name, "labels": labels, "annotations": annotations,
            },
            "spec": extended(spec, self.settings.of_variants(&plan.node)),
        })
    }

    /// The client outside the mesh.
    pub(crate) fn outsider(&self, namespace: &str, node: &str) -> Value {
        self.pod(&PodPlan {
            namespace: namespace.to_owned(),
            name: OUTSIDER.into(),
            service_account: "default".into(),
            service: None,
            node: node.to_owned(),
            generates: false,
            is_redirected: false,
            annotations: &[],
            restarts: true,
            containers: Vec::new(),
        })
    }

    /// An agent on each of these nodes. Privileged, in the node's PID namespace: it reads the cgroups and processes of
    /// the pods there, and captures on the node's uplink.
    pub(crate) fn node_agents(&self, namespace: &str, nodes: &[String]) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": self.metadata(namespace, NODE_AGENT),
            "spec": {
                "selector": {"matchLabels": {"app": NODE_AGENT}},
                "template": {
                    "metadata": {"labels": self.node_agent_labels()},
                    "spec": self.node_agent_spec(nodes),
                },
            },
        })
    }

    /// A pod like those of [`Self::node_agents`]. A policy that rejects them is reported to the DaemonSet's controller only: this one
    /// is for asking.
    pub(crate) fn node_agent(&self, namespace: &str, nodes: &[String]) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": namespace, "name": NODE_AGENT, "labels": self.node_agent_labels(),
            },
            "spec": self.node_agent_spec(nodes),
        })
    }

    fn node_agent_labels(&self) -> Value {
        let mut labels = self.labels();
        labels["app"] = json!(NODE_AGENT);
        labels
    }

    fn node_agent_spec(&self, nodes: &[String]) -> Value {
        let mounts =
            json!([{"name": "cgroups", "mountPath": "/host/sys/fs/cgroup", "readOnly": true}]);
        let agent = self.agent_container(json!({"privileged": true}), mounts, None);
        let spec = json!({
            "automountServiceAccountToken": false,
            "hostPID": true,
            "terminationGracePeriodSeconds": 0,
            "affinity": {"nodeAffinity": on_nodes(nodes)},
            "containers": [agent],
            "volumes": [{"name": "cgroups", "hostPath": {"path": "/sys/fs/cgroup"}}],
        });
        extended(spec, self.settings.of_every_pod())
    }
}

/// A pod's specification with further fields.
fn extended(mut spec: Value, more: Map<String, Value>) -> Value {
    if let Value::Object(fields) = &mut spec {
        fields.extend(more);
    }
    spec
}

/// No more than what the container does: `NET_ADMIN` for redirection and marks.
fn security(net_admin: bool) -> Value {
    let added: &[&str] = match net_admin {
        true => &["NET_ADMIN"],
        false => &[],
    };
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"], "add": added},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Only on these nodes, by name. A selector by field takes one value, and terms are alternatives.
fn on_nodes(names: &[String]) -> Value {
    let names: BTreeSet<&String> = names.iter().collect();
    let term = |name: &&String| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        json!({"matchFields": [field]})
    };
    let terms: Vec<Value> = names.iter().map(term).collect();
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}
