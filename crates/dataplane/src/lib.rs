//! Data planes as data: from where the pods stand and the policy level to a [`Blueprint`] of
//! processes, files, redirect rules and the probes that prove it.
//!
//! Pure: nothing is started here and no engine is known, so that a new mesh is one module with
//! golden blueprints. Everything that differs between variants is in the Blueprint; engines treat
//! all of them alike.

#![forbid(unsafe_code)]

mod control;
mod envoy;
mod envoy_sidecar;
mod limit;
mod linkerd;
mod sabotage;
mod waypoint;
mod ztunnel;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

pub use control::{
    ControlService, LinkerdEndpoint, LinkerdInbound, LinkerdPort, LinkerdService, LinkerdServices,
    Workload,
};
pub use limit::{LimitProxyConfig, LimitSide, LimitTls};
pub use sabotage::Sabotage;

/// Where a pod's outgoing TCP is redirected to, as in Istio.
pub const PORT_OUTBOUND: u16 = 15001;
/// Where a pod's incoming TCP is redirected to, as in Istio.
pub const PORT_INBOUND: u16 = 15006;
/// The mark on a proxy's own connections, which redirection leaves alone (Istio's uid, as a mark).
pub const PROXY_MARK: u32 = 1337;
/// Istio's default trust domain.
pub const TRUST_DOMAIN: &str = "cluster.local";
/// The path that every policy allows and that the load uses.
pub const ALLOWED_PATH: &str = "/allowed";
/// The gRPC method that every policy allows. It begins otherwise than [`ALLOWED_PATH`]: a POST there
/// is forbidden.
pub const ALLOWED_CALL: &str = "/meshtax.Load/Call";
/// The path at which the test application says what it received. Policies allow it.
pub const ECHO_PATH: &str = "/_meshtax/echo";
/// A path that no `l7` policy allows.
pub const FORBIDDEN_PATH: &str = "/forbidden";

/// The service's name in the cluster's DNS.
pub const SERVICE_NAME: &str = "server.default.svc.cluster.local";

/// A workload's SPIFFE identity, as Istio forms it.
#[must_use]
pub fn spiffe_id(service_account: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}/ns/default/sa/{service_account}")
}

/// A data plane that meshtax knows.
#[derive(Clone, Copy, Debug)]
pub struct DataPlane {
    /// As in specs and in `meshtax dataplanes`.
    pub name: &'static str,
    /// The levels at which it can be measured; empty for `none`.
    pub levels: &'static [PolicyLevel],
    /// What really runs, and what it stands for.
    pub summary: &'static str,
    /// The programs that its proxies run; none: there are no proxies.
    pub needs: &'static [Program],
    /// What a reader of its figures must know.
    pub note: Option<&'static str>,
    waypoint: bool,
    build: fn(&Site, PolicyLevel) -> Blueprint,
}

/// All data planes, the baseline first.
pub const DATA_PLANES: &[DataPlane] = &[
    DataPlane {
        name: "none",
        levels: &[],
        summary: "nothing in the path: the baseline",
        needs: &[],
        note: None,
        waypoint: false,
        build: |site, _| Blueprint::direct(site),
    },
    limit::LIMIT_L4,
    limit::LIMIT_MTLS,
    ztunnel::DATA_PLANE,
    ztunnel::DEDICATED,
    waypoint::DATA_PLANE,
    waypoint::SANDWICH,
    linkerd::DATA_PLANE,
    envoy_sidecar::HTTP,
    envoy_sidecar::TCP,
];

/// The data plane of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static DataPlane> {
    DATA_PLANES.iter().find(|d| d.name == name)
}

impl DataPlane {
    /// The programs that it needs and that are not meshtax itself.
    pub fn foreign_programs(&self) -> impl Iterator<Item = Program> {
        let needed = self.needs.iter().copied();
        needed.filter(|program| Program::FOREIGN.contains(program))
    }

    /// Whether a proxy of the whole service's stands between client and server.
    #[must_use]
    pub fn has_waypoint(&self) -> bool {
        self.waypoint
    }

