//! What is put into the pods of a variant: files, redirection, processes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::gateway;
use crate::probe::direct_probes;
use crate::{ControlService, Meshed, PORT_INBOUND, PORT_OUTBOUND, PROXY_MARK, Pod, Probe, Site};

/// All of a variant that differs from other variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blueprint {
    /// In the client's pod. Nothing where all clients stand outside the mesh.
    pub client: PodBlueprint,
    /// In the server's pod.
    pub server: PodBlueprint,
    /// In the pods of the other replicas, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_servers: Vec<PodBlueprint>,
    /// In the pods of the services behind it, by service, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Vec<PodBlueprint>>,
    /// In the waypoint's pod; `None`: there is no waypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waypoint: Option<PodBlueprint>,
    /// In the gateway's pod; `None`: clients call from a pod of the mesh only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<PodBlueprint>,
    /// Whom clients outside the mesh call, without the port: the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered_at: Option<Ipv4Addr>,
    /// Run in this order; all must pass.
    pub probes: Vec<Probe>,
    /// For the probes that speak TLS themselves.
    pub direct_tls: DirectTls,
    /// Where HTTP is counted, if it is; `None`: there are no metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_metrics: Option<HttpMetrics>,
    /// Where the connections between the proxies end in the server's pod; `None`: no proxies.
    pub proxy_port: Option<u16>,
}

impl Blueprint {
    /// Nothing in the path.
    #[must_use]
    pub fn direct(site: &Site) -> Self {
        Self {
            client: PodBlueprint::default(),
            server: PodBlueprint::default(),
            more_servers: vec![PodBlueprint::default(); site.more_servers.len()],
            behind: site
                .behind
                .iter()
                .map(|service| vec![PodBlueprint::default(); service.pods.len()])
                .collect(),
            waypoint: None,
            gateway: gateway::reverse_proxy(site),
            entered_at: gateway::entered_at(site),
            probes: direct_probes(site),
            direct_tls: DirectTls::default(),
            http_metrics: None,
            proxy_port: None,
        }
    }

    /// The pods that a service has, each with what it is given.
    #[must_use]
    pub fn servers<'a>(&'a self, site: &'a Site) -> Vec<(&'a Pod, &'a PodBlueprint)> {
        let blueprints = std::iter::once(&self.server).chain(&self.more_servers);
        site.servers().zip(blueprints).collect()
    }

    /// All of them, to be changed.
    pub(crate) fn servers_mut(&mut self) -> impl Iterator<Item = &mut PodBlueprint> {
        std::iter::once(&mut self.server).chain(&mut self.more_servers)
    }

    /// The pods from which requests come into the mesh, to be changed.
    pub(crate) fn callers_mut(&mut self) -> impl Iterator<Item = &mut PodBlueprint> {
        std::iter::once(&mut self.client).chain(&mut self.gateway)
    }

    /// The pods of the services behind, each with what it is given.
    #[must_use]
    pub fn pods_behind<'a>(&'a self, site: &'a Site) -> Vec<(&'a Pod, &'a PodBlueprint)> {
        let pods = site.behind.iter().flat_map(|service| &service.pods);
        pods.zip(self.behind.iter().flatten()).collect()
    }

    /// Sidecars in every pod of the variant, redirected into as Istio does. `side` says what stands in a pod; what
    /// it does for calls from there counts as the client's only where nobody calls the pod. The gateway is a plain
    /// reverse proxy with such a sidecar.
    pub(crate) fn sidecars(site: &Site, side: impl Fn(&Meshed<'_>) -> InPod) -> Self {
        Self::meshed(site, |end| {
            let InPod {
                files,
                control,
                processes,
            } = side(end);
            PodBlueprint {
                files,
                redirect: Redirect {
                    outbound_to: (!end.callees.is_empty()).then_some(PORT_OUTBOUND),
                    inbound_to: end.callers.is_some().then_some(PORT_INBOUND),
                    own: Own::mark(PROXY_MARK),
                    ..Redirect::default()
                },
                control,
                processes,
            }
        })
    }

    /// Every pod of the variant, each with what `pod` says of it: those of the client, of all services, and of the
    /// gateway, which is a plain reverse proxy with that besides. Without probes, which are the data plane's own.
    pub(crate) fn meshed(site: &Site, pod: impl Fn(&Meshed<'_>) -> PodBlueprint) -> Self {
        let server = |server: &Pod| pod(&site.server_end(server));
        let behind = site.ends_behind();
        let outside = site.gateway_end();
        Self {
            client: site.client_end().as_ref().map(&pod).unwrap_or_default(),
            server: server(&site.server),
            more_servers: site.more_servers.iter().map(server).collect(),
            behind: behind
                .iter()
                .map(|ends| ends.iter().map(&pod).collect())
                .collect(),
            waypoint: None,
            gateway: outside.and_then(|end| Some(gateway::reverse_proxy(site)?.beside(pod(&end)))),
            entered_at: gateway::entered_at(site),
            probes: Vec::new(),
            direct_tls: DirectTls::default(),
            http_metrics: None,
            proxy_port: Some(PORT_INBOUND),
        }
    }
}

/// What of a sidecar stands in a pod.
#[derive(Default)]
pub(crate) struct InPod {
    pub(crate) files: Vec<PodFile>,
    pub(crate) control: Vec<ControlService>,
    pub(crate) processes: Vec<Process>,
}

/// What is put into one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodBlueprint {
    /// Written first.
    pub files: Vec<PodFile>,
    /// Put in force before the processes start.
    pub redirect: Redirect,
    /// What meshtax itself serves to the processes; ready before they start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<ControlService>,
    /// Started in this order.
    pub processes: Vec<Process>,
}

