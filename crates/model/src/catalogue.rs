//! The catalogue of data planes: what each is, where its proxies run, and what it can do.

use crate::experiment::{OptionKind, PolicyLevel};
pub use crate::program::Program;

/// The identity of a data plane, so that a match over all of them is checked by the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataPlaneId {
    /// `none`
    None,
    /// `limit-l4`
    LimitL4,
    /// `limit-mtls`
    LimitMtls,
    /// `ztunnel`
    Ztunnel,
    /// `ztunnel-dedicated`
    ZtunnelDedicated,
    /// `ztunnel-waypoint`
    ZtunnelWaypoint,
    /// `ztunnel-waypoint-sandwich`
    ZtunnelWaypointSandwich,
    /// `linkerd`
    Linkerd,
    /// `envoy-sidecar`
    EnvoySidecar,
    /// `envoy-sidecar-tcp`
    EnvoySidecarTcp,
    /// `istio-sidecar`
    IstioSidecar,
}

/// Mesh families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// No proxies.
    None,
    /// The minimal proxy that is built into meshtax.
    MinimalProxy,
    /// Istio with sidecars.
    IstioSidecar,
    /// Istio in ambient mode.
    IstioAmbient,
    /// Linkerd.
    Linkerd,
}

impl Family {
    /// The mesh's id in published facts; `None`: it is no mesh.
    #[must_use]
    pub fn mesh(self) -> Option<&'static str> {
        match self {
            Self::None | Self::MinimalProxy => None,
            Self::IstioSidecar => Some("istio-sidecar"),
            Self::IstioAmbient => Some("istio-ambient"),
            Self::Linkerd => Some("linkerd"),
        }
    }
}

/// Where a data plane runs its proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyPlacement {
    /// One in each pod.
    Sidecar,
    /// One on each node.
    Node,
    /// One on each node, and a waypoint for the service.
    Waypoint,
}

/// How a data plane compares with what can be deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataPlaneKind {
    /// No mesh: the baseline.
    Baseline,
    /// A minimal proxy, for what any proxy of its kind costs at least; not a mesh.
    Floor,
    /// A mesh's programs in a form that the mesh does not offer.
    Emulation,
    /// A mesh's data plane as it is deployed.
    Mesh,
}

/// The program of every gateway.
pub const GATEWAY_PROGRAM: Program = Program::Envoy;

/// A data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlane {
    /// Its identity.
    pub id: DataPlaneId,
    /// Its name in specs and in `meshtax dataplanes`.
    pub name: &'static str,
    /// The mesh to which it belongs.
    pub family: Family,
    /// Where its proxies run; `None`: there are none.
    pub placement: Option<ProxyPlacement>,
    /// Mesh, floor or emulation.
    pub kind: DataPlaneKind,
    /// The levels at which it can be measured; empty for `none`.
    pub levels: &'static [PolicyLevel],
    /// What runs, and which mesh it represents.
    pub summary: &'static str,
    /// The programs of its proxies.
    pub programs: &'static [Program],
    /// What a reader of its figures should be aware of.
    pub note: Option<&'static str>,
    /// The options that its variants can have.
    pub options: &'static [OptionKind],
    /// Whether it supports call graphs.
    pub call_graphs: bool,
    /// Whether it supports an ingress gateway.
    pub gateway: bool,
}

impl DataPlane {
    /// Whether there is no proxy in the path.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.kind == DataPlaneKind::Baseline
    }

    /// Whether a waypoint is between client and server.
    #[must_use]
    pub fn has_waypoint(&self) -> bool {
        self.placement == Some(ProxyPlacement::Waypoint)
    }

    /// The programs that it needs and that are not meshtax itself.
    pub fn foreign_programs(&self) -> impl Iterator<Item = Program> {
        let needed = self.programs.iter().copied();
        needed.filter(|program| Program::FOREIGN.contains(program))
    }

    /// Those, and the gateway's if there is one.
    pub fn programs_with(&self, gateway: bool) -> impl Iterator<Item = Program> {
        let of_gateway = gateway.then_some(GATEWAY_PROGRAM);
        let of_gateway = of_gateway.filter(|program| !self.programs.contains(program));
        self.foreign_programs().chain(of_gateway)
    }
}

