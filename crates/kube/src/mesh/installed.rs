//! A mesh as it is installed on the cluster: its version, and the proxies on the nodes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use meshtax_evidence::{READY_WITHIN, proxy_page};
use meshtax_model::trial::ComponentRole;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::mesh::Mesh;
use crate::pods::{ContainerFacts, RunningPod, address, containers, environment, node_name};

/// A mesh that the run uses.
#[derive(Clone, Debug)]
pub(crate) struct Installed {
    pub(crate) mesh: &'static Mesh,
    pub(crate) proxy: InstalledProxy,
    /// The trust anchor of its certificates (PEM).
    pub(crate) trust_anchor: String,
    /// The proxies on the run's nodes; empty where they are in pods.
    pub(crate) on_nodes: Vec<NodeProxy>,
    /// What else runs for the mesh on the run's nodes, in its own namespace.
    pub(crate) control_plane: Vec<MeshContainer>,
}

/// The proxy that a mesh runs; empty as long as no pod has shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstalledProxy {
    pub(crate) image: String,
    /// The image's digest, or the runtime's id where it has none.
    pub(crate) image_id: String,
    /// As it reports it, with the image's tag, or that alone; empty where there is none.
    pub(crate) version: String,
    /// Worker threads of each; `None`: unknown.
    pub(crate) workers: Option<u32>,
}

/// A container of a mesh outside the path of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeshContainer {
    /// Of its pod and its own.
    pub(crate) name: String,
    /// Index of its node in the environment.
    pub(crate) node: usize,
    /// The runtime's id.
    pub(crate) id: String,
}

/// A proxy that serves a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeProxy {
    /// Index of its node in the environment.
    pub(crate) node: usize,
    pub(crate) address: Ipv4Addr,
    /// The runtime's id of its container.
    pub(crate) container: String,
}

/// The proxy of each node.
fn node_proxies(
    mesh: &'static Mesh,
    pods: &[Pod],
    nodes: &[String],
) -> Result<Vec<NodeProxy>, NotInstalled> {
    let on = |(node, name): (usize, &String)| {
        let mut here = pods.iter().filter(|pod| node_name(pod) == *name);
        let found = here.find_map(|pod| {
            let mut all = containers(pod).into_iter();
            Some(NodeProxy {
                node,
                address: address(pod)?,
                container: all.find(|of| of.name == mesh.proxies.container)?.id,
            })
        });
        found.ok_or_else(|| NotInstalled::NotOnNode {
            mesh: mesh.name,
            node: name.clone(),
        })
    };
    nodes.iter().enumerate().map(on).collect()
}

/// Whether the pod is a node's proxy, of this mesh or of another in the same namespace.
fn is_node_proxy(mesh: &Mesh, pod: &Pod) -> bool {
    let of_nodes = Mesh::ALL.iter().filter(|other| other.sidecar.is_none());
    let mut here = of_nodes.filter(|other| other.proxies.namespace == mesh.proxies.namespace);
    here.any(|other| other.proxies.selects(pod))
}

/// The containers of a pod, if it runs on one of these nodes.
fn containers_on(pod: &Pod, nodes: &[String]) -> Vec<MeshContainer> {
    let on = node_name(pod);
    let Some(node) = nodes.iter().position(|name| *name == on) else {
        return Vec::new();
    };
    let of_pod = pod.metadata.name.as_deref().unwrap_or_default();
    let container = |container: ContainerFacts| MeshContainer {
        name: format!("{of_pod}/{}", container.name),
        node,
        id: container.id,
    };
    containers(pod).into_iter().map(container).collect()
}

impl NodeProxy {
    /// Its role in the traffic of a variant that uses it.
    pub(crate) fn role(&self) -> ComponentRole {
        match self.node {
            0 => ComponentRole::ClientProxy,
            _ => ComponentRole::ServerProxy,
        }
    }
}

