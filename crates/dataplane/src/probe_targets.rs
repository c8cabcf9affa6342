//! The probes that prove a policy level: the same for every data plane.

use std::collections::BTreeMap;

use meshtax_model::experiment::PolicyLevel;

use crate::gateway::GATEWAY_PORT;
use crate::names::{FORBIDDEN_PATH, INTRUDER, PORT_INBOUND, PORT_OUTBOUND};
use crate::probe::{CallIdentity, ClientIdentityFrom, Probe};
use crate::site::{AppPort, AppProtocol, Site};

/// The ports and identities that the probes of a data plane check.
pub(crate) struct ProbeTargets {
    /// The port in the client's pod at which its proxy accepts connections.
    pub(crate) client_port: u16,
    /// The port in the server's pod at which its proxy accepts connections.
    pub(crate) server_port: u16,
    /// The port in the gateway's pod at which a sidecar accepts the gateway's requests; `None`: there is none.
    pub(crate) gateway_proxy_port: Option<u16>,
    /// The ports of the server's pod that are visible on the link.
    pub(crate) wire_ports: Vec<u16>,
    /// Forms an identity from a service account of the site.
    pub(crate) identity: fn(&Site, &str) -> String,
    pub(crate) client_identity: ClientIdentityFrom,
    /// The identity that is presented to the client's proxy.
    pub(crate) server_service_account: String,
}

impl ProbeTargets {
    /// Sidecars with Istio's redirection, and identities in Istio's form.
    pub(crate) fn at_sidecars(site: &Site, client_identity: ClientIdentityFrom) -> Self {
        Self {
            client_port: PORT_OUTBOUND,
            server_port: PORT_INBOUND,
            gateway_proxy_port: Some(PORT_OUTBOUND),
            wire_ports: port_numbers(site),
            identity: Site::spiffe_id,
            client_identity,
            server_service_account: site.entry_point().service_account().to_owned(),
        }
    }

    /// The pods that have the identities of the probes, by identity, if there is an intruder among them.
    pub(crate) fn holders(&self, site: &Site) -> BTreeMap<String, String> {
        let Some(intruder) = &site.intruder else {
            return BTreeMap::new();
        };
        let services = site.services.iter().filter_map(|s| s.pods.first());
        let pods = [site.caller(), intruder].into_iter().chain(services);
        pods.map(|pod| {
            (
                (self.identity)(site, &pod.service_account),
                pod.name.clone(),
            )
        })
        .collect()
    }

    /// The probes of a policy level: the same for every data plane.
    pub(crate) fn probes(self, site: &Site, level: PolicyLevel) -> Vec<Probe> {
        let identity = |account: &str| (self.identity)(site, account);
        let meshed = level >= PolicyLevel::Mtls;
        let mut probes = vec![Probe::Permitted, self.in_the_path(site)];
        probes.extend(carries(site, Some(level)));
        probes.extend(self.of_identities(site, level));
        probes.extend(of_requests(level));
        probes.push(Probe::OnTheWire {
            ports: self.wire_ports.clone(),
        });
        probes.push(Probe::Canary { readable: !meshed });
        if meshed {
            probes.push(Probe::Handshake);
        }
        probes.extend(every_node(site, !meshed, &self.wire_ports));
        probes.extend(by_gateway(
            site,
            (self.gateway_proxy_port, Some(self.server_port)),
            !meshed,
            self.wire_ports,
        ));
        probes.extend(calls(site, Some(self.server_port), meshed));
        if meshed {
            probes.extend(call_identities(site, level, &identity));
        }
        probes
    }

    fn in_the_path(&self, site: &Site) -> Probe {
        Probe::InThePath {
            client_port: match site.has_outside_clients_only() {
                true => self.gateway_proxy_port.unwrap_or(GATEWAY_PORT),
                false => self.client_port,
            },
            server_port: self.server_port,
        }
    }

    /// Who is who, and who is refused for what it is.
    fn of_identities(&self, site: &Site, level: PolicyLevel) -> Vec<Probe> {
        let identity = |account: &str| (self.identity)(site, account);
        let caller = identity(&site.caller().service_account);
        let mut probes = Vec::new();
        if level >= PolicyLevel::Mtls {
            probes.extend([
                Probe::ServerIdentity {
                    expected: identity(&self.server_service_account),
                    client: caller.clone(),
                },
                Probe::ClientIdentity {
                    expected: caller.clone(),
                    from: self.client_identity.clone(),
                },
                Probe::ForeignCa { identity: caller },
                Probe::PlaintextOutsider,
            ]);
        }
        if level >= PolicyLevel::L4 {
            probes.push(Probe::ForbiddenIdentity {
                identity: identity(INTRUDER),
            });
        }
        probes
    }
}

/// Requests that are refused for what they ask.
fn of_requests(level: PolicyLevel) -> Vec<Probe> {
    if level < PolicyLevel::L7 {
        return Vec::new();
    }
    vec![
        Probe::ForbiddenMethod {
            method: "POST".into(),
        },
        Probe::ForbiddenPath {
            path: FORBIDDEN_PATH.into(),
        },
    ]
}

/// The probes of the baseline, without a data plane.
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

/// The probes for replicas on several nodes.
fn every_node(site: &Site, readable: bool, ports: &[u16]) -> Option<Probe> {
    (site.entry_point().server_nodes() > 1).then(|| Probe::EveryNode {
        readable,
        ports: ports.to_vec(),
    })
}

/// The probes for clients outside the mesh. The ports are those of the mesh's proxies, in the gateway's
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
    if !gateway.is_only_ingress {
        probes.push(Probe::BehindTheGateway { readable, ports });
    }
    probes
}

/// The probes for calls between services.
fn calls(site: &Site, port: Option<u16>, meshed: bool) -> Vec<Probe> {
    if site.services.len() < 2 {
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

/// Who may not call the services behind the first. The clients themselves are among them: they may call only entry points.
fn call_identities(
    site: &Site,
    level: PolicyLevel,
    identity: &impl Fn(&str) -> String,
) -> Option<Probe> {
    let client = site.caller().service_account.as_str();
    let first = site.entry_point();
    let behind = site
        .services
        .iter()
        .filter(|service| service.name != first.name);
    let of_service = behind.filter_map(|service| {
        let callers = site.callers(service);
        let strangers = [INTRUDER, client].into_iter();
        let strangers = strangers.filter(|account| !callers.contains(account));
        Some(CallIdentity {
            service: service.name.clone(),
            expected: identity(service.service_account()),
            caller: identity(callers.first()?),
            forbidden: match level >= PolicyLevel::L4 {
                true => strangers.map(identity).collect(),
                false => Vec::new(),
            },
        })
    });
    let services: Vec<CallIdentity> = of_service.collect();
    (!services.is_empty()).then_some(Probe::CallIdentities { services })
}

/// Every further port of the application is tested, where the level can serve it.
pub(crate) fn carries(site: &Site, level: Option<PolicyLevel>) -> impl Iterator<Item = Probe> {
    let judged =
        move |port: &&AppPort| port.protocol != AppProtocol::Tcp || level != Some(PolicyLevel::L7);
    let ports = site.more_ports().iter().filter(judged).cloned();
    ports.map(|port| Probe::Carries { port })
}

pub(crate) fn port_numbers(site: &Site) -> Vec<u16> {
    site.ports().iter().map(|port| port.number).collect()
}
