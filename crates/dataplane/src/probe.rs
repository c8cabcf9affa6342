//! The probes that prove a variant: the same for every data plane of a level.

use meshtax_model::experiment::PolicyLevel;
use serde::{Deserialize, Serialize};

use crate::{
    AppPort, FORBIDDEN_PATH, GATEWAY_PORT, PORT_INBOUND, PORT_OUTBOUND, Place, Site, Speaks,
    spiffe_id,
};

/// A check on a variant that must pass before it is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "probe", rename_all = "kebab-case")]
pub enum Probe {
    /// A permitted request is answered with 200 through the whole path. Also the readiness.
    Permitted,
    /// While a client's connection is open, the proxies hold connections at these ports of the pods.
    InThePath {
        /// In the client's pod, or in the gateway's if it is the only way in.
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
    /// The proxies hold the services that they are told of and that nobody calls.
    Knows {
        /// How many.
        services: u32,
        /// Endpoints of all of them together.
        endpoints: u32,
    },
    /// The proxies in the client's pod and in the servers' pods hand on a line for each request.
    LogsRequests {
        /// Where each of them counts the lines.
        lines: Counter,
    },
    /// The proxies in the client's pod and in the servers' pods send spans to their collectors.
    SendsSpans,
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
    /// Every service behind the one that clients call is reached through its proxy, and where identities are
    /// demanded a client without a mesh is refused there, too.
    CallsInThePath {
        /// Where the proxies of their pods take connections; `None`: there are none.
        port: Option<u16>,
        /// Whether plain HTTP from outside is to be refused.
        refuses_outsiders: bool,
    },
    /// The canary goes with the calls between services: whether it is readable there, and TLS 1.3 where it is not.
    CallsOnTheWire {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
    },
    /// A client outside the mesh gets its answers through the gateway, in clear and over TLS. While its connection is
    /// open, the gateway and the mesh's proxies behind it hold connections.
    ByTheGateway {
        /// Where the mesh's proxy in the gateway's pod takes what the gateway sends; `None`: there is none, or the
        /// gateway is the mesh's proxy itself.
        proxy_port: Option<u16>,
        /// Where the proxy in the server's pod takes connections; `None`: there is none.
        server_port: Option<u16>,
    },
    /// Between a client outside the mesh and the gateway: the canary readable at its port for HTTP, and TLS 1.3 at
    /// the one for HTTPS.
    BeforeTheGateway,
    /// Between the gateway and the servers, where there are other ways in besides: as [`Probe::OnTheWire`],
    /// [`Probe::Canary`] and [`Probe::Handshake`] look at the client's pod.
    BehindTheGateway {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
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
    /// Requests reach replicas on every one of the servers' nodes, and what passes between each of these and whoever
    /// calls the replicas is as [`Probe::OnTheWire`], [`Probe::Canary`] and [`Probe::Handshake`] demand.
    EveryNode {
        /// True in plaintext, false where it is encrypted.
        readable: bool,
        /// The server's ports that may be seen.
        ports: Vec<u16>,
    },
    /// Between the waypoint and the servers: TLS 1.3 at this port only, and the canary unreadable.
    BehindTheWaypoint {
        /// The servers' port as seen at the waypoint's pod.
        port: u16,
    },
}

/// A number that a proxy tells in its own pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Of its page, at 127.0.0.1.
    pub port: u16,
    /// What to ask for.
    pub path: String,
    /// How the line begins at whose end the number stands.
    pub series: String,
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
        /// What its line must hold to be of interest, all of it.
        with: Vec<String>,
        /// The label that holds the identity.
        label: String,
    },
}

/// What the probes of a data plane look at.
pub(crate) struct Looks {
    /// The port in the client's pod at which its proxy takes connections.
    pub(crate) client_port: u16,
    /// The port in the server's pod at which its proxy takes connections.
    pub(crate) server_port: u16,
    /// The port in the gateway's pod at which a sidecar takes what the gateway sends; `None`: it has none.
    pub(crate) gateway_proxy_port: Option<u16>,
    /// The ports of the server's pod as seen on the link.
    pub(crate) wire_ports: Vec<u16>,
    /// How an identity is formed of a service account.
    pub(crate) identity: fn(&str) -> String,
    pub(crate) client_identity: ClientIdentityFrom,
    /// Whose identity the client's proxy is shown.
    pub(crate) server_service_account: String,
}

