//! Why the cluster cannot be used.

use std::time::Duration;

use meshtax_agent::remote::AgentError;
use meshtax_engine::EngineError;

use crate::passed::PassedError;

/// Why a step on the cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no usable kubeconfig.
    #[error("no kubeconfig can be used: {cause}")]
    Kubeconfig {
        /// The reason.
        cause: String,
    },
    /// This process cannot run the client.
    #[error("cannot start the Kubernetes client: {0}")]
    Runtime(#[source] std::io::Error),
    /// The API server did not respond, also not when asked again.
    #[error("the API server does not respond ({doing}): {cause}")]
    Unreachable {
        /// What was to be done.
        doing: String,
        /// The last error.
        cause: String,
    },
    /// A permission is missing, a quota is used up, or an admission policy forbids it: the API server answers all of
    /// these alike.
    #[error("the API server does not allow meshtax to {doing}: {message}")]
    Forbidden {
        /// What was to be done.
        doing: String,
        /// The API server's message, which names the user, the verb and the resource.
        message: String,
    },
    /// The API server does not accept the credentials.
    #[error("the API server does not accept the credentials of this user ({doing}): {message}")]
    Unauthenticated {
        /// What was to be done.
        doing: String,
        /// The API server's message.
        message: String,
    },
    /// The namespace is gone or being removed, or the cluster has no objects of this kind.
    #[error("cannot {doing}, because what it belongs to is not there: {message}")]
    Gone {
        /// What was to be done.
        doing: String,
        /// The API server's message.
        message: String,
    },
    /// Permissions that the engine needs are missing.
    #[error("missing permissions: {}", .0.join(", "))]
    MissingPermissions(
        /// Verb, resource and scope of each.
        Vec<String>,
    ),
    /// The API server or an admission controller rejected an object.
    #[error("the API server rejects the request to {doing}: {message}")]
    Rejected {
        /// What was to be done.
        doing: String,
        /// Its message.
        message: String,
    },
    /// There are not enough nodes.
    #[error("{found} nodes can take pods ({names}), and clients and servers need {needed} nodes")]
    TooFewNodes {
        /// Nodes that are ready and accept pods.
        found: usize,
        /// Their names.
        names: String,
        /// As many are needed.
        needed: usize,
    },
    /// A node that the user named cannot be used.
    #[error("node {name} {problem}")]
    Node {
        /// Its name.
        name: String,
        /// Why not.
        problem: NodeProblem,
    },
    /// Another run measures on the same nodes.
    #[error("run {run} is measuring on nodes {nodes}")]
    NodesInUse {
        /// That run's nodes.
        nodes: String,
        /// The run.
        run: String,
    },
    /// A pod does not get ready.
    #[error("pod {pod} is not ready after {} s: {state}", .waited.as_secs())]
    NotReady {
        /// Namespace and name.
        pod: String,
        /// What the API server reports of it.
        state: String,
        /// How long it had.
        waited: Duration,
    },
    /// Something other than meshtax put a proxy into a pod.
    #[error("pod {pod} has parts that meshtax did not add: {}", .found.join(", "))]
    Injected {
        /// Namespace and name.
        pod: String,
        /// Containers, and the annotations of meshes without any.
        found: Vec<String>,
    },
    /// A mesh did not join a pod.
    #[error("{mesh} did not join pod {pod}: it has no {missing}")]
    NotJoined {
        /// Namespace and name.
        pod: String,
        /// The mesh.
        mesh: &'static str,
        /// A container, or an annotation.
        missing: &'static str,
    },
    /// No node takes a pod.
    #[error("pod {pod} cannot be scheduled, after {} s{awaited}: {message}", .waited.as_secs())]
    Unschedulable {
        /// Namespace and name.
        pod: String,
        /// The scheduler's reason.
        message: String,
        /// How long it had.
        waited: Duration,
        /// What was under way for it.
        awaited: Awaited,
    },
    /// A pod's image cannot be pulled.
    #[error("the image of pod {pod} cannot be pulled: {reason}: {message}")]
    Image {
        /// Namespace and name.
        pod: String,
        /// The kubelet's reason (`ErrImagePull`).
        reason: String,
        /// The kubelet's message.
        message: String,
    },
    /// A container ended before the pod was ready.
    #[error("container {container} of pod {pod} ended while it started: {state}{}", quoted(.last_output))]
    Ended {
        /// Namespace and name.
        pod: String,
        /// Which one.
        container: String,
        /// How.
        state: String,
        /// The last lines of its log.
        last_output: Vec<String>,
    },
    /// A pod failed as a whole, and nothing creates it again: it was evicted, or its node rejected it.
    #[error("pod {pod} failed: {reason} {message}{}", quoted(.last_output))]
    PodFailed {
        /// Namespace and name.
        pod: String,
        /// The kubelet's reason (`Evicted`, `OutOfcpu`).
        reason: String,
        /// The kubelet's message.
        message: String,
        /// The last lines of its first container's log.
        last_output: Vec<String>,
    },
    /// The API server does not forward to an agent.
    #[error("the agent in pod {pod} cannot be reached: the port-forward fails: {cause}")]
    NotForwarded {
        /// Namespace and name.
        pod: String,
        /// The API server's answer, or the kubelet's.
        cause: String,
    },
    /// An agent did not do what it was asked to.
    #[error("the agent in pod {pod}: {source}")]
    Agent {
        /// Namespace and name.
        pod: String,
        /// Why not.
        source: AgentError,
    },
    /// The agents that run are on other nodes.
    #[error("no agent runs on node {node}")]
    NoAgent {
        /// The node.
        node: String,
    },
    /// Something was not removed in time.
    #[error("{what} is still there after {} s", .waited.as_secs())]
    NotRemoved {
        /// Kind and name.
        what: String,
        /// How long it had.
        waited: Duration,
    },
    /// What an interrupted run left could not be removed, so that it cannot be continued.
    #[error("namespaces of the interrupted run are still there: {}", .namespaces.join(", "))]
    Remains {
        /// Their names.
        namespaces: Vec<String>,
    },
    /// No image was given.
    #[error("no image of meshtax was given")]
    NoImage,
    /// The settings of pods are not ones that Kubernetes has.
    #[error("`kubernetes.{}` of the spec: {}", .0.path.join("."), .0.problem)]
    Settings(
        /// The first problem.
        #[from]
        PassedError,
    ),
    /// A Secret for pulling images does not exist.
    #[error("the Secret {namespace}/{name} of `image-pull-secrets` does not exist")]
    NoPullSecret {
        /// Where it should be.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The last lines that a container wrote.
fn quoted(last_output: &[String]) -> String {
    match last_output {
        [] => String::new(),
        lines => format!("; last output: {}", lines.join(" | ")),
    }
}

/// What may still give a pod its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Nothing.
    Nothing,
    /// The scheduler has nominated a node, on which other pods are being removed for it.
    Preemption,
    /// An autoscaler is adding a node for it.
    NewNode,
}

impl std::fmt::Display for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "",
            Self::Preemption => " in which a node was to be cleared for it",
            Self::NewNode => " in which a node was to be added for it",
        })
    }
}

