//! The emulation of a mesh's control plane and of its CNI agent: what an engine that has no Kubernetes puts into the pods
//! itself. On a cluster, the mesh does all of this.

use std::collections::BTreeMap;

use meshtax_model::catalogue::Program;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::control::ControlService;
use crate::scope::ProcessScope;
use crate::site::Site;

/// Files, redirection, control planes and processes, pod by pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Emulation {
    /// In the order in which they are started. A pod that is not listed runs its application only.
    pub pods: Vec<PodBlueprint>,
    /// What the engine itself breaks on purpose; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

/// What an engine breaks on purpose, so that tests see the evidence detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing is redirected while a load runs: its connections bypass the proxies, those of the probes do not.
    LoadBypassesProxies,
    /// The same in the pod of the last client only.
    LoadOfOneClientBypassesProxies,
    /// As [`Self::LoadBypassesProxies`]; in addition, busy processes are accounted for as the proxies.
    LoadBypassesBusyProxies,
    /// Nothing is captured.
    NoCapture,
}

impl Fault {
    /// Whether nothing is redirected in a pod of the site while a load runs.
    #[must_use]
    pub fn lifts_redirection(self, site: &Site, pod: &str) -> bool {
        match self {
            Self::LoadBypassesProxies | Self::LoadBypassesBusyProxies => true,
            Self::LoadOfOneClientBypassesProxies => {
                site.clients.last().is_some_and(|last| last.name == pod)
            }
            Self::NoCapture => false,
        }
    }
}

impl Emulation {
    /// The blueprint of this pod.
    #[must_use]
    pub fn pod(&self, name: &str) -> Option<&PodBlueprint> {
        self.pods.iter().find(|blueprint| blueprint.pod == name)
    }

    /// Replaces the pod's blueprint, or appends it.
    pub(crate) fn set(&mut self, new: PodBlueprint) {
        match self.pods.iter_mut().find(|old| old.pod == new.pod) {
            Some(old) => *old = new,
            None => self.pods.push(new),
        }
    }
}

/// Everything that is put into one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodBlueprint {
    /// The pod's name.
    pub pod: String,
    /// Written first.
    pub files: Vec<PodFile>,
    /// Applied before the processes start.
    pub redirect: Redirect,
    /// Control planes that meshtax itself serves to the processes; ready before they start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control: Vec<ControlService>,
    /// Started in this order.
    pub processes: Vec<Process>,
}

impl PodBlueprint {
    /// The same pod with a mesh's sidecar in addition. Files of one name are the same in both.
    pub(crate) fn with_sidecar(mut self, sidecar: Self) -> Self {
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
    /// Its role for the traffic.
    pub role: ComponentRole,
    /// The program.
    pub program: Program,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment variables in addition to meshtax's own. Text only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Content>,
    /// Whether it serves its pod or its node.
    #[serde(default)]
    pub scope: ProcessScope,
}

/// A file that is written before the processes start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodFile {
    /// Its name in the pod's directory.
    pub name: String,
    /// Its content.
    pub content: Content,
}

/// The content of a file, or of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// This text.
    Text(String),
    /// The certificate chain (PEM) of this SPIFFE identity, from the run's certificate authority.
    CertificateChain(String),
    /// Its private key (PEM, PKCS #8).
    PrivateKey(String),
    /// Its private key (DER, PKCS #8).
    PrivateKeyDer(String),
    /// A certificate signing request for that key and identity (DER, PKCS #10).
    SigningRequest(String),
    /// The authority's certificate (PEM).
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
    /// The proxy's own connections, which are not redirected.
    pub exemption: RedirectExemption,
    /// Connections to this port of the pod are not redirected: the proxy listens there itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbound_except: Option<u16>,
    /// The proxy connects to the application from its client's address: packets of connections with its mark are
    /// routed back to it, and not to that client.
    #[serde(default)]
    pub keeps_source: bool,
}

/// How redirection recognises a proxy's own connections, which it exempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RedirectExemption {
    /// There are none.
    #[default]
    None,
    /// They carry this mark, of which only the bits of the mask are compared.
    Mark {
        /// The mark.
        value: u32,
        /// The bits that are compared.
        mask: u32,
    },
    /// They go to this port. For a proxy that cannot mark its connections, where a rule by uid is impossible since only
    /// one user is mapped; the proxy then reaches meshed pods only.
    DestinationPort(u16),
}

impl RedirectExemption {
    /// All bits of this mark.
    #[must_use]
    pub fn mark(value: u32) -> Self {
        Self::Mark {
            value,
            mask: u32::MAX,
        }
    }
}