/// Why a variant's mesh cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInstalled {
    #[error(
        "{mesh} is not installed: namespace {namespace} has no running pod with the label {labels}\n  fix: install \
         {mesh} on the cluster, or leave its variants out"
    )]
    Absent {
        mesh: &'static str,
        namespace: &'static str,
        labels: &'static str,
    },
    #[error(
        "the trust anchor of {mesh} is missing: key {key} of ConfigMap {namespace}/{name}\n  fix: check the \
         installation of {mesh}"
    )]
    NoTrustAnchor {
        mesh: &'static str,
        namespace: &'static str,
        name: &'static str,
        key: &'static str,
    },
    #[error(
        "{mesh} has no proxy on node {node}\n  fix: let its DaemonSet run there, or use other nodes (--nodes)"
    )]
    NotOnNode { mesh: &'static str, node: String },
    #[error(
        "missing permissions for the policies of {mesh}: {}\n  fix: an administrator grants them; docs/kubernetes.md \
         has the rules",
        .rules.join(", ")
    )]
    Permissions {
        mesh: &'static str,
        rules: Vec<String>,
    },
}

/// What the cluster shows of a mesh.
struct Shown {
    /// Permissions that the user lacks.
    missing: Vec<String>,
    /// Those that [`Mesh::proxies`] selects.
    proxies: Vec<Pod>,
    /// All of the mesh's namespace.
    pods: Vec<Pod>,
    trust_anchor: Option<String>,
}

impl Shown {
    fn look(cluster: &Cluster, mesh: &Mesh) -> Result<Self, ClusterError> {
        let at = mesh.proxies;
        let missing = cluster.missing_permissions(mesh.permissions)?;
        let (name, key) = mesh.trust_anchor;
        let mut trust_anchors = match missing.is_empty() {
            true => cluster.config_map(at.namespace, name)?,
            false => BTreeMap::new(),
        };
        let doing = format!("list pods in {}", at.namespace);
        Ok(Self {
            missing,
            proxies: cluster.list(&cluster.pods(at.namespace), &doing, at.labels)?,
            pods: cluster.list_pods(at.namespace)?,
            trust_anchor: trust_anchors.remove(key),
        })
    }
}

impl Installed {
    /// Looks for the mesh on these nodes, which have so many cores. The inner error: it cannot be used.
    pub(crate) fn find(
        cluster: &Cluster,
        mesh: &'static Mesh,
        (nodes, cores): (&[String], u32),
    ) -> Result<Result<Self, NotInstalled>, ClusterError> {
        Ok(Self::of(mesh, Shown::look(cluster, mesh)?, (nodes, cores)))
    }

    fn of(
        mesh: &'static Mesh,
        shown: Shown,
        (nodes, cores): (&[String], u32),
    ) -> Result<Self, NotInstalled> {
        let at = mesh.proxies;
        if !shown.missing.is_empty() {
            return Err(NotInstalled::Permissions {
                mesh: mesh.name,
                rules: shown.missing,
            });
        }
        let proxy = |pod: &Pod| containers(pod).into_iter().find(|c| c.name == at.container);
        let first = shown
            .proxies
            .iter()
            .find_map(|pod| Some((pod, proxy(pod)?)));
        let Some((pod, first)) = first else {
            return Err(NotInstalled::Absent {
                mesh: mesh.name,
                namespace: at.namespace,
                labels: at.labels,
            });
        };
        // ztunnel also takes a share of the cores, as in `50%`.
        let workers = match environment(pod, (at.container, mesh.workers_variable)) {
            Some(number) => number.parse().ok(),
            None => Some(mesh.program.native_workers(cores)),
        };
        let (name, key) = mesh.trust_anchor;
        let trust_anchor = shown.trust_anchor.ok_or(NotInstalled::NoTrustAnchor {
            mesh: mesh.name,
            namespace: at.namespace,
            name,
            key,
        })?;
        let on_nodes = match mesh.sidecar {
            Some(_) => Vec::new(),
            None => node_proxies(mesh, &shown.proxies, nodes)?,
        };
        let others = shown.pods.iter().filter(|pod| !is_node_proxy(mesh, pod));
        Ok(Self {
            mesh,
            proxy: match mesh.shows_its_proxy() {
                true => InstalledProxy {
                    version: tag(&first.image).to_owned(),
                    image: first.image,
                    image_id: first.image_id,
                    workers,
                },
                // Not the control plane's: a pod of the run will show it.
                false => InstalledProxy::default(),
            },
            trust_anchor,
            control_plane: others.flat_map(|pod| containers_on(pod, nodes)).collect(),
            on_nodes,
        })
    }

