//! The objects of a run, as they are applied.

use meshtax_agent::remote::{AGENT_PORT, START_DIRECTORY, Token};
use serde_json::{Value, json};

use crate::mesh::Mesh;
use crate::names::{MANAGED_BY, POD, RUN};

/// The Secret with the agents' token.
const TOKEN_SECRET: &str = "meshtax-agent";
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
    /// Whether its agent redirects its traffic, which needs `NET_ADMIN`.
    pub(crate) is_redirected: bool,
    /// Whether the kubelet restarts its containers when they end: not where a restart would lose their configuration.
    pub(crate) restarts: bool,
    /// The containers beside the agent, which wait for what they are to start.
    pub(crate) containers: Vec<ContainerPlan>,
}

/// A container that waits for what it is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPlan {
    pub(crate) name: String,
    /// A proxy: its connections carry a mark, which needs `NET_ADMIN`.
    pub(crate) marks: bool,
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

    pub(crate) fn secret(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": self.metadata(namespace, TOKEN_SECRET),
            "stringData": {"token": self.token},
        })
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

    fn agent_container(&self, security: Value, mounts: Value) -> Value {
        let token = json!({"secretKeyRef": {"name": TOKEN_SECRET, "key": "token"}});
        json!({
            "name": AGENT, "image": self.image, "imagePullPolicy": "IfNotPresent",
            "args": ["internal", "agent", AGENT_PORT.to_string()],
            "env": [{"name": Token::VARIABLE, "valueFrom": token}],
            "securityContext": security,
            "volumeMounts": mounts,
        })
    }

    /// A pod: its agent, and containers that wait for the agent.
    pub(crate) fn pod(&self, plan: &PodPlan) -> Value {
        let shared = json!([{"name": "shared", "mountPath": START_DIRECTORY}]);
        let mut containers =
            vec![self.agent_container(security(plan.is_redirected), shared.clone())];
        containers.extend(plan.containers.iter().map(|container| {
            json!({
                "name": container.name, "image": self.image, "imagePullPolicy": "IfNotPresent",
                "args": ["internal", "container", container.name],
                "securityContext": security(container.marks),
                "volumeMounts": shared,
            })
        }));
        let mut labels = self.labels();
        labels[POD] = json!(plan.name);
        labels["app"] = json!(plan.service.as_deref().unwrap_or(&plan.name));
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": plan.namespace, "name": plan.name, "labels": labels},
            "spec": {
                "serviceAccountName": plan.service_account,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "restartPolicy": match plan.restarts {
                    true => "Always",
                    false => "Never",
                },
                "terminationGracePeriodSeconds": 0,
                "affinity": {"nodeAffinity": on_nodes(std::slice::from_ref(&plan.node))},
                "containers": containers,
                "volumes": [{"name": "shared", "emptyDir": {"medium": "Memory"}}],
            },
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
            is_redirected: false,
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
        json!({
            "automountServiceAccountToken": false,
            "hostPID": true,
            "terminationGracePeriodSeconds": 0,
            "affinity": {"nodeAffinity": on_nodes(nodes)},
            "containers": [self.agent_container(json!({"privileged": true}), mounts)],
            "volumes": [{"name": "cgroups", "hostPath": {"path": "/sys/fs/cgroup"}}],
        })
    }
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
    let term = |name: &String| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
        json!({"matchFields": [field]})
    };
    let terms: Vec<Value> = names.iter().map(term).collect();
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}
