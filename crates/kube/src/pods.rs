//! Pods that are up: their addresses, containers and agents.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use meshtax_agent::remote::{AgentClient, AgentError};
use meshtax_model::failure::{ComponentEnding, ComponentFailure};
use meshtax_model::trial::ComponentRole;

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::forward::Forward;
use crate::mesh::Mesh;
use crate::objects::AGENT;

/// A pod that runs, with its agent.
#[derive(Debug)]
pub(crate) struct RunningPod {
    pub(crate) namespace: String,
    /// As Kubernetes calls it.
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    /// The node's name.
    pub(crate) node: String,
    /// Its class of quality of service; empty: not reported.
    pub(crate) qos: String,
    /// Those that run, native sidecars included.
    pub(crate) containers: Vec<ContainerFacts>,
    /// The names of init containers that have ended, and the annotations by which meshes mark pods that they joined
    /// without a container.
    pub(crate) marks: Vec<String>,
    /// The digest of the image that runs.
    pub(crate) image_id: String,
    pub(crate) agent: AgentClient,
    /// The agent is reached while this lives.
    forward: Forward,
}

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerFacts {
    pub(crate) name: String,
    /// The runtime's.
    pub(crate) id: String,
    pub(crate) image: String,
    /// The digest of the image, where the runtime has it.
    pub(crate) image_id: String,
}

impl RunningPod {
    /// Fails if the pod has anything beside these containers and what its mesh leaves in pods, or lacks some of that: an
    /// injector changed it, or did not.
    pub(crate) fn is_as_planned(
        &self,
        expected: &[&str],
        mesh: Option<&Mesh>,
    ) -> Result<(), ClusterError> {
        let of_mesh: Vec<&str> = mesh.iter().flat_map(|mesh| mesh.leaves()).collect();
        let names = self.containers.iter().map(|container| &container.name);
        let present: Vec<&str> = names.chain(&self.marks).map(String::as_str).collect();
        let is_unexpected = |name: &&&str| !expected.contains(*name) && !of_mesh.contains(*name);
        let found: Vec<String> = present
            .iter()
            .filter(is_unexpected)
            .map(|n| (*n).to_owned())
            .collect();
        if !found.is_empty() {
            let pod = self.path();
            return Err(ClusterError::Injected { pod, found });
        }
        match (mesh, mesh.and_then(|mesh| mesh.missing(&present))) {
            (Some(mesh), Some(missing)) => Err(ClusterError::NotJoined {
                pod: self.path(),
                mesh: mesh.name,
                missing,
            }),
            _ => Ok(()),
        }
    }

    /// The runtime's id of a container.
    pub(crate) fn container_id(&self, container: &str) -> Option<String> {
        let found = self.containers.iter().find(|c| c.name == container)?;
        Some(found.id.clone())
    }

    /// Namespace and name.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(crate) fn failed(&self, source: AgentError) -> ClusterError {
        let pod = self.path();
        match (source, self.forward.refused()) {
            (AgentError::Unreachable(_), Some(cause)) => ClusterError::NotForwarded { pod, cause },
            (source, _) => ClusterError::Agent { pod, source },
        }
    }
}

/// Namespace and name.
pub(crate) fn path(pod: &Pod) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", of(&pod.metadata.namespace), of(&pod.metadata.name))
}

pub(crate) fn statuses(pod: &Pod) -> &[ContainerStatus] {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    containers.unwrap_or_default()
}

/// Those of native sidecars: init containers that run as long as the pod.
fn sidecar_statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let names: Vec<&str> = init
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let status = pod.status.iter();
    let statuses = status.flat_map(|status| status.init_container_statuses.iter().flatten());
    statuses.filter(move |status| names.contains(&status.name.as_str()))
}