/// The data plane of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static DataPlane> {
    DATA_PLANES.iter().find(|d| d.name == name)
}

/// Whether the data plane of this name is `none`.
#[must_use]
pub fn is_baseline(name: &str) -> bool {
    find(name).is_some_and(DataPlane::is_baseline)
}

/// Whether the data plane of this name is a floor.
#[must_use]
pub fn is_floor(name: &str) -> bool {
    find(name).is_some_and(|plane| plane.kind == DataPlaneKind::Floor)
}

/// The levels of Istio's sidecars.
const SIDECAR_LEVELS: &[PolicyLevel] = &[
    PolicyLevel::Plaintext,
    PolicyLevel::Mtls,
    PolicyLevel::L4,
    PolicyLevel::L7,
];

/// The options of Istio's sidecars.
const SIDECAR_OPTIONS: &[OptionKind] = &[
    OptionKind::ExtraEndpoints,
    OptionKind::Changes,
    OptionKind::AccessLog,
    OptionKind::Tracing,
    OptionKind::AllStats,
];

/// All data planes, the baseline first.
pub const DATA_PLANES: &[DataPlane] = &[
    DataPlane {
        id: DataPlaneId::None,
        name: "none",
        family: Family::None,
        placement: None,
        kind: DataPlaneKind::Baseline,
        levels: &[],
        summary: "no proxy in the path: the baseline",
        programs: &[],
        note: None,
        options: &[],
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::LimitL4,
        name: "limit-l4",
        family: Family::MinimalProxy,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Floor,
        levels: &[PolicyLevel::Plaintext],
        summary: "a minimal proxy pair built into meshtax that only forwards bytes: what two hops cost",
        programs: &[Program::LimitProxy],
        note: Some(
            "no encryption, no parsing, no statistics, no policy: the cost of two more hops",
        ),
        options: &[],
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::LimitMtls,
        name: "limit-mtls",
        family: Family::MinimalProxy,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Floor,
        levels: &[PolicyLevel::Mtls],
        summary: "a minimal mutual-TLS proxy pair built into meshtax: what two hops and encryption cost",
        programs: &[Program::LimitProxy],
        note: Some(
            "no parsing, no statistics, no policy: the floor of user-space proxies, or a reference where the report says \
             so",
        ),
        options: &[],
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::Ztunnel,
        name: "ztunnel",
        family: Family::IstioAmbient,
        placement: Some(ProxyPlacement::Node),
        kind: DataPlaneKind::Mesh,
        levels: &[PolicyLevel::Mtls, PolicyLevel::L4],
        summary: "the real ztunnel, one per node, in-pod redirection, HBONE; represents Istio ambient at L4",
        programs: &[Program::Ztunnel],
        note: Some(
            "connections between nodes share one HTTP/2 tunnel, encrypted with AES-256-GCM; it does not \
             parse HTTP, and balances connections, not requests",
        ),
        options: &[OptionKind::ExtraEndpoints],
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::ZtunnelDedicated,
        name: "ztunnel-dedicated",
        family: Family::IstioAmbient,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Emulation,
        levels: &[PolicyLevel::Mtls, PolicyLevel::L4],
        summary: "the real ztunnel, one in each pod: like a sidecar, which Istio does not offer",
        programs: &[Program::Ztunnel],
        note: Some("the cost of one ztunnel for each pod: compare it with one for each node"),
        options: &[OptionKind::ExtraEndpoints],
        call_graphs: true,
        gateway: false,
    },
    DataPlane {
        id: DataPlaneId::ZtunnelWaypoint,
        name: "ztunnel-waypoint",
        family: Family::IstioAmbient,
        placement: Some(ProxyPlacement::Waypoint),
        kind: DataPlaneKind::Mesh,
        levels: &[PolicyLevel::L7],
        summary: "ztunnel, a real Envoy as waypoint, ztunnel; HBONE on both hops; represents Istio ambient at L7",
        programs: &[Program::Ztunnel, Program::Envoy],
        note: Some(
            "three proxies and two encrypted hops; upstream Envoy without Istio's own filters: Istio's proxy \
             image may cost more; the waypoint runs on the servers' node",
        ),
        options: &[],
        call_graphs: false,
        gateway: false,
    },
    DataPlane {
        id: DataPlaneId::ZtunnelWaypointSandwich,
        name: "ztunnel-waypoint-sandwich",
        family: Family::IstioAmbient,
        placement: Some(ProxyPlacement::Waypoint),
        kind: DataPlaneKind::Mesh,
        levels: &[PolicyLevel::L7],
        summary: "the same with the waypoint captured by its node's ztunnel, which speaks HBONE for it",
        programs: &[Program::Ztunnel, Program::Envoy],
        note: Some(
            "the ztunnel of the servers' node carries each byte three times: into the waypoint, out of it, \
             and into the server",
        ),
        options: &[],
        call_graphs: false,
        gateway: false,
    },
    DataPlane {
        id: DataPlaneId::Linkerd,
        name: "linkerd",
        family: Family::Linkerd,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Mesh,
        levels: &[PolicyLevel::Mtls, PolicyLevel::L4, PolicyLevel::L7],
        summary: "two real linkerd2-proxies as sidecars, over their default transport; represents Linkerd",
        programs: &[Program::LinkerdProxy],
        note: Some(
            "HTTP/1.1 is carried as HTTP/2 over one connection between the proxies; it parses HTTP at \
             every level, and balances requests; its key exchange is its own choice",
        ),
        options: &[],
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::EnvoySidecar,
        name: "envoy-sidecar",
        family: Family::IstioSidecar,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Mesh,
        levels: SIDECAR_LEVELS,
        summary: "two real Envoys configured like Istio's sidecars; represents Istio sidecar",
        programs: &[Program::Envoy],
        note: Some(
            "upstream Envoy without Istio's own stats, ALPN and metadata-exchange filters: \
             Istio's proxy image may cost more; a real sidecar's memory also has a pilot-agent (10 to 12 MiB) \
             and the listeners and clusters of the other services of its cluster (4 to 5 MiB)",
        ),
        options: SIDECAR_OPTIONS,
        call_graphs: true,
        gateway: true,
    },
    DataPlane {
        id: DataPlaneId::EnvoySidecarTcp,
        name: "envoy-sidecar-tcp",
        family: Family::IstioSidecar,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Mesh,
        levels: &[PolicyLevel::Plaintext, PolicyLevel::Mtls, PolicyLevel::L4],
        summary: "the same Envoys with the port declared TCP: they parse no HTTP; represents Istio sidecar, port `tcp-...`",
        programs: &[Program::Envoy],
        note: Some(
            "no HTTP metrics, retries or balancing per request: what is left of a sidecar when it only \
             encrypts and authorises connections",
        ),
        options: &[],
        call_graphs: false,
        gateway: false,
    },
    DataPlane {
        id: DataPlaneId::IstioSidecar,
        name: "istio-sidecar",
        family: Family::IstioSidecar,
        placement: Some(ProxyPlacement::Sidecar),
        kind: DataPlaneKind::Mesh,
        levels: SIDECAR_LEVELS,
        summary: "two of Istio's own Envoys with its filters, configured as istiod does; represents Istio sidecar",
        programs: &[Program::IstioProxy],
        note: Some(
            "Istio's build of Envoy, with its stats, ALPN and metadata-exchange filters; a real sidecar's memory also has a \
             pilot-agent (10 to 12 MiB) and the listeners and clusters of the other services of its cluster (4 to 5 MiB)",
        ),
        options: SIDECAR_OPTIONS,
        call_graphs: true,
        gateway: true,
    },
];