    /// What is to be started and proven for one pair of pods.
    ///
    /// `level` is `None` for the data plane `none`. `sabotage` breaks the result on purpose
    /// while its probes still expect what the level promises.
    #[must_use]
    pub fn blueprint(
        &self,
        site: &Site,
        level: Option<PolicyLevel>,
        sabotage: Option<Sabotage>,
    ) -> Blueprint {
        let Some(level) = level else {
            return Blueprint::direct(site);
        };
        match sabotage {
            None => (self.build)(site, level),
            Some(sabotage) => sabotage.apply(site, level, self.build),
        }
    }
}

/// Where the two ends of one variant stand, and what they are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The client's pod.
    pub client: Pod,
    /// The server's pod; of several replicas the first.
    pub server: Pod,
    /// The service's other replicas, of the same identity and on the same node.
    pub more_servers: Vec<Pod>,
    /// Where a mesh's proxy for the whole service stands, on the servers' node, if it has one.
    pub waypoint: Pod,
    /// The address that clients call: the service's own, or the server's pod's.
    pub called: Ipv4Addr,
    /// The application's port in the server's pod, where it speaks HTTP/1.1.
    pub app_port: u16,
    /// Its further ports.
    pub more_ports: Vec<AppPort>,
    /// Worker threads of each proxy.
    pub workers: u32,
}

/// What is spoken on a port of the application, as it is declared to the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, gRPC included.
    Http2,
    /// Bytes that no proxy is to look at.
    Tcp,
}

/// A port of the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppPort {
    /// Its number.
    pub number: u16,
    /// What is spoken there.
    pub speaks: Speaks,
    /// Size of its answers in bytes, as far as that is known.
    pub response_bytes: u32,
    /// A path that is asked for there and that policies allow besides the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Requests that an `l7` policy allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRule {
    /// The HTTP method.
    pub method: String,
    /// How the paths begin.
    pub prefixes: Vec<String>,
    /// Whole paths, which are allowed besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exact: Vec<String>,
}

impl Site {
    /// All replicas of the service.
    pub fn servers(&self) -> impl Iterator<Item = &Pod> {
        std::iter::once(&self.server).chain(&self.more_servers)
    }

    /// All ports of the application.
    #[must_use]
    pub fn ports(&self) -> Vec<AppPort> {
        let first = AppPort {
            number: self.app_port,
            speaks: Speaks::Http1,
            response_bytes: 0,
            path: None,
        };
        std::iter::once(first)
            .chain(self.more_ports.iter().cloned())
            .collect()
    }

    /// What an `l7` policy allows the client.
    #[must_use]
    pub fn http_rules(&self) -> Vec<HttpRule> {
        let without_query = |path: &String| path.split('?').next().map(str::to_owned);
        let own = self.more_ports.iter().filter_map(|port| port.path.as_ref());
        let mut rules = vec![HttpRule {
            method: "GET".into(),
            prefixes: [ALLOWED_PATH, ECHO_PATH].map(String::from).to_vec(),
            exact: own.filter_map(without_query).collect(),
        }];
        if self.more_ports.iter().any(|p| p.speaks == Speaks::Http2) {
            rules.push(HttpRule {
                method: "POST".into(),
                prefixes: vec![ALLOWED_CALL.into()],
                exact: Vec::new(),
            });
        }
        rules
    }

    /// The service's virtual address, if clients call that.
    #[must_use]
    pub fn virtual_address(&self) -> Option<Ipv4Addr> {
        Some(self.called).filter(|called| *called != self.server.address)
    }
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its name, unique among the variant's pods.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its service account: the last part of its identity.
    pub service_account: String,
    /// Where its files are put: a directory of the lab's own.
    pub directory: String,
}

impl Pod {
    /// The pod's SPIFFE identity.
    #[must_use]
    pub fn identity(&self) -> String {
        spiffe_id(&self.service_account)
    }

    /// The absolute path of one of the pod's files.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.directory)
    }
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

/// What is put into one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// How the server's side shows whose identity the client's proxy proved to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientIdentityFrom {
    /// The header `x-forwarded-client-cert` that the application received.
    ForwardedClientCert,
    /// A header that holds the identity alone, and that the application received.
    Header(String),
    /// A line `peer <identity>` in the server proxy's log.
    ProxyLog,
    /// A label of the server proxy's metrics, at a port where it runs.
    Metrics {
        /// Where it runs.
        place: Place,
        /// Of its metrics, at 127.0.0.1.
        port: u16,
        /// The name of the series.
        series: String,
        /// What its line must hold to be of interest.
        with: String,
        /// The label that holds the identity.
        label: String,
    },
}