/// The containers that run as long as the pod does.
pub(crate) fn containers(pod: &Pod) -> Vec<ContainerFacts> {
    let facts = |status: &ContainerStatus| {
        let id = status.container_id.as_deref().unwrap_or_default();
        ContainerFacts {
            name: status.name.clone(),
            // `containerd://ID`
            id: id.rsplit('/').next().unwrap_or_default().to_owned(),
            image: status.image.clone(),
            image_id: status.image_id.clone(),
        }
    };
    statuses(pod)
        .iter()
        .chain(sidecar_statuses(pod))
        .map(facts)
        .collect()
}

/// The pod's address, once it has one.
pub(crate) fn address(pod: &Pod) -> Option<Ipv4Addr> {
    pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()
}

/// The value of a variable in the environment of a container, if the pod's specification has it.
pub(crate) fn environment<'a>(
    pod: &'a Pod,
    (container, variable): (&str, &str),
) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let all = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let mut variables = all
        .filter(|of| of.name == container)
        .flat_map(|of| of.env.iter().flatten());
    variables.find(|of| of.name == variable)?.value.as_deref()
}

/// The name of its node; empty before it is scheduled.
pub(crate) fn node_name(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    spec.and_then(|s| s.node_name.clone()).unwrap_or_default()
}

/// What meshes leave in a pod that they joined, other than containers that run.
fn marks(pod: &Pod) -> Vec<String> {
    /// Istio ambient's CNI agent sets it on pods that it redirects.
    const AMBIENT: &str = "ambient.istio.io/redirection";
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let ended = init.filter(|container| container.restart_policy.as_deref() != Some("Always"));
    let mut marks: Vec<String> = ended.map(|container| container.name.clone()).collect();
    let annotations = pod.metadata.annotations.iter().flatten();
    let mut ambient = annotations.filter(|(key, value)| *key == AMBIENT && *value == "enabled");
    marks.extend(ambient.next().map(|(key, _)| key.clone()));
    marks
}

/// Reaches the agent of a pod that runs.
pub(crate) fn reach(
    cluster: &Cluster,
    namespace: &str,
    pod: &Pod,
    token: &str,
) -> Result<RunningPod, ClusterError> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let address = address(pod).ok_or_else(|| ClusterError::NotReady {
        pod: path(pod),
        state: "it has no IPv4 address".into(),
        waited: Duration::ZERO,
    })?;
    let forward = Forward::open(cluster, namespace, &name).map_err(ClusterError::Runtime)?;
    let containers = containers(pod);
    let own = containers.iter().find(|container| container.name == AGENT);
    let image_id = own.map(|container| container.image_id.clone());
    Ok(RunningPod {
        namespace: namespace.to_owned(),
        node: node_name(pod),
        qos: pod
            .status
            .as_ref()
            .and_then(|status| status.qos_class.clone())
            .unwrap_or_default(),
        containers,
        marks: marks(pod),
        image_id: image_id.unwrap_or_default(),
        agent: AgentClient::new(forward.at, token.to_owned()),
        address,
        name,
        forward,
    })
}

/// The containers of a namespace's pods that have ended on their own, and pods that are no longer there, with their last
/// output. `role`: of a container of a pod.
pub(crate) fn ended(
    cluster: &Cluster,
    namespace: &str,
    expected: &[String],
    role: impl Fn(&str, &str) -> Option<ComponentRole>,
) -> Result<Vec<ComponentFailure>, ClusterError> {
    let pods = cluster.list_pods(namespace)?;
    let mut failures = Vec::new();
    for name in expected {
        let is_it = |pod: &&Pod| pod.metadata.name.as_deref() == Some(name);
        let Some(pod) = pods.iter().find(is_it) else {
            failures.push(ComponentFailure {
                component: format!("{namespace}/{name}"),
                role: None,
                ending: ComponentEnding::Unknown {
                    detail: "the pod was deleted".into(),
                },
                last_output: Vec::new(),
            });
            continue;
        };
        for (container, terminated) in endings(pod) {
            let log = cluster.log(namespace, name, container);
            failures.push(ComponentFailure {
                component: format!("{namespace}/{name}/{container}"),
                role: role(name, container),
                ending: ending(&terminated),
                last_output: log[log.len().saturating_sub(5)..].to_vec(),
            });
        }
    }
    Ok(failures)
}