    /// Takes over which proxy an injector added to a pod of the run.
    pub(crate) fn read_injected(&mut self, pod: &RunningPod) {
        let mut containers = pod.containers.iter();
        let Some(sidecar) = containers.find(|of| Some(of.name.as_str()) == self.mesh.sidecar)
        else {
            return;
        };
        self.proxy.image = sidecar.image.clone();
        self.proxy.image_id = sidecar.image_id.clone();
        self.proxy.version = tag(&sidecar.image).to_owned();
        let described = self.mesh.self_description.and_then(|at| {
            // The container runs before its proxy listens.
            asked_again(READY_WITHIN, || {
                Described::parse(&proxy_page(pod, at.port, at.path)?)
            })
        });
        if let Some(described) = described {
            let of_image = std::mem::replace(&mut self.proxy.version, described.version);
            if !of_image.is_empty() {
                self.proxy.version += &format!(" (image {of_image})");
            }
            self.proxy.workers = Some(described.workers);
        }
    }
}

/// The first answer; `None`: there is none within this time.
fn asked_again<T>(within: Duration, ask: impl Fn() -> Option<T>) -> Option<T> {
    const PAUSE: Duration = Duration::from_millis(50);
    let until = Instant::now() + within;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= until {
            return answer;
        }
        thread::sleep(PAUSE);
    }
}

/// The tag of an image; empty where it has none.
fn tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split_once(':').map_or("", |(_, tag)| tag)
}

/// What an Envoy reports of itself (`server_info`, envoy.admin.v3.ServerInfo).
#[derive(Debug, PartialEq, Eq)]
struct Described {
    version: String,
    workers: u32,
}