/// A check on a variant that must pass before it is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "probe", rename_all = "kebab-case")]
pub enum Probe {
    /// A permitted request is answered with 200 through the whole path. Also the readiness.
    Permitted,
    /// While a client's connection is open, the proxies hold connections at these ports of the pods.
    InThePath {
        /// In the client's pod.
        client_port: u16,
        /// In the server's pod.
        server_port: u16,
    },
    /// The server's side saw this identity of the client.
    ClientIdentity {
        /// The SPIFFE identity.
        expected: String,
        /// Where it shows.
        from: ClientIdentityFrom,
    },
    /// The server's side proves this identity in a TLS handshake made by the prober.
    ServerIdentity {
        /// The server's identity.
        expected: String,
        /// Whom the prober comes as: one that is permitted.
        client: String,
    },
    /// A client with this identity, of the same authority, is refused.
    ForbiddenIdentity {
        /// The SPIFFE identity.
        identity: String,
    },
    /// A client with the permitted identity, certified by another authority, is refused.
    ForeignCa {
        /// The permitted identity.
        identity: String,
    },
    /// This method is refused through the whole path.
    ForbiddenMethod {
        /// The HTTP method.
        method: String,
    },
    /// This path is refused through the whole path.
    ForbiddenPath {
        /// The request's path.
        path: String,
    },
    /// A client without a mesh, speaking plain HTTP to the server's pod, is refused.
    PlaintextOutsider,
    /// A further port of the application answers through the whole path.
    Carries {
        /// The port.
        port: AppPort,
    },
    /// Enough frames and bytes both ways between the two pods, on expected ports only.
    OnTheWire {
        /// The server's ports that may be seen on the link.
        ports: Vec<u16>,
    },
    /// Whether the canary is readable in what was captured.
    Canary {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
    },
    /// A TLS 1.3 ServerHello on the expected port.
    Handshake,
    /// A client with this identity that goes past the waypoint, straight to the server, is refused,
    /// and is shown the server's own identity.
    AroundTheWaypoint {
        /// The client's SPIFFE identity.
        identity: String,
        /// The server's.
        server: String,
    },
    /// Between the waypoint and the servers: TLS 1.3 at this port only, and the canary unreadable.
    BehindTheWaypoint {
        /// The servers' port as seen at the waypoint's pod.
        port: u16,
    },
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

/// All of a variant that differs from other variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blueprint {
    /// In the client's pod.
    pub client: PodBlueprint,
    /// In the server's pod.
    pub server: PodBlueprint,
    /// In the pods of the other replicas, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_servers: Vec<PodBlueprint>,
    /// In the waypoint's pod; `None`: there is no waypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waypoint: Option<PodBlueprint>,
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
            waypoint: None,
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
    fn servers_mut(&mut self) -> impl Iterator<Item = &mut PodBlueprint> {
        std::iter::once(&mut self.server).chain(&mut self.more_servers)
    }

    /// Sidecars in the client's and in each server's pod, redirected into as Istio does.
    fn sidecars(
        site: &Site,
        side: impl Fn(&Pod, ComponentRole) -> (Vec<PodFile>, Process),
    ) -> Self {
        let pod = |pod: &Pod, role| {
            let (files, process) = side(pod, role);
            let is_client = role == ComponentRole::ClientProxy;
            PodBlueprint {
                files,
                redirect: Redirect {
                    outbound_to: is_client.then_some(PORT_OUTBOUND),
                    inbound_to: (!is_client).then_some(PORT_INBOUND),
                    own: Own::mark(PROXY_MARK),
                    ..Redirect::default()
                },
                control: Vec::new(),
                processes: vec![process],
            }
        };
        let server = |server: &Pod| pod(server, ComponentRole::ServerProxy);
        Self {
            client: pod(&site.client, ComponentRole::ClientProxy),
            server: server(&site.server),
            more_servers: site.more_servers.iter().map(server).collect(),
            waypoint: None,
            probes: Vec::new(),
            direct_tls: DirectTls::default(),
            http_metrics: None,
            proxy_port: Some(PORT_INBOUND),
        }
    }
}

