//! `limit-l4` and `limit-mtls`: a minimal proxy pair, built into meshtax, that hands bytes on as they
//! are, or over mutual TLS. It parses nothing and keeps no statistics: the floor that any user-space
//! proxy pays, without encryption and with these ciphers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::{
    Blueprint, Callee, ClientIdentityFrom, Content, DataPlane, InPod, Looks, Meshed, PORT_INBOUND,
    PORT_OUTBOUND, PROXY_MARK, Place, Pod, PodFile, Process, Program, Site, TRUST_DOMAIN,
    certificate_files, spiffe_id,
};

pub(crate) const LIMIT_L4: DataPlane = DataPlane {
    name: "limit-l4",
    levels: &[PolicyLevel::Plaintext],
    summary: "a minimal proxy pair built into meshtax that only hands bytes on: the floor of being in the path",
    needs: &[Program::LimitProxy],
    note: Some("no encryption, no parsing, no statistics, no policy: what two more hops cost"),
    options: &[],
    waypoint: false,
    graphs: true,
    gateway: true,
    build: blueprint,
};

pub(crate) const LIMIT_MTLS: DataPlane = DataPlane {
    name: "limit-mtls",
    levels: &[PolicyLevel::Mtls],
    summary: "a minimal mutual-TLS proxy pair built into meshtax: the floor any user-space proxy pays",
    needs: &[Program::LimitProxy],
    note: Some("no parsing, no statistics, no policy: the floor that any user-space proxy pays"),
    options: &[],
    waypoint: false,
    graphs: true,
    gateway: true,
    build: blueprint,
};

/// Which end of the encrypted connection the proxy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitSide {
    /// Takes the application's connections and encrypts.
    Client,
    /// Takes encrypted connections and hands them to the application.
    Server,
}

/// The minimal proxy's configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitProxyConfig {
    /// Which end it is.
    pub side: LimitSide,
    /// It listens on all addresses at this port.
    pub listen_port: u16,
    /// Put on its own connections, so that redirection leaves them alone.
    pub mark: u32,
    /// Worker threads.
    pub workers: u32,
    /// `None`: plaintext, both sides.
    pub tls: Option<LimitTls>,
    /// Server side: where its connections to the application come from, as in Istio.
    pub upstream_source: Option<Ipv4Addr>,
}

/// The minimal proxy's TLS files and whom it trusts.
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
    /// Client side: the exact identity of whoever is called at one of these addresses, in its place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<Ipv4Addr, String>,
}

fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    Blueprint {
        probes: Looks::at_sidecars(site, ClientIdentityFrom::ProxyLog).probes(site, level),
        ..Blueprint::sidecars(site, |end| sides(site, end, level))
    }
}

/// A proxy for who calls the pod, and one for what it calls.
fn sides(site: &Site, end: &Meshed<'_>, level: PolicyLevel) -> InPod {
    let mut files = certificate_files(&end.pod.identity());
    let mut processes = Vec::new();
    if end.callers.is_some() {
        let peer = format!("spiffe://{TRUST_DOMAIN}/");
        let of = Side {
            side: LimitSide::Server,
            role: ComponentRole::ServerProxy,
            file: "limit.json",
            peer,
            peers: BTreeMap::new(),
        };
        let (file, process) = of.proxy(site, end.pod, level);
        files.push(file);
        processes.push(process);
    }
    if let Some(first) = end.callees.first() {
        let (role, file) = match end.is_between() {
            true => (ComponentRole::ServerProxy, "limit-out.json"),
            false => (ComponentRole::ClientProxy, "limit.json"),
        };
        let identity = |callee: &Callee<'_>| spiffe_id(callee.service_account());
        let further = end.callees.iter().skip(1);
        let of = Side {
            side: LimitSide::Client,
            role,
            file,
            peer: identity(first),
            peers: further.map(|c| (c.called, identity(c))).collect(),
        };
        let (file, process) = of.proxy(site, end.pod, level);
        files.push(file);
        processes.push(process);
    }
    InPod {
        files,
        processes,
        ..InPod::default()
    }
}

/// One of a pod's proxies.
struct Side {
    side: LimitSide,
    role: ComponentRole,
    file: &'static str,
    peer: String,
    peers: BTreeMap<Ipv4Addr, String>,
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
            workers: site.workers,
            tls,
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
            place: Place::Pod,
        };
        (file, process)
    }
}