/// Why a node cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeProblem {
    /// There is no node of that name.
    #[error("does not exist")]
    Absent,
    /// It is cordoned.
    #[error("is cordoned")]
    Cordoned,
    /// Its kubelet does not report it as ready.
    #[error("is not ready")]
    NotReady,
    /// It runs another operating system.
    #[error("does not run Linux")]
    NotLinux,
    /// It has a taint that no pod of meshtax tolerates.
    #[error("has a taint that pods do not tolerate")]
    Tainted,
    /// It lacks a label of the spec's `node-selector`.
    #[error("does not have the labels of `node-selector`")]
    NotSelected,
}

impl NodeProblem {
    fn fix(self) -> &'static str {
        match self {
            Self::Cordoned => {
                "`kubectl uncordon NODE`, or name other nodes with --nodes; the first is for the clients"
            }
            Self::NotReady => {
                "`kubectl describe node NODE` shows why; or name other nodes with --nodes, the first for the clients"
            }
            Self::Tainted => {
                "add `tolerations` to the spec's `kubernetes`, or name other nodes with --nodes"
            }
            Self::NotSelected => "label it, or change `node-selector` in the spec's `kubernetes`",
            Self::Absent | Self::NotLinux => {
                "name other nodes with --nodes; the first is for the clients"
            }
        }
    }
}

impl Awaited {
    fn fix(self) -> &'static str {
        match self {
            Self::NewNode => {
                "`kubectl get events` shows what the autoscaler did; or use nodes that exist (--nodes)"
            }
            Self::Nothing | Self::Preemption => {
                "uncordon the node or free resources on it, or use other nodes (--nodes)"
            }
        }
    }
}

