//! The meshes that a cluster may have: how a namespace joins one, what that leaves in its pods, where its other parts run,
//! and its policies. meshtax does not install them, and changes nothing outside its own namespaces.

mod installed;

use k8s_openapi::api::core::v1::Pod;
use meshtax_dataplane::Sabotage;
use meshtax_model::catalogue::{DataPlane, DataPlaneId, Program, find};
use meshtax_model::experiment::Variant;

use crate::cluster::Permission;
pub(crate) use crate::mesh::installed::{Installed, NodeProxy, NotInstalled};

/// Pods of a mesh, and the container in them that runs its proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyPods {
    pub(crate) namespace: &'static str,
    /// A label selector.
    pub(crate) labels: &'static str,
    pub(crate) container: &'static str,
}

impl ProxyPods {
    /// Whether the pod is one of them.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let of_pod = pod.metadata.labels.as_ref();
        let has = |(key, value): (&str, &str)| {
            of_pod.is_some_and(|labels| labels.get(key).is_some_and(|of| of == value))
        };
        self.labels.split_once('=').is_some_and(has)
    }
}

/// A page of Envoy's admin interface: its version and its worker threads (`server_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelfDescription {
    pub(crate) port: u16,
    pub(crate) path: &'static str,
}

/// The API of a mesh's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyApi {
    Istio,
    Linkerd,
}

const LINKERD_API: &str = "policy.linkerd.io";
const ISTIO_API: &str = "security.istio.io";

const LINKERD_RULES: &[Permission] = &[
    Permission::new("get", "", "configmaps"),
    Permission::new("create", LINKERD_API, "servers"),
    Permission::new("patch", LINKERD_API, "servers"),
    Permission::new("create", LINKERD_API, "httproutes"),
    Permission::new("patch", LINKERD_API, "httproutes"),
    Permission::new("create", LINKERD_API, "authorizationpolicies"),
    Permission::new("patch", LINKERD_API, "authorizationpolicies"),
    Permission::new("create", LINKERD_API, "meshtlsauthentications"),
    Permission::new("patch", LINKERD_API, "meshtlsauthentications"),
];

const ISTIO_RULES: &[Permission] = &[
    Permission::new("get", "", "configmaps"),
    Permission::new("create", ISTIO_API, "peerauthentications"),
    Permission::new("patch", ISTIO_API, "peerauthentications"),
    Permission::new("create", ISTIO_API, "authorizationpolicies"),
    Permission::new("patch", ISTIO_API, "authorizationpolicies"),
];

/// A mesh that may be installed on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// What a reader of its figures should be aware of, where that is not what the catalogue says of its emulation.
    pub(crate) note: Option<&'static str>,
    /// The labels by which a namespace joins.
    pub(crate) labels: &'static [(&'static str, &'static str)],
    /// The annotations by which a namespace joins.
    annotations: &'static [(&'static str, &'static str)],
    /// Those by which clients without a mesh are refused.
    strict: &'static [(&'static str, &'static str)],
    /// The environment variable with the number of a proxy's worker threads. Where it is not set, their number is the program's
    /// own ([`Program::native_workers`]).
    pub(crate) workers_variable: &'static str,
    /// The container of the proxy in each pod; `None`: proxies are on nodes.
    pub(crate) sidecar: Option<&'static str>,
    /// What shows that a pod's traffic is redirected, one of these: init containers, or an annotation where there are none.
    pub(crate) redirection: &'static [&'static str],
    /// The annotations of the run's pods.
    pub(crate) pod_annotations: &'static [(&'static str, &'static str)],
    /// Pods that are there where the mesh is installed: the proxies where they are on nodes, otherwise pods of the control
    /// plane.
    pub(crate) proxies: ProxyPods,
    /// Where its proxies describe themselves.
    pub(crate) self_description: Option<SelfDescription>,
    /// The ConfigMap with the trust anchor of the mesh's certificates, in the namespace of those pods, and the key in it.
    pub(crate) trust_anchor: (&'static str, &'static str),
    pub(crate) policies: PolicyApi,
    /// What the trust anchor and the policies need.
    pub(crate) permissions: &'static [Permission],
}

/// Linkerd's injector adds a sidecar to the pods of annotated namespaces (linkerd2, pkg/k8s/labels.go).
const LINKERD: Mesh = Mesh {
    name: "Linkerd",
    program: Program::LinkerdProxy,
    note: None,
    workers_variable: "LINKERD2_PROXY_CORES",
    labels: &[],
    annotations: &[("linkerd.io/inject", "enabled")],
    // The default admits clients without a mesh.
    strict: &[(
        "config.linkerd.io/default-inbound-policy",
        "all-authenticated",
    )],
    sidecar: Some("linkerd-proxy"),
    // The validator where Linkerd's CNI plugin redirects.
    redirection: &["linkerd-init", "linkerd-network-validator"],
    pod_annotations: &[],
    self_description: None,
    proxies: ProxyPods {
        namespace: "linkerd",
        labels: "linkerd.io/control-plane-component=destination",
        container: "linkerd-proxy",
    },
    trust_anchor: ("linkerd-identity-trust-roots", "ca-bundle.crt"),
    policies: PolicyApi::Linkerd,
    permissions: LINKERD_RULES,
};

