//! The meshes that a cluster may have: how a namespace joins one, what that leaves in its pods, where its other parts run,
//! and its policies. meshtax does not install them, and changes nothing outside its own namespaces.

mod installed;

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
    /// The labels by which a namespace joins.
    pub(crate) labels: &'static [(&'static str, &'static str)],
    /// The annotations by which a namespace joins.
    annotations: &'static [(&'static str, &'static str)],
    /// Those by which clients without a mesh are refused.
    strict: &'static [(&'static str, &'static str)],
    /// The environment variable with the number of a proxy's worker threads.
    pub(crate) workers_variable: &'static str,
    /// Their number where that is not set.
    pub(crate) workers: u32,
    /// The container of the proxy in each pod; `None`: proxies are on nodes.
    pub(crate) sidecar: Option<&'static str>,
    /// What every pod that joined has in addition: init containers, or an annotation where there are none.
    pub(crate) marks: &'static [&'static str],
    /// Where proxies are on nodes, those; otherwise pods of the mesh's own that have the same proxy.
    pub(crate) proxies: ProxyPods,
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
    workers_variable: "LINKERD2_PROXY_CORES",
    workers: 1,
    labels: &[],
    annotations: &[("linkerd.io/inject", "enabled")],
    // The default admits clients without a mesh.
    strict: &[(
        "config.linkerd.io/default-inbound-policy",
        "all-authenticated",
    )],
    sidecar: Some("linkerd-proxy"),
    marks: &["linkerd-init"],
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
    // ztunnel, src/config.rs: DEFAULT_WORKER_THREADS.
    workers_variable: "ZTUNNEL_WORKER_THREADS",
    workers: 2,
    labels: &[("istio.io/dataplane-mode", "ambient")],
    annotations: &[],
    // A PeerAuthentication.
    strict: &[],
    sidecar: None,
    marks: &["ambient.istio.io/redirection"],
    proxies: ProxyPods {
        namespace: "istio-system",
        labels: "app=ztunnel",
        container: "istio-proxy",
    },
    trust_anchor: ("istio-ca-root-cert", "root-cert.pem"),
    policies: PolicyApi::Istio,
    permissions: ISTIO_RULES,
};

impl Mesh {
    /// All that this engine knows.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 2] = [LINKERD, AMBIENT];

    /// The mesh of a data plane; `None`: it is none, or not one that this engine can use.
    pub(crate) fn of(plane: &DataPlane) -> Option<&'static Self> {
        match plane.id {
            DataPlaneId::Linkerd => Some(&LINKERD),
            DataPlaneId::Ztunnel => Some(&AMBIENT),
            DataPlaneId::None
            | DataPlaneId::LimitL4
            | DataPlaneId::LimitMtls
            | DataPlaneId::ZtunnelDedicated
            | DataPlaneId::ZtunnelWaypoint
            | DataPlaneId::ZtunnelWaypointSandwich
            | DataPlaneId::EnvoySidecar
            | DataPlaneId::EnvoySidecarTcp => None,
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

    /// What a pod must have in addition to its own containers.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &'static str> {
        self.sidecar.into_iter().chain(self.marks.iter().copied())
    }
}

/// The mesh that the cluster must have for a variant.
pub(crate) fn mesh_of(variant: &Variant) -> Option<&'static Mesh> {
    Mesh::of(find(&variant.data_plane)?)
}
