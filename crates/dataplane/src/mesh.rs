//! The site from the mesh's point of view: each proxied pod with its callers and its callees.

use std::net::Ipv4Addr;

use crate::site::{AppPort, Pod, Site, SiteService};

/// A pod with a proxy: who may call it, and which services it calls.
#[derive(Clone, Debug)]
pub(crate) struct ProxiedPod<'a> {
    pub(crate) pod: &'a Pod,
    /// Of its application; none if it is called by nothing.
    pub(crate) ports: &'a [AppPort],
    /// Service accounts of its callers; `None`: it belongs to no service.
    pub(crate) callers: Option<Vec<&'a str>>,
    pub(crate) callees: Vec<&'a SiteService>,
}

impl ProxiedPod<'_> {
    /// Whether it is called and calls as well.
    pub(crate) fn is_between(&self) -> bool {
        self.callers.is_some() && !self.callees.is_empty()
    }
}

impl SiteService {
    /// Its own address, if callers do not connect to its only pod's.
    pub(crate) fn virtual_address(&self) -> Option<Ipv4Addr> {
        self.has_virtual_address().then_some(self.address)
    }

    /// The service account of its pods.
    pub(crate) fn service_account(&self) -> &str {
        self.pods.first().map_or("", |pod| &pod.service_account)
    }
}

impl Site {
    /// The clients' pods in the mesh; none if all clients are outside of it.
    pub(crate) fn clients_in_mesh(&self) -> &[Pod] {
        match self.has_outside_clients_only() {
            true => &[],
            false => &self.clients,
        }
    }

    /// The same with what they call.
    pub(crate) fn proxied_clients(&self) -> impl Iterator<Item = ProxiedPod<'_>> {
        self.clients_in_mesh().iter().map(|pod| self.calling(pod))
    }

    /// The gateway's pod.
    pub(crate) fn proxied_gateway(&self) -> Option<ProxiedPod<'_>> {
        let gateway = self.gateway.as_ref()?;
        Some(self.calling(&gateway.pod))
    }

    /// The pods of the services, service by service.
    pub(crate) fn proxied_services(&self) -> impl Iterator<Item = ProxiedPod<'_>> {
        self.services.iter().flat_map(move |service| {
            let callees = self.services.iter();
            let callees: Vec<_> = callees
                .filter(|callee| service.calls.contains(&callee.name))
                .collect();
            service.pods.iter().map(move |pod| ProxiedPod {
                pod,
                ports: &service.ports,
                callers: Some(self.callers(service)),
                callees: callees.clone(),
            })
        })
    }

    /// A pod that calls all entry points.
    fn calling<'a>(&'a self, pod: &'a Pod) -> ProxiedPod<'a> {
        ProxiedPod {
            pod,
            ports: &[],
            callers: None,
            callees: self.entry_points().collect(),
        }
    }

    /// Service accounts of the clients and the gateway, as far as they are in the mesh.
    pub(crate) fn client_accounts(&self) -> Vec<&str> {
        let gateway = self.gateway.as_ref().map(|gateway| &gateway.pod);
        let pods = self.clients_in_mesh().iter().chain(gateway);
        let mut accounts: Vec<&str> = pods.map(|pod| pod.service_account.as_str()).collect();
        // All clients have one.
        accounts.dedup();
        accounts
    }

    /// Service accounts of those who may call a service.
    #[must_use]
    pub fn callers(&self, service: &SiteService) -> Vec<&str> {
        let clients = match service.entry_point {
            true => self.client_accounts(),
            false => Vec::new(),
        };
        let services = self.calling_services(&service.name);
        let services = services.map(SiteService::service_account);
        clients.into_iter().chain(services).collect()
    }
}