/// The application's port in every server pod, and so what is seen on the link.
pub const APP_PORT: u16 = 8080;

/// The probes of having nothing in the path.
fn direct_probes(site: &Site) -> Vec<Probe> {
    let mut probes = vec![Probe::Permitted];
    probes.extend(carries(site, None));
    probes.push(Probe::OnTheWire {
        ports: port_numbers(site),
    });
    probes.push(Probe::Canary { readable: true });
    probes
}

/// Every further port of the application is tried, where the level has an answer for it.
fn carries(site: &Site, level: Option<PolicyLevel>) -> impl Iterator<Item = Probe> {
    let judged =
        move |port: &&AppPort| port.speaks != Speaks::Tcp || level != Some(PolicyLevel::L7);
    let ports = site.more_ports.iter().filter(judged).cloned();
    ports.map(|port| Probe::Carries { port })
}

fn port_numbers(site: &Site) -> Vec<u16> {
    site.ports().iter().map(|port| port.number).collect()
}

/// What the probes of a data plane look at.
struct Looks {
    /// The port in the client's pod at which its proxy takes connections.
    client_port: u16,
    /// The port in the server's pod at which its proxy takes connections.
    server_port: u16,
    /// The ports of the server's pod as seen on the link.
    wire_ports: Vec<u16>,
    /// How an identity is formed of a service account.
    identity: fn(&str) -> String,
    client_identity: ClientIdentityFrom,
    /// Whose identity the client's proxy is shown.
    server_service_account: String,
}

impl Looks {
    /// Sidecars that are redirected into as Istio does, with identities as Istio forms them.
    fn at_sidecars(site: &Site, client_identity: ClientIdentityFrom) -> Self {
        Self {
            client_port: PORT_OUTBOUND,
            server_port: PORT_INBOUND,
            wire_ports: port_numbers(site),
            identity: spiffe_id,
            client_identity,
            server_service_account: site.server.service_account.clone(),
        }
    }

    /// The probes of a policy level: the same for every data plane.
    fn probes(self, site: &Site, level: PolicyLevel) -> Vec<Probe> {
        let identity = self.identity;
        let mut probes = vec![
            Probe::Permitted,
            Probe::InThePath {
                client_port: self.client_port,
                server_port: self.server_port,
            },
        ];
        probes.extend(carries(site, Some(level)));
        if level >= PolicyLevel::Mtls {
            probes.extend([
                Probe::ServerIdentity {
                    expected: identity(&self.server_service_account),
                    client: identity(&site.client.service_account),
                },
                Probe::ClientIdentity {
                    expected: identity(&site.client.service_account),
                    from: self.client_identity,
                },
                Probe::ForeignCa {
                    identity: identity(&site.client.service_account),
                },
                Probe::PlaintextOutsider,
            ]);
        }
        if level >= PolicyLevel::L4 {
            probes.push(Probe::ForbiddenIdentity {
                identity: identity("intruder"),
            });
        }
        if level >= PolicyLevel::L7 {
            probes.extend([
                Probe::ForbiddenMethod {
                    method: "POST".into(),
                },
                Probe::ForbiddenPath {
                    path: FORBIDDEN_PATH.into(),
                },
            ]);
        }
        probes.push(Probe::OnTheWire {
            ports: self.wire_ports,
        });
        probes.push(Probe::Canary {
            readable: level == PolicyLevel::Plaintext,
        });
        if level >= PolicyLevel::Mtls {
            probes.push(Probe::Handshake);
        }
        probes
    }
}

