//! A variant on the cluster, as the probes see it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use meshtax_agent::remote::AgentError;
use meshtax_control_plane::SharedAuthority;
use meshtax_dataplane::PodNode;
use meshtax_evidence::{Acknowledged, Connection, Deployment, Issuer, NoCertificate, Vantage};
use meshtax_load::LoadSpec;
use meshtax_model::failure::ComponentFailure;
use meshtax_model::trial::{ComponentRole, LoadResult};
use meshtax_tls::Credentials;

use crate::cluster::Cluster;
use crate::ground::Ground;
use crate::mesh::{Installed, NodeProxy};
use crate::pods::{RunningPod, ended};
use crate::variant::Instance;

impl Vantage for RunningPod {
    fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<Box<dyn Connection>> {
        let socket = self.agent.connect(to, timeout).map_err(as_io)?;
        Ok(Box::new(socket))
    }

    fn established_connections(&self, local_port: u16) -> io::Result<u32> {
        self.agent.connections(local_port).map_err(as_io)
    }

    fn run_load(&self, spec: &LoadSpec) -> io::Result<LoadResult> {
        self.agent.run_load(spec).map_err(as_io)
    }
}

/// The point of view of a proxy on a node: what is at its loopback is asked for at its pod's address, from outside the
/// mesh.
struct AtNodeProxy<'a> {
    proxy: &'a NodeProxy,
    outsider: &'a RunningPod,
}

impl Vantage for AtNodeProxy<'_> {
    fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<Box<dyn Connection>> {
        let to = match to.ip().is_loopback() {
            true => (self.proxy.address, to.port()).into(),
            false => to,
        };
        self.outsider.connect(to, timeout)
    }

    fn established_connections(&self, _: u16) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn run_load(&self, _: &LoadSpec) -> io::Result<LoadResult> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What failed in the pod keeps its error; that the agent cannot be reached is no answer of the network under test.
fn as_io(error: AgentError) -> io::Error {
    match error {
        AgentError::Failed(error) => error,
        other => io::Error::new(io::ErrorKind::TimedOut, other.to_string()),
    }
}

/// The authorities of a run.
#[derive(Debug)]
pub(crate) struct Authorities {
    pub(crate) mesh: SharedAuthority,
    /// Nobody trusts it.
    pub(crate) foreign: SharedAuthority,
}

/// A variant that is up.
pub(crate) struct Deployed<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) instance: &'a Instance,
    pub(crate) outsider: &'a RunningPod,
    pub(crate) authorities: &'a Authorities,
    on_nodes: Vec<AtNodeProxy<'a>>,
    /// Of the mesh that the cluster has; `None`: the run's own authority is the mesh's.
    trust_anchor: Option<&'a str>,
    /// When the containers were last looked at: probes ask often.
    looked: Mutex<Option<(Instant, Option<ComponentFailure>)>>,
}

impl<'a> Deployed<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        instance: &'a Instance,
        outsider: &'a RunningPod,
        authorities: &'a Authorities,
        mesh: Option<&'a Installed>,
    ) -> Self {
        let on_nodes = mesh.map_or(&[][..], |mesh| &mesh.on_nodes);
        let at = |proxy: &'a NodeProxy| AtNodeProxy { proxy, outsider };
        Self {
            on_nodes: on_nodes.iter().map(at).collect(),
            trust_anchor: mesh.map(|mesh| mesh.trust_anchor.as_str()),
            cluster,
            instance,
            outsider,
            authorities,
            looked: Mutex::new(None),
        }
    }

    /// The last lines of each container, at most so many.
    fn logs(&self, of: impl Fn(ComponentRole) -> bool, lines: usize) -> Vec<String> {
        let containers = self.instance.containers.iter();
        let of_role = containers.filter(|container| of(container.role));
        let log = |container: &crate::variant::Placed| {
            let pod = &container.pod;
            let namespace = &self.instance.namespace;
            let mut log = self.cluster.log(namespace, pod, &container.name);
            log.split_off(log.len().saturating_sub(lines))
        };
        of_role.flat_map(log).collect()
    }
}

