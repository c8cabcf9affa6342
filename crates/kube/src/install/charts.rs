//! The meshes that Helm can install: their charts in order, and the values of each.

use std::fmt;

use meshtax_control_plane::{AuthorityError, Issuer};
use meshtax_model::catalogue::DataPlaneId;
use serde_json::{Value, json};

/// A mesh with the Helm charts that its project publishes.
#[derive(Clone, Copy, Debug)]
pub struct Installable {
    /// As in `meshtax mesh install NAME`.
    pub name: &'static str,
    /// As people call it.
    pub title: &'static str,
    /// The data planes that a run can measure on it.
    pub data_planes: &'static [DataPlaneId],
    /// Where all its releases are.
    pub namespace: &'static str,
    /// The Helm repository.
    pub repository: &'static str,
    /// The version that is installed unless another is named. Nobody could download it where this was written: *unverified*.
    pub version: &'static str,
    /// Where repository, charts and version are documented.
    pub source: &'static str,
    /// In the order of installation.
    pub charts: &'static [Chart],
    /// The ConfigMaps that its control plane creates in every namespace, and leaves there: the last has its trust anchor.
    pub(crate) leaves_config_maps: &'static [&'static str],
    /// Whether it can be installed on a running cluster at all.
    pub(crate) on_running_cluster: bool,
    /// The oldest Linux of its nodes, if it states one.
    pub(crate) kernel: Option<(u32, u32)>,
    /// Whether it adds a plugin to the nodes' CNI configuration.
    pub(crate) chains_cni: bool,
    /// Whether it needs the Gateway API's types.
    pub gateway_api: bool,
}

/// A chart of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct Chart {
    /// The name of its release.
    pub release: &'static str,
    /// Its name in the repository, and of its directory or archive in `--charts`.
    pub name: &'static str,
    values: fn(&Choices) -> Value,
}

/// How a mesh is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Settings {
    /// One worker thread for each proxy of every mesh, and otherwise as the project ships it.
    #[default]
    Equal,
    /// As the project ships it.
    Native,
}

impl Settings {
    /// Its name in options and output.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Native => "native",
        }
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// What the values of charts depend on.
#[derive(Clone, Debug)]
pub struct Choices {
    /// How it is configured.
    pub settings: Settings,
    /// Whether the cluster has the Gateway API's types already.
    pub has_gateway_api: bool,
    /// Of Linkerd's certificates.
    issuer: Issuer,
}

impl Choices {
    /// With a new issuer.
    ///
    /// # Errors
    /// If no key can be made.
    pub fn new(settings: Settings, has_gateway_api: bool) -> Result<Self, AuthorityError> {
        Ok(Self {
            settings,
            has_gateway_api,
            issuer: Issuer::new(LINKERD_ISSUER)?,
        })
    }
}

/// The identity service verifies that its issuer has this name (linkerd2, controller/identity: `identity.NAMESPACE.TRUST-DOMAIN`).
const LINKERD_ISSUER: &str = "identity.linkerd.cluster.local";

fn nothing(_: &Choices) -> Value {
    json!({})
}

fn ambient(_: &Choices) -> Value {
    json!({"profile": "ambient"})
}

/// `concurrency` is the number of Envoy's worker threads, in sidecars and waypoints.
fn istiod(choices: &Choices) -> Value {
    match choices.settings {
        Settings::Native => json!({}),
        Settings::Equal => json!({"meshConfig": {"defaultConfig": {"concurrency": 1}}}),
    }
}

fn ambient_istiod(choices: &Choices) -> Value {
    let mut values = istiod(choices);
    values["profile"] = json!("ambient");
    values
}

fn ztunnel(choices: &Choices) -> Value {
    match choices.settings {
        Settings::Native => json!({}),
        Settings::Equal => json!({"env": {"ZTUNNEL_WORKER_THREADS": "1"}}),
    }
}

fn linkerd_crds(choices: &Choices) -> Value {
    json!({"installGatewayAPI": !choices.has_gateway_api})
}

/// One self-signed certificate is trust anchor and issuer, as with `linkerd install`. The heartbeat, a job that reports the
/// installation to the project, is off: this one may be removed within the hour.
fn linkerd(choices: &Choices) -> Value {
    let mut values = json!({
        "disableHeartBeat": true,
        "identityTrustAnchorsPEM": choices.issuer.certificate_pem,
        "identity": {"issuer": {"tls": {
            "crtPEM": choices.issuer.certificate_pem, "keyPEM": choices.issuer.key_pem,
        }}},
    });
    if choices.settings == Settings::Equal {
        values["proxy"] = json!({"runtime": {"workers": {"minimum": 1}}});
    }
    values
}

impl Chart {
    /// Its values.
    #[must_use]
    pub fn values(&self, choices: &Choices) -> Value {
        (self.values)(choices)
    }

    /// Its values for people: without the issuer, which is new in each installation.
    #[must_use]
    pub fn public_values(&self, choices: &Choices) -> Value {
        let mut values = self.values(choices);
        for (place, shown) in [
            ("/identityTrustAnchorsPEM", "(a new certificate)"),
            ("/identity/issuer/tls/crtPEM", "(the same certificate)"),
            ("/identity/issuer/tls/keyPEM", "(its key)"),
        ] {
            if let Some(value) = values.pointer_mut(place) {
                *value = json!(shown);
            }
        }
        values
    }
}