/// Certificate, key and trust anchor of one identity.
fn certificate_files(identity: &str) -> Vec<PodFile> {
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

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::PROXY_PORTS;

    use super::*;

    pub(crate) fn site() -> Site {
        let pod = |last, service_account: &str| Pod {
            name: service_account.into(),
            address: Ipv4Addr::new(10, 0, last, 10),
            service_account: service_account.into(),
            directory: format!("/lab/{service_account}"),
        };
        Site {
            client: pod(1, "client"),
            server: pod(2, "server"),
            more_servers: Vec::new(),
            waypoint: pod(3, "waypoint"),
            called: Ipv4Addr::new(10, 0, 2, 10),
            app_port: APP_PORT,
            more_ports: Vec::new(),
            workers: 1,
        }
    }

    #[test]
    fn golden_blueprints() {
        for plane in DATA_PLANES {
            if plane.levels.is_empty() {
                insta::assert_json_snapshot!(plane.name, plane.blueprint(&site(), None, None));
            }
            for level in plane.levels {
                let blueprint = plane.blueprint(&site(), Some(*level), None);
                insta::assert_json_snapshot!(format!("{}-{level}", plane.name), blueprint);
            }
        }
    }

    /// Two replicas behind an address of their own, with a port of each kind.
    #[test]
    fn golden_blueprints_of_a_service() {
        let port = |number, speaks, path: Option<&str>| AppPort {
            number,
            speaks,
            response_bytes: 0,
            path: path.map(String::from),
        };
        let mut site = site();
        site.more_servers.push(Pod {
            name: "server-2".into(),
            address: Ipv4Addr::new(10, 0, 2, 11),
            service_account: "server".into(),
            directory: "/lab/server-2".into(),
        });
        site.called = Ipv4Addr::new(10, 0, 8, 1);
        site.more_ports = vec![
            port(8081, Speaks::Http2, None),
            port(8082, Speaks::Tcp, None),
            port(9000, Speaks::Http1, Some("/own?a=b")),
        ];
        for plane in DATA_PLANES {
            let blueprint = plane.blueprint(&site, plane.levels.last().copied(), None);
            assert_eq!(blueprint.servers(&site).len(), 2, "{}", plane.name);
            insta::assert_json_snapshot!(format!("service-{}", plane.name), blueprint);
        }
    }

    /// Otherwise an application's port could meet them.
    #[test]
    fn the_ports_of_all_proxies_are_known() {
        for plane in DATA_PLANES {
            let blueprint = plane.blueprint(&site(), plane.levels.last().copied(), None);
            let pods = [&blueprint.client, &blueprint.server].into_iter();
            for pod in pods.chain(&blueprint.waypoint) {
                let redirect = &pod.redirect;
                let control = pod.control.iter().filter_map(|service| match service {
                    ControlService::IstioCa { port, .. } | ControlService::Linkerd { port, .. } => {
                        Some(*port)
                    }
                    ControlService::WorkloadSocket { .. } => None,
                });
                let metrics = blueprint.http_metrics.iter().map(|metrics| metrics.port);
                let ports = [
                    redirect.outbound_to,
                    redirect.inbound_to,
                    redirect.inbound_except,
                ];
                for port in ports.into_iter().flatten().chain(control).chain(metrics) {
                    assert!(PROXY_PORTS.contains(&port), "{}: {port}", plane.name);
                }
            }
        }
    }

    #[test]
    fn every_level_above_plaintext_is_probed_for_encryption_and_outsiders() {
        for plane in DATA_PLANES {
            for level in plane.levels.iter().filter(|l| **l >= PolicyLevel::Mtls) {
                let blueprint = plane.blueprint(&site(), Some(*level), None);
                for needed in [
                    Probe::PlaintextOutsider,
                    Probe::Canary { readable: false },
                    Probe::Handshake,
                ] {
                    assert!(
                        blueprint.probes.contains(&needed),
                        "{} {level}: {needed:?}",
                        plane.name
                    );
                }
            }
        }
    }

    #[test]
    fn sabotage_keeps_the_probes_and_changes_the_rest() {
        for plane in DATA_PLANES {
            for level in plane.levels {
                for sabotage in Sabotage::ALL {
                    if !sabotage.breaks(plane, *level) {
                        continue;
                    }
                    let whole = plane.blueprint(&site(), Some(*level), None);
                    let broken = plane.blueprint(&site(), Some(*level), Some(*sabotage));
                    assert_eq!(whole.probes, broken.probes, "{sabotage:?}");
                    assert_ne!(whole, broken, "{} {level} {sabotage:?}", plane.name);
                }
            }
        }
    }
}
