//! `limit-l4` and `limit-mtls`: a minimal proxy pair, built into meshtax, that hands bytes on as they
//! are, or over mutual TLS. It parses nothing and keeps no statistics: the floor that any user-space
//! proxy pays, without encryption and with these ciphers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::{
    Blueprint, ClientIdentityFrom, Content, DataPlane, Looks, PORT_INBOUND, PORT_OUTBOUND,
    PROXY_MARK, Place, Pod, PodFile, Process, Program, Site, TRUST_DOMAIN, certificate_files,
};

pub(crate) const LIMIT_L4: DataPlane = DataPlane {
    name: "limit-l4",
    levels: &[PolicyLevel::Plaintext],
    summary: "a minimal proxy pair built into meshtax that only hands bytes on: the floor of being in the path",
    needs: &[Program::LimitProxy],
    note: Some("no encryption, no parsing, no statistics, no policy: what two more hops cost"),
    waypoint: false,
    build: blueprint,
};

pub(crate) const LIMIT_MTLS: DataPlane = DataPlane {
    name: "limit-mtls",
    levels: &[PolicyLevel::Mtls],
    summary: "a minimal mutual-TLS proxy pair built into meshtax: the floor any user-space proxy pays",
    needs: &[Program::LimitProxy],
    note: Some("no parsing, no statistics, no policy: the floor that any user-space proxy pays"),
    waypoint: false,
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
}

fn blueprint(site: &Site, level: PolicyLevel) -> Blueprint {
    Blueprint {
        probes: Looks::at_sidecars(site, ClientIdentityFrom::ProxyLog).probes(site, level),
        ..Blueprint::sidecars(site, |pod, role| side(site, pod, role, level))
    }
}

fn side(
    site: &Site,
    pod: &Pod,
    role: ComponentRole,
    level: PolicyLevel,
) -> (Vec<PodFile>, Process) {
    let side = match role {
        ComponentRole::ClientProxy => LimitSide::Client,
        _ => LimitSide::Server,
    };
    let tls = (level >= PolicyLevel::Mtls).then(|| LimitTls {
        chain: pod.path("chain.pem"),
        key: pod.path("key.pem"),
        root: pod.path("root.pem"),
        peer: match side {
            LimitSide::Client => site.server.identity(),
            LimitSide::Server => format!("spiffe://{TRUST_DOMAIN}/"),
        },
    });
    let config = LimitProxyConfig {
        side,
        listen_port: match side {
            LimitSide::Client => PORT_OUTBOUND,
            LimitSide::Server => PORT_INBOUND,
        },
        mark: PROXY_MARK,
        workers: site.workers,
        tls,
        upstream_source: (side == LimitSide::Server).then_some(Ipv4Addr::new(127, 0, 0, 6)),
    };
    let mut files = certificate_files(&pod.identity());
    files.push(PodFile {
        name: "limit.json".into(),
        content: Content::Text(serde_json::to_string_pretty(&config).unwrap_or_default()),
    });
    let process = Process {
        role,
        program: Program::LimitProxy,
        arguments: vec![pod.path("limit.json")],
        environment: BTreeMap::new(),
        place: Place::Pod,
    };
    (files, process)
}