impl Deployment for Deployed<'_> {
    fn pod(&self, name: &str) -> Option<&dyn Vantage> {
        Some(self.instance.pods.get(name)?)
    }

    fn node(&self, node: PodNode) -> Option<&dyn Vantage> {
        let index = Ground::node_index(node);
        let here = |at: &&AtNodeProxy<'_>| at.proxy.node == index;
        Some(self.on_nodes.iter().find(here)?)
    }

    fn outsider(&self) -> &dyn Vantage {
        self.outsider
    }

    fn outsider_address(&self) -> Ipv4Addr {
        self.outsider.address
    }

    fn ended(&self) -> Option<ComponentFailure> {
        const FRESH: Duration = Duration::from_millis(500);
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, failure)) = &*looked
            && at.elapsed() < FRESH
        {
            return failure.clone();
        }
        let failure = self.instance.ended(self.cluster).into_iter().next();
        *looked = Some((Instant::now(), failure.clone()));
        failure
    }

    fn has(&self, role: ComponentRole) -> bool {
        let on_nodes = self.on_nodes.iter().map(|at| at.proxy.role());
        let containers = self.instance.containers.iter().map(|c| c.role);
        containers.chain(on_nodes).any(|of| of == role)
    }

    fn log(&self, role: ComponentRole) -> Vec<String> {
        self.logs(|of| of == role, usize::MAX)
    }

    fn environments(&self, _: ComponentRole) -> Vec<BTreeMap<String, String>> {
        // Not visible from the API server: what needs them fails.
        Vec::new()
    }

    fn last_output(&self) -> Vec<String> {
        /// Proxies log a line for each refused request.
        const LINES: usize = 2;
        let is_theirs = |role| role != ComponentRole::Generator && role != ComponentRole::Harness;
        self.logs(is_theirs, LINES)
    }

    fn extra_endpoints(&self) -> Vec<Acknowledged> {
        Vec::new()
    }

    fn spans(&self) -> Vec<u64> {
        Vec::new()
    }

    fn credentials(&self, issuer: Issuer, identity: &str) -> Result<Credentials, NoCertificate> {
        let lock = |authority: &SharedAuthority| {
            let mut authority = authority.lock().unwrap_or_else(PoisonError::into_inner);
            let root_pem = authority.root_pem();
            authority.leaf(identity).map(|leaf| (leaf, root_pem))
        };
        let failed = |e: &dyn std::fmt::Display| NoCertificate {
            identity: identity.to_owned(),
            detail: e.to_string(),
        };
        let (own, root_pem) = lock(&self.authorities.mesh).map_err(|e| failed(&e))?;
        let leaf = match issuer {
            Issuer::Mesh => own,
            Issuer::Foreign => lock(&self.authorities.foreign).map_err(|e| failed(&e))?.0,
        };
        Ok(Credentials {
            chain_pem: leaf.chain_pem,
            key_pem: leaf.key_pem,
            root_pem: self.trust_anchor.map_or(root_pem, str::to_owned),
        })
    }
}

impl Instance {
    /// Its containers that have ended on their own, and its pods that are gone. An API server that does not answer just
    /// now shows neither.
    pub(crate) fn ended(&self, cluster: &Cluster) -> Vec<ComponentFailure> {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        let role = |pod: &str, container: &str| {
            let mut placed = self.containers.iter();
            let placed = placed.find(|of| of.pod == pod && of.name == container);
            placed.map(|of| of.role)
        };
        let failures = ended(cluster, &self.namespace, &names, role).unwrap_or_default();
        let in_variant = |failure: ComponentFailure| ComponentFailure {
            component: failure
                .component
                .replacen(&self.namespace, &self.variant.id.to_string(), 1),
            ..failure
        };
        failures.into_iter().map(in_variant).collect()
    }
}
