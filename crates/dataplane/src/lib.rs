//! Data planes as data: from where the pods stand and the policy level to a [`Blueprint`] of
//! processes, files, redirect rules and the probes that prove it.
//!
//! Pure: nothing is started here and no engine is known, so that a new mesh is one module with
//! golden blueprints. Everything that differs between variants is in the Blueprint; engines treat
//! all of them alike.

#![forbid(unsafe_code)]

mod control;
mod envoy_sidecar;
mod limit;
mod linkerd;
mod sabotage;
mod ztunnel;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

pub use control::{ControlService, LinkerdEndpoint, LinkerdInbound, LinkerdServices, Workload};
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
/// The path at which the test application says what it received. Policies allow it.
pub const ECHO_PATH: &str = "/_meshtax/echo";
/// A path that no `l7` policy allows.
pub const FORBIDDEN_PATH: &str = "/forbidden";

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
    /// The program that its proxies run; `None`: there are no proxies.
    pub needs: Option<Program>,
    /// What a reader of its figures must know.
    pub note: Option<&'static str>,
    build: fn(&Site, PolicyLevel) -> Blueprint,
}

/// All data planes, the baseline first.
pub const DATA_PLANES: &[DataPlane] = &[
    DataPlane {
        name: "none",
        levels: &[],
        summary: "nothing in the path: the baseline",
        needs: None,
        note: None,
        build: |_, _| Blueprint::direct(),
    },
    limit::LIMIT_L4,
    limit::LIMIT_MTLS,
    ztunnel::DATA_PLANE,
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
            return Blueprint::direct();
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
    /// The server's pod.
    pub server: Pod,
    /// The application's port in the server's pod.
    pub app_port: u16,
    /// Worker threads of each proxy.
    pub workers: u32,
}

/// One pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
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
    /// Enough frames and bytes both ways on the expected port between the two pods.
    OnTheWire {
        /// The server's port as seen on the link.
        port: u16,
    },
    /// Whether the canary is readable in what was captured.
    Canary {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
    },
    /// A TLS 1.3 ServerHello on the expected port.
    Handshake,
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
}

/// All of a variant that differs from other variants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blueprint {
    /// In the client's pod.
    pub client: PodBlueprint,
    /// In the server's pod.
    pub server: PodBlueprint,
    /// Run in this order; all must pass.
    pub probes: Vec<Probe>,
    /// For the probes that speak TLS themselves.
    pub direct_tls: DirectTls,
    /// Where the connections between the proxies end in the server's pod; `None`: no proxies.
    pub proxy_port: Option<u16>,
}

impl Blueprint {
    /// Nothing in the path.
    #[must_use]
    pub fn direct() -> Self {
        Self {
            client: PodBlueprint::default(),
            server: PodBlueprint::default(),
            probes: vec![
                Probe::Permitted,
                Probe::OnTheWire { port: APP_PORT },
                Probe::Canary { readable: true },
            ],
            direct_tls: DirectTls::default(),
            proxy_port: None,
        }
    }

    /// Sidecars on both ends, redirected into as Istio does.
    fn sidecars(client: (Vec<PodFile>, Process), server: (Vec<PodFile>, Process)) -> Self {
        let redirect = |outbound_to, inbound_to| Redirect {
            outbound_to,
            inbound_to,
            own: Own::mark(PROXY_MARK),
            ..Redirect::default()
        };
        Self {
            client: PodBlueprint {
                files: client.0,
                redirect: redirect(Some(PORT_OUTBOUND), None),
                control: Vec::new(),
                processes: vec![client.1],
            },
            server: PodBlueprint {
                files: server.0,
                redirect: redirect(None, Some(PORT_INBOUND)),
                control: Vec::new(),
                processes: vec![server.1],
            },
            probes: Vec::new(),
            direct_tls: DirectTls::default(),
            proxy_port: Some(PORT_INBOUND),
        }
    }
}

/// The application's port in every server pod, and so what is seen on the link.
pub const APP_PORT: u16 = 8080;

/// What the probes of a data plane look at.
struct Looks {
    /// The port in the client's pod at which its proxy takes connections.
    client_port: u16,
    /// The port in the server's pod at which its proxy takes connections.
    server_port: u16,
    /// The port of the server's pod as seen on the link.
    wire_port: u16,
    /// How an identity is formed of a service account.
    identity: fn(&str) -> String,
    client_identity: ClientIdentityFrom,
}

impl Looks {
    /// Sidecars that are redirected into as Istio does, with identities as Istio forms them.
    fn at_sidecars(site: &Site, client_identity: ClientIdentityFrom) -> Self {
        Self {
            client_port: PORT_OUTBOUND,
            server_port: PORT_INBOUND,
            wire_port: site.app_port,
            identity: spiffe_id,
            client_identity,
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
        if level >= PolicyLevel::Mtls {
            probes.extend([
                Probe::ServerIdentity {
                    expected: identity(&site.server.service_account),
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
        let port = self.wire_port;
        probes.push(Probe::OnTheWire { port });
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
    use super::*;

    pub(crate) fn site() -> Site {
        let pod = |last, service_account: &str| Pod {
            address: Ipv4Addr::new(10, 0, last, 10),
            service_account: service_account.into(),
            directory: format!("/lab/{service_account}"),
        };
        Site {
            client: pod(1, "client"),
            server: pod(2, "server"),
            app_port: APP_PORT,
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
                    if !sabotage.breaks(*level) {
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
