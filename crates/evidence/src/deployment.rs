//! A variant that an engine has brought up, as the probes need it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_dataplane::PodNode;
use meshtax_model::failure::ComponentFailure;
use meshtax_model::trial::ComponentRole;
use meshtax_tls::Credentials;

use crate::vantage::Vantage;

/// Who certifies a prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// The mesh's own certificate authority.
    Mesh,
    /// An authority that nobody trusts.
    Foreign,
}

/// Why a prober has no certificate.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no certificate for {identity}: {detail}")]
pub struct NoCertificate {
    /// For which identity.
    pub identity: String,
    /// The issuer's error.
    pub detail: String,
}

/// How far a proxy is with the extra endpoints that its control plane sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// It has acknowledged all of them, after so many nanoseconds.
    All(u64),
    /// Some are outstanding.
    Some {
        /// Resources that it has acknowledged.
        held: usize,
        /// Resources that it was sent.
        of: usize,
    },
    /// It rejected them (NACK), with this error.
    Rejected(String),
}

/// A variant that is up.
pub trait Deployment {
    /// The vantage point of a pod, by its name; `None`: there is no such pod.
    fn pod(&self, name: &str) -> Option<&dyn Vantage>;

    /// The vantage point of the proxies that serve a node.
    fn node(&self, node: PodNode) -> Option<&dyn Vantage>;

    /// The vantage point of a pod that is not in the mesh.
    fn outsider(&self) -> &dyn Vantage;

    /// Its address.
    fn outsider_address(&self) -> Ipv4Addr;

    /// The first process of the variant that has ended.
    fn ended(&self) -> Option<ComponentFailure>;

    /// Whether a process of this role was started.
    fn has(&self, role: ComponentRole) -> bool;

    /// The last log lines of all processes of this role.
    fn log(&self, role: ComponentRole) -> Vec<String>;

    /// The environment variables of each process of this role.
    fn environments(&self, role: ComponentRole) -> Vec<BTreeMap<String, String>>;

    /// The last log lines of all processes, for an error message.
    fn last_output(&self) -> Vec<String>;

    /// For each proxy that is sent extra endpoints: how far it is.
    fn extra_endpoints(&self) -> Vec<Acknowledged>;

    /// The spans that each trace collector has received, the clients' pods first.
    fn spans(&self) -> Vec<u64>;

    /// A certificate, its key, and the mesh's trust anchor.
    ///
    /// # Errors
    /// If the issuer refuses.
    fn credentials(&self, issuer: Issuer, identity: &str) -> Result<Credentials, NoCertificate>;
}