const ISTIO_BASE: Chart = Chart {
    release: "istio-base",
    name: "base",
    values: nothing,
};

const ISTIO: Installable = Installable {
    name: "istio-sidecar",
    title: "Istio with sidecars",
    data_planes: &[DataPlaneId::EnvoySidecar],
    namespace: "istio-system",
    repository: "https://istio-release.storage.googleapis.com/charts",
    version: "1.30.4",
    source: "istio.io/latest/docs/setup/install/helm",
    charts: &[
        ISTIO_BASE,
        Chart {
            release: "istiod",
            name: "istiod",
            values: istiod,
        },
    ],
    leaves_config_maps: &["istio-ca-crl", "istio-ca-root-cert"],
    on_running_cluster: true,
    kernel: None,
    chains_cni: false,
    gateway_api: false,
};

/// What can be installed, or, for Cilium, checked.
pub const INSTALLABLE: [Installable; 4] = [
    ISTIO,
    Installable {
        name: "istio-ambient",
        title: "Istio ambient",
        data_planes: &[DataPlaneId::Ztunnel, DataPlaneId::EnvoySidecar],
        source: "istio.io/latest/docs/ambient/install/helm",
        charts: &[
            ISTIO_BASE,
            Chart {
                release: "istiod",
                name: "istiod",
                values: ambient_istiod,
            },
            Chart {
                release: "istio-cni",
                name: "cni",
                values: ambient,
            },
            Chart {
                release: "ztunnel",
                name: "ztunnel",
                values: ztunnel,
            },
        ],
        chains_cni: true,
        ..ISTIO
    },
    Installable {
        name: "linkerd",
        title: "Linkerd",
        data_planes: &[DataPlaneId::Linkerd],
        namespace: "linkerd",
        repository: "https://helm.linkerd.io/edge",
        version: "2026.8.2",
        source: "linkerd.io/2-edge/tasks/install-helm",
        charts: &[
            Chart {
                release: "linkerd-crds",
                name: "linkerd-crds",
                values: linkerd_crds,
            },
            Chart {
                release: "linkerd-control-plane",
                name: "linkerd-control-plane",
                values: linkerd,
            },
        ],
        leaves_config_maps: &[],
        gateway_api: true,
        ..ISTIO
    },
    Installable {
        name: "cilium",
        title: "Cilium",
        data_planes: &[],
        namespace: "kube-system",
        repository: "https://helm.cilium.io",
        version: "1.19.0",
        source: "docs.cilium.io/en/stable/operations/system_requirements",
        charts: &[Chart {
            release: "cilium",
            name: "cilium",
            values: nothing,
        }],
        leaves_config_maps: &[],
        on_running_cluster: false,
        kernel: Some((5, 10)),
        ..ISTIO
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn values(mesh: &str, settings: Settings) -> Vec<(&'static str, Value)> {
        let mesh = INSTALLABLE.iter().find(|of| of.name == mesh).unwrap();
        let choices = Choices::new(settings, true).unwrap();
        let charts = mesh.charts.iter();
        charts
            .map(|chart| (chart.release, chart.public_values(&choices)))
            .collect()
    }

    #[test]
    fn equal_settings_give_every_proxy_one_worker() {
        let istio = values("istio-sidecar", Settings::Equal);
        assert_eq!(istio[1].1["meshConfig"]["defaultConfig"]["concurrency"], 1);
        let ambient = values("istio-ambient", Settings::Equal);
        assert_eq!(
            ambient[1].1["meshConfig"]["defaultConfig"]["concurrency"],
            1
        );
        assert_eq!(ambient[1].1["profile"], "ambient");
        assert_eq!(ambient[3].1["env"]["ZTUNNEL_WORKER_THREADS"], "1");
        let linkerd = values("linkerd", Settings::Equal);
        assert_eq!(linkerd[1].1["proxy"]["runtime"]["workers"]["minimum"], 1);
    }

    #[test]
    fn native_settings_leave_the_workers_to_the_mesh() {
        for mesh in INSTALLABLE.iter().map(|mesh| mesh.name) {
            let all = format!("{:?}", values(mesh, Settings::Native));
            for word in ["concurrency", "WORKER_THREADS", "workers"] {
                assert!(!all.contains(word), "{all}");
            }
        }
    }

    #[test]
    fn private_key_is_not_shown() {
        let shown = format!("{:?}", values("linkerd", Settings::Equal));
        assert!(shown.contains("its key") && !shown.contains("PRIVATE"));
    }

    #[test]
    fn gateway_api_is_installed_only_where_it_is_missing() {
        let crds = INSTALLABLE[2].charts[0];
        let choices = |has| Choices::new(Settings::Equal, has).unwrap();
        assert_eq!(crds.values(&choices(false))["installGatewayAPI"], true);
        assert_eq!(crds.values(&choices(true))["installGatewayAPI"], false);
    }
}
