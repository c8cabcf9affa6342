//! What proxies count of the traffic that they forward: the proof that a load passed them.

use meshtax_model::failure::TrafficUnit;
use meshtax_model::trial::ComponentRole;
use serde::{Deserialize, Serialize};

use crate::probe::Counter;
use crate::scope::ProcessScope;
use crate::site::Site;

/// A number that each proxy of a workload's pods keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficCounter {
    /// The proxies' side: that of the callers (the client's proxy, or the gateway's), the waypoint, or a service's.
    pub role: ComponentRole,
    /// The name of the service, or of the one pod.
    pub workload: String,
    /// What is counted.
    pub unit: TrafficUnit,
    /// Whether the proxies serve their pods or their nodes.
    #[serde(default)]
    pub scope: ProcessScope,
    /// Its page and series: all lines with this prefix count together.
    pub counter: Counter,
    /// Text that these lines must contain, all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

/// A workload with proxies: their role, the workload's name, its service account.
pub(crate) type Proxied<'a> = (ComponentRole, &'a str, &'a str);

/// Where clients' requests enter the mesh, and every service.
pub(crate) fn proxied(site: &Site) -> Vec<Proxied<'_>> {
    let clients = site.clients_in_mesh().iter();
    let clients = clients.map(|pod| (ComponentRole::ClientProxy, pod));
    let gateway = site.gateway.as_ref();
    let gateway = gateway.map(|gateway| (ComponentRole::Gateway, &gateway.pod));
    let callers = clients.chain(gateway);
    let callers =
        callers.map(|(role, pod)| (role, pod.name.as_str(), pod.service_account.as_str()));
    let services = site.services.iter();
    let services = services.map(|service| {
        let account = service.service_account();
        (ComponentRole::ServerProxy, service.name.as_str(), account)
    });
    callers.chain(services).collect()
}