impl Described {
    fn parse(page: &str) -> Option<Self> {
        let info: Value = serde_json::from_str(page).ok()?;
        // `COMMIT/VERSION/Clean/RELEASE/BoringSSL`
        let version = info["version"].as_str()?.split('/').nth(1)?;
        let workers = info["command_line_options"]["concurrency"].as_u64()?;
        Some(Self {
            version: version.to_owned(),
            workers: u32::try_from(workers).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use meshtax_model::catalogue::find;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, container: &str) -> Pod {
        let app = match container {
            "istio-proxy" => "ztunnel",
            _ => "istiod",
        };
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [
                {"name": container, "env": [{"name": "ZTUNNEL_WORKER_THREADS", "value": "3"}]},
            ]},
            "status": {"podIP": "10.0.0.9", "containerStatuses": [{
                "name": container, "image": "docker.io/istio/ztunnel:1.30.0@sha256:ab", "imageID": "sha256:ab",
                "ready": true, "restartCount": 0, "containerID": format!("containerd://{name}"),
            }]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn ambient(change: impl Fn(&mut Shown)) -> Result<Installed, NotInstalled> {
        let ztunnels = vec![
            pod("z1", "one", "istio-proxy"),
            pod("z2", "two", "istio-proxy"),
        ];
        let others = [
            pod("istiod", "two", "discovery"),
            pod("other", "three", "discovery"),
        ];
        let mut shown = Shown {
            missing: Vec::new(),
            pods: ztunnels.iter().cloned().chain(others).collect(),
            proxies: ztunnels,
            trust_anchor: Some("PEM".into()),
        };
        change(&mut shown);
        let mesh = find("ztunnel").and_then(Mesh::of).unwrap();
        Installed::of(mesh, shown, (&nodes(), 16))
    }

    fn nodes() -> [String; 2] {
        ["one", "two"].map(str::to_owned)
    }

    /// What the first ztunnel's environment says of its workers.
    fn workers(variable: Value) -> Option<u32> {
        let found = ambient(|shown| {
            let spec = shown.proxies[0].spec.as_mut().unwrap();
            spec.containers[0].env = serde_json::from_value(variable.clone()).unwrap();
        });
        found.unwrap().proxy.workers
    }

    #[test]
    fn proxies_of_the_nodes_and_the_control_plane_on_them_are_found() {
        let found = ambient(|_| {}).unwrap();
        assert_eq!(
            (found.proxy.version.as_str(), found.proxy.workers),
            ("1.30.0", Some(3))
        );
        let proxies = found.on_nodes.iter();
        let proxies: Vec<_> = proxies
            .map(|proxy| (proxy.container.as_str(), proxy.role()))
            .collect();
        assert_eq!(
            proxies,
            [
                ("z1", ComponentRole::ClientProxy),
                ("z2", ComponentRole::ServerProxy)
            ]
        );
        let own: Vec<&str> = found
            .control_plane
            .iter()
            .map(|of| of.name.as_str())
            .collect();
        assert_eq!(own, ["istiod/discovery"]);
    }

    #[test]
    fn image_of_the_control_plane_is_not_taken_for_that_of_sidecars() {
        let istiod = vec![pod("istiod", "two", "discovery")];
        let shown = Shown {
            missing: Vec::new(),
            pods: istiod.clone(),
            proxies: istiod,
            trust_anchor: Some("PEM".into()),
        };
        let mesh = find("envoy-sidecar").and_then(Mesh::of).unwrap();
        let found = Installed::of(mesh, shown, (&nodes(), 16)).unwrap();
        assert_eq!(found.proxy, InstalledProxy::default());
        assert_eq!(found.control_plane.len(), 1);
    }

    #[test]
    fn workers_that_are_not_set_are_those_of_the_program_on_these_cores() {
        assert_eq!(workers(json!([])), Some(4));
        let share = json!([{"name": "ZTUNNEL_WORKER_THREADS", "value": "50%"}]);
        assert_eq!(workers(share), None, "not a number");
    }

    #[test]
    fn proxy_that_does_not_listen_yet_is_asked_again() {
        let asked = Cell::new(0);
        let third = asked_again(Duration::from_secs(60), || {
            asked.set(asked.get() + 1);
            (asked.get() == 3).then_some("page")
        });
        assert_eq!((third, asked.get()), (Some("page"), 3));
        assert_eq!(asked_again(Duration::ZERO, || None::<()>), None);
    }

    #[test]
    fn envoy_reports_its_version_and_its_workers() {
        let page = r#"{"version": "9e55/1.40.0/Clean/RELEASE/BoringSSL", "command_line_options": {"concurrency": 2}}"#;
        let expected = Described {
            version: "1.40.0".into(),
            workers: 2,
        };
        assert_eq!(Described::parse(page), Some(expected));
        assert_eq!(Described::parse("not ready"), None);
    }

    #[test]
    fn mesh_that_cannot_be_used_is_reported_with_what_is_missing() {
        let absent = ambient(|shown| shown.proxies.clear()).unwrap_err();
        assert!(matches!(absent, NotInstalled::Absent { .. }));
        let one_node = ambient(|shown| shown.proxies.truncate(1)).unwrap_err();
        assert!(matches!(one_node, NotInstalled::NotOnNode { node, .. } if node == "two"));
        let no_anchor = ambient(|shown| shown.trust_anchor = None).unwrap_err();
        assert!(matches!(no_anchor, NotInstalled::NoTrustAnchor { .. }));
        let forbidden = ambient(|shown| shown.missing = vec!["get configmaps".into()]).unwrap_err();
        assert!(forbidden.to_string().contains("get configmaps"));
    }
}