impl PodBlueprint {
    /// The same pod with a mesh's sidecar besides. Files of one name are the same in both.
    pub(crate) fn beside(mut self, sidecar: Self) -> Self {
        let new = |file: &PodFile| !self.files.iter().any(|own| own.name == file.name);
        let more: Vec<PodFile> = sidecar.files.into_iter().filter(new).collect();
        self.files.extend(more);
        self.processes.extend(sidecar.processes);
        Self {
            redirect: sidecar.redirect,
            control: sidecar.control,
            ..self
        }
    }
}

/// A process that is started in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// What it is to the traffic.
    pub role: ComponentRole,
    /// What runs.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it is given besides meshtax's own environment. Text only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Content>,
    /// Where it runs.
    #[serde(default)]
    pub place: Place,
}

/// A program that a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// The real Envoy.
    Envoy,
    /// meshtax itself, as the minimal proxy.
    LimitProxy,
    /// The real ztunnel.
    Ztunnel,
    /// The real linkerd2-proxy.
    LinkerdProxy,
}

impl Program {
    /// Those that are not meshtax itself.
    pub const FOREIGN: &[Self] = &[Self::Envoy, Self::Ztunnel, Self::LinkerdProxy];

    /// What its file is usually called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::LimitProxy => "meshtax",
            Self::Ztunnel => "ztunnel",
            Self::LinkerdProxy => "linkerd2-proxy",
        }
    }
}

/// Where a process or a control service runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the pod's network namespace.
    #[default]
    Pod,
    /// On the pod's node, in a network namespace of its own: what serves a node has its own there.
    Node,
}

/// A file that is written before the processes start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFile {
    /// Its name in the pod's directory.
    pub name: String,
    /// What is in it.
    pub content: Content,
}

/// What is in a file, or in a variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// This text.
    Text(String),
    /// The certificate chain (PEM) of this SPIFFE identity, from the run's own authority.
    CertificateChain(String),
    /// Its private key (PEM, PKCS #8).
    PrivateKey(String),
    /// Its private key (DER, PKCS #8).
    PrivateKeyDer(String),
    /// A request to certify that key for that identity (DER, PKCS #10).
    SigningRequest(String),
    /// The authority's own certificate (PEM).
    TrustAnchor,
}

/// Certificate, key and trust anchor of one identity.
pub(crate) fn certificate_files(identity: &str) -> Vec<PodFile> {
    [
        ("chain.pem", Content::CertificateChain(identity.into())),
        ("key.pem", Content::PrivateKey(identity.into())),
        ("root.pem", Content::TrustAnchor),
    ]
    .into_iter()
    .map(|(name, content)| PodFile {
        name: name.into(),
        content,
    })
    .collect()
}

/// Redirection of a pod's TCP into its proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    /// Connections from the pod go to this port on it, except loopback and the proxy's own.
    pub outbound_to: Option<u16>,
    /// Connections to the pod go to this port on it.
    pub inbound_to: Option<u16>,
    /// By what the proxy's own connections are known.
    pub own: Own,
    /// Connections to this port of the pod are left alone: the proxy listens there itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_except: Option<u16>,
    /// The proxy comes to the application under its client's address: answers to connections with
    /// its mark are brought back to it, and not sent to that client.
    #[serde(default)]
    pub keeps_source: bool,
}

/// By what a proxy's own connections are known, which redirection leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Own {
    /// It has none.
    #[default]
    Nothing,
    /// They carry this mark, of whose bits only those of the mask count.
    Mark {
        /// The mark.
        value: u32,
        /// Which of its bits count.
        mask: u32,
    },
    /// They go to this port. For a proxy that cannot mark its connections, nor be known by a user of
    /// its own where one user only is mapped; it reaches meshed pods only.
    ToPort(u16),
}

impl Own {
    /// All bits of this mark.
    #[must_use]
    pub fn mark(value: u32) -> Self {
        Self::Mark {
            value,
            mask: u32::MAX,
        }
    }
}

/// Where the proxy that a server's requests pass counts them, if it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpMetrics {
    /// Which proxy: the server's, or the waypoint.
    pub role: ComponentRole,
    /// Where it runs.
    pub place: Place,
    /// Of its metrics, at 127.0.0.1.
    pub port: u16,
    /// What to ask for.
    pub path: String,
    /// How the lines begin that count HTTP's answers.
    pub series: String,
}

/// How a prober speaks TLS to the server's side, past the client's proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectTls {
    /// Application protocols to offer.
    pub alpn: Vec<String>,
    /// The server's port; `None`: the application's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The name to ask for; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether requests go through an HBONE tunnel: HTTP/2 `CONNECT` to the application.
    #[serde(default)]
    pub hbone: bool,
    /// Whether that is the waypoint, and not the server's pod.
    #[serde(default)]
    pub at_waypoint: bool,
}