/// Istio's CNI agent redirects the pods of labelled namespaces to the ztunnel of their node, and annotates them
/// (istio, pkg/config/constants).
const AMBIENT: Mesh = Mesh {
    name: "Istio ambient",
    program: Program::Ztunnel,
    note: None,
    workers_variable: "ZTUNNEL_WORKER_THREADS",
    labels: &[("istio.io/dataplane-mode", "ambient")],
    annotations: &[],
    // A PeerAuthentication.
    strict: &[],
    sidecar: None,
    redirection: &["ambient.istio.io/redirection"],
    pod_annotations: &[],
    self_description: None,
    proxies: ProxyPods {
        namespace: "istio-system",
        labels: "app=ztunnel",
        container: "istio-proxy",
    },
    trust_anchor: ("istio-ca-root-cert", "root-cert.pem"),
    policies: PolicyApi::Istio,
    permissions: ISTIO_RULES,
};

/// Istio's injector adds a sidecar to the pods of labelled namespaces (istio, manifests/charts/istio-control: `enableNamespacesByDefault`).
const SIDECAR: Mesh = Mesh {
    name: "Istio sidecar",
    program: Program::Envoy,
    note: Some(
        "Istio's sidecar as its injector adds it: the Envoy of its image and the pilot-agent beside it are one component",
    ),
    // Not set: the number is the CPU limit of the sidecar, and is read from Envoy itself.
    workers_variable: "ISTIO_META_CONCURRENCY",
    labels: &[("istio-injection", "enabled")],
    sidecar: Some("istio-proxy"),
    // The validation where Istio's CNI plugin redirects.
    redirection: &["istio-init", "istio-validation"],
    // Istio keeps few of Envoy's statistics. These two are the evidence that the load passed the proxies; the emulation
    // keeps the same.
    pod_annotations: &[(
        "sidecar.istio.io/statsInclusionSuffixes",
        "downstream_rq_2xx,downstream_cx_tx_bytes_total",
    )],
    proxies: ProxyPods {
        namespace: "istio-system",
        labels: "app=istiod",
        container: "discovery",
    },
    self_description: Some(SelfDescription {
        port: 15000,
        path: "/server_info",
    }),
    ..AMBIENT
};

impl Mesh {
    /// All that this engine knows.
    pub(crate) const ALL: [Self; 3] = [LINKERD, AMBIENT, SIDECAR];

    /// The mesh of a data plane; `None`: it is none, or not one that this engine can use.
    pub(crate) fn of(plane: &DataPlane) -> Option<&'static Self> {
        match plane.id {
            DataPlaneId::Linkerd => Some(&LINKERD),
            DataPlaneId::Ztunnel => Some(&AMBIENT),
            DataPlaneId::EnvoySidecar => Some(&SIDECAR),
            DataPlaneId::None
            | DataPlaneId::LimitL4
            | DataPlaneId::LimitMtls
            | DataPlaneId::ZtunnelDedicated
            | DataPlaneId::ZtunnelWaypoint
            | DataPlaneId::ZtunnelWaypointSandwich
            | DataPlaneId::EnvoySidecarTcp
            | DataPlaneId::IstioSidecar => None,
        }
    }

    /// The data plane under whose name the mesh that this one emulates is measured where it is installed: one thing has one
    /// name, whichever build of Envoy its image has.
    pub(crate) fn installed_as(plane: &DataPlane) -> Option<&'static str> {
        match plane.id {
            DataPlaneId::IstioSidecar => Some("envoy-sidecar"),
            _ => None,
        }
    }

    /// The ways to break a variant of a mesh that is installed.
    pub(crate) const SABOTAGE: &[Sabotage] = &[
        Sabotage::NoProxy,
        Sabotage::NoPolicy,
        Sabotage::WrongClientIdentity,
        Sabotage::WrongServerIdentity,
        Sabotage::NoCapture,
    ];

    /// The annotations of a namespace of the mesh.
    pub(crate) fn annotations(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        self.annotations.iter().chain(self.strict)
    }

    /// The mesh with its defaults for clients without a mesh: a sabotage.
    pub(crate) fn without_policies(&self) -> Self {
        Self {
            strict: &[],
            ..*self
        }
    }

    /// What a pod may have in addition to its own containers.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &'static str> {
        self.sidecar
            .into_iter()
            .chain(self.redirection.iter().copied())
    }

    /// What a pod with these containers, init containers and annotations lacks to be in the mesh.
    pub(crate) fn missing(&self, present: &[&str]) -> Option<&'static str> {
        let sidecar = self.sidecar.filter(|name| !present.contains(name));
        let is_redirected = self.redirection.iter().any(|name| present.contains(name));
        let redirection = self.redirection.first().copied();
        sidecar.or_else(|| redirection.filter(|_| !is_redirected))
    }

    /// Whether the mesh's own pods show which proxy it has: otherwise only the run's pods do.
    pub(crate) fn shows_its_proxy(&self) -> bool {
        self.sidecar
            .is_none_or(|sidecar| sidecar == self.proxies.container)
    }
}

/// The mesh that the cluster must have for a variant.
pub(crate) fn mesh_of(variant: &Variant) -> Option<&'static Mesh> {
    Mesh::of(find(&variant.data_plane)?)
}

#[cfg(test)]
mod tests {
    use meshtax_model::catalogue::DATA_PLANES;

    use super::*;

    #[test]
    fn emulation_of_an_installed_mesh_names_the_data_plane_that_measures_it() {
        let emulations = DATA_PLANES.iter().filter_map(|plane| {
            let installed = Mesh::installed_as(plane)?;
            Some((plane, installed))
        });
        let emulations: Vec<_> = emulations.collect();
        assert!(!emulations.is_empty());
        for (plane, installed) in emulations {
            assert_eq!(Mesh::of(plane), None, "{}", plane.name);
            assert!(find(installed).and_then(Mesh::of).is_some(), "{installed}");
        }
    }
}