/// The containers of a pod that have ended, each with how it did last. The kubelet restarts native sidecars: one that runs
/// again has ended, too.
pub(crate) fn endings(pod: &Pod) -> impl Iterator<Item = (&str, ContainerStateTerminated)> {
    let all = statuses(pod).iter().chain(sidecar_statuses(pod));
    all.filter_map(|container| {
        let last = container.last_state.clone().unwrap_or_default().terminated;
        let state = container.state.clone().unwrap_or_default();
        Some((container.name.as_str(), state.terminated.or(last)?))
    })
}

fn ending(terminated: &ContainerStateTerminated) -> ComponentEnding {
    /// The kubelet's reason where a container exceeded its memory limit.
    const OUT_OF_MEMORY: &str = "OOMKilled";
    match terminated.reason.as_deref() {
        Some(OUT_OF_MEMORY) => ComponentEnding::OutOfMemory,
        _ => ComponentEnding::Exited {
            code: terminated.exit_code,
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// One that runs, changed.
    pub(crate) fn pod(change: impl Fn(&mut serde_json::Value)) -> Pod {
        let mut pod = json!({
            "metadata": {"namespace": "n", "name": "server"},
            "spec": {"containers": [{"name": "agent"}], "restartPolicy": "Never"},
            "status": {
                "podIP": "10.0.0.1",
                "containerStatuses": [{
                    "name": "agent", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                    "state": {"running": {}},
                }],
            },
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn pod_that_a_mesh_joined_is_noticed() {
        assert!(marks(&pod(|_| {})).is_empty());
        let sidecar = pod(|p| {
            p["spec"]["initContainers"] = json!([{"name": "istio-proxy"}]);
        });
        assert_eq!(marks(&sidecar), ["istio-proxy"]);
        let ambient = pod(|p| {
            p["metadata"]["annotations"] = json!({"ambient.istio.io/redirection": "enabled"});
        });
        assert_eq!(marks(&ambient), ["ambient.istio.io/redirection"]);
    }

    #[test]
    fn native_sidecar_is_a_container_and_other_init_containers_are_marks() {
        let sidecar = pod(|p| {
            p["spec"]["initContainers"] = json!([
                {"name": "linkerd-init"}, {"name": "linkerd-proxy", "restartPolicy": "Always", "env": [
                    {"name": "LINKERD2_PROXY_CORES", "value": "1"},
                ]},
            ]);
            let status = |name: &str| {
                json!({
                    "name": name, "image": "i", "imageID": "d", "ready": true, "restartCount": 0,
                    "containerID": "containerd://abc",
                })
            };
            p["status"]["initContainerStatuses"] =
                json!([status("linkerd-init"), status("linkerd-proxy")]);
        });
        let names: Vec<String> = containers(&sidecar).into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["agent", "linkerd-proxy"]);
        assert_eq!(containers(&sidecar)[1].id, "abc");
        assert_eq!(marks(&sidecar), ["linkerd-init"]);
        let variable = ("linkerd-proxy", "LINKERD2_PROXY_CORES");
        assert_eq!(environment(&sidecar, variable), Some("1"));
    }

    #[test]
    fn sidecar_that_was_restarted_has_ended_and_memory_is_named_as_the_cause() {
        assert_eq!(endings(&pod(|_| {})).count(), 0);
        let restarted = pod(|p| {
            p["spec"]["initContainers"] =
                json!([{"name": "linkerd-proxy", "restartPolicy": "Always"}]);
            p["status"]["initContainerStatuses"] = json!([{
                "name": "linkerd-proxy", "image": "i", "imageID": "d", "ready": true, "restartCount": 1,
                "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }]);
        });
        let all: Vec<_> = endings(&restarted).collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, "linkerd-proxy");
        assert_eq!(ending(&all[0].1), ComponentEnding::OutOfMemory);
    }
}