impl Looks {
    /// Sidecars that are redirected into as Istio does, with identities as Istio forms them.
    pub(crate) fn at_sidecars(site: &Site, client_identity: ClientIdentityFrom) -> Self {
        Self {
            client_port: PORT_OUTBOUND,
            server_port: PORT_INBOUND,
            gateway_proxy_port: Some(PORT_OUTBOUND),
            wire_ports: port_numbers(site),
            identity: spiffe_id,
            client_identity,
            server_service_account: site.server.service_account.clone(),
        }
    }

    /// The probes of a policy level: the same for every data plane.
    pub(crate) fn probes(self, site: &Site, level: PolicyLevel) -> Vec<Probe> {
        let identity = self.identity;
        let caller = identity(&site.caller().service_account);
        let mut probes = vec![
            Probe::Permitted,
            Probe::InThePath {
                client_port: match site.has_outside_clients_only() {
                    true => self.gateway_proxy_port.unwrap_or(GATEWAY_PORT),
                    false => self.client_port,
                },
                server_port: self.server_port,
            },
        ];
        probes.extend(carries(site, Some(level)));
        if level >= PolicyLevel::Mtls {
            probes.extend([
                Probe::ServerIdentity {
                    expected: identity(&self.server_service_account),
                    client: caller.clone(),
                },
                Probe::ClientIdentity {
                    expected: caller.clone(),
                    from: self.client_identity,
                },
                Probe::ForeignCa { identity: caller },
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
            ports: self.wire_ports.clone(),
        });
        probes.push(Probe::Canary {
            readable: level == PolicyLevel::Plaintext,
        });
        if level >= PolicyLevel::Mtls {
            probes.push(Probe::Handshake);
        }
        let meshed = level >= PolicyLevel::Mtls;
        probes.extend(every_node(site, !meshed, &self.wire_ports));
        probes.extend(by_gateway(
            site,
            (self.gateway_proxy_port, Some(self.server_port)),
            !meshed,
            self.wire_ports,
        ));
        probes.extend(calls(site, Some(self.server_port), meshed));
        probes
    }
}

/// The probes of having nothing in the path.
pub(crate) fn direct_probes(site: &Site) -> Vec<Probe> {
    let mut probes = vec![Probe::Permitted];
    probes.extend(carries(site, None));
    probes.push(Probe::OnTheWire {
        ports: port_numbers(site),
    });
    probes.push(Probe::Canary { readable: true });
    probes.extend(every_node(site, true, &port_numbers(site)));
    probes.extend(by_gateway(site, (None, None), true, port_numbers(site)));
    probes.extend(calls(site, None, false));
    probes
}

/// What is looked at where the replicas stand on several nodes.
fn every_node(site: &Site, readable: bool, ports: &[u16]) -> Option<Probe> {
    (site.server_nodes() > 1).then(|| Probe::EveryNode {
        readable,
        ports: ports.to_vec(),
    })
}

/// What is looked at where clients outside the mesh come in. The ports are those of the mesh's proxies, in the gateway's
/// pod and in the server's.
fn by_gateway(
    site: &Site,
    (proxy_port, server_port): (Option<u16>, Option<u16>),
    readable: bool,
    ports: Vec<u16>,
) -> Vec<Probe> {
    let Some(gateway) = &site.gateway else {
        return Vec::new();
    };
    let mut probes = vec![
        Probe::ByTheGateway {
            proxy_port,
            server_port,
        },
        Probe::BeforeTheGateway,
    ];
    if !gateway.is_only_way {
        probes.push(Probe::BehindTheGateway { readable, ports });
    }
    probes
}

/// What is looked at where services call each other.
fn calls(site: &Site, port: Option<u16>, meshed: bool) -> Vec<Probe> {
    if site.behind.is_empty() {
        return Vec::new();
    }
    vec![
        Probe::CallsInThePath {
            port,
            refuses_outsiders: meshed,
        },
        Probe::CallsOnTheWire { readable: !meshed },
    ]
}

/// Every further port of the application is tried, where the level has an answer for it.
pub(crate) fn carries(site: &Site, level: Option<PolicyLevel>) -> impl Iterator<Item = Probe> {
    let judged =
        move |port: &&AppPort| port.speaks != Speaks::Tcp || level != Some(PolicyLevel::L7);
    let ports = site.more_ports.iter().filter(judged).cloned();
    ports.map(|port| Probe::Carries { port })
}

pub(crate) fn port_numbers(site: &Site) -> Vec<u16> {
    site.ports().iter().map(|port| port.number).collect()
}