fn fix_of_agent(error: &AgentError) -> &'static str {
    match error {
        AgentError::Version { .. } => "use an image of exactly this version of meshtax",
        AgentError::CaptureTooLarge(_) => {
            "use a smaller `response` or fewer `replicas` in the spec"
        }
        AgentError::CaptureIncomplete { .. } => {
            "use nodes that are less busy (--nodes), or try again later"
        }
        AgentError::Failed(_) => "the nodes' kernel or a policy of the cluster forbids it",
        _ => "check that `kubectl port-forward` to that pod works",
    }
}

impl ClusterError {
    /// What the user can do.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Kubeconfig { .. } => {
                "name it with --kubeconfig or KUBECONFIG, and the cluster with --context"
            }
            Self::Runtime(_) => "free file descriptors or memory on this machine",
            Self::Unreachable { .. } => {
                "check that `kubectl get nodes` works with the same context"
            }
            Self::Forbidden { .. } => {
                "the message names the permission, the quota or the policy; docs/kubernetes.md has what meshtax needs"
            }
            Self::Unauthenticated { .. } => {
                "log in again, or name other credentials with --kubeconfig or --context; `kubectl auth whoami` shows whom they name"
            }
            Self::Gone { .. } => {
                "if somebody deleted the run's namespaces, start it again; if the cluster lacks a custom resource, install it"
            }
            Self::MissingPermissions(_) => {
                "an administrator grants them: docs/kubernetes.md has the rules"
            }
            Self::Rejected { .. } => {
                "the message names the field or the policy; the same command with --dry-run prints every object"
            }
            Self::TooFewNodes { .. } => {
                "add a node, remove its taint or tolerate it (`tolerations` of the spec's `kubernetes`)"
            }
            Self::Node { problem, .. } => problem.fix(),
            Self::NodesInUse { .. } => {
                "wait until it ends, or use other nodes (--nodes); `meshtax cleanup ID` removes the objects of a run that was killed"
            }
            Self::NotReady { .. }
            | Self::Ended { .. }
            | Self::PodFailed { .. }
            | Self::NoAgent { .. } => {
                "`kubectl describe pod` and `kubectl get events` in its namespace show details"
            }
            Self::Injected { .. } => {
                "a mesh's webhook or CNI agent acts on every namespace: exclude those whose names begin with meshtax"
            }
            Self::NotJoined { .. } => {
                "check that the mesh's injector or CNI agent runs: if it does not, some meshes admit pods unchanged"
            }
            Self::Unschedulable { awaited, .. } => awaited.fix(),
            Self::Image { .. } => {
                "push one with `meshtax image push REF`, and name it with --image REF"
            }
            Self::Agent { source, .. } => fix_of_agent(source),
            Self::NotForwarded { .. } => "check that `kubectl port-forward` to that pod works",
            Self::NotRemoved { .. } | Self::Remains { .. } => "`meshtax cleanup --all` tries again",
            Self::Settings(_) => {
                "`kubectl explain pod.spec` describes the fields that Kubernetes has"
            }
            Self::NoPullSecret { .. } => {
                "create it with `kubectl create secret docker-registry`, or name another as NAMESPACE/NAME"
            }
            Self::NoImage => {
                "build and push one with `meshtax image push REF`, and name it with --image REF"
            }
        }
    }

    /// Whether the same may succeed in a while: what is concerned restarts, is reached over a connection that was lost, or
    /// waits for a node. Not what somebody forbids, has removed or would have to change.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::NotReady { .. }
                | Self::Unschedulable { .. }
                | Self::Ended { .. }
                | Self::PodFailed { .. }
                | Self::NotForwarded { .. }
                | Self::Agent { .. }
                | Self::NoAgent { .. }
                | Self::NotRemoved { .. }
        )
    }

    /// Whether it shows that the environment is not what the run needs, rather than that it was lost.
    fn is_missing(&self) -> bool {
        !matches!(
            self,
            Self::Unreachable { .. }
                | Self::NotForwarded { .. }
                | Self::Agent { .. }
                | Self::NotRemoved { .. }
        )
    }
}

impl From<ClusterError> for EngineError {
    fn from(error: ClusterError) -> Self {
        match error.is_missing() {
            true => Self::Missing {
                what: error.to_string(),
                fix: error.fix().to_owned(),
            },
            false => Self::Lost {
                component: "the cluster",
                problem: format!("is lost: {error}\n  fix: {}", error.fix()),
            },
        }
    }
}
