//! A variant under test.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use meshtax_dataplane::{
    ALLOWED_PATH, Contract, GATEWAY_PORT, IngressTarget, Pod, PodNode, Site, SiteService,
};
use meshtax_model::experiment::VariantId;
use meshtax_model::topology::Topology;

use crate::deployment::Deployment;
use crate::finding::Finding;
use crate::http::HttpRequest;
use crate::vantage::{Endpoint, Nowhere, Vantage};

/// How long a variant has for its first permitted request.
pub const READY_WITHIN: Duration = Duration::from_secs(10);
/// Requests with the canary: enough for the frames and bytes that the wire must show.
const MOST_CANARIES: u64 = 8;
/// Bytes of the responses to one probe: a capture of more would drop packets.
const PROBED_BYTES: u64 = 1 << 20;

/// How many requests with the canary a probe sends for responses of this size.
pub(crate) fn canaries(response_bytes: u32) -> u64 {
    (PROBED_BYTES / u64::from(response_bytes).max(1)).clamp(1, MOST_CANARIES)
}

/// A text for the probes of a variant in a round that nothing else on the wire contains.
#[must_use]
pub fn canary(variant: &VariantId, round: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ns = now.map_or(0, |since| since.as_nanos() as u64);
    let unique = ns.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("canary-{variant}-{round}-{unique:016x}")
}

/// A variant under test.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Which variant.
    pub variant: &'a VariantId,
    /// Its pods and services.
    pub site: &'a Site,
    /// What it promises.
    pub contract: &'a Contract,
    /// Which of its services call each other.
    pub topology: &'a Topology,
    /// As the engine runs it.
    pub deployment: &'a dyn Deployment,
    /// A text that the probes send, and that nothing else on the wire contains.
    pub canary: &'a str,
    /// When its first permitted request must have succeeded.
    pub ready_until: Instant,
    /// From the start of its first process to the first response, in nanoseconds; `None`: not observed.
    pub served_ns: Option<u64>,
}

/// The name of the client outside the mesh.
pub const OUTSIDER: &str = "outsider";

/// A client of the probes.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    /// Its pod's name.
    pub(crate) name: &'a str,
    /// Where its requests come from.
    pub(crate) at: &'a dyn Vantage,
    /// The address from which they come.
    pub(crate) address: Ipv4Addr,
    /// The pod in which they enter the mesh: its own, or the gateway's.
    pub(crate) enters: &'a Pod,
}

/// A service as clients call it, or the gateway in front of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) service: &'a SiteService,
    pub(crate) to: Endpoint,
    /// Size of its responses.
    pub(crate) response_bytes: u32,
}

impl<'a> Target<'a> {
    /// The name in its requests, without the port.
    pub(crate) fn host(&self) -> &'a str {
        &self.service.name
    }

    /// A GET that every policy allows.
    pub(crate) fn permitted(&self) -> HttpRequest<'a> {
        HttpRequest::get(self.host(), ALLOWED_PATH)
    }
}

impl<'a> Subject<'a> {
    /// The vantage point of a pod.
    pub(crate) fn at(&self, pod: &Pod) -> &'a dyn Vantage {
        self.deployment.pod(&pod.name).unwrap_or(&Nowhere)
    }

    /// The vantage point of the proxies that serve a node.
    pub(crate) fn at_node(&self, node: PodNode) -> &'a dyn Vantage {
        self.deployment.node(node).unwrap_or(&Nowhere)
    }

    pub(crate) fn at_all(&self, pods: &[Pod]) -> Vec<&'a dyn Vantage> {
        pods.iter().map(|pod| self.at(pod)).collect()
    }

    /// The vantage points of the proxies that serve the server nodes.
    pub(crate) fn at_server_nodes(&self) -> Vec<&'a dyn Vantage> {
        let service = self.site.entry_point();
        let mut nodes: Vec<_> = Vec::new();
        for pod in &service.pods {
            if !nodes.contains(&pod.node) {
                nodes.push(pod.node);
            }
        }
        nodes.into_iter().map(|node| self.at_node(node)).collect()
    }

    /// Where the probes' requests come from: the clients' pods, or the outsider where the gateway is the only ingress.
    pub(crate) fn clients(&self) -> Vec<Client<'a>> {
        let outside = self.site.has_outside_clients_only();
        let client = |pod: &'a Pod| match outside {
            true => Client {
                name: OUTSIDER,
                at: self.deployment.outsider(),
                address: self.deployment.outsider_address(),
                enters: pod,
            },
            false => Client {
                name: &pod.name,
                at: self.at(pod),
                address: pod.address,
                enters: pod,
            },
        };
        self.site.entering_pods().iter().map(client).collect()
    }

    /// The first of them, for what does not depend on the client's proxy.
    pub(crate) fn client(&self) -> Client<'a> {
        self.clients()[0]
    }

    /// What a check finds from each client's point of view. With several, it must pass from each of them.
    pub(crate) fn for_each_client(&self, check: impl Fn(Client<'a>) -> Finding) -> Finding {
        let of_client = |client: Client<'a>| (client.name, check(client));
        Finding::of_each(self.clients().into_iter().map(of_client).collect())
    }

    /// A service at this address.
    pub(crate) fn target(&self, service: &'a SiteService, to: Endpoint) -> Target<'a> {
        let own = self.topology.service(&service.name);
        let usual = service.ports.first().map_or(0, |port| port.response_bytes);
        Target {
            service,
            to,
            response_bytes: own.and_then(|own| own.response_bytes).unwrap_or(usual),
        }
    }

    /// The first service that clients call.
    pub(crate) fn first(&self) -> Target<'a> {
        let service = self.site.entry_point();
        let to = match self.ingress() {
            Some((address, _)) if self.site.has_outside_clients_only() => (address, GATEWAY_PORT),
            _ => service.endpoint(),
        };
        self.target(service, to)
    }

    /// All services that clients call.
    pub(crate) fn targets(&self) -> Vec<Target<'a>> {
        let further = self.site.entry_points().skip(1);
        let further = further.map(|service| self.target(service, service.endpoint()));
        std::iter::once(self.first()).chain(further).collect()
    }

    /// Where clients outside the mesh connect to.
    pub(crate) fn ingress(&self) -> Option<(Ipv4Addr, IngressTarget)> {
        ingress_address(self.site, self.contract)
    }

    /// The application in the first replica's pod, for requests that bypass the client's proxy.
    pub(crate) fn server_pod(&self) -> Endpoint {
        let service = self.site.entry_point();
        let address = service
            .pods
            .first()
            .map_or(service.address, |pod| pod.address);
        (address, service.port())
    }
}

/// Where clients outside the mesh connect to; `None`: there are none.
#[must_use]
pub fn ingress_address(site: &Site, contract: &Contract) -> Option<(Ipv4Addr, IngressTarget)> {
    let target = contract.ingress?;
    let address = match target {
        IngressTarget::Gateway => site.gateway.as_ref()?.pod.address,
        IngressTarget::EntryPoint => site.entry_point().address,
    };
    Some((address, target))
}
