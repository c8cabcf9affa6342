//! `limit-l4` and `limit-mtls`: a minimal proxy pair, built into meshtax, that forwards bytes
//! unmodified, or over mutual TLS. It parses nothing and keeps no statistics: close to the least that a
//! user-space proxy costs, without encryption and with these ciphers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::blueprint::{Blueprint, Sidecar, ingress, sidecars};
use crate::contract::Contract;
use crate::emulation::{Content, PodFile, Process, certificate_files};
use crate::mesh::ProxiedPod;
use crate::names::{PORT_INBOUND, PORT_OUTBOUND, PROXY_MARK, TRUST_DOMAIN, spiffe_id};
use crate::probe::ClientIdentityFrom;
use crate::probe_targets::ProbeTargets;
use crate::scope::ProcessScope;
use crate::site::{Pod, Site, SiteService};
use meshtax_model::catalogue::Program;

/// The side of the encrypted connection on which the proxy runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitSide {
    /// Accepts the application's connections and encrypts.
    Client,
    /// Accepts encrypted connections and forwards the plaintext to the application.
    Server,
}

/// The minimal proxy's configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitProxyConfig {
    /// The side on which it runs.
    pub side: LimitSide,
    /// The port at which it listens, on all addresses.
    pub listen_port: u16,
    /// The mark of its own connections, which exempts them from redirection.
    pub mark: u32,
    /// Worker threads.
    pub workers: u32,
    /// `None`: plaintext, both sides.
    pub tls: Option<LimitTls>,
    /// Client side, with TLS: whether a connection to the other proxy carries another of the application's connections to
    /// the same destination once the one before has ended.
    pub pools: bool,
    /// Server side: the source address of its connections to the application, as in Istio.
    pub upstream_source: Option<Ipv4Addr>,
}

/// The minimal proxy's TLS files and trusted peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitTls {
    /// Path of the certificate chain, PEM.
    pub chain: String,
    /// Path of the private key, PEM.
    pub key: String,
    /// Path of the trust anchor, PEM.
    pub root: String,
    /// Client side: the exact SPIFFE identity of the server. Server side: a prefix that the
    /// client's identity must have (the trust domain).
    pub peer: String,
    /// Client side: the exact identity expected at each of these addresses, instead of the default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<Ipv4Addr, String>,
}

pub(crate) fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    Blueprint {
        contract: Contract {
            probes: ProbeTargets::at_sidecars(site, ClientIdentityFrom::ProxyLog)
                .probes(site, level),
            proxy_port: Some(PORT_INBOUND),
            caller_port: Some(PORT_OUTBOUND),
            ingress: ingress(site),
            ..Contract::default()
        },
        emulation: sidecars(site, |proxied| sides(site, proxied, level)),
    }
}

/// One proxy for inbound connections, and one for outbound ones.
fn sides(site: &Site, proxied: &ProxiedPod<'_>, level: PolicyLevel) -> Sidecar {
    let mut files = certificate_files(&proxied.pod.identity());
    let mut processes = Vec::new();
    if proxied.callers.is_some() {
        let peer = format!("spiffe://{TRUST_DOMAIN}/");
        let of = Side {
            side: LimitSide::Server,
            role: ComponentRole::ServerProxy,
            file: "limit.json",
            peer,
            peers: BTreeMap::new(),
            pools: false,
        };
        let (file, process) = of.proxy(site, proxied.pod, level);
        files.push(file);
        processes.push(process);
    }
    if let Some(first) = proxied.callees.first() {
        let (role, file) = match proxied.is_between() {
            true => (ComponentRole::ServerProxy, "limit-out.json"),
            false => (ComponentRole::ClientProxy, "limit.json"),
        };
        let identity = |callee: &SiteService| spiffe_id(callee.service_account());
        let further = proxied.callees.iter().skip(1);
        let of = Side {
            side: LimitSide::Client,
            role,
            file,
            peer: identity(first),
            peers: further.map(|c| (c.address, identity(c))).collect(),
            // Of several pods, each connection reaches another.
            pools: level >= PolicyLevel::Mtls && proxied.callees.iter().all(|c| c.pods.len() == 1),
        };
        let (file, process) = of.proxy(site, proxied.pod, level);
        files.push(file);
        processes.push(process);
    }
    Sidecar {
        files,
        processes,
        ..Sidecar::default()
    }
}

/// One of a pod's proxies.
struct Side {
    side: LimitSide,
    role: ComponentRole,
    file: &'static str,
    peer: String,
    peers: BTreeMap<Ipv4Addr, String>,
    pools: bool,
}

impl Side {
    fn proxy(self, site: &Site, pod: &Pod, level: PolicyLevel) -> (PodFile, Process) {
        let tls = (level >= PolicyLevel::Mtls).then(|| LimitTls {
            chain: pod.path("chain.pem"),
            key: pod.path("key.pem"),
            root: pod.path("root.pem"),
            peer: self.peer,
            peers: self.peers,
        });
        let config = LimitProxyConfig {
            side: self.side,
            listen_port: match self.side {
                LimitSide::Client => PORT_OUTBOUND,
                LimitSide::Server => PORT_INBOUND,
            },
            mark: PROXY_MARK,
            workers: site.workers_of(Program::LimitProxy),
            tls,
            pools: self.pools,
            upstream_source: (self.side == LimitSide::Server)
                .then_some(Ipv4Addr::new(127, 0, 0, 6)),
        };
        let file = PodFile {
            name: self.file.into(),
            content: Content::Text(serde_json::to_string_pretty(&config).unwrap_or_default()),
        };
        let process = Process {
            role: self.role,
            program: Program::LimitProxy,
            arguments: vec![pod.path(self.file)],
            environment: BTreeMap::new(),
            scope: ProcessScope::Pod,
        };
        (file, process)
    }
}
